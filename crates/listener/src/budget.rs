//! A limit on the bytes that all clients together can hold in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of free bytes, from which shares are taken. Clones share the same bytes.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<AtomicUsize>);

/// A part of a budget. It is returned to the budget when it is dropped.
#[derive(Debug)]
pub struct ByteShare {
    budget: ByteBudget,
    bytes: usize,
}

impl ByteBudget {
    /// Makes a budget of this many bytes, all of them free.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Returns an empty share, which grows by [`ByteShare::grow_to`].
    pub fn share(&self) -> ByteShare {
        let budget = self.clone();
        ByteShare { budget, bytes: 0 }
    }

    /// Returns the number of bytes that no share holds.
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl ByteShare {
    /// Grows the share to this many bytes. Returns `false` and changes nothing if the budget has
    /// too few bytes left.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let taken = self
            .budget
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(more)
            });
        if taken.is_ok() {
            self.bytes += more;
        }
        taken.is_ok()
    }

    /// Returns the whole share to the budget.
    pub fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.budget.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for ByteShare {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_share_grows_within_budget_and_returns_all_on_drop() {
        let budget = ByteBudget::new(100);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.grow_to(60) && one.grow_to(50) && other.grow_to(40));
        assert_eq!(budget.left(), 0);
        assert!(!other.grow_to(41));
        drop(one);
        assert!(other.grow_to(41));
        other.give_back();
        assert_eq!(budget.left(), 100);
        drop(other);
        assert_eq!(budget.left(), 100);
    }
}
