//! Gaps in which no events were received, including which calls they affect and how those calls
//! end.
//!
//! ```text
//!            lost            back
//!  ──────────┤░░░░░░░░░░░░░░░├──────────▶
//!  touched:  ████████████████████          open when the line was lost
//!  late:             ████████████          begun in the gap, first seen after it
//! ```
//! An affected call is only complete if its events prove that nothing was missed
//! (`resolve::doubt`).

use super::Assembler;
use super::index::in_order;
use crate::facts::{OpenCall, UnobservedTime};
use crate::resolve::EndReason;
use crate::{EventTime, Mark, Settings, UniqueId};
use std::collections::BTreeSet;

/// How many times `lost_after` to wait for a call that was only open during short gaps, since it's
/// probably just a long conversation, which doesn't produce any events.
const SHORT_WAITS: u32 = 10;
/// How many times `lost_after` to wait for a call that all customers have left, because a colleague
/// may still be in an IVR.
const STRANDED_WAITS: u32 = 5;

/// Whether events are being received. The gaps that affect an open call are stored in the call
/// itself.
#[derive(Debug, Default)]
pub(super) struct Listening {
    /// Last moment at which the stream was complete, i.e., its last event or the end of a gap.
    pub(super) whole: Option<EventTime>,
    /// Set while no events are being received.
    lost: bool,
    /// When reception last resumed.
    pub(super) back: Option<EventTime>,
    /// Channels that the PBX has listed as live since the end of its last list.
    pub(super) listed: BTreeSet<UniqueId>,
    /// Set once the PBX has listed all its live channels since the last gap. After that, a channel
    /// that's only in the list must be new, with its events still on their way.
    pub(super) has_list: bool,
}

impl OpenCall {
    /// Records that events of the call may be missing from `from` onward.
    fn touch(&mut self, from: EventTime) {
        self.gaps.begin(from);
        self.legs.values_mut().for_each(|leg| leg.touch());
    }

    /// Returns when to emit the known part of the call because its end may have been missed, or
    /// `None` if that has already been done or isn't in doubt.
    ///
    /// The end is in doubt if the call was open during a gap, if all its known channels have hung
    /// up without its first channel ever being seen, or if the remaining channels can't hear
    /// anyone. The wait is a multiple of `lost_after` without any events, which starts no earlier
    /// than `since`, when messages began to arrive.
    pub(super) fn overdue_at(&self, settings: &Settings, since: EventTime) -> Option<EventTime> {
        // A call that's over will be emitted anyway, after waiting for its CDR at most.
        if self.gaps.overdue || self.is_over() {
            return None;
        }
        let arrived = self.times.latest_arrived.max(since);
        let Some(last) = self.gaps.blinds.last() else {
            let waits = if self.gaps.late.is_some() && self.has_hung_up() {
                1
            } else if self.is_stranded(&settings.endpoints) {
                STRANDED_WAITS
            } else {
                return None;
            };
            return Some(arrived.plus(settings.lost_after * waits));
        };
        let waits = if self.gaps.blinds.iter().all(UnobservedTime::is_short) {
            SHORT_WAITS
        } else {
            1
        };
        Some(last.until?.max(arrived).plus(settings.lost_after * waits))
    }

    /// Ends every channel that hasn't hung up, or if `at` is `None`, ends each one when it was last
    /// known to be up. A channel that's known only from a linkedid is considered ended as well.
    fn end_all_channels(&mut self, at: Option<EventTime>, arrived: EventTime) {
        let cuts = self.cuts();
        for leg in self.legs.values_mut().filter(|leg| !leg.is_over()) {
            leg.note_gone(at.unwrap_or_else(|| there_until(leg.last, &cuts, leg.last)));
        }
        self.times.rest(at.unwrap_or(self.times.latest), arrived);
        self.gaps.rootless = true;
    }

    /// Ends every channel missing from `live`, the source's latest list, that was already in doubt
    /// since a gap or an earlier list. Returns `true` if any channel ended.
    fn end_unlisted(&mut self, live: &BTreeSet<UniqueId>, source: Option<u16>) -> bool {
        let cuts = self.cuts();
        let mut ended = false;
        for leg in self.legs.values_mut() {
            let is_of_source = source.is_none() || leg.source.is_none() || leg.source == source;
            let is_omitted = !leg.is_over() && is_of_source && !live.contains(&leg.id);
            if is_omitted && std::mem::replace(&mut leg.doubted, true) {
                leg.note_gone(there_until(leg.last, &cuts, leg.last));
                leg.unlisted = true;
                ended = true;
            }
        }
        // A linkedid may refer to a channel that hasn't had any events. If it isn't listed, it
        // isn't up either.
        if !self.gaps.blinds.is_empty()
            && let Some(root) = self.unheard_root().map(UniqueId::new)
        {
            self.gaps.rootless |= root.is_none_or(|id| !live.contains(&id));
        }
        ended
    }

    /// Returns when each gap began, by the clock of the events.
    fn cuts(&self) -> Vec<EventTime> {
        let ahead = self.times.clock_ahead;
        let blinds = self.gaps.blinds.iter();
        blinds.map(|blind| blind.from.by_clock(ahead)).collect()
    }

    /// Ends all channels of the call because their PBX process ended. `last` is the time of that
    /// process's last event or heartbeat, if known.
    pub(super) fn end_with_process(&mut self, last: Option<EventTime>, arrived: EventTime) {
        self.touch(self.times.latest_arrived);
        self.gaps.end(arrived);
        self.end_all_channels(last, arrived);
    }

    /// Sets the end of each channel that's still up, because the call is emitted before the
    /// channels end. That's the start of the first gap after the channel's last event, or `latest`
    /// if there's no such gap.
    pub(super) fn is_cut(&mut self, latest: EventTime) {
        let cuts = self.cuts();
        for leg in self.legs.values_mut().filter(|leg| leg.is_up()) {
            leg.last = there_until(leg.last, &cuts, latest.max(leg.last));
        }
    }
}

impl Assembler {
    /// Records that no events have been received since `since`, by our own clock, so events of the
    /// open calls may have been missed.
    pub fn begin_gap(&mut self, since: EventTime) {
        self.listening.lost = true;
        self.listening.has_list = false;
        self.change_each(|call| {
            let open = !call.is_over();
            if open {
                call.touch(since);
            }
            open
        });
    }

    /// Records that the stream continues at `now`. Calls that are first seen midway after this must
    /// have started during the gap.
    pub fn end_gap(&mut self, now: EventTime) {
        self.listening.lost = false;
        self.listening.has_list = false;
        self.listening.whole = Some(now);
        self.listening.back = Some(now);
        self.change_each(|call| call.gaps.end(now));
    }

    /// Calls `change` with each open call, and saves those for which it returns `true`.
    pub(super) fn change_each(&mut self, mut change: impl FnMut(&mut OpenCall) -> bool) {
        for key in self.calls.keys() {
            if self.calls.get_mut(key).is_some_and(&mut change) {
                self.changes.insert(key);
                self.update_overdue(key);
            }
        }
    }

    /// Returns whether events of the open call with this ID may be missing, or `None` if there's no
    /// such call.
    pub fn may_miss_events(&self, id: &str) -> Option<bool> {
        let call = self.calls.get(self.calls.find(id)?)?;
        Some(!call.gaps.blinds.is_empty() || call.gaps.late.is_some())
    }

    /// Ends the open call with this ID at its last event, because another source reported its end.
    /// [`Assembler::take_finished`] then returns it as incomplete.
    pub fn end_unheard(&mut self, id: &str) {
        if let Some(key) = self.calls.find(id)
            && !self.end_one_of_several(key, id)
        {
            self.finish(key, EndReason::Missed);
        }
    }

    /// Processes a mark in the stream. Events between the last event and the mark may be missing.
    pub(super) fn on_mark(&mut self, mark: Mark, arrived: EventTime) {
        match mark {
            Mark::Shutdown { at } => {
                self.end_each(
                    |_| true,
                    |call| {
                        let moment = at.unwrap_or(arrived.by_clock(call.times.clock_ahead));
                        call.end_all_channels(Some(moment), arrived);
                    },
                );
            }
            Mark::LoggedIn => {
                // A list that was cut short by the broken connection is outdated.
                self.listening.listed.clear();
                self.listening.has_list = false;
                self.newest_ids.note_login();
                self.note_gap_at_beginning(arrived);
            }
            Mark::FullyBooted { uptime } => {
                self.note_gap_at_beginning(arrived);
                // In a recording, there's no way to tell when the login took place.
                if uptime.is_some() && !self.settings.history {
                    self.newest_ids.note_no_restart();
                }
                let booted = uptime.map(|uptime| arrived.minus(uptime));
                self.end_each(
                    |call| booted.is_some_and(|at| call.times.latest_arrived < at),
                    |call| call.end_all_channels(None, arrived),
                );
            }
            Mark::ListEnd { channels } => self.on_list_end(channels, arrived),
            Mark::Restarted { began } => self.end_processes_before(began, arrived),
            Mark::Alive {
                process,
                at,
                stamp,
                began,
                channels,
            } => {
                self.check_heartbeat(stamp.map_or(at, |stamp| stamp.at), arrived);
                self.on_sign(process, stamp, began, at, arrived);
                self.on_beat((process, began), at, arrived);
                if let Some(channels) = channels {
                    self.end_forgotten(process, channels, at, arrived);
                }
            }
        }
    }

    /// Records a gap from the last received event to the new start of the stream at `arrived`.
    fn note_gap_at_beginning(&mut self, arrived: EventTime) {
        let whole = self.listening.whole.unwrap_or(arrived);
        if whole < arrived || self.listening.lost {
            self.begin_gap(whole);
            self.end_gap(arrived);
        }
    }

    /// Ends the open calls of earlier PBX processes, which are those without a known process that
    /// have had no events since the new process `began`, or all calls if that time isn't known.
    pub(super) fn end_processes_before(&mut self, began: Option<EventTime>, arrived: EventTime) {
        self.end_each(
            |call| began.is_none_or(|began| call.of.process.is_none() && call.times.latest < began),
            |call| call.end_with_process(None, arrived),
        );
    }

    /// Calls `end` with each call that satisfies `those` and isn't over yet, and updates its
    /// deadlines.
    pub(super) fn end_each(
        &mut self,
        those: impl Fn(&OpenCall) -> bool,
        end: impl Fn(&mut OpenCall),
    ) {
        for key in self.calls.keys() {
            let Some(call) = self.calls.get_mut(key) else {
                continue;
            };
            if those(call) && !call.is_over() {
                end(call);
                self.changes.insert(key);
                self.update_settling(key);
            }
        }
    }

    /// Processes the end of a list of live channels, which should have `channels` entries according
    /// to the PBX.
    ///
    /// A channel that was up before a gap has ended if it isn't listed. Any other channel must be
    /// missing from two lists in a row, because a list can be older than the channel's events.
    fn on_list_end(&mut self, channels: Option<usize>, arrived: EventTime) {
        let live = std::mem::take(&mut self.listening.listed);
        if channels.is_some_and(|channels| channels > live.len()) {
            return;
        }
        self.listening.has_list = true;
        let source = self.stream.timing.line.map(|line| line.source);
        for key in self.calls.keys() {
            let Some(call) = self.calls.get_mut(key) else {
                continue;
            };
            let ended = call.end_unlisted(&live, source);
            if ended {
                call.times.rest(call.times.quiet, arrived);
                self.changes.insert(key);
            }
            if ended || !call.gaps.blinds.is_empty() {
                self.update_settling(key);
            }
        }
    }

    /// Updates when the call becomes overdue.
    pub(super) fn update_overdue(&mut self, key: u64) {
        let call = self.calls.get(key);
        let since = self.reception.arriving_since();
        match call.and_then(|call| call.overdue_at(&self.settings, since)) {
            Some(at) => self.overdue.put(key, at),
            None => self.overdue.remove(key),
        }
    }

    /// Emits what is known of the overdue calls. They stay open, because a long conversation
    /// produces no events either.
    pub(super) fn emit_overdue(&mut self, now: EventTime) {
        for key in in_order(self.overdue.due_at(now)) {
            self.emit_open(key, |call| call.times.latest);
        }
    }

    /// Emits the known part of a call as incomplete, unless that has already been done. The call
    /// stays open. `latest` returns the assumed end time of those of its channels that are still
    /// up.
    pub(super) fn emit_open(&mut self, key: u64, latest: fn(&OpenCall) -> EventTime) {
        self.overdue.remove(key);
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        if call.gaps.overdue || call.is_over() {
            return;
        }
        call.gaps.overdue = true;
        self.changes.insert(key);
        if call.is_ghost() {
            return;
        }
        let mut cut = call.clone();
        cut.is_cut(latest(&cut));
        let known = self.resolve_call(&cut, EndReason::Missed);
        self.finished.extend(known);
    }

    /// Stops finishing calls until [`Assembler::release`] is called. Events are still processed.
    pub fn hold(&mut self) {
        self.wrong_clock.get_or_insert(false);
    }

    /// Resumes after [`Assembler::hold`], once our clock is right and shows `now`.
    ///
    /// Arrivals before `right_from` were measured while our clock was wrong, so they're treated as
    /// arrivals at `now`. Events without any other time are already counted as untimed in their
    /// calls.
    pub fn release(&mut self, now: EventTime, right_from: EventTime) {
        for key in self.calls.arrived_before(right_from) {
            self.calls.arrived(key, now, right_from);
            self.changes.insert(key);
            self.keep_deadlines(key);
        }
        self.stream.at = self.stream.at.filter(|at| *at >= right_from);
        let arrived = self.stream.arrived.filter(|at| *at >= right_from);
        self.stream.arrived = arrived.or(Some(now));
        if self.wrong_clock.take() == Some(true) {
            self.finish_all(now);
        }
    }
}

/// Returns the assumed end of a channel whose hangup wasn't received, which is the first gap start
/// in `cuts` at or after the channel's `last` event, or `whole` if there is none.
fn there_until(last: EventTime, cuts: &[EventTime], whole: EventTime) -> EventTime {
    let cuts = cuts.iter().copied();
    cuts.filter(|&cut| cut >= last).min().unwrap_or(whole)
}
