//! Turns the times of CEL rows into absolute times.
//!
//! By default, a row's time is seconds since the epoch. With `dateformat` in `cel.conf`, it can
//! have any form, most often local time without a zone. Such a time is converted with the
//! configured zone. Without a configured zone, the rows show the offset from UTC, because the
//! unique id of a new channel contains the epoch of its creation. One stream can have several PBXs,
//! each in its own zone, so the offset is learned for each server and system name.

use crate::local_time::{self, WallClocks, Written};
use callbridge_call::{EventTime, UniqueId};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// The offset of every zone from UTC is a multiple of this.
const QUARTER_HOUR_SEC: i64 = 900;
/// Time by which clocks are changed in spring and autumn, nearly everywhere.
const HOUR_SEC: i64 = 3600;
/// No zone has a larger offset from UTC.
const FARTHEST_ZONE_SEC: i64 = 15 * 3600;
/// The time of a row can be this far before the epoch in its channel's unique id.
const SLACK_SEC: i64 = 2;
/// A channel's first row is written within this time after its creation. Otherwise the number in
/// its unique id is not an epoch.
const BIRTH_SEC: i64 = 60;
/// Rows of one PBX can be out of order by this time.
const SHUFFLED_SEC: i64 = 120;

/// The offset of each PBX's local time from UTC, configured or learned.
#[derive(Clone, Debug, Default)]
pub(crate) struct CelClock {
    zone: Option<TimeZone>,
    /// `true` for a file. If neither a zone nor a unique id shows the offset, its times count as
    /// UTC, so at least the intervals are right.
    guess: bool,
    walls: WallClocks<WallClock>,
    server: String,
}

/// The offset of one PBX's local time from UTC, as learned from its rows.
#[derive(Clone, Copy, Debug, Default)]
struct WallClock {
    /// Offset in seconds, learned from the last row that was written when its channel was created.
    offset_sec: Option<i64>,
    /// The latest absolute time of a row so far, in epoch seconds.
    latest: Option<i64>,
}

impl CelClock {
    pub(crate) fn new(zone: Option<TimeZone>, guess: bool) -> Self {
        Self {
            zone,
            guess,
            ..Self::default()
        }
    }

    /// Sets the server of the following rows.
    pub(crate) fn set_server(&mut self, server: Option<&str>) {
        server.unwrap_or_default().clone_into(&mut self.server);
    }

    /// Returns the time that `text` means in a row of the channel `uniqueid`. `starts` is `true`
    /// for the row that was written when the channel was created. `None` if the time is not known.
    pub(crate) fn read_time(
        &mut self,
        text: &str,
        uniqueid: &str,
        starts: bool,
    ) -> Option<EventTime> {
        if text.is_empty() {
            return None;
        }
        let (local, other) = match local_time::read(text)? {
            Written::Absolute(at) => return Some(at),
            Written::Local(local, other) => (local, other),
        };
        let born = UniqueId::epoch_in(uniqueid);
        let local = nearest(local, other, born);
        self.walls.turn_to(&self.server, uniqueid);
        let wall = self.walls.current()?;
        let at = match &self.zone {
            Some(zone) => convert_in_zone(zone, local, born, starts, wall.latest),
            None => wall.convert_by_unique_id(local, born, starts, self.guess),
        }?;
        wall.latest = wall.latest.max(Some(at.floor_seconds().get()));
        Some(at)
    }
}

impl WallClock {
    fn convert_by_unique_id(
        &mut self,
        local: DateTime,
        born: Option<i64>,
        starts: bool,
        guess: bool,
    ) -> Option<EventTime> {
        let as_utc = TimeZone::UTC.to_timestamp(local).ok()?;
        let ahead = born
            .map(|born| as_utc.as_second() - born)
            .filter(|ahead| ahead.abs() <= FARTHEST_ZONE_SEC);
        if starts && let Some(ahead) = ahead {
            let quarters = (ahead + QUARTER_HOUR_SEC / 2).div_euclid(QUARTER_HOUR_SEC);
            let nearest = quarters * QUARTER_HOUR_SEC;
            if (ahead - nearest).abs() <= BIRTH_SEC {
                self.offset_sec = Some(nearest);
            }
        }
        // In a channel's later rows, `ahead` also contains the channel's age. Rounding down removes
        // an age below a quarter of an hour.
        let by_row =
            ahead.map(|ahead| (ahead + SLACK_SEC).div_euclid(QUARTER_HOUR_SEC) * QUARTER_HOUR_SEC);
        let guessed = if guess { Some(0) } else { None };
        let mut offset_sec = self.offset_sec.or(by_row).or(guessed)?;
        // With this offset, the row would be older than its channel. So the clock was set back by
        // an hour, as in autumn.
        let before_birth = ahead.map_or(0, |ahead| offset_sec - ahead);
        if before_birth > SLACK_SEC && before_birth <= HOUR_SEC + SLACK_SEC {
            offset_sec -= HOUR_SEC;
            self.offset_sec = Some(offset_sec);
        }
        let micros = as_utc.as_microsecond() - offset_sec * 1_000_000;
        Some(EventTime::from_micros(micros))
    }
}

/// Returns the one of two readings of a local time that is nearer to `born`, the epoch of the
/// channel's creation.
fn nearest(local: DateTime, other: Option<DateTime>, born: Option<i64>) -> DateTime {
    let (Some(other), Some(born)) = (other, born) else {
        return local;
    };
    if distance(other, born) < distance(local, born) {
        other
    } else {
        local
    }
}

fn distance(local: DateTime, born: i64) -> i64 {
    let at = TimeZone::UTC.to_timestamp(local);
    at.map_or(i64::MAX, |at| (at.as_second() - born).abs())
}

/// Converts a local time with the zone. In an hour that exists twice, the later time is used if the
/// earlier one would be before `born`, the channel's creation, or long before `latest`, the latest
/// row. If the row `starts` the channel, the time nearer to `born` is used.
fn convert_in_zone(
    zone: &TimeZone,
    local: DateTime,
    born: Option<i64>,
    starts: bool,
    latest: Option<i64>,
) -> Option<EventTime> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let at = match ambiguous.offset() {
        AmbiguousOffset::Fold { .. } => {
            let earlier = ambiguous.earlier().ok()?;
            let later = ambiguous.later().ok()?;
            let is_later = match born {
                Some(born) if starts => {
                    later.as_second().abs_diff(born) < earlier.as_second().abs_diff(born)
                }
                Some(born) if earlier.as_second() + SLACK_SEC < born => true,
                Some(_) | None => latest.is_some_and(|latest| {
                    let horizon = latest - SHUFFLED_SEC;
                    earlier.as_second() < horizon && later.as_second() >= horizon
                }),
            };
            if is_later { later } else { earlier }
        }
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => {
            ambiguous.compatible().ok()?
        }
    };
    Some(EventTime::from_micros(at.as_microsecond()))
}

#[cfg(test)]
mod tests;
