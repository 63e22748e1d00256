//! The sum of an audit.

use crate::Cause;
use callbridge_model::Zone;
use callbridge_model::safe::safe;
use serde::Serialize;
use std::fmt::Write as _;

/// Unexplained calls that are shown to people; JSON has all.
const SHOWN_MAX: usize = 50;

/// Each call of the file, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Calls that the file tells of.
    pub file: u64,
    /// They stand in the CRM's journal.
    pub journaled: u64,
    /// They were published to a stream, for another callbridge to send.
    pub forwarded: u64,
    /// They wait for a person, as letters.
    pub dead: u64,
    /// They wait for a lead or an employee.
    pub parked: u64,
    /// A person gave them up.
    pub discarded: u64,
    /// They go on, or are on their way.
    pub under_way: u64,
    /// Between extensions.
    pub internal: u64,
    /// Left out by a flag.
    pub skipped: u64,
    /// Nothing explains them.
    pub unexplained: Vec<Unexplained>,
}

/// A call that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unexplained {
    /// Its own id.
    pub linkedid: String,
    /// Epoch seconds.
    pub started_at: i64,
    /// The customer's number, where it is known.
    pub phone: Option<String>,
    /// The likeliest cause.
    pub cause: Cause,
}

impl Report {
    /// For people, times in this zone.
    pub fn to_text(&self, zone: &Zone) -> String {
        let mut text = String::new();
        let rows = [
            ("in the file", self.file),
            ("journaled", self.journaled),
            ("forwarded", self.forwarded),
            ("dead", self.dead),
            ("parked", self.parked),
            ("discarded", self.discarded),
            ("under way", self.under_way),
            ("internal", self.internal),
            ("skipped", self.skipped),
            ("unexplained", self.unexplained.len() as u64),
        ];
        for (name, count) in rows {
            // Writing into a text does not fail.
            let _ = writeln!(text, "{name:<12} {count:>8}");
        }
        for call in self.unexplained.iter().take(SHOWN_MAX) {
            let phone = call.phone.as_deref().unwrap_or("no number");
            let _ = writeln!(
                text,
                "\n{}  {}  {}\n  {}",
                zone.second(call.started_at),
                safe(phone),
                safe(&call.linkedid),
                safe(&call.cause.0)
            );
        }
        let more = self.unexplained.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            let _ = writeln!(text, "\nand {more} more: --json lists all");
        }
        if self.unexplained.is_empty() {
            text.push_str("\nEach call of the file is explained.\n");
        }
        text
    }
}
