//! The report of an audit.

use crate::audit::journal::{Difference, JournalReading};
use crate::audit::values::ValueDifference;
use callbridge_model::{Zone, safe};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;

/// Maximum number of calls in each list of the text report. JSON has all calls.
const SHOWN_MAX: usize = 50;

/// The report. Each call of the file is counted once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Calls in the file.
    pub file: u64,
    /// Calls in the CRM's journal.
    pub journaled: u64,
    /// Calls that a hub has stored.
    pub forwarded: u64,
    /// Dead letters.
    pub dead: u64,
    /// Calls that wait for a lead or an employee.
    pub waiting: u64,
    /// Calls that a person discarded.
    pub discarded: u64,
    /// Calls that are in progress, or on their way to the CRM.
    pub under_way: u64,
    /// Calls between extensions, which are not journaled.
    pub internal: u64,
    /// Calls left out by a flag.
    pub skipped: u64,
    /// Calls without an explanation, each with its likeliest cause.
    pub unexplained: Vec<Unexplained>,
    /// Calls that are stored with other values than in the file.
    pub different: Vec<DifferentCall>,
    /// Journaled calls that have other values in the CRM's journal.
    pub changed: Vec<ChangedCall>,
    /// The figures of the search in the CRM's journal, or why it was not read.
    pub journal: JournalReading,
}

/// A call of the file that the report lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedCall {
    /// The linkedid in the file.
    pub linkedid: String,
    /// Epoch seconds.
    pub started_at: i64,
    /// The customer's number, if known.
    pub phone: Option<String>,
}

/// A call that is stored with other values than in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentCall {
    #[serde(flatten)]
    pub call: NamedCall,
    pub differs: Vec<ValueDifference>,
}

/// A call that has other values in the CRM's journal than were sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedCall {
    #[serde(flatten)]
    pub call: NamedCall,
    pub differs: Vec<Difference>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unexplained {
    #[serde(flatten)]
    pub call: NamedCall,
    /// Text with the likeliest cause and the fix.
    pub cause: String,
}

impl Report {
    /// Returns `true` if every call of the file is explained and has the same values in the state.
    pub const fn is_clean(&self) -> bool {
        self.unexplained.is_empty() && self.different.is_empty()
    }

    /// Returns the report for people, with times in this zone.
    pub fn to_text(&self, zone: &Zone) -> String {
        let mut text = String::new();
        let rows = [
            ("in the file", self.file),
            ("journaled", self.journaled),
            ("forwarded", self.forwarded),
            ("dead", self.dead),
            ("waiting", self.waiting),
            ("discarded", self.discarded),
            ("under way", self.under_way),
            ("internal", self.internal),
            ("skipped", self.skipped),
            ("unexplained", self.unexplained.len() as u64),
            ("different", self.different.len() as u64),
        ];
        for (name, count) in rows {
            // Writing into a String does not fail.
            let _ = writeln!(text, "{name:<12} {count:>8}");
        }
        text.push_str(&self.journal.to_text());
        for Unexplained { call, cause } in self.unexplained.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "\n{}\n  {}", call.to_text(zone), safe(cause));
        }
        more(&mut text, self.unexplained.len());
        if !self.different.is_empty() {
            text.push_str("\nThe file has other values than callbridge:\n");
        }
        for DifferentCall { call, differs } in self.different.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "\n{}", call.to_text(zone));
            for difference in differs {
                let _ = writeln!(text, "  {}", safe(&difference.to_text(zone)));
            }
        }
        more(&mut text, self.different.len());
        if !self.changed.is_empty() {
            text.push_str("\nIn the CRM's journal with other values than were sent:\n");
        }
        for ChangedCall { call, differs } in self.changed.iter().take(SHOWN_MAX) {
            let differs: Vec<String> = differs.iter().map(Difference::message).collect();
            let _ = writeln!(text, "\n{}\n  {}", call.to_text(zone), differs.join("; "));
        }
        more(&mut text, self.changed.len());
        if self.is_clean() {
            text.push_str("\nEach call of the file is explained.\n");
        }
        text
    }
}

impl NamedCall {
    fn to_text(&self, zone: &Zone) -> String {
        let phone = safe(self.phone.as_deref().unwrap_or("no number"));
        let at = zone.second(self.started_at);
        let linkedid = safe(&self.linkedid);
        format!("{at}  {phone}  {linkedid}")
    }
}

fn more(text: &mut String, calls: usize) {
    let more = calls.saturating_sub(SHOWN_MAX);
    if more > 0 {
        let _ = writeln!(text, "\nand {more} more: --json lists all");
    }
}

impl JournalReading {
    fn to_text(&self) -> String {
        let asked = self.asked;
        let requests = match self.requests {
            1 => "1 request".to_owned(),
            requests => format!("{requests} requests"),
        };
        let message = match (&self.reason, self.missing) {
            (Some(reason), _) => format!("The CRM's journal was not read: {}", safe(reason)),
            (None, 0) => {
                format!("The CRM's journal has all {asked} that were looked for ({requests})")
            }
            (None, missing) => format!(
                "The CRM's journal does not have {missing} of the {asked} that were looked for \
                 ({requests})"
            ),
        };
        let new = match self.too_new {
            0 => String::new(),
            calls => format!("; journaled too recently to be looked for: {calls}"),
        };
        format!("\n{message}{new}.\n")
    }
}

impl Difference {
    fn message(&self) -> String {
        let here = value_text(&self.here);
        let there = value_text(&self.there);
        format!("{}: {here} here, {there} there", self.field)
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
