//! Spans as flags and faults write them.

use callbridge_model::dates;
use std::time::Duration;

/// A span written `500ms`, `6s`, `2m`, `24h` or `365d`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    dates::span(text).ok_or_else(|| {
        format!(
            "`{text}` is not a time span such as 500ms, 6s, 2m, \
                                             24h, 365d"
        )
    })
}
