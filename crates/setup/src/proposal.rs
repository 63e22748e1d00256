//! What is proposed of all endpoints that the PBX has shown.

use crate::kind::{EndpointKind, classify};
use callbridge_asterisk::survey::EndpointList;

/// An endpoint and the kind that is proposed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedEndpoint {
    /// The endpoint's name as the PBX writes it: `PJSIP/x7`.
    pub endpoint: String,
    /// Trunk, telephone or unknown, by its strongest fact.
    pub kind: EndpointKind,
    /// The fact that decided the kind, in a line.
    pub reason: String,
}

/// Endpoints of technologies that make no call of their own.
const NO_CALLS: [&str; 8] = [
    "Local",
    "Queue",
    "Custom",
    "MWI",
    "Park",
    "Meetme",
    "confbridge",
    "Calendar",
];

/// Proposes all endpoints that can make calls: trunks first, then unknown ones, then telephones.
pub fn propose(endpoints: &EndpointList) -> Vec<ProposedEndpoint> {
    let calls = endpoints.facts.iter().filter(|(name, _)| {
        let technology = name.split('/').next().unwrap_or_default();
        !NO_CALLS
            .iter()
            .any(|it| it.eq_ignore_ascii_case(technology))
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
    all.sort_by_key(|it| it.kind);
    all
}

/// A trunk's name, made of its endpoint's device; `taken` are those that others have.
pub fn trunk_name(endpoint: &str, taken: &[String]) -> String {
    let first = endpoint.split('|').next().unwrap_or_default();
    let device = first.split_once('/').map_or(first, |(_, device)| device);
    let good = |c: char| match c.is_ascii_alphanumeric() || "-_.".contains(c) {
        true => c,
        false => '-',
    };
    let name: String = device.chars().map(good).take(56).collect();
    let name = match name.trim_matches('-') {
        "" => "trunk".to_owned(),
        name => name.to_owned(),
    };
    let mut free = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    let free = free.find(|name| !taken.contains(name));
    free.unwrap_or(name)
}

/// The extension of a telephone: `101` of `PJSIP/101`.
pub fn extension(endpoint: &str) -> &str {
    let device = endpoint
        .split_once('/')
        .map_or(endpoint, |(_, device)| device);
    device.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_asterisk::survey::EndpointFact;

    #[test]
    fn trunks_come_first_and_what_makes_no_calls_not_at_all() {
        let mut list = EndpointList::default();
        for name in ["PJSIP/101", "PJSIP/x7", "PJSIP/odd", "Queue/sales"] {
            list.facts.entry(name.to_owned()).or_default();
        }
        list.add("PJSIP/x7", Some(EndpointFact::LogsInThere));
        list.add("PJSIP/101", Some(EndpointFact::Hint("101".to_owned())));
        let all = propose(&list);
        let names: Vec<&str> = all.iter().map(|it| &*it.endpoint).collect();
        assert_eq!(names, ["PJSIP/x7", "PJSIP/odd", "PJSIP/101"]);
        assert_eq!(all[1].kind, EndpointKind::Unknown);
    }

    #[test]
    fn a_trunks_name_is_one_that_flags_take_and_nobody_else_has() {
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
}
