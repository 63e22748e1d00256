//! What one lead is to show, and how far that is: pure, a row of the spool.
//!
//! ```text
//! learn ▶ Waits ── sent ──▶ Sent ── written ──▶ Written
//!           ▲ ▲               │ ├── refused ──▶ GivenUp
//!   a newer │ └─ again, back ─┘ │
//!   call ───┴───────────────────┘
//! ```
//! A value is known by the start of its call: an older one never takes its place, whatever order
//! calls are journaled in. One request at a time: a second could be carried out before the first.

use super::item::Given;
use super::{Field, Item, Kind, Name, RefusedFields, RefusedPart, Settings};
use super::{catalogue::Catalogue, item};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::TokenFingerprint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time without an answer after which a write is taken to be lost: longer than any exchange lasts.
pub const LOST: Duration = Duration::from_secs(120);
/// Wait of a request that was stopped by no fault of its own.
pub const SOON: Duration = Duration::from_secs(15);
/// Time from the acceptance of a write to its first poll.
const FIRST_POLL: Duration = Duration::from_secs(2);
/// No requestId is asked with after so long (§4.6: 24 hours).
const READABLE: Duration = Duration::from_secs(23 * 3600);
/// Tries of the same values before they are given up (§7.7: 3 to 5).
const TRIES_MAX: u32 = 5;

/// Age of the call that a value is of: by its start, then by its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Order {
    /// Start of the call, which counts first.
    pub started: EpochSeconds,
    /// Row of the call in the spool, which decides between calls of one second.
    pub row: i64,
}

/// Progress of a value on its way into its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteState {
    /// The value is to be written.
    Waits,
    /// The value is in the request under way.
    Sent,
    /// The field has the value, or never had one that must be cleared.
    Written,
    /// The value was refused, tried in vain too often, or left out as not writable.
    GivenUp,
}

/// A value and its call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The value as a text; `None` where the field is cleared.
    pub text: Option<String>,
    /// The call that the value is of.
    pub of: Order,
    /// Progress of the value on its way into its field.
    pub state: WriteState,
}

/// A value as it stood when a request was made of it: a newer one may have come since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Name whose field the value is for.
    pub name: Name,
    /// Call that the value is of.
    pub of: Order,
}

/// The write under way for a lead's fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Moment at which it was sent.
    pub at: EventTime,
    /// The requestId, and the only token that can read it; `None` before the answer.
    pub accepted: Option<(String, TokenFingerprint)>,
    /// Polls so far that found the write not carried out.
    pub polls: u32,
    /// Items in the order of the request's list; empty in a request of an older version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<(Name, Item)>,
}

/// Request that a lead's fields need next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NextAction {
    /// A write of the values that wait.
    Write,
    /// A poll of the write under way (§4.6).
    Poll,
}

impl NextAction {
    /// Returns the word under which the action is stored.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Values that one lead is to show, and the write that is under way for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadFieldState {
    /// Newest value of each name, with its call.
    pub values: BTreeMap<Name, Shown>,
    /// The write under way; one request at a time.
    pub request: Option<Write>,
    /// Tries of the waiting values without success.
    pub tries: u32,
    /// Moment before which nothing is done, in microseconds.
    pub due: i64,
    /// A request of several values was refused, and nothing said which: each waits for its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl LeadFieldState {
    /// Takes the value of a journaled call in, or its end (`None`); `false` where there is one of a
    /// newer call already. A field of which nothing is known is not cleared.
    pub fn learn(&mut self, name: Name, text: Option<String>, of: Order) -> bool {
        let state = match self.values.get(&name) {
            None if text.is_none() => WriteState::Written,
            Some(known) if known.of >= of => return false,
            // the same text once more: nothing has to be sent for it
            Some(known) if known.text == text && known.state != WriteState::GivenUp => known.state,
            Some(_) | None => WriteState::Waits,
        };
        if state == WriteState::Waits {
            self.tries = 0;
        }
        self.values.insert(name, Shown { text, of, state });
        true
    }

    /// Returns the request that is needed next; `None` where nothing waits and no write is under
    /// way.
    pub fn asks(&self) -> Option<NextAction> {
        match &self.request {
            Some(write) if write.accepted.is_some() => Some(NextAction::Poll),
            Some(_) => Some(NextAction::Write),
            None => self.has(WriteState::Waits).then_some(NextAction::Write),
        }
    }

    /// Start of the newest call that a value is of, in epoch seconds; 0 without any.
    pub fn newest(&self) -> i64 {
        let started = self.values.values().map(|it| it.of.started.get());
        started.max().unwrap_or(0)
    }

    fn has(&self, state: WriteState) -> bool {
        self.values.values().any(|it| it.state == state)
    }

    fn all(&mut self, from: WriteState, to: WriteState) -> u64 {
        let found = self.values.values_mut().filter(|it| it.state == from);
        found.map(|it| it.state = to).count() as u64
    }

    /// Makes the write that is due now: waiting values, and those of a request that was lost, of
    /// fields that can be written. Fields that were refused before are tried alone, after all else.
    pub fn write(
        &self,
        settings: &Settings,
        catalogue: &Catalogue,
        refused: &RefusedFields,
        now: EventTime,
    ) -> FieldWrite {
        let pending = |it: &&Shown| matches!(it.state, WriteState::Waits | WriteState::Sent);
        let (mut left_out, mut parts) = (Vec::new(), Vec::new());
        for (name, value) in self.values.iter().filter(|(_, it)| pending(it)) {
            let (name, of) = (*name, value.of);
            let is_writable = |field: &&Field| {
                catalogue.fit(field.id).is_writable() && !refused.rests(name, **field, now)
            };
            match settings.fields.get(&name).filter(is_writable) {
                Some(field) => {
                    let (id, given) = (field.id, given(field.kind, value));
                    let doubted = refused.is_refused(name, *field);
                    parts.push((doubted, Part { name, of }, Item { id, given }));
                }
                None => left_out.push(Part { name, of }),
            }
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

    /// Notes that this write is sent now, and returns how many values are left out.
    pub fn sent(&mut self, write: &FieldWrite, now: EventTime) -> u64 {
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

    /// Puts those of the values that are still the same into this state, and returns how many.
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
    pub fn accepted(&mut self, request_id: String, token: TokenFingerprint, now: EventTime) {
        if let Some(write) = &mut self.request {
            write.accepted = Some((request_id, token));
            self.due = now.plus(FIRST_POLL).micros();
        }
    }

    /// Notes that the write is polled: if the answer stays out, again after [`LOST`].
    pub fn asked(&mut self, now: EventTime) {
        self.due = now.plus(LOST).micros();
    }

    /// Notes that the write is not carried out yet, and sets the next poll: 3, 10, then every 60 s.
    pub fn not_yet(&mut self, now: EventTime) {
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

    /// Notes that the write is carried out, and returns how many values, and what it wrote.
    pub fn written(&mut self, now: EventTime) -> (u64, Vec<(Name, Item)>) {
        self.tries = 0;
        let written = self.all(WriteState::Sent, WriteState::Written);
        (written, self.ended(now))
    }

    /// Notes that the write is refused for good, or FAILED. The items to blame are given up, and
    /// the rest goes once more; where nothing says which it was, each alone. Returns how many
    /// values are given up, and the items to blame.
    pub fn refused(&mut self, blames: &RefusedPart, now: EventTime) -> (u64, Vec<(Name, Item)>) {
        self.tries = 0;
        let items = self.request.as_ref().map_or(&[][..], |it| &it.items);
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
        let of_older_version = items.is_empty();
        let mut given_up = 0;
        for (name, value) in &mut self.values {
            let mine = of_older_version || blamed.iter().any(|(blamed, _)| blamed == name);
            if mine && value.state == WriteState::Sent {
                value.state = WriteState::GivenUp;
                given_up += 1;
            }
        }
        self.all(WriteState::Sent, WriteState::Waits);
        self.ended(now);
        (given_up, blamed)
    }

    /// Notes that nobody knows whether the write was carried out: written once more, for that
    /// changes nothing. Returns how many values are given up because it went so time and again.
    pub fn again(&mut self, now: EventTime) -> u64 {
        self.all(WriteState::Sent, WriteState::Waits);
        self.ended(now);
        self.tries = self.tries.saturating_add(1);
        if self.tries >= TRIES_MAX {
            self.tries = 0;
            return self.all(WriteState::Waits, WriteState::GivenUp);
        }
        // longer than what was lost may still be on its way
        let wait = [15, 60, 300, 900][(self.tries as usize).saturating_sub(1).min(3)];
        self.due = now.plus(Duration::from_secs(wait)).micros();
        0
    }

    /// Notes that the write was not sent after all, through no fault of its own: due again after
    /// [`SOON`].
    pub fn back(&mut self, now: EventTime) {
        self.all(WriteState::Sent, WriteState::Waits);
        self.ended(now.plus(SOON));
    }

    fn ended(&mut self, now: EventTime) -> Vec<(Name, Item)> {
        self.due = now.micros();
        self.alone &= self.has(WriteState::Waits);
        self.request.take().map_or_else(Vec::new, |it| it.items)
    }
}

/// Writes a value as its field takes it.
fn given(kind: Kind, value: &Shown) -> Given {
    let Some(text) = value.text.clone() else {
        return Given::Null;
    };
    match kind {
        Kind::Text => Given::Text(text),
        // A time begins with its day, and is no number: the start that it tells is.
        Kind::Date => Given::Text(text.chars().take(10).collect()),
        Kind::Number => Given::Number(text.parse().unwrap_or(value.of.started.get()).into()),
        Kind::Boolean => Given::Flag(text != "0"),
    }
}

/// Write of a lead's fields, ready to be sent, and what it leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldWrite {
    /// Values in the write, in the order of its list.
    pub sent: Vec<Part>,
    /// Values that wait, and whose fields cannot be written.
    pub left_out: Vec<Part>,
    /// Items of the list, one for each value in `sent`.
    pub items: Vec<Item>,
    /// The whole body: the items, in the wrapper if there is one.
    pub body: serde_json::Value,
}

#[cfg(test)]
#[path = "shows_tests.rs"]
mod tests;
