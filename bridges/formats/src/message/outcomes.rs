//! What became of calls, told to others who read the same stream, and to oneself when a state is
//! gone: `{"journaled":["UUID",…],"discarded":["UUID",…]}`. It comes after the calls it is about.
//!
//! A person may find that the CRM has lost a call, and take it in again: `"again":{"UUID":1}`, and
//! what becomes of it then has this number too: `"generations":{"UUID":1}`. What has a lower one,
//! or none, was told of the time before.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Calls that one message tells of at most.
pub const CALLS_MAX: usize = 5_000;

/// Calls by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Calls that stand in the CRM's journal.
    #[serde(default)]
    pub journaled: Vec<Uuid>,
    /// A person has given them up.
    #[serde(default)]
    pub discarded: Vec<Uuid>,
    /// Number of times taken in again, for those of the calls above that ever were.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub generations: BTreeMap<Uuid, u32>,
    /// The CRM has lost them: they were taken in again, for the how manieth time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub again: BTreeMap<Uuid, u32>,
}

impl Outcomes {
    /// Reads a message from its JSON.
    ///
    /// # Errors
    /// What is wrong with it, and what it may be.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(bytes).map_err(|error| {
            format!(
                "outcomes: they cannot be read ({error}); a message of them may be \
                 {{\"journaled\":[\"UUID\",…],\"discarded\":[\"UUID\",…]}}"
            )
        })?;
        let calls = read.calls();
        let words = || format!("outcomes: the message has {calls} calls; it may have {CALLS_MAX}");
        (calls <= CALLS_MAX).then_some(read).ok_or_else(words)
    }

    /// The message, as one line.
    pub fn write(&self) -> String {
        // Texts and numbers always serialize; as a value, so that keys are in their order.
        let value = serde_json::to_value(self).unwrap_or_default();
        value.to_string()
    }

    /// Number of calls that the message is about.
    pub fn calls(&self) -> usize {
        self.journaled.len() + self.discarded.len() + self.again.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_back_and_what_is_left_out_is_none() {
        let one = Uuid::from_u128(1);
        let told = Outcomes {
            journaled: vec![one, Uuid::from_u128(2)],
            discarded: vec![Uuid::from_u128(3)],
            generations: BTreeMap::from([(one, 1)]),
            again: BTreeMap::from([(Uuid::from_u128(4), 2)]),
        };
        assert_eq!(Outcomes::read(told.write().as_bytes()), Ok(told));
        let short = format!("{{\"journaled\":[\"{one}\"],\"later\":1}}");
        let read = Outcomes::read(short.as_bytes()).expect("read");
        assert_eq!((read.journaled, read.discarded), (vec![one], Vec::new()));
    }

    #[test]
    fn wrong_outcomes_say_what_they_may_be() {
        for wrong in ["", "[]x", "{\"journaled\":[7]}", "{\"journaled\":[\"no\"]}"] {
            let words = Outcomes::read(wrong.as_bytes()).expect_err(wrong);
            assert!(words.contains("; a message of them may be "), "{words}");
        }
        let many = Outcomes {
            journaled: vec![Uuid::from_u128(1); CALLS_MAX + 1],
            ..Outcomes::default()
        };
        let words = Outcomes::read(many.write().as_bytes()).expect_err("too many");
        assert!(words.contains("it may have 5000"), "{words}");
    }
}
