//! Advice on dead letters, one sentence per reason.

use super::row::Letter;
use callbridge_leads::lead_request::Finding;
use callbridge_model::{CallRecord, Reason};

/// Returns advice on dead letters with this reason, pointing out the command or flag to use.
pub const fn fix(reason: Reason) -> &'static str {
    match reason {
        Reason::NoLead => {
            "Give the number a lead where --lead looks (`callbridge lead missing` lists such \
             numbers), and the call is sent automatically, or name a lead: `callbridge dead retry \
             ID --lead LEAD`."
        }
        Reason::AmbiguousLead => {
            "Two leads claim this call: choose one with `callbridge dead retry ID --lead LEAD`, or \
             merge or delete one of them, and the call is sent automatically."
        }
        Reason::Failed => {
            "The CRM accepted the call but could not write it, mostly because the lead or employee \
             does not exist there: `callbridge dead retry ID --lead LEAD --employee EMPLOYEE`."
        }
        Reason::Rejected => {
            "The CRM refuses the call as it is: read its message and errors, correct the lead, \
             employee or --field they name, then `callbridge dead retry ID`."
        }
        Reason::Conflict => {
            "The CRM has this uuid with other values: look up the call there, then `callbridge \
             dead discard ID`, or `callbridge dead retry ID` if it is missing."
        }
        Reason::UuidConflict => {
            "An earlier call with different values has the same uuid (find it with `callbridge \
             explain --call`): enter or correct this call in the CRM manually, then `callbridge \
             dead discard ID`. If the two calls are from different PBXs, give each PBX its own \
             pbx= in --source."
        }
        Reason::ServerError => {
            "The CRM fails on this call while it accepts others: `callbridge dead retry ID` later, \
             and report its message to the CRM's support if it fails again."
        }
        Reason::Unconfirmed => {
            "The CRM accepted the call and never showed it: look it up there, and if it is \
             missing, `callbridge dead retry ID` (the uuid stays, so it cannot be doubled)."
        }
        Reason::Incomplete => {
            "Events of the call were missed: compare the values with the PBX's own records, then \
             `callbridge dead retry ID` to send them as they are, with `--answered yes|no` and \
             `--talk SECONDS` where they are wrong, and `--direction inbound|outbound` where it is \
             unknown, or `callbridge dead discard ID`."
        }
        Reason::TalkExceedsDuration => {
            "The source reported more talk time than the call lasted: check the PBX's clock, then \
             `callbridge dead retry ID` to send with the talk cut to the duration."
        }
        Reason::InvalidEpoch => {
            "The start time cannot be right: correct the PBX's clock or --pbx-timezone, then \
             `callbridge dead retry ID` to send it with the time of arrival."
        }
        Reason::Unreadable => {
            "The source sent data that cannot be read in its format=. `callbridge dead show ID` \
             shows the bytes and the file. Correct the source. Then use `callbridge dead retry ID` \
             for a call as a message or for a file of one CDR, else `callbridge dead discard ID`."
        }
        Reason::NoEmployee => {
            "Map the extension in --employees, and the call is sent automatically, or send it with \
             `callbridge dead retry ID --employee EMPLOYEE` (or `none`)."
        }
    }
}

/// Returns advice on `failed` dead letters, depending on what the lookup of their lead found.
pub const fn fix_after_lookup(found: Finding) -> &'static str {
    match found {
        Finding::LeadMissing => {
            "Name a lead that exists: `callbridge dead retry ID --lead LEAD`, and correct the list \
             or variable that named this one."
        }
        Finding::LeadExists => {
            "Name an employee of the CRM, or none: `callbridge dead retry ID --employee EMPLOYEE` \
             (or `none`), and correct --employees; --failed-employee drop sends such calls without \
             an employee automatically."
        }
        Finding::Unclear => fix(Reason::Failed),
    }
}

impl Letter {
    /// Returns advice on this dead letter, including its ID and the values that the CRM refused.
    pub fn fix(&self) -> String {
        let message = self
            .finding
            .map_or(fix(self.reason), fix_after_lookup)
            .replace(" ID", &format!(" {}", self.id));
        let refused = matches!(self.reason, Reason::Failed | Reason::Rejected);
        if refused && let Some(sent) = self.call.as_ref().and_then(sent_with) {
            return format!("{message} It was sent with {sent}.");
        }
        message
    }
}

/// Returns the values that were sent, as in `lead 4001 and employee 777 (extension 101)`.
fn sent_with(call: &CallRecord) -> Option<String> {
    let lead = call.lead_id.map(|lead| format!("lead {lead}"));
    let employee = call.employee_id.map(|id| match &call.employee {
        Some(extension) => format!("employee {id} (extension {extension})"),
        None => format!("employee {id}"),
    });
    let both: Vec<String> = [lead, employee].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowId;
    use callbridge_model::EmployeeId;
    use callbridge_testkit::sample::record;

    fn letter(reason: Reason, finding: Option<Finding>) -> Letter {
        let call = CallRecord {
            employee_id: EmployeeId::new(777),
            ..record()
        };
        Letter {
            id: RowId(12),
            uuid: call.uuid,
            reason,
            waiting: reason.is_waiting(),
            since: callbridge_call::EventTime::from_seconds(0),
            message: String::new(),
            finding,
            errors: serde_json::Value::Null,
            attempts: Vec::new(),
            actions: Vec::new(),
            times_dead: 1,
            call: Some(call),
            bytes: None,
        }
    }

    #[test]
    fn dead_letter_fix_names_its_id_and_the_refused_values() {
        for &reason in Reason::ALL {
            let message = letter(reason, None).fix();
            assert!(!message.contains("ID"), "{reason}: {message}");
        }
        let found = letter(Reason::Failed, Some(Finding::LeadExists)).fix();
        assert!(found.contains("dead retry 12 --employee"), "{found}");
        let sent = "It was sent with lead 4001 and employee 777 (extension 101).";
        assert!(found.ends_with(sent), "{found}");
        assert!(letter(Reason::Rejected, None).fix().ends_with(sent));
    }

    #[test]
    fn every_reason_has_a_fix_with_a_command_or_a_flag() {
        for &reason in Reason::ALL {
            let message = fix(reason);
            assert!(message.ends_with('.'), "{reason}: {message}");
            assert!(
                message.contains("`callbridge ") || message.contains("--"),
                "{reason}: {message}"
            );
            assert!(!message.contains("  "), "{reason}: {message}");
        }
    }
}
