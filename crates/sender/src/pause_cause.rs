//! Why the gate is closed, and what may go out.

use super::troubles::Extent;
use super::verdict::StopReason;
use callbridge_crm::Endpoint;
use callbridge_model::Reason;
use std::time::Duration;

/// Reasons for which nothing but probes goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseCause {
    /// No token was given, its file cannot be read, or its keeper has none.
    TokenMissing,
    /// The token is another company's or application's.
    WrongCompany,
    /// The service refuses the token, a grant or the address.
    StopReason(StopReason),
    /// All requests fail, or all submissions.
    Outage(Extent),
    /// The service answers 429: the limit is used up.
    TooMany,
    /// Five calls in a row were refused for this reason.
    Refused(Reason),
}

/// Kind of request that may go out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Requests of all kinds: the service works.
    Calls,
    /// One request, of whatever part of the service may be asked: nothing works.
    Probe,
    /// One call, to see whether it is mended; polls first where only they can tell.
    Trial {
        /// A poll tells more than a submission.
        polls_first: bool,
    },
    /// The question `token/info`, and no other request.
    Ask,
    /// Nothing before this time since boot.
    Until(Duration),
    /// Nothing before an answer comes.
    Answer,
    /// Nothing before another token comes.
    Token,
}

/// One call, to see whether what this cause says is mended.
pub(super) fn trial(of: PauseCause) -> Admission {
    let polls = |kind| phase(kind) == Some(Endpoint::Poll);
    let polls_first = matches!(of, PauseCause::Refused(kind) if polls(kind));
    Admission::Trial { polls_first }
}

/// The request whose answer refuses for this reason.
pub(super) const fn phase(kind: Reason) -> Option<Endpoint> {
    match kind {
        Reason::Failed | Reason::Unconfirmed => Some(Endpoint::Poll),
        Reason::Rejected | Reason::Conflict | Reason::ServerError => Some(Endpoint::Submit),
        Reason::NoLead
        | Reason::AmbiguousLead
        | Reason::UuidConflict
        | Reason::Incomplete
        | Reason::TalkExceedsDuration
        | Reason::InvalidEpoch
        | Reason::Unreadable
        | Reason::NoEmployee => None,
    }
}
