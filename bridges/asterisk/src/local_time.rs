//! The forms in which a PBX writes a time (the administrator chooses `dateformat` in `cel.conf`),
//! and the local clocks of PBXs. One stream can have several PBXs, each in its own zone.

use crate::text::epoch;
use callbridge_call::EventTime;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::strtime;

/// A time in a text, with or without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// An absolute time: an epoch, or a time with an offset.
    Absolute(EventTime),
    /// The local time of the PBX. If day and month can be read in both orders, there is a second
    /// reading.
    Local(DateTime, Option<DateTime>),
}

/// Forms with an offset, in addition to those of RFC 3339.
const WITH_OFFSET: [&str; 4] = [
    "%Y-%m-%d %H:%M:%S%.f %z",
    "%Y-%m-%d %H:%M:%S%.f%z",
    "%a, %d %b %Y %H:%M:%S %z",
    "%d/%b/%Y:%H:%M:%S %z",
];

/// Forms without an offset, in addition to those of ISO 8601. A weekday is read and ignored.
const LOCAL: [&str; 8] = [
    "%Y/%m/%d %H:%M:%S%.f",
    "%Y%m%d %H:%M:%S%.f",
    "%Y%m%d%H%M%S%.f",
    "%d.%m.%Y %H:%M:%S%.f",
    "%d-%m-%Y %H:%M:%S%.f",
    "%a %b %e %H:%M:%S %Y",
    "%b %e %H:%M:%S %Y",
    "%d %b %Y %H:%M:%S%.f",
];

/// Forms in which the order of day and month depends on the country.
const EITHER: [&str; 2] = ["%d/%m/%Y %H:%M:%S%.f", "%m/%d/%Y %H:%M:%S%.f"];

/// Digits of a date and time without separators. An epoch has fewer.
const COMPACT_DIGITS: usize = 14;

/// Reads a time in any form of this module. `None` if it is not a time.
pub(crate) fn read(text: &str) -> Option<Written> {
    let text = text.trim();
    let whole = text.split('.').next().unwrap_or(text);
    let compact = whole.len() == COMPACT_DIGITS && whole.bytes().all(|b| b.is_ascii_digit());
    if !compact && let Some(at) = epoch(text.as_bytes()) {
        return Some(Written::Absolute(at));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(absolute(at));
    }
    // This comes after `Timestamp`, because it ignores an offset or a zone's name in the text.
    if let Ok(local) = text.parse::<DateTime>() {
        return Some(Written::Local(local, None));
    }
    for form in WITH_OFFSET {
        if let Ok(time) = strtime::parse(form, text)
            && let Ok(at) = time.to_timestamp()
        {
            return Some(absolute(at));
        }
    }
    for form in LOCAL {
        if let Ok(local) = DateTime::strptime(form, text) {
            return Some(Written::Local(local, None));
        }
    }
    let mut either = EITHER
        .iter()
        .filter_map(|form| DateTime::strptime(form, text).ok());
    Some(Written::Local(either.next()?, either.next()))
}

fn absolute(at: Timestamp) -> Written {
    Written::Absolute(EventTime::from_micros(at.as_microsecond()))
}

/// Maximum PBXs of one stream. A further PBX replaces the last one in the list.
const PBXES_MAX: usize = 64;

/// Facts about each PBX's clock, and the PBX of the current record.
#[derive(Clone, Debug, Default)]
pub(crate) struct WallClocks<T> {
    /// The facts about each PBX, by its server and the system name at the start of its unique ids.
    known: Vec<([String; 2], T)>,
    at_hand: usize,
}

impl<T: Default> WallClocks<T> {
    /// Selects the PBX with this server and with the system name in `uniqueid`. Adds the PBX if it
    /// is new.
    pub(crate) fn turn_to(&mut self, server: &str, uniqueid: &str) {
        let (system, _) = uniqueid.rsplit_once('-').unwrap_or_default();
        let names = [server, system];
        let known = self.known.iter().position(|(known, _)| *known == names);
        self.at_hand = known.unwrap_or_else(|| {
            self.known.truncate(PBXES_MAX - 1);
            self.known.push((names.map(str::to_owned), T::default()));
            self.known.len() - 1
        });
    }

    /// Returns the facts about the current PBX. `None` before the first record.
    pub(crate) fn current(&mut self) -> Option<&mut T> {
        self.known.get_mut(self.at_hand).map(|(_, clock)| clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absolute_micros(text: &str) -> Option<i64> {
        match read(text) {
            Some(Written::Absolute(at)) => Some(at.micros()),
            Some(Written::Local(..)) | None => None,
        }
    }

    /// Returns the time as it is read, and the second reading if there is one.
    fn describe(text: &str) -> String {
        match read(text) {
            Some(Written::Local(at, Some(other))) => format!("{at} or {other}"),
            Some(Written::Local(at, None)) => at.to_string(),
            Some(Written::Absolute(at)) => at.to_string(),
            None => "none".to_owned(),
        }
    }

    #[test]
    fn common_date_and_time_formats_are_read() {
        for text in [
            "1524597350.146",
            "2018-04-24T19:15:50.146Z",
            "2018-04-25T00:15:50.146+05:00",
            "2018-04-25T00:15:50.146+0500",
            "2018-04-25 00:15:50.146+05",
            "2018-04-25 00:15:50.146 +0500",
        ] {
            assert_eq!(absolute_micros(text), Some(1_524_597_350_146_000), "{text}");
        }
        let all = [
            "2026-11-20 10:08:38",
            "2026-11-20T10:08:38.5",
            "2026-11-20 10:08:38,250",
            "2026/11/20 10:08:38",
            "20261120 10:08:38",
            "20261120100838",
            "20.11.2026 10:08:38",
            "20/11/2026 10:08:38",
            "11/12/2026 10:08:38",
            "Fri Nov 20 10:08:38 2026",
            "yesterday",
            "",
        ];
        insta::assert_snapshot!(all.map(describe).join("\n"), @"
        2026-11-20T10:08:38
        2026-11-20T10:08:38.5
        2026-11-20T10:08:38.25
        2026-11-20T10:08:38
        2026-11-20T10:08:38
        2026-11-20T10:08:38
        2026-11-20T10:08:38
        2026-11-20T10:08:38
        2026-12-11T10:08:38 or 2026-11-12T10:08:38
        2026-11-20T10:08:38
        none
        none
        ");
    }
}
