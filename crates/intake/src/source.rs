//! A source, with its decoder, its state, and the verdicts still to be sent to it.

use crate::{Memory, Settings, SourceSettings, proof::Proof, report::Report, written};
use callbridge_call::{ClockDifference, EventTime, Line};
use callbridge_formats::{Decoder, MESSAGE_BYTES_MAX};
use callbridge_model::status::{self, RightKind, SourceState};
use callbridge_source::{CountsNow, FilePosition, Frame, SourceId};
use callbridge_spool::{Op, UnreadableBytes};
use std::time::Duration;

/// Maximum number of a source's unreadable messages that are checked for a different format, before
/// the first one that can be read.
const CHECKED_MAX: u8 = 16;

/// A source, along with the state that the intake keeps for it.
pub(super) struct IntakeSource {
    pub(super) settings: SourceSettings,
    pub(super) decoder: Decoder,
    pub(super) status: status::SourceStatus,
    /// Whether the source is a file that doesn't exist (and so has no pending events).
    pub(super) is_absent: bool,
    /// Number of connections that the source has had so far.
    pub(super) connection: u64,
    pub(super) last_mark: Option<EventTime>,
    pub(super) up_since_frame: bool,
    /// Time up to which nothing from the source is missing, based on its last event or its last
    /// prompt response to a ping. For files and queues, it's when the newest frame arrived.
    pub(super) last_received: Option<EventTime>,
    /// The value of `last_received` before the newest frame.
    pub(super) received_before: Option<EventTime>,
    /// Whether `last_received` is newer than the stored time.
    pub(super) is_unstored: bool,
    /// Whether the connection is stalled, so that its messages arrive late or not at all.
    pub(super) is_stalled: bool,
    /// Delay and arrival time of the last event that was much too late.
    pub(super) late: Option<(Duration, EventTime)>,
    /// When the current gap started, or `None` if there isn't one.
    pub(super) gap_since: Option<EventTime>,
    /// Whether the connection will report the last gap that ended once more.
    pub(super) gap_is_reported_again: bool,
    /// Whether the connection has been up before in this process.
    pub(super) was_up: bool,
    /// Number of the last frame to acknowledge with the next commit.
    pub(super) through: Option<u64>,
    pub(super) refused: Vec<u64>,
    pub(super) position: Option<FilePosition>,
    /// Substitute time of the file's last event without a timestamp. Such events are ordered by
    /// their position in the file.
    pub(super) ordered: EventTime,
    /// A message about the source not being in the configured format, or `None` if it is or its
    /// format isn't known.
    pub(super) other_format: Option<String>,
    checked: u8,
    /// Evidence that the source receives events, and the permissions that its account lacks.
    pub(super) proof: Proof,
    /// Changes to the source's connection that still need to be logged.
    pub(super) report: Report,
}

impl IntakeSource {
    /// Creates a source that hasn't read anything. `memory` has the time up to which nothing from
    /// the source was missing in an earlier run.
    pub(super) fn new(settings: SourceSettings, flags: &Settings, memory: &Memory) -> Self {
        let shown = &settings.shown;
        Self {
            proof: Proof::new(&settings, &flags.rules.trunks),
            decoder: Decoder::new(settings.format, flags.decoding()),
            last_received: memory.last_received.get(shown).copied(),
            received_before: None,
            is_unstored: false,
            is_stalled: false,
            late: None,
            status: status::SourceStatus {
                url: settings.url.clone(),
                label: settings.label.clone(),
                pbx: settings.pbx.clone(),
                catch_up: settings.catch_up,
                ..status::SourceStatus::default()
            },
            settings,
            is_absent: false,
            connection: 0,
            last_mark: None,
            up_since_frame: true,
            gap_since: None,
            gap_is_reported_again: false,
            was_up: false,
            through: None,
            refused: Vec::new(),
            position: None,
            ordered: EventTime::from_seconds(0),
            other_format: None,
            checked: 0,
            report: Report::default(),
        }
    }

    /// Returns a frame's connection or file, or `None` if the order of its events is inconclusive,
    /// as with a broker that redelivers.
    pub(super) fn line(&self, id: SourceId, frame: &Frame) -> Option<Line> {
        let settings = &self.settings;
        let is_ordered = settings.forgets || settings.file;
        if !is_ordered || settings.format.is_of_broker() {
            return None;
        }
        let connection = match &frame.position {
            Some(position) => position.inode,
            None => self.connection,
        };
        Some(Line {
            source: id.0,
            connection,
        })
    }

    /// Records a frame's arrival and position. `wall_ahead` is how far our wall clock is ahead of
    /// the clock used for arrivals.
    pub(super) fn note(&mut self, frame: &Frame, wall_ahead: ClockDifference) {
        self.through = Some(frame.seq);
        self.received_before = self.last_received;
        if !self.settings.forgets {
            self.last_received = self.last_received.max(Some(frame.arrived));
        }
        let arrived = frame.arrived.by_clock(wall_ahead);
        self.status.last_event_at = Some(arrived.floor_seconds().get());
        if self.settings.file {
            self.status.state = SourceState::Reading;
        }
        if let Some(position) = &frame.position {
            self.position = Some(position.clone());
        }
    }

    /// Returns `true` for a file that has been read to its end.
    pub(super) fn is_at_end(&self) -> bool {
        self.settings.file && self.status.state == SourceState::Done
    }

    /// Records that a message from the source was read.
    pub(super) fn on_message(&mut self) {
        self.up_since_frame = false;
        if self.status.state == SourceState::Connected {
            self.status.state = SourceState::Up;
        }
    }

    /// Checks an unreadable message for a different format, until the source has a readable one.
    /// Returns the source's label and a message about the format, but only once.
    pub(super) fn other_format_of(&mut self, bytes: &[u8]) -> Option<(String, String)> {
        let first = self.status.read == 0 && self.checked < CHECKED_MAX;
        if !first || self.other_format.is_some() {
            return None;
        }
        self.checked += 1;
        self.other_format = written::message(self.settings.format, bytes);
        let message = self.other_format.clone()?;
        Some((self.settings.label.clone(), message))
    }

    /// Copies the source's own counters. All counters are listed, so that the compiler points out
    /// any new one.
    pub(super) fn note_counts(&mut self, counts: CountsNow) {
        let CountsNow {
            frames: _,
            bytes: _,
            overflow,
            reconnects: _,
            too_long,
        } = counts;
        self.status.dropped = overflow;
        self.status.too_long = too_long;
    }

    /// Returns the status along with the problems found so far.
    pub(super) fn status_with_problems(&self) -> status::SourceStatus {
        let mut shown = self.status.clone();
        shown.reason = shown.reason.or_else(|| self.other_format.clone());
        shown.missing_rights = self.proof.list_missing_rights();
        shown
    }

    /// Takes the messages about missing permissions and settings that haven't been logged yet,
    /// including a time zone contradicted by the unique IDs of several channels.
    pub(super) fn take_unreported(&mut self) -> Vec<String> {
        match self.decoder.wrong_zone() {
            Some(wrong) => {
                let message = format!("{wrong}; {}", wrong.fix());
                self.proof.report_missing(RightKind::Zone, message);
            }
            None => drop(self.proof.missing_rights.remove(&RightKind::Zone)),
        }
        std::mem::take(&mut self.proof.unreported)
    }

    /// Returns why the frame's bytes can't be read, either because its source couldn't read the
    /// record or because only the start of it was kept.
    pub(super) fn fault_of(&self, frame: &Frame) -> Option<String> {
        let details = frame.details.as_ref()?;
        let Some(length) = details.cut_from else {
            return details.fault.clone();
        };
        let kept = frame.bytes.len();
        let mut why = format!(
            "the record has {length} bytes, more than the limit of {MESSAGE_BYTES_MAX}. Its first \
             {kept} bytes are kept"
        );
        if frame.file().is_none() {
            why.push_str(". Let the broker refuse such messages (max_message_size)");
        }
        Some(why)
    }

    /// Returns the operation that removes earlier dead letters for the frame's file, because a call
    /// was read from it, or `None` for a frame that isn't a whole file.
    pub(super) fn file_read(&self, frame: &Frame) -> Option<Op> {
        let file = frame.details.as_ref()?.file.as_ref()?;
        Some(Op::FileRead {
            source: self.settings.url.clone(),
            file: file.to_string(),
            at: frame.arrived,
        })
    }

    /// Returns the operation that stores an unreadable frame, and rejects the frame so that the
    /// source doesn't deliver it again.
    pub(super) fn set_aside(&mut self, frame: &Frame, why: String) -> Op {
        self.status.unreadable += 1;
        self.refused.push(frame.seq);
        Op::Unreadable(UnreadableBytes {
            source: self.settings.url.clone(),
            pbx: self.settings.pbx.clone(),
            bytes: frame.bytes.to_vec(),
            cut_from: frame.cut_from(),
            file: frame.file(),
            why,
            at: frame.arrived,
            content_type: frame.content_type.as_ref().map(ToString::to_string),
        })
    }
}
