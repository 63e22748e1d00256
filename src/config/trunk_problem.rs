//! Finds trunks whose calls cannot be logged with the current flags and lists. `check` reports such
//! a trunk, and `run` warns about it in the log.

use crate::config::Config;
use callbridge_call::Extension;
use callbridge_mapping::{LeadRule, People, Trunk};

/// The reason why calls of a trunk cannot be logged, and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrunkProblem {
    pub message: String,
    /// The flag to change.
    pub fix: &'static str,
}

impl TrunkProblem {
    fn new(message: impl Into<String>, fix: &'static str) -> Self {
        let message = message.into();
        Self { message, fix }
    }
}

/// Returns the first problem of the trunk. `people` are the employees of the lists.
pub(crate) fn find(config: &Config, trunk: &Trunk, people: &People) -> Option<TrunkProblem> {
    let mut endpoints = trunk.endpoints();
    if let Some(endpoint) = endpoints.find(|endpoint| has_employee(trunk, endpoint, people)) {
        let message = format!(
            "{endpoint} is an employee's phone in --employees: its calls would be logged as a \
             customer's"
        );
        let fix = "name the line to the carrier in --trunk, or correct --employees";
        return Some(TrunkProblem::new(message, fix));
    }
    let mut sources = config.sources.iter().filter(|source| source.serves(trunk));
    let has_variables = sources.any(|source| source.url.format().has_variables());
    let variable = trunk.leads.iter().find_map(LeadRule::variable);
    if let Some(variable) = variable
        && trunk.leads.len() == 1
        && config.collect.is_none()
        && !has_variables
    {
        let message = format!("lead=var:{variable}, but no source reports channel variables");
        let fix = "give lead=csv:FILE or lead=userfield:REGEX, or a source that reports variables \
                   (ami:// or esl://)";
        return Some(TrunkProblem::new(message, fix));
    }
    let by_directory = trunk
        .leads
        .iter()
        .any(|rule| matches!(rule, LeadRule::Directory));
    if by_directory && !config.lead_directory && config.webhooks.is_none() {
        let message = "lead=directory is given, but no flag fills the directory of leads";
        let fix = "give --webhook-listen, --lead-directory, or both";
        return Some(TrunkProblem::new(message, fix));
    }
    // A trunk without channels needs no rule, because its messages can name the lead.
    let needs_rule = trunk.has_channels() && trunk.journal && config.forward.is_none();
    if needs_rule && trunk.leads.is_empty() {
        let message = "no lead rule is given: every call would wait for a lead";
        let fix = "give lead=var:NAME, lead=userfield:REGEX, lead=csv:FILE or lead=directory";
        return Some(TrunkProblem::new(message, fix));
    }
    None
}

/// Returns `true` if the lists have an employee with the extension of this endpoint, such as `101`
/// for `PJSIP/101`.
fn has_employee(trunk: &Trunk, endpoint: &str, people: &People) -> bool {
    let device = endpoint
        .split_once('/')
        .map_or(endpoint, |(_, device)| device);
    let extension = Extension::new(device);
    !endpoint.contains('*') && people.employee_of(&extension, trunk).is_some()
}
