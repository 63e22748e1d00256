//! Which channels really belong together. The open call may hold more: it ties channels by every
//! bridge they were ever in, though they may not have met there.

use super::view::View;
use crate::UniqueId;
use crate::facts::FactKind;
use crate::trunk;
use std::collections::{BTreeMap, BTreeSet};

/// Disjoint sets of indices that grow together.
#[derive(Debug)]
pub(crate) struct Sets(Vec<usize>);

impl Sets {
    /// `count` sets of one each.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// The set that `i` is in.
    pub(crate) fn of(&mut self, i: usize) -> usize {
        let mut root = i;
        while self.0[root] != root {
            self.0[root] = self.0[self.0[root]];
            root = self.0[root];
        }
        root
    }

    /// Makes the sets of `a` and `b` one.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// The channels by call, each as indices in the order given; the oldest call first.
pub(super) fn parts(
    views: &[View<'_>],
    joined: &BTreeSet<(UniqueId, UniqueId)>,
) -> Vec<Vec<usize>> {
    let mut sets = Sets::new(views.len());
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    // An id may name a channel, or a linkedid whose channel was never seen: both tie.
    for (i, view) in views.iter().enumerate() {
        let own = std::iter::once(view.leg.id.as_str());
        let linkedids = view
            .leg
            .linkedids
            .iter()
            .map(|linkedid| linkedid.text.as_str());
        let local = trunk::local_pair(view.name);
        let dialled_by = view.leg.facts.iter().filter_map(|fact| {
            let FactKind::Dialled { by: Some(by), .. } = &fact.what else {
                return None;
            };
            Some(by.as_str())
        });
        for name in own.chain(linkedids).chain(local).chain(dialled_by) {
            let first = *by_name.entry(name).or_insert(i);
            sets.join(first, i);
        }
    }
    for (a, b) in joined {
        if let (Some(&a), Some(&b)) = (by_name.get(a.as_str()), by_name.get(b.as_str())) {
            sets.join(a, b);
        }
    }
    join_by_bridges(views, &mut sets);
    let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for i in 0..views.len() {
        parts.entry(sets.of(i)).or_default().push(i);
    }
    parts.into_values().collect()
}

/// Channels that were in one bridge at the same time.
fn join_by_bridges(views: &[View<'_>], sets: &mut Sets) {
    let stays = views.iter().enumerate();
    let mut stays: Vec<_> = stays
        .flat_map(|(i, view)| view.stays.iter().map(move |stay| (stay, i)))
        .collect();
    stays.sort_by_key(|(stay, _)| (stay.bridge, stay.from));
    let mut last: Option<(&str, crate::units::EventTime, usize)> = None;
    for (stay, i) in stays {
        let met = last.filter(|&(bridge, until, _)| bridge == stay.bridge && stay.from <= until);
        let mut until = stay.to;
        if let Some((_, there_until, other)) = met {
            sets.join(other, i);
            until = until.max(there_until);
        }
        last = Some((stay.bridge, until, i));
    }
}
