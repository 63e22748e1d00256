//! Types for times and IDs. Plain numbers with a unit in their name are only used at the edges.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;
use std::time::Duration;

/// A moment in microseconds since 1970-01-01 UTC, by a PBX's clock or by our own.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EventTime(i64);

impl EventTime {
    /// A moment before all others.
    pub const MIN: Self = Self(i64::MIN);

    /// Creates a moment from microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Creates a moment from whole seconds since the epoch, saturating on overflow.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Converts a number of seconds, milliseconds, microseconds, or nanoseconds since the epoch.
    ///
    /// Most programs use seconds, but since no call was made after the year 5000, a larger number
    /// must be in one of the smaller units. `micros` is the fractional part of a number of seconds.
    pub const fn from_epoch(whole: i64, micros: i64) -> Self {
        match whole.unsigned_abs() {
            0..100_000_000_000 => Self(whole * 1_000_000 + micros),
            100_000_000_000..100_000_000_000_000 => Self(whole * 1_000 + micros / 1_000),
            100_000_000_000_000..100_000_000_000_000_000 => Self(whole),
            _ => Self(whole / 1_000),
        }
    }

    /// Returns the microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Returns the second that contains this moment.
    pub const fn floor_seconds(self) -> EpochSeconds {
        EpochSeconds(self.0.div_euclid(1_000_000))
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` isn't before it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns how far apart this moment and the other one are, regardless of their order.
    pub fn apart(self, other: Self) -> Duration {
        self.since(other).max(other.since(self))
    }

    /// Returns the moment that's later by `by`, saturating on overflow.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// Returns the moment that's earlier by `by`, saturating on overflow.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }

    /// Converts a moment to a clock that's ahead of this one by `difference`.
    #[must_use]
    pub fn by_clock(self, difference: ClockDifference) -> Self {
        Self(self.0.saturating_add(difference.0))
    }
}

/// How far one clock is ahead of another in microseconds, or negative if it's behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClockDifference(i64);

impl ClockDifference {
    /// No difference.
    pub const ZERO: Self = Self(0);

    /// Returns how far a clock that shows `at` is ahead of one that shows `other`.
    pub const fn between(at: EventTime, other: EventTime) -> Self {
        Self(at.0.saturating_sub(other.0))
    }

    /// Creates a difference from microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the difference in microseconds.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Returns how much larger this difference is than `other`, or zero if it isn't.
    pub fn above(self, other: Self) -> Duration {
        let above = self.0.saturating_sub(other.0);
        Duration::from_micros(u64::try_from(above).unwrap_or(0))
    }

    /// Returns the difference with the two clocks swapped.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

fn micros(by: Duration) -> i64 {
    i64::try_from(by.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for EventTime {
    /// Writes seconds and microseconds as AMI does, e.g., `1795151317.833600`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:06}",
            self.floor_seconds(),
            self.0.rem_euclid(1_000_000)
        )
    }
}

/// A moment in whole seconds since 1970-01-01 UTC, which is the journal's unit (§2.6 `startedAt`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EpochSeconds(i64);

impl EpochSeconds {
    /// Creates a moment from whole seconds since the epoch.
    pub const fn new(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Returns the whole seconds since the epoch.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for EpochSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The PBX's ID of a channel, such as `1795151317.146` or `pbx1-1529936170.42`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UniqueId(SmolStr);

/// The unique ID of the channel that a call started with.
pub type Linkedid = UniqueId;

impl UniqueId {
    /// Creates an ID from any text, or returns `None` if the text is empty.
    pub fn new(text: impl AsRef<str>) -> Option<Self> {
        let text = text.as_ref();
        (!text.is_empty()).then(|| Self(text.into()))
    }

    /// Returns the ID as written by the PBX.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a key for sorting IDs generated by Asterisk.
    ///
    /// They're sorted by epoch and then by counter, as integers (so `…17.99` is older than
    /// `…17.146`), ignoring any system name. IDs in any other form go last, sorted as text. This
    /// order doesn't show which of two channels started first.
    pub fn age(&self) -> (u64, u64, &str) {
        numbers(&self.0).map_or((u64::MAX, u64::MAX, &self.0), |(e, c)| (e, c, &self.0))
    }

    /// Returns the epoch and counter of an ID generated by Asterisk (`[system-]epoch.counter`, with
    /// a ten-digit epoch), or `None` for an ID chosen through an API, such as a UUID or a deal's
    /// number (`4711`, `12.5`, `deal-77.1`).
    pub fn epoch_and_counter(&self) -> Option<(u64, u64)> {
        const TEN_DIGITS: std::ops::Range<u64> = 1_000_000_000..10_000_000_000;
        numbers(&self.0).filter(|(epoch, _)| TEN_DIGITS.contains(epoch))
    }

    /// Returns when a channel was created, in seconds since the epoch, based on a unique ID in the
    /// usual form.
    pub fn epoch_in(text: &str) -> Option<i64> {
        let (epoch, _) = numbers(text)?;
        i64::try_from(epoch).ok().filter(|epoch| *epoch < i64::MAX)
    }
}

/// Returns at most the first `most` bytes of a text, without splitting a character.
pub(crate) fn clip(text: &str, most: usize) -> String {
    let mut ends = (0..=text.len().min(most)).rev();
    let end = ends.find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or(0)].to_owned()
}

/// Returns the epoch and counter from `pbx1-1795151317.146`.
fn numbers(text: &str) -> Option<(u64, u64)> {
    let tail = text.rsplit_once('-').map_or(text, |(_, tail)| tail);
    let (epoch, counter) = tail.split_once('.')?;
    Some((epoch.parse().ok()?, counter.parse().ok()?))
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A phone inside the company, identified by the part of its channel name after the slash, such as
/// `101` in `PJSIP/101-00000050`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extension(String);

impl Extension {
    /// Creates the extension with this name.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the extension's name, such as `101`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns `true` if the text can be the name of a trunk or PBX. Such names are used in call UUIDs,
/// tables, and metrics.
pub fn is_name(text: &str) -> bool {
    const CHARACTERS_MAX: usize = 64;
    !text.is_empty()
        && text.chars().count() <= CHARACTERS_MAX
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_ids_are_compared_as_two_integers() {
        let texts = [
            "pbx2-999999999.500",
            "pbx1-1795151317.99",
            "pbx1-1795151317.146",
            "torn",
        ];
        let ids = texts.map(|text| UniqueId::new(text).expect("not empty"));
        for pair in ids.windows(2) {
            assert!(pair[0].age() < pair[1].age(), "{pair:?}");
        }
    }
}
