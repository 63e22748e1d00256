//! CDRs waiting for their call, which only needs their user field. A CDR can arrive before its
//! call, because a CDR queue is read faster than a queue of channel events.

use super::index::Keys;
use crate::facts::Texts;
use crate::{Cdr, EventTime};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of waiting CDRs. Beyond that, the one that has waited the longest is dropped.
const CDRS_MAX: usize = 10_000;
/// Maximum size of the part of a CDR that we keep, in bytes. A larger CDR isn't kept, because it
/// can't contain a lead.
const CDR_BYTES_MAX: usize = 2048;

/// The part of a CDR that a call might need, serialized so that it survives a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlyCdr {
    pub(super) uniqueid: String,
    linkedid: String,
    pub(super) userfield: String,
    /// Time of the CDR, or of its arrival if it has no timestamp.
    pub(super) at: EventTime,
    arrived: EventTime,
}

impl EarlyCdr {
    /// Returns the part to keep if the CDR has a user field, or `None` otherwise.
    pub(super) fn from_cdr(cdr: &Cdr<'_>, arrived: EventTime) -> Option<Self> {
        let bytes = cdr.uniqueid.len() + cdr.linkedid.len() + cdr.userfield.len();
        let useful = !cdr.uniqueid.is_empty() && !cdr.userfield.is_empty();
        (useful && bytes <= CDR_BYTES_MAX).then(|| Self {
            uniqueid: cdr.uniqueid.to_string(),
            linkedid: cdr.linkedid.to_string(),
            userfield: cdr.userfield.to_string(),
            at: cdr.at.unwrap_or(arrived),
            arrived,
        })
    }
}

/// CDRs waiting for their call, in the order they arrived. They're numbered in the same series as
/// open calls.
#[derive(Debug, Default)]
pub(super) struct EarlyCdrs {
    pub(super) cdrs: BTreeMap<u64, EarlyCdr>,
    by_uniqueid: Keys,
    by_linkedid: Keys,
}

impl EarlyCdrs {
    pub(super) fn put(&mut self, key: u64, cdr: EarlyCdr) {
        self.by_uniqueid.insert(&cdr.uniqueid, key);
        self.by_linkedid.insert(&cdr.linkedid, key);
        self.cdrs.insert(key, cdr);
    }

    /// Removes the CDRs of the channel with this unique ID, and returns them with their numbers.
    pub(super) fn take_of_channel(&mut self, uniqueid: &str) -> Vec<(u64, EarlyCdr)> {
        let keys: Vec<u64> = self.by_uniqueid.get(uniqueid).collect();
        keys.into_iter().filter_map(|key| self.take(key)).collect()
    }

    /// Removes the CDRs whose linkedid is one of `ids`, and returns them with their numbers.
    pub(super) fn take_of_call(&mut self, ids: &Texts) -> Vec<(u64, EarlyCdr)> {
        if self.cdrs.is_empty() {
            return Vec::new();
        }
        let keys: BTreeSet<u64> = ids.iter().flat_map(|id| self.by_linkedid.get(id)).collect();
        keys.into_iter().filter_map(|key| self.take(key)).collect()
    }

    /// Removes the CDR that has waited the longest if there are too many or if it arrived before
    /// `since`, and returns its number.
    pub(super) fn take_stale(&mut self, since: EventTime) -> Option<u64> {
        let (&key, first) = self.cdrs.first_key_value()?;
        let stale = self.cdrs.len() > CDRS_MAX || first.arrived < since;
        stale.then(|| self.take(key)).flatten().map(|(key, _)| key)
    }

    fn take(&mut self, key: u64) -> Option<(u64, EarlyCdr)> {
        let cdr = self.cdrs.remove(&key)?;
        self.by_uniqueid.remove(&cdr.uniqueid, key);
        self.by_linkedid.remove(&cdr.linkedid, key);
        Some((key, cdr))
    }
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<EarlyCdr>("early-cdr");
    }
}
