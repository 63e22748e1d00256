//! Converts the times of CEL rows to absolute times.
//!
//! By default, they're seconds since the epoch, but with `dateformat` in `cel.conf`, they can be in
//! any format, usually local time without a time zone.

use crate::local_time::{self, Written};
use crate::wall_clock::{Basis, RowOrder, Stamp, WallClocks, WrongZone, birth_sec};
use callbridge_call::EventTime;
use jiff::tz::TimeZone;

/// Converts the times of one source's rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct CelClock {
    /// Whether this is a file. If neither a time zone nor a unique ID reveals the offset, a file's
    /// times are treated as UTC, so that at least the intervals are right.
    guess: bool,
    walls: WallClocks,
    server: String,
}

impl CelClock {
    pub(crate) fn new(zone: Option<TimeZone>, guess: bool) -> Self {
        Self {
            guess,
            walls: WallClocks::new(zone),
            ..Self::default()
        }
    }

    /// Sets which server the following rows come from.
    pub(crate) fn set_server(&mut self, server: Option<&str>) {
        server.unwrap_or_default().clone_into(&mut self.server);
    }

    /// Returns the time given by `text` in a row of the channel `uniqueid`, or `None` if it isn't
    /// known. `starts` is `true` for the row written when the channel was created.
    pub(crate) fn read_time(
        &mut self,
        text: &str,
        uniqueid: &str,
        starts: bool,
    ) -> Option<EventTime> {
        if text.is_empty() {
            return None;
        }
        let born = birth_sec(uniqueid);
        let local = match local_time::read(text) {
            Some(Written::Absolute(at)) => return Some(at),
            Some(Written::Local(local)) => local,
            // A time that the database has lost can be found in the unique ID.
            None if starts => return born.map(EventTime::from_seconds),
            None => return None,
        };
        self.walls.turn_to(&self.server, uniqueid);
        let converted = self.walls.convert(Stamp {
            local: local.nearest_to(born),
            born,
            row: if starts {
                RowOrder::First
            } else {
                RowOrder::Later
            },
        })?;
        if converted.basis == Basis::Unknown && !self.guess {
            return None;
        }
        let at = EventTime::from_micros(converted.micros);
        self.walls.note_time(at.floor_seconds().get());
        Some(at)
    }

    /// Returns the offset found in the unique IDs if it contradicts the configured time zone.
    pub(crate) fn wrong_zone(&self) -> Option<WrongZone> {
        self.walls.wrong_zone()
    }
}

#[cfg(test)]
mod tests;
