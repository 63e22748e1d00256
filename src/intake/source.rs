//! One source: its decoder, where it stands, and what is still to be told to it.

use super::settings::SourceSettings;
use crate::ops::status;
use crate::spool::Op;
use callbridge_asterisk::{Decoder, DecoderSettings};
use callbridge_call::{EventTime, Mark};
use callbridge_source::Frame;
use std::time::Duration;

/// Two marks of one restart (a login and `FullyBooted`) come this close together.
const ONE_RESTART: Duration = Duration::from_secs(5);

/// A source as the intake sees it.
pub(super) struct Source {
    pub(super) settings: SourceSettings,
    pub(super) decoder: Decoder,
    pub(super) status: status::Source,
    pub(super) last_mark: Option<EventTime>,
    pub(super) up_since_frame: bool,
    pub(super) through: Option<u64>,
    pub(super) refused: Vec<u64>,
    pub(super) position: Option<serde_json::Value>,
}

impl Source {
    /// A source that has told nothing yet.
    pub(super) fn new(settings: SourceSettings, decoder: DecoderSettings) -> Self {
        Self {
            decoder: Decoder::new(settings.format, decoder),
            status: status::Source {
                url: settings.shown.clone(),
                pbx: settings.pbx.clone(),
                ..status::Source::default()
            },
            settings,
            last_mark: None,
            up_since_frame: true,
            through: None,
            refused: Vec::new(),
            position: None,
        }
    }

    /// Where the source stands after this frame.
    pub(super) fn note(&mut self, frame: &Frame) {
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
    pub(super) fn set_aside(&mut self, frame: &Frame, why: String) -> Op {
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

/// A restart of the PBX, or of the gateway's line to it, in the middle of the stream: a gap.
pub(super) fn note_mark(
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
