//! What came of an answer, to be counted and listed.

use super::verdict::{Fault, StopReason, Verdict};

/// A verdict without what it carries, or what came of a lead request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// Accepted.
    Submitted,
    /// In the journal.
    Journaled,
    /// Not decided yet.
    NotYet,
    /// The token's record.
    Known,
    /// A page of the journal.
    Swept,
    /// The journal cannot be swept.
    Unswept,
    /// A dead letter.
    Dead,
    /// The requestId is worth nothing.
    Lost,
    /// The service failed, or the way, after the request may have arrived.
    Fault,
    /// Nothing got through.
    #[strum(serialize = "fault")]
    Unreached,
    /// The token is dead.
    TokenRefused,
    /// A grant is missing.
    NoGrant,
    /// The service is not there.
    WrongAddress,
    /// The limit is used up.
    TooMany,
    /// The answer to a lead request, whatever it was.
    LeadRequest,
}

impl Outcome {
    /// The label of metrics: fixed words.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// The outcome of a verdict.
    pub const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Submitted { .. } => Self::Submitted,
            Verdict::Journaled => Self::Journaled,
            Verdict::NotYet => Self::NotYet,
            Verdict::Known(_) => Self::Known,
            Verdict::Swept(_) => Self::Swept,
            Verdict::Unswept { .. } => Self::Unswept,
            Verdict::Dead { .. } => Self::Dead,
            Verdict::Unpolled { .. } => Self::NoGrant,
            Verdict::Lost { .. } => Self::Lost,
            Verdict::Fault { fault, .. } => match fault {
                Fault::Unreached => Self::Unreached,
                Fault::Gateway | Fault::Unreadable | Fault::Request => Self::Fault,
            },
            Verdict::Stop { stop, .. } => match stop {
                StopReason::TokenRefused => Self::TokenRefused,
                StopReason::NoGrant(_) => Self::NoGrant,
                StopReason::WrongAddress => Self::WrongAddress,
            },
            Verdict::TooMany { .. } => Self::TooMany,
        }
    }

    /// What was asked has to be asked again, whatever else was done.
    pub const fn is_again(self) -> bool {
        !matches!(
            self,
            Self::Submitted
                | Self::Journaled
                | Self::NotYet
                | Self::Known
                | Self::Swept
                | Self::Dead
                | Self::LeadRequest
        )
    }
}
