//! What to do next with a call that FAILED (§3.2). It's either sent to the lead that its own lead
//! was merged into, sent without an employee that the CRM doesn't know, or turned into a dead
//! letter that says what went wrong.

use super::Finding;
use callbridge_model::{CallRecord, LeadId};
use serde::{Deserialize, Serialize};

/// Maximum number of leads to send a call to. Chains of merges are short, and loops have to end.
const LEADS_MAX: usize = 8;

/// A call's earlier leads and automatic changes. If someone retries the call, its history is empty
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RerouteHistory {
    pub leads: Vec<LeadId>,
    /// Whether the call is sent without its employee.
    pub dropped: bool,
}

/// A call that's being resent, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Reroute {
    /// The call with the other lead or without the employee. Its UUID stays the same.
    pub record: CallRecord,
    /// The call's history, including this step.
    pub history: RerouteHistory,
    /// The text to show among the call's attempts.
    pub why: String,
}

/// A call that FAILED, with everything that determines its next step.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedCall {
    pub record: CallRecord,
    /// The call's history before this failure.
    pub history: RerouteHistory,
    /// The lead that the call's lead was merged into, or `None` if it wasn't merged.
    pub survivor: Option<LeadId>,
    /// Whether there's a sender that looks up leads.
    pub look_up: bool,
    /// The result of a recent lookup of the call's lead, if there was one.
    pub finding: Option<Finding>,
    /// Set by `--failed-employee=drop`, with which a failed call is resent without its unknown
    /// employee.
    pub drop_employee: bool,
}

/// The next step for a call that FAILED (§3.2).
#[derive(Clone, Debug, PartialEq)]
pub enum FailedCallDecision {
    /// Resend the call to the lead that its own lead was merged into.
    ToSurvivor(Reroute),
    /// Resend the call without its employee, because its lead exists.
    WithoutEmployee(Reroute),
    /// Turn the call into a dead letter.
    Letter {
        /// The dead letter's human-readable text.
        message: String,
        /// The result of the lookup behind the message, or `None` if no lookup is possible.
        finding: Option<Finding>,
    },
    /// Turn the call into a dead letter with the CRM's message, until its lead has been looked up.
    LookUp(LeadId),
}

impl FailedCall {
    /// Decides on the call's next step. `crm_message` is the CRM's reason why the call FAILED.
    pub fn decide(&self, crm_message: &str) -> FailedCallDecision {
        if let Some(survivor) = self.survivor
            && let Some(reroute) = to_survivor(&self.record, survivor, &self.history)
        {
            return FailedCallDecision::ToSurvivor(reroute);
        }
        let finding = if self.look_up { self.finding } else { None };
        if let Some(lead) = self.record.lead_id
            && self.look_up
            && finding.is_none()
        {
            return FailedCallDecision::LookUp(lead);
        }
        if let Some(found) = finding
            && self.drop_employee
            && let Some(reroute) = without_employee(&self.record, found, &self.history)
        {
            return FailedCallDecision::WithoutEmployee(reroute);
        }
        let message = finding
            .and_then(|found| message(&self.record, found, crm_message))
            .unwrap_or_else(|| crm_message.to_owned());
        FailedCallDecision::Letter { message, finding }
    }
}

/// Returns the call with `survivor` as its lead, or `None` if the call has no lead, has been sent
/// to `survivor` before, or has been sent to too many leads.
pub fn to_survivor(
    call: &CallRecord,
    survivor: LeadId,
    history: &RerouteHistory,
) -> Option<Reroute> {
    let lead = call.lead_id?;
    let tried = lead == survivor || history.leads.contains(&survivor);
    if tried || history.leads.len() >= LEADS_MAX {
        return None;
    }
    let mut history = history.clone();
    history.leads.push(lead);
    let record = CallRecord {
        lead_id: Some(survivor),
        lead_from: Some(format!("lead {lead} was merged into it")),
        ..call.clone()
    };
    let why = format!("lead {lead} was merged into {survivor}: the call goes to that lead");
    Some(Reroute {
        record,
        history,
        why,
    })
}

/// Returns the call without an employee that the CRM doesn't know (`--failed-employee drop`).
/// Returns `None` if the call has no employee, has been sent without its employee before, or has a
/// lead that isn't known to exist.
pub fn without_employee(
    call: &CallRecord,
    found: Finding,
    history: &RerouteHistory,
) -> Option<Reroute> {
    let employee = call.employee_id?;
    if found != Finding::LeadExists || history.dropped {
        return None;
    }
    let record = CallRecord {
        employee_id: None,
        ..call.clone()
    };
    let history = RerouteHistory {
        dropped: true,
        ..history.clone()
    };
    let why = format!(
        "the lead exists: employee {employee} is not known, and left out (--failed-employee drop)"
    );
    Some(Reroute {
        record,
        history,
        why,
    })
}

/// Returns the dead letter's message, followed by the CRM's, or `None` if the call has no lead or
/// the lookup was inconclusive.
pub fn message(call: &CallRecord, found: Finding, crm_message: &str) -> Option<String> {
    let lead = call.lead_id?;
    let text = match (found, call.employee_id) {
        (Finding::LeadMissing, _) => {
            format!("lead {lead} does not exist (deleted or another company's)")
        }
        (Finding::LeadExists, Some(employee)) => {
            format!("the lead exists: employee {employee} is not known")
        }
        (Finding::LeadExists, None) => {
            "the lead exists, and no employee was named: the CRM gives no other reason".to_owned()
        }
        (Finding::Unclear, _) => return None,
    };
    if crm_message.is_empty() || crm_message.starts_with(&text) {
        return Some(text);
    }
    Some(format!("{text}; the CRM answered \"{crm_message}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::EmployeeId;
    use callbridge_testkit::sample::record;

    fn call(lead: i64, employee: Option<i64>) -> CallRecord {
        CallRecord {
            lead_id: LeadId::new(lead),
            employee_id: employee.and_then(EmployeeId::new),
            ..record()
        }
    }

    fn lead(id: i64) -> LeadId {
        LeadId::new(id).expect("positive")
    }

    fn failed_call(record: CallRecord) -> FailedCall {
        FailedCall {
            record,
            history: RerouteHistory::default(),
            survivor: None,
            look_up: true,
            finding: None,
            drop_employee: true,
        }
    }

    fn dead_letter_decision(message: &str, finding: Option<Finding>) -> FailedCallDecision {
        let message = message.to_owned();
        FailedCallDecision::Letter { message, finding }
    }

    #[test]
    fn failed_call_is_looked_up_rerouted_or_made_dead_letter() {
        let new = failed_call(call(1, Some(7)));
        assert_eq!(new.decide("no"), FailedCallDecision::LookUp(lead(1)));
        let nobody_asks = FailedCall {
            look_up: false,
            finding: Some(Finding::LeadExists),
            ..new.clone()
        };
        assert_eq!(nobody_asks.decide("no"), dead_letter_decision("no", None));
        let no_lead = CallRecord {
            lead_id: None,
            ..call(1, None)
        };
        assert_eq!(
            failed_call(no_lead).decide("no"),
            dead_letter_decision("no", None)
        );
        let unclear = FailedCall {
            finding: Some(Finding::Unclear),
            ..new.clone()
        };
        assert_eq!(
            unclear.decide("no"),
            dead_letter_decision("no", unclear.finding)
        );
        let exists = FailedCall {
            finding: Some(Finding::LeadExists),
            ..new
        };
        let FailedCallDecision::WithoutEmployee(on) = exists.decide("no") else {
            panic!("{exists:?}");
        };
        let again = FailedCall {
            history: on.history,
            ..exists.clone()
        };
        let kept = FailedCall {
            drop_employee: false,
            ..exists.clone()
        };
        let message = "the lead exists: employee 7 is not known; the CRM answered \"no\"";
        assert_eq!(
            again.decide("no"),
            dead_letter_decision(message, exists.finding)
        );
        assert_eq!(
            kept.decide("no"),
            dead_letter_decision(message, exists.finding)
        );
        let merged = FailedCall {
            survivor: Some(lead(2)),
            ..exists
        };
        let decision = merged.decide("no");
        assert!(
            matches!(decision, FailedCallDecision::ToSurvivor(_)),
            "before all else"
        );
    }

    #[test]
    fn call_is_rerouted_to_each_lead_once_and_never_in_a_circle() {
        let first =
            to_survivor(&call(1, None), lead(2), &RerouteHistory::default()).expect("there");
        assert_eq!(first.record.lead_id, Some(lead(2)));
        assert_eq!(
            first.why,
            "lead 1 was merged into 2: the call goes to that lead"
        );
        assert_eq!(to_survivor(&first.record, lead(1), &first.history), None);
        assert_eq!(to_survivor(&first.record, lead(2), &first.history), None);
        let second = to_survivor(&first.record, lead(3), &first.history).expect("a chain");
        assert_eq!(second.history.leads, [lead(1), lead(2)]);
        let (mut now, mut history, mut hops) = (call(1, None), RerouteHistory::default(), 0);
        while let Some(on) = to_survivor(&now, lead(100 + hops), &history) {
            (now, history, hops) = (on.record, on.history, hops + 1);
            assert!(hops < 100, "no end");
        }
        assert_eq!(hops, 8);
    }

    #[test]
    fn employee_is_dropped_only_once_and_only_if_lead_exists() {
        let history = RerouteHistory::default();
        let on = without_employee(&call(1, Some(501)), Finding::LeadExists, &history).expect("on");
        assert_eq!(on.record.employee_id, None);
        assert_eq!(on.record.lead_id, Some(lead(1)));
        let again = call(1, Some(501));
        assert_eq!(
            without_employee(&again, Finding::LeadExists, &on.history),
            None
        );
        for found in [Finding::LeadMissing, Finding::Unclear] {
            assert_eq!(without_employee(&again, found, &history), None);
        }
        assert_eq!(
            without_employee(&call(1, None), Finding::LeadExists, &history),
            None
        );
    }

    #[test]
    fn dead_letter_message_names_the_refused_lead_or_employee() {
        let said = [
            message(&call(4001, Some(501)), Finding::LeadMissing, ""),
            message(&call(4001, Some(501)), Finding::LeadExists, "bad"),
            message(&call(4001, None), Finding::LeadExists, ""),
            message(&call(4001, None), Finding::Unclear, "bad"),
        ];
        let said = said.map(|words| words.unwrap_or_else(|| "-".to_owned()));
        insta::assert_snapshot!(said.join("\n"), @r#"
        lead 4001 does not exist (deleted or another company's)
        the lead exists: employee 501 is not known; the CRM answered "bad"
        the lead exists, and no employee was named: the CRM gives no other reason
        -
        "#);
    }
}
