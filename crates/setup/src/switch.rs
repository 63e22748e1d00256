//! What is proposed of a FreeSWITCH: its gateways as trunks, the telephones that are logged in.

use crate::kind::EndpointKind;
use crate::proposal::ProposedEndpoint;
use callbridge_freeswitch::survey::{SwitchFacts, SwitchGateway};
use std::net::{IpAddr, SocketAddr};

/// Trunks first, then telephones. A gateway in whose name a `--trunk` would break off is left out.
pub fn propose(facts: &SwitchFacts) -> Vec<ProposedEndpoint> {
    let stands = |name: &str| !name.contains(['|', ',', '=']) && !name.contains(char::is_control);
    let gateways = facts.gateways.iter().flatten();
    let gateways = gateways.filter(|(name, _)| stands(name)).map(gateway);
    let telephones = facts.extensions.iter().map(|extension| ProposedEndpoint {
        endpoint: format!("user/{extension}"),
        kind: EndpointKind::Telephone,
        reason: "a telephone is logged in as it".to_owned(),
    });
    gateways.chain(telephones).collect()
}

/// Proposes one gateway. Calls from it bear its name only where the switch logs in there; otherwise
/// the address identifies them.
fn gateway((name, it): (&String, &SwitchGateway)) -> ProposedEndpoint {
    let SwitchGateway { address, .. } = it;
    let is_ip = address.parse::<IpAddr>().is_ok() || address.parse::<SocketAddr>().is_ok();
    let (endpoint, reason) = match (it.registers, is_ip) {
        (true, _) => (
            format!("gateway/{name}"),
            format!("the switch logs in with it at {address}"),
        ),
        (false, true) => (
            format!("gateway/{name}|address/{address}"),
            "it does not log in: what comes in from there is known by its address".to_owned(),
        ),
        (false, false) => (
            format!("gateway/{name}"),
            format!(
                "it does not log in: add |address/IP of {address}, or what comes in from there \
                 is internal"
            ),
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
    fn gateways_are_trunks_with_their_addresses_where_they_do_not_log_in() {
        let gateway = |address: &str, registers| SwitchGateway {
            profile: "external".to_owned(),
            address: address.to_owned(),
            registers,
        };
        let gateways = [
            ("city", gateway("127.0.0.1:16000", false)),
            ("gsm", gateway("gsm.example", true)),
            ("odd|name", gateway("10.0.0.1", true)),
            ("sip", gateway("sip.example", false)),
        ];
        let named = gateways.map(|(name, it)| (name.to_owned(), it));
        let facts = SwitchFacts {
            gateways: Some(named.into()),
            extensions: ["101".to_owned()].into(),
            ..SwitchFacts::default()
        };
        let all = propose(&facts);
        let endpoints: Vec<&str> = all.iter().map(|it| &*it.endpoint).collect();
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
