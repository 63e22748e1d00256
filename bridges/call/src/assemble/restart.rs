//! Detects restarts of Asterisk by its unique IDs, and ends the calls that were open at that time
//! as incomplete.
//!
//! With a CEL file or queue, there's no connection whose loss would reveal a restart, and when
//! Asterisk is killed, it doesn't send any events for the end of its calls. A recording of a
//! connection does show a new login, but not when it took place.
//!
//! ```text
//! ids    1000.7  1060.8  ── killed ──  1100.0  1105.1      the counter starts over
//! open call 1000.7  ├────── ended at its last event, incomplete
//! ```
//! The counter in an ID only ever increases during the life of a process, so an ID with a later
//! second but a lower counter than the newest ID must belong to another process. Events that arrive
//! late or in reverse order are inconclusive, because their IDs have earlier seconds.

use super::Assembler;
use crate::facts::OpenCall;
use crate::{ChannelEvent, EventTime, Kind, Origin};
use std::collections::BTreeMap;

/// Two threads of a process can create IDs whose seconds and counters are in opposite order. Such
/// IDs are less than this many seconds apart.
const SAME_MOMENT: u64 = 2;
/// Maximum number of system names to track.
const SYSTEMS_MAX: usize = 64;

/// The newest ID for each system name, by second and counter.
#[derive(Debug, Default)]
pub(super) struct NewestIds {
    ids: BTreeMap<String, (u64, u64)>,
    /// Whether channel events have also been received, which means that the stream isn't CEL only.
    has_channel_events: bool,
    /// Whether no channel has been created since the last login.
    has_new_login: bool,
}

/// A restart that's proven by an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProvedRestart {
    /// Second of the previous process's newest ID.
    last: u64,
    /// Second of the new process's first ID.
    began: u64,
}

impl NewestIds {
    /// Compares an ID with the newest one, and returns the restart that it proves, if any.
    fn compare(&self, id: &str) -> Option<ProvedRestart> {
        let (system, began, counter) = parts(id)?;
        let (last, highest) = *self.ids.get(system)?;
        let is_restart = began >= last.saturating_add(SAME_MOMENT) && counter < highest;
        if is_restart {
            Some(ProvedRestart { last, began })
        } else {
            None
        }
    }

    /// Records that a connection was opened, since the PBX may have been restarted before that.
    pub(super) fn note_login(&mut self) {
        self.has_new_login = true;
    }

    /// Records that the PBX's uptime already shows whether it was restarted, so there's no need to
    /// infer it from IDs.
    pub(super) fn note_no_restart(&mut self) {
        self.has_new_login = false;
    }

    /// Makes this ID the newest one if it has a later second or a higher counter.
    pub(super) fn note(&mut self, id: &str) {
        let Some((system, second, counter)) = parts(id) else {
            return;
        };
        if let Some(newest) = self.ids.get_mut(system) {
            let is_of_one_moment = second < newest.0.saturating_add(SAME_MOMENT);
            let is_newer = second > newest.0 || (second == newest.0 && counter > newest.1);
            if is_newer && !(is_of_one_moment && counter < newest.1) {
                *newest = (second, counter);
            }
        } else if self.ids.len() < SYSTEMS_MAX {
            self.ids.insert(system.to_owned(), (second, counter));
        }
    }
}

/// Splits `[system-]second.counter` into system name, second, and counter.
fn parts(id: &str) -> Option<(&str, u64, u64)> {
    let (system, tail) = id.rsplit_once('-').unwrap_or(("", id));
    let (second, counter) = tail.split_once('.')?;
    Some((system, second.parse().ok()?, counter.parse().ok()?))
}

impl OpenCall {
    /// Returns `true` if every channel of the call was created before the restart, judging by their
    /// IDs.
    ///
    /// IDs chosen through an API are inconclusive, so a call that has no others is included only if
    /// the stream comes from a single PBX (`is_of_one`).
    fn is_before(&self, system: &str, restart: ProvedRestart, is_of_one: bool) -> bool {
        let mut made = self
            .legs
            .keys()
            .filter_map(|id| parts(id.as_str()))
            .peekable();
        (is_of_one || made.peek().is_some())
            && made.all(|(of, second, _)| of == system && second <= restart.last)
    }
}

impl Assembler {
    /// Ends the previous process's calls if this event's ID reveals a restart, unless one of those
    /// calls has had an event since.
    ///
    /// A connection with channel events can only have missed a restart before its login, so in that
    /// case only the first channel created after each login is checked.
    pub(super) fn look_for_restart(&mut self, event: &ChannelEvent<'_>, arrived: EventTime) {
        self.newest_ids.has_channel_events |= event.origin != Origin::Cel;
        let is_of_one = self.newest_ids.has_channel_events;
        let id = event.channel.uniqueid.as_ref();
        let Some((system, ..)) = parts(id) else {
            return;
        };
        if is_of_one && !matches!(event.kind, Kind::Born { .. }) {
            return;
        }
        let restart = self.newest_ids.compare(id);
        self.newest_ids.note(id);
        if is_of_one && !std::mem::take(&mut self.newest_ids.has_new_login) {
            return;
        }
        let Some(restart) = restart else {
            return;
        };
        let began = EventTime::from_seconds(i64::try_from(restart.began).unwrap_or(i64::MAX));
        let is_before = |call: &OpenCall| call.is_before(system, restart, is_of_one);
        let going_on = self
            .calls
            .keys_of(|call| is_before(call) && !call.is_over() && call.times.latest >= began);
        if going_on.is_empty() {
            self.end_each(is_before, |call| call.end_with_process(None, arrived));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the IDs that show that the PBX was restarted.
    fn ids_that_show_restart(ids: &[&str]) -> Vec<String> {
        let mut newest = NewestIds::default();
        let mut found = Vec::new();
        for id in ids {
            if newest.compare(id).is_some() {
                found.push((*id).to_owned());
            }
            newest.note(id);
        }
        found
    }

    #[test]
    fn id_counter_that_starts_again_proves_a_pbx_restart() {
        assert_eq!(
            ids_that_show_restart(&["1000.7", "1060.8", "1100.0", "1105.1"]),
            ["1100.0"]
        );
        assert_eq!(
            ids_that_show_restart(&["a-1000.7", "a-1100.0", "b-1100.1"]),
            ["a-1100.0"]
        );
        // If the restart happens shortly after a call, it only shows up in the new process's second
        // ID.
        assert_eq!(
            ids_that_show_restart(&["1000.7", "1001.0", "1030.1", "1031.2"]),
            ["1030.1"]
        );
    }

    #[test]
    fn reordered_or_repeated_ids_prove_no_pbx_restart() {
        let reversed = [
            "1100.9", "1060.8", "1000.7", "1200.12", "1150.11", "1101.10",
        ];
        assert_eq!(ids_that_show_restart(&reversed), [""; 0]);
        // An old event is redelivered, or the IDs of two threads arrive in a different order.
        assert_eq!(
            ids_that_show_restart(&["1000.7", "1060.8", "1000.7", "1061.9"]),
            [""; 0]
        );
        assert_eq!(
            ids_that_show_restart(&["1000.7", "1001.6", "1002.8"]),
            [""; 0]
        );
        assert_eq!(
            ids_that_show_restart(&["deal-17", "x", "1000.7", "uuid.x"]),
            [""; 0]
        );
    }
}
