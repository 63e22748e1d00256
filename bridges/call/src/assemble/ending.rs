//! Decides when an open call is over, and finishes it.

use super::Assembler;
use super::calls::{CALL_BYTES_MAX, OpenCalls};
use super::settling::Deadline;
use crate::facts::OpenCall;
use crate::resolve::{EndReason, resolve};
use crate::{EventTime, FinishedCall};
use std::time::Duration;

/// Why a call is incomplete if only its end was received.
const HEADLESS: &str = "the beginning of the call was not received";

impl Assembler {
    /// Finishes all calls that are due at `now`. This should be called no later than
    /// [`Assembler::next_deadline`].
    pub fn tick(&mut self, now: EventTime) {
        if self.reception.arriving_since() > now {
            self.set_reception(self.reception.correct_for_clock(now));
        }
        self.advance(now);
        if self.wrong_clock.is_some() {
            return;
        }
        let settled = self.reception.clock(now, self.settings.settle);
        for key in self.settling.due_by_clock(settled, self.stream.arrived) {
            self.end(key);
        }
        let most = self.settings.max_call;
        let awaited = self.reception.clock(now, self.settings.lost_after);
        self.end_too_long(|calls| calls.opened_arrived.due_at(awaited.minus(most)).collect());
        self.emit_overdue(self.reception.clock(now, Duration::ZERO));
        self.emit_silent(now);
        self.forget_early(now);
    }

    /// Finishes the calls, and the ended parts of calls, that are due by `now` or by the stream's
    /// time.
    pub(super) fn advance(&mut self, now: EventTime) {
        self.check_settling();
        if self.wrong_clock.is_some() {
            return;
        }
        let settled = self.reception.clock(now, self.settings.settle);
        for key in self.settling.due_by_stream(settled, self.stream.at) {
            self.end(key);
        }
        if let Some(stream) = self.stream.at {
            let before = stream.minus(self.settings.max_call);
            self.end_too_long(|calls| calls.backlog_until(before));
        }
    }

    /// Returns when the next call can be finished if nothing else is received, or `None` if no call
    /// is open or there are unread messages in a queue or file
    /// ([`Reception::Kept`](crate::Reception::Kept)).
    pub fn next_deadline(&self) -> Option<EventTime> {
        self.check_settling();
        self.check_overdue();
        let settled = self.settling.next(self.stream.arrived);
        let opened = self.calls.opened_arrived.first();
        let longest = opened.map(|(at, _)| at.plus(self.settings.max_call));
        let overdue = self.overdue.first().map(|(at, _)| at);
        let waits = [
            (settled, self.settings.settle),
            (longest, self.settings.lost_after),
            (overdue, Duration::ZERO),
        ];
        waits
            .into_iter()
            .filter_map(|(at, wait)| self.reception.at_earliest(at?, wait))
            .min()
    }

    /// Finishes calls at the end of a stream, such as a file.
    ///
    /// Calls whose channels have all hung up are finished right away. So are those whose remaining
    /// channels have no one left to talk to, since all that's missing is a hangup. All other calls
    /// stay open.
    pub fn finish_all(&mut self, now: EventTime) {
        if let Some(stream_ended) = &mut self.wrong_clock {
            *stream_ended = true;
            return;
        }
        self.advance(now);
        for key in self.calls.keys() {
            self.emit_all_ended(key);
        }
        for key in self.calls.keys_of(OpenCall::has_hung_up) {
            self.finish(key, EndReason::HungUp);
        }
        let lacking_a_hangup = self
            .calls
            .keys_of(|call| call.is_deserted() || call.is_reported_over() || call.is_hung_up_on());
        for key in lacking_a_hangup {
            self.finish(key, EndReason::Unheard);
        }
    }

    /// Finishes a call that has settled. If some of its channels are still up, only the part that's
    /// over is emitted, and the rest continues.
    fn end(&mut self, key: u64) {
        self.settling.remove(key);
        let Some(call) = self.calls.get(key) else {
            return;
        };
        if call.is_over() {
            self.finish(key, EndReason::HungUp);
        } else {
            self.emit_ended(key);
        }
    }

    /// Resolves each call in progress as if it ended at `now` by our own clock, while leaving it
    /// open.
    ///
    /// A call with two customers becomes two finished calls. Calls that have hung up and are only
    /// waiting for their deadline are omitted.
    pub fn resolve_open(&self, now: EventTime) -> Vec<FinishedCall> {
        let mut resolved = Vec::new();
        for key in self.calls.keys() {
            let Some(call) = self.calls.get(key) else {
                continue;
            };
            if call.is_over() || call.is_ghost() {
                continue;
            }
            // The PBX's clock differs from ours, so add the time since the last event by our clock.
            let since = now.since(call.times.latest_arrived);
            let mut shown = call.clone();
            shown.is_cut(call.times.latest.plus(since));
            resolved.extend(self.resolve_call(&shown, EndReason::TooLong));
        }
        resolved
    }

    /// Ends calls to stay within the limits on the number and size of open calls.
    pub(super) fn limit_open(&mut self) {
        while self.calls.len() > self.settings.max_open_calls.max(1) {
            // A call that's only waiting for its CDR is complete without it, unlike a call whose
            // number may be redialed.
            let mut settling = self.settling.deadlines.iter();
            let over = settling.find(|(key, deadline)| {
                let call = self.calls.get(**key);
                !deadline.may_redial && call.is_some_and(OpenCall::is_over)
            });
            if let Some((&over, _)) = over {
                self.end(over);
                continue;
            }
            let Some(key) = self.calls.longest_silent() else {
                break;
            };
            self.finish(key, EndReason::TooMany);
        }
        while let Some(key) = self.calls.oversized.pop_first() {
            let call = self.calls.get(key);
            if call.is_some_and(|call| call.size.bytes > CALL_BYTES_MAX) {
                self.finish(key, EndReason::TooLarge);
            }
        }
        let most = self.settings.open_bytes_max();
        while self.calls.bytes > most
            && let Some(key) = self.calls.largest()
        {
            self.finish(key, EndReason::TooLarge);
        }
    }

    /// Returns the finished calls that this open call would result in if it ended now for the
    /// reason `ended`.
    pub(super) fn resolve_call(&self, call: &OpenCall, ended: EndReason) -> Vec<FinishedCall> {
        resolve(call, &self.settings, ended)
    }

    pub(super) fn finish(&mut self, key: u64, ended: EndReason) {
        self.settling.remove(key);
        self.overdue.remove(key);
        if let Some(call) = self.calls.get(key) {
            let early = self.early.take_of_call(&call.ties.ids);
            self.give_early(key, early);
        }
        self.changes.remove(key);
        let Some(mut call) = self.calls.close(key) else {
            return;
        };
        let headless = call.is_ghost();
        if headless && !call.is_headless(&self.settings.endpoints) {
            self.counts.ghosts += 1;
            return;
        }
        if ended != EndReason::HungUp {
            call.is_cut(call.times.latest);
        }
        self.counts.forced += u64::from(ended != EndReason::HungUp);
        self.counts.oversized += u64::from(ended == EndReason::TooLarge);
        self.calls.remember_finished(&call);
        let mut finished = self.resolve_call(&call, ended);
        if headless {
            for call in &mut finished {
                call.incomplete.get_or_insert_with(|| HEADLESS.to_owned());
            }
        }
        self.finished.append(&mut finished);
    }

    /// Updates both of a call's deadlines. Only a call that's over, or contains calls that are
    /// over, has a settling deadline.
    pub(super) fn update_settling(&mut self, key: u64) {
        let call = self.calls.get(key);
        match call.and_then(|call| Deadline::for_call(call, &self.settings)) {
            Some(deadline) => self.settling.put(key, deadline),
            None => self.settling.remove(key),
        }
        self.update_overdue(key);
    }

    /// Updates a call's deadlines after an event that can't have ended the call.
    pub(super) fn keep_deadlines(&mut self, key: u64) {
        if self.settling.deadlines.contains_key(&key) {
            self.update_settling(key);
        } else {
            self.update_overdue(key);
        }
    }

    /// Asserts in debug builds that each settling call is listed under its current deadline.
    fn check_settling(&self) {
        debug_assert!(
            self.settling.deadlines.iter().all(|(key, kept)| {
                let call = self.calls.get(*key);
                let deadline = call.and_then(|call| Deadline::for_call(call, &self.settings));
                deadline.as_ref() == Some(kept)
            }),
            "a call settles under a deadline that it no longer has"
        );
    }

    /// Asserts in debug builds that the time at which each call becomes overdue is up to date.
    fn check_overdue(&self) {
        debug_assert!(
            self.calls.calls.iter().all(|(key, call)| {
                let due = call.overdue_at(&self.settings, self.reception.arriving_since());
                due.as_ref() == self.overdue.at.get(key)
            }),
            "a call in doubt is kept under a moment that it no longer has"
        );
    }

    /// Ends the calls that `too_old` returns.
    ///
    /// A conference that continues gets a new age instead. Since that may still be too old, this
    /// repeats until none are left.
    pub(super) fn end_too_long(&mut self, too_old: impl Fn(&OpenCalls) -> Vec<u64>) {
        loop {
            let keys = too_old(&self.calls);
            if keys.is_empty() {
                return;
            }
            for key in keys {
                if !self.keep_open_room(key) {
                    self.finish(key, EndReason::TooLong);
                }
            }
        }
    }

    /// Keeps a conference open that has exceeded the maximum call duration, unless one of its
    /// outside channels has too. Returns `false` if the call can't be kept open.
    ///
    /// The part that's over is emitted, and the conference's age becomes that of its oldest outside
    /// channel.
    fn keep_open_room(&mut self, key: u64) -> bool {
        let call = self.calls.get(key);
        if !call.is_some_and(|call| call.is_room() || call.parts.relieved) {
            return false;
        }
        self.emit_rootless(key);
        let endpoints = &self.settings.endpoints;
        let Some(call) = self.calls.get(key) else {
            return false;
        };
        let first = call
            .legs
            .values()
            .filter(|leg| !call.parts.reported.contains(&leg.id))
            .filter(|leg| leg.endpoint(endpoints).is_some())
            .map(|leg| leg.first)
            .min();
        let oldest = match first {
            Some(first) => first,
            None if call.parts.relieved => call.times.latest,
            None => return false,
        };
        if oldest <= call.times.opened {
            return false;
        }
        let later = oldest.since(call.times.opened);
        let arrived = call.times.opened_arrived.plus(later);
        self.calls.reopen(key, (oldest, arrived));
        true
    }
}
