//! Compares the live channels known from events with the count in the switch's `HEARTBEAT` and with
//! the switch's channel list.
//!
//! The switch counts a channel from `CHANNEL_CREATE` until `CHANNEL_DESTROY`. Since an event may be
//! in transit when the switch counts, the count must differ twice in a row before the list is
//! requested. The list lags behind the events by up to 160 ms, so what has happened since the last
//! heartbeat is taken from the events.

use std::collections::HashSet;

/// Maximum number of live channels. Beyond that, nothing is compared.
const CHANNELS_MAX: usize = 100_000;
/// Number of consecutive heartbeats with a wrong count that cause the list to be requested.
const STRIKES: u8 = 2;

/// How many channels the list and the events disagree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Number of live channels whose creation was missed.
    pub births: usize,
    /// Number of channels whose end was missed.
    pub ends: usize,
}

/// The live channels known from the events of one connection.
#[derive(Debug, Default)]
pub(crate) struct LiveSessions {
    live: HashSet<Vec<u8>>,
    /// Channels created since the last heartbeat or the request for the list, whichever came first,
    /// since the list may not include them yet. `gone` holds the channels that have ended since
    /// then.
    born: HashSet<Vec<u8>>,
    gone: HashSet<Vec<u8>>,
    asked: bool,
    /// Whether a list has arrived. Until then, channels from before the connection aren't known.
    pub(crate) known: bool,
    strikes: u8,
}

impl LiveSessions {
    /// Adds a newly created channel. If there are too many channels, nothing is compared until the
    /// next list.
    pub(crate) fn note_birth(&mut self, id: &[u8]) {
        if self.live.len() >= CHANNELS_MAX {
            self.known = false;
            return;
        }
        self.live.insert(id.to_vec());
        if self.born.len() < CHANNELS_MAX {
            self.born.insert(id.to_vec());
        }
    }

    /// Removes a channel that has ended.
    pub(crate) fn note_end(&mut self, id: &[u8]) {
        self.live.remove(id);
        if self.gone.len() < CHANNELS_MAX {
            self.gone.insert(id.to_vec());
        }
    }

    /// Removes a listed channel that the switch no longer knows, since no event will report its
    /// end.
    pub(crate) fn note_not_live(&mut self, id: &[u8]) {
        self.live.remove(id);
    }

    /// Compares the switch's channel count with the known channels, returning `true` if the
    /// switch's list should be requested.
    pub(crate) fn note_count(&mut self, count: usize) -> bool {
        let differs = self.known && !self.asked && count != self.live.len();
        self.strikes = if differs { self.strikes + 1 } else { 0 };
        let asks = self.strikes >= STRIKES;
        if !asks && !self.asked {
            self.born.clear();
            self.gone.clear();
        }
        asks
    }

    /// Prepares for the list, which is about to be requested.
    pub(crate) fn note_request(&mut self) {
        self.asked = true;
        self.strikes = 0;
    }

    /// Sets the live channels to those in the list, and returns how the known channels differed.
    /// The first list never differs.
    pub(crate) fn compare_list(&mut self, ids: &[String]) -> Difference {
        let ids: HashSet<&[u8]> = ids.iter().map(String::as_bytes).collect();
        let mut difference = Difference::default();
        let before = self.live.len();
        let born = &self.born;
        let known = self.known;
        self.live
            .retain(|id| ids.contains(id.as_slice()) || born.contains(id));
        if known {
            difference.ends = before - self.live.len();
        }
        for id in ids {
            let unheard = !self.gone.contains(id) && self.live.insert(id.to_vec());
            difference.births += usize::from(unheard && known);
        }
        self.asked = false;
        self.known = true;
        difference
    }

    /// Processes a response that isn't a list. Nothing is compared until the next list.
    pub(crate) fn note_no_list(&mut self) {
        self.asked = false;
        self.known = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare_list(sessions: &mut LiveSessions, ids: &[&str]) -> Difference {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        sessions.compare_list(&ids)
    }

    #[test]
    fn first_channel_list_reports_no_difference() {
        let mut sessions = LiveSessions::default();
        sessions.note_request();
        sessions.note_birth(b"new");
        sessions.note_end(b"old");
        assert!(!sessions.note_count(7), "nothing is known yet");
        let first = compare_list(&mut sessions, &["old", "running"]);
        assert_eq!(first, Difference::default());
        // `old` ended after the switch created the list, and `new` was created after it.
        assert!(!sessions.note_count(2));
        assert_eq!(sessions.strikes, 0);
    }

    #[test]
    fn two_session_count_mismatches_request_channel_list() {
        let mut sessions = LiveSessions::default();
        sessions.note_request();
        compare_list(&mut sessions, &["a", "b"]);
        assert!(!sessions.note_count(3));
        assert!(!sessions.note_count(2), "it was on its way");
        assert!(!sessions.note_count(3));
        assert!(sessions.note_count(3));
        sessions.note_request();
        let found = compare_list(&mut sessions, &["a", "c", "d"]);
        assert_eq!((found.births, found.ends), (2, 1));
        assert!(!sessions.note_count(3) && !sessions.note_count(3));
        sessions.note_request();
        assert_eq!(
            compare_list(&mut sessions, &["a", "c", "d"]),
            Difference::default()
        );
    }

    #[test]
    fn list_that_trails_the_events_shows_no_difference() {
        let mut sessions = LiveSessions::default();
        sessions.note_request();
        compare_list(&mut sessions, &["a", "b", "lost"]);
        assert!(!sessions.note_count(9));
        sessions.note_birth(b"new");
        sessions.note_end(b"b");
        assert!(sessions.note_count(9));
        sessions.note_request();
        // The list still has `b`, and doesn't have `new` yet.
        let found = compare_list(&mut sessions, &["a", "b"]);
        assert_eq!((found.births, found.ends), (0, 1), "only `lost` is gone");
        assert!(!sessions.note_count(2), "`a` and `new`");
        assert_eq!(sessions.strikes, 0);
    }

    #[test]
    fn listed_channel_that_is_not_live_is_not_missed_later() {
        let mut sessions = LiveSessions::default();
        sessions.note_request();
        compare_list(&mut sessions, &["ghost", "running"]);
        sessions.note_not_live(b"ghost");
        assert!(!sessions.note_count(1) && !sessions.note_count(1));
        assert_eq!(sessions.strikes, 0);
    }

    #[test]
    fn session_counts_without_a_list_are_not_compared() {
        let mut sessions = LiveSessions::default();
        sessions.note_request();
        sessions.note_no_list();
        assert!(!sessions.note_count(5) && !sessions.note_count(5));
    }
}
