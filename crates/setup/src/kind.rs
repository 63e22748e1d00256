//! Trunk or telephone. What an endpoint is called counts nothing.

use callbridge_asterisk::survey::EndpointFact;
use std::collections::BTreeSet;

/// What an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointKind {
    /// A line to the outside.
    Trunk,
    /// Somebody's telephone.
    Telephone,
    /// Nothing that is known tells.
    Unknown,
}

/// How much a fact says: the lowest that an endpoint has decides.
const fn weight(fact: &EndpointFact) -> u8 {
    match fact {
        EndpointFact::Registers(_) => 0,
        EndpointFact::Hint(_) => 1,
        EndpointFact::Mailbox(_) => 2,
        EndpointFact::Identified(_) => 3,
        EndpointFact::LogsInThere => 4,
        EndpointFact::Dynamic => 5,
        EndpointFact::LogsInHere => 6,
        EndpointFact::CalledAs(_) => 7,
        EndpointFact::Fixed(_) => 8,
        EndpointFact::NoLogin => 9,
        EndpointFact::Outside(_) => 10,
    }
}

const fn kind_by(fact: &EndpointFact) -> EndpointKind {
    match fact {
        EndpointFact::Registers(_)
        | EndpointFact::Identified(_)
        | EndpointFact::LogsInThere
        | EndpointFact::Fixed(_)
        | EndpointFact::NoLogin
        | EndpointFact::Outside(_) => EndpointKind::Trunk,
        EndpointFact::Hint(_)
        | EndpointFact::Mailbox(_)
        | EndpointFact::Dynamic
        | EndpointFact::CalledAs(_)
        | EndpointFact::LogsInHere => EndpointKind::Telephone,
    }
}

fn reason(fact: &EndpointFact) -> String {
    match fact {
        EndpointFact::Registers(host) => format!("the PBX registers with it at {host}"),
        EndpointFact::Hint(exten) => {
            format!("extension {exten} of the dialplan shows its state (a hint)")
        }
        EndpointFact::Mailbox(mailbox) => format!("it has the mailbox {mailbox}"),
        EndpointFact::Identified(by) => format!("it is known by its address {by}"),
        EndpointFact::LogsInThere => "the PBX logs in there, and nothing logs in here".to_owned(),
        EndpointFact::Dynamic => "it registers here from wherever it stands".to_owned(),
        EndpointFact::CalledAs(extension) => {
            format!("calls to it are sent to extension {extension} at its address")
        }
        EndpointFact::LogsInHere => "callers from it log in here".to_owned(),
        EndpointFact::Fixed(host) if host.is_empty() => "it stands at a fixed address".to_owned(),
        EndpointFact::Fixed(host) => format!("it stands at the fixed address {host}"),
        EndpointFact::NoLogin => "neither side logs in".to_owned(),
        EndpointFact::Outside(number) => {
            let shown = number.len().saturating_sub(4);
            let tail = number.get(shown..).unwrap_or_default();
            format!("a call with an outside number (…{tail}) is on it now")
        }
    }
}

/// What the endpoint is, and why, in a line.
pub fn classify(facts: &BTreeSet<EndpointFact>) -> (EndpointKind, String) {
    match facts.iter().min_by_key(|fact| weight(fact)) {
        Some(fact) => (kind_by(fact), reason(fact)),
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
