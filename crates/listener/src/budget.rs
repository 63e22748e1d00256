//! A limit on the number of bytes that all clients together may occupy in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of free bytes from which shares are taken. Clones share the same bytes.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    left: Arc<AtomicUsize>,
    /// The budget that this one is part of, if any.
    whole: Option<Arc<ByteBudget>>,
}

/// A part of a budget, which is returned to the budget when it's dropped.
#[derive(Debug)]
pub struct ByteShare {
    budget: ByteBudget,
    bytes: usize,
}

impl ByteBudget {
    /// Creates a budget with this many bytes, all of which are free.
    pub fn new(bytes: usize) -> Self {
        Self {
            left: Arc::new(AtomicUsize::new(bytes)),
            whole: None,
        }
    }

    /// Creates a smaller budget within this one. Whatever is taken from it is taken from both. The
    /// parts may add up to more than the whole.
    pub fn part(&self, bytes: usize) -> Self {
        Self {
            whole: Some(Arc::new(self.clone())),
            ..Self::new(bytes)
        }
    }

    /// Returns an empty share, which grows using [`ByteShare::grow_to`].
    pub fn share(&self) -> ByteShare {
        let budget = self.clone();
        ByteShare { budget, bytes: 0 }
    }

    /// Returns `true` if this budget has no shares or parts.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.left) == 1
    }

    fn take(&self, bytes: usize) -> bool {
        let order = Ordering::Relaxed;
        let taken = (self.left).fetch_update(order, order, |left| left.checked_sub(bytes));
        if taken.is_err() {
            return false;
        }
        let is_in_whole = self.whole.as_ref().is_none_or(|whole| whole.take(bytes));
        if !is_in_whole {
            self.left.fetch_add(bytes, order);
        }
        is_in_whole
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

impl ByteShare {
    /// Grows the share to this many bytes, or returns `false` without changing anything if there
    /// aren't enough bytes left in the budget.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let is_taken = self.budget.take(more);
        if is_taken {
            self.bytes += more;
        }
        is_taken
    }

    /// Returns the whole share to the budget.
    pub fn give_back(&mut self) {
        self.budget.give_back(std::mem::take(&mut self.bytes));
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
        assert!(!other.grow_to(41));
        drop(one);
        assert!(other.grow_to(100) && !budget.share().grow_to(1));
        other.give_back();
        assert!(budget.share().grow_to(100), "it returns its bytes at once");
        assert!(!budget.share().grow_to(101), "and only once");
        drop(other);
        assert!(!budget.share().grow_to(101), "nothing is returned twice");
    }

    #[test]
    fn part_of_a_budget_leaves_the_rest_to_the_other_parts() {
        let whole = ByteBudget::new(100);
        let (one, other) = (whole.part(60), whole.part(60));
        let (mut first, mut second) = (one.share(), other.share());
        assert!(!first.grow_to(61));
        assert!(first.grow_to(60) && second.grow_to(40));
        assert!(!second.grow_to(41), "the whole is used up");
        assert!(!one.is_unused());
        drop(first);
        assert!(one.is_unused());
        assert!(!second.grow_to(61) && second.grow_to(60));
        let mut third = one.share();
        assert!(!third.grow_to(41) && third.grow_to(40), "the other has 60");
    }
}
