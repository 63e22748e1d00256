//! The rights of a token that callbridge has a use for (§2.3).

/// A right, as it is written in an OAuth scope; the service knows others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
pub enum Grant {
    /// Calls are submitted (§4.5.6): without it nothing can be journaled.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:SAVE")]
    CallSave,
    /// Pages of the call journal are read.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:READ")]
    CallRead,
    /// Leads and the list of CRM fields are read.
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:READ")]
    LeadRead,
    /// Fields of leads are written (§4.4).
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:SAVE")]
    LeadSave,
}

impl Grant {
    /// The right as scopes and `grants` spell it: `PERMISSION_OPEN_API_CALL:SAVE`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` where the words of a token's grants hold this right; an empty list means that
    /// the service did not report any.
    pub fn is_among(self, words: &[String]) -> bool {
        words.iter().any(|word| word == self.word())
    }
}
