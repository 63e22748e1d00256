//! Which channels really belong together. The open call may hold more: it ties channels by every
//! bridge they were ever in, though they may not have met there.

use super::view::View;
use crate::facts::FactKind;
use crate::{EventTime, UniqueId, trunk};
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
        let linkedids = view.leg.linkedids.iter().map(|it| it.text.as_str());
        let local = trunk::local_pair(view.name);
        let dialled_by = view.leg.facts.iter().filter_map(|fact| match &fact.what {
            FactKind::Dialled { by: Some(by), .. } => Some(by.as_str()),
            _ => None,
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
    let views = views.iter().enumerate();
    let stays = views.flat_map(|(i, view)| view.stays.iter().map(move |stay| (stay, i)));
    let mut stays: Vec<_> = stays.collect();
    stays.sort_by_key(|(stay, _)| (stay.bridge, stay.from));
    // The bridge, until when somebody is known to be in it, and one who was.
    let mut last: Option<(&str, EventTime, usize)> = None;
    for (stay, i) in stays {
        let met = last.filter(|it| it.0 == stay.bridge && stay.from <= it.1);
        let until = met.map_or(stay.to, |(_, until, _)| until.max(stay.to));
        if let Some((.., other)) = met {
            sets.join(other, i);
        }
        last = Some((stay.bridge, until, i));
    }
}
