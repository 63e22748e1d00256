//! Names that the channels of an open call took on after their births.

use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};

/// Number of times that one name may go from channel to channel.
const CHANGES_MAX: usize = 64;

/// The channels that had each name, by time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Renamings {
    /// Names that its channels took on later.
    #[serde(default)]
    pub(crate) renamed_to: BTreeSet<SmolStr>,
    /// The channels that had each of these names, with the time from which on, in the order of
    /// time; without the one that was met with it first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) named: BTreeMap<SmolStr, Vec<(EventTime, UniqueId)>>,
}

impl Renamings {
    /// A channel has this name from then on; who has it by now.
    pub(crate) fn take_on(&mut self, name: &str, at: EventTime, id: &UniqueId) -> UniqueId {
        let changes = self.named.entry(name.into()).or_default();
        let after = changes.partition_point(|(from, _)| *from <= at);
        let known = after.checked_sub(1).is_some_and(|i| changes[i].1 == *id);
        if !known && changes.len() < CHANGES_MAX {
            changes.insert(after, (at, id.clone()));
        }
        changes.last().map_or(id, |(_, id)| id).clone()
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.renamed_to.extend(other.renamed_to);
        for (name, changes) in other.named {
            let own = self.named.entry(name).or_default();
            own.extend(changes);
            own.sort();
        }
    }
}
