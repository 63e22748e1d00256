//! The values that one lead must show, and their progress. This is pure data, stored as a row of
//! the spool.
//!
//! ```text
//! learn ▶ Waits ── sent ──▶ Sent ── written ──▶ Written
//!           ▲ ▲               │ ├── refused ──▶ GivenUp
//!   a newer │ └─ again, back ─┘ │
//!   call ───┴───────────────────┘
//! ```
//! Each value is stored with the start of its call. An older value never replaces a newer one, in
//! whatever order calls are journaled. Only one request is in flight, because a second one could be
//! carried out before the first.

use super::item::Given;
use super::{Item, Kind, Name, RefusedFields, RefusedPart, Settings};
use super::{catalog::Catalog, item};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::TokenFingerprint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time without an answer after which a write counts as lost. It is longer than any exchange.
pub const LOST: Duration = Duration::from_secs(120);
/// Time after which a request is due again that was stopped, but not because of its content.
pub const SOON: Duration = Duration::from_secs(15);
/// Time from the acceptance of a write to its first poll.
const FIRST_POLL: Duration = Duration::from_secs(2);
/// Time after which a requestId is no longer polled (§4.6: 24 hours).
const READABLE: Duration = Duration::from_secs(23 * 3600);
/// Tries of the same values before they are given up (§7.7: 3 to 5).
const TRIES_MAX: u32 = 5;

/// Age of a value's call: by its start, then by its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Order {
    /// Start of the call, which counts first.
    pub started: EpochSeconds,
    /// Row of the call in the spool, for calls of the same second.
    pub row: i64,
}

/// Progress of a value on its way into its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteState {
    Waits,
    /// The value is in the request in flight.
    Sent,
    /// The field has the value, or never had one that must be cleared.
    Written,
    /// The value was refused, failed too often, or cannot be written.
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The value as a text. `None` to clear the field.
    pub text: Option<String>,
    pub of: Order,
    pub state: WriteState,
}

/// A value, as it was when its request was made. The field can have a newer value by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub name: Name,
    pub of: Order,
}

/// The write in flight for a lead's fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    pub at: EventTime,
    /// The requestId, and the only token that can poll it. `None` until the CRM has accepted the
    /// write.
    pub accepted: Option<(String, TokenFingerprint)>,
    /// Number of polls that found the write unfinished.
    pub polls: u32,
    /// In the order of the request's list.
    pub items: Vec<(Name, Item)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NextAction {
    Write,
    /// A poll of the write in flight (§4.6).
    Poll,
}

impl NextAction {
    /// Returns the word that is stored for the action.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Values that one lead must show, and their write in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadFieldState {
    pub values: BTreeMap<Name, Shown>,
    /// The write in flight. Only one at a time.
    pub request: Option<Write>,
    /// Unsuccessful tries of the waiting values.
    pub tries: u32,
    /// Time before which nothing is done, in microseconds since the epoch.
    pub due: i64,
    /// A request of several values was refused, and the CRM did not say which value caused it. So
    /// each value is sent separately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl LeadFieldState {
    /// Sets the value of a journaled call, or clears it (`None`). Returns `false` if there is
    /// already a value of this call or of a newer call. A field that never had a value is not
    /// cleared.
    pub fn learn(&mut self, name: Name, text: Option<String>, of: Order) -> bool {
        let state = match self.values.get(&name) {
            None if text.is_none() => WriteState::Written,
            Some(known) if known.of >= of => return false,
            // The same text again need not be sent.
            Some(known) if known.text == text && known.state != WriteState::GivenUp => known.state,
            Some(_) | None => WriteState::Waits,
        };
        if state == WriteState::Waits {
            self.tries = 0;
        }
        self.values.insert(name, Shown { text, of, state });
        true
    }

    /// Returns the next request. `None` if nothing waits and no write is in flight.
    pub fn next_action(&self) -> Option<NextAction> {
        match &self.request {
            Some(write) if write.accepted.is_some() => Some(NextAction::Poll),
            Some(_) => Some(NextAction::Write),
            None if self.has(WriteState::Waits) => Some(NextAction::Write),
            None => None,
        }
    }

    /// Returns the start of the newest call of the values, in epoch seconds. 0 if there are no
    /// values.
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

    /// Makes the write that is due now: waiting values, and those of a lost request, for fields
    /// that can be written. Fields that were refused before are tried separately, after all others.
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

    /// Notes that this write is sent now, and returns how many values are given up because their
    /// fields cannot be written.
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

    /// Sets this state for the values of `parts` that are not finished and have no newer value.
    /// Returns how many values were set.
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

    /// Notes that the request was accepted (§4.4).
    pub fn note_accepted(&mut self, request_id: String, token: TokenFingerprint, now: EventTime) {
        if let Some(write) = &mut self.request {
            write.accepted = Some((request_id, token));
            self.due = now.plus(FIRST_POLL).micros();
        }
    }

    /// Notes that the write is polled. If there is no answer, the write is polled again after
    /// [`LOST`].
    pub fn note_polled(&mut self, now: EventTime) {
        self.due = now.plus(LOST).micros();
    }

    /// Notes that the write is unfinished, and sets the next poll: 3, 10, then every 60 s.
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

    /// Notes that the write is done, and returns how many values and which items it wrote.
    pub fn note_written(&mut self, now: EventTime) -> (u64, Vec<(Name, Item)>) {
        self.tries = 0;
        let written = self.all(WriteState::Sent, WriteState::Written);
        (written, self.finish(now))
    }

    /// Notes that the write is refused permanently, or FAILED. The items that caused the refusal
    /// are given up, and the other items are sent again. If the cause is not known, each item is
    /// sent separately. Returns how many values are given up, and the items that caused the
    /// refusal.
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

    /// Notes that it is not known whether the write was done. The write is sent again, because
    /// repeating a write changes nothing. Returns how many values are given up because this
    /// happened too often.
    pub fn again(&mut self, now: EventTime) -> u64 {
        self.all(WriteState::Sent, WriteState::Waits);
        self.finish(now);
        self.tries = self.tries.saturating_add(1);
        if self.tries >= TRIES_MAX {
            self.tries = 0;
            return self.all(WriteState::Waits, WriteState::GivenUp);
        }
        // Each wait is longer than a lost request can still be on its way.
        let wait = [15, 60, 300, 900][(self.tries as usize).saturating_sub(1).min(3)];
        self.due = now.plus(Duration::from_secs(wait)).micros();
        0
    }

    /// Notes that the write was not sent, but not because of its content. The write is due again
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

/// Converts a value to the kind of its field.
fn convert(kind: Kind, value: &Shown) -> Given {
    let Some(text) = value.text.clone() else {
        return Given::Null;
    };
    match kind {
        Kind::Text => Given::Text(text),
        // The text of a time begins with its date. The text is not a number, so for a number the
        // call's start is sent instead.
        Kind::Date => Given::Text(text.chars().take(10).collect()),
        Kind::Number => Given::Number(text.parse().unwrap_or(value.of.started.get()).into()),
        Kind::Boolean => Given::Flag(text != "0"),
    }
}

/// A write of a lead's fields that is ready to send, and the values that are left out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldWrite {
    /// The values in the request, in the order of its list.
    pub sent: Vec<Part>,
    /// Waiting values whose fields cannot be written.
    pub left_out: Vec<Part>,
    /// One item per value in `sent`.
    pub items: Vec<Item>,
    /// The whole body: the items, in the wrapper if there is one.
    pub body: serde_json::Value,
}

#[cfg(test)]
#[path = "shows_tests.rs"]
mod tests;
