//! Calls that go on, as their snapshots tell of them.

use super::settings::Settings;
use super::stream_id::{Branch, StreamId};
use callbridge_call::{Assembler, FinishedCall};
use std::collections::BTreeMap;

/// The calls that go on at each PBX, each as it would be told if it ended now. `open` is what the
/// spool keeps: the PBX's name, the key, the snapshot. What another account tells of the same
/// calls, and what cannot be read, is left out.
pub fn under_way(
    settings: &Settings,
    open: &[(String, u64, Vec<u8>)],
) -> Vec<(String, FinishedCall)> {
    let mut assemblers: BTreeMap<&str, Assembler> = BTreeMap::new();
    for (name, key, snapshot) in open {
        let StreamId { pbx, branch } = StreamId::read(name);
        if branch != Some(Branch::Events) {
            continue;
        }
        if !assemblers.contains_key(pbx) {
            // trunks that contradict each other are refused at the start
            let Ok(settings) = settings.assembler(pbx) else {
                continue;
            };
            assemblers.insert(pbx, Assembler::new(settings));
        }
        let restored = assemblers.get_mut(pbx).map(|it| it.restore(*key, snapshot));
        if let Some(Err(error)) = restored {
            tracing::debug!(pbx, key, %error, "an open call is not shown");
        }
    }
    let open_calls = |(pbx, assembler): (&str, Assembler)| {
        let of = |call| (pbx.to_owned(), call);
        assembler.so_far().into_iter().map(of).collect::<Vec<_>>()
    };
    assemblers.into_iter().flat_map(open_calls).collect()
}
