//! Proposes for each endpoint that the PBX has shown whether it is a trunk or a telephone. The name
//! of an endpoint does not count. For a FreeSWITCH, gateways are trunks, and extensions that are
//! logged in are telephones.

use callbridge_asterisk::survey::{EndpointFact, EndpointList};
use callbridge_freeswitch::survey::{SwitchFacts, SwitchGateway};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// An endpoint and the kind that is proposed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedEndpoint {
    /// The endpoint's name as the PBX writes it: `PJSIP/x7`.
    pub endpoint: String,
    /// Trunk, telephone or unknown, by its strongest fact.
    pub kind: EndpointKind,
    /// The fact that decided the kind, as text.
    pub reason: String,
}

/// Technologies whose endpoints make no calls.
const NO_CALLS: &str = "Local Queue Custom MWI Park Meetme confbridge Calendar";

/// Lists all endpoints that can make calls: trunks first, then unknown ones, then telephones.
pub fn propose(endpoints: &EndpointList) -> Vec<ProposedEndpoint> {
    let calls = endpoints.facts.iter().filter(|(name, _)| {
        let technology = name.split('/').next().unwrap_or_default();
        let mut without_calls = NO_CALLS.split(' ');
        !without_calls.any(|other| other.eq_ignore_ascii_case(technology))
    });
    let proposed = calls.map(|(name, facts)| {
        let (kind, reason) = classify(facts);
        ProposedEndpoint {
            endpoint: name.clone(),
            kind,
            reason,
        }
    });
    let mut all: Vec<ProposedEndpoint> = proposed.collect();
    all.sort_by_key(|endpoint| endpoint.kind);
    all
}

/// Makes a trunk's name from its endpoint's device. `taken` are the names of other trunks.
pub fn trunk_name(endpoint: &str, taken: &[String]) -> String {
    let first = endpoint.split('|').next().unwrap_or_default();
    let device = first.split_once('/').map_or(first, |(_, device)| device);
    let mut spelled = String::new();
    for c in device.chars().take(56) {
        let is_plain = c.is_ascii_alphanumeric() || "-_.".contains(c);
        spelled.push(if is_plain { c } else { '-' });
    }
    let name = match spelled.trim_matches('-') {
        "" => "trunk".to_owned(),
        name => name.to_owned(),
    };
    let mut free = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    free.find(|name| !taken.contains(name)).unwrap_or(name)
}

/// Returns the extension of a telephone, such as `101` of `PJSIP/101`.
pub fn extension(endpoint: &str) -> &str {
    let device = endpoint
        .split_once('/')
        .map_or(endpoint, |(_, device)| device);
    device.split('/').next().unwrap_or_default()
}

/// The kind of an endpoint, in the order of the proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointKind {
    /// A line to the outside, with calls of customers.
    Trunk,
    /// No fact shows what the endpoint is.
    Unknown,
    /// A telephone in the company.
    Telephone,
}

/// Returns the kind that the strongest fact shows, and the reason as text.
pub fn classify(facts: &BTreeSet<EndpointFact>) -> (EndpointKind, String) {
    use EndpointFact::{CalledAs, Dynamic, Fixed, Hint, Identified, LogsInHere, LogsInThere};
    use EndpointFact::{Mailbox, NoLogin, Outside, Registers};
    let Some(strongest) = facts.first() else {
        let message = "only its name is known, which does not show what it is";
        return (EndpointKind::Unknown, message.to_owned());
    };
    let kind = match strongest {
        Registers(_) | Identified(_) | LogsInThere | Fixed(_) | NoLogin | Outside(_) => {
            EndpointKind::Trunk
        }
        Hint(_) | Mailbox(_) | Dynamic | LogsInHere | CalledAs(_) => EndpointKind::Telephone,
    };
    let reason = match strongest {
        Registers(host) => format!("the PBX registers with it at {host}"),
        Hint(exten) => format!("extension {exten} of the dialplan shows its state (a hint)"),
        Mailbox(mailbox) => format!("it has the mailbox {mailbox}"),
        Identified(by) => format!("it is identified by its address {by}"),
        LogsInThere => "the PBX logs in to it, and it does not log in to the PBX".to_owned(),
        Dynamic => "it registers with the PBX from any address".to_owned(),
        LogsInHere => "it logs in to the PBX".to_owned(),
        CalledAs(exten) => format!("calls to it are sent to extension {exten} at its address"),
        Fixed(host) if host.is_empty() => "it has a fixed address".to_owned(),
        Fixed(host) => format!("it has the fixed address {host}"),
        NoLogin => "neither side logs in".to_owned(),
        Outside(number) => {
            let shown = number.len().saturating_sub(4);
            let tail = number.get(shown..).unwrap_or_default();
            format!("a call with an outside number (…{tail}) is on it now")
        }
    };
    (kind, reason)
}

/// Lists the gateways of a FreeSWITCH as trunks, then its logged-in extensions as telephones. A
/// gateway whose name cannot be written in `--trunk` is left out.
pub fn propose_switch(facts: &SwitchFacts) -> Vec<ProposedEndpoint> {
    let known = facts.gateways.iter().flatten();
    let gateways = known.filter(|(name, _)| is_writable(name)).map(gateway);
    let telephones = facts.extensions.iter().map(|extension| ProposedEndpoint {
        endpoint: format!("user/{extension}"),
        kind: EndpointKind::Telephone,
        reason: "a telephone is registered as this extension".to_owned(),
    });
    gateways.chain(telephones).collect()
}

fn is_writable(name: &str) -> bool {
    !name.contains(['|', ',', '=']) && !name.contains(char::is_control)
}

/// Proposes a gateway as a trunk. Calls from a gateway carry its name only if the switch logs in to
/// it. Otherwise the gateway's address identifies its calls.
fn gateway((name, gateway): (&String, &SwitchGateway)) -> ProposedEndpoint {
    let address = &gateway.address;
    let is_ip = address.parse::<IpAddr>().is_ok() || address.parse::<SocketAddr>().is_ok();
    let mut endpoint = format!("gateway/{name}");
    let reason = match (gateway.registers, is_ip) {
        (true, _) => format!("the switch logs in to it at {address}"),
        (false, true) => {
            endpoint += &format!("|address/{address}");
            "the switch does not log in to it: its calls are recognized by its address".to_owned()
        }
        (false, false) => format!(
            "the switch does not log in to it: add |address/IP of {address}, or calls from it \
             count as internal"
        ),
    };
    ProposedEndpoint {
        endpoint,
        kind: EndpointKind::Trunk,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trunks_come_first_and_endpoints_without_calls_are_omitted() {
        let mut list = EndpointList::default();
        for name in ["PJSIP/101", "PJSIP/x7", "PJSIP/odd", "Queue/sales"] {
            list.facts.entry(name.to_owned()).or_default();
        }
        list.add("PJSIP/x7", Some(EndpointFact::LogsInThere));
        list.add("PJSIP/101", Some(EndpointFact::Hint("101".to_owned())));
        let all = propose(&list);
        let names: Vec<&str> = all.iter().map(|proposal| &*proposal.endpoint).collect();
        assert_eq!(names, ["PJSIP/x7", "PJSIP/odd", "PJSIP/101"]);
        assert_eq!(all[1].kind, EndpointKind::Unknown);
    }

    #[test]
    fn trunk_name_is_valid_in_flags_and_unique() {
        assert_eq!(trunk_name("PJSIP/x7", &[]), "x7");
        assert_eq!(trunk_name("SIP/x7", &["x7".to_owned()]), "x7-2");
        assert_eq!(trunk_name("DAHDI/i1/9987", &[]), "i1-9987");
        assert_eq!(trunk_name("PJSIP/=,=", &[]), "trunk");
        assert_eq!(
            trunk_name("gateway/city|address/10.0.0.1:5060", &[]),
            "city"
        );
        assert_eq!(extension("PJSIP/101"), "101");
    }

    fn kind(facts: &[EndpointFact]) -> EndpointKind {
        classify(&facts.iter().cloned().collect()).0
    }

    fn sample_text() -> String {
        "x".to_owned()
    }

    #[test]
    fn strongest_fact_decides_the_kind_of_an_endpoint() {
        use EndpointFact as F;
        assert_eq!(kind(&[]), EndpointKind::Unknown);
        // A provider that also logs in here is a trunk, only because of the registration.
        assert_eq!(
            kind(&[F::LogsInHere, F::Registers(sample_text())]),
            EndpointKind::Trunk
        );
        // A telephone in a branch, identified by its address, with a hint.
        assert_eq!(
            kind(&[F::Identified(sample_text()), F::Hint(sample_text())]),
            EndpointKind::Telephone
        );
        assert_eq!(kind(&[F::LogsInHere, F::Dynamic]), EndpointKind::Telephone);
        assert_eq!(
            kind(&[F::LogsInHere, F::Identified(sample_text())]),
            EndpointKind::Trunk
        );
        assert_eq!(kind(&[F::LogsInThere]), EndpointKind::Trunk);
        assert_eq!(kind(&[F::Fixed(sample_text())]), EndpointKind::Trunk);
        // A telephone in a trusted network, such as a door station, to which neither side logs in.
        assert_eq!(
            kind(&[
                F::NoLogin,
                F::CalledAs(sample_text()),
                F::Fixed(sample_text())
            ]),
            EndpointKind::Telephone
        );
        assert_eq!(
            kind(&[F::LogsInThere, F::CalledAs(sample_text())]),
            EndpointKind::Trunk
        );
        // A telephone that shows the company's number is still a telephone.
        assert_eq!(
            kind(&[F::LogsInHere, F::Outside(sample_text())]),
            EndpointKind::Telephone
        );
        assert_eq!(kind(&[F::Outside(sample_text())]), EndpointKind::Trunk);
    }

    #[test]
    fn phone_number_in_a_reason_shows_only_its_last_digits() {
        let facts = BTreeSet::from([EndpointFact::Outside("+998901110001".to_owned())]);
        let reason = classify(&facts).1;
        assert!(
            reason.contains("…0001") && !reason.contains("99890"),
            "{reason}"
        );
    }

    fn switch_gateway(address: &str, registers: bool) -> SwitchGateway {
        SwitchGateway {
            profile: "external".to_owned(),
            address: address.to_owned(),
            registers,
        }
    }

    #[test]
    fn unregistered_gateway_is_proposed_with_ip_address() {
        let gateways = [
            ("city", switch_gateway("127.0.0.1:16000", false)),
            ("gsm", switch_gateway("gsm.example", true)),
            ("odd|name", switch_gateway("10.0.0.1", true)),
            ("sip", switch_gateway("sip.example", false)),
        ];
        let named = gateways.map(|(name, gateway)| (name.to_owned(), gateway));
        let facts = SwitchFacts {
            gateways: Some(named.into()),
            extensions: ["101".to_owned()].into(),
            ..SwitchFacts::default()
        };
        let all = propose_switch(&facts);
        let endpoints: Vec<&str> = all.iter().map(|proposal| &*proposal.endpoint).collect();
        let wanted = [
            "gateway/city|address/127.0.0.1:16000",
            "gateway/gsm",
            "gateway/sip",
            "user/101",
        ];
        assert_eq!(endpoints, wanted);
        assert!(all[2].reason.contains("address/IP of sip.example"));
    }
}
