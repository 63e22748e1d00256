//! The last letters that came to be, and the last calls that moved, for those who watch.

use super::letters;
use super::listed::{self, Listed};
use crate::{Error, Letter, RowId, Store};
use std::collections::BTreeSet;

/// Letters that came to be after the first `seen`, at most `limit`, and how many are seen
/// then. One that has left again is not among them. `None` when they are forgotten: there
/// were more than 65,536 meanwhile.
pub fn letters_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Letter>, u64)>, Error> {
    let ids = store.appeared.since(seen, limit);
    each_once(ids, seen, |id| letters::letter(store, id))
}

/// Calls that moved after the first `seen` moves, each once and as it stands now, and how many
/// moves are seen then. `None` when they are forgotten: there were more than 16,384 meanwhile.
pub fn moved_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Listed>, u64)>, Error> {
    let ids = store.moved.since(seen, limit);
    each_once(ids, seen, |id| listed::listed_call(store, id))
}

fn each_once<T>(
    ids: Option<Vec<RowId>>,
    seen: u64,
    read: impl Fn(RowId) -> Result<Option<T>, Error>,
) -> Result<Option<(Vec<T>, u64)>, Error> {
    let Some(ids) = ids else {
        return Ok(None);
    };
    let mut told = BTreeSet::new();
    let once = ids.iter().filter(|id| told.insert(**id));
    let found = once.map(|id| read(*id)).filter_map(Result::transpose);
    Ok(Some((
        found.collect::<Result<_, _>>()?,
        seen + ids.len() as u64,
    )))
}
