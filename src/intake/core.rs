//! Frames and `now` in, spool operations and verdicts out. No clock, socket or file.

use super::pbx::{Pbx, pbx_of};
use super::records::Records;
use super::settings::{Settings, SourceSettings};
use super::source::{Source, note_mark};
use crate::journal;
use crate::ops::status;
use crate::people::People;
use crate::spool::{Finished, Known, Op};
use crate::trunk::Trunks;
use callbridge_asterisk::{Decoded, DecoderSettings, Format, Likeness};
use callbridge_call::trunk::Conflict;
use callbridge_call::{EventTime, Told};
use callbridge_source::{FilePosition, Frame, SourceId, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// PBXs on all streams together; a stream that names more of them is not telling the truth.
const PBXES_MAX: usize = 64;

/// What is to be stored together, and what is to be told after that.
#[derive(Debug, Default)]
pub struct Batch {
    /// One transaction.
    pub ops: Vec<Op>,
    /// To each source, after the commit.
    pub verdicts: Vec<(SourceId, Verdict)>,
}

/// Our own clock, as of the last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Unknown,
    Wrong,
    Right(EventTime),
}

/// The intake of all sources.
pub struct Intake {
    settings: Settings,
    sources: Vec<Source>,
    pbxes: BTreeMap<String, Pbx>,
    /// `server_name` first heard on a stream of this PBX: it is the PBX itself, others beside it.
    servers: BTreeMap<String, String>,
    /// PBXs whose CDRs come by a source of their own.
    cdr_apart: BTreeSet<String>,
    ops: Vec<Op>,
    clock: Clock,
}

impl Intake {
    /// An intake without open calls. `servers`: as [`Intake::server_key`] has stored them.
    ///
    /// # Errors
    /// When two equally long endpoints can match one channel.
    pub fn new(
        settings: Settings,
        sources: Vec<SourceSettings>,
        servers: BTreeMap<String, String>,
    ) -> Result<Self, Conflict> {
        let of_cdrs = sources.iter().filter(|it| it.format == Format::CdrAmqp);
        let mut intake = Self {
            cdr_apart: of_cdrs.map(|source| source.pbx.clone()).collect(),
            sources: Vec::new(),
            pbxes: BTreeMap::new(),
            servers,
            ops: Vec::new(),
            clock: Clock::Unknown,
            settings,
        };
        for source in sources {
            intake.pbx(&source.pbx)?;
            let decoder = DecoderSettings {
                zone: intake.settings.zone.clone(),
                cel_columns: intake.settings.cel_columns.clone(),
            };
            intake.sources.push(Source::new(source, decoder));
        }
        Ok(intake)
    }

    /// Under which name the spool keeps the `server_name` first heard on this PBX's stream.
    pub fn server_key(pbx: &str) -> String {
        format!("first-server:{pbx}")
    }

    fn pbx(&mut self, id: &str) -> Result<&mut Pbx, Conflict> {
        if !self.pbxes.contains_key(id) {
            let mut settings = self.settings.assembler(id)?;
            settings.cdr_apart = self.cdr_apart.contains(id);
            self.pbxes.insert(id.to_owned(), Pbx::new(settings));
        }
        Ok(self.pbxes.get_mut(id).expect("put there above"))
    }

    /// Puts an open call back, as the spool kept it.
    ///
    /// # Errors
    /// When the bytes are not a snapshot.
    pub fn restore(&mut self, pbx: &str, key: u64, bytes: &[u8]) -> Result<(), String> {
        let conflict = |conflict: Conflict| conflict.to_string();
        if let Some(pbx) = Records::pbx_of(pbx) {
            return self.pbx(pbx).map_err(conflict)?.records.restore(key, bytes);
        }
        let pbx = self.pbx(pbx).map_err(conflict)?;
        pbx.assembler
            .restore(key, bytes)
            .map_err(|error| error.to_string())
    }

    /// How each source is doing, in the order of the flags.
    pub fn statuses(&self) -> Vec<status::Source> {
        self.sources
            .iter()
            .map(|source| source.status.clone())
            .collect()
    }

    /// Calls that are open now.
    pub fn open_calls(&self) -> usize {
        self.pbxes
            .values()
            .map(|pbx| pbx.assembler.open_calls() + pbx.records.open_calls())
            .sum()
    }

    /// The source's line is up.
    pub fn up(&mut self, id: SourceId) {
        let Some(source) = self.sources.get_mut(usize::from(id.0)) else {
            return;
        };
        source.status.state = if source.settings.file {
            status::SourceState::Reading
        } else {
            status::SourceState::Up
        };
        source.status.why = None;
        source.up_since_frame = true;
    }

    /// The source's line is down.
    pub fn down(&mut self, id: SourceId, why: String) {
        let Some(source) = self.sources.get_mut(usize::from(id.0)) else {
            return;
        };
        source.status.state = status::SourceState::Down;
        source.status.why = Some(why);
    }

    /// Events of the source may have been missed.
    pub fn gap(&mut self, id: SourceId) {
        if let Some(source) = self.sources.get_mut(usize::from(id.0)) {
            source.status.gaps += 1;
        }
    }

    /// A file was read to this place, whether it gave a frame or not.
    pub fn read_to(&mut self, id: SourceId, position: &FilePosition) {
        if let Some(source) = self.sources.get_mut(usize::from(id.0)) {
            source.position = serde_json::to_value(position).ok();
        }
    }

    /// The file is read to its present end: nothing that could still come belongs before `now`.
    pub fn at_end(&mut self, id: SourceId, now: EventTime) {
        let Some(source) = self.sources.get_mut(usize::from(id.0)) else {
            return;
        };
        source.status.state = status::SourceState::Done;
        let pbx = source.settings.pbx.clone();
        let mut of_pbx = self
            .sources
            .iter()
            .filter(|source| source.settings.pbx == pbx);
        let ended = |source: &Source| {
            source.settings.file && source.status.state == status::SourceState::Done
        };
        if of_pbx.all(ended) {
            for (name, pbx_of_file) in &mut self.pbxes {
                if *name == pbx || name.starts_with(&format!("{pbx}/")) {
                    pbx_of_file.assembler.finish_all(now);
                    pbx_of_file.records.at_end(now);
                }
            }
        }
    }

    /// Takes a frame in. `finished` says which finished and stored call this PBX's unique id
    /// belongs to.
    ///
    /// # Errors
    /// When a stream brings a PBX for which two endpoints conflict.
    pub fn frame(
        &mut self,
        id: SourceId,
        frame: &Frame,
        finished: &mut dyn FnMut(&str, &str) -> Option<Known>,
    ) -> Result<(), Conflict> {
        let Some(source) = self.sources.get_mut(usize::from(id.0)) else {
            return Ok(());
        };
        source.note(frame);
        let (server, told) = match source.decoder.decode(&frame.bytes) {
            Decoded::Skipped => {
                source.status.skipped += 1;
                return Ok(());
            }
            Decoded::Unreadable(why) => {
                let words = match Likeness::of(&frame.bytes) {
                    Some(like) if like.format != Some(source.settings.format) => {
                        format!("{why}; this looks like {}", like.with_advice("format="))
                    }
                    Some(_) | None => why.to_string(),
                };
                self.ops.push(source.set_aside(frame, words));
                return Ok(());
            }
            Decoded::Event { heard, repaired } => {
                source.status.read += 1;
                source.status.repaired += u64::from(repaired);
                (heard.server, heard.told)
            }
        };
        if let Told::Mark(mark) = told {
            let just_up = source.up_since_frame;
            note_mark(
                &mut source.status,
                &mut source.last_mark,
                just_up,
                mark,
                frame,
            );
        }
        source.up_since_frame = false;
        let (pbx, first) = (&source.settings.pbx, server.as_deref());
        let name = pbx_of(pbx, first, &mut self.servers, &mut self.ops);
        if !self.pbxes.contains_key(&name) {
            if self.pbxes.len() >= PBXES_MAX {
                let why = format!("it speaks of PBX {name}, and {PBXES_MAX} are known already");
                self.ops.push(source.set_aside(frame, why));
                return Ok(());
            }
            let pbx = Pbx::new(self.settings.assembler(&name)?);
            self.pbxes.insert(name.clone(), pbx);
        }
        let pbx = self.pbxes.get_mut(&name).expect("put there above");
        let arrived = match self.clock {
            Clock::Unknown | Clock::Wrong if frame.arrived < self.settings.clock_right_from => {
                pbx.assembler.hold();
                frame.arrived
            }
            // It came while the clock was wrong, and was taken after that.
            Clock::Right(now) if frame.arrived < self.settings.clock_right_from => now,
            Clock::Unknown | Clock::Wrong | Clock::Right(_) => frame.arrived,
        };
        let known = |unique: &str| finished(&name, unique);
        if let Some(counter) = pbx.hear(&told, arrived, known) {
            let counter = counter.to_owned();
            self.ops.push(Op::Count { counter, by: 1 });
        }
        Ok(())
    }

    /// Says what time it is.
    pub fn tick(&mut self, now: EventTime) {
        if now < self.settings.clock_right_from {
            self.clock = Clock::Wrong;
            self.pbxes.values_mut().for_each(|pbx| pbx.assembler.hold());
            return;
        }
        if !matches!(self.clock, Clock::Right(_)) {
            let right_from = self.settings.clock_right_from;
            let pbxes = self.pbxes.values_mut();
            pbxes.for_each(|pbx| pbx.assembler.release(now, right_from));
        }
        self.clock = Clock::Right(now);
        for pbx in self.pbxes.values_mut() {
            pbx.assembler.tick(now);
        }
    }

    /// Our clock is wrong: calls are kept, and none is finished.
    pub fn is_held(&self) -> bool {
        self.clock == Clock::Wrong
    }

    /// Folds records of calls that no event told of; after each tick. `finished` is that of
    /// [`Intake::frame`].
    pub fn fold(&mut self, now: EventTime, finished: &mut dyn FnMut(&str, &str) -> Option<Known>) {
        if self.clock == Clock::Wrong {
            return;
        }
        for (name, pbx) in &mut self.pbxes {
            pbx.fold(now, &mut |id| finished(name, id));
        }
    }

    /// When the next call could be finished if nothing else is heard.
    pub fn next_deadline(&self) -> Option<EventTime> {
        if self.clock == Clock::Wrong {
            return None;
        }
        self.pbxes
            .values()
            .flat_map(|pbx| [pbx.assembler.next_deadline(), pbx.records.next_deadline()])
            .flatten()
            .min()
    }

    /// Finished calls that nobody has taken yet are judged; everything since the last take is
    /// given out as one batch.
    pub fn take(&mut self, people: &People, now: EventTime) -> Batch {
        let mut ops = std::mem::take(&mut self.ops);
        for (name, pbx) in &mut self.pbxes {
            for call in pbx.take_finished() {
                let judged = journal::judge(&call, name, &self.settings.rules, people, now);
                ops.push(Op::Finish(Box::new(Finished { judged, call })));
            }
            for change in pbx.assembler.take_changes() {
                let (key, snapshot) = (change.key, change.snapshot);
                ops.push(Op::Open {
                    pbx: name.clone(),
                    key,
                    snapshot,
                });
            }
            pbx.records.keep(name, &mut ops);
            pbx.count(&mut ops);
        }
        let mut verdicts = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            let id = SourceId(u16::try_from(at).unwrap_or(u16::MAX));
            if let Some(position) = source.position.take() {
                ops.push(Op::Position {
                    source: source.settings.shown.clone(),
                    position,
                });
            }
            for seq in source.refused.drain(..) {
                verdicts.push((id, Verdict::Refused { seq }));
            }
            if let Some(through) = source.through.take() {
                verdicts.push((id, Verdict::Committed { through }));
            }
        }
        Batch { ops, verdicts }
    }

    /// The last batch is on the disk: the spool remembers its calls from here on.
    pub fn committed(&mut self) {
        self.pbxes.values_mut().for_each(Pbx::committed);
    }

    /// The trunks, for whoever judges calls anew.
    pub fn trunks(&self) -> &Trunks {
        self.settings.trunks()
    }
}
