//! The pure core of the intake, which turns frames and `now` into spool operations and verdicts. It
//! uses no clock, socket, or file.

use crate::{
    IntakeSource, Memory, Pbx, Settings, SourceSettings,
    catch_up::Second,
    gap_log::GapLog,
    pbx::{pbx_of, pbx_that_knows},
    read_again,
    under_way::Branch,
    unmatched,
    unmatched::{Prefix, UnmatchedLog},
    whole_calls::WholeCalls,
};
use callbridge_call::{ClockDifference, EventTime, Patience, PbxEvent, Timing, trunk::Conflict};
use callbridge_formats::{Decoded, Format, Likeness, Unreadable};
use callbridge_mapping::{People, journal};
use callbridge_model::status::SourceState;
use callbridge_source::{Frame, FrameVerdict, SourceId};
use callbridge_spool::{Finished, Known, Op};
use std::{collections::BTreeMap, time::Duration};

/// Maximum number of PBXs across all streams. A stream that lists more isn't plausible.
const PBXES_MAX: usize = 64;
/// The intake runs once a second. If two ticks are further apart than this, nothing was read in
/// between.
const TICK_MAX: Duration = Duration::from_secs(10);

/// Operations to commit together, and the verdicts to give the sources after that.
#[derive(Debug, Default)]
pub struct Batch {
    /// The operations of one transaction, in order.
    pub ops: Vec<Op>,
    /// The verdicts to send after the commit.
    pub verdicts: Vec<(SourceId, FrameVerdict)>,
}

/// A function that looks up a finished and stored call by its PBX and one of its unique IDs.
pub type FindFinished<'a> = &'a mut dyn FnMut(&str, &str) -> Option<Known>;

/// Our own clock, as of the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Unknown,
    Wrong,
    Right(EventTime),
}

pub struct Intake {
    /// Flags that apply to all sources.
    pub settings: Settings,
    pub(super) sources: Vec<IntakeSource>,
    pub(super) pbxes: BTreeMap<String, Pbx>,
    /// The first `server_name` on each PBX's stream, by PBX. That server is the PBX itself, whereas
    /// any other `server_name` is a separate PBX.
    pub(super) servers: BTreeMap<String, String>,
    pub(super) clock: Clock,
    /// How far our wall clock is ahead of the clock used for arrivals.
    pub(super) wall_ahead: ClockDifference,
    /// When we first connected to each PBX.
    pub(super) since: BTreeMap<String, EventTime>,
    pub(super) gap_log: GapLog,
    /// Calls that arrive as complete messages.
    pub(super) whole: WholeCalls,
    /// Channels that carried outside numbers but don't match any trunk.
    pub(super) unmatched: UnmatchedLog,
    /// Format mismatches that haven't been logged yet.
    pub(super) format_mismatches: Vec<(String, String)>,
    pub(super) ops: Vec<Op>,
}

impl Intake {
    /// Creates an intake without any open calls, which [`Intake::restore`] adds. `memory` is what
    /// an earlier run has stored.
    ///
    /// # Errors
    ///
    /// Returns an error if two equally long endpoints can match the same channel.
    pub fn new(
        settings: Settings,
        sources: Vec<SourceSettings>,
        memory: Memory,
    ) -> Result<Self, Conflict> {
        let mut intake = Self {
            sources: sources
                .into_iter()
                .map(|source| IntakeSource::new(source, &settings, &memory))
                .collect(),
            pbxes: BTreeMap::new(),
            servers: memory.servers,
            since: memory.since,
            gap_log: memory.gaps,
            whole: WholeCalls::default(),
            unmatched: memory.unmatched,
            format_mismatches: Vec::new(),
            ops: Vec::new(),
            clock: Clock::Unknown,
            wall_ahead: ClockDifference::ZERO,
            settings,
        };
        for at in 0..intake.sources.len() {
            // A message that's a whole call identifies its PBX and doesn't need an assembler.
            if !intake.carries_whole_calls(at) {
                let pbx = intake.sources[at].settings.pbx.clone();
                intake.pbx(&pbx)?;
            }
        }
        Ok(intake)
    }

    fn pbx(&mut self, id: &str) -> Result<&mut Pbx, Conflict> {
        if !self.pbxes.contains_key(id) {
            let mut settings = self.settings.assembler(id)?;
            let sources = self.sources.iter().map(|source| &source.settings);
            let of_pbx: Vec<_> = sources.filter(|source| source.pbx == id).collect();
            // This PBX's CDRs come from a separate source.
            settings.cdr_apart = of_pbx.iter().any(|source| source.format == Format::CdrAmqp);
            // The PBX for any other `server_name` has no second record, because a catch-up file
            // only contains calls of the PBX in the flag.
            let mut files = of_pbx.iter().filter(|source| source.catch_up);
            let has_cdr_file = files.clone().any(|file| file.format.only_cdrs());
            let has_cel_file = files.any(|file| !file.format.only_cdrs());
            // A CDR file yields estimates, so events are more exact.
            settings.caught_up = has_cel_file;
            let patience = if has_cdr_file {
                Patience::CDR
            } else {
                Patience::CEL
            };
            let mut pbx = Pbx::new(settings.clone());
            if has_cdr_file || has_cel_file {
                let second = pbx.second.insert(Second::new(settings, patience));
                second.since = self.since.get(id).copied();
            }
            self.pbxes.insert(id.to_owned(), pbx);
        }
        Ok(self.pbxes.get_mut(id).expect("named above"))
    }

    /// Restores an open call from its snapshot in the spool. `pbx` is the stored name, which also
    /// contains the branch, and `key` is the call's number.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a valid snapshot.
    pub fn restore(&mut self, pbx: &str, key: u64, bytes: &[u8]) -> Result<(), String> {
        let (pbx, branch) = Branch::read(pbx);
        let pbx = self.pbx(pbx).map_err(|conflict| conflict.to_string())?;
        let restored = match (branch, &mut pbx.second) {
            (Some(Branch::Events), _) => pbx.assembler.restore(key, bytes),
            (Some(Branch::Records), _) => pbx.records.restore(key, bytes),
            (Some(Branch::CatchUpEvents), Some(second)) => second.assembler.restore(key, bytes),
            (Some(Branch::CatchUpRecords), Some(second)) => second.folder.restore(key, bytes),
            (Some(Branch::Held), Some(second)) => second.reconciler.restore(key, bytes),
            // The spool keeps these as open calls until the file is configured again.
            (Some(_), None) | (None, _) => Ok(()),
        };
        restored.map_err(|error| error.to_string())
    }

    /// Records that a file has been read to its current end, so later records can't be from before
    /// `now`. If all of the PBX's sources are files that have been read to the end, its open calls
    /// are finished.
    pub fn at_end(&mut self, id: SourceId, now: EventTime) {
        let at = usize::from(id.0);
        let source = &mut self.sources[at];
        source.status.state = SourceState::Done;
        if source.settings.catch_up
            && let Some(pbx) = self.pbxes.get_mut(&source.settings.pbx)
            && let Some(second) = &mut pbx.second
        {
            second.at_end(now);
        }
        let pbx = &self.sources[at].settings.pbx;
        let mut of_pbx = self
            .sources
            .iter()
            .filter(|source| source.settings.pbx == *pbx);
        if of_pbx.all(IntakeSource::is_at_end) {
            self.each_pbx(at, |pbx| {
                pbx.assembler.finish_all(now);
                pbx.records.at_end(now);
            });
        }
    }

    /// Processes a frame. `finished` looks up a finished and stored call by its PBX and a unique
    /// ID.
    ///
    /// # Errors
    ///
    /// Returns an error if a stream contains a PBX for which two endpoints conflict.
    pub fn frame(
        &mut self,
        id: SourceId,
        frame: &Frame,
        finished: FindFinished<'_>,
    ) -> Result<(), Conflict> {
        let source = &mut self.sources[usize::from(id.0)];
        if source.settings.format.carries_whole_calls() {
            let taken = self.whole.take(source, frame, self.wall_ahead);
            if let Some(Op::Unreadable(unread)) = &taken {
                self.ops.extend(read_again::count_newer(&unread.why));
            }
            self.ops.extend(taken);
            return Ok(());
        }
        source.note(frame, self.wall_ahead);
        let line = source.line(id, frame);
        if let Some(why) = source.fault_of(frame) {
            self.ops.push(source.set_aside(frame, why));
            self.note_unreadable(id, frame);
            return Ok(());
        }
        let file_read = source.file_read(frame);
        let (server, event) = match source.decoder.decode(&frame.bytes) {
            Decoded::Skipped | Decoded::Call(_) => {
                source.status.skipped += 1;
                self.format_mismatches
                    .extend(source.other_format_of(&frame.bytes));
                return Ok(());
            }
            Decoded::Unreadable(why) => {
                self.format_mismatches
                    .extend(source.other_format_of(&frame.bytes));
                let why = describe_unreadable(why, source.settings.format, &frame.bytes);
                self.ops.push(source.set_aside(frame, why));
                self.note_unreadable(id, frame);
                return Ok(());
            }
            Decoded::Event { received, repaired } => {
                source.status.read += 1;
                source.status.repaired += u64::from(repaired);
                source.other_format = None;
                let state = &mut source.status.state;
                (source.proof).on_event(&source.settings, state, &received.event, &frame.bytes);
                self.ops.extend(file_read);
                (received.server, received.event)
            }
        };
        if source.settings.catch_up {
            if let Some(pbx) = self.pbxes.get_mut(&source.settings.pbx)
                && let Some(second) = &mut pbx.second
            {
                second.on_event(&event, frame.arrived, line);
            }
            return Ok(());
        }
        let server = server.unwrap_or_default();
        if let PbxEvent::Mark(mark) = event {
            let server_name = server.into_owned();
            self.on_mark(id, mark, &server_name, frame.arrived);
            return Ok(());
        }
        source.up_since_frame = false;
        // An event without a timestamp is ordered by its position in its file.
        let order = if source.settings.file {
            event.order_after(source.ordered)
        } else {
            None
        };
        source.ordered = order.unwrap_or(source.ordered);
        let kept = !source.settings.forgets;
        let mut name = pbx_of(
            &mut source.status,
            &server,
            &mut self.servers,
            &mut self.ops,
        );
        if let Some(channel) = event.recovered_id()
            && let Some(known) = pbx_that_knows(&self.pbxes, &source.settings.pbx, channel)
        {
            name = known;
        }
        if !self.pbxes.contains_key(&name) {
            if self.pbxes.len() >= PBXES_MAX {
                let why = format!("it names PBX {name}, and {PBXES_MAX} are known already");
                self.ops.push(source.set_aside(frame, why));
                return Ok(());
            }
            let pbx = Pbx::new(self.settings.assembler(&name)?);
            self.pbxes.insert(name.clone(), pbx);
        }
        let pbx = self.pbxes.get_mut(&name).expect("named above");
        let mut arrived = frame.arrived;
        if arrived < self.settings.clock_right_from {
            match self.clock {
                // The frame arrived while the clock was wrong, so it's treated as having arrived
                // now.
                Clock::Right(now) => arrived = now,
                Clock::Unknown | Clock::Wrong => pbx.assembler.hold(),
            }
        }
        pbx.assembler.timing(Timing {
            line,
            wall_ahead: self.wall_ahead,
            kept,
            order,
        });
        let sent_at = event.sent_at();
        let counter = pbx.on_event(&event, arrived, |unique_id| finished(&name, unique_id));
        if let Some(counter) = counter {
            self.ops.push(Op::count(counter, 1));
        }
        self.note_event(id, &name, sent_at, frame.arrived);
        Ok(())
    }

    /// Marks the open calls mentioned in an unreadable frame as incomplete. A frame from a catch-up
    /// file changes nothing, because no received event is missing.
    fn note_unreadable(&mut self, id: SourceId, frame: &Frame) {
        let at = usize::from(id.0);
        if self.sources[at].settings.catch_up {
            return;
        }
        self.each_pbx(at, |pbx| {
            pbx.assembler.on_unreadable(&frame.bytes);
        });
    }

    /// Sets the time, and should be called at least once a second. After a longer pause (because
    /// the process was suspended or the disk hung), events from the pause are read before a call
    /// without events is considered over.
    pub fn tick(&mut self, now: EventTime) {
        if let Clock::Right(last) = self.clock
            && now.since(last) > TICK_MAX
        {
            self.resumes(now);
        }
        if now < self.settings.clock_right_from {
            self.clock = Clock::Wrong;
            self.pbxes.values_mut().for_each(|pbx| pbx.assembler.hold());
            return;
        }
        if !matches!(self.clock, Clock::Right(_)) {
            let right_from = self.settings.clock_right_from;
            let pbxes = self.pbxes.values_mut();
            pbxes.for_each(|pbx| pbx.assembler.release(now, right_from));
            self.whole.clock_is_right(now);
        }
        self.clock = Clock::Right(now);
        for pbx in self.pbxes.values_mut() {
            pbx.assembler.tick(now);
            if let Some(second) = &mut pbx.second {
                second.tick(now);
            }
        }
    }

    /// Merges the calls from catch-up files with received calls. Call this before [`Intake::take`].
    pub fn reconcile(&mut self, now: EventTime, finished: FindFinished<'_>) {
        if self.clock == Clock::Wrong {
            return;
        }
        for (name, pbx) in &mut self.pbxes {
            let mut of_pbx = self
                .sources
                .iter()
                .filter(|source| source.settings.pbx == *name);
            let over = of_pbx.all(IntakeSource::is_at_end);
            pbx.reconcile(now, over, &mut |id| finished(name, id));
        }
        self.fill_gaps(now);
    }

    /// Returns `true` while our clock is wrong, during which calls are kept but not finished.
    pub fn is_held(&self) -> bool {
        self.clock == Clock::Wrong
    }

    /// Makes calls without events from their call detail records. Call this after each
    /// [`Intake::tick`]. `finished` is the same function as for [`Intake::frame`].
    pub fn fold(&mut self, now: EventTime, finished: FindFinished<'_>) {
        if self.clock == Clock::Wrong {
            return;
        }
        for (name, pbx) in &mut self.pbxes {
            pbx.fold(now, &mut |id| finished(name, id));
        }
    }

    /// Returns when the next call can be finished if there are no events before that, or `None` if
    /// there's no open call or our clock is wrong.
    pub fn next_deadline(&self) -> Option<EventTime> {
        if self.clock == Clock::Wrong {
            return None;
        }
        let deadlines = self.pbxes.values().flat_map(|pbx| {
            let second = pbx.second.as_ref().and_then(Second::next_deadline);
            let records = pbx.records.next_deadline();
            [pbx.assembler.next_deadline(), records, second]
        });
        deadlines.flatten().min()
    }

    /// Returns `true` if each message from source number `at` is a whole call.
    pub fn carries_whole_calls(&self, at: usize) -> bool {
        self.sources[at].settings.format.carries_whole_calls()
    }

    /// Judges the calls that have finished since the last take, and returns them in a single batch
    /// along with all other operations and the verdicts for the sources.
    pub fn take(&mut self, people: &People, now: EventTime) -> Batch {
        let mut ops = std::mem::take(&mut self.ops);
        let held = self.is_held();
        let rules = &self.settings.rules;
        let wall = now.by_clock(self.wall_ahead);
        if !held {
            let judged = self
                .whole
                .judge_all(|call, pbx| journal::judge(call, pbx, rules, people, wall));
            ops.extend(judged);
        }
        for (name, pbx) in &mut self.pbxes {
            for call in pbx.take_finished(now) {
                for (prefixes, may_be_phones) in
                    [(&call.unmatched, false), (&call.unknown_channels, true)]
                {
                    for prefix in prefixes {
                        let prefix = Prefix {
                            pbx: name.clone(),
                            text: prefix.clone(),
                            may_be_phones,
                        };
                        self.unmatched.note(prefix, call.started);
                    }
                }
                let judged = journal::judge(&call, name, rules, people, wall);
                ops.push(Op::Finish(Box::new(Finished::new(judged, call))));
            }
            for call in pbx.take_revised() {
                let judged = journal::judge(&call, name, rules, people, wall);
                let mut revised = Finished::new(judged, call);
                revised.is_revision = true;
                ops.push(Op::Finish(Box::new(revised)));
            }
            Branch::Events.keep(name, pbx.assembler.take_changes(), &mut ops);
            Branch::Records.keep(name, pbx.records.take_changes(), &mut ops);
            if let Some(second) = &mut pbx.second {
                second.keep(name, &mut ops);
            }
            pbx.count(&mut ops);
        }
        let trunks = &rules.trunks;
        self.unmatched.prune(wall, |channels| {
            let (pbx, prefix) = (&channels.pbx, &channels.prefix);
            trunks.take_in(pbx, prefix)
                || !channels.may_be_phones && people.knows(&unmatched::device(prefix), trunks, pbx)
        });
        ops.extend(self.unmatched.take());
        ops.extend(self.gap_log.take());
        let mut verdicts = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            let id = SourceId(u16::try_from(at).unwrap_or(u16::MAX));
            ops.extend(source.last_received_op(self.wall_ahead));
            // Calls that are waiting for our clock are kept only by the source, so its frames don't
            // get a verdict.
            if held && source.settings.format.carries_whole_calls() {
                continue;
            }
            let position = source.position.take().map(serde_json::to_value);
            // Strings and numbers can always be serialized.
            if let Some(Ok(position)) = position {
                let source = source.settings.shown.clone();
                ops.push(Op::Position { source, position });
            }
            let refused = source.refused.drain(..);
            verdicts.extend(refused.map(|seq| (id, FrameVerdict::Refused { seq })));
            let through = source.through.take();
            verdicts.extend(through.map(|through| (id, FrameVerdict::Committed { through })));
        }
        Batch { ops, verdicts }
    }

    /// Records that the last batch is on disk, which means that the spool recognizes its calls from
    /// now on.
    pub fn note_commit(&mut self) {
        for pbx in self.pbxes.values_mut() {
            pbx.just_finished.clear();
        }
    }
}

/// Describes why a frame can't be read, and what other format it looks like.
fn describe_unreadable(why: Unreadable, format: Format, bytes: &[u8]) -> String {
    match Likeness::recognize(bytes) {
        Some(like) if like.format != Some(format) => {
            format!("{why}; this looks like {}", like.with_advice("format="))
        }
        Some(_) | None => why.to_string(),
    }
}
