//! A call's lead and employee as CRM IDs, where the lead is determined by the trunk's rules and the
//! employee by the extension.
//!
//! [`People`] is a pure table, so the same question always gets the same answer. [`files::Watched`]
//! reads the lists and rereads them when they change.
//!
//! | module | contents |
//! |---|---|
//! | [`rule`] | `var:`, `userfield:`, `csv:`, and employees, as given in flags |
//! | [`list`] | lead and employee lists; [`rows`]: a file's valid and invalid rows |
//! | [`matching`] | employees that don't match any calls |
//! | [`files`] | which version of each file was read |

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

/// What the rules say about a call's lead, along with a human-readable reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadAnswer {
    /// A rule yields exactly one lead.
    One(LeadId, String),
    /// No rule yields a lead.
    None(String),
    /// A rule yields two leads of equal rank.
    Two(LeadId, LeadId, String),
}

/// A lead directory for the `directory` rule.
pub trait Directory: std::fmt::Debug + Send + Sync {
    /// Looks up this number's lead among those learned from the CRM.
    ///
    /// # Errors
    ///
    /// Returns a message if it can't be looked up right now.
    fn lead_of(&self, phone: &Phone) -> Result<LeadAnswer, String>;

    /// Looks up the lead that a user has assigned to this number (`lead give`) along with a text
    /// about that user, returning `None` if no lead is assigned.
    ///
    /// # Errors
    ///
    /// Returns a message if it can't be looked up right now.
    fn assigned_lead(&self, phone: &Phone) -> Result<Option<(LeadId, String)>, String>;

    /// Looks up several numbers at once, in their order. A distant database takes as long to answer
    /// a hundred questions that were sent together as to answer one.
    ///
    /// # Errors
    /// A message, if they cannot be looked up now.
    fn look_up(&self, phones: &[Phone]) -> Result<Vec<PhoneLeads>, String> {
        let mut found = Vec::with_capacity(phones.len());
        for phone in phones {
            found.push(PhoneLeads {
                lead: self.lead_of(phone)?,
                assigned: self.assigned_lead(phone)?,
            });
        }
        Ok(found)
    }
}

/// The leads of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhoneLeads {
    /// The answer of [`Directory::lead_of`].
    pub lead: LeadAnswer,
    /// The answer of [`Directory::assigned_lead`].
    pub assigned: Option<(LeadId, String)>,
}

/// The answers about numbers that were looked up together. Any other number is looked up in the
/// directory itself.
#[derive(Debug)]
struct LookedUp {
    known: Result<BTreeMap<Phone, PhoneLeads>, String>,
    directory: Arc<dyn Directory>,
}

impl LookedUp {
    fn leads_of(&self, phone: &Phone) -> Result<Option<&PhoneLeads>, String> {
        let known = self.known.as_ref().map_err(String::clone)?;
        Ok(known.get(phone))
    }
}

impl Directory for LookedUp {
    fn lead_of(&self, phone: &Phone) -> Result<LeadAnswer, String> {
        match self.leads_of(phone)? {
            Some(leads) => Ok(leads.lead.clone()),
            None => self.directory.lead_of(phone),
        }
    }

    fn assigned_lead(&self, phone: &Phone) -> Result<Option<(LeadId, String)>, String> {
        match self.leads_of(phone)? {
            Some(leads) => Ok(leads.assigned.clone()),
            None => self.directory.assigned_lead(phone),
        }
    }
}

/// A lead list's file and its trunk's country. Two trunks may read the same file differently.
pub(crate) type LeadFile = (PathBuf, Option<Country>);

/// The lead and employee lists in use, along with the lead directory.
#[derive(Clone, Debug, Default)]
pub struct People {
    pub(crate) leads: BTreeMap<LeadFile, Arc<LeadList>>,
    pub(crate) employees: BTreeMap<PathBuf, Arc<Employees>>,
    /// The lead directory, if there is one.
    pub(crate) directory: Option<Arc<dyn Directory>>,
}

impl People {
    /// Adds this lead directory.
    #[must_use]
    pub fn with_directory(mut self, directory: Arc<dyn Directory>) -> Self {
        self.directory = Some(directory);
        self
    }

    /// Looks up these numbers in the directory, all at once, and returns the same lists with the
    /// answers.
    #[must_use]
    pub fn with_leads_of(&self, phones: BTreeSet<Phone>) -> Self {
        let Some(directory) = self.directory.clone().filter(|_| !phones.is_empty()) else {
            return self.clone();
        };
        let phones: Vec<Phone> = phones.into_iter().collect();
        let found = directory.look_up(&phones);
        let known = found.map(|leads| phones.into_iter().zip(leads).collect());
        self.clone()
            .with_directory(Arc::new(LookedUp { known, directory }))
    }

    /// Returns the lead of a call whose customer has this number, from the first of the trunk's
    /// rules that finds one. A lead that a user has assigned to the number comes after all
    /// information from the dialplan, but before any list.
    pub fn lead_of(&self, call: &FinishedCall, phone: Option<&Phone>, trunk: &Trunk) -> LeadAnswer {
        let rules = &trunk.leads;
        let first_by_number = rules.iter().position(LeadRule::is_by_number);
        let (first_rules, other_rules) = rules.split_at(first_by_number.unwrap_or(rules.len()));
        // The dialplan may specify a lead, which any of the trunk's rules may read.
        let named = rules.iter().any(|rule| {
            !rule.is_by_number()
                && !matches!(self.ask(rule, call, phone, trunk), LeadAnswer::None(_))
        });
        let assignment = if named {
            None
        } else {
            self.assigned_lead(phone)
        };
        // If the assigned leads can't be read, any rule may still yield a lead.
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

    /// Finds the lead by number alone, for `lead check` and the release of waiting calls. Rules
    /// that need to know more about the call don't find a lead.
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

    /// Returns an employee's extension according to the trunk's list, or the first one if there are
    /// several.
    pub fn extension_of<'a>(&'a self, id: EmployeeId, trunk: &'a Trunk) -> Option<&'a Extension> {
        self.employees_at(trunk)?.extension_of(id)
    }

    /// Returns all of a trunk's employees, or `None` if there's no list or it couldn't be read yet.
    pub fn employees_at<'a>(&'a self, trunk: &'a Trunk) -> Option<&'a Employees> {
        match trunk.employees.as_ref()? {
            EmployeeRule::List(list) => Some(list),
            EmployeeRule::File(file) => self.employees.get(file).map(Arc::as_ref),
        }
    }

    /// Returns `true` if an employee has this extension according to the list of any of the PBX's
    /// trunks.
    pub fn knows(&self, extension: &Extension, trunks: &Trunks, pbx: &str) -> bool {
        let mut of_pbx = trunks.of_pbx(pbx);
        of_pbx.any(|trunk| self.employee_of(extension, trunk).is_some())
    }

    /// Looks up the lead that a user has assigned to the number, returning `None` if no lead is
    /// assigned or the caller's number is hidden.
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

/// Returns the first answer with a lead. If none has one, returns the reasons from all answers, or
/// `unasked` if there are no answers.
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

/// Returns the lead in these texts if they contain only one. `what` describes where the texts come
/// from. A text that isn't a lead ID is skipped if another one contains a lead.
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
