//! What came of an answer, to be counted and listed.

/// A verdict without what it carries, or what came of a lead request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// The call was accepted; the journal may not hold it yet.
    Submitted,
    /// The journal holds the call.
    Journaled,
    /// The call is not decided yet.
    NotYet,
    /// The token's record was read.
    Known,
    /// A page of the journal.
    PageShown,
    /// The journal cannot be reconciled.
    PageRefused,
    /// The call became a dead letter.
    Dead,
    /// The requestId is worth nothing.
    Lost,
    /// The service failed, or the way, after the request may have arrived.
    Fault,
    /// The request did not get through: no connection, no name, no trust.
    #[strum(serialize = "fault")]
    Unreached,
    /// The service refuses the token (401, 406).
    TokenRefused,
    /// The token lacks a grant (403).
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

    /// Returns `true` when the request has to be made again, whatever else was done.
    pub const fn is_again(self) -> bool {
        !matches!(
            self,
            Self::Submitted
                | Self::Journaled
                | Self::NotYet
                | Self::Known
                | Self::PageShown
                | Self::Dead
                | Self::LeadRequest
        )
    }
}
