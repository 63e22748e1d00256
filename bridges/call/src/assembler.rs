//! Channel events in, finished calls out.

use crate::call::FinishedCall;
use crate::event::Told;
use crate::trunk::Endpoints;
use crate::units::EventTime;
use std::time::Duration;

/// What the assembler has to know about the PBX and its administrator's wishes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The trunks.
    pub endpoints: Endpoints,
    /// A call is finished when all its channels have hung up and this long no new one came.
    pub settle: Duration,
    /// How long calls over a trunk that [awaits a CDR](crate::Endpoint::awaiting_cdr) wait for
    /// one with a user field; `None`: not at all.
    pub cdr_wait: Option<Duration>,
    /// A call still open after this long is ended, and incomplete.
    pub max_call: Duration,
    /// More open calls than this: the one longest silent is ended, and incomplete.
    pub max_open_calls: usize,
}

impl Settings {
    /// The defaults of the command line: 500 ms, no wait for CDRs, 12 hours, 10,000 calls.
    pub fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            settle: Duration::from_millis(500),
            cdr_wait: None,
            max_call: Duration::from_secs(12 * 3600),
            max_open_calls: 10_000,
        }
    }
}

/// An open call that changed or went since the last take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenChange {
    /// The assembler's own number for the call; stable over restarts.
    pub key: u64,
    /// The call as bytes for [`Assembler::restore`]; `None` when it is no longer open.
    pub snapshot: Option<Vec<u8>>,
}

/// What was ignored or set right so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events told before in the same words, which changed nothing.
    pub doubled: u64,
    /// Events of calls that were finished already.
    pub late: u64,
    /// Event times put aside for the time of arrival, because they differed by more than 5 s.
    pub clock_clamped: u64,
    /// Events without a unique id.
    pub unidentified: u64,
    /// Facts beyond what one call may hold.
    pub facts_dropped: u64,
    /// `LINKEDID_END`s, which say nothing reliable.
    pub linkedid_ends: u64,
    /// Scraps of channels that were never seen to do anything: no call.
    pub ghosts: u64,
    /// Calls ended because they were open too long, or too many were open.
    pub forced: u64,
    /// CDRs of no open call.
    pub cdr_unmatched: u64,
    /// Marks: logins, restarts.
    pub marks: u64,
}

/// A snapshot that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not what [`Assembler::take_changes`] gave out.
    #[error("the open call {key} cannot be restored: {source}")]
    Snapshot {
        /// The call's number.
        key: u64,
        /// What is wrong with the bytes.
        source: serde_json::Error,
    },
}

/// Groups channel events into calls, and gives each out when it is over.
#[derive(Debug)]
pub struct Assembler {
    settings: Settings,
    counts: Counts,
}

impl Assembler {
    /// No calls yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            counts: Counts::default(),
        }
    }

    /// Takes in what a PBX told, and when it arrived by our own clock.
    pub fn hear(&mut self, told: &Told<'_>, arrived: EventTime) {
        let _ = (told, arrived, &self.settings);
    }

    /// Says what time it is; call it at [`Assembler::next_deadline`] at the latest.
    pub fn tick(&mut self, now: EventTime) {
        let _ = now;
    }

    /// When the next call could be finished if nothing else is heard.
    pub fn next_deadline(&self) -> Option<EventTime> {
        None
    }

    /// The stream ends here, as a file does: every call all of whose channels hung up is finished
    /// without further waiting; the others stay open.
    pub fn finish_all(&mut self, now: EventTime) {
        let _ = now;
    }

    /// The calls finished since the last take, in the order they were finished.
    pub fn take_finished(&mut self) -> Vec<FinishedCall> {
        Vec::new()
    }

    /// The open calls that changed or went since the last take.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        Vec::new()
    }

    /// Puts an open call back.
    ///
    /// # Errors
    /// When the bytes are not a snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        let _ = (key, snapshot);
        Ok(())
    }

    /// Whether this unique id or linkedid is part of an open call.
    pub fn knows(&self, id: &str) -> bool {
        let _ = id;
        false
    }

    /// How many calls are open.
    pub fn open_calls(&self) -> usize {
        0
    }

    /// What was ignored or set right so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}
