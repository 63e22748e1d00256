//! Gaps: where each begins and ends, and which PBX's calls it affects.
//!
//! A gap begins when the last stored event happened, or with the last prompt response to a ping,
//! whichever is later. The arrival of an event doesn't count, because after a stall, a burst of
//! late events says nothing about those behind it. A gap ends with the next login. It affects a
//! PBX's open calls only if no other source reports these calls.

use crate::{Gap, Intake, IntakeSource, SourceSettings, pbx::pbx_of, report::News};
use callbridge_call::{ClockDifference, EventTime, Mark, Patience, PbxEvent, Reception, Timing};
use callbridge_model::status::{self, SourceState};
use callbridge_source::{Outage, SourceId};
use callbridge_spool::Op;
use std::time::Duration;

/// Maximum time between two marks of the same restart (a login and `FullyBooted`).
const ONE_RESTART: Duration = Duration::from_secs(5);
/// An event that's later than this is a problem.
const LATE: Duration = Duration::from_secs(60);
/// How long a late event is shown as a problem.
const LATE_SHOWN: Duration = Duration::from_secs(600);

impl IntakeSource {
    /// Records that nothing from the source is missing up to `now`.
    pub(super) fn note_complete(&mut self, now: EventTime) {
        self.last_received = self.last_received.max(Some(now));
        self.is_unstored = true;
    }

    /// Processes an event that arrived at `arrived` and was sent at `at` according to the PBX's
    /// clock, which is `ahead` of our boot clock.
    fn note_event(&mut self, at: Option<EventTime>, ahead: ClockDifference, arrived: EventTime) {
        let sent = match at {
            Some(at) => at.by_clock(ahead.reversed()).min(arrived),
            // An event without a timestamp from a stalled connection can be arbitrarily old.
            None if self.is_stalled => return,
            None => arrived,
        };
        self.note_delay(arrived.since(sent), arrived);
        if self.settings.forgets {
            self.note_complete(sent);
        }
    }

    /// Records the delay of a message that arrived at `arrived`.
    pub(super) fn note_delay(&mut self, delay: Duration, arrived: EventTime) {
        if delay > LATE && !self.settings.file {
            self.late = Some((delay, arrived));
        }
    }

    /// Returns how many seconds late the last overdue message was, if it arrived recently.
    pub(super) fn late_seconds(&self, now: EventTime) -> Option<u64> {
        let (delay, arrived) = self.late?;
        (now.since(arrived) <= LATE_SHOWN).then_some(delay.as_secs())
    }

    /// Returns the operation that stores the time up to which nothing from the source is missing,
    /// to be committed along with its events. `None` means that this time has already been stored,
    /// or that the source is a file or queue, which keeps events until they're read.
    pub(super) fn last_received_op(&mut self, wall_ahead: ClockDifference) -> Option<Op> {
        let more = std::mem::take(&mut self.is_unstored) && self.settings.forgets;
        if !more {
            return None;
        }
        let received = self.last_received?.by_clock(wall_ahead);
        let key = Intake::last_received_key(&self.settings.shown);
        Some(Op::meta(key, received.micros().to_string()))
    }

    /// Returns `true` if the source reports channel events, which keep calls open, as opposed to
    /// call detail records, whole calls, or a catch-up file.
    fn reports_events(&self) -> bool {
        let format = self.settings.format;
        !format.only_cdrs() && !format.carries_whole_calls() && !self.settings.catch_up
    }
}

impl Intake {
    /// Returns the name of the spool setting for the time up to which nothing from a source is
    /// missing. `shown` is the source's full URL.
    pub fn last_received_key(shown: &str) -> String {
        format!("heard:{shown}")
    }

    /// Returns the name of the spool setting for when we first connected to a PBX.
    pub fn since_key(pbx: &str) -> String {
        format!("since:{pbx}")
    }

    /// Returns `true` if the PBX of source number `at` has been connected before, in which case a
    /// new catch-up file contains the calls that have been missed since.
    pub fn was_listening(&self, at: usize) -> bool {
        self.since.contains_key(&self.sources[at].settings.pbx)
    }

    /// Counts a gap of source number `at` that has ended, and stores it for `status`. It's either
    /// the source's current gap or one that was only just noticed.
    fn gap_ends(&mut self, at: usize, from: EventTime, until: EventTime) {
        let from = from.by_clock(self.wall_ahead);
        let until = until.by_clock(self.wall_ahead);
        let source = &mut self.sources[at];
        source.gap_since = None;
        source.status.gaps += 1;
        source.status.last_gap = Some(status::Gap {
            from: from.floor_seconds().get(),
            until: until.floor_seconds().get(),
        });
        let gap = Gap { from, until };
        source.report.gap(&gap);
        let source = &self.sources[at].settings;
        let awaited = self.patience_of(source).is_some();
        self.gap_log.add(&source.shown, &gap, awaited);
    }

    /// Returns how long after a gap the PBX may still write its calls to the catch-up file, or
    /// `None` if the source's PBX has no such file.
    fn patience_of(&self, source: &SourceSettings) -> Option<Duration> {
        let mut longest = None;
        for file in self.files_of(&source.pbx) {
            let format = file.settings.format;
            let patience = if format.only_cdrs() || format.carries_whole_calls() {
                Patience::CDR
            } else {
                Patience::CEL
            };
            longest = longest.max(Some(patience.second));
        }
        longest
    }

    fn files_of(&self, pbx: &str) -> impl Iterator<Item = &IntakeSource> {
        self.sources
            .iter()
            .filter(move |source| source.settings.catch_up && source.settings.pbx == pbx)
    }

    /// Marks the gaps that have been filled by a catch-up file, i.e., the file has been read to its
    /// end, enough time has passed since the gap for the file to be written, and no calls from the
    /// second record are undecided.
    pub(super) fn fill_gaps(&mut self, now: EventTime) {
        if !self.gap_log.is_awaited() {
            return;
        }
        let mut log = std::mem::take(&mut self.gap_log);
        log.fill(|shown, end| self.is_reported(shown, end, now));
        self.gap_log = log;
    }

    fn is_reported(&self, shown: &str, end: EventTime, now: EventTime) -> bool {
        let mut sources = self.sources.iter().map(|source| &source.settings);
        let Some(source) = sources.find(|source| source.shown == shown) else {
            return false;
        };
        let Some(patience) = self.patience_of(source) else {
            return false;
        };
        let pbx = self.pbxes.get(&source.pbx);
        let second = pbx.and_then(|pbx| pbx.second.as_ref());
        let decided = second.is_some_and(|second| second.reconciler.is_empty());
        decided
            && now >= end.plus(patience)
            && self
                .files_of(&source.pbx)
                .all(|file| file.status.state == SourceState::Done)
    }

    /// Takes the log messages that are due about the sources' connections, with each source's
    /// label.
    pub fn take_news(&mut self, now: EventTime) -> Vec<(String, News)> {
        let news = self.sources.iter_mut().filter_map(|source| {
            let news = source.report.take(now)?;
            Some((source.settings.label.clone(), news))
        });
        news.collect()
    }

    /// Records the arrival of a source's event once the assembler of `pbx` has processed it. `at`
    /// is when the PBX sent it, according to its own clock.
    pub(super) fn note_event(
        &mut self,
        id: SourceId,
        pbx: &str,
        at: Option<EventTime>,
        arrived: EventTime,
    ) {
        let source = &mut self.sources[usize::from(id.0)];
        let by_line = self.pbxes.get(pbx);
        let by_line = by_line.and_then(|pbx| pbx.assembler.clock_ahead_by(id.0));
        // The offset between the clocks only shows on a connection, where events usually arrive on
        // time.
        source.note_event(at, by_line.unwrap_or(self.wall_ahead), arrived);
    }

    /// Records that the source's connection is down.
    pub fn down(&mut self, id: SourceId, outage: Outage) {
        let at = usize::from(id.0);
        let source = &mut self.sources[at];
        source.status.state = SourceState::Down;
        source.is_absent = outage.is_absent;
        source.report.down(outage.why.clone(), outage.is_ours);
        source.status.reason = Some(outage.why);
        let since = outage.since.by_clock(self.wall_ahead).floor_seconds();
        source.status.down_since.get_or_insert(since.get());
        self.receives(at, None);
        let source = &mut self.sources[at];
        if source.settings.forgets && source.last_received.is_some() {
            source.gap_since = source.gap_since.or(source.last_received);
            let since = match source.last_received {
                Some(received) if source.is_stalled => received,
                _ => outage.since,
            };
            self.begin_loss(at, since);
        }
    }

    /// Starts an outage for each source that doesn't repeat events, because none of them is
    /// connected yet and calls that were open when the process ended may have changed. Call this
    /// once, after all open calls have been restored.
    pub fn was_away(&mut self) {
        for at in 0..self.sources.len() {
            self.receives(at, None);
            let source = &mut self.sources[at];
            source.gap_since = if source.settings.forgets {
                source.last_received
            } else {
                None
            };
            if let Some(since) = source.gap_since {
                self.begin_loss(at, since);
            }
        }
    }

    /// Records that nothing was read from any source until `now`.
    pub(super) fn resumes(&mut self, now: EventTime) {
        for at in 0..self.sources.len() {
            self.receives(at, Some(now));
        }
    }

    /// Updates whether messages from a PBX are arriving after the connection of its source number
    /// `at` has changed. If any of the PBX's sources is up, messages arrive from `since` onward. If
    /// `since` is `None`, nothing changes for a PBX with a source that's up.
    pub(super) fn receives(&mut self, at: usize, since: Option<EventTime>) {
        let pbx = &self.sources[at].settings.pbx;
        let events = self.reception(pbx, since, IntakeSource::reports_events);
        let records = self.reception(pbx, since, |source| {
            !source.settings.format.carries_whole_calls()
        });
        self.each_pbx(at, |pbx| {
            if let Some(events) = events {
                pbx.assembler.set_reception(events);
            }
            if let Some(records) = records {
                pbx.records.set_reception(records);
            }
        });
    }

    /// Returns whether messages from the PBX are arriving from the sources that `selects` accepts,
    /// or `None` if that doesn't change because a source is up and `since` is `None`.
    fn reception(
        &self,
        pbx: &str,
        since: Option<EventTime>,
        selects: fn(&IntakeSource) -> bool,
    ) -> Option<Reception> {
        let mut is_up = false;
        let mut is_kept = false;
        for source in &self.sources {
            if source.settings.pbx == pbx && !source.settings.catch_up && selects(source) {
                is_up |= source.status.state.is_up();
                is_kept |= !source.settings.forgets && !source.is_absent;
            }
        }
        if is_up {
            since.map(|since| Reception::Arriving { since })
        } else if is_kept {
            Some(Reception::Kept)
        } else {
            Some(Reception::Lost)
        }
    }

    /// Ends the gap of a source that doesn't repeat events, because its connection is up. Does
    /// nothing for other sources.
    pub(super) fn listens(&mut self, at: usize, now: EventTime) {
        if !self.sources[at].settings.forgets {
            return;
        }
        if let Some(from) = self.sources[at].gap_since {
            self.gap_ends(at, from, now);
        }
        let source = &mut self.sources[at];
        // A connection that comes back up will report the gap itself too, whereas a first
        // connection doesn't report one.
        source.gap_is_reported_again = std::mem::replace(&mut source.was_up, true);
        source.note_complete(now);
        self.each_pbx(at, |pbx| pbx.end_outage(now));
        let pbx = &self.sources[at].settings.pbx;
        if !self.since.contains_key(pbx) {
            let wall = now.by_clock(self.wall_ahead);
            let since = Op::meta(Self::since_key(pbx), wall.micros().to_string());
            self.ops.push(since);
            self.since.insert(pbx.clone(), now);
            if let Some(pbx) = self.pbxes.get_mut(pbx)
                && let Some(second) = &mut pbx.second
            {
                second.since = Some(now);
            }
        }
    }

    /// Records that events from the source may have been missed, and why.
    pub fn gap(&mut self, id: SourceId, why: &str, now: EventTime) {
        let at = usize::from(id.0);
        let source = &mut self.sources[at];
        if std::mem::take(&mut source.gap_is_reported_again) {
            return;
        }
        source.report.note_loss(why.to_owned());
        let from = source.last_received.unwrap_or(now);
        self.gap_ends(at, from, now);
        if self.sources[at].settings.forgets {
            self.begin_loss(at, from);
            self.each_pbx(at, |pbx| pbx.end_outage(now));
            self.sources[at].note_complete(now);
        }
    }

    /// Handles a mark in a source's stream, such as a login or a restart of the PBX, which may end
    /// a gap and affect the PBX's calls. `server` is the message's `server_name`, or empty.
    pub(super) fn on_mark(&mut self, id: SourceId, mark: Mark, server: &str, arrived: EventTime) {
        let at = usize::from(id.0);
        let source = &mut self.sources[at];
        let name = pbx_of(&mut source.status, server, &mut self.servers, &mut self.ops);
        let event = PbxEvent::Mark(mark);
        if let Some(sent_at) = event.sent_at() {
            self.note_event(id, &name, Some(sent_at), arrived);
        }
        let touches = self.mark(at, mark, arrived);
        self.sources[at].up_since_frame = false;
        let line = self.current_line(id);
        let source = &self.sources[at].settings;
        let timing = Timing {
            line: Some(line).filter(|_| source.forgets && !source.format.is_of_broker()),
            wall_ahead: self.wall_ahead,
            kept: !source.forgets,
            order: None,
        };
        if touches && let Some(pbx) = self.pbxes.get_mut(&name) {
            pbx.assembler.timing(timing);
            pbx.assembler.on_event(&event, arrived);
        }
    }

    /// Handles a mark in the stream, returning `false` if it doesn't affect the calls.
    fn mark(&mut self, at: usize, mark: Mark, arrived: EventTime) -> bool {
        let another_source_receives = self.another_source_receives(at);
        let source = &mut self.sources[at];
        let greeting = source.up_since_frame;
        match mark {
            Mark::ListEnd { .. } | Mark::Restarted { .. } | Mark::Alive { .. } => return true,
            Mark::Shutdown { .. } => {
                // The next event is a login, if there is one at all.
                source.gap_since = source.gap_since.or(source.last_received);
                return true;
            }
            Mark::LoggedIn | Mark::FullyBooted { .. } => {}
        }
        let last = source.last_mark.replace(arrived);
        let same = last.is_some_and(|last| arrived.since(last) < ONE_RESTART);
        if greeting || same {
            return !another_source_receives;
        }
        let from = source.gap_since.or(source.received_before);
        self.gap_ends(at, from.unwrap_or(arrived), arrived);
        !another_source_receives
    }

    /// Returns `true` if another source of the same PBX is reporting its channels, or will do so
    /// later because a queue or file is keeping the events.
    fn another_source_receives(&self, at: usize) -> bool {
        let pbx = &self.sources[at].settings.pbx;
        for (other_at, other) in self.sources.iter().enumerate() {
            let of_pbx = other.settings.pbx == *pbx && other.reports_events();
            if other_at == at || !of_pbx || other.is_stalled {
                continue;
            }
            let up = match other.status.state {
                SourceState::Up => true,
                SourceState::Connected => !other.proof.is_deaf(),
                SourceState::Down | SourceState::Reading | SourceState::Done => false,
            };
            if up || !other.settings.forgets {
                return true;
            }
        }
        false
    }

    /// Starts an outage of the PBX unless another of its sources is still receiving events.
    ///
    /// Its open calls may have changed unnoticed since `since`. Entire calls may be missing from
    /// even earlier, because it takes a while to notice that a connection has stalled.
    pub(super) fn begin_loss(&mut self, at: usize, since: EventTime) {
        let received = self.sources[at].last_received;
        let from = received.map_or(since, |received| received.min(since));
        if !self.another_source_receives(at) {
            self.each_pbx(at, |pbx| pbx.begin_outage(since, from));
        }
    }

    /// Returns all PBXs on source number `at`.
    pub(super) fn pbxes_of(&self, at: usize) -> impl Iterator<Item = &super::pbx::Pbx> {
        let pbx = &self.sources[at].settings.pbx;
        let below = format!("{pbx}/");
        let named = self.pbxes.iter();
        named
            .filter(move |(name, _)| *name == pbx || name.starts_with(&below))
            .map(|(_, pbx)| pbx)
    }

    /// Calls `touch` for each of the source's PBXs.
    pub(super) fn each_pbx(&mut self, at: usize, mut touch: impl FnMut(&mut super::pbx::Pbx)) {
        let pbx = &self.sources[at].settings.pbx;
        let below = format!("{pbx}/");
        for (name, of_stream) in &mut self.pbxes {
            if name == pbx || name.starts_with(&below) {
                touch(of_stream);
            }
        }
    }
}
