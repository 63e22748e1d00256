//! What the account of a source turns out to lack, beside the sources that are read.

use crate::{Intake, IntakeSource, proof::words};
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_call::EventTime;
use callbridge_model::{status, status::SourceState};
use callbridge_source::SourceId;

impl IntakeSource {
    /// The line is up, and nothing is proved of it.
    pub(super) fn is_connected(&mut self, now: EventTime) {
        self.status.state = SourceState::Connected;
        self.status.connected_since = Some(now.floor_seconds().get());
        (self.proof.received, self.proof.timed) = (false, false);
        self.proof.lacks.clear();
        self.proof.checked = 0;
    }
}

impl Intake {
    /// The line of a source has found out what its account lacks.
    pub fn lacks(&mut self, id: SourceId, lack: MissingRight) {
        if let Some(source) = self.sources.get_mut(usize::from(id.0)) {
            let (lacking, what) = words(lack);
            source.proof.lacks(lacking, what);
            // An event of our own came, and those of calls do not.
            let state = &mut source.status.state;
            if lacking == status::Lacking::Calls && *state == SourceState::Up {
                *state = SourceState::Connected;
            }
        }
    }

    /// An event of our own came back over the line of a source, and births on it are watched: it is
    /// up, though nobody calls.
    pub fn events_flow(&mut self, id: SourceId) {
        if let Some(source) = self.sources.get_mut(usize::from(id.0)) {
            let state = &mut source.status.state;
            if *state == SourceState::Connected && !source.proof.is_deaf() {
                *state = SourceState::Up;
            }
        }
    }

    /// Takes what was found to be lacking since the last call, in words, each with the source's
    /// label.
    pub fn take_lacks(&mut self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for source in &mut self.sources {
            let unreported = std::mem::take(&mut source.proof.unreported).into_iter();
            found.extend(unreported.map(|what| (source.settings.label.clone(), what)));
        }
        found
    }
}
