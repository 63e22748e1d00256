//! Converts PBXs' local times to absolute times, for both CDRs and CEL.
//!
//! The unique ID that Asterisk gives a channel contains the second of its creation. Since a
//! channel's first row is written for that second, it reveals the offset of the PBX's local time
//! from UTC. If no time zone is configured, this offset is used. Otherwise, the two are compared:
//! if the first rows of several channels have a different offset than the configured time zone, the
//! time zone is wrong, and the IDs are used instead. A stream may come from several PBXs, each with
//! its own local time.

use crate::local_time::as_utc;
use callbridge_call::UniqueId;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::fmt;

/// Every time zone's UTC offset is a multiple of this and no larger than [`FARTHEST_ZONE_SEC`].
const QUARTER_HOUR_SEC: i64 = 900;
const FARTHEST_ZONE_SEC: i64 = 15 * 3600;
/// How far clocks are moved for daylight saving time almost everywhere.
const HOUR_SEC: i64 = 3600;
/// A channel's first row is written within this many seconds of the second in its unique ID.
pub(crate) const SLACK_SEC: i64 = 5;
/// How far apart two channels must have been created for their rows to count as independent
/// evidence, since channels of the same call may have later rows at the same time.
const APART_SEC: i64 = 2 * SLACK_SEC;
/// By how much the rows of one PBX may be out of order.
const SHUFFLED_SEC: i64 = 120;
/// Maximum number of PBXs per stream. Any further PBX replaces the last one in the list.
const PBXES_MAX: usize = 64;

/// No PBX reports calls from before 2000 or after the year 5000.
const EPOCHS_SEC: std::ops::Range<i64> = 946_684_800..100_000_000_000;

/// Returns the second in which Asterisk created this channel, or `None` if the ID doesn't contain
/// it.
pub(crate) fn birth_sec(uniqueid: &str) -> Option<i64> {
    UniqueId::epoch_in(uniqueid).filter(|epoch| EPOCHS_SEC.contains(epoch))
}

/// A row's local time, along with what the row reveals about its channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub local: DateTime,
    /// The second in the channel's unique ID.
    pub born: Option<i64>,
    pub row: RowOrder,
}

/// Whether a row is its channel's first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// The row reports the channel's creation.
    First,
    /// No earlier row of the channel is known.
    FirstSeen,
    Later,
}

/// An absolute time, along with how it was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Converted {
    /// Microseconds since the epoch, in UTC.
    pub micros: i64,
    pub basis: Basis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The time includes its own offset or is an epoch.
    Written,
    /// The configured time zone.
    Zone,
    /// The offset found in unique IDs.
    Ids,
    /// An offset that contradicts the configured time zone but comes from a single channel's ID.
    /// The difference could also mean that the channel started a multiple of 15 minutes before this
    /// row was written.
    OneId,
    /// The offset couldn't be determined, so the local time was taken as UTC.
    Unknown,
}

/// A configured time zone contradicted by the unique IDs of several channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongZone {
    /// The PBX's UTC offset in seconds, according to the IDs.
    pub offset_sec: i64,
}

impl WrongZone {
    /// Returns what to do about it.
    pub const fn fix(self) -> &'static str {
        match self.offset_sec {
            0 => "set --pbx-timezone=UTC, since Asterisk writes CDRs in UTC if usegmtime=yes",
            _ => "set --pbx-timezone to the time zone that the PBX uses in its records",
        }
    }
}

impl fmt::Display for WrongZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.offset_sec < 0 { '-' } else { '+' };
        let minutes = self.offset_sec.abs() / 60;
        write!(
            f,
            "--pbx-timezone contradicts the calls' unique IDs, according to which times are in \
             UTC{sign}{:02}:{:02}, so callbridge goes by the IDs",
            minutes / 60,
            minutes % 60
        )
    }
}

/// The clocks of the PBXs on one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct WallClocks {
    zone: Option<TimeZone>,
    /// Each PBX's clock, keyed by the server and the system name prefix of its unique IDs.
    known: Vec<([String; 2], WallClock)>,
    at_hand: usize,
}

/// A PBX's local time.
#[derive(Clone, Copy, Debug, Default)]
struct WallClock {
    zone: ZoneTrust,
    /// The UTC offset in seconds, as learned from unique IDs.
    offset_sec: Option<i64>,
    /// An offset other than the one in use, which takes effect once a second channel confirms it.
    other: Option<Sighting>,
    /// The latest time of a row so far, in epoch seconds.
    latest: Option<i64>,
}

/// An offset found in a channel's first row.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    offset_sec: i64,
    /// The second in the channel's unique ID.
    born: i64,
}

/// Whether the configured time zone and the unique IDs agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ZoneTrust {
    #[default]
    Untested,
    Right,
    /// The only channel so far contradicts the time zone.
    Suspect,
    Wrong,
}

impl WallClocks {
    pub(crate) fn new(zone: Option<TimeZone>) -> Self {
        Self {
            zone,
            ..Self::default()
        }
    }

    /// Selects the PBX by its server and the system name in `uniqueid`. A row without a unique ID
    /// is assumed to come from the same PBX as the previous row.
    pub(crate) fn turn_to(&mut self, server: &str, uniqueid: &str) {
        if uniqueid.is_empty() && !self.known.is_empty() {
            return;
        }
        let (system, _) = uniqueid.rsplit_once('-').unwrap_or_default();
        let names = [server, system];
        let known = self.known.iter().position(|(known, _)| *known == names);
        self.at_hand = known.unwrap_or_else(|| {
            self.known.truncate(PBXES_MAX - 1);
            let clock = WallClock::default();
            self.known.push((names.map(str::to_owned), clock));
            self.known.len() - 1
        });
    }

    /// Converts a row's local time, returning `None` if it's out of range.
    pub(crate) fn convert(&mut self, stamp: Stamp) -> Option<Converted> {
        let (_, wall) = self.known.get_mut(self.at_hand)?;
        let Some(zone) = &self.zone else {
            if let Some(sighting) = stamp.sighting() {
                wall.learn(sighting, stamp.row == RowOrder::First);
            }
            return wall.convert_by_ids(stamp);
        };
        let micros = in_zone(zone, stamp, wall.latest)?;
        // A row can't be much older than its channel, unless the PBX's clock was set back.
        let earliest = |born: i64| born - QUARTER_HOUR_SEC + SLACK_SEC;
        let is_impossible = (stamp.born).is_some_and(|born| micros < earliest(born) * 1_000_000);
        if let Some(sighting) = stamp.sighting() {
            let agrees = sighting.born.abs_diff(micros / 1_000_000) <= SLACK_SEC.unsigned_abs();
            wall.compare(sighting, agrees);
        }
        let is_untested = wall.zone == ZoneTrust::Untested && !is_impossible;
        if is_untested || wall.zone == ZoneTrust::Right {
            let basis = Basis::Zone;
            return Some(Converted { micros, basis });
        }
        let converted = wall.convert_by_ids(stamp)?;
        let is_certain = is_impossible || stamp.row == RowOrder::First;
        let basis = if wall.zone == ZoneTrust::Suspect && !is_certain {
            Basis::OneId
        } else {
            converted.basis
        };
        Some(Converted { basis, ..converted })
    }

    /// Converts a local time using the time zone, choosing the result closest to `wanted` if there
    /// are two. Returns `None` if no time zone is configured.
    pub(crate) fn nearest_in_zone(&self, local: DateTime, wanted: i64) -> Option<i64> {
        let both = moments(self.zone.as_ref()?, local)?;
        both.into_iter().min_by_key(|at| (at - wanted).abs())
    }

    /// Records a row's time, provided that rows are written in chronological order.
    pub(crate) fn note_time(&mut self, at_sec: i64) {
        if let Some((_, wall)) = self.known.get_mut(self.at_hand) {
            wall.latest = wall.latest.max(Some(at_sec));
        }
    }

    /// Returns the offset found in the unique IDs if it contradicts the configured time zone.
    pub(crate) fn wrong_zone(&self) -> Option<WrongZone> {
        let mut walls = self.known.iter().map(|(_, wall)| wall);
        let wrong = walls.find(|wall| wall.zone == ZoneTrust::Wrong)?;
        Some(WrongZone {
            offset_sec: wrong.offset_sec?,
        })
    }
}

impl Stamp {
    /// Returns the UTC offset implied by this row, or `None` if the row doesn't start with its
    /// channel.
    fn sighting(self) -> Option<Sighting> {
        if self.row == RowOrder::Later {
            return None;
        }
        let born = self.born?;
        let ahead = self.ahead()?;
        let quarters = (ahead + QUARTER_HOUR_SEC / 2).div_euclid(QUARTER_HOUR_SEC);
        let offset_sec = quarters * QUARTER_HOUR_SEC;
        let is_offset = offset_sec.abs() <= FARTHEST_ZONE_SEC;
        if is_offset && (ahead - offset_sec).abs() <= SLACK_SEC {
            Some(Sighting { offset_sec, born })
        } else {
            None
        }
    }

    /// Returns how many seconds the local time is ahead of the unique ID.
    fn ahead(self) -> Option<i64> {
        Some(as_utc(self.local)?.div_euclid(1_000_000) - self.born?)
    }
}

impl WallClock {
    /// Learns an offset from a channel's first row.
    ///
    /// A change of half an hour or an hour takes effect immediately, since that's how far clocks
    /// are moved for daylight saving time. Any other offset is used only if the row `is_certain` to
    /// be the first or if a second channel confirms it.
    fn learn(&mut self, sighting: Sighting, is_certain: bool) {
        let offset_sec = sighting.offset_sec;
        let is_near = self
            .offset_sec
            .is_none_or(|known| [0, 1800, HOUR_SEC].contains(&(known - offset_sec).abs()));
        if is_certain || is_near || self.is_confirmed(sighting) {
            self.offset_sec = Some(offset_sec);
            self.other = None;
        } else {
            self.remember(sighting);
        }
    }

    /// Compares the offset in a channel's first row with the time zone.
    fn compare(&mut self, sighting: Sighting, agrees: bool) {
        match self.zone {
            ZoneTrust::Untested | ZoneTrust::Suspect | ZoneTrust::Right if agrees => {
                *self = Self {
                    zone: ZoneTrust::Right,
                    latest: self.latest,
                    ..Self::default()
                };
            }
            ZoneTrust::Wrong if !agrees => self.learn(sighting, false),
            _ if self.is_confirmed(sighting) => {
                self.zone = if agrees {
                    ZoneTrust::Right
                } else {
                    ZoneTrust::Wrong
                };
                self.offset_sec = Some(sighting.offset_sec);
                self.other = None;
            }
            ZoneTrust::Untested | ZoneTrust::Suspect => {
                self.zone = ZoneTrust::Suspect;
                self.offset_sec = Some(sighting.offset_sec);
                self.remember(sighting);
            }
            ZoneTrust::Right | ZoneTrust::Wrong => self.remember(sighting),
        }
    }

    /// Remembers the first of the channels that show the same offset.
    fn remember(&mut self, sighting: Sighting) {
        let is_same = |other: &Sighting| other.offset_sec == sighting.offset_sec;
        self.other = Some(self.other.filter(is_same).unwrap_or(sighting));
    }

    /// Returns `true` if another channel has confirmed this offset.
    fn is_confirmed(&self, sighting: Sighting) -> bool {
        self.other.is_some_and(|other| {
            other.offset_sec == sighting.offset_sec
                && (other.born - sighting.born).abs() > APART_SEC
        })
    }

    /// Converts a local time using the learned offset. Until there is one, the offset is derived
    /// from the row's own ID, which is correct as long as the row was written within 15 minutes of
    /// the channel's creation.
    fn convert_by_ids(&mut self, stamp: Stamp) -> Option<Converted> {
        let ahead = stamp
            .ahead()
            .filter(|ahead| ahead.abs() <= FARTHEST_ZONE_SEC);
        let by_row =
            ahead.map(|ahead| (ahead + SLACK_SEC).div_euclid(QUARTER_HOUR_SEC) * QUARTER_HOUR_SEC);
        let known = self.offset_sec.or(by_row);
        let mut offset_sec = known.unwrap_or(0);
        // With this offset, the row would be older than its channel, so the clock must have been
        // set back by an hour, as happens in fall.
        let before_birth = ahead.map_or(0, |ahead| offset_sec - ahead);
        if before_birth > SLACK_SEC && before_birth <= HOUR_SEC + SLACK_SEC {
            offset_sec -= HOUR_SEC;
            self.offset_sec = Some(offset_sec);
        }
        Some(Converted {
            micros: as_utc(stamp.local)? - offset_sec * 1_000_000,
            basis: match known {
                Some(_) => Basis::Ids,
                None => Basis::Unknown,
            },
        })
    }
}

/// Converts a local time using the time zone.
///
/// When the clocks are set back, an hour occurs twice. A channel's first row is then given the time
/// closer to the channel's creation. For any other row, the later time is used if the earlier one
/// would be before the channel's creation or well before `latest`, the time of the latest row.
fn in_zone(zone: &TimeZone, stamp: Stamp, latest: Option<i64>) -> Option<i64> {
    let ambiguous = zone.to_ambiguous_timestamp(stamp.local);
    let [earlier, later] = moments(zone, stamp.local)?;
    let [earlier_sec, later_sec] = [earlier, later].map(|at| at.div_euclid(1_000_000));
    let is_later = match (ambiguous.offset(), stamp.born) {
        (AmbiguousOffset::Unambiguous { .. }, _) => true,
        (_, Some(born)) if stamp.row != RowOrder::Later => {
            later_sec.abs_diff(born) < earlier_sec.abs_diff(born)
        }
        (_, Some(born)) if earlier_sec + SLACK_SEC < born => true,
        (AmbiguousOffset::Gap { .. }, _) => true,
        (AmbiguousOffset::Fold { .. }, _) => latest.is_some_and(|latest| {
            let horizon = latest - SHUFFLED_SEC;
            earlier_sec < horizon && later_sec >= horizon
        }),
    };
    Some(if is_later { later } else { earlier })
}

/// Returns both possible times for a local time, earliest first. They only differ in the hour that
/// occurs twice or is skipped when the clocks change.
fn moments(zone: &TimeZone, local: DateTime) -> Option<[i64; 2]> {
    let named = zone.to_ambiguous_timestamp(local);
    let earlier = named.earlier().ok()?.as_microsecond();
    let later = named.later().ok()?.as_microsecond();
    Some([earlier.min(later), earlier.max(later)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-02 10:00:00 UTC.
    const TEN: i64 = 1_772_445_600;

    fn clocks(zone: Option<&str>) -> WallClocks {
        let zone = zone.map(|name| TimeZone::get(name).expect("a zone"));
        let mut clocks = WallClocks::new(zone);
        clocks.turn_to("", "1772445600.1");
        clocks
    }

    /// Converts a row's local time, which read as UTC is `ahead` seconds after `born`, and returns
    /// how many seconds after `born` the result is.
    fn convert(
        clocks: &mut WallClocks,
        born: i64,
        ahead: i64,
        row: RowOrder,
    ) -> Option<(i64, Basis)> {
        let local = TimeZone::UTC
            .to_datetime(jiff::Timestamp::from_second(born + ahead).expect("in range"));
        let born = Some(born);
        let converted = clocks.convert(Stamp { local, born, row })?;
        Some((converted.micros / 1_000_000 - born?, converted.basis))
    }

    fn offset(clocks: &WallClocks) -> Option<i64> {
        Some(clocks.wrong_zone()?.offset_sec)
    }

    #[test]
    fn zone_is_wrong_once_two_channels_contradict_it_alike() {
        for (zone, written_ahead) in [
            ("Asia/Tashkent", 0),
            ("America/New_York", 0),
            ("Asia/Tashkent", 3 * HOUR_SEC),
            ("America/New_York", 5 * HOUR_SEC + 45 * 60),
        ] {
            for row in [RowOrder::First, RowOrder::FirstSeen] {
                let mut clocks = clocks(Some(zone));
                let first = convert(&mut clocks, TEN, written_ahead, row).expect("a time");
                assert_eq!(first.0, 0, "{zone}");
                assert_eq!(offset(&clocks), None, "one channel proves nothing");
                let second = convert(&mut clocks, TEN + 60, written_ahead + 1, row);
                assert_eq!(second, Some((1, Basis::Ids)), "{zone}");
                assert_eq!(offset(&clocks), Some(written_ahead), "{zone}");
                // A later row has the same offset, and so does a call after the zone's clock
                // change.
                let later = convert(&mut clocks, TEN + 60, written_ahead + 777, RowOrder::Later);
                assert_eq!(later, Some((777, Basis::Ids)), "{zone}");
                let summer = TEN + 120 * 86_400;
                let in_summer = convert(&mut clocks, summer, written_ahead, row);
                assert_eq!(in_summer, Some((0, Basis::Ids)), "{zone}");
            }
        }
    }

    #[test]
    fn first_row_seen_that_alone_contradicts_the_zone_is_doubtful() {
        let mut clocks = clocks(Some("America/New_York"));
        let row = RowOrder::FirstSeen;
        assert_eq!(convert(&mut clocks, TEN, 0, row), Some((0, Basis::OneId)));
        // The next call shows that the time zone is right.
        let right = -5 * HOUR_SEC;
        assert_eq!(
            convert(&mut clocks, TEN + 60, right, row),
            Some((0, Basis::Zone))
        );
        assert_eq!(
            convert(&mut clocks, TEN + 90, 0, row),
            Some((right.abs(), Basis::Zone))
        );
        assert_eq!(offset(&clocks), None);
    }

    #[test]
    fn channels_of_one_call_are_not_several_witnesses() {
        let mut clocks = clocks(Some("Asia/Tashkent"));
        for born in [TEN, TEN + 1, TEN + 2] {
            // Later rows of channels that started two hours before the file.
            let ahead = 7 * HOUR_SEC + TEN - born;
            convert(&mut clocks, born, ahead, RowOrder::FirstSeen);
        }
        assert_eq!(offset(&clocks), None);
    }

    #[test]
    fn right_zone_outlives_rows_that_differ_from_their_ids() {
        let mut clocks = clocks(Some("Asia/Tashkent"));
        let zone = 5 * HOUR_SEC;
        let row = RowOrder::FirstSeen;
        convert(&mut clocks, TEN, zone, row);
        for (born, late) in [
            (60, 901),
            (70, 5_000),
            (90, 2 * HOUR_SEC),
            (95, 0),
            (200, 7_200),
        ] {
            let found = convert(&mut clocks, TEN + born, zone + late, row);
            assert_eq!(found, Some((late, Basis::Zone)), "{late} s after the ID");
        }
        assert_eq!(offset(&clocks), None);
    }

    #[test]
    fn zone_counts_again_once_two_channels_agree_with_it() {
        let mut clocks = clocks(Some("Asia/Tashkent"));
        let row = RowOrder::First;
        for born in [TEN, TEN + 60] {
            convert(&mut clocks, born, 0, row);
        }
        assert_eq!(offset(&clocks), Some(0));
        for born in [TEN + 3_600, TEN + 3_700] {
            convert(&mut clocks, born, 5 * HOUR_SEC, row);
        }
        assert_eq!(offset(&clocks), None);
    }

    #[test]
    fn ids_without_an_epoch_say_nothing_about_the_zone() {
        let mut clocks = clocks(Some("Asia/Tashkent"));
        for _ in 0..3 {
            let local = jiff::civil::date(2026, 3, 2).at(10, 0, 0, 0);
            let stamp = Stamp {
                local,
                born: None,
                row: RowOrder::First,
            };
            let found = clocks.convert(stamp).expect("a time");
            assert_eq!(found.micros, (TEN - 5 * HOUR_SEC) * 1_000_000);
            assert_eq!(found.basis, Basis::Zone);
        }
    }
}
