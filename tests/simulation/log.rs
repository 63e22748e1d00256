//! Records all events in order: as a hash, and if a file is set, as lines in that file.

use callbridge_call::EventTime;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// The event log. Two runs of a seed must have the same hash, also in different processes.
pub struct Log {
    hash: u64,
    events: u64,
    lines: Option<BufWriter<File>>,
}

impl Log {
    /// Creates an empty log.
    pub fn new() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            lines: None,
        }
    }

    /// Also writes every line to this file.
    pub fn write_to(&mut self, path: &Path) {
        let file = File::create(path).expect("a file for the event log");
        self.lines = Some(BufWriter::new(file));
    }

    /// Adds an event at this time of the CRM's clock.
    pub fn event(&mut self, at: EventTime, what: fmt::Arguments<'_>) {
        self.events += 1;
        writeln!(self, "{} {what}", at.micros()).expect("a hash takes everything");
    }

    /// Returns the hash of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of events.
    pub fn events(&self) -> u64 {
        self.events
    }
}

impl fmt::Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        match &mut self.lines {
            Some(lines) => lines.write_all(text.as_bytes()).map_err(|_| fmt::Error),
            None => Ok(()),
        }
    }
}
