//! Dates as people write them, in a zone.

use callbridge_call::EventTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};
use std::time::Duration;

/// A span as flags write it: `500ms`, `10s`, `12h`, `1h30m`, `7d`, `1d12h`.
pub fn span(text: &str) -> Option<Duration> {
    let days = text.split_once('d').and_then(|(days, rest)| {
        let only_digits = days.bytes().all(|b| b.is_ascii_digit());
        Some((days.parse::<u64>().ok().filter(|_| only_digits)?, rest))
    });
    let (days, rest) = days.unwrap_or((0, text));
    let rest = match rest {
        "" if days > 0 => Duration::ZERO,
        rest => Duration::try_from(rest.parse::<SignedDuration>().ok()?).ok()?,
    };
    Duration::from_secs(days.checked_mul(86_400)?).checked_add(rest)
}

/// The moment before which a list ends: as [`date`], and a day without a time is meant whole.
pub fn date_end(text: &str, zone: &TimeZone) -> Result<EventTime, String> {
    let day = text
        .parse::<civil::Date>()
        .ok()
        .filter(|_| text.len() <= 10);
    let next = day.and_then(|day| day.tomorrow().ok());
    match next {
        Some(next) => date(&next.to_string(), zone),
        // the second that is named counts
        None => date(text, zone).map(|at| at.plus(Duration::from_secs(1))),
    }
}

/// `2026-11-20`, with a time and an offset if wanted; without an offset in `zone`.
pub fn date(text: &str, zone: &TimeZone) -> Result<EventTime, String> {
    let absolute = text.parse::<Timestamp>().ok();
    let local = || {
        let day = || {
            text.parse::<civil::Date>()
                .map(|day| day.to_datetime(civil::Time::midnight()))
        };
        let moment = text.parse::<civil::DateTime>().or_else(|_| day()).ok()?;
        zone.to_ambiguous_timestamp(moment).compatible().ok()
    };
    absolute
        .or_else(local)
        .map(|at| EventTime::from_micros(at.as_microsecond()))
        .ok_or_else(|| {
            format!("`{text}` is not a date: give it as 2026-11-20 or 2026-11-20T08:00:00+05:00")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_takes_days_beside_what_a_clock_has() {
        let read = |text| span(text).map(|it| it.as_millis());
        for (text, milliseconds) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("0s", 0),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("1d12h", 129_600_000),
        ] {
            assert_eq!(read(text), Some(milliseconds), "{text}");
        }
        let most = u64::MAX.to_string() + "d";
        for wrong in [
            "", "d", "7", "0d", "-7d", "+7d", "7dd", "d7h", "1h7d", "soon", &most,
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dates_are_taken_in_the_zone_unless_they_bring_one() {
        let tashkent = TimeZone::get("Asia/Tashkent").expect("known");
        let at = |text| date(text, &tashkent).map(|at| at.floor_seconds().get());
        assert_eq!(at("2026-11-20"), Ok(1_795_114_800));
        assert_eq!(at("2026-11-20T08:00:00"), Ok(1_795_143_600));
        assert_eq!(at("2026-11-20T08:00:00Z"), Ok(1_795_161_600));
        assert_eq!(at("2026-11-20T08:00:00+05:00"), Ok(1_795_143_600));
        for wrong in ["", "20.11.2026", "1795151317", "2026-13-01"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}
