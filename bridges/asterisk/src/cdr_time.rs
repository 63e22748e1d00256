//! Turns the times of call detail records into absolute times.
//!
//! By default, records have local times in whole seconds without a zone. They are converted with
//! the configured zone. In an hour that exists twice, the epoch in the unique id of the record's
//! channel decides. Without a configured zone, this epoch gives the offset from UTC, because the
//! first record of a channel begins when the channel was created.

use crate::local_time::{self, WallClocks, Written};
use callbridge_call::{Cdr, EventTime, UniqueId};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The offset of every zone from UTC is a multiple of this, and at most [`FARTHEST_ZONE_SEC`].
const QUARTER_HOUR_SEC: i64 = 900;
const FARTHEST_ZONE_SEC: i64 = 15 * 3600;
/// A channel's first record begins within this many seconds of its unique id.
const SLACK_SEC: i64 = 5;
/// No PBX reports calls before 2000. An epoch of 1970 means that there is no time.
const EARLIEST_SEC: i64 = 946_684_800;

/// Converts the times of the records of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct CdrClock {
    zone: Option<TimeZone>,
    /// Each PBX's offset from UTC, learned from the first records of channels.
    walls: WallClocks<WallClock>,
    /// Unique id of the last record's channel. A further record of the same channel does not begin
    /// when the channel was created.
    last: String,
    /// The zone of the current record's times is not known.
    zoneless: bool,
}

/// The offset of one PBX's local time from UTC.
#[derive(Clone, Copy, Debug, Default)]
struct WallClock {
    offset_sec: Option<i64>,
    /// Another offset, seen in one record. It is used if a second record has it.
    other_sec: Option<i64>,
}

impl CdrClock {
    pub(crate) fn new(zone: Option<TimeZone>) -> Self {
        Self {
            zone,
            ..Self::default()
        }
    }

    /// Converts the start, answer, and end of `cdr` to absolute times. A record without an end ends
    /// after its duration. `server` is the server of the record, if one stream has several.
    pub(crate) fn place(&mut self, cdr: &mut Cdr<'_>, server: Option<&str>) {
        // A record without a unique id is from the same PBX as the record before it.
        if !cdr.uniqueid.is_empty() || self.walls.current().is_none() {
            let server = server.unwrap_or_default();
            self.walls.turn_to(server, &cdr.uniqueid);
        }
        let born = UniqueId::epoch_in(&cdr.uniqueid).filter(|epoch| *epoch >= EARLIEST_SEC);
        let first = cdr.uniqueid != self.last.as_str();
        self.last.clear();
        self.last.push_str(&cdr.uniqueid);
        self.zoneless = false;
        let start = match read_time(&cdr.start) {
            Some(Written::Absolute(at)) => Some((at.micros(), None)),
            Some(Written::Local(local, other)) => {
                let local = nearest(local, other, born.map(|born| born * 1_000_000));
                // Day and month can be in either order, and the order is not known.
                self.zoneless = born.is_none() && other.is_some_and(|other| other != local);
                self.start(local, born, first).map(|at| (at, Some(local)))
            }
            None => None,
        };
        let Some((start, local)) = start else {
            return;
        };
        // A longer duration is a negative number that was written to an unsigned column.
        let longest = i64::from(i32::MAX) * 1_000_000;
        let lasted = cdr
            .duration_micros
            .filter(|lasted| (0..=longest).contains(lasted));
        let over = lasted.map(|lasted| start.saturating_add(lasted));
        let written_end = self.later_time(&cdr.end, start, local, over);
        if let (Some(end), None) = (written_end, cdr.duration_micros)
            && end < start
        {
            cdr.duration_micros = Some(end - start);
        }
        let end = written_end.filter(|end| *end >= start).or(over);
        let billed_from = end
            .zip(cdr.billed_micros)
            .map(|(end, billed)| end.saturating_sub(billed));
        let answer = self.later_time(&cdr.answer, start, local, billed_from);
        cdr.zoneless = self.zoneless;
        cdr.started_at = Some(EventTime::from_micros(start));
        cdr.ended_at = end.map(EventTime::from_micros);
        cdr.answered_at = answer.map(EventTime::from_micros);
    }

    fn start(&mut self, local: DateTime, born: Option<i64>, first: bool) -> Option<i64> {
        if let Some(zone) = &self.zone {
            for at in moments(zone, local)? {
                if born.is_none_or(|born| at >= (born - SLACK_SEC) * 1_000_000) {
                    return Some(at);
                }
            }
            // The record seems to begin before its channel was created, so the PBX writes times of
            // another zone than the configured one.
            return Some(as_utc(local)? - offset(local, born?)? * 1_000_000);
        }
        if first && let Some(offset) = born.and_then(|born| offset(local, born)) {
            self.learn(offset);
        }
        let learned = self.walls.current().and_then(|wall| wall.offset_sec);
        let offset = learned.or_else(|| offset_hint(local, born?));
        self.zoneless |= offset.is_none();
        Some(as_utc(local)? - offset.unwrap_or(0) * 1_000_000)
    }

    /// Learns the offset of the current PBX, in seconds. A change by half an hour or an hour is
    /// used at once, because clocks are changed by that much. Any other offset is used if a second
    /// record has it, because a later record of a channel shows a wrong offset.
    fn learn(&mut self, offset: i64) {
        let Some(wall) = self.walls.current() else {
            return;
        };
        let is_near = wall
            .offset_sec
            .is_none_or(|known| [0, 1800, 3600].contains(&(known - offset).abs()));
        if is_near || wall.other_sec == Some(offset) {
            wall.offset_sec = Some(offset);
            wall.other_sec = None;
        } else {
            wall.other_sec = Some(offset);
        }
    }

    /// Reads `text`, the end or the answer of a record that began at `start`, in microseconds of
    /// UTC. `began` is the start in local time. `wanted` is the time that follows from the
    /// durations.
    fn later_time(
        &self,
        text: &str,
        start: i64,
        began: Option<DateTime>,
        wanted: Option<i64>,
    ) -> Option<i64> {
        match read_time(text)? {
            Written::Absolute(at) => Some(at.micros()),
            Written::Local(local, other) => {
                let local = nearest(local, other, began.and_then(as_utc).or(Some(start)));
                self.convert_later(local, start, began, wanted)
            }
        }
    }

    /// Converts a later local time of a record to the possible time nearest to `wanted`. There can
    /// be several, because the clocks can have been changed during the call.
    fn convert_later(
        &self,
        local: DateTime,
        start: i64,
        began: Option<DateTime>,
        wanted: Option<i64>,
    ) -> Option<i64> {
        if let Some(zone) = &self.zone {
            let both = moments(zone, local)?;
            let wanted = wanted.unwrap_or(start);
            return both.into_iter().min_by_key(|at| (at - wanted).abs());
        }
        let since = as_utc(local)? - as_utc(began?)?;
        let plain = start + since;
        let off = wanted.map_or(0, |wanted| wanted - plain);
        let changes = [-3600, -1800, 1800, 3600].map(|sec| sec * 1_000_000);
        let nearest = changes.into_iter().min_by_key(|step| (off - step).abs());
        let step = nearest.filter(|step| (off - step).abs() <= 2_000_000);
        Some(plain + step.unwrap_or(0))
    }
}

/// Returns the seconds by which the local time of a channel's first record is ahead of UTC, in
/// whole quarter hours. `born` is the epoch of the channel's creation. `None` if the record does
/// not begin with its channel.
fn offset(local: DateTime, born: i64) -> Option<i64> {
    let ahead = as_utc(local)?.div_euclid(1_000_000) - born;
    let nearest = (ahead + QUARTER_HOUR_SEC / 2).div_euclid(QUARTER_HOUR_SEC) * QUARTER_HOUR_SEC;
    if nearest.abs() <= FARTHEST_ZONE_SEC && (ahead - nearest).abs() <= SLACK_SEC {
        Some(nearest)
    } else {
        None
    }
}

/// Returns the probable offset from UTC, in seconds, from any record of a channel created at
/// `born`. The result is too large if the record began a quarter of an hour or more after its
/// channel.
fn offset_hint(local: DateTime, born: i64) -> Option<i64> {
    let ahead = as_utc(local)?.div_euclid(1_000_000) - born;
    if ahead.abs() > FARTHEST_ZONE_SEC {
        return None;
    }
    Some((ahead + SLACK_SEC).div_euclid(QUARTER_HOUR_SEC) * QUARTER_HOUR_SEC)
}

fn as_utc(local: DateTime) -> Option<i64> {
    Some(TimeZone::UTC.to_timestamp(local).ok()?.as_microsecond())
}

/// Returns both times for a local time, the earlier one first. They differ only in an hour that
/// exists twice, or that the clocks skip.
fn moments(zone: &TimeZone, local: DateTime) -> Option<[i64; 2]> {
    let named = zone.to_ambiguous_timestamp(local);
    let earlier = named.earlier().ok()?.as_microsecond();
    let later = named.later().ok()?.as_microsecond();
    Some([earlier.min(later), earlier.max(later)])
}

/// Returns `true` if a text can be a record's time: in 2000 or later, with a zone or without.
pub(crate) fn is_time(text: &str) -> bool {
    read_time(text).is_some()
}

/// Returns the one of two readings of a local time that is nearer to `moment`, in microseconds of
/// UTC. The zone is ignored, because it changes a time by less than a day.
fn nearest(local: DateTime, other: Option<DateTime>, moment: Option<i64>) -> DateTime {
    let (Some(other), Some(moment)) = (other, moment) else {
        return local;
    };
    if distance(other, moment) < distance(local, moment) {
        other
    } else {
        local
    }
}

fn distance(local: DateTime, moment: i64) -> i64 {
    as_utc(local).map_or(i64::MAX, |at| (at - moment).abs())
}

/// Reads a time in any form that a PBX, a database, or Excel writes. `None` if the text is not a
/// time, or is zero or 1970, which mean that there is no time.
fn read_time(text: &str) -> Option<Written> {
    let text = text.trim();
    let written = local_time::read(text)?;
    let is_plain = match written {
        Written::Absolute(at) => {
            at.micros() >= EARLIEST_SEC * 1_000_000 && at.micros() < 100_000_000_000_000_000
        }
        Written::Local(local, _) => text.len() > 10 && local.year() >= 2000,
    };
    if is_plain { Some(written) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the start and end of a record, in seconds since 1970, after `clock` has placed the
    /// record in a time zone.
    fn place_record(
        clock: &mut CdrClock,
        id: &'static str,
        start: &'static str,
        end: &'static str,
        duration: i64,
    ) -> (i64, i64) {
        let mut cdr = Cdr {
            uniqueid: id.into(),
            start: start.into(),
            end: end.into(),
            duration_micros: Some(duration * 1_000_000),
            ..Cdr::default()
        };
        clock.place(&mut cdr, None);
        (
            seconds(cdr.started_at).unwrap_or(0),
            seconds(cdr.ended_at).unwrap_or(0),
        )
    }

    fn seconds(at: Option<EventTime>) -> Option<i64> {
        at.map(|at| at.floor_seconds().get())
    }

    #[test]
    fn unique_id_epoch_determines_the_utc_offset() {
        let mut clock = CdrClock::default();
        // Created at 2018-09-07 04:05:01 UTC.
        let id = "1536293101.12458";
        let first = place_record(
            &mut clock,
            id,
            "2018-09-07 11:05:01",
            "2018-09-07 11:05:20",
            19,
        );
        assert_eq!(first, (1_536_293_101, 1_536_293_120));
        let second = place_record(
            &mut clock,
            id,
            "2018-09-07 11:05:20",
            "2018-09-07 11:08:24",
            184,
        );
        assert_eq!(second, (1_536_293_120, 1_536_293_304));
        // For a record without an id, the learned offset is used.
        let third = place_record(
            &mut clock,
            "",
            "2018-09-07 12:00:00",
            "2018-09-07 12:00:05",
            5,
        );
        assert_eq!(third, (1_536_296_400, 1_536_296_405));
    }

    #[test]
    fn repeated_hour_is_resolved_by_unique_id_and_duration() {
        let zone = TimeZone::get("Europe/Berlin").expect("a zone");
        let mut clock = CdrClock::new(Some(zone));
        // 2026-10-25 02:30 in Berlin is 00:30 UTC and again 01:30 UTC.
        for (id, epoch) in [
            ("1792888200.1", 1_792_888_200),
            ("1792891800.1", 1_792_891_800),
        ] {
            let short = place_record(
                &mut clock,
                id,
                "2026-10-25 02:30:00",
                "2026-10-25 02:31:00",
                60,
            );
            assert_eq!(short, (epoch, epoch + 60), "{id}");
        }
        let over = place_record(
            &mut clock,
            "1792889700.2",
            "2026-10-25 02:55:00",
            "2026-10-25 02:05:00",
            600,
        );
        assert_eq!(over, (1_792_889_700, 1_792_890_300));
    }

    #[test]
    fn pbxs_on_one_stream_have_separate_zones() {
        let mut clock = CdrClock::default();
        let first = 1_536_293_101;
        for (server, id, start, epoch) in [
            ("a", "1536293101.1", "2018-09-07 11:05:01", first),
            ("b", "b-1536293101.1", "2018-09-07 06:05:01", first),
            // Later records of their channels.
            ("a", "1536293101.1", "2018-09-07 11:21:41", first + 1_000),
            ("b", "b-1536293101.1", "2018-09-07 06:21:41", first + 1_000),
            // A quarter of an hour after the channel was created is not another zone.
            ("a", "1536293101.1", "2018-09-07 11:20:01", first + 900),
        ] {
            let mut cdr = Cdr {
                uniqueid: id.into(),
                start: start.into(),
                ..Cdr::default()
            };
            clock.place(&mut cdr, Some(server));
            assert_eq!(seconds(cdr.started_at), Some(epoch), "{start}");
        }
    }

    #[test]
    fn clock_change_without_zone_is_detected_by_duration() {
        let mut clock = CdrClock::default();
        let id = "1792889700.2";
        let over = place_record(
            &mut clock,
            id,
            "2026-10-25 02:55:00",
            "2026-10-25 02:05:00",
            600,
        );
        assert_eq!(over, (1_792_889_700, 1_792_890_300));
    }

    #[test]
    fn record_before_channel_creation_ignores_configured_zone() {
        let zone = TimeZone::get("Asia/Tashkent").expect("a zone");
        let mut clock = CdrClock::new(Some(zone));
        // usegmtime=yes: the PBX writes UTC.
        let utc = place_record(
            &mut clock,
            "1536293101.1",
            "2018-09-07 04:05:01",
            "2018-09-07 04:05:20",
            19,
        );
        assert_eq!(utc, (1_536_293_101, 1_536_293_120));
    }

    #[test]
    fn local_time_of_unknown_zone_is_marked_zoneless() {
        let mut clock = CdrClock::default();
        let mut cdr = Cdr {
            start: "2018-09-07 11:05:01".into(),
            ..Cdr::default()
        };
        clock.place(&mut cdr, None);
        assert!(cdr.zoneless);
        assert_eq!(cdr.started_at, Some(EventTime::from_seconds(1_536_318_301)));
    }

    #[test]
    fn epochs_and_offsets_are_absolute_and_1970_means_no_time() {
        assert!(matches!(
            read_time("2026-11-20T10:08:37+05:00"),
            Some(Written::Absolute(_))
        ));
        assert!(matches!(
            read_time("1536293101"),
            Some(Written::Absolute(at)) if at == EventTime::from_seconds(1_536_293_101)
        ));
        for none in [
            "",
            "0",
            "1970-01-01T05:00:00+0500",
            "1969-12-31T19:00:00-0500",
            "1970-01-01 05:00:00",
            "0000-00-00 00:00:00",
            "2026-11-20",
            "soon",
        ] {
            assert!(!is_time(none), "{none}");
        }
    }

    #[test]
    fn excel_times_are_read_in_either_order_of_day_and_month() {
        let zone = TimeZone::get("Asia/Tashkent").expect("a zone");
        let mut clock = CdrClock::new(Some(zone));
        // Created at 2026-03-02 15:00:00 in Tashkent.
        let id = "1772445600.1";
        let expected = (1_772_445_600, 1_772_445_630);
        for (start, end) in [
            ("02.03.2026 15:00:00", "02.03.2026 15:00:30"),
            ("02/03/2026 15:00:00", "02/03/2026 15:00:30"),
            ("03/02/2026 15:00:00", "03/02/2026 15:00:30"),
            ("2026/03/02 15:00:00", "2026/03/02 15:00:30"),
        ] {
            assert_eq!(
                place_record(&mut clock, id, start, end, 30),
                expected,
                "{start}"
            );
        }
        let mut cdr = Cdr {
            start: "02/03/2026 15:00:00".into(),
            ..Cdr::default()
        };
        clock.place(&mut cdr, None);
        assert!(
            cdr.zoneless,
            "without a unique id, both orders are possible"
        );
    }
}
