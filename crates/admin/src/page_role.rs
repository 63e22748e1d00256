//! What somebody may do.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What somebody may do on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum PageRole {
    /// Sees everything, changes nothing.
    View,
    /// Acts, too.
    Admin,
}

impl PageRole {
    /// `admin` or `view`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// May this role change anything?
    pub const fn may_act(self) -> bool {
        matches!(self, Self::Admin)
    }
}

/// A word that is no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role: `admin` or `view` is expected")]
pub struct UnknownRole(pub String);

impl FromStr for PageRole {
    type Err = UnknownRole;

    fn from_str(word: &str) -> Result<Self, UnknownRole> {
        match word {
            "view" => Ok(Self::View),
            "admin" => Ok(Self::Admin),
            _ => Err(UnknownRole(word.to_owned())),
        }
    }
}
