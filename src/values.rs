//! Single values of flags: times, dates, levels. Each error names a valid value.

use callbridge_model::dates;
use jiff::tz::TimeZone;
use std::{net::SocketAddr, path::PathBuf, time::Duration};
use tracing::Level;

/// Returns the trimmed values of a flag that can be repeated. Skips empty values, which environment
/// variables can contain.
pub(crate) fn flag_values(texts: &[String]) -> impl Iterator<Item = &str> {
    let texts = texts.iter().map(|text| text.trim());
    texts.filter(|text| !text.is_empty())
}

/// Reads a time span: `500ms`, `10s`, `12h`, `1h30m`, `7d`. Above zero, at most 31 days.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(31 * 86_400);
    let Some(span) = dates::span(text) else {
        return Err(format!(
            "`{text}` is not a time span: give it as 500ms, 10s, 12h or 7d"
        ));
    };
    if span.is_zero() || span > LONGEST {
        return Err(format!(
            "`{text}` is out of range: give more than 0 and at most 31d"
        ));
    }
    Ok(span)
}

/// Reads seconds of talk: `80`, or `1m20s`. 0 means that the call has no talk time.
pub(crate) fn talk(text: &str) -> Result<u32, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let whole = duration(text).ok().filter(|span| span.subsec_nanos() == 0);
    let seconds = whole.and_then(|span| u32::try_from(span.as_secs()).ok());
    seconds.ok_or_else(|| format!("`{text}` is not a talk time: give seconds, or 1m20s"))
}

/// Reads the name of a zone in the tz database: `Asia/Tashkent`.
pub(crate) fn zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text)
        .map_err(|_| format!("`{text}` is not a time zone: give it as Asia/Tashkent or UTC"))
}

/// Reads a path, which must not be empty.
pub(crate) fn path(text: &str) -> Result<PathBuf, &'static str> {
    match text {
        "" => Err("is empty: give a path"),
        path => Ok(PathBuf::from(path)),
    }
}

/// Reads an `IP:PORT` to listen at. Error messages end with `example`.
pub(crate) fn address(text: &str, example: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not IP:PORT{example}"))
}

/// Reads a log level.
pub(crate) fn level(text: &str) -> Result<Level, String> {
    let read: Option<Level> = text.parse().ok();
    match read {
        Some(level) if level.as_str().to_ascii_lowercase() == text => Ok(level),
        Some(_) | None => Err(format!(
            "`{text}` is not a log level: give error, warn, info, debug or trace"
        )),
    }
}

/// Returns the value that `words` has for `text`. Fails if `text` is none of the words.
pub(crate) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("`{text}` is invalid: give {}", all.join(" or "))
    })
}

/// Reads a whole number within these bounds.
pub(crate) fn number(text: &str, bounds: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let read = text.parse().ok().filter(|number| bounds.contains(number));
    read.ok_or_else(|| {
        let least = bounds.start();
        let most = bounds.end();
        format!("`{text}` is invalid: give a whole number from {least} to {most}")
    })
}

/// Reads the name of a JSON field.
pub(crate) fn field_name(text: &str) -> Result<String, String> {
    let mut characters = text.chars();
    let is_plain = characters.all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if is_plain && (1..=64).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{text}` is not a field name: use letters, digits, `_`, `-`, `.`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn talk_time_accepts_only_whole_seconds() {
        assert_eq!(talk("80"), Ok(80));
        assert_eq!(talk("1m20s"), Ok(80));
        assert_eq!(talk("0"), Ok(0));
        for wrong in ["", "-1", "1.5s", "long", "800h"] {
            assert!(talk(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn duration_requires_a_number_with_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("12h"), Ok(Duration::from_secs(43_200)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(duration("31d"), duration("744h"));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5_400)));
        for wrong in ["", "5", "0s", "-3s", "forever", "800h", "32d", "10 parsecs"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
