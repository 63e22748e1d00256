//! A gap that has ended, and when nobody listened to a PBX.

use callbridge_call::{EventTime, FinishedCall};
use std::collections::VecDeque;
use std::time::Duration;

/// The PBX's clock and ours may be so far apart.
const CLOCKS_APART: Duration = Duration::from_secs(5);

/// Times remembered of one PBX.
const TIMES_MAX: usize = 64;

/// A gap that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Source as its place is stored, `SourceSettings::shown`.
    pub source: String,
    /// The last event before it that is stored.
    pub from: EventTime,
    /// Moment from which events were received again.
    pub until: EventTime,
    /// Evidence of it in words, where the source is a stream that is not the one that was read;
    /// else `None`.
    pub why: Option<String>,
}

/// Spans in which nobody listened to a PBX, by our own clock.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// Since when, and until when.
    times: VecDeque<(EventTime, Option<EventTime>)>,
}

impl Outages {
    pub(super) fn begins(&mut self, since: EventTime) {
        if let Some((from, None)) = self.times.back_mut() {
            *from = since.min(*from);
            return;
        }
        if self.times.len() >= TIMES_MAX {
            self.times.pop_front();
        }
        self.times.push_back((since, None));
    }

    pub(super) fn ends(&mut self, now: EventTime) {
        if let Some((_, until)) = self.times.back_mut() {
            *until = until.or(Some(now));
        }
    }

    /// Nobody listened from the call's beginning to its end.
    pub(super) fn covers(&self, call: &FinishedCall) -> bool {
        self.times.iter().any(|(since, until)| {
            let ended = |until: EventTime| call.ended <= until.plus(CLOCKS_APART);
            call.started.plus(CLOCKS_APART) >= *since && until.is_none_or(ended)
        })
    }
}
