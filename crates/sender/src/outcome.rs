//! What came of an answer, to be counted and listed.

/// A verdict without its data, or the result of a lead request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// The call was accepted. The journal may not hold it yet.
    Submitted,
    Journaled,
    /// The call is not decided yet.
    NotYet,
    Known,
    /// A page of the journal was read.
    PageShown,
    /// The journal cannot be reconciled.
    PageRefused,
    Dead,
    /// The requestId is invalid.
    Lost,
    /// The CRM or the connection failed after the request may have arrived.
    Fault,
    /// The request did not get through: no connection, no DNS name, no valid certificate.
    #[strum(serialize = "fault")]
    Unreached,
    /// The CRM refuses the token (401, 406).
    TokenRefused,
    /// The token lacks a grant (403).
    NoGrant,
    /// The CRM is not at this address.
    WrongAddress,
    /// The limit is used up.
    TooMany,
    /// Any answer to a lead request.
    LeadRequest,
}

impl Outcome {
    /// The label for metrics: a fixed set of words.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if the request must be made again.
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
