//! The clocks of the PBXs. Takes what a connection reports about them, and returns their difference
//! from our clock for `status`.

use crate::Intake;
use callbridge_call::{ClockDifference, EventTime, Line};
use callbridge_source::SourceId;

impl Intake {
    /// Returns the difference between the clock of this source's PBX and our wall clock, in
    /// milliseconds. It is positive if the PBX's clock is ahead. If the source has several PBXs,
    /// the one with the largest difference counts.
    pub(super) fn clock_ahead_ms(&self, at: usize) -> Option<i64> {
        let id = u16::try_from(at).ok()?;
        let pbx = &self.sources[at].settings.pbx;
        let below = format!("{pbx}/");
        let of_source = self
            .pbxes
            .iter()
            .filter(|(name, _)| *name == pbx || name.starts_with(&below));
        let differences = of_source.filter_map(|(_, pbx)| pbx.assembler.clock_ahead_by(id));
        let ahead = differences.max_by_key(|ahead| ahead.micros().unsigned_abs())?;
        Some(ahead.micros().saturating_sub(self.wall_ahead.micros()) / 1_000)
    }

    /// Sets how far our wall clock is ahead of the arrival clock, which all other times use.
    pub fn set_wall_ahead(&mut self, wall_ahead: ClockDifference) {
        self.wall_ahead = wall_ahead;
    }

    /// Notes that the source's PBX answered a ping that we sent at `asked`. `at` is the PBX's time.
    pub fn pong(&mut self, id: SourceId, at: EventTime, asked: EventTime, answered: EventTime) {
        let line = self.current_line(id);
        self.each_pbx(usize::from(id.0), |pbx| {
            pbx.assembler.on_answer(line, at, asked, answered);
        });
    }

    /// Notes whether the connection of the source is stalled.
    pub fn note_stall(&mut self, id: SourceId, is_stalled: bool) {
        let line = self.current_line(id);
        self.each_pbx(usize::from(id.0), |pbx| {
            pbx.assembler.set_stalled(line, is_stalled);
        });
    }

    /// Returns the current connection of a live source.
    fn current_line(&self, id: SourceId) -> Line {
        Line {
            source: id.0,
            connection: self.sources[usize::from(id.0)].connection,
        }
    }
}
