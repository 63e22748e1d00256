//! `explain --call ID` without a file: a call that the spool keeps, as it was put down.

use super::{shape::Shape, text};
use crate::journal::{CallRecord, Judged, Outcome, Reason, Rules};
use crate::people::People;
use callbridge_call::{EventTime, FinishedCall};
use serde::Deserialize;

/// What the daemon, or the spool, answers to [`crate::control::Ask::Call`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    record: CallRecord,
    call: FinishedCall,
    reason: Option<Reason>,
    message: Option<String>,
    judged_at: EventTime,
}

impl Kept {
    /// Reads the answer.
    ///
    /// # Errors
    /// When it is another shape than this version's.
    pub fn read(item: serde_json::Value) -> Result<Self, serde_json::Error> {
        serde_json::from_value(item)
    }

    /// One JSON line, or the block for people.
    pub fn show(self, json: bool, rules: &Rules, paint: text::Paint) -> String {
        let judged = Judged {
            record: self.record,
            outcome: if self.reason.is_some() {
                Outcome::DeadLetter
            } else {
                Outcome::Journal
            },
            reason: self.reason,
            message: self.message.unwrap_or_default(),
            live: false,
            remarks: self.call.remarks.clone(),
            judged_at: self.judged_at,
        };
        if json {
            Shape::of(&judged).to_line()
        } else {
            // Lists are not read for it: the lead is the one that was put down.
            text::block(&judged, &self.call, rules, &People::default(), paint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{LeadId, judge, tests::call};

    #[test]
    fn a_kept_call_is_shown_as_it_was_put_down() {
        let call = call();
        let rules = Rules::default();
        let mut judged = judge(&call, "pbx1", &rules, &People::default(), call.ended);
        judged.record.lead_id = LeadId::new(17);
        let item = serde_json::json!({
            "state": "journaled", "record": judged.record, "call": call,
            "reason": null, "message": "", "judgedAt": call.ended,
        });
        let kept = |json| {
            let kept = Kept::read(item.clone()).expect("this version's shape");
            kept.show(json, &rules, text::Paint::default())
        };
        assert!(kept(true).contains(r#""leadId":17,"#), "{}", kept(true));
        let text = kept(false);
        assert!(text.starts_with("1795151317.146  journal\n"), "{text}");
        assert!(text.contains("leadId            17  put down so"), "{text}");
    }
}
