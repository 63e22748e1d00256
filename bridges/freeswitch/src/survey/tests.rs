//! Tests of a switch's answers, and of the findings in them.

use super::*;

const SOFIA: &str = "                     Name\t   Type\t                    Data\tState\n\
    ==========================================================\n\
    \x20             external\tprofile\t  sip:mod_sofia@127.0.0.1:15080\tRUNNING (0)\n\
    \x20       external::city\tgateway\t        sip:city@127.0.0.1:16000\tNOREG\n\
    \x20        external::gsm\tgateway\tsip:gsm@gsm.example;transport=udp\tREGED\n\
    \x20             internal\tprofile\t  sip:mod_sofia@127.0.0.1:15060\tRUNNING (2)\n\
    \x20            127.0.0.1\t  alias\t                        internal\tALIASED\n\
    ==========================================================\n2 profiles 1 alias\n";

fn surveyed(answers: [&str; 5]) -> SwitchFacts {
    let mut survey = Survey::new("long and secret");
    for answer in answers {
        assert!(!survey.is_answered());
        survey.on_answer(answer.as_bytes());
    }
    assert!(survey.is_answered());
    survey.facts()
}

fn well() -> SwitchFacts {
    surveyed([
        "FreeSWITCH Version 1.10.12-release~64bit (-release 64bit)\n",
        r#"{"row_count":0}"#,
        SOFIA,
        "false",
        r#"{"row_count":2,"rows":[{"reg_user":"101","realm":"pbx.lab"},{"reg_user":"102"}]}"#,
    ])
}

fn trunks(all: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let endpoints = |it: &str| it.split('|').map(str::to_owned).collect();
    all.iter()
        .map(|(name, endpoint)| ((*name).to_owned(), endpoints(endpoint)))
        .collect()
}

/// Returns the findings that need a fix, one per line.
fn faults(found: &[SwitchFinding]) -> Vec<String> {
    let wrong = found.iter().filter(|it| it.weight != Severity::Well);
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
fn sofia_table_gives_gateway_profile_address_and_registration() {
    let facts = well();
    assert_eq!(facts.release.as_deref(), Some("1.10.12-release~64bit"));
    assert!(facts.lists_channels && facts.publishes == Some(false));
    assert_eq!(
        facts.profiles.iter().collect::<Vec<_>>(),
        ["external", "internal"]
    );
    assert_eq!(facts.extensions.iter().collect::<Vec<_>>(), ["101", "102"]);
    let gateways = facts.gateways.expect("told");
    let shown = |name: &str| {
        let it = &gateways[name];
        format!("{} {} {}", it.profile, it.address, it.registers)
    };
    assert_eq!(shown("city"), "external 127.0.0.1:16000 false");
    assert_eq!(shown("gsm"), "external gsm.example true");
}

#[test]
fn trunks_that_fit_are_well() {
    let well = well();
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

#[test]
fn wrong_gateway_address_and_asterisk_endpoint_are_named() {
    let told = |endpoint: &str| {
        let trunks = trunks(&[("city", endpoint), ("gsm", "gateway/gsm")]);
        faults(&well().judge(&trunks, false))
    };
    for wrong in [
        "gateway/city|address/WRONG",
        "address/sbc.example:5060|gateway/city",
    ] {
        let told = told(wrong);
        assert!(
            told.iter()
                .any(|it| it.contains("and this is not an IP address")),
            "{told:?}"
        );
    }
    let other = told("gateway/city|address/192.0.2.9");
    let named = "Advice endpoint address/192.0.2.9: the gateways of trunk city have another \
                 address: 127.0.0.1:16000";
    assert!(other.iter().any(|it| it.starts_with(named)), "{other:?}");
    assert_eq!(told("address/127.0.0.*|gateway/city"), [] as [&str; 0]);
    let v6 = told("address/2001:db8::5");
    assert!(
        !v6.iter()
            .any(|it| it.contains("and this is not an IP address")),
        "{v6:?}"
    );
    let asterisk = told("gateway/city|address/127.0.0.1|PJSIP/city");
    assert_eq!(asterisk.len(), 1, "{asterisk:?}");
    assert!(asterisk[0].starts_with("Fault endpoint PJSIP/city: PJSIP/… is a channel of Asterisk"));
}

#[test]
fn trunk_without_gateway_and_gateway_without_trunk_are_named() {
    let told = faults(&well().judge(&trunks(&[("city", "gateway/town|profile/outside")]), false));
    assert_eq!(told.len(), 3, "{told:?}");
    let none = "the switch has none of this name: calls over trunk city would be internal; it has";
    assert!(told[0].starts_with(&format!("Fault endpoint gateway/town: {none} city, gsm; ")));
    assert!(told[1].starts_with(&format!(
        "Fault endpoint profile/outside: {none} external, "
    )));
    assert!(
        told[2].starts_with("Advice gateways: no --trunk matches city, gsm; name it with --trunk")
    );
}

#[test]
fn unregistered_gateway_advises_adding_address_to_trunk() {
    let told = faults(&well().judge(
        &trunks(&[("a", "gateway/city"), ("b", "gateway/gsm")]),
        false,
    ));
    let [told] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert!(told.starts_with("Advice gateway city: the switch does not register with it"));
    assert!(
        told.ends_with("give --trunk 'a=gateway/city|address/127.0.0.1:16000,…'"),
        "{told}"
    );
}

#[test]
fn missing_modules_and_default_password_name_config_lines() {
    let mut bare = surveyed([
        "-ERR no",
        "-ERR show Command not found!\n",
        "-ERR no",
        "false",
        "-ERR show Command not found!\n",
    ]);
    bare.known_password = Survey::new("ClueCon").facts().known_password;
    let told = faults(&bare.judge(&trunks(&[("a", "gateway/city")]), true)).join("\n");
    for words in [
        "<param name=\"password\" value=",
        "<load module=\"mod_commands\"/>",
        "<load module=\"mod_amqp\"/>",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert!(bare.gateways.is_none() && !told.contains("gateway/city"));
}
