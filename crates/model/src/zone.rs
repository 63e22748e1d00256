//! Times as people read them: in the PBX's zone, else in this machine's. What machines read stays
//! in seconds since the epoch.

use callbridge_call::EventTime;
use jiff::tz::TimeZone;

/// The zone in which times are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone(TimeZone);

impl Zone {
    /// The PBX's (`--pbx-timezone`); without one this machine's.
    pub fn of(pbx: Option<&TimeZone>) -> Self {
        Self(pbx.cloned().unwrap_or_else(TimeZone::system))
    }

    /// UTC, for texts that must read the same for everybody.
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone of a name such as `Asia/Tashkent`; `None` for a name that is none.
    pub fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    /// Formats a moment in the form of `strftime`; `None` for what lies beyond the years that can
    /// be written.
    pub fn format(&self, at: EventTime, form: &str) -> Option<String> {
        let at = jiff::Timestamp::from_microsecond(at.micros()).ok()?;
        Some(at.to_zoned(self.0.clone()).strftime(form).to_string())
    }

    /// `2026-11-20 10:08:37 +05`, with the zone's own abbreviation where it has one; the seconds
    /// alone where they are of no year that can be.
    pub fn moment(&self, at: EventTime) -> String {
        let shown = self.format(at, "%Y-%m-%d %H:%M:%S %Z");
        shown.unwrap_or_else(|| at.to_string())
    }

    /// The same of a time in seconds since the epoch.
    pub fn second(&self, seconds: i64) -> String {
        self.moment(EventTime::from_seconds(seconds))
    }

    /// `2026-11-20T10:08:37+05:00`, for a table that programs read, too.
    pub fn stamp(&self, seconds: i64) -> String {
        let at = EventTime::from_seconds(seconds);
        self.format(at, "%Y-%m-%dT%H:%M:%S%:z")
            .unwrap_or_else(|| at.to_string())
    }

    /// The words with each `2026-11-20T05:08:37Z` among them as people read it here.
    pub fn in_words(&self, text: &str) -> String {
        let translated = |word: &str| {
            let stamp = word.trim_end_matches(|c: char| c != 'Z');
            let at: jiff::Timestamp = stamp.parse().ok()?;
            Some(self.second(at.as_second()) + &word[stamp.len()..])
        };
        let words = text.split(' ').map(|word| match translated(word) {
            Some(translated) => translated,
            None => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// `11-20 10:08`, for a narrow column whose head names the zone.
    pub fn short(&self, seconds: i64) -> String {
        let at = EventTime::from_seconds(seconds);
        self.format(at, "%m-%d %H:%M")
            .unwrap_or_else(|| at.to_string())
    }

    /// The zone's abbreviation at that moment, as shown behind times: `+05`, `CET`, `UTC`.
    pub fn abbreviation(&self, at: EventTime) -> String {
        self.format(at, "%Z").unwrap_or_default()
    }

    /// The zone, for calculations with `jiff`.
    pub const fn as_time_zone(&self) -> &TimeZone {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_in_the_zone_and_names_it() {
        let translated = |zone: &str, at: i64| Zone::named(zone).expect("a zone").second(at);
        assert_eq!(
            translated("Asia/Tashkent", 1_795_151_317),
            "2026-11-20 10:08:37 +05"
        );
        assert_eq!(translated("UTC", 1_795_151_317), "2026-11-20 05:08:37 UTC");
        // The hour that comes twice is told apart.
        assert_eq!(
            translated("Europe/Berlin", 1_792_888_200),
            "2026-10-25 02:30:00 CEST"
        );
        assert_eq!(
            translated("Europe/Berlin", 1_792_891_800),
            "2026-10-25 02:30:00 CET"
        );
    }

    #[test]
    fn a_table_and_what_a_sentence_holds_are_told_in_the_zone_too() {
        let zone = Zone::named("Asia/Tashkent").expect("a zone");
        assert_eq!(zone.stamp(1_795_151_317), "2026-11-20T10:08:37+05:00");
        let words = "the directory: lead 1 (LEAD_CREATED, 2026-11-20T05:08:37Z), merged into 2";
        let translated =
            "the directory: lead 1 (LEAD_CREATED, 2026-11-20 10:08:37 +05), merged into 2";
        assert_eq!(zone.in_words(words), translated);
        for other in ["", "Z", "lead Z)", "2026-11-20"] {
            assert_eq!(zone.in_words(other), other);
        }
    }

    #[test]
    fn the_zone_given_goes_before_the_machines_and_nonsense_is_none() {
        let utc = TimeZone::UTC;
        assert_eq!(Zone::of(Some(&utc)), Zone(utc));
        assert_eq!(Zone::of(None), Zone(TimeZone::system()));
        assert_eq!(Zone::named("Asia/Nowhere"), None);
    }

    #[test]
    fn a_year_that_cannot_be_is_told_in_seconds() {
        let zone = Zone::named("UTC").expect("a zone");
        assert!(
            zone.second(i64::MAX / 2_000_000)
                .contains(|c: char| c.is_ascii_digit())
        );
        assert_eq!(zone.short(1_795_151_317), "11-20 05:08");
        assert_eq!(zone.abbreviation(EventTime::from_seconds(0)), "UTC");
    }
}
