//! The values that one lead must show, and their progress. This is pure data, stored as a row in
//! the spool.
//!
//! ```text
//! learn ▶ Waits ── sent ──▶ Sent ── written ──▶ Written
//!           ▲ ▲               │ ├── refused ──▶ GivenUp
//!   a newer │ └─ again, back ─┘ │
//!   call ───┴───────────────────┘
//! ```
//! Each value is stored with the start of its call. An older value never replaces a newer one,
//! regardless of the order in which calls are journaled. Only one request is in flight at a time,
//! because a second one might be carried out before the first.

use super::item::Given;
use super::{Item, Kind, Name, RefusedFields, RefusedPart, Settings};
use super::{catalog::Catalog, item};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::TokenFingerprint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a write may go without a response before it's considered lost, which is longer than any
/// exchange takes.
pub const LOST: Duration = Duration::from_secs(120);
/// How long until a request is due again that was stopped for a reason other than its content.
pub const SOON: Duration = Duration::from_secs(15);
/// Time from the acceptance of a write to its first poll.
const FIRST_POLL: Duration = Duration::from_secs(2);
/// How long a requestId is polled (§4.6: 24 hours).
const READABLE: Duration = Duration::from_secs(23 * 3600);
/// Number of attempts to write the same values before they're given up (§7.7: 3 to 5).
const TRIES_MAX: u32 = 5;

/// The age of a value's call, which goes by its start and then by its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Order {
    /// When the call started, which is compared first.
    pub started: EpochSeconds,
    /// The call's row in the spool, for calls that started in the same second.
    pub row: i64,
}

/// A value's progress on its way into its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteState {
    Waits,
    /// The value is in the request in flight.
    Sent,
    /// The field has the value, or never had one that would need to be cleared.
    Written,
    /// The value was rejected, failed too often, or can't be written.
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The value as text, or `None` to clear the field.
    pub text: Option<String>,
    pub of: Order,
    pub state: WriteState,
}

/// A value as it was when its request was created. The field's value may be newer by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: Name,
    pub of: Order,
}

/// The write in flight for a lead's fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    pub at: EventTime,
    /// The requestId and the only token that can poll it, or `None` until the CRM has accepted the
    /// write.
    pub accepted: Option<(String, TokenFingerprint)>,
    /// Number of polls that found the write unfinished.
    pub polls: u32,
    /// The items in the order of the request's list.
    pub items: Vec<(Name, Item)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NextAction {
    Write,
    /// Poll the write in flight (§4.6).
    Poll,
}

impl NextAction {
    /// Returns the word stored for the action.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The values that one lead must show, and their write in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadFieldState {
    pub values: BTreeMap<Name, Shown>,
    /// The write in flight, of which there's only one at a time.
    pub request: Option<Write>,
    /// Number of failed attempts for the waiting values.
    pub tries: u32,
    /// Time before which nothing is done, in microseconds since the epoch.
    pub due: i64,
    /// Whether each value is sent separately, because a request with several values was rejected
    /// and the CRM didn't say which one caused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl LeadFieldState {
    /// Sets a journaled call's value, or clears it if it's `None`. Returns `false` if there's
    /// already a value from this call or a newer one. A field that never had a value isn't cleared.
    pub fn learn(&mut self, name: Name, text: Option<String>, of: Order) -> bool {
        let state = match self.values.get(&name) {
            None if text.is_none() => WriteState::Written,
            Some(known) if known.of >= of => return false,
            // The same text doesn't need to be sent again.
            Some(known) if known.text == text && known.state != WriteState::GivenUp => known.state,
            Some(_) | None => WriteState::Waits,
        };
        if state == WriteState::Waits {
            self.tries = 0;
        }
        self.values.insert(name, Shown { text, of, state });
        true
    }

    /// Returns the next request, or `None` if nothing is waiting and no write is in flight.
    pub fn next_action(&self) -> Option<NextAction> {
        match &self.request {
            Some(write) if write.accepted.is_some() => Some(NextAction::Poll),
            Some(_) => Some(NextAction::Write),
            None if self.has(WriteState::Waits) => Some(NextAction::Write),
            None => None,
        }
    }

    /// Returns the start of the newest call that any of the values comes from, in epoch seconds, or
    /// 0 if there are no values.
    pub fn newest(&self) -> i64 {
        let started = self.values.values().map(|value| value.of.started.get());
        started.max().unwrap_or(0)
    }

    fn has(&self, state: WriteState) -> bool {
        self.values.values().any(|value| value.state == state)
    }

    fn all(&mut self, from: WriteState, to: WriteState) -> u64 {
        let found = self.values.values_mut().filter(|value| value.state == from);
        found.map(|value| value.state = to).count() as u64
    }

    /// Creates the write that's due now, which contains the waiting values and those of a lost
    /// request, for fields that can be written. Fields that were rejected before are tried
    /// separately, after all others.
    pub fn write(
        &self,
        settings: &Settings,
        catalog: &Catalog,
        refused: &RefusedFields,
        now: EventTime,
    ) -> FieldWrite {
        let mut left_out = Vec::new();
        let mut parts = Vec::new();
        for (name, value) in &self.values {
            if !matches!(value.state, WriteState::Waits | WriteState::Sent) {
                continue;
            }
            let part = Part {
                name: *name,
                of: value.of,
            };
            let writable = settings.fields.get(name).filter(|field| {
                catalog.fit(field.id).is_writable() && !refused.is_resting(*name, **field, now)
            });
            let Some(field) = writable else {
                left_out.push(part);
                continue;
            };
            let item = Item {
                id: field.id,
                given: convert(field.kind, value),
            };
            let doubted = refused.is_refused(*name, *field);
            parts.push((doubted, part, item));
        }
        parts.sort_by_key(|(doubted, ..)| *doubted);
        let trusted = parts.iter().filter(|(doubted, ..)| !doubted).count();
        parts.truncate(if self.alone { 1 } else { trusted.max(1) });
        let parts = parts.into_iter().map(|(_, part, item)| (part, item));
        let (sent, items): (Vec<_>, Vec<_>) = parts.unzip();
        let body = item::body(&items, settings.wrapper.as_deref());
        FieldWrite {
            sent,
            left_out,
            items,
            body,
        }
    }

    /// Records that this write is being sent now, and returns how many values are given up because
    /// their fields can't be written.
    pub fn note_sent(&mut self, write: &FieldWrite, now: EventTime) -> u64 {
        self.all(WriteState::Sent, WriteState::Waits);
        self.stand(&write.sent, WriteState::Sent);
        let left_out = self.stand(&write.left_out, WriteState::GivenUp);
        let names = write.sent.iter().map(|part| part.name);
        self.request = (!write.sent.is_empty()).then(|| Write {
            at: now,
            accepted: None,
            polls: 0,
            items: names.zip(write.items.iter().cloned()).collect(),
        });
        let lost_after = self.request.as_ref().map_or(Duration::ZERO, |_| LOST);
        self.due = now.plus(lost_after).micros();
        left_out
    }

    /// Sets this state for those values in `parts` that aren't finished and haven't been replaced
    /// by a newer one. Returns how many values were set.
    fn stand(&mut self, parts: &[Part], state: WriteState) -> u64 {
        let mut count = 0;
        for part in parts {
            if let Some(value) = self.values.get_mut(&part.name)
                && value.of == part.of
                && matches!(value.state, WriteState::Waits | WriteState::Sent)
            {
                value.state = state;
                count += 1;
            }
        }
        count
    }

    /// Records that the request was accepted (§4.4).
    pub fn note_accepted(&mut self, request_id: String, token: TokenFingerprint, now: EventTime) {
        if let Some(write) = &mut self.request {
            write.accepted = Some((request_id, token));
            self.due = now.plus(FIRST_POLL).micros();
        }
    }

    /// Records that the write is being polled. If there's no response, it's polled again after
    /// [`LOST`].
    pub fn note_polled(&mut self, now: EventTime) {
        self.due = now.plus(LOST).micros();
    }

    /// Records that the write is unfinished, and schedules the next poll after 3 s, then 10 s, then
    /// every 60 s.
    pub fn note_unfinished(&mut self, now: EventTime) {
        let Some(write) = &mut self.request else {
            return;
        };
        if now.since(write.at) >= READABLE {
            self.again(now);
            return;
        }
        write.polls = write.polls.saturating_add(1);
        let wait = match write.polls {
            0 | 1 => 3,
            2 => 10,
            3.. => 60,
        };
        self.due = now.plus(Duration::from_secs(wait)).micros();
    }

    /// Records that the write is done, and returns how many values and which items were written.
    pub fn note_written(&mut self, now: EventTime) -> (u64, Vec<(Name, Item)>) {
        self.tries = 0;
        let written = self.all(WriteState::Sent, WriteState::Written);
        (written, self.finish(now))
    }

    /// Records that the write was permanently rejected, or FAILED. The items that caused this are
    /// given up, and the others are sent again, each of them separately if the cause isn't known.
    /// Returns how many values are given up, and the items that caused the rejection.
    pub fn note_refused(
        &mut self,
        blames: &RefusedPart,
        now: EventTime,
    ) -> (u64, Vec<(Name, Item)>) {
        self.tries = 0;
        let items = self.request.as_ref().map_or(&[][..], |write| &write.items);
        let places = match blames {
            RefusedPart::Items(places) => &places[..],
            RefusedPart::SomeItem | RefusedPart::ItemOrLead => &[],
        };
        let mut blamed: Vec<_> = places
            .iter()
            .filter_map(|at| items.get(*at).cloned())
            .collect();
        if blamed.is_empty() && items.len() == 1 {
            blamed = items.to_vec();
        }
        self.alone |= blamed.is_empty();
        let mut given_up = 0;
        for (name, value) in &mut self.values {
            let is_blamed = blamed.iter().any(|(blamed, _)| blamed == name);
            if is_blamed && value.state == WriteState::Sent {
                value.state = WriteState::GivenUp;
                given_up += 1;
            }
        }
        self.all(WriteState::Sent, WriteState::Waits);
        self.finish(now);
        (given_up, blamed)
    }

    /// Records that it isn't known whether the write was done. It's sent again, because repeating a
    /// write doesn't change anything. Returns how many values are given up because this has
    /// happened too often.
    pub fn again(&mut self, now: EventTime) -> u64 {
        self.all(WriteState::Sent, WriteState::Waits);
        self.finish(now);
        self.tries = self.tries.saturating_add(1);
        if self.tries >= TRIES_MAX {
            self.tries = 0;
            return self.all(WriteState::Waits, WriteState::GivenUp);
        }
        // Each wait is longer than a lost request can still be in transit.
        let wait = [15, 60, 300, 900][(self.tries as usize).saturating_sub(1).min(3)];
        self.due = now.plus(Duration::from_secs(wait)).micros();
        0
    }

    /// Records that the write wasn't sent, for a reason other than its content. It's due again
    /// after [`SOON`].
    pub fn back(&mut self, now: EventTime) {
        self.all(WriteState::Sent, WriteState::Waits);
        self.finish(now.plus(SOON));
    }

    fn finish(&mut self, now: EventTime) -> Vec<(Name, Item)> {
        self.due = now.micros();
        self.alone &= self.has(WriteState::Waits);
        self.request
            .take()
            .map_or_else(Vec::new, |write| write.items)
    }
}

/// Converts a value to its field's kind.
fn convert(kind: Kind, value: &Shown) -> Given {
    let Some(text) = value.text.clone() else {
        return Given::Null;
    };
    match kind {
        Kind::Text => Given::Text(text),
        // The text of a time starts with its date, but isn't a number, so for a number, the start
        // of the call is sent instead.
        Kind::Date => Given::Text(text.chars().take(10).collect()),
        Kind::Number => Given::Number(text.parse().unwrap_or(value.of.started.get()).into()),
        Kind::Boolean => Given::Flag(text != "0"),
    }
}

/// A write to a lead's fields that's ready to send, along with the values that it omits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldWrite {
    /// The values in the request, in the order of its list.
    pub sent: Vec<Part>,
    /// Waiting values whose fields can't be written.
    pub left_out: Vec<Part>,
    /// One item for each value in `sent`.
    pub items: Vec<Item>,
    /// The complete body, which consists of the items, in the wrapper if there is one.
    pub body: serde_json::Value,
}

#[cfg(test)]
#[path = "shows_tests.rs"]
mod tests;
