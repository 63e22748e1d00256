//! What came of an answer, to be counted and listed.

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
    /// The journal cannot be reconciled.
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
