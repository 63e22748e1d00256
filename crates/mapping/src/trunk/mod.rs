//! The lines to the outside, and all that differs from one to the next.

pub mod flag;

pub use flag::parse;

use crate::people::rule::{EmployeeRule, LeadRule};
use callbridge_call::trunk::Conflict;
use callbridge_call::{Endpoints, FinishedCall, TrunkEndpoint};
use callbridge_model::Country;
use std::collections::BTreeSet;

/// A trunk, checked: `--trunk NAME=ENDPOINT[,key=value…]` over the defaults.
#[derive(Clone, Debug)]
pub struct Trunk {
    /// Name given by the administrator, unique within a PBX: `city`.
    pub name: String,
    /// Part before the suffix in its channels' names: `PJSIP/city`; or a fact that the PBX reports
    /// of them beside it: `gateway/city`. May hold `*`. Several stand with `|` between them. Empty
    /// for a trunk that messages name, and that has no channels.
    pub endpoint: String,
    /// The PBX it belongs to; `None` for every one.
    pub pbx: Option<String>,
    /// Country of the numbers that have no country's code.
    pub country: Option<Country>,
    /// Prefix that extensions dial to get out: `9`. Digits, `*`, `#` or `+`, never empty.
    pub strip: Option<String>,
    /// Rules that give a call's lead, in the order in which they are asked.
    pub leads: Vec<LeadRule>,
    /// Employees by their extensions; `None` where no flag names any.
    pub employees: Option<EmployeeRule>,
    /// Calls that nobody answered are journaled.
    pub unanswered: bool,
    /// Calls over it are journaled.
    pub journal: bool,
}

impl Default for Trunk {
    /// One of which nothing is said, as messages without a trunk have it.
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            endpoint: String::new(),
            pbx: None,
            country: None,
            strip: None,
            leads: Vec::new(),
            employees: None,
            unanswered: true,
            journal: true,
        }
    }
}

/// All trunks, in the order of their flags; no two of one PBX have the same name.
#[derive(Clone, Debug, Default)]
pub struct Trunks(Vec<Trunk>);

impl Trunks {
    /// # Errors
    /// In words: trunks of one PBX with one name, and endpoints of which neither wins.
    pub fn new(trunks: Vec<Trunk>) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        for (at, trunk) in trunks.iter().enumerate() {
            for other in trunks[..at].iter().filter(|other| trunk.shares_pbx(other)) {
                if other.name == trunk.name {
                    faults.push(format!("two trunks are called `{}`", trunk.name));
                }
                let both = other.known_by().chain(trunk.known_by());
                if let Err(conflict) = Endpoints::new(both.collect()) {
                    faults.push(conflict.to_string());
                }
            }
        }
        if faults.is_empty() {
            Ok(Self(trunks))
        } else {
            Err(faults)
        }
    }

    /// Endpoints by which the assembler of a PBX finds the trunk of a channel.
    ///
    /// # Errors
    /// Never for trunks of [`Trunks::new`], which looked at all of them.
    pub fn endpoints(&self, pbx: &str) -> Result<Endpoints, Conflict> {
        Endpoints::new(self.of_pbx(pbx).flat_map(Trunk::known_by).collect())
    }

    /// Channels named like this belong to a trunk of the PBX.
    pub fn take_in(&self, pbx: &str, channel: &str) -> bool {
        self.of_pbx(pbx).any(|trunk| trunk.takes_in(channel))
    }

    /// The trunk of this name on this PBX.
    pub fn find(&self, pbx: &str, name: &str) -> Option<&Trunk> {
        self.0
            .iter()
            .find(|trunk| trunk.serves(pbx) && trunk.name == name)
    }

    /// The trunks of a PBX.
    pub fn of_pbx<'a>(&'a self, pbx: &'a str) -> impl Iterator<Item = &'a Trunk> {
        self.0.iter().filter(move |trunk| trunk.serves(pbx))
    }

    /// The channel variables that lead rules name.
    pub fn variables(&self) -> BTreeSet<String> {
        let rules = self.0.iter().flat_map(|trunk| &trunk.leads);
        rules.filter_map(LeadRule::variable).cloned().collect()
    }

    /// Iterates over the trunks of all PBXs, in the order of their flags.
    pub fn iter(&self) -> impl Iterator<Item = &Trunk> {
        self.0.iter()
    }

    /// No trunk: every call looks internal.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Trunk {
    /// `pbx=NAME` is the PBX of that id, or the `server_name` below another one's.
    fn serves(&self, pbx: &str) -> bool {
        let Some(own) = self.pbx.as_deref() else {
            return true;
        };
        pbx == own
            || pbx
                .rsplit_once('/')
                .is_some_and(|(_, server)| server == own)
    }

    /// Channels named like this are its own.
    pub fn takes_in(&self, channel: &str) -> bool {
        self.known_by().any(|it| it.matches(channel))
    }

    /// A telephone that this trunk's pattern takes in, too: `PJSIP/101` of `PJSIP/*`. Of
    /// technologies that telephones log in by alone: the lines of a card may well be one trunk.
    pub fn telephone_within(&self) -> Option<String> {
        let listed = match &self.employees {
            Some(EmployeeRule::List(list)) => list.keys().map(ToString::to_string).collect(),
            Some(EmployeeRule::File(_)) | None => Vec::new(),
        };
        let usual = ["101", "201", "1001"].map(str::to_owned);
        let telephones = listed.into_iter().chain(usual).flat_map(|extension| {
            let technologies = ["PJSIP", "SIP", "IAX2", "SCCP", "Skinny"];
            technologies.map(|technology| format!("{technology}/{extension}"))
        });
        let mut telephones = telephones.filter(|it| self.takes_in(&format!("{it}-0000004f")));
        telephones.next().filter(|_| self.endpoint.contains('*'))
    }

    /// Channels can be its own; otherwise messages alone name it.
    pub fn has_channels(&self) -> bool {
        self.endpoints().next().is_some()
    }

    /// The endpoints that it has: one, or several with `|` between them.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.endpoint.split('|').filter(|it| !it.is_empty())
    }

    /// A trunk whose lead stands in the user field waits for the CDR that brings it.
    fn known_by(&self) -> impl Iterator<Item = TrunkEndpoint> {
        let mut rules = self.leads.iter();
        let awaits = rules.any(|rule| matches!(rule, LeadRule::UserField(_)));
        let known_by = self
            .endpoints()
            .map(|it| TrunkEndpoint::new(&self.name, it));
        known_by.map(move |it| if awaits { it.awaiting_cdr() } else { it })
    }

    /// Nobody answered the call, and `unanswered=no` leaves such calls out.
    pub(crate) fn keeps_out(&self, call: &FinishedCall) -> bool {
        !self.unanswered && !call.answered
    }

    /// Returns `true` when some PBX has both trunks.
    fn shares_pbx(&self, other: &Self) -> bool {
        self.pbx.is_none() || other.pbx.is_none() || self.pbx == other.pbx
    }
}
