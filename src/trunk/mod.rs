//! The lines to the outside, and all that differs from one to the next.

mod flag;

pub use flag::{Defaults, parse};

use crate::journal::number::Country;
use crate::people::rule::{EmployeeRule, LeadRule};

/// A trunk, checked: `--trunk NAME=ENDPOINT[,key=value…]` over the defaults.
#[derive(Clone, Debug)]
pub struct Trunk {
    /// What the administrator calls it: `city`.
    pub name: String,
    /// What stands before the suffix in its channels' names: `PJSIP/city`. May hold `*`.
    pub endpoint: String,
    /// The PBX it belongs to; `None` for every one.
    pub pbx: Option<String>,
    /// Whose numbers have no country's code.
    pub country: Option<Country>,
    /// What extensions dial to get out: `9`. Digits, `*` or `#`, never empty.
    pub strip: Option<String>,
    /// Where leads come from, in the order they are asked.
    pub leads: Vec<LeadRule>,
    /// Which employee sits at which extension.
    pub employees: Option<EmployeeRule>,
    /// Calls that nobody answered are journaled.
    pub unanswered: bool,
    /// Calls are journaled.
    pub journal: bool,
}

/// All trunks, in the order of their flags; no two of one PBX have the same name.
#[derive(Clone, Debug, Default)]
pub struct Trunks(Vec<Trunk>);

impl Trunks {
    /// Two trunks of one name and PBX, in words, are refused.
    pub fn new(trunks: Vec<Trunk>) -> Result<Self, String> {
        for (at, trunk) in trunks.iter().enumerate() {
            if let Some(other) = trunks[..at].iter().find(|other| trunk.shares_pbx(other)) {
                if other.name == trunk.name {
                    return Err(format!("two trunks are called `{}`", trunk.name));
                }
            }
        }
        Ok(Self(trunks))
    }

    /// The trunk of this name on this PBX.
    pub fn find(&self, pbx: &str, name: &str) -> Option<&Trunk> {
        self.0
            .iter()
            .find(|trunk| trunk.serves(pbx) && trunk.name == name)
    }

    /// The trunks of a PBX.
    pub fn of_pbx<'a>(&'a self, pbx: &'a str) -> impl Iterator<Item = &'a Trunk> {
        self.0
            .iter()
            .filter(move |trunk| trunk.pbx.as_deref().is_none_or(|own| own == pbx))
    }

    /// Every trunk.
    pub fn iter(&self) -> impl Iterator<Item = &Trunk> {
        self.0.iter()
    }

    /// No trunk: every call looks internal.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Trunk {
    fn serves(&self, pbx: &str) -> bool {
        self.pbx.as_deref().is_none_or(|own| own == pbx)
    }

    /// Some PBX has both.
    fn shares_pbx(&self, other: &Self) -> bool {
        self.pbx.is_none() || other.pbx.is_none() || self.pbx == other.pbx
    }
}
