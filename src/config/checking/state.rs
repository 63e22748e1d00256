//! `state …`: the file and the folder.

use super::Checking;
use crate::config::command::{Command, StateMove};
use crate::config::faults::Faults;
use crate::config::options::StateFlags;
use crate::config::options::state::StateVerb;
use std::path::PathBuf;

impl Checking<'_> {
    pub(super) fn state_move(mut self, verb: StateVerb) -> Result<Command, Faults> {
        let (flags, import) = match verb {
            StateVerb::Export(flags) => (flags, false),
            StateVerb::Import(flags) => (flags, true),
        };
        let file = flags.file.filter(|file| !file.is_empty());
        let file = file.ok_or("is missing: the file of the exported state");
        let file = self.faults.take("FILE", file).unwrap_or_default();
        let asking = self.asking(StateFlags {
            state: flags.state,
            ..StateFlags::default()
        })?;
        Ok(Command::State(StateMove {
            import,
            file: PathBuf::from(file),
            state: asking.state,
        }))
    }
}
