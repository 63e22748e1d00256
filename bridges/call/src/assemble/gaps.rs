//! Times in which nobody listened: which calls they touch, and what becomes of these.
//!
//! ```text
//!            lost            back
//!  ──────────┤░░░░░░░░░░░░░░░├──────────▶
//!  touched:  ████████████████████          open when the line was lost
//!  late:             ████████████          first heard of in its middle, after it
//! ```
//! A touched call is complete only if it is plain that nothing of it was missed (`resolve::doubt`).

use super::Assembler;
use super::index::in_order;
use crate::facts::{OpenCall, UnobservedTime};
use crate::resolve::EndReason;
use crate::{EventTime, Mark, Settings, UniqueId};
use std::collections::BTreeSet;

/// A call that was open in such a gap alone is likely to be a long talk: it is waited for so much
/// longer.
const SHORT_WAITS: u32 = 10;
/// A call that all customers have left may go on in a menu: it is waited for so much longer.
const STRANDED_WAITS: u32 = 5;

/// State of the reception that stands beside the open calls.
#[derive(Debug, Default)]
pub(super) struct Listening {
    /// Moment at which the stream was last known to be whole: its last event, or the end of a gap.
    pub(super) whole: Option<EventTime>,
    /// Set while no events are received.
    lost: bool,
    /// Moment at which reception began anew, last.
    pub(super) back: Option<EventTime>,
    /// Channels that the PBX listed as live since its last list ended.
    pub(super) listed: BTreeSet<UniqueId>,
}

impl OpenCall {
    /// Something may be missed of it from now on.
    fn touch(&mut self, from: EventTime) {
        self.gaps.begin(from);
        self.legs.values_mut().for_each(|leg| leg.touch());
    }

    /// Returns the moment at which the call is to be given out as far as it is known, because it
    /// may be silent only for its end was missed, and was not given out for that yet: it was open
    /// in a gap, and is silent for `after` since the last, or longer after one in which hardly
    /// anything can have been missed; or all that is known of it has hung up, and who began it may
    /// have before we listened; or whoever is left in it hears nobody. Only the time `since` which
    /// messages arrive counts.
    pub(super) fn overdue_at(&self, settings: &Settings, since: EventTime) -> Option<EventTime> {
        let after = settings.lost_after;
        let headless = || self.gaps.late.is_some() && self.has_hung_up();
        // One that is over waits for its CDR at most, and is given out after that.
        if self.gaps.overdue || self.is_over() {
            return None;
        }
        let arrived = self.times.latest_arrived.max(since);
        let Some(last) = self.gaps.blinds.last() else {
            let stranded = || self.is_stranded(&settings.endpoints);
            let waits = match headless() {
                true => Some(1),
                false => stranded().then_some(STRANDED_WAITS),
            };
            return Some(arrived.plus(after * waits?));
        };
        let short = self.gaps.blinds.iter().all(UnobservedTime::is_short);
        let after = if short { after * SHORT_WAITS } else { after };
        Some(last.until?.max(arrived).plus(after))
    }

    /// Every channel that is up, or could be, is gone at `at`; if `None`, when it was last known to
    /// be there. So is the channel that a linkedid names.
    fn all_gone(&mut self, at: Option<EventTime>, arrived: EventTime) {
        let cuts = self.cuts();
        for leg in self.legs.values_mut().filter(|leg| !leg.is_over()) {
            leg.gone(at.unwrap_or_else(|| there_until(leg.last, &cuts, leg.last)));
        }
        self.times.rest(at.unwrap_or(self.times.latest), arrived);
        self.gaps.rootless = true;
    }

    /// Returns the moments from which on no events were received, by the clock of the events.
    fn cuts(&self) -> Vec<EventTime> {
        let ahead = self.times.clock_ahead;
        let blinds = self.gaps.blinds.iter();
        blinds.map(|blind| blind.from.by_clock(ahead)).collect()
    }

    /// Ends all channels of the call with their process, at its `last` sign of life where that is
    /// known.
    pub(super) fn end_with_process(&mut self, last: Option<EventTime>, arrived: EventTime) {
        self.touch(self.times.latest_arrived);
        self.gaps.end(arrived);
        self.all_gone(last, arrived);
    }

    /// Gives each channel that is up an end, for the call is given out before theirs: the first
    /// moment after its last sign of life at which its end may have been missed; if there is none,
    /// the last that was `latest` of the call.
    pub(super) fn is_cut(&mut self, latest: EventTime) {
        let cuts = self.cuts();
        for leg in self.legs.values_mut().filter(|leg| leg.is_up()) {
            leg.last = there_until(leg.last, &cuts, latest.max(leg.last));
        }
    }
}

impl Assembler {
    /// Nobody listens since `since` (by our own clock): whatever happens to the open calls now may
    /// be missed.
    pub fn lost(&mut self, since: EventTime) {
        self.listening.lost = true;
        self.change_each(|call| {
            let open = !call.is_over();
            if open {
                call.touch(since);
            }
            open
        });
    }

    /// The stream goes on from `now`. Calls that are first heard of in their middle from here on
    /// are known to have begun while nobody listened.
    pub fn back(&mut self, now: EventTime) {
        self.listening.lost = false;
        (self.listening.whole, self.listening.back) = (Some(now), Some(now));
        self.change_each(|call| call.gaps.end(now));
    }

    /// Goes through the open calls; what is changed of one is kept.
    pub(super) fn change_each(&mut self, mut change: impl FnMut(&mut OpenCall) -> bool) {
        for key in self.calls.keys() {
            if self.calls.get_mut(key).is_some_and(&mut change) {
                self.changes.insert(key);
                self.doubt_or_not(key);
            }
        }
    }

    /// Returns `true` when an open call with this id may have missed something; `None` if none has
    /// this id.
    pub fn in_doubt(&self, id: &str) -> Option<bool> {
        let call = self.calls.get(self.calls.knows(id)?)?;
        Some(!call.gaps.blinds.is_empty() || call.gaps.late.is_some())
    }

    /// Ends the open call with this id at its last sign of life, because another way told of its
    /// end. It comes out of [`Assembler::take_finished`], and is incomplete.
    pub fn end_unheard(&mut self, id: &str) {
        if let Some(key) = self.calls.knows(id)
            && !self.end_one_of_several(key, id)
        {
            self.finish(key, EndReason::Missed);
        }
    }

    /// A mark in the stream: what happened between the last event and it may be missed.
    pub(super) fn on_mark(&mut self, mark: Mark, arrived: EventTime) {
        match mark {
            Mark::Shutdown { at } => {
                let moment =
                    |call: &OpenCall| at.unwrap_or(arrived.by_clock(call.times.clock_ahead));
                self.end_each(|_| true, |call| call.all_gone(Some(moment(call)), arrived));
            }
            Mark::LoggedIn => {
                // A list that the line broke off told of another time.
                self.listening.listed.clear();
                self.begins_anew(arrived);
            }
            Mark::FullyBooted { uptime } => {
                self.begins_anew(arrived);
                let booted = uptime.map(|uptime| arrived.minus(uptime));
                let before = |it: &OpenCall| booted.is_some_and(|at| it.times.latest_arrived < at);
                self.end_each(before, |call| call.all_gone(None, arrived));
            }
            Mark::ListEnd => self.list_ends(arrived),
            Mark::Restarted { began } => self.ends_before(began, arrived),
            Mark::Alive {
                process,
                at,
                stamp,
                began,
                channels,
            } => {
                self.on_sign(process, stamp, began, at, arrived);
                self.beats((process, began), at, arrived);
                if let Some(channels) = channels {
                    self.end_forgotten(process, channels, at, arrived);
                }
            }
        }
    }

    /// The stream begins anew in its middle, unless that is known already.
    fn begins_anew(&mut self, arrived: EventTime) {
        let whole = self.listening.whole.unwrap_or(arrived);
        if whole < arrived || self.listening.lost {
            self.lost(whole);
            self.back(arrived);
        }
    }

    /// Calls of a process that is no more: they ended unheard before another `began`. Where that is
    /// told, processes are known by their own signs of life.
    pub(super) fn ends_before(&mut self, began: Option<EventTime>, arrived: EventTime) {
        let before = |call: &OpenCall| {
            let goes_on = |began| call.of.process.is_some() || call.times.latest >= began;
            !began.is_some_and(goes_on)
        };
        self.end_each(before, |call| call.end_with_process(None, arrived));
    }

    /// Ends those of the calls that are not over yet, in this way.
    pub(super) fn end_each(
        &mut self,
        those: impl Fn(&OpenCall) -> bool,
        end: impl Fn(&mut OpenCall),
    ) {
        for key in self.calls.keys() {
            let open = |call: &&mut OpenCall| those(call) && !call.is_over();
            if let Some(call) = self.calls.get_mut(key).filter(open) {
                end(call);
                self.changes.insert(key);
                self.settle_or_not(key);
            }
        }
    }

    /// The PBX has listed its live channels: those that are not among them ended unheard.
    fn list_ends(&mut self, arrived: EventTime) {
        let live = std::mem::take(&mut self.listening.listed);
        for key in self.calls.keys() {
            let call = self.calls.get_mut(key);
            let Some(call) = call.filter(|it| !it.gaps.blinds.is_empty()) else {
                continue;
            };
            let cuts = call.cuts();
            let mut ended = false;
            for leg in call.legs.values_mut() {
                if !leg.is_over() && !live.contains(&leg.id) {
                    leg.gone(there_until(leg.last, &cuts, leg.last));
                    ended = true;
                }
            }
            // A root that was never heard of, and is not listed, is not up either.
            let root = call.unheard_root().map(UniqueId::new);
            let rootless = root.is_some_and(|id| id.is_none_or(|id| !live.contains(&id)));
            call.gaps.rootless |= rootless;
            if ended {
                call.times.rest(call.times.quiet, arrived);
                self.changes.insert(key);
            }
            self.settle_or_not(key);
        }
    }

    /// Keeps the order of calls in doubt as the call is by now.
    pub(super) fn doubt_or_not(&mut self, key: u64) {
        let call = self.calls.get(key);
        let since = self.reception.since();
        match call.and_then(|call| call.overdue_at(&self.settings, since)) {
            Some(at) => self.overdue.put(key, at),
            None => self.overdue.remove(key),
        }
    }

    /// Calls of which nothing was heard for `lost_after` since a gap ended: they are given out as
    /// far as they are known, and stay open, for a long talk is as silent.
    pub(super) fn give_out_overdue(&mut self, now: EventTime) {
        for key in in_order(self.overdue.until(now)) {
            self.give_out_open(key, |call| call.times.latest);
        }
    }

    /// Gives out a call as far as it is known, unless it was; it stays open.
    pub(super) fn give_out_open(&mut self, key: u64, latest: fn(&OpenCall) -> EventTime) {
        self.overdue.remove(key);
        let open = |call: &&mut OpenCall| !call.gaps.overdue && !call.is_over();
        let Some(call) = self.calls.get_mut(key).filter(open) else {
            return;
        };
        call.gaps.overdue = true;
        self.changes.insert(key);
        if call.is_ghost() {
            return;
        }
        let mut cut = call.clone();
        cut.is_cut(latest(&cut));
        let known = self.resolved(&cut, EndReason::Missed);
        self.finished.extend(known);
    }

    /// Finishes nothing from here on, whatever is told, until [`Assembler::release`].
    pub fn hold(&mut self) {
        self.wrong_clock.get_or_insert(false);
    }

    /// Our clock is right, and shows `now`. What arrived before `right_from` by it arrived while it
    /// was wrong: it counts as having arrived now. An event whose only time that was has none,
    /// which its call remembers since it came.
    pub fn release(&mut self, now: EventTime, right_from: EventTime) {
        let wrong = |at: &EventTime| *at < right_from;
        for key in self.calls.arrived_before(right_from) {
            self.calls.arrived(key, now, right_from);
            self.changes.insert(key);
            self.keep_deadlines(key);
        }
        self.stream.at = self.stream.at.filter(|at| !wrong(at));
        let arrived = self.stream.arrived.filter(|at| !wrong(at));
        self.stream.arrived = arrived.or(Some(now));
        if self.wrong_clock.take() == Some(true) {
            self.finish_all(now);
        }
    }
}

/// Returns the moment until which a channel was there whose end was not received: the first from
/// its `last` sign of life on at which no events were received, else `whole`.
fn there_until(last: EventTime, cuts: &[EventTime], whole: EventTime) -> EventTime {
    let cuts = cuts.iter().copied();
    cuts.filter(|&cut| cut >= last).min().unwrap_or(whole)
}
