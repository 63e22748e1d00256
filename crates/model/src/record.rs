//! A call as the CRM's journal will have it, and its outcome.

use callbridge_call::{Direction, EpochSeconds, EventTime};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::fmt;

/// The idempotency key of a call (§2.6 `uuid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallUuid(pub uuid::Uuid);

impl fmt::Display for CallUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// A lead of the CRM (§2.5 `id`): a positive integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeadId(i64);

/// An employee of the CRM (§2.6 `employeeId`): a positive integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EmployeeId(i64);

macro_rules! positive_id {
    ($name:ident) => {
        impl $name {
            /// Wraps an id. `None` for zero and negative numbers.
            pub fn new(id: i64) -> Option<Self> {
                if id > 0 { Some(Self(id)) } else { None }
            }

            /// Reads an id that has only decimal digits. `None` otherwise.
            pub fn parse(text: &str) -> Option<Self> {
                let text = text.trim();
                if !text.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                text.parse().ok().and_then(Self::new)
            }

            /// Returns the id as the CRM's JSON has it.
            pub const fn get(self) -> i64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}
positive_id!(LeadId);
positive_id!(EmployeeId);

/// A phone number in E.164 with its plus: `+998901110001`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Phone(SmolStr);

impl Phone {
    /// Reads a number. `None` unless it is a plus and 3 to 15 digits.
    pub fn from_e164(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('+')?;
        let good = (3..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        good.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the digits as a number. No digit is lost, because no E.164 number begins with 0.
    /// Returns 0 for a damaged record.
    pub fn digits(&self) -> i64 {
        self.0.trim_start_matches('+').parse().unwrap_or_default()
    }

    /// Returns the number with these digits. `None` if there are too few or too many.
    pub fn from_digits(digits: i64) -> Option<Self> {
        Self::from_e164(&format!("+{digits}"))
    }

    /// Returns the last four digits for logs: `…0001`.
    pub fn masked(&self) -> String {
        let tail = self.0.get(self.0.len().saturating_sub(4)..);
        format!("…{}", tail.unwrap_or_default())
    }
}

/// A call with the fields of `explain --json`. The spool stores it in this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// The idempotency key. `None` for calls that are not journaled.
    pub uuid: Option<CallUuid>,
    /// The PBX's id of the call.
    pub linkedid: String,
    /// Id of the PBX (`--pbx-id`, `pbx=`).
    pub pbx: String,
    /// The direction, seen from the company.
    pub direction: Direction,
    /// Whether customer and company talked with each other.
    pub answered: bool,
    /// The lead that the call is attributed to.
    pub lead_id: Option<LeadId>,
    /// The rule or variable that gave the lead, as text: `variable LEAD_ID`. `None` without a lead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead_from: Option<String>,
    /// The customer's trunk, by its flag's name.
    pub trunk: Option<String>,
    /// The customer's number. `None` if it was hidden or is not valid.
    pub client_phone: Option<Phone>,
    /// The number that the customer of an inbound call dialed, as the PBX wrote it. Absent if it is
    /// not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did: Option<String>,
    /// The extension that the call is attributed to.
    pub employee: Option<String>,
    /// The CRM's employee at that extension, by the trunk's list. `None` if no list names an
    /// employee.
    pub employee_id: Option<EmployeeId>,
    /// Extensions in the order in which they talked with the customer.
    pub employees_in_order: Vec<String>,
    /// Epoch seconds (§2.6).
    pub started_at: EpochSeconds,
    /// Length of the whole call in seconds, at least 1.
    pub duration_sec: u32,
    /// Seconds of talk, at most `duration_sec`. 0 if not answered.
    pub talk_time_sec: u32,
    /// Events of the call are missing, so its facts are not certain.
    pub incomplete: bool,
    /// The call is known from CDRs only: no event of it was received.
    pub estimate: bool,
    /// A person's correction of the answer and the talk time. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<ByHand>,
}

impl CallRecord {
    /// Returns the customer's number, if known.
    pub fn phone(&self) -> Option<&str> {
        self.client_phone.as_ref().map(Phone::as_str)
    }

    /// Returns the record with the correction that a person made at the time `at`. The answer and
    /// the talk time that the PBX reported are kept in `by_hand`.
    ///
    /// # Errors
    /// A message, if the correction contradicts the record.
    pub fn correct_by_hand(&self, facts: SuppliedFacts, at: EpochSeconds) -> Result<Self, String> {
        let mut corrected = self.clone();
        if let Some(direction) = facts.direction {
            if self.direction != Direction::Unknown && self.direction != direction {
                let known = self.direction.word();
                return Err(format!("its direction is known: {known}"));
            }
            corrected.direction = direction;
        }
        if facts.answered.is_none() && facts.talk_sec.is_none() {
            return Ok(corrected);
        }
        let talked = facts.talk_sec.filter(|talk| *talk > 0);
        let answered = facts.answered.unwrap_or(talked.is_some() || self.answered);
        if !answered && let Some(talk) = talked {
            return Err(format!("{talk} s of talk in a call that was not answered"));
        }
        let talk = if answered {
            facts.talk_sec.unwrap_or(self.talk_time_sec)
        } else {
            0
        };
        if talk > self.duration_sec {
            let whole = self.duration_sec;
            return Err(format!("{talk} s of talk in a call of {whole} s"));
        }
        let reported = self.by_hand.unwrap_or(ByHand {
            at,
            reported_answered: self.answered,
            reported_talk_sec: self.talk_time_sec,
        });
        Ok(Self {
            answered,
            talk_time_sec: talk,
            by_hand: Some(ByHand { at, ..reported }),
            ..corrected
        })
    }

    /// Describes a call that a person corrected: `answered, 80 s of talk; the PBX reported: not
    /// answered`.
    pub fn by_hand_message(&self) -> Option<String> {
        let by_hand = self.by_hand.as_ref()?;
        let now = talk_message(self.answered, self.talk_time_sec);
        let before = talk_message(by_hand.reported_answered, by_hand.reported_talk_sec);
        Some(format!("{now}; the PBX reported: {before}"))
    }
}

fn talk_message(answered: bool, talk_sec: u32) -> String {
    if answered {
        format!("answered, {talk_sec} s of talk")
    } else {
        "not answered".to_owned()
    }
}

/// Facts that a person supplies for a call that lacks them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppliedFacts {
    /// Customer and company talked. Set automatically if the talk time is not 0.
    pub answered: Option<bool>,
    /// Seconds of talk. `None` keeps the value of the record.
    pub talk_sec: Option<u32>,
    /// The direction of a call whose direction is unknown. `None` keeps the value of the record.
    pub direction: Option<Direction>,
}

/// A person's correction of a call: its time, and the values that the PBX had reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ByHand {
    /// Epoch seconds.
    pub at: EpochSeconds,
    pub reported_answered: bool,
    /// Seconds of talk, as the PBX reported them.
    pub reported_talk_sec: u32,
}

/// Destination of a finished call: the journal, the dead letters, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Journal,
    /// The call becomes a dead letter or, as with [`Reason::NoLead`], a waiting call.
    DeadLetter,
    /// A call between extensions: counted, not journaled.
    Internal,
    /// The call is left out by `journal=no` or `unanswered=no`, or is before `--not-before`.
    Skipped,
}

impl Outcome {
    /// Returns `true` if the call is stored, to be sent or as a dead letter.
    pub const fn is_kept(self) -> bool {
        matches!(self, Self::Journal | Self::DeadLetter)
    }
}

/// Why a call is a dead letter or waits. The words are stored and shown, so they must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr, strum::VariantArray, strum::EnumString, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// No rule gives a lead. The call waits until one does, for at most 30 days.
    NoLead,
    /// Two leads claim the call's phone number.
    AmbiguousLead,
    /// The asynchronous write ended `FAILED` (§3.2).
    Failed,
    /// The CRM refused the call with 400 (§7.3).
    Rejected,
    /// The CRM refused the call with 409 (§7.3).
    Conflict,
    /// Another call has the same uuid.
    UuidConflict,
    /// The CRM failed on this call while it accepted other calls.
    ServerError,
    /// It is no longer possible to find out whether the CRM wrote the call.
    Unconfirmed,
    Incomplete,
    /// The talk time is longer than the whole call.
    TalkExceedsDuration,
    /// The start is before 2000 or in the future.
    InvalidEpoch,
    /// The bytes of the source cannot be read.
    Unreadable,
    /// The extension has no employee, and `--require-employee` requires an employee. The call
    /// waits.
    NoEmployee,
}

impl Reason {
    /// All reasons in the order of the documentation.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the name that is stored and shown: `no_lead`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the reason of a stored name. `None` for an unknown name.
    pub fn from_word(word: &str) -> Option<Self> {
        word.parse().ok()
    }

    /// Returns `true` if the call is waiting, not dead: it is sent automatically when the missing
    /// lead or employee becomes known.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::NoLead | Self::NoEmployee)
    }
}

/// A call with its verdict, as the journal core returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The call. A dead letter has the best known values.
    pub record: CallRecord,
    pub outcome: Outcome,
    /// The reason for a dead letter or a waiting call. `None` for every other outcome.
    pub reason: Option<Reason>,
    /// Text for the reason, with the figures that decided it. Empty otherwise.
    pub message: String,
    /// The call was received live and not from a backlog, so it is sent before the backlog.
    pub live: bool,
    /// Messages about values that were clamped, converted or left out. Each is logged and counted.
    pub remarks: Vec<String>,
    /// Wall-clock time of the verdict.
    pub judged_at: EventTime,
    /// A customer called, no one answered, and `unanswered=no` keeps the call out of the journal.
    /// The customer still waits for a callback.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_out_unanswered: bool,
}

impl Judged {
    /// Makes a call for the journal, not live and without remarks.
    pub const fn journaled(record: CallRecord, judged_at: EventTime) -> Self {
        Self {
            record,
            outcome: Outcome::Journal,
            reason: None,
            message: String::new(),
            live: false,
            remarks: Vec::new(),
            judged_at,
            kept_out_unanswered: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_damaged_record_is_shown_without_a_panic() {
        for (stored, digits, masked) in [
            ("+998901110001", 998_901_110_001, "…0001"),
            ("", 0, "…"),
            ("+", 0, "…+"),
            ("ячё", 0, "…чё"),
            ("+99ёёё", 0, "…ёё"),
            ("+9ёё1", 0, "…"),
        ] {
            let phone: Phone = serde_json::from_value(stored.into()).expect("a text");
            assert_eq!((phone.digits(), &*phone.masked()), (digits, masked));
        }
    }
}
