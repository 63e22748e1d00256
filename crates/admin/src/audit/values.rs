//! Compares the values of one call in the PBX's file with the values that callbridge stored.
//!
//! Both sides are [`AuditedValues`]. The result is a list of [`ValueDifference`]s.

use callbridge_call::{Direction, EpochSeconds};
use callbridge_model::Zone;
use callbridge_spool::AuditedValues;
use serde::Serialize;

/// Seconds by which rounded times in files and events can differ.
const ROUNDING_SEC: i64 = 1;

/// A value that differs between the file and the stored call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "field", rename_all = "camelCase")]
pub enum ValueDifference {
    /// Epoch seconds.
    StartedAt(Both<EpochSeconds>),
    /// Seconds.
    DurationSec(Both<u32>),
    /// Seconds of talk with the customer.
    TalkTimeSec(Both<u32>),
    /// Whether an employee talked with the customer.
    Answered(Both<bool>),
    /// The direction as seen from the company.
    Direction(Both<Direction>),
    ClientPhone(Both<String>),
}

/// A value as callbridge stored it, and as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Both<T> {
    pub stored: T,
    pub file: T,
}

/// Returns the values that differ. Returns none if one side is incomplete, or if one of the calls
/// isn't a customer's: an eavesdropper's leg, for example, has a record of its own in the file, but
/// belongs to the customer's call here.
///
/// `has_late_end` is true for a file of Asterisk: only AMI sees the `HangupRequest` that ends a
/// call before a slow `h` extension, so the file can show a longer call.
///
/// CDRs count ringing in a queue and announcements as talk. If one side is an estimate from CDRs,
/// the talk of that side can therefore be longer. The direction is not compared then, because a CDR
/// of a call that the PBX placed looks like an inbound call.
pub fn differences(
    stored: &AuditedValues,
    file: &AuditedValues,
    has_late_end: bool,
) -> Vec<ValueDifference> {
    let mut found = Vec::new();
    let is_internal = [stored, file].map(|call| call.direction == Direction::Internal);
    if stored.incomplete || file.incomplete || is_internal.contains(&true) {
        return found;
    }
    let is_estimate = stored.estimate != file.estimate;
    if (stored.started.get() - file.started.get()).abs() > ROUNDING_SEC {
        let values = Both::new(stored.started, file.started);
        found.push(ValueDifference::StartedAt(values));
    }
    let longer = i64::from(file.duration_sec) - i64::from(stored.duration_sec);
    let is_late_end = longer > 0 && has_late_end && !stored.estimate;
    if longer.abs() > ROUNDING_SEC && !is_late_end {
        let values = Both::new(stored.duration_sec, file.duration_sec);
        found.push(ValueDifference::DurationSec(values));
    }
    if differs_in_talk(stored, file) {
        let values = Both::new(stored.talk_time_sec, file.talk_time_sec);
        found.push(ValueDifference::TalkTimeSec(values));
    }
    if differs_in_answer(stored, file) {
        let values = Both::new(stored.answered, file.answered);
        found.push(ValueDifference::Answered(values));
    }
    let has_same_direction = stored.direction == file.direction;
    if !has_same_direction && !is_estimate {
        let values = Both::new(stored.direction, file.direction);
        found.push(ValueDifference::Direction(values));
    }
    if let (Some(stored), Some(file)) = (&stored.phone, &file.phone)
        && has_same_direction
        && stored != file
    {
        let values = Both::new(stored.clone(), file.clone());
        found.push(ValueDifference::ClientPhone(values));
    }
    found
}

fn differs_in_talk(stored: &AuditedValues, file: &AuditedValues) -> bool {
    let longer = i64::from(file.talk_time_sec) - i64::from(stored.talk_time_sec);
    let is_estimated_talk = if longer > 0 {
        file.estimate && !stored.estimate
    } else {
        stored.estimate && !file.estimate
    };
    longer.abs() > ROUNDING_SEC && !is_estimated_talk
}

fn differs_in_answer(stored: &AuditedValues, file: &AuditedValues) -> bool {
    if stored.answered == file.answered {
        return false;
    }
    let (answered, unanswered) = if stored.answered {
        (stored, file)
    } else {
        (file, stored)
    };
    // An answer needs half a second of talk, and rounding can hide that talk.
    let is_rounding = i64::from(answered.talk_time_sec) <= ROUNDING_SEC;
    let is_estimated_talk = answered.estimate && !unanswered.estimate;
    !is_rounding && !is_estimated_talk
}

impl<T> Both<T> {
    const fn new(stored: T, file: T) -> Self {
        Self { stored, file }
    }
}

impl<T: ToString> Both<T> {
    fn to_text(&self, field: &str) -> String {
        let stored = self.stored.to_string();
        let file = self.file.to_string();
        format!("{field}: callbridge has {stored}, the file has {file}")
    }
}

impl ValueDifference {
    /// Describes the difference in one line, with times in this zone.
    pub fn to_text(&self, zone: &Zone) -> String {
        match self {
            Self::StartedAt(values) => {
                let stored = zone.second(values.stored.get());
                let file = zone.second(values.file.get());
                Both::new(stored, file).to_text("start")
            }
            Self::DurationSec(values) => values.to_text("duration in seconds"),
            Self::TalkTimeSec(values) => values.to_text("talk in seconds"),
            Self::Answered(values) => values.to_text("answered"),
            Self::Direction(values) => {
                Both::new(values.stored.word(), values.file.word()).to_text("direction")
            }
            Self::ClientPhone(values) => values.to_text("number"),
        }
    }
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
