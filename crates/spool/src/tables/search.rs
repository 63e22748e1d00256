//! A stored call by what a person knows of it.

use super::calls;
use crate::db::Columns as _;
use crate::{Db, Error, Row};
use callbridge_model::CallUuid;

/// A uuid's beginning is at least so many hexadecimal digits.
const DIGITS_MIN: usize = 4;
/// Calls that are named when several may be meant.
const NAMED_MAX: u8 = 20;

/// Result of a search for a call.
#[derive(Debug)]
pub enum Search {
    /// No stored call has the id.
    None,
    /// One stored call alone has the id, or a uuid that begins so.
    One(Box<Row>),
    /// The uuids of several begin so; twenty of them at most.
    Several(Vec<CallUuid>),
}

/// The stored call of this linkedid, of this unique id of any of its channels, of this uuid,
/// or of the only uuid that begins so.
pub fn search_call(db: &Db, id: &str) -> Result<Search, Error> {
    if let Some(row) = calls::find_call(db, id)? {
        return Ok(Search::One(Box::new(row)));
    }
    // A letter outlives the memory of its ids.
    let of_letter =
        "state IN ('dead', 'parked') AND json_extract(record, '$.linkedid') = ?1 LIMIT 1";
    if let Some(row) = calls::first(db, of_letter, [id])? {
        return Ok(Search::One(Box::new(row)));
    }
    let Some((low, high)) = bounds(id) else {
        return Ok(Search::None);
    };
    let uuids: Vec<CallUuid> = db.query_all(
        &format!(
            "SELECT uuid FROM calls WHERE uuid BETWEEN ?1 AND ?2 ORDER BY uuid LIMIT {NAMED_MAX}"
        ),
        [low, high],
        |row| row.uuid(0),
    )?;
    if uuids.len() > 1 {
        return Ok(Search::Several(uuids));
    }
    let only = calls::first(db, "uuid BETWEEN ?1 AND ?2", [low, high])?;
    Ok(only.map_or(Search::None, |row| Search::One(Box::new(row))))
}

/// The least and the greatest uuid that begin so; `None` for what is no uuid's beginning.
fn bounds(id: &str) -> Option<([u8; 16], [u8; 16])> {
    let digits: Option<Vec<u8>> = id
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| (DIGITS_MIN..=32).contains(&digits.len()))?;
    let filled = |rest: u8| {
        let digit = |i: usize| digits.get(i).copied().unwrap_or(rest);
        std::array::from_fn(|i| digit(2 * i) << 4 | digit(2 * i + 1))
    };
    Some((filled(0), filled(15)))
}
