//! Converts a recording's bytes to finished calls. The code is pure: the current time is the latest
//! time in the recording.

use callbridge_call::trunk::Conflict;
use callbridge_call::{
    Assembler, ChannelEvent, EventTime, FinishedCall, Folder, Line, Mark, PbxEvent, ReportedCall,
    Settings, Timing, WrongCall,
};
use callbridge_formats::{
    Decoded, Decoder, DecoderSettings, Format, Frame, Framer, Framing, MESSAGE_BYTES_MAX, WrongZone,
};
use callbridge_intake::{begins_another, known_call};
use callbridge_mapping::Trunks;
use callbridge_spool::Known;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// The rules for reading a recording.
#[derive(Clone, Debug)]
pub struct Rules {
    pub format: Format,
    pub pbx: String,
    /// The trunks. Calls keep only the channel variables that the trunks name.
    pub trunks: Trunks,
    /// The settings of the assembler, except its endpoints, which come from the trunks.
    pub settings: Settings,
    /// The value of `--pbx-timezone`: the time zone of timestamps that name no zone.
    pub zone: Option<jiff::tz::TimeZone>,
    /// The columns of a CSV file without a header (`--columns`).
    pub columns: Option<callbridge_asterisk::CsvColumns>,
}

/// The counts of a recording's messages, by their result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Events that a call can depend on.
    pub read: u64,
    /// Well-formed messages that no call depends on.
    pub skipped: u64,
    /// Messages of `read` that were repaired.
    pub repaired: u64,
    /// Messages that cannot be read.
    pub unreadable: u64,
    /// Events without a timestamp.
    pub timeless: u64,
}

impl MessageCounts {
    /// Returns `true` if at least one message has the format.
    pub fn is_readable(&self) -> bool {
        self.read + self.skipped > 0
    }

    /// Returns `true` if no message concerns a call, and some messages are unreadable or there are
    /// no messages.
    pub fn is_doubtful(&self) -> bool {
        self.read == 0 && (self.unreadable > 0 || self.skipped == 0)
    }
}

/// Messages that can't be read for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableMessages {
    pub reason: String,
    pub count: u64,
    /// The positions of the first of these messages in the recording, starting at 1. Headers are
    /// counted, but empty lines aren't.
    pub first: Vec<u64>,
}

/// Maximum number of reasons to keep. Messages with any other reason are only counted.
const REASONS_MAX: usize = 20;
/// Maximum number of messages that are listed for each reason.
const LISTED_MAX: usize = 5;

/// One result of a recording, in its order: a call with its PBX id, or a message that cannot be a
/// call. The PBX id is `--pbx-id`. For further servers in the recording, their `server_name` is
/// appended.
pub type ReadCall = Result<ReportedCall, WrongCall>;

/// A recording that is read in pieces: bytes in, finished calls out.
pub struct Reading {
    rules: Rules,
    framer: Framer,
    decoding: Decoding,
}

/// The part of a [`Reading`] after the framer. It is separate, because messages borrow from the
/// framer's buffer.
struct Decoding {
    decoder: Decoder,
    pbxes: BTreeMap<String, PbxReading>,
    /// The first `server_name` of the recording. Its events belong to the PBX id without a suffix.
    server: Option<String>,
    counts: MessageCounts,
    /// Number of messages so far.
    messages: u64,
    unreadable: Vec<UnreadableMessages>,
    now: EventTime,
    /// Calls from formats in which each message is a call.
    calls: Vec<ReadCall>,
}

impl Reading {
    /// Starts at the beginning of a recording.
    pub fn new(rules: Rules) -> Self {
        let settings = DecoderSettings {
            zone: rules.zone.clone(),
            columns: rules.columns.clone(),
            variables: Some(rules.trunks.variables()),
        };
        let decoding = Decoding {
            decoder: Decoder::new(rules.format, settings),
            pbxes: BTreeMap::new(),
            server: None,
            counts: MessageCounts::default(),
            messages: 0,
            unreadable: Vec::new(),
            now: EventTime::from_seconds(0),
            calls: Vec::new(),
        };
        Self {
            framer: Framer::new(rules.format),
            rules,
            decoding,
        }
    }

    /// Returns a buffer of this many bytes for the next piece of the recording. Report with
    /// [`Reading::read_bytes`] how many bytes of it were used.
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        self.framer.buffer().space(bytes)
    }

    /// Processes the bytes in [`Reading::space`], and returns the calls that they finished.
    ///
    /// # Errors
    /// If two endpoints conflict.
    pub fn read_bytes(&mut self, bytes: usize) -> Result<Vec<ReadCall>, Conflict> {
        self.framer.buffer().mark_filled(bytes);
        while let Some(frame) = self.framer.next() {
            self.decoding.on_frame(frame, &self.rules)?;
        }
        Ok(self.decoding.take_finished())
    }

    /// Ends the recording, and returns the calls that its last events finished. In CEL, open calls
    /// also end if they are so old at `now` that no more rows about them will follow.
    ///
    /// # Errors
    /// If two endpoints conflict.
    pub fn finish(&mut self, now: EventTime) -> Result<Vec<ReadCall>, Conflict> {
        while let Some(frame) = self.framer.finish() {
            self.decoding.on_frame(frame, &self.rules)?;
        }
        let end = self.decoding.now;
        for pbx in self.decoding.pbxes.values_mut() {
            pbx.assembler.finish_all(end);
            pbx.folder.finish_all();
            if self.rules.format.is_cel() {
                pbx.assembler.tick(end.max(now));
            }
        }
        Ok(self.decoding.take_finished())
    }

    /// Returns the calls in progress at the recording's end, as far as they are known. Call this
    /// after everything is read.
    pub fn under_way(&mut self) -> Vec<ReportedCall> {
        let end = self.decoding.now;
        for pbx in self.decoding.pbxes.values_mut() {
            pbx.end_calls_before(None, end);
            pbx.assembler.finish_all(end);
        }
        self.decoding
            .take_finished()
            .into_iter()
            .flatten()
            .collect()
    }

    pub fn counts(&self) -> MessageCounts {
        self.decoding.counts
    }

    /// Returns the unreadable messages, grouped by reason. Messages that describe an entire call
    /// are reported as [`WrongCall`] instead.
    pub fn unreadable(&self) -> &[UnreadableMessages] {
        &self.decoding.unreadable
    }

    /// Returns `true` if every message in this format is a call detail record.
    pub fn has_only_cdrs(&self) -> bool {
        self.rules.format.only_cdrs()
    }

    /// Returns the offset found in the recording's unique IDs if it contradicts the configured time
    /// zone.
    pub fn wrong_zone(&self) -> Option<WrongZone> {
        self.decoding.decoder.wrong_zone()
    }

    /// Returns the word for a message of the format: `row` or `message`.
    pub fn unit(&self) -> &'static str {
        if self.rules.format.framing() == Framing::CsvRecord {
            "row"
        } else {
            "message"
        }
    }

    /// Returns `true` for a format whose messages are whole calls and name their trunks.
    pub fn carries_whole_calls(&self) -> bool {
        self.rules.format.carries_whole_calls()
    }

    /// Returns the latest time in the recording so far.
    pub fn now(&self) -> EventTime {
        self.decoding.now
    }

    /// Returns the number of calls without an end so far.
    pub fn open_calls(&self) -> usize {
        let pbxes = self.decoding.pbxes.values();
        pbxes.map(|pbx| pbx.assembler.open_calls()).sum()
    }
}

/// Maximum number of ids of finished calls that are remembered. The oldest id is dropped for a new
/// id.
const FINISHED_MAX: usize = 8192;

/// Finished calls by their ids. They show whether a channel reuses the id of a finished call, which
/// can happen on a PBX whose channel ids can be set by an API.
#[derive(Default)]
struct FinishedCalls {
    known: BTreeMap<String, Known>,
    order: VecDeque<String>,
}

impl FinishedCalls {
    fn remember(&mut self, call: &FinishedCall) {
        for id in call.ids() {
            let known = Known {
                letter: None,
                ..known_call(call, id)
            };
            let id = id.as_str().to_owned();
            if self.known.insert(id.clone(), known).is_some() {
                continue;
            }
            self.order.push_back(id);
            if self.order.len() > FINISHED_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
    }
}

/// The calls of one PBX. If a call has channel events, its CDRs only add their user field.
struct PbxReading {
    assembler: Assembler,
    folder: Folder,
    /// Calls that the assembler has finished since they were last taken.
    calls: Vec<FinishedCall>,
    finished: FinishedCalls,
    /// The connection that all events come from. `None` if the order of events proves nothing, as
    /// with a broker.
    line: Option<Line>,
    /// Set after a login in the middle of the recording, until the next event with a time.
    is_in_gap: bool,
}

impl PbxReading {
    fn new(settings: Settings, format: Format) -> Self {
        let line = if format.is_of_broker() {
            None
        } else {
            Some(Line {
                source: 0,
                connection: 0,
            })
        };
        Self {
            folder: Folder::new(settings.clone()),
            assembler: Assembler::new(settings),
            calls: Vec::new(),
            finished: FinishedCalls::default(),
            line,
            is_in_gap: false,
        }
    }

    /// Ends the open calls without events since a new process of the PBX started at `began`. `None`
    /// ends all open calls.
    fn end_calls_before(&mut self, began: Option<EventTime>, now: EventTime) {
        let mark = PbxEvent::Mark(Mark::Restarted { began });
        self.assembler.on_event(&mark, now);
    }

    fn on_event(&mut self, event: &PbxEvent<'_>, arrived: EventTime, order: Option<EventTime>) {
        self.assembler.timing(Timing {
            line: self.line,
            kept: true,
            order,
            ..Timing::default()
        });
        if self.is_in_gap && time_of(event).is_some() {
            self.is_in_gap = false;
            self.assembler.end_gap(arrived);
        }
        match event {
            PbxEvent::Channel(channel) => self.on_channel_event(event, channel, arrived),
            PbxEvent::Cdr(cdr) => {
                self.assembler.on_event(event, arrived);
                let ids = [&cdr.uniqueid, &cdr.linkedid];
                if !ids.iter().any(|id| self.has_seen(id)) {
                    self.folder.on_cdr(cdr, arrived);
                }
            }
            PbxEvent::Mark(mark) => {
                self.assembler.on_event(event, arrived);
                // A mark has no time, so the gap before a login lasts until the next event.
                let is_login = matches!(mark, Mark::LoggedIn | Mark::FullyBooted { .. });
                if is_login && self.assembler.latest_event().is_some() {
                    self.assembler.begin_gap(arrived);
                    self.is_in_gap = true;
                }
            }
        }
    }

    /// Handles a channel event. A channel with the id of a finished call begins another call, as in
    /// `run`. Other events of a finished call change nothing.
    fn on_channel_event(
        &mut self,
        event: &PbxEvent<'_>,
        channel: &ChannelEvent<'_>,
        arrived: EventTime,
    ) {
        let id = channel.channel.uniqueid.as_ref();
        let is_open = self.assembler.knows(id) || self.assembler.knows(&channel.channel.linkedid);
        // This event itself can finish an open call.
        if is_open && self.assembler.on_event(event, arrived) {
            return;
        }
        self.collect();
        match self.finished.known.get(id) {
            Some(known) if begins_another(event, known) => {
                self.assembler.forget_finished();
                self.assembler.on_event(event, arrived);
            }
            None if !is_open => {
                self.assembler.on_event(event, arrived);
            }
            Some(_) | None => {}
        }
    }

    fn collect(&mut self) {
        for call in self.assembler.take_finished() {
            self.finished.remember(&call);
            self.calls.push(call);
        }
    }

    fn has_seen(&self, id: &str) -> bool {
        self.assembler.has_seen(id) || self.finished.known.contains_key(id)
    }

    fn take_finished(&mut self) -> Vec<FinishedCall> {
        self.collect();
        let mut calls = std::mem::take(&mut self.calls);
        for call in self.folder.take_finished() {
            if !call.ids().any(|id| self.has_seen(id.as_str())) {
                calls.push(call);
            }
        }
        calls
    }
}

impl Decoding {
    fn on_frame(&mut self, frame: Frame<'_>, rules: &Rules) -> Result<(), Conflict> {
        self.messages += 1;
        let message = match frame {
            Frame::Message(message) => message,
            Frame::TooLong { bytes, .. } => {
                let limit = MESSAGE_BYTES_MAX >> 20;
                let reason = format!("it has {bytes} bytes; the limit is {limit} MiB");
                self.note_unreadable(reason, &[]);
                return Ok(());
            }
        };
        match self.decoder.decode(message) {
            Decoded::Skipped => self.counts.skipped += 1,
            Decoded::Unreadable(reason) => self.note_unreadable(reason.to_string(), message),
            Decoded::Call(Ok(call)) => {
                self.counts.read += 1;
                self.calls.push(Ok(*call));
            }
            Decoded::Call(Err(wrong)) => {
                self.counts.unreadable += 1;
                self.calls.push(Err(*wrong));
            }
            Decoded::Event { received, repaired } => {
                self.counts.read += 1;
                self.counts.repaired += u64::from(repaired);
                let mut id = pbx_of(&rules.pbx, received.server.as_deref(), &mut self.server);
                // A recovered channel stays with the PBX that knows it.
                if let Some(channel) = received.event.recovered_id()
                    && let Some((known, _)) =
                        self.pbxes.iter().find(|(_, pbx)| pbx.has_seen(channel))
                {
                    id = known.clone();
                }
                let pbx = match self.pbxes.entry(id) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let endpoints = rules.trunks.endpoints(new.key())?;
                        let settings = Settings {
                            endpoints,
                            // All calls of a recording are in the past.
                            history: true,
                            ..rules.settings.clone()
                        };
                        new.insert(PbxReading::new(settings, rules.format))
                    }
                };
                let order = received.event.order_after(self.now);
                let is_listed = match &received.event {
                    PbxEvent::Channel(event) => event.is_listed(),
                    PbxEvent::Cdr(_) | PbxEvent::Mark(_) => false,
                };
                self.counts.timeless += u64::from(order.is_some() && !is_listed);
                let time = order.or_else(|| time_of(&received.event));
                let arrived = time.unwrap_or(self.now);
                self.now = self.now.max(arrived);
                pbx.on_event(&received.event, arrived, order);
            }
        }
        Ok(())
    }

    /// Counts an unreadable message. Open calls that its bytes name become incomplete.
    fn note_unreadable(&mut self, reason: String, bytes: &[u8]) {
        self.counts.unreadable += 1;
        for pbx in self.pbxes.values_mut() {
            pbx.assembler.on_unreadable(bytes);
        }
        let has_room = self.unreadable.len() < REASONS_MAX;
        let mut known = self.unreadable.iter_mut();
        if let Some(messages) = known.find(|messages| messages.reason == reason) {
            messages.count += 1;
            if messages.first.len() < LISTED_MAX {
                messages.first.push(self.messages);
            }
        } else if has_room {
            self.unreadable.push(UnreadableMessages {
                reason,
                count: 1,
                first: vec![self.messages],
            });
        }
    }

    fn take_finished(&mut self) -> Vec<ReadCall> {
        let mut read = std::mem::take(&mut self.calls);
        for (pbx, reading) in &mut self.pbxes {
            read.extend(reading.take_finished().into_iter().map(|call| {
                let pbx = pbx.clone();
                Ok(ReportedCall { pbx, call })
            }));
        }
        read
    }
}

/// Returns the PBX id of an event. The first `server_name` of a recording (stored in `first`) gets
/// the id `pbx`. Each other server gets `pbx/server_name`.
fn pbx_of(pbx: &str, server: Option<&str>, first: &mut Option<String>) -> String {
    let Some(server) = server.filter(|server| !server.is_empty()) else {
        return pbx.to_owned();
    };
    if first.get_or_insert_with(|| server.to_owned()) == server {
        pbx.to_owned()
    } else {
        format!("{pbx}/{server}")
    }
}

/// Returns the timestamp of the event.
fn time_of(event: &PbxEvent<'_>) -> Option<EventTime> {
    match event {
        PbxEvent::Channel(event) => event.at,
        PbxEvent::Cdr(cdr) => cdr.at.or(cdr.ended_at),
        PbxEvent::Mark(_) => None,
    }
}
