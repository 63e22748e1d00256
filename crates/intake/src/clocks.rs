//! The PBXs' clocks. Takes the times that a connection reports, and computes the offset between a
//! PBX's clock and ours for `status`.

use crate::Intake;
use callbridge_call::{ClockDifference, EventTime, Line, PROMPT_RESPONSE};
use callbridge_formats::Format;
use callbridge_source::SourceId;

impl Intake {
    /// Returns how many milliseconds a source's PBX clock is ahead of our wall clock, or a negative
    /// number if it's behind. `at` is the source's number. If the source has several PBXs, the
    /// largest offset is used.
    pub(super) fn clock_ahead_ms(&self, at: usize) -> Option<i64> {
        let id = u16::try_from(at).ok()?;
        let differences = self
            .pbxes_of(at)
            .filter_map(|pbx| pbx.assembler.clock_ahead_by(id));
        let ahead = differences.max_by_key(|ahead| ahead.micros().unsigned_abs())?;
        Some(ahead.micros().saturating_sub(self.wall_ahead.micros()) / 1_000)
    }

    /// Sets how far our wall clock is ahead of the arrival clock, which all other times use.
    pub fn set_wall_ahead(&mut self, wall_ahead: ClockDifference) {
        self.wall_ahead = wall_ahead;
    }

    /// Processes the response to a ping that was sent to the source's PBX at `asked` and answered
    /// at `answered`. `at` is the PBX's time in the response, if it contains one.
    pub fn pong(
        &mut self,
        id: SourceId,
        at: Option<EventTime>,
        asked: EventTime,
        answered: EventTime,
    ) {
        let line = self.current_line(id);
        let source = &mut self.sources[usize::from(id.0)];
        let delay = answered.since(asked);
        if delay <= PROMPT_RESPONSE {
            source.note_complete(asked);
        }
        // Events without timestamps don't reveal their delay, but they were held up as long as the
        // response was.
        source.note_delay(delay, answered);
        // A WebSocket gateway responds by itself, which says nothing about the PBX.
        if source.settings.format == Format::AmiJson {
            return;
        }
        self.each_pbx(usize::from(id.0), |pbx| {
            pbx.assembler.on_answer(line, at, asked, answered);
        });
    }

    /// Records whether the source's connection is stalled.
    pub fn note_stall(&mut self, id: SourceId, is_stalled: bool) {
        self.sources[usize::from(id.0)].is_stalled = is_stalled;
        let line = self.current_line(id);
        self.each_pbx(usize::from(id.0), |pbx| {
            pbx.assembler.set_stalled(line, is_stalled);
        });
    }

    /// Returns a live source's current connection.
    pub(super) fn current_line(&self, id: SourceId) -> Line {
        Line {
            source: id.0,
            connection: self.sources[usize::from(id.0)].connection,
        }
    }
}
