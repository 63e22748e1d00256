//! Frames and `now` in, spool operations and verdicts out. No clock, socket or file.

use crate::journal::{self, Rules};
use crate::ops::status;
use crate::people::People;
use crate::spool::{Finished, Op};
use crate::trunk::Trunks;
use callbridge_asterisk::{Decoded, Decoder, DecoderSettings, Format};
use callbridge_call::trunk::Conflict;
use callbridge_call::{Assembler, Counts, EventTime, Mark, Told};
use callbridge_source::{FilePosition, Frame, SourceId, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Two marks of one restart (a login and `FullyBooted`) come this close together.
const ONE_RESTART: Duration = Duration::from_secs(5);

/// PBXs on all streams together; a stream that names more of them is not telling the truth.
const PBXES_MAX: usize = 64;

/// What the flags say of assembling.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--settle`
    pub settle: Duration,
    /// `--cdr-wait`
    pub cdr_wait: Duration,
    /// `--max-call`
    pub max_call: Duration,
    /// `--max-open-calls`
    pub max_open_calls: usize,
    /// `--pbx-timezone`
    pub zone: Option<jiff::tz::TimeZone>,
    /// Trunks and what is journaled of them.
    pub rules: Rules,
}

impl Settings {
    /// How the calls of this PBX are assembled.
    ///
    /// # Errors
    /// When two equally long endpoints can match one channel.
    pub fn assembler(&self, pbx: &str) -> Result<callbridge_call::Settings, Conflict> {
        Ok(callbridge_call::Settings {
            settle: self.settle,
            cdr_wait: Some(self.cdr_wait),
            max_call: self.max_call,
            max_open_calls: self.max_open_calls,
            ..callbridge_call::Settings::new(self.rules.trunks.endpoints(pbx)?)
        })
    }

    fn trunks(&self) -> &Trunks {
        &self.rules.trunks
    }
}

/// What the intake has to know of a source.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Its URL as shown; what its place is kept under.
    pub shown: String,
    /// The id of its PBX.
    pub pbx: String,
    /// What its frames are.
    pub format: Format,
    /// It is a file.
    pub file: bool,
}

/// What is to be stored together, and what is to be told after that.
#[derive(Debug, Default)]
pub struct Batch {
    /// One transaction.
    pub ops: Vec<Op>,
    /// To each source, after the commit.
    pub verdicts: Vec<(SourceId, Verdict)>,
}

struct Source {
    settings: SourceSettings,
    decoder: Decoder,
    status: status::Source,
    last_mark: Option<EventTime>,
    up_since_frame: bool,
    through: Option<u64>,
    refused: Vec<u64>,
    position: Option<serde_json::Value>,
}

impl Source {
    /// Where the source stands after this frame.
    fn note(&mut self, frame: &Frame) {
        self.through = Some(frame.seq);
        self.status.last_event_at = Some(frame.arrived.floor_seconds().get());
        if self.settings.file {
            self.status.state = status::SourceState::Reading;
        }
        if let Some(position) = &frame.position {
            self.position = serde_json::to_value(position).ok();
        }
    }

    /// A frame that cannot be read is kept, and must not come again.
    fn set_aside(&mut self, frame: &Frame, why: String) -> Op {
        self.status.unreadable += 1;
        self.refused.push(frame.seq);
        Op::Unreadable {
            source: self.settings.shown.clone(),
            pbx: self.settings.pbx.clone(),
            bytes: frame.bytes.to_vec(),
            why,
            at: frame.arrived,
        }
    }
}

struct Pbx {
    assembler: Assembler,
    counted: Counts,
}

/// The intake of all sources.
pub struct Intake {
    settings: Settings,
    sources: Vec<Source>,
    pbxes: BTreeMap<String, Pbx>,
    /// `server_name` first heard on a stream of this PBX: it is the PBX itself, others beside it.
    servers: BTreeMap<String, String>,
    /// Ids of calls finished in this batch: the spool does not know them yet.
    just_finished: BTreeSet<(String, String)>,
    ops: Vec<Op>,
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
        let mut intake = Self {
            sources: Vec::new(),
            pbxes: BTreeMap::new(),
            servers,
            just_finished: BTreeSet::new(),
            ops: Vec::new(),
            settings,
        };
        for source in sources {
            intake.pbx(&source.pbx)?;
            let decoder = DecoderSettings {
                zone: intake.settings.zone.clone(),
                ..DecoderSettings::default()
            };
            intake.sources.push(Source {
                decoder: Decoder::new(source.format, decoder),
                status: status::Source {
                    url: source.shown.clone(),
                    pbx: source.pbx.clone(),
                    ..status::Source::default()
                },
                settings: source,
                last_mark: None,
                up_since_frame: true,
                through: None,
                refused: Vec::new(),
                position: None,
            });
        }
        Ok(intake)
    }

    /// Under which name the spool keeps the `server_name` first heard on this PBX's stream.
    pub fn server_key(pbx: &str) -> String {
        format!("first-server:{pbx}")
    }

    fn pbx(&mut self, id: &str) -> Result<&mut Pbx, Conflict> {
        if !self.pbxes.contains_key(id) {
            let assembler = Assembler::new(self.settings.assembler(id)?);
            let pbx = Pbx {
                assembler,
                counted: Counts::default(),
            };
            self.pbxes.insert(id.to_owned(), pbx);
        }
        Ok(self.pbxes.get_mut(id).expect("put there above"))
    }

    /// Puts an open call back, as the spool kept it.
    ///
    /// # Errors
    /// When the bytes are not a snapshot.
    pub fn restore(&mut self, pbx: &str, key: u64, bytes: &[u8]) -> Result<(), String> {
        let pbx = self.pbx(pbx).map_err(|conflict| conflict.to_string())?;
        pbx.assembler
            .restore(key, bytes)
            .map_err(|error| error.to_string())
    }

    /// Every PBX the sources speak of.
    pub fn pbx_ids(&self) -> Vec<String> {
        self.pbxes.keys().cloned().collect()
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
            .map(|pbx| pbx.assembler.open_calls())
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
                }
            }
        }
    }

    /// Takes a frame in. `remembers` says whether a call with this PBX's unique id is finished
    /// and stored already.
    ///
    /// # Errors
    /// When a stream brings a PBX for which two endpoints conflict.
    pub fn frame(
        &mut self,
        id: SourceId,
        frame: &Frame,
        remembers: &mut dyn FnMut(&str, &str) -> bool,
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
                self.ops.push(source.set_aside(frame, why.to_string()));
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
            let assembler = Assembler::new(self.settings.assembler(&name)?);
            let counted = Counts::default();
            self.pbxes.insert(name.clone(), Pbx { assembler, counted });
        }
        let pbx = self.pbxes.get_mut(&name).expect("put there above");
        if let Told::Channel(event) = &told {
            let unique = event.channel.uniqueid.as_ref();
            let just_finished = &self.just_finished;
            let finished = |unique: &str| {
                just_finished.contains(&(name.clone(), unique.to_owned()))
                    || remembers(&name, unique)
            };
            if is_late(&pbx.assembler, unique, finished) {
                let counter = "late".to_owned();
                self.ops.push(Op::Count { counter, by: 1 });
                return Ok(());
            }
        }
        pbx.assembler.hear(&told, frame.arrived);
        Ok(())
    }

    /// Says what time it is.
    pub fn tick(&mut self, now: EventTime) {
        for pbx in self.pbxes.values_mut() {
            pbx.assembler.tick(now);
        }
    }

    /// When the next call could be finished if nothing else is heard.
    pub fn next_deadline(&self) -> Option<EventTime> {
        self.pbxes
            .values()
            .filter_map(|pbx| pbx.assembler.next_deadline())
            .min()
    }

    /// Finished calls that nobody has taken yet are judged; everything since the last take is
    /// given out as one batch.
    pub fn take(&mut self, people: &People, now: EventTime) -> Batch {
        let mut ops = std::mem::take(&mut self.ops);
        for (name, pbx) in &mut self.pbxes {
            for call in pbx.assembler.take_finished() {
                let ids = std::iter::once(&call.linkedid).chain(&call.also_known_as);
                for id in ids {
                    self.just_finished
                        .insert((name.clone(), id.as_str().to_owned()));
                }
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
            count(&mut ops, pbx.assembler.counts(), &mut pbx.counted);
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
        self.just_finished.clear();
    }

    /// The trunks, for whoever judges calls anew.
    pub fn trunks(&self) -> &Trunks {
        self.settings.trunks()
    }
}

/// Whether the channel belongs to a call that is over: what is told of it now changes nothing.
fn is_late(assembler: &Assembler, unique: &str, finished: impl FnOnce(&str) -> bool) -> bool {
    !assembler.knows(unique) && finished(unique)
}

/// Which PBX a frame speaks of. The first `server_name` on a PBX's stream is that PBX; another
/// one is another PBX, whose unique ids may be the same.
fn pbx_of(
    pbx: &str,
    server: Option<&str>,
    servers: &mut BTreeMap<String, String>,
    ops: &mut Vec<Op>,
) -> String {
    let Some(server) = server.filter(|server| !server.is_empty()) else {
        return pbx.to_owned();
    };
    match servers.get(pbx) {
        Some(first) if first == server => pbx.to_owned(),
        Some(_) => format!("{pbx}/{server}"),
        None => {
            servers.insert(pbx.to_owned(), server.to_owned());
            ops.push(Op::Meta {
                key: Intake::server_key(pbx),
                value: server.to_owned(),
            });
            pbx.to_owned()
        }
    }
}

/// A restart of the PBX, or of the gateway's line to it, in the middle of the stream: a gap.
fn note_mark(
    status: &mut status::Source,
    last: &mut Option<EventTime>,
    just_up: bool,
    mark: Mark,
    frame: &Frame,
) {
    let same = last.is_some_and(|last| frame.arrived.since(last) < ONE_RESTART);
    *last = Some(frame.arrived);
    let greeting = just_up && mark != Mark::Shutdown;
    if !same && !greeting {
        status.gaps += 1;
    }
}

/// What the assembler ignored or set right since the last batch, as durable counters.
fn count(ops: &mut Vec<Op>, now: &Counts, before: &mut Counts) {
    let pairs = [
        ("doubled", now.doubled, before.doubled),
        ("late", now.late, before.late),
        ("clock_clamped", now.clock_clamped, before.clock_clamped),
        ("unidentified", now.unidentified, before.unidentified),
        ("facts_dropped", now.facts_dropped, before.facts_dropped),
        ("ghosts", now.ghosts, before.ghosts),
        ("forced", now.forced, before.forced),
        ("cdr_unmatched", now.cdr_unmatched, before.cdr_unmatched),
    ];
    for (counter, now, before) in pairs {
        if now > before {
            ops.push(Op::Count {
                counter: counter.to_owned(),
                by: now - before,
            });
        }
    }
    before.clone_from(now);
}
