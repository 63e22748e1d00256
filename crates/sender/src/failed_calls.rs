//! Calls that FAILED: what becomes of them is decided when their answer is committed, from what is
//! stored of them then.

use callbridge_call::EventTime;
use callbridge_model::Reason;
use callbridge_spool::{Error, FailedCallStep, Op, RowId, Step, Store, tables};
use serde_json::Value;

/// What becomes of a call is to be decided from what is stored of it.
pub(super) fn is_undecided(op: &Op) -> bool {
    undecided(op).is_some()
}

/// The call, what the service said of it, and when.
fn undecided(op: &Op) -> Option<(RowId, &String, &Value, EventTime)> {
    let Op::Step { row, step, at } = op else {
        return None;
    };
    match step {
        Step::Died {
            reason: Reason::Failed,
            message,
            errors,
        } => Some((*row, message, errors, *at)),
        _ => None,
    }
}

/// Decides what becomes of the calls that FAILED. When the spool says [`Error::Outdated`] it has
/// learned something of them since, and they are decided anew.
///
/// # Errors
/// The disk, or a damaged file.
pub fn decide(store: &Store, mut ops: Vec<Op>) -> Result<Vec<Op>, Error> {
    for op in &mut ops {
        if let Some((row, message, errors, at)) = undecided(op)
            && let Some(call) = tables::look_ups::failed_call(store, row, at)?
        {
            *op = Op::FailedCall(Box::new(FailedCallStep {
                row,
                decision: call.decide(message),
                call,
                message: message.clone(),
                errors: errors.clone(),
                at,
            }));
        }
    }
    Ok(ops)
}
