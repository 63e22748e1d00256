//! Tests of the survey of a switch, and of the findings drawn from the switch's responses.

use super::*;

const SOFIA: &str = "                     Name\t   Type\t                    Data\tState\n\
    ==========================================================\n\
    \x20             external\tprofile\t  sip:mod_sofia@127.0.0.1:15080\tRUNNING (0)\n\
    \x20       external::city\tgateway\t        sip:city@127.0.0.1:16000\tNOREG\n\
    \x20        external::gsm\tgateway\tsip:gsm@gsm.example;transport=udp\tREGED\n\
    \x20             internal\tprofile\t  sip:mod_sofia@127.0.0.1:15060\tRUNNING (2)\n\
    \x20            127.0.0.1\t  alias\t                        internal\tALIASED\n\
    ==========================================================\n2 profiles 1 alias\n";

/// Returns the facts that a survey learns from these responses to its questions, in order.
fn run_survey(answers: [&str; 5]) -> SwitchFacts {
    let mut survey = Survey::new("long and secret");
    for answer in answers {
        assert!(!survey.is_answered());
        survey.on_answer(answer.as_bytes());
    }
    assert!(survey.is_answered());
    survey.facts()
}

fn healthy_facts() -> SwitchFacts {
    run_survey([
        "FreeSWITCH Version 1.10.12-release~64bit (-release 64bit)\n",
        r#"{"row_count":0}"#,
        SOFIA,
        "false",
        r#"{"row_count":2,"rows":[{"reg_user":"101","realm":"pbx.lab"},{"reg_user":"102"}]}"#,
    ])
}

/// Returns trunks in the form that the survey expects. Each item is a name and its endpoints,
/// separated by `|`.
fn trunks(all: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let mut trunks = Vec::new();
    for (name, endpoints) in all {
        let endpoints = endpoints.split('|').map(str::to_owned).collect();
        trunks.push(((*name).to_owned(), endpoints));
    }
    trunks
}

/// Returns the findings that need a fix, one per line.
fn faults(found: &[SwitchFinding]) -> Vec<String> {
    let wrong = found
        .iter()
        .filter(|finding| finding.weight != Severity::Well);
    wrong
        .map(|finding| {
            format!(
                "{:?} {}: {}; {}",
                finding.weight, finding.about, finding.message, finding.fix
            )
        })
        .collect()
}

#[test]
fn sofia_table_yields_gateway_profiles_and_addresses() {
    let facts = healthy_facts();
    assert_eq!(facts.release.as_deref(), Some("1.10.12-release~64bit"));
    assert!(facts.lists_channels && facts.publishes == Some(false));
    assert_eq!(
        facts.profiles.iter().collect::<Vec<_>>(),
        ["external", "internal"]
    );
    assert_eq!(facts.extensions.iter().collect::<Vec<_>>(), ["101", "102"]);
    let gateways = facts.gateways.expect("gateways");
    for (name, shown) in [
        ("city", "external 127.0.0.1:16000 false"),
        ("gsm", "external gsm.example true"),
    ] {
        let gateway = &gateways[name];
        let found = format!(
            "{} {} {}",
            gateway.profile, gateway.address, gateway.registers
        );
        assert_eq!(found, shown, "{name}");
    }
}

#[test]
fn matching_trunks_have_no_findings() {
    let well = healthy_facts();
    for fit in [
        &[
            ("city", "gateway/city|address/127.0.0.1:16000"),
            ("gsm", "gateway/gsm"),
        ][..],
        &[("all", "profile/external")],
        &[("all", "profile/ext*"), ("city", "context/public")],
        &[("all", "sofia/external")],
        &[("city", "address/127.0.0.1:16000"), ("gsm", "gateway/g*m")],
    ] {
        assert_eq!(faults(&well.judge(&trunks(fit), false)), [""; 0], "{fit:?}");
    }
}

/// Returns the findings that need a fix if the trunk `city` has this endpoint.
fn faults_of_endpoint(endpoint: &str) -> Vec<String> {
    let trunks = trunks(&[("city", endpoint), ("gsm", "gateway/gsm")]);
    faults(&healthy_facts().judge(&trunks, false))
}

#[test]
fn wrong_gateway_address_and_asterisk_endpoint_are_reported() {
    for wrong in [
        "gateway/city|address/WRONG",
        "address/sbc.example:5060|gateway/city",
    ] {
        let found = faults_of_endpoint(wrong);
        assert!(
            found
                .iter()
                .any(|fault| fault.contains("and this is not an IP address")),
            "{found:?}"
        );
    }
    let other = faults_of_endpoint("gateway/city|address/192.0.2.9");
    let named = "Advice endpoint address/192.0.2.9: the gateways of trunk city have another \
                 address: 127.0.0.1:16000";
    assert!(
        other.iter().any(|fault| fault.starts_with(named)),
        "{other:?}"
    );
    assert_eq!(
        faults_of_endpoint("address/127.0.0.*|gateway/city"),
        [] as [&str; 0]
    );
    let v6 = faults_of_endpoint("address/2001:db8::5");
    assert!(
        !v6.iter()
            .any(|fault| fault.contains("and this is not an IP address")),
        "{v6:?}"
    );
    let asterisk = faults_of_endpoint("gateway/city|address/127.0.0.1|PJSIP/city");
    assert_eq!(asterisk.len(), 1, "{asterisk:?}");
    assert!(asterisk[0].starts_with("Fault endpoint PJSIP/city: PJSIP/… is a channel of Asterisk"));
}

#[test]
fn unmatched_trunk_and_unmatched_gateway_are_reported() {
    let found =
        faults(&healthy_facts().judge(&trunks(&[("city", "gateway/town|profile/outside")]), false));
    assert_eq!(found.len(), 3, "{found:?}");
    let none =
        "FreeSWITCH does not know this name, so calls over trunk city would be internal; it has";
    assert!(found[0].starts_with(&format!("Fault endpoint gateway/town: {none} city, gsm; ")));
    assert!(found[1].starts_with(&format!(
        "Fault endpoint profile/outside: {none} external, "
    )));
    assert!(
        found[2].starts_with("Advice gateways: no --trunk matches city, gsm; name it with --trunk")
    );
}

#[test]
fn unregistered_gateway_advises_adding_address_to_trunk() {
    let found = faults(&healthy_facts().judge(
        &trunks(&[("a", "gateway/city"), ("b", "gateway/gsm")]),
        false,
    ));
    let [finding] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert!(finding.starts_with("Advice gateway city: the switch does not register with it"));
    assert!(
        finding.ends_with("give --trunk 'a=gateway/city|address/127.0.0.1:16000,…'"),
        "{finding}"
    );
}

#[test]
fn missing_modules_and_default_password_name_config_lines() {
    let mut bare = run_survey([
        "-ERR no",
        "-ERR show Command not found!\n",
        "-ERR no",
        "false",
        "-ERR show Command not found!\n",
    ]);
    bare.known_password = Survey::new("ClueCon").facts().known_password;
    let found = faults(&bare.judge(&trunks(&[("a", "gateway/city")]), true)).join("\n");
    for words in [
        "<param name=\"password\" value=",
        "<load module=\"mod_commands\"/>",
        "<load module=\"mod_amqp\"/>",
    ] {
        assert!(found.contains(words), "{found}");
    }
    assert!(bare.gateways.is_none() && !found.contains("gateway/city"));
}
