//! Spans as flags and faults write them.

use std::time::Duration;

/// A span written `500ms`, `6s`, `2m`, `24h` or `365d`.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time such as 500ms, 6s, 2m, 24h, 365d");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (digits, unit) = text.split_at(split);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(millis)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}
