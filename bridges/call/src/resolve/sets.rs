//! Disjoint sets, for grouping things that belong together.

/// Disjoint sets of indices that can be merged.
#[derive(Debug)]
pub(crate) struct Sets(Vec<usize>);

impl Sets {
    /// Creates `count` sets with one index each.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    /// Returns the set that contains `i`.
    pub(crate) fn find(&mut self, i: usize) -> usize {
        let mut root = i;
        while self.0[root] != root {
            self.0[root] = self.0[self.0[root]];
            root = self.0[root];
        }
        root
    }

    /// Merges the sets of `a` and `b`.
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        let a_root = self.find(a);
        let b_root = self.find(b);
        self.0[a_root.max(b_root)] = a_root.min(b_root);
    }
}
