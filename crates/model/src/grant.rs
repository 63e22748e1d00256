//! The rights of a token that callbridge has a use for (§2.3).

use std::fmt;

/// A right, as it is written in an OAuth scope; the service knows others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Calls are submitted (§4.5.6): without it nothing can be journaled.
    CallSave,
    /// The journal's pages are read.
    CallRead,
    /// Leads are looked up.
    LeadRead,
    /// Fields of leads are written.
    LeadSave,
}

impl Grant {
    /// `PERMISSION_OPEN_API_CALL:SAVE`
    pub const fn word(self) -> &'static str {
        match self {
            Self::CallSave => "PERMISSION_OPEN_API_CALL:SAVE",
            Self::CallRead => "PERMISSION_OPEN_API_CALL:READ",
            Self::LeadRead => "PERMISSION_OPEN_API_LEAD:READ",
            Self::LeadSave => "PERMISSION_OPEN_API_LEAD:SAVE",
        }
    }

    /// Whether these words hold it; where there are none, the service did not say.
    pub fn is_among(self, words: &[String]) -> bool {
        words.iter().any(|word| word == self.word())
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
