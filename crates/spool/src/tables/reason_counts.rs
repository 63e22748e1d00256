//! The number of dead letters and waiting calls for each reason, which is updated in the same
//! transaction as the calls.

use crate::{Db, Error, State};
use callbridge_model::Reason;

/// Adds `by` to the number of calls with this state and reason, provided that the state is dead or
/// waiting.
pub(super) fn change(db: &Db, state: State, reason: Option<Reason>, by: i64) -> Result<(), Error> {
    let Some(reason) = reason else {
        return Ok(());
    };
    if !state.is_letter() {
        return Ok(());
    }
    let text = "INSERT INTO reason_counts (state, reason, count) VALUES (?1, ?2, ?3)
         ON CONFLICT (state, reason) DO UPDATE SET
             count = reason_counts.count + excluded.count";
    db.run(text, (state.word(), reason.word(), by))
}
