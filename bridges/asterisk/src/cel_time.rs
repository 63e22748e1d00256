//! The times of CEL rows made absolute.
//!
//! `cel.conf` writes a row's time as seconds since the epoch by default, and by `dateformat` as
//! anything, most often local time without a zone. Such a time is made absolute by the zone that
//! was given, else by the distance from UTC that the rows themselves show: the unique id of a
//! channel that starts holds the epoch of that same moment.

use crate::text::epoch;
use callbridge_call::{EventTime, UniqueId};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// Zones lie whole quarter hours from UTC.
const QUARTER_HOUR_SEC: i64 = 900;
/// No zone lies farther from UTC.
const FARTHEST_ZONE_SEC: i64 = 15 * 3600;
/// A row may be written a moment before the second of its channel's unique id is over.
const SLACK_SEC: i64 = 2;

/// Knows how far the PBX's local time is from UTC, or learns it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CelClock {
    zone: Option<TimeZone>,
    /// Learned from the last row of a channel that started.
    offset_sec: Option<i64>,
}

impl CelClock {
    pub(crate) fn new(zone: Option<TimeZone>) -> Self {
        Self {
            zone,
            offset_sec: None,
        }
    }

    /// The moment that `text` names in the row of the channel `uniqueid`; `starts` for the row
    /// that was written when the channel was made. `None` where it cannot be known.
    pub(crate) fn at(&mut self, text: &str, uniqueid: &str, starts: bool) -> Option<EventTime> {
        if text.is_empty() {
            return None;
        }
        if let Some(at) = epoch(text.as_bytes()) {
            return Some(at);
        }
        if let Ok(at) = text.parse::<jiff::Timestamp>() {
            return Some(EventTime::from_micros(at.as_microsecond()));
        }
        let local: DateTime = text.parse().ok()?;
        let born = UniqueId::new(uniqueid).map(|id| id.age().0);
        let born = born
            .and_then(|epoch| i64::try_from(epoch).ok())
            .filter(|&e| e < i64::MAX);
        match &self.zone {
            Some(zone) => in_zone(zone, local, born),
            None => self.by_unique_id(local, born, starts),
        }
    }

    fn by_unique_id(
        &mut self,
        local: DateTime,
        born: Option<i64>,
        starts: bool,
    ) -> Option<EventTime> {
        let as_utc = TimeZone::UTC.to_timestamp(local).ok()?;
        let ahead = born
            .map(|born| as_utc.as_second() - born)
            .filter(|ahead| ahead.abs() <= FARTHEST_ZONE_SEC);
        if let (true, Some(ahead)) = (starts, ahead) {
            let nearest = (ahead + QUARTER_HOUR_SEC / 2).div_euclid(QUARTER_HOUR_SEC);
            self.offset_sec = Some(nearest * QUARTER_HOUR_SEC);
        }
        // A channel's later rows are ahead by its age as well, a quarter of an hour at most.
        let floor =
            |ahead: i64| (ahead + SLACK_SEC).div_euclid(QUARTER_HOUR_SEC) * QUARTER_HOUR_SEC;
        let offset_sec = self.offset_sec.or_else(|| ahead.map(floor))?;
        Some(EventTime::from_micros(
            as_utc.as_microsecond() - offset_sec * 1_000_000,
        ))
    }
}

/// An hour that exists twice is settled by the unique id's epoch: the first of the two moments
/// that is not before the channel was.
fn in_zone(zone: &TimeZone, local: DateTime, born: Option<i64>) -> Option<EventTime> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let at = match (ambiguous.offset(), born) {
        (AmbiguousOffset::Fold { .. }, Some(born)) => {
            let earlier = ambiguous.earlier().ok()?;
            if earlier.as_second() + SLACK_SEC >= born {
                earlier
            } else {
                ambiguous.later().ok()?
            }
        }
        _ => ambiguous.compatible().ok()?,
    };
    Some(EventTime::from_micros(at.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(at: Option<EventTime>) -> Option<i64> {
        at.map(|at| at.floor_seconds().get())
    }

    #[test]
    fn absolute_forms_are_taken_as_they_are() {
        let mut clock = CelClock::default();
        let mut micros = |text: &str| clock.at(text, "", false).map(EventTime::micros);
        assert_eq!(micros("1524597350.146287"), Some(1_524_597_350_146_287));
        assert_eq!(
            micros("2018-04-24T19:15:50.146Z"),
            Some(1_524_597_350_146_000)
        );
        assert_eq!(
            micros("2018-04-25T00:15:50.146+05:00"),
            Some(1_524_597_350_146_000)
        );
        assert_eq!(
            micros("2018-04-25T00:15:50.146+0500"),
            Some(1_524_597_350_146_000)
        );
        assert_eq!(micros(""), None);
        assert_eq!(micros("yesterday"), None);
    }

    #[test]
    fn the_offset_is_learned_from_a_channel_that_starts() {
        let mut clock = CelClock::default();
        let born = clock.at("2026-11-20 10:08:38", "pbx1-1795151317.146", true);
        assert_eq!(seconds(born), Some(1_795_151_318));
        // Half an hour into the call the offset still holds.
        let later = clock.at("2026-11-20 10:38:37", "pbx1-1795151317.146", false);
        assert_eq!(seconds(later), Some(1_795_153_117));
    }

    #[test]
    fn a_row_from_the_middle_gives_a_hint_by_its_own_id() {
        let mut clock = CelClock::default();
        let middle = clock.at("2026-11-20 10:18:37", "1795151317.146", false);
        assert_eq!(seconds(middle), Some(1_795_151_917));
        assert_eq!(clock.at("2026-11-20 10:18:37", "torn", false), None);
    }

    #[test]
    fn an_hour_that_exists_twice_is_settled_by_the_unique_id() {
        let zone = TimeZone::get("Europe/Berlin").expect("a zone");
        let mut clock = CelClock::new(Some(zone));
        // 2026-10-25 02:30 in Berlin is 00:30 UTC and again 01:30 UTC.
        let (first, second) = (1_792_888_200, 1_792_891_800);
        let mut at = |epoch: i64| {
            seconds(clock.at("2026-10-25 02:30:00", &format!("{}.1", epoch - 5), false))
        };
        assert_eq!(at(first), Some(first));
        assert_eq!(at(second), Some(second));
    }
}
