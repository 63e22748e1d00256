//! What the flags say of assembling, and of each source.

use super::gap_log::GapLog;
use super::unmatched::UnmatchedLog;
use crate::journal::Rules;
use crate::trunk::Trunks;
use callbridge_asterisk::Format;
use callbridge_call::EventTime;
use callbridge_call::trunk::Conflict;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the flags say of assembling.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--settle`
    pub settle: Duration,
    /// `--cdr-wait`
    pub cdr_wait: Duration,
    /// `--max-call`
    pub max_call: Duration,
    /// `--max-open-calls`
    pub max_open_calls: usize,
    /// `--pbx-timezone`
    pub zone: Option<jiff::tz::TimeZone>,
    /// `--columns`
    pub cel_columns: Option<callbridge_asterisk::Columns>,
    /// Our own clock is plainly wrong while it shows an earlier time: calls are held then.
    pub clock_right_from: EventTime,
    /// Trunks and what is journaled of them.
    pub rules: Rules,
}

impl Settings {
    /// How the calls of this PBX are assembled.
    ///
    /// # Errors
    /// When two equally long endpoints can match one channel.
    pub fn assembler(&self, pbx: &str) -> Result<callbridge_call::Settings, Conflict> {
        Ok(callbridge_call::Settings {
            settle: self.settle,
            cdr_wait: Some(self.cdr_wait),
            max_call: self.max_call,
            max_open_calls: self.max_open_calls,
            ..callbridge_call::Settings::new(self.rules.trunks.endpoints(pbx)?)
        })
    }

    pub(super) fn trunks(&self) -> &Trunks {
        &self.rules.trunks
    }
}

/// What the intake has to know of a source.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Its URL as shown; what its place is kept under.
    pub shown: String,
    /// The id of its PBX.
    pub pbx: String,
    /// What its frames are.
    pub format: Format,
    /// It is a file.
    pub file: bool,
    /// It tells what happens once and never again (AMI, WebSocket): what nobody hears is lost.
    pub forgets: bool,
    /// `--catch-up`: a second account of the calls that another source tells.
    pub catch_up: bool,
}

/// What an earlier run left behind beside open calls.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// `server_name` first heard on a stream of this PBX.
    pub servers: BTreeMap<String, String>,
    /// When each source, by its URL, was last heard.
    pub heard: BTreeMap<String, EventTime>,
    /// Since when each PBX is listened to: what was before is not filled from a catch-up file.
    pub since: BTreeMap<String, EventTime>,
    /// The last gaps.
    pub gaps: GapLog,
    /// Channels of no trunk that carried outside numbers.
    pub unmatched: UnmatchedLog,
}
