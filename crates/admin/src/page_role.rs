//! What somebody may do.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The rights of a user on the administrator's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum PageRole {
    /// Sees everything, and changes nothing.
    View,
    /// Sees everything, and may change it.
    Admin,
}

impl PageRole {
    /// Returns the word of flags and files: `admin` or `view`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// May this role change anything?
    pub const fn may_act(self) -> bool {
        matches!(self, Self::Admin)
    }
}

impl FromStr for PageRole {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "view" => Ok(Self::View),
            "admin" => Ok(Self::Admin),
            _ => Err(format!(
                "`{word}` is not a role: `admin` or `view` is expected"
            )),
        }
    }
}
