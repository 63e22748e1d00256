//! Parses the time formats used by PBXs, databases, and spreadsheets. For CEL, the administrator
//! can set the format with `dateformat` in `cel.conf`.

use crate::text::epoch;
use callbridge_call::EventTime;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// A time in a text, with or without a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// An absolute time, i.e., an epoch or a time with an offset.
    Absolute(EventTime),
    Local(LocalTime),
}

/// A local time of the PBX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalTime {
    pub at: DateTime,
    /// The same text read with day and month swapped, if that's also a valid date.
    pub other: Option<DateTime>,
    /// Whether the time has seconds, as opposed to a spreadsheet having cut them off.
    pub has_seconds: bool,
}

impl LocalTime {
    /// Picks the reading closest to `moment` (in UTC seconds). The time zone can be ignored here,
    /// since it shifts a time by less than a day.
    pub(crate) fn nearest_to(self, moment: Option<i64>) -> DateTime {
        let (Some(other), Some(moment)) = (self.other, moment) else {
            return self.at;
        };
        let distance = |local| as_utc(local).map_or(i64::MAX, |at| (at / 1_000_000 - moment).abs());
        if distance(other) < distance(self.at) {
            other
        } else {
            self.at
        }
    }

    /// Returns `true` if either of the two numbers could be the day.
    pub(crate) fn is_ambiguous(self) -> bool {
        self.other.is_some_and(|other| other != self.at)
    }
}

/// Returns a local time as if it were UTC, in microseconds.
pub(crate) fn as_utc(local: DateTime) -> Option<i64> {
    Some(TimeZone::UTC.to_timestamp(local).ok()?.as_microsecond())
}

/// Formats with an offset, in addition to those of RFC 3339.
const WITH_OFFSET: [&str; 4] = [
    "%Y-%m-%d %H:%M:%S%.f %z",
    "%Y-%m-%d %H:%M:%S%.f%z",
    "%a, %d %b %Y %H:%M:%S %z",
    "%d/%b/%Y:%H:%M:%S %z",
];

/// Formats without an offset, in addition to those of ISO 8601. A weekday is parsed and ignored.
const LOCAL: [&str; 4] = [
    "%Y%m%d%H%M%S%.f",
    "%a %b %e %H:%M:%S %Y",
    "%b %e %H:%M:%S %Y",
    "%d %b %Y %H:%M:%S%.f",
];

/// Formats for a date before a time of day.
const DATES: [&str; 6] = [
    "%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d-%m-%Y", "%d.%m.%y",
];
/// Date formats in which the order of day and month depends on the country.
const EITHER_DATES: [&str; 4] = ["%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y"];
const TIMES_OF_DAY: [&str; 4] = ["%H:%M:%S%.f", "%H:%M", "%I:%M:%S%.f %p", "%I:%M %p"];

/// Number of digits in a date and time without separators, which differs from that of an epoch in
/// seconds, milliseconds, or microseconds.
const COMPACT_DIGITS: usize = 14;

/// Parses a time in any of this module's formats, returning `None` if it isn't one.
pub(crate) fn read(text: &str) -> Option<Written> {
    let text = text.trim();
    // Some spreadsheets write a no-break space before AM and PM.
    if text.contains(['\u{a0}', '\u{202f}']) {
        return read(&text.replace(['\u{a0}', '\u{202f}'], " "));
    }
    let whole = text.split('.').next().unwrap_or(text);
    let compact = whole.len() == COMPACT_DIGITS && whole.bytes().all(|b| b.is_ascii_digit());
    if !compact && let Some(at) = epoch(text.as_bytes()) {
        return Some(Written::Absolute(at));
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some(absolute(at));
    }
    for form in WITH_OFFSET {
        if let Ok(time) = strtime::parse(form, text)
            && let Ok(at) = time.to_timestamp()
        {
            return Some(absolute(at));
        }
    }
    let mut readings = local_readings(text).into_iter();
    Some(Written::Local(LocalTime {
        at: readings.next()?,
        other: readings.next(),
        has_seconds: !lacks_seconds(text),
    }))
}

/// Returns `true` if a time was cut off after its minutes.
pub(crate) fn lacks_seconds(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b':').count() == 1
}

/// Returns every possible reading of a time without an offset. There are two if day and month could
/// be in either order.
fn local_readings(text: &str) -> Vec<DateTime> {
    // This ignores any offset or time zone name in the text, which is why those were tried first.
    if let Ok(local) = text.parse::<DateTime>() {
        return vec![local];
    }
    for form in LOCAL {
        if let Ok(local) = DateTime::strptime(form, text) {
            return vec![local];
        }
    }
    let Some((date, time)) = text.split_once(' ') else {
        return Vec::new();
    };
    let mut times = TIMES_OF_DAY.iter();
    let Some(time) = times.find_map(|form| Time::strptime(form, time.trim_start()).ok()) else {
        return Vec::new();
    };
    let read = |form: &&str| Date::strptime(form, date).ok();
    // A format with a four-digit year also accepts two digits.
    let is_recent = |date: &Date| date.year() >= 1970;
    if let Some(date) = DATES.iter().filter_map(read).find(is_recent) {
        return vec![date.to_datetime(time)];
    }
    let either = EITHER_DATES.iter().filter_map(read).filter(is_recent);
    either.map(|date| date.to_datetime(time)).collect()
}

fn absolute(at: Timestamp) -> Written {
    Written::Absolute(EventTime::from_micros(at.as_microsecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absolute_micros(text: &str) -> Option<i64> {
        match read(text) {
            Some(Written::Absolute(at)) => Some(at.micros()),
            Some(Written::Local(_)) | None => None,
        }
    }

    /// Returns the time as parsed, along with the second reading if there is one.
    fn describe(text: &str) -> String {
        match read(text) {
            Some(Written::Local(local)) => {
                let other = local.other.map(|other| format!(" or {other}"));
                let cut = if local.has_seconds {
                    ""
                } else {
                    ", seconds cut off"
                };
                format!("{}{}{cut}", local.at, other.unwrap_or_default())
            }
            Some(Written::Absolute(at)) => at.to_string(),
            None => "none".to_owned(),
        }
    }

    #[test]
    fn common_date_and_time_formats_are_read() {
        for text in [
            "1524597350.146",
            "1524597350146",
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
            "20/11/2026 3:08:38 PM",
            "11/20/2026 12:08:38 AM",
            "11/20/2026 3:08\u{202f}PM",
            "2026-11-20 03:08:38 PM",
            "20.11.2026 10:08",
            "20.11.26 10:08",
            "2/3/2026 9:08",
            "2/3/26 9:08 AM",
            "2026-11-20 10:08",
            "20/11/2026 15:08:38 PM",
            "31/31/2026 10:08",
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
        2026-11-20T15:08:38
        2026-11-20T00:08:38
        2026-11-20T15:08:00, seconds cut off
        2026-11-20T15:08:38
        2026-11-20T10:08:00, seconds cut off
        2026-11-20T10:08:00, seconds cut off
        2026-03-02T09:08:00 or 2026-02-03T09:08:00, seconds cut off
        2026-03-02T09:08:00 or 2026-02-03T09:08:00, seconds cut off
        2026-11-20T10:08:00, seconds cut off
        none
        none
        none
        none
        ");
    }
}
