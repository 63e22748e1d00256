//! Trunk or telephone. What an endpoint is called counts nothing.

use callbridge_asterisk::survey::EndpointFact;
use std::collections::BTreeSet;

/// The nature of an endpoint, in the order in which endpoints are proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointKind {
    /// A line to the outside, whose calls go to customers.
    Trunk,
    /// No fact shows what the endpoint is.
    Unknown,
    /// A telephone of somebody in the company.
    Telephone,
}

/// Returns the kind that one fact proves, and the reason in words.
fn judge(fact: &EndpointFact) -> (EndpointKind, String) {
    use EndpointKind::{Telephone, Trunk};
    match fact {
        EndpointFact::Registers(host) => (Trunk, format!("the PBX registers with it at {host}")),
        EndpointFact::Hint(exten) => {
            let words = format!("extension {exten} of the dialplan shows its state (a hint)");
            (Telephone, words)
        }
        EndpointFact::Mailbox(mailbox) => (Telephone, format!("it has the mailbox {mailbox}")),
        EndpointFact::Identified(by) => (Trunk, format!("it is known by its address {by}")),
        EndpointFact::LogsInThere => {
            let words = "the PBX logs in there, and nothing logs in here";
            (Trunk, words.to_owned())
        }
        EndpointFact::Dynamic => {
            let words = "it registers here from wherever it stands";
            (Telephone, words.to_owned())
        }
        EndpointFact::LogsInHere => (Telephone, "callers from it log in here".to_owned()),
        EndpointFact::CalledAs(extension) => {
            let words = format!("calls to it are sent to extension {extension} at its address");
            (Telephone, words)
        }
        EndpointFact::Fixed(host) if host.is_empty() => {
            (Trunk, "it stands at a fixed address".to_owned())
        }
        EndpointFact::Fixed(host) => (Trunk, format!("it stands at the fixed address {host}")),
        EndpointFact::NoLogin => (Trunk, "neither side logs in".to_owned()),
        EndpointFact::Outside(number) => {
            let shown = number.len().saturating_sub(4);
            let tail = number.get(shown..).unwrap_or_default();
            let words = format!("a call with an outside number (…{tail}) is on it now");
            (Trunk, words)
        }
    }
}

/// Returns the kind that the strongest fact proves, and the reason in a line.
pub fn classify(facts: &BTreeSet<EndpointFact>) -> (EndpointKind, String) {
    match facts.first() {
        Some(strongest) => judge(strongest),
        None => {
            let words = "only its name is known, which does not show what it is";
            (EndpointKind::Unknown, words.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(facts: &[EndpointFact]) -> EndpointKind {
        classify(&facts.iter().cloned().collect()).0
    }

    #[test]
    fn the_kind_is_by_what_is_known_and_the_strongest_fact_decides() {
        use EndpointFact as F;
        let text = || "x".to_owned();
        assert_eq!(kind(&[]), EndpointKind::Unknown);
        // A provider that also logs in here is a trunk for the registration alone.
        assert_eq!(
            kind(&[F::LogsInHere, F::Registers(text())]),
            EndpointKind::Trunk
        );
        // A telephone of a branch, known by its address, shown on everybody's keys.
        assert_eq!(
            kind(&[F::Identified(text()), F::Hint(text())]),
            EndpointKind::Telephone
        );
        assert_eq!(kind(&[F::LogsInHere, F::Dynamic]), EndpointKind::Telephone);
        assert_eq!(
            kind(&[F::LogsInHere, F::Identified(text())]),
            EndpointKind::Trunk
        );
        assert_eq!(kind(&[F::LogsInThere]), EndpointKind::Trunk);
        assert_eq!(kind(&[F::Fixed(text())]), EndpointKind::Trunk);
        // A telephone in a network that is trusted, as a door station: nobody logs in.
        assert_eq!(
            kind(&[F::NoLogin, F::CalledAs(text()), F::Fixed(text())]),
            EndpointKind::Telephone
        );
        assert_eq!(
            kind(&[F::LogsInThere, F::CalledAs(text())]),
            EndpointKind::Trunk
        );
        // A telephone that shows the company's number is one all the same.
        assert_eq!(
            kind(&[F::LogsInHere, F::Outside(text())]),
            EndpointKind::Telephone
        );
        assert_eq!(kind(&[F::Outside(text())]), EndpointKind::Trunk);
    }

    #[test]
    fn a_number_in_a_reason_shows_its_end_alone() {
        let facts = BTreeSet::from([EndpointFact::Outside("+998901110001".to_owned())]);
        let reason = classify(&facts).1;
        assert!(
            reason.contains("…0001") && !reason.contains("99890"),
            "{reason}"
        );
    }
}
