//! A recording's bytes in, its finished calls out. Pure: time is the recording's own.

use callbridge_call::trunk::Conflict;
use callbridge_call::{
    Assembler, ChannelEvent, EventTime, FinishedCall, Folder, Mark, Origin, PbxEvent, Settings,
    Timing, ToldCall, UniqueId, WrongCall,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Framer};
use callbridge_mapping::Trunks;
use std::collections::BTreeMap;

/// How a recording is read.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How it is written.
    pub format: Format,
    /// The PBX that it is of.
    pub pbx: String,
    /// The trunks, whose variables alone are kept.
    pub trunks: Trunks,
    /// Its calls are told apart by these (the endpoints are taken from the trunks).
    pub settings: Settings,
    /// `--pbx-timezone`
    pub zone: Option<jiff::tz::TimeZone>,
    /// `--columns`
    pub cel_columns: Option<callbridge_asterisk::Columns>,
}

/// What became of its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Events a call can depend on.
    pub read: u64,
    /// Well-formed messages no call depends on.
    pub skipped: u64,
    /// Of those read, the ones that were set right.
    pub repaired: u64,
    /// Messages nothing can be made of.
    pub unreadable: u64,
    /// Events without a time of their own.
    pub timeless: u64,
}

impl MessageCounts {
    /// Something in it is written in the format.
    pub fn is_readable(&self) -> bool {
        self.read + self.skipped > 0
    }

    /// Nothing in it tells of a call, and something could not be read, or no message was found.
    pub fn is_doubtful(&self) -> bool {
        self.read == 0 && (self.unreadable > 0 || self.skipped == 0)
    }
}

/// What is told of a recording, in its order: a call with its PBX (`--pbx-id`, or a `server_name`
/// below it where one recording tells of several), or a message that is no call that can be.
pub type Told = Result<ToldCall, WrongCall>;

/// A recording being read.
pub struct Reading {
    rules: Rules,
    framer: Framer,
    hearing: Hearing,
}

/// All behind the framer, which lends its messages from its own buffer.
struct Hearing {
    decoder: Decoder,
    pbxes: BTreeMap<String, PbxReading>,
    /// The first `server_name`: that is the PBX itself.
    server: Option<String>,
    counts: MessageCounts,
    now: EventTime,
    /// Of messages, each of which is a call.
    told: Vec<Told>,
}

impl Reading {
    /// At the beginning of a recording.
    pub fn new(rules: Rules) -> Self {
        let settings = DecoderSettings {
            zone: rules.zone.clone(),
            cel_columns: rules.cel_columns.clone(),
            variables: Some(rules.trunks.variables()),
        };
        let hearing = Hearing {
            decoder: Decoder::new(rules.format, settings),
            pbxes: BTreeMap::new(),
            server: None,
            counts: MessageCounts::default(),
            now: EventTime::from_seconds(0),
            told: Vec::new(),
        };
        Self {
            framer: Framer::new(rules.format),
            rules,
            hearing,
        }
    }

    /// Room for the next piece; say with [`Reading::filled`] how much of it was used.
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        self.framer.buffer().space(bytes)
    }

    /// Takes in what was written into [`Reading::space`], and gives the calls it finished.
    ///
    /// # Errors
    /// When two endpoints conflict.
    pub fn filled(&mut self, bytes: usize) -> Result<Vec<Told>, Conflict> {
        self.framer.buffer().filled(bytes);
        while let Some(frame) = self.framer.next() {
            self.hearing.hear(frame, &self.rules)?;
        }
        Ok(self.hearing.finished())
    }

    /// The recording ends here: the calls finished by its last events. In rows that a PBX writes
    /// of its own accord the other calls end, too, where by `now` no call is that long: nothing
    /// more will tell of them.
    ///
    /// # Errors
    /// When two endpoints conflict.
    pub fn finish(&mut self, now: EventTime) -> Result<Vec<Told>, Conflict> {
        while let Some(frame) = self.framer.finish() {
            self.hearing.hear(frame, &self.rules)?;
        }
        let end = self.hearing.now;
        for pbx in self.hearing.pbxes.values_mut() {
            pbx.assembler.finish_all(end);
            pbx.folder.finish_all(end);
            if self.rules.format.is_cel() {
                pbx.assembler.tick(end.max(now));
            }
        }
        Ok(self.hearing.finished())
    }

    /// The calls that go on at the recording's end, for all that is known, as they are told so far.
    /// To be asked once all is read.
    pub fn under_way(&mut self) -> Vec<ToldCall> {
        let end = self.hearing.now;
        for pbx in self.hearing.pbxes.values_mut() {
            pbx.end_before(None, end);
            pbx.assembler.finish_all(end);
        }
        self.hearing.finished().into_iter().flatten().collect()
    }

    /// What became of its messages so far.
    pub fn counts(&self) -> MessageCounts {
        self.hearing.counts
    }

    /// Its calls come whole, and name their trunks.
    pub fn is_of_messages(&self) -> bool {
        self.rules.format.tells_whole_calls()
    }

    /// The latest time that it told.
    pub fn now(&self) -> EventTime {
        self.hearing.now
    }

    /// Calls whose end was not told so far.
    pub fn open_calls(&self) -> usize {
        let pbxes = self.hearing.pbxes.values();
        pbxes.map(|pbx| pbx.assembler.open_calls()).sum()
    }
}

/// The calls of one PBX. Where channel events tell of a call, its records add nothing but their
/// user field.
struct PbxReading {
    assembler: Assembler,
    folder: Folder,
    /// The unique id of the channel that was met last, as CEL tells it.
    newest: String,
}

impl PbxReading {
    fn new(settings: Settings) -> Self {
        Self {
            folder: Folder::new(settings.clone()),
            assembler: Assembler::new(settings),
            newest: String::new(),
        }
    }

    /// A PBX that is killed ends its calls by no word. That it was started anew its next channel
    /// shows, before that takes the name of one that is gone.
    fn look_for_restart(&mut self, event: &ChannelEvent<'_>, arrived: EventTime) {
        let id = event.channel.uniqueid.as_ref();
        if event.origin != Origin::Cel || id == self.newest || UniqueId::epoch_in(id).is_none() {
            return;
        }
        let age = |id: &str| UniqueId::new(id).map(|id| (id.age().0, id.age().1));
        if UniqueId::is_restart(&self.newest, id) {
            self.end_before(event.at, arrived);
        } else if age(id) < age(&self.newest) {
            return;
        }
        id.clone_into(&mut self.newest);
    }

    /// The calls of which nothing was told since another process of the PBX `began` have ended
    /// unheard; with `None` all that are left.
    fn end_before(&mut self, began: Option<EventTime>, now: EventTime) {
        let mark = PbxEvent::Mark(Mark::Restarted { began });
        self.assembler.hear(&mark, now);
    }

    fn hear(&mut self, told: &PbxEvent<'_>, arrived: EventTime, order: Option<EventTime>) {
        if let PbxEvent::Channel(event) = told {
            self.look_for_restart(event, arrived);
        }
        self.assembler.timing(Timing { kept: true, order });
        self.assembler.hear(told, arrived);
        if let PbxEvent::Cdr(cdr) = told {
            let ids = [&cdr.uniqueid, &cdr.linkedid];
            if !ids.iter().any(|id| self.assembler.has_heard(id)) {
                self.folder.hear(cdr, arrived);
            }
        }
    }

    fn take_finished(&mut self) -> Vec<FinishedCall> {
        let mut calls = self.assembler.take_finished();
        let heard = |call: &FinishedCall| {
            let mut ids = std::iter::once(&call.linkedid).chain(&call.also_known_as);
            ids.any(|id| self.assembler.has_heard(id.as_str()))
        };
        let folded = self.folder.take_finished().into_iter();
        calls.extend(folded.filter(|call| !heard(call)));
        calls
    }
}

impl Hearing {
    fn hear(&mut self, frame: Frame<'_>, rules: &Rules) -> Result<(), Conflict> {
        let message = match frame {
            Frame::Message(message) => message,
            Frame::TooLong { .. } => {
                self.counts.unreadable += 1;
                return Ok(());
            }
        };
        let heard = match self.decoder.decode(message) {
            Decoded::Skipped => {
                self.counts.skipped += 1;
                return Ok(());
            }
            Decoded::Unreadable(_) => {
                self.counts.unreadable += 1;
                return Ok(());
            }
            Decoded::Call(told) => {
                match told.is_ok() {
                    true => self.counts.read += 1,
                    false => self.counts.unreadable += 1,
                }
                self.told.push(told.map(|it| *it).map_err(|it| *it));
                return Ok(());
            }
            Decoded::Event { heard, repaired } => {
                self.counts.read += 1;
                self.counts.repaired += u64::from(repaired);
                heard
            }
        };
        let pbx = pbx_of(&rules.pbx, heard.server.as_deref(), &mut self.server);
        if !self.pbxes.contains_key(&pbx) {
            let endpoints = rules.trunks.endpoints(&pbx)?;
            let settings = Settings {
                endpoints,
                // None of its calls happens now.
                history: true,
                ..rules.settings.clone()
            };
            self.pbxes.insert(pbx.clone(), PbxReading::new(settings));
        }
        let order = heard.told.order_after(self.now);
        self.counts.timeless += u64::from(order.is_some());
        let told_at = order.or_else(|| time_of(&heard.told));
        self.now = self.now.max(told_at.unwrap_or(self.now));
        let arrived = told_at.unwrap_or(self.now);
        if let Some(pbx) = self.pbxes.get_mut(&pbx) {
            pbx.hear(&heard.told, arrived, order);
        }
        Ok(())
    }

    fn finished(&mut self) -> Vec<Told> {
        let mut told = std::mem::take(&mut self.told);
        for (pbx, reading) in &mut self.pbxes {
            let calls = reading.take_finished().into_iter();
            told.extend(calls.map(|call| {
                let pbx = pbx.clone();
                Ok(ToldCall { pbx, call })
            }));
        }
        told
    }
}

/// The first `server_name` of a recording is the PBX itself; each other one is a PBX below it.
fn pbx_of(pbx: &str, server: Option<&str>, first: &mut Option<String>) -> String {
    let Some(server) = server.filter(|server| !server.is_empty()) else {
        return pbx.to_owned();
    };
    let first = first.get_or_insert_with(|| server.to_owned());
    if first == server {
        pbx.to_owned()
    } else {
        format!("{pbx}/{server}")
    }
}

/// The time that is told beside the event.
fn time_of(told: &PbxEvent<'_>) -> Option<EventTime> {
    match told {
        PbxEvent::Channel(event) => event.at,
        PbxEvent::Cdr(cdr) => cdr.at.or(cdr.ended_at),
        PbxEvent::Mark(_) => None,
    }
}
