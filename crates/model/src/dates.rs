//! Dates as people write them, in a zone.

use callbridge_call::EventTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use std::time::Duration;

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
            format!("`{text}` is no date: give it as 2026-11-20 or 2026-11-20T08:00:00+05:00")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

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
