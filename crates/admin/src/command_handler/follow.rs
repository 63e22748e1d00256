//! Follows what comes into the spool, page by page, until the daemon ends or nobody reads.

use super::{ReplySender, Stop};
use crate::refusal::Refusal;
use callbridge_spool::{Error, Handle, Store};
use serde_json::Value;
use std::time::Duration;

/// One who follows is told at most this often.
const UPDATE_EVERY: Duration = Duration::from_millis(500);

/// Tells of each thing that came after `seen`, and of each that comes.
///
/// `page` reads the next things after a place, with the place behind them; that place is the
/// given one when there are no more, and `None` when the spool has forgotten them. `item` makes
/// of a thing what is told of it, or nothing.
///
/// # Errors
/// [`Stop::Gone`] when nobody reads, those of the spool, and `too_many` with 69 when things
/// were forgotten before they were told.
pub(super) async fn follow<P, T>(
    spool: &Handle,
    mut seen: P,
    page: impl Fn(&Store, P) -> Result<Option<(Vec<T>, P)>, Error> + Copy + Send + 'static,
    mut item: impl FnMut(T) -> Option<Value>,
    too_many: &str,
    line: &mut ReplySender,
) -> Result<(), Stop>
where
    P: Copy + PartialEq + Send + 'static,
    T: Send + 'static,
{
    let mut changed = spool.changed();
    loop {
        changed.mark_unchanged();
        loop {
            let before = seen;
            let read = spool.read(move |store| page(store, before));
            let Some((things, after)) = read.await? else {
                return Err(Refusal::new(69, too_many).into());
            };
            for item in things.into_iter().filter_map(&mut item) {
                line.item(item).await?;
            }
            if after == seen {
                break;
            }
            seen = after;
        }
        tokio::time::sleep(UPDATE_EVERY).await;
        if changed.changed().await.is_err() {
            return Ok(()); // the daemon ends
        }
    }
}
