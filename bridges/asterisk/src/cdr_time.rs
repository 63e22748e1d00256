//! Converts the times of call detail records to absolute times.
//!
//! By default, records have local times in whole seconds without a zone. A spreadsheet can cut the
//! seconds off, and a database can lose the start altogether. Both are then taken from the unique
//! ID of the record's channel, if the record is the channel's first one.

use crate::local_time::{self, LocalTime, Written, as_utc};
use crate::wall_clock::{Basis, Converted, RowOrder, Stamp, WallClocks, WrongZone, birth_sec};
use callbridge_call::{Cdr, EventTime};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::VecDeque;

/// No PBX reports calls from before 2000. An epoch of 1970 means that there's no time.
const EARLIEST_SEC: i64 = 946_684_800;
/// Maximum number of channels whose unique IDs are remembered, so that a later record isn't assumed
/// to start when its channel was created.
const CHANNELS_MAX: usize = 256;

/// Converts the times of one source's records.
#[derive(Clone, Debug, Default)]
pub(crate) struct CdrClock {
    walls: WallClocks,
    /// Unique IDs of the last records' channels.
    channels: VecDeque<String>,
}

/// The start of a record.
#[derive(Clone, Copy, Debug)]
struct Start {
    /// Microseconds since the epoch, in UTC.
    micros: i64,
    /// The local time, if that's how it was written.
    local: Option<DateTime>,
    basis: Basis,
}

impl CdrClock {
    pub(crate) fn new(zone: Option<TimeZone>) -> Self {
        Self {
            walls: WallClocks::new(zone),
            ..Self::default()
        }
    }

    /// Converts the start, answer, and end of `cdr` to absolute times. A record without an end ends
    /// after its duration. `server` is the record's server, if a stream has several.
    pub(crate) fn place(&mut self, cdr: &mut Cdr<'_>, server: Option<&str>) {
        self.walls
            .turn_to(server.unwrap_or_default(), &cdr.uniqueid);
        let channel = ChannelRow {
            born: birth_sec(&cdr.uniqueid),
            row: self.row_order(&cdr.uniqueid),
        };
        // A longer duration is a negative number that was written to an unsigned column.
        let longest = i64::from(i32::MAX) * 1_000_000;
        let lasted = cdr
            .duration_micros
            .filter(|lasted| (0..=longest).contains(lasted));
        let Some(start) = self.start(cdr, lasted, channel) else {
            return;
        };
        let over = lasted.map(|lasted| start.micros.saturating_add(lasted));
        let written_end = self.later_time(&cdr.end, start, over);
        if let (Some(end), None) = (written_end, cdr.duration_micros)
            && end < start.micros
        {
            cdr.duration_micros = Some(end - start.micros);
        }
        let end = written_end.filter(|end| *end >= start.micros).or(over);
        let billed_from = end
            .zip(cdr.billed_micros)
            .map(|(end, billed)| end.saturating_sub(billed));
        let answer = self.later_time(&cdr.answer, start, billed_from);
        cdr.zoneless = matches!(start.basis, Basis::OneId | Basis::Unknown);
        cdr.started_at = Some(EventTime::from_micros(start.micros));
        cdr.ended_at = end.map(EventTime::from_micros);
        cdr.answered_at = answer.map(EventTime::from_micros);
    }

    fn row_order(&mut self, uniqueid: &str) -> RowOrder {
        if self.channels.iter().any(|known| known == uniqueid) {
            return RowOrder::Later;
        }
        self.channels.truncate(CHANNELS_MAX - 1);
        self.channels.push_front(uniqueid.to_owned());
        RowOrder::FirstSeen
    }

    /// Returns the start of a record, calculating it from the end and the duration, or from the
    /// channel's creation, if it's missing.
    fn start(&mut self, cdr: &Cdr<'_>, lasted: Option<i64>, channel: ChannelRow) -> Option<Start> {
        let before = SignedDuration::from_micros(lasted.unwrap_or_default());
        let written = match (read_time(&cdr.start), read_time(&cdr.end), lasted) {
            (Some(start), _, _) => start,
            (None, Some(Written::Absolute(end)), Some(lasted)) => {
                Written::Absolute(EventTime::from_micros(end.micros() - lasted))
            }
            (None, Some(Written::Local(end)), Some(_)) if end.has_seconds => {
                Written::Local(LocalTime {
                    at: end.nearest_to(channel.born).checked_sub(before).ok()?,
                    other: None,
                    has_seconds: true,
                })
            }
            (None, _, _) => return channel.start(),
        };
        match written {
            Written::Absolute(at) => Some(Start {
                micros: at.micros(),
                local: None,
                basis: Basis::Written,
            }),
            Written::Local(local) => self.local_start(local, channel),
        }
    }

    fn local_start(&mut self, written: LocalTime, channel: ChannelRow) -> Option<Start> {
        let ChannelRow { born, row } = channel;
        let mut local = written.nearest_to(born);
        if let (false, RowOrder::FirstSeen, Some(born)) = (written.has_seconds, row, born) {
            local = with_second(local, born);
        }
        let Converted {
            mut micros,
            mut basis,
        } = self.walls.convert(Stamp { local, born, row })?;
        match born {
            Some(born) if !written.has_seconds => micros = micros.max(born * 1_000_000),
            // The order of day and month, or the second, isn't known.
            None if written.is_ambiguous() || !written.has_seconds => basis = Basis::Unknown,
            Some(_) | None => {}
        }
        Some(Start {
            micros,
            local: Some(local),
            basis,
        })
    }

    /// Parses a record's end or answer time. `wanted` is the value expected from the durations, in
    /// UTC microseconds.
    fn later_time(&self, text: &str, start: Start, wanted: Option<i64>) -> Option<i64> {
        let written = match read_time(text)? {
            Written::Absolute(at) => return Some(at.micros()),
            Written::Local(local) if !local.has_seconds && wanted.is_some() => return wanted,
            Written::Local(local) => local,
        };
        let began = start.local.and_then(as_utc).unwrap_or(start.micros);
        let local = written.nearest_to(Some(began / 1_000_000));
        match start.basis {
            Basis::Zone | Basis::Written => self
                .walls
                .nearest_in_zone(local, wanted.unwrap_or(start.micros)),
            Basis::Ids | Basis::OneId | Basis::Unknown => {
                let plain = start.micros + as_utc(local)? - as_utc(start.local?)?;
                Some(through_clock_change(plain, wanted))
            }
        }
    }

    /// Returns the offset found in the unique IDs if it contradicts the configured time zone.
    pub(crate) fn wrong_zone(&self) -> Option<WrongZone> {
        self.walls.wrong_zone()
    }
}

/// What's known about a record's channel.
#[derive(Clone, Copy, Debug)]
struct ChannelRow {
    /// The second in the channel's unique ID.
    born: Option<i64>,
    row: RowOrder,
}

impl ChannelRow {
    /// Uses the channel's creation time as the start of a record. Unless it's the channel's first
    /// record, that's too early, so the basis is unknown.
    fn start(self) -> Option<Start> {
        Some(Start {
            micros: self.born? * 1_000_000,
            local: None,
            basis: match self.row {
                RowOrder::First | RowOrder::FirstSeen => Basis::Ids,
                RowOrder::Later => Basis::Unknown,
            },
        })
    }
}

/// Fills in the missing seconds from `born`, which works in every time zone because offsets are
/// whole minutes.
fn with_second(local: DateTime, born: i64) -> DateTime {
    let second = i8::try_from(born.rem_euclid(60)).unwrap_or_default();
    local.with().second(second).build().unwrap_or(local)
}

/// Shifts a time by an hour or half an hour if that makes it match `wanted`, since the clocks may
/// have changed during the call.
fn through_clock_change(plain: i64, wanted: Option<i64>) -> i64 {
    let off = wanted.map_or(0, |wanted| wanted - plain);
    let changes = [-3600, -1800, 1800, 3600].map(|sec| sec * 1_000_000);
    let nearest = changes.into_iter().min_by_key(|step| (off - step).abs());
    let step = nearest.filter(|step| (off - step).abs() <= 2_000_000);
    plain + step.unwrap_or(0)
}
/// Returns `true` if a text can be a record's time, i.e., in 2000 or later, with or without a time
/// zone.
pub(crate) fn is_time(text: &str) -> bool {
    read_time(text).is_some()
}

/// Parses a time in any form written by a PBX, a database, or Excel. Returns `None` if the text
/// isn't a time, or if it's zero or 1970, which mean that there's no time.
fn read_time(text: &str) -> Option<Written> {
    let text = text.trim();
    let written = local_time::read(text)?;
    let is_plain = match written {
        Written::Absolute(at) => {
            at.micros() >= EARLIEST_SEC * 1_000_000 && at.micros() < 100_000_000_000_000_000
        }
        Written::Local(local) => text.len() > 10 && local.at.year() >= 2000,
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
        // For a record without an ID, the learned offset is used.
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
            // A quarter of an hour after the channel's creation doesn't mean a different time zone.
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
        // With usegmtime=yes, the PBX writes UTC.
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
