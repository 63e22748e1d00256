//! The lead and the employee of a call, as the CRM's ids: leads by each trunk's rules, and
//! employees by extension.
//!
//! [`People`] is a pure table: the same question always has the same answer. [`files::Watched`]
//! reads the lists, and reads them again when they change.
//!
//! | module | what it contains |
//! |---|---|
//! | [`rule`] | `var:`, `userfield:`, `csv:`, and employees, as flags name them |
//! | [`list`] | lists of leads and employees; [`rows`]: the valid and invalid rows of a file |
//! | [`matching`] | employees that match no calls |
//! | [`files`] | which version of which file was read |

pub mod files;
pub mod list;
pub mod matching;
pub mod rows;
pub mod rule;

use crate::trunk::{Trunk, Trunks};
use callbridge_call::{Extension, FinishedCall};
use callbridge_model::{Country, EmployeeId, LeadId, Phone, safe};
use list::{Employees, LeadList};
use regex::Regex;
use rule::{EmployeeRule, LeadRule};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Result of the rules for a call's lead, with text for the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadAnswer {
    /// A rule gives this one lead.
    One(LeadId, String),
    /// No rule gives a lead.
    None(String),
    /// One rule gives two leads of equal rank.
    Two(LeadId, LeadId, String),
}

/// A directory of leads for the rule `directory`.
pub trait Directory: std::fmt::Debug + Send + Sync {
    /// Looks up the lead of this number among the leads that were learned from the CRM.
    ///
    /// # Errors
    /// A message, if it cannot be looked up now.
    fn lead_of(&self, phone: &Phone) -> Result<LeadAnswer, String>;

    /// Looks up the lead that a person has assigned to this number (`lead give`), with text about
    /// that person. Returns `None` if no lead is assigned.
    ///
    /// # Errors
    /// A message, if it cannot be looked up now.
    fn assigned_lead(&self, phone: &Phone) -> Result<Option<(LeadId, String)>, String>;
}

/// The file of a lead list and its trunk's country. Two trunks can read one file differently.
pub(crate) type LeadFile = (PathBuf, Option<Country>);

/// The lists of leads and employees in use, and the directory of leads.
#[derive(Clone, Debug, Default)]
pub struct People {
    pub(crate) leads: BTreeMap<LeadFile, LeadList>,
    pub(crate) employees: BTreeMap<PathBuf, Employees>,
    /// The directory of leads, if there is one.
    pub(crate) directory: Option<Arc<dyn Directory>>,
}

impl People {
    /// Adds this directory of leads.
    #[must_use]
    pub fn with_directory(mut self, directory: Arc<dyn Directory>) -> Self {
        self.directory = Some(directory);
        self
    }

    /// Returns the lead of a call whose customer has this number, from the first rule of the trunk
    /// that knows a lead. A lead that a person has assigned to the number comes after all
    /// information from the dialplan, and before every list.
    pub fn lead_of(&self, call: &FinishedCall, phone: Option<&Phone>, trunk: &Trunk) -> LeadAnswer {
        let rules = &trunk.leads;
        let first_by_number = rules.iter().position(LeadRule::is_by_number);
        let (first_rules, other_rules) = rules.split_at(first_by_number.unwrap_or(rules.len()));
        // The dialplan can name a lead, which any rule of the trunk can read.
        let named = rules.iter().any(|rule| {
            !rule.is_by_number()
                && !matches!(self.ask(rule, call, phone, trunk), LeadAnswer::None(_))
        });
        let assignment = if named {
            None
        } else {
            self.assigned_lead(phone)
        };
        // If the assigned leads cannot be read, any rule can still give a lead.
        let (assigned, unread) = match assignment {
            Some(LeadAnswer::None(why)) => (None, Some(LeadAnswer::None(why))),
            assigned => (assigned, None),
        };
        let first_answers = first_rules
            .iter()
            .map(|rule| self.ask(rule, call, phone, trunk));
        let other_answers = other_rules
            .iter()
            .map(|rule| self.ask(rule, call, phone, trunk));
        let answers = first_answers
            .chain(assigned)
            .chain(other_answers)
            .chain(unread);
        let name = &trunk.name;
        let unasked = format!("trunk {name} has no lead rule: set `lead=` or --lead");
        first_of(answers, unasked)
    }

    fn ask(
        &self,
        rule: &LeadRule,
        call: &FinishedCall,
        phone: Option<&Phone>,
        trunk: &Trunk,
    ) -> LeadAnswer {
        match rule {
            LeadRule::Variable(name) => variable(name, call),
            LeadRule::UserField(pattern) => user_field(pattern, call),
            LeadRule::Csv(file) => self.look_up_list(file, phone, trunk),
            LeadRule::Directory => self.look_up_directory(phone),
        }
    }

    /// Finds the lead by the number only, for `lead check` and the release of a waiting call. Rules
    /// that need other facts of the call find no lead.
    pub fn lead_of_phone(&self, phone: &Phone, trunk: &Trunk) -> LeadAnswer {
        let listed = trunk.leads.iter().filter_map(|rule| match rule {
            LeadRule::Variable(_) | LeadRule::UserField(_) => None,
            LeadRule::Csv(file) => Some(self.look_up_list(file, Some(phone), trunk)),
            LeadRule::Directory => Some(self.look_up_directory(Some(phone))),
        });
        let unasked = format!(
            "trunk {} has no rule `csv:` or `directory`: its leads come with the call, not by \
             number",
            trunk.name
        );
        first_of(
            self.assigned_lead(Some(phone)).into_iter().chain(listed),
            unasked,
        )
    }

    pub fn employee_of(&self, extension: &Extension, trunk: &Trunk) -> Option<EmployeeId> {
        self.employees_at(trunk)?.get(extension).copied()
    }

    /// Returns an employee's extension by the trunk's list. If the employee has several extensions,
    /// returns the first.
    pub fn extension_of<'a>(&'a self, id: EmployeeId, trunk: &'a Trunk) -> Option<&'a Extension> {
        self.employees_at(trunk)?.extension_of(id)
    }

    /// Returns all employees of a trunk. `None` without a list, or before it could be read.
    pub fn employees_at<'a>(&'a self, trunk: &'a Trunk) -> Option<&'a Employees> {
        match trunk.employees.as_ref()? {
            EmployeeRule::List(list) => Some(list),
            EmployeeRule::File(file) => self.employees.get(file),
        }
    }

    /// Returns `true` if an employee has this extension, by the list of any trunk of the PBX.
    pub fn knows(&self, extension: &Extension, trunks: &Trunks, pbx: &str) -> bool {
        let mut of_pbx = trunks.of_pbx(pbx);
        of_pbx.any(|trunk| self.employee_of(extension, trunk).is_some())
    }

    /// Looks up the lead that a person has assigned to the number. Returns `None` if no lead is
    /// assigned, and for a hidden caller.
    fn assigned_lead(&self, phone: Option<&Phone>) -> Option<LeadAnswer> {
        match self.directory.as_ref()?.assigned_lead(phone?) {
            Ok(given) => given.map(|(lead, message)| LeadAnswer::One(lead, message)),
            Err(why) => {
                let message = format!("the leads assigned with `lead give` cannot be read: {why}");
                Some(LeadAnswer::None(message))
            }
        }
    }

    /// Looks up the number in the directory. A hidden caller has no number to look up.
    fn look_up_directory(&self, phone: Option<&Phone>) -> LeadAnswer {
        let Some(phone) = phone else {
            return LeadAnswer::None("no number to look up in the directory".to_owned());
        };
        let Some(directory) = &self.directory else {
            let message = "the directory of leads is not read here; `callbridge explain --call` \
                           shows the lead of a call that callbridge has taken";
            return LeadAnswer::None(message.to_owned());
        };
        match directory.lead_of(phone) {
            Ok(answer) => answer,
            Err(why) => LeadAnswer::None(format!("the directory cannot be read: {why}")),
        }
    }

    fn look_up_list(&self, file: &Path, phone: Option<&Phone>, trunk: &Trunk) -> LeadAnswer {
        let shown = file.display();
        let Some(phone) = phone else {
            return LeadAnswer::None(format!("no number to look up in {shown}"));
        };
        let Some(list) = self.leads.get(&(file.to_owned(), trunk.country)) else {
            return LeadAnswer::None(format!("{shown} could not be read so far"));
        };
        let mut leads = list.find(phone);
        match (leads.next(), leads.next()) {
            (None, _) => LeadAnswer::None(format!("the number is not in {shown}")),
            (Some(lead), None) => LeadAnswer::One(lead, format!("the number's row in {shown}")),
            (Some(a), Some(b)) => {
                let message =
                    format!("{shown} lists two leads with this number: lead ids {a} and {b}");
                LeadAnswer::Two(a, b, message)
            }
        }
    }
}

/// Returns the first answer with a lead. If no answer has a lead, returns the reasons of all
/// answers, or `unasked` if there are no answers.
fn first_of(answers: impl Iterator<Item = LeadAnswer>, unasked: String) -> LeadAnswer {
    let mut misses = Vec::new();
    for answer in answers {
        match answer {
            LeadAnswer::None(why) => misses.push(why),
            answer @ (LeadAnswer::One(..) | LeadAnswer::Two(..)) => return answer,
        }
    }
    if misses.is_empty() {
        misses.push(unasked);
    }
    LeadAnswer::None(misses.join("; "))
}

fn variable(name: &str, call: &FinishedCall) -> LeadAnswer {
    let variable = call
        .variables
        .iter()
        .find(|variable| variable.name == *name);
    let values = match variable {
        Some(variable) => variable.values.as_slice(),
        None => &[],
    };
    one_of(
        &format!("variable {name}"),
        values.iter().map(String::as_str),
    )
}

fn user_field(pattern: &Regex, call: &FinishedCall) -> LeadAnswer {
    let fields = call.userfields.iter();
    let found = fields.filter_map(|field| pattern.captures(field));
    let groups = found.filter_map(|groups| Some(groups.get(1)?.as_str()));
    one_of(&format!("user field by `{pattern}`"), groups)
}

/// Returns the lead in these texts, if they name only one lead. `what` describes the source of the
/// texts. A text that is not a lead id is skipped if another text names a lead.
fn one_of<'a>(what: &str, texts: impl Iterator<Item = &'a str>) -> LeadAnswer {
    let mut leads = BTreeSet::new();
    let mut junk = None;
    for text in texts {
        match LeadId::parse(text) {
            Some(lead) => {
                leads.insert(lead);
            }
            None => junk = Some(text),
        }
    }
    let mut leads = leads.into_iter();
    match (leads.next(), leads.next(), junk) {
        (Some(one), None, _) => LeadAnswer::One(one, what.to_owned()),
        (Some(a), Some(b), _) => {
            LeadAnswer::Two(a, b, format!("{what} has leads {a} and {b} in one call"))
        }
        (None, _, Some(junk)) => {
            let junk: String = safe(junk).chars().take(60).collect();
            LeadAnswer::None(format!("{what} is `{junk}`, which is not a lead id"))
        }
        (None, _, None) => LeadAnswer::None(format!("{what} holds no lead")),
    }
}

#[cfg(test)]
mod tests;
