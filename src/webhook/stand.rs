//! Who is connected. When all places are taken, the one that has been silent longest is cut to
//! make room: connections that send nothing cannot keep the service out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The places.
#[derive(Debug, Default)]
pub struct Stand {
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Those whose request is not whole yet, the longest waiting first.
    waiting: BTreeMap<u64, Option<AbortHandle>>,
    /// Those that are being answered.
    answering: BTreeMap<u64, Option<AbortHandle>>,
}

/// One place; free again when dropped.
#[derive(Debug)]
pub struct Place {
    id: u64,
    taken: Arc<Mutex<Taken>>,
}

/// While it lives the place's connection is not cut.
#[derive(Debug)]
pub struct Answering<'a>(&'a Place);

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stand {
    /// With nobody in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a place.
    pub fn enter(&self) -> Place {
        let mut taken = lock(&self.taken);
        let id = taken.next;
        taken.next += 1;
        taken.waiting.insert(id, None);
        Place {
            id,
            taken: Arc::clone(&self.taken),
        }
    }

    /// How the connection in that place is cut.
    pub fn may_cut(&self, id: u64, handle: AbortHandle) {
        let mut taken = lock(&self.taken);
        let Taken {
            waiting, answering, ..
        } = &mut *taken;
        // It may have ended already.
        let place = waiting.get_mut(&id).or_else(|| answering.get_mut(&id));
        if let Some(place) = place {
            *place = Some(handle);
        }
    }

    /// Cuts the connection that has waited longest; false when none waits.
    pub fn make_room(&self) -> bool {
        match lock(&self.taken).waiting.pop_first() {
            Some((_, handle)) => {
                if let Some(handle) = handle {
                    handle.abort();
                }
                true
            }
            None => false,
        }
    }
}

impl Place {
    /// Its number: later ones are higher.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// A request is whole and is being answered.
    pub fn answer(&self) -> Answering<'_> {
        let mut taken = lock(&self.taken);
        if let Some(handle) = taken.waiting.remove(&self.id) {
            taken.answering.insert(self.id, handle);
        }
        Answering(self)
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let mut taken = lock(&self.0.taken);
        if let Some(handle) = taken.answering.remove(&self.0.id) {
            taken.waiting.insert(self.0.id, handle);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.waiting.remove(&self.id);
        taken.answering.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_one_that_has_waited_longest_makes_room_and_nobody_who_is_being_answered() {
        let stand = Stand::new();
        let (first, second) = (stand.enter(), stand.enter());
        let tasks: Vec<_> = [first.id(), second.id()]
            .map(|id| {
                let task = tokio::spawn(std::future::pending::<()>());
                stand.may_cut(id, task.abort_handle());
                task
            })
            .into();
        let answering = first.answer();
        assert!(stand.make_room(), "the second waits");
        assert!(!stand.make_room(), "the first is being answered");
        drop(answering);
        assert!(stand.make_room());
        for task in tasks {
            assert!(task.await.expect_err("cut").is_cancelled());
        }
    }

    #[test]
    fn a_place_that_was_left_is_nobodys() {
        let stand = Stand::new();
        drop(stand.enter());
        assert!(!stand.make_room());
    }
}
