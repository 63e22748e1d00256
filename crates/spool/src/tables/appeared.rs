//! The last letters that came to be, and the last calls that moved, for those who watch.

use super::letters;
use super::listed::{self, Listed};
use crate::{Error, Letter, Store};
use std::collections::BTreeSet;

/// Letters that came to be after the first `seen`, at most `limit`, and how many are seen
/// then. One that has left again is not among them. `None` when they are forgotten: there
/// were more than 65,536 meanwhile.
pub fn letters_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Letter>, u64)>, Error> {
    let Some(ids) = store.appeared.since(seen, limit) else {
        return Ok(None);
    };
    let mut told = BTreeSet::new();
    let mut letters = Vec::new();
    for id in &ids {
        if told.insert(*id) {
            letters.extend(letters::letter(store, *id)?);
        }
    }
    Ok(Some((letters, seen + ids.len() as u64)))
}

/// Calls that moved after the first `seen` moves, each once and as it stands now, and how many
/// moves are seen then. `None` when they are forgotten: there were more than 16,384 meanwhile.
pub fn moved_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Listed>, u64)>, Error> {
    let Some(ids) = store.moved.since(seen, limit) else {
        return Ok(None);
    };
    let mut told = BTreeSet::new();
    let mut calls = Vec::new();
    for id in ids.iter().filter(|id| told.insert(**id)) {
        calls.extend(listed::listed_call(store, *id)?);
    }
    Ok(Some((calls, seen + ids.len() as u64)))
}
