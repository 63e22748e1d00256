//! Moves a state to another place, whether from a folder to a database or the other way around.
//!
//! Both states are locked. The rows are copied first. After that, the target is marked as complete
//! and the origin as moved, and finally the target's mark is removed. If the process ends before
//! the origin is marked, the origin remains in use. If it ends later, running the same command
//! again finishes the move.
//!
//! | setting | in | meaning |
//! |---|---|---|
//! | `spool.unfinished` | target | `copy` while rows are copied, then `complete ID` |
//! | `spool.moved` | origin | `ID PLACE`: it was moved to PLACE, and no process opens it |
//! | `spool.moved_here` | target | `ID`: the origin's rows are an older copy of this state |

use crate::held::{HeldState, Use};
use crate::marks::{MOVED, MOVED_HERE, MovedMark, UNFINISHED};
use crate::tables::connection::SECRET_TABLES;
use crate::tables::{meta, silence};
use crate::transfer::{
    Progress, Transfer, begin_copy, check_source, copy_all, copy_tables, in_transaction,
};
use crate::{Db, Error, Silence, SilenceReason, StatePlace};

/// Name that the server shows for the session.
const LABEL: &str = "callbridge state move";
const COMPLETE: &str = "complete ";

/// Moves the state from `from` to `to`. The target must be empty, or else hold an unfinished copy,
/// or an older copy of this state that was moved away from there. This must not be called from an
/// async task, because it blocks until the database responds.
///
/// # Errors
/// Returns an error if one of the places is in use or can't be used. The state is then still in
/// `from`, or calling this again finishes the move.
pub fn move_state(
    from: &StatePlace,
    to: &StatePlace,
    progress: Progress<'_>,
) -> Result<Transfer, Error> {
    if from == to {
        return Err(Error::SamePlace(from.to_string()));
    }
    let source = HeldState::open(from, Use::From, LABEL)?;
    let target = HeldState::open(to, Use::To, LABEL)?;
    let moved = move_rows(&source, &target, progress);
    source.close();
    target.close();
    moved
}

pub(crate) fn move_rows(
    source: &HeldState,
    target: &HeldState,
    progress: Progress<'_>,
) -> Result<Transfer, Error> {
    if let Some(mark) = meta::meta(source, MOVED)? {
        let mark = MovedMark::parse(&mark);
        if meta::meta(target, UNFINISHED)? == Some(format!("{COMPLETE}{}", mark.id)) {
            finish(target)?;
            return Transfer::read(target);
        }
        return Err(Error::Moved(source.path.clone(), mark.to));
    }
    check_source(source)?;
    let own_id = meta::meta(source, MOVED_HERE)?;
    begin_copy(target, own_id.as_deref())?;
    let copied = copy_all(source, target, &[], progress)?;
    let mark = MovedMark {
        id: uuid::Uuid::new_v4().to_string(),
        to: target.place.clone(),
    };
    complete(source, target, &mark.id)?;
    mark_moved(source, target, &mark)?;
    finish(target)?;
    Ok(copied)
}

/// Marks the target as a complete copy with the move's ID. If the origin had a leader, the next
/// process begins with a silence, because that leader may have run on another machine, and its last
/// request may still arrive.
fn complete(source: &HeldState, target: &Db, id: &str) -> Result<(), Error> {
    in_transaction(target, || {
        if let Some(leader) = source.last_leader.clone() {
            let why = SilenceReason::TakenOver(leader);
            silence::replace(target, &Silence::to_begin(why))?;
        }
        meta::set_meta(target, MOVED_HERE, id)?;
        meta::set_meta(target, UNFINISHED, &format!("{COMPLETE}{id}"))
    })
}

/// Marks the origin as moved. The OAuth tokens are copied again in the same transaction, because
/// sessions that store a new pair of tokens don't need the state's lock.
fn mark_moved(source: &Db, target: &Db, mark: &MovedMark) -> Result<(), Error> {
    in_transaction(source, || {
        if source.session().is_some() {
            let tables = SECRET_TABLES.join(", ");
            source.run(&format!("LOCK TABLE {tables} IN EXCLUSIVE MODE"), ())?;
        }
        in_transaction(target, || copy_tables(source, target, &SECRET_TABLES))?;
        meta::set_meta(source, MOVED, &mark.value())
    })
}

fn finish(target: &Db) -> Result<(), Error> {
    meta::drop_meta(target, UNFINISHED)
}
