//! Everything that happens, in order: as one number, and as lines on demand.

use callbridge_call::EventTime;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

/// The event log. Two runs of a seed must have the same hash, in whatever process.
pub struct Log {
    hash: u64,
    events: u64,
    lines: Option<BufWriter<File>>,
}

impl Log {
    /// Nothing has happened.
    pub fn new() -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            lines: None,
        }
    }

    /// Every line goes to this file as well.
    pub fn write_to(&mut self, path: &Path) {
        let file = File::create(path).expect("a file for the event log");
        self.lines = Some(BufWriter::new(file));
    }

    /// Something happened, by the CRM's clock.
    pub fn event(&mut self, at: EventTime, what: fmt::Arguments<'_>) {
        self.events += 1;
        writeln!(self, "{} {what}", at.micros()).expect("a hash takes everything");
    }

    /// Of all events so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many there were.
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
