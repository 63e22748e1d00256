//! The state of each source, which covers what its connection reports besides frames and what
//! `status` shows.

use crate::{
    IntakeSource,
    core::{Clock, Intake},
    proof::describe,
};
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_call::{EventTime, Reconciler};
use callbridge_model::status::{self, RightKind, SourceState};
use callbridge_source::{CountsNow, FilePosition, SourceId};

impl Intake {
    /// Returns the status of each source, in the order of the flags.
    pub fn statuses(&self) -> Vec<status::SourceStatus> {
        let mut statuses = Vec::new();
        for (at, source) in self.sources.iter().enumerate() {
            let mut status = source.status_with_problems();
            status.clock_ahead_ms = self.clock_ahead_ms(at);
            if let Clock::Right(now) = self.clock {
                status.late_seconds = source.late_seconds(now);
            }
            // A file with held calls is shown as being read, because more records may decide them.
            if let Some(reconciler) = self.reconciler_of(source) {
                status.awaited = reconciler.waiting().count() as u64;
                if status.state == SourceState::Done && !reconciler.is_empty() {
                    status.state = SourceState::Reading;
                }
            }
            statuses.push(status);
        }
        statuses
    }

    /// Returns the status of each source while nothing can be stored. Since queues aren't read in
    /// that case, they're shown as down for this reason.
    pub fn statuses_while_held(&self) -> Vec<status::SourceStatus> {
        let mut all = self.statuses();
        for (status, source) in all.iter_mut().zip(&self.sources) {
            let is_queue = !source.settings.file && !source.settings.forgets;
            if is_queue && status.state.is_up() {
                status.state = SourceState::Down;
                status.reason = Some(callbridge_source::Error::Paused.to_string());
            }
        }
        all
    }

    /// Returns the reconciler holding calls for this catch-up file, or `None` for any other source.
    fn reconciler_of(&self, source: &IntakeSource) -> Option<&Reconciler> {
        let pbx = self.pbxes.get(&source.settings.pbx)?;
        let second = pbx.second.as_ref().filter(|_| source.settings.catch_up)?;
        Some(&second.reconciler)
    }

    /// Copies each source's counters, in the order of the flags.
    pub fn note_counts(&mut self, counts: impl Iterator<Item = CountsNow>) {
        for (source, counts) in self.sources.iter_mut().zip(counts) {
            source.note_counts(counts);
        }
    }

    /// Records that the source's connection is up.
    pub fn up(&mut self, id: SourceId, now: EventTime) {
        let at = usize::from(id.0);
        let source = &mut self.sources[at];
        if source.settings.file {
            source.status.state = SourceState::Reading;
        } else {
            source.status.state = SourceState::Connected;
            let since = now.by_clock(self.wall_ahead);
            source.status.connected_since = Some(since.floor_seconds().get());
            // The new connection hasn't proven anything yet.
            source.proof.received = false;
            source.proof.timed = false;
            source.proof.missing_rights.clear();
            source.proof.checked = 0;
        }
        source.connection += 1;
        source.is_stalled = false;
        source.status.reason = None;
        source.status.down_since = None;
        source.up_since_frame = true;
        source.report.up();
        self.receives(at, Some(now));
        self.listens(at, now);
    }

    /// Records that a file has been read up to here, with or without a frame.
    pub fn read_to(&mut self, id: SourceId, position: &FilePosition) {
        let source = &mut self.sources[usize::from(id.0)];
        source.position = Some(position.clone());
    }

    /// Returns `true` if no event, call, or different format has been found in the source so far.
    pub fn has_read_nothing(&self, id: SourceId) -> bool {
        let source = &self.sources[usize::from(id.0)];
        source.status.read == 0 && source.other_format.is_none()
    }

    /// Records that a source isn't in the configured format, with a message for the log and
    /// `status`.
    pub fn report_format_mismatch(&mut self, id: SourceId, message: String) {
        let source = &mut self.sources[usize::from(id.0)];
        source.other_format = Some(message.clone());
        self.format_mismatches
            .push((source.settings.label.clone(), message));
    }

    /// Records a permission that a source's account lacks, as determined by its connection.
    pub fn report_missing_right(&mut self, id: SourceId, right: MissingRight) {
        let source = &mut self.sources[usize::from(id.0)];
        let (kind, message) = describe(right);
        source.proof.report_missing(kind, message);
        // Our test event came back, but no call events are arriving.
        let state = &mut source.status.state;
        if kind == RightKind::Calls && *state == SourceState::Up {
            *state = SourceState::Connected;
        }
    }

    /// Marks a source as up although no call is in progress, because its connection returned the
    /// test event that callbridge had sent.
    pub fn events_flow(&mut self, id: SourceId) {
        let source = &mut self.sources[usize::from(id.0)];
        let state = &mut source.status.state;
        if *state == SourceState::Connected && !source.proof.is_deaf() {
            *state = SourceState::Up;
        }
    }

    /// Takes the new messages about permissions that an account lacks, along with the source's
    /// label.
    pub fn take_lacks(&mut self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for source in &mut self.sources {
            let unreported = source.take_unreported().into_iter();
            found.extend(unreported.map(|what| (source.settings.label.clone(), what)));
        }
        found
    }
}
