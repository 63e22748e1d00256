//! The rights of a token that callbridge has a use for (§2.3).

/// A right, as it is written in an OAuth scope; the service knows others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
pub enum Grant {
    /// Calls are submitted (§4.5.6): without it nothing can be journaled.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:SAVE")]
    CallSave,
    /// The journal's pages are read.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:READ")]
    CallRead,
    /// Leads are looked up.
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:READ")]
    LeadRead,
    /// Fields of leads are written.
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:SAVE")]
    LeadSave,
}

impl Grant {
    /// `PERMISSION_OPEN_API_CALL:SAVE`
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Whether these words hold it; where there are none, the service did not say.
    pub fn is_among(self, words: &[String]) -> bool {
        words.iter().any(|word| word == self.word())
    }
}
