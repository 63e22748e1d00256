//! What the log is told about leads: when that is committed of which it tells, whoever asked.

use callbridge_leads::lead_field;
use callbridge_leads::lead_request::RequestKind;
use tracing::{info, warn};

/// Counter: calls that went to the lead that theirs was merged into.
pub(crate) const TO_SURVIVOR: &str = "calls_to_survivor";
/// Counter: calls that went on without their employee.
pub(crate) const DROPPED: &str = "employees_dropped";
/// Counter: values that were refused, FAILED or not settled in the end.
pub(crate) const GIVEN_UP: &str = "lead_fields_given_up";

/// Warning for the log, on requests about leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeadWarning {
    /// Requests of this kind rest, for this reason.
    Rest(RequestKind, String),
    /// A field of `--lead-field` (`last_call=11`) is not sure to be a field of leads.
    Field(String, lead_field::Fit),
}

impl LeadWarning {
    pub(crate) fn log(&self) {
        match self {
            Self::Rest(RequestKind::LookUps, why) => {
                warn!(reason = %why, "leads of failed calls are not looked up for an hour");
            }
            Self::Rest(RequestKind::Fields, why) => {
                warn!(reason = %why, "fields of leads are not written for an hour");
            }
            Self::Field(field, fit) => warn!(field, reason = %fit, "--lead-field"),
        }
    }
}

/// Logs those of the counters that a person should see.
pub(crate) fn counted(added: &[(String, i64)]) {
    let grown = |name: &str| {
        let of = added.iter().filter(|(counter, _)| counter == name);
        let by: i64 = of.map(|(_, by)| by).sum();
        (by > 0).then_some(by)
    };
    if let Some(calls) = grown(TO_SURVIVOR) {
        info!(calls, "went on to the lead that theirs was merged into");
    }
    if let Some(calls) = grown(DROPPED) {
        warn!(
            calls,
            "went on without an employee whom the CRM does not know"
        );
    }
    if let Some(values) = grown(GIVEN_UP) {
        warn!(
            values,
            "of lead fields were given up: the CRM did not take them"
        );
    }
}
