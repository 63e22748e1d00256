//! The sum of an audit.

use crate::audit::journal::{Difference, JournalReading};
use crate::audit::values::ValueDifference;
use callbridge_model::{Zone, safe};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;

/// Unexplained calls that are shown to people; JSON has all.
const SHOWN_MAX: usize = 50;

/// Each call of the file, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Calls that the file tells of.
    pub file: u64,
    /// Calls that stand in the CRM's journal.
    pub journaled: u64,
    /// Calls that wait for a person, as dead letters.
    pub dead: u64,
    /// Calls that wait for a lead or an employee.
    pub waiting: u64,
    /// A person gave them up.
    pub discarded: u64,
    /// Calls that still go on, or are on their way to the CRM.
    pub under_way: u64,
    /// Calls between extensions, which are not journaled.
    pub internal: u64,
    /// Left out by a flag.
    pub skipped: u64,
    /// Calls that nothing explains, each with its likeliest cause.
    pub unexplained: Vec<Unexplained>,
    /// Calls that are stored with other values than the file shows.
    pub different: Vec<DifferentCall>,
    /// Calls that are journaled, and that the CRM's journal has with other values.
    pub changed: Vec<ChangedCall>,
    /// The figures of the search in the CRM's journal, or why it was not read.
    pub journal: JournalReading,
}

/// A call of the file that the report names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedCall {
    /// The linkedid that the file gives the call.
    pub linkedid: String,
    /// Epoch seconds at which the call began.
    pub started_at: i64,
    /// The customer's number, where it is known.
    pub phone: Option<String>,
}

/// A call that is stored with other values than the file shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DifferentCall {
    /// The call, as the file has it.
    #[serde(flatten)]
    pub call: NamedCall,
    /// The values that differ.
    pub differs: Vec<ValueDifference>,
}

/// A call that the CRM's journal has with other values than it was sent with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedCall {
    /// The call, as the file has it.
    #[serde(flatten)]
    pub call: NamedCall,
    /// The fields that differ, with both values.
    pub differs: Vec<Difference>,
}

/// A call that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unexplained {
    /// The call, as the file has it.
    #[serde(flatten)]
    pub call: NamedCall,
    /// The likeliest cause, in words, with what to do.
    pub cause: String,
}

impl Report {
    /// Returns `true` if every call of the file is explained and has the stored values.
    pub const fn is_clean(&self) -> bool {
        self.unexplained.is_empty() && self.different.is_empty()
    }

    /// For people, times in this zone.
    pub fn to_text(&self, zone: &Zone) -> String {
        let mut text = String::new();
        let rows = [
            ("in the file", self.file),
            ("journaled", self.journaled),
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
            // Writing into a text does not fail.
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
            let differs: Vec<String> = differs.iter().map(Difference::words).collect();
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
        let (at, linkedid) = (zone.second(self.started_at), safe(&self.linkedid));
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
        let words = match (&self.reason, self.missing) {
            (Some(reason), _) => format!("The CRM's journal was not read: {}", safe(reason)),
            (None, 0) => {
                format!("The CRM's journal has all {asked} that were looked for in it ({requests})")
            }
            (None, missing) => format!(
                "Of {asked} that were looked for in it the CRM's journal does not have {missing} \
                 ({requests})"
            ),
        };
        let new = match self.too_new {
            0 => String::new(),
            calls => format!("; journaled too recently to be looked for: {calls}"),
        };
        format!("\n{words}{new}.\n")
    }
}

impl Difference {
    fn words(&self) -> String {
        let words = |value: &Value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        };
        format!(
            "{}: {} here, {} there",
            self.field,
            words(&self.here),
            words(&self.there)
        )
    }
}
