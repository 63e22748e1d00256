//! The id of the PBX that nothing names.

use super::{Checking, SourceConfig};
use crate::config::Faults;
use crate::config::options::SourceFlags;
use callbridge_intake::identity;
use callbridge_intake::machine::{MachineId, Unknown};
use callbridge_mapping::trunk::{Trunk, Trunks};
use callbridge_spool as spool;
use std::path::Path;

/// The id that this machine, the first source without a name and its trunks make; `None` where
/// none is needed.
pub(super) fn derived(
    flags: &SourceFlags,
    sources: &[SourceConfig],
    trunks: &Trunks,
    checking: &Checking<'_>,
) -> Option<Result<String, Unknown>> {
    if !checking.needs || flags.pbx_id.is_some() {
        return None;
    }
    let first = sources
        .iter()
        .find(|it| it.url.pbx.is_none() && !it.catch_up && !it.tells_whole_calls())?;
    // A trunk of a PBX that another source tells of is no part of this one.
    let named = |pbx: &str| sources.iter().any(|it| it.url.pbx.as_deref() == Some(pbx));
    let own = |trunk: &&Trunk| !trunk.pbx.as_deref().is_some_and(named);
    let machine = MachineId::of_this(checking.environment);
    Some(machine.map(|id| identity::derive(&id, &first.url, trunks.iter().filter(own))))
}

/// Without an id of the machine, a state that is begun now needs a name for its PBX. One that has
/// been used has it already, and is looked at when it is opened.
pub(super) fn check(
    derived: Option<&Result<String, Unknown>>,
    state: Option<&Path>,
    faults: &mut Faults,
) {
    let Some(Err(unknown)) = derived else { return };
    if !state.is_some_and(|folder| folder.join(spool::folder::FILE).exists()) {
        faults.add("--pbx-id", identity::Unnamed(unknown.clone()));
    }
}
