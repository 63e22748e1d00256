//! Times for people, in the PBX's zone, or else in this machine's zone. Values for programs stay in
//! seconds since the epoch.

use callbridge_call::EventTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};
use std::time::Duration;

/// The zone in which times are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Returns the PBX's zone (`--pbx-timezone`). If `pbx` is `None`, returns this machine's zone.
    pub fn from_pbx(pbx: Option<&TimeZone>) -> Self {
        Self(pbx.cloned().unwrap_or_else(TimeZone::system))
    }

    /// Returns UTC, for texts that must be the same everywhere.
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Returns the zone of a name such as `Asia/Tashkent`. `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    /// Formats a time with a `strftime` format. `None` for years that cannot be written.
    pub fn format(&self, at: EventTime, form: &str) -> Option<String> {
        let at = Timestamp::from_microsecond(at.micros()).ok()?;
        Some(at.to_zoned(self.0.clone()).strftime(form).to_string())
    }

    /// Formats a time with a `strftime` format. If the year cannot be written, returns the time in
    /// seconds.
    pub fn format_or_seconds(&self, at: EventTime, form: &str) -> String {
        self.format(at, form).unwrap_or_else(|| at.to_string())
    }

    /// Formats a time: `2026-11-20 10:08:37 +05`, with the zone's abbreviation if it has one.
    pub fn moment(&self, at: EventTime) -> String {
        self.format_or_seconds(at, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// Formats a time in seconds since the epoch, like [`Zone::moment`].
    pub fn second(&self, seconds: i64) -> String {
        self.moment(EventTime::from_seconds(seconds))
    }

    /// Formats a time for a table that programs also read: `2026-11-20T10:08:37+05:00`.
    pub fn stamp(&self, seconds: i64) -> String {
        self.format_or_seconds(EventTime::from_seconds(seconds), "%Y-%m-%dT%H:%M:%S%:z")
    }

    /// Replaces each `2026-11-20T05:08:37Z` in a text with the local form.
    pub fn localize_text(&self, text: &str) -> String {
        let mut words = Vec::new();
        for word in text.split(' ') {
            let stamp = word.trim_end_matches(|c: char| c != 'Z');
            words.push(match stamp.parse::<Timestamp>() {
                Ok(at) => self.second(at.as_second()) + &word[stamp.len()..],
                Err(_) => word.to_owned(),
            });
        }
        words.join(" ")
    }

    /// Formats a time for a narrow column whose header names the zone: `11-20 10:08`.
    pub fn short(&self, seconds: i64) -> String {
        self.format_or_seconds(EventTime::from_seconds(seconds), "%m-%d %H:%M")
    }

    /// Returns the zone's abbreviation at that time, as shown behind times: `+05`, `CET`, `UTC`.
    pub fn abbreviation(&self, at: EventTime) -> String {
        self.format(at, "%Z").unwrap_or_default()
    }

    /// Returns the zone, for calculations with `jiff`.
    pub const fn as_time_zone(&self) -> &TimeZone {
        &self.0
    }
}

/// Parses a span as flags write it: `500ms`, `10s`, `12h`, `1h30m`, `7d`, `1d12h`.
pub fn span(text: &str) -> Option<Duration> {
    let mut days = 0;
    let mut rest = text;
    if let Some((digits, after_days)) = text.split_once('d')
        && digits.bytes().all(|b| b.is_ascii_digit())
        && let Ok(count) = digits.parse::<u64>()
    {
        days = count;
        rest = after_days;
    }
    let time = match rest {
        "" if days > 0 => Duration::ZERO,
        rest => Duration::try_from(rest.parse::<SignedDuration>().ok()?).ok()?,
    };
    Duration::from_secs(days.checked_mul(86_400)?).checked_add(time)
}

/// Parses the end of a list of calls, and returns the first time after it. Like [`date`], but a
/// date without a time includes the whole day.
pub fn date_end(text: &str, zone: &TimeZone) -> Result<EventTime, String> {
    let day = if text.len() <= 10 {
        text.parse::<civil::Date>().ok()
    } else {
        None
    };
    match day.and_then(|day| day.tomorrow().ok()) {
        Some(next) => date(&next.to_string(), zone),
        // The named second is included.
        None => date(text, zone).map(|at| at.plus(Duration::from_secs(1))),
    }
}

/// Parses a date: `2026-11-20`, optionally with a time and an offset. Without an offset, it is in
/// `zone`.
pub fn date(text: &str, zone: &TimeZone) -> Result<EventTime, String> {
    let at = text
        .parse::<Timestamp>()
        .ok()
        .or_else(|| local_timestamp(text, zone));
    at.map(|at| EventTime::from_micros(at.as_microsecond()))
        .ok_or_else(|| {
            format!("`{text}` is not a date: give it as 2026-11-20 or 2026-11-20T08:00:00+05:00")
        })
}

fn local_timestamp(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let moment = text.parse::<civil::DateTime>().ok()?;
    zone.to_ambiguous_timestamp(moment).compatible().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_text(zone: &str, at: i64) -> String {
        Zone::from_name(zone).expect("a zone").second(at)
    }

    #[test]
    fn timestamp_is_shown_in_the_zone_with_its_abbreviation() {
        assert_eq!(
            time_text("Asia/Tashkent", 1_795_151_317),
            "2026-11-20 10:08:37 +05"
        );
        assert_eq!(time_text("UTC", 1_795_151_317), "2026-11-20 05:08:37 UTC");
        // The hour that occurs twice is unambiguous.
        assert_eq!(
            time_text("Europe/Berlin", 1_792_888_200),
            "2026-10-25 02:30:00 CEST"
        );
        assert_eq!(
            time_text("Europe/Berlin", 1_792_891_800),
            "2026-10-25 02:30:00 CET"
        );
    }

    #[test]
    fn stamps_and_timestamps_in_messages_are_shown_in_the_zone() {
        let zone = Zone::from_name("Asia/Tashkent").expect("a zone");
        assert_eq!(zone.stamp(1_795_151_317), "2026-11-20T10:08:37+05:00");
        let message = "the directory: lead 1 (LEAD_CREATED, 2026-11-20T05:08:37Z), merged into 2";
        let translated =
            "the directory: lead 1 (LEAD_CREATED, 2026-11-20 10:08:37 +05), merged into 2";
        assert_eq!(zone.localize_text(message), translated);
        for other in ["", "Z", "lead Z)", "2026-11-20"] {
            assert_eq!(zone.localize_text(other), other);
        }
    }

    #[test]
    fn given_zone_overrides_system_zone_and_unknown_zone_is_none() {
        let utc = TimeZone::UTC;
        assert_eq!(Zone::from_pbx(Some(&utc)), Zone(utc));
        assert_eq!(Zone::from_pbx(None), Zone(TimeZone::system()));
        assert_eq!(Zone::from_name("Asia/Nowhere"), None);
    }

    #[test]
    fn impossible_year_is_shown_in_seconds() {
        let zone = Zone::from_name("UTC").expect("a zone");
        assert_eq!(zone.second(4_000_000_000_000), "4000000000000.000000");
        assert_eq!(zone.short(4_000_000_000_000), "4000000000000.000000");
    }

    #[test]
    fn short_time_has_no_year_and_no_zone() {
        let zone = Zone::from_name("UTC").expect("a zone");
        assert_eq!(zone.short(1_795_151_317), "11-20 05:08");
        assert_eq!(zone.abbreviation(EventTime::from_seconds(0)), "UTC");
    }

    #[test]
    fn span_accepts_days_hours_minutes_and_seconds() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("0s", 0),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1d12h", 129_600_000),
        ] {
            let read = span(text).map(|length| length.as_millis());
            assert_eq!(read, Some(milliseconds), "{text}");
        }
        let most = u64::MAX.to_string() + "d";
        for wrong in [
            "", "d", "7", "0d", "-7d", "+7d", "7dd", "d7h", "1h7d", "soon", &most,
        ] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dates_are_read_in_the_zone_unless_they_have_an_offset() {
        let tashkent = TimeZone::get("Asia/Tashkent").expect("known");
        for (text, seconds) in [
            ("2026-11-20", 1_795_114_800),
            ("2026-11-20T08:00:00", 1_795_143_600),
            ("2026-11-20T08:00:00Z", 1_795_161_600),
            ("2026-11-20T08:00:00+05:00", 1_795_143_600),
        ] {
            let read = date(text, &tashkent).map(|time| time.floor_seconds().get());
            assert_eq!(read, Ok(seconds), "{text}");
        }
        for wrong in ["", "20.11.2026", "1795151317", "2026-13-01"] {
            assert!(date(wrong, &tashkent).is_err(), "{wrong}");
        }
    }
}
