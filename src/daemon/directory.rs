//! Lets waiting calls go when something is learned of their numbers.

use super::lists::passed;
use callbridge_intake::release::release;
use callbridge_intake::run::SharedPeople;
use callbridge_mapping::journal::Rules;
use callbridge_mapping::people::People;
use callbridge_model::clock;
use callbridge_spool::{Handle, LeadDirectory};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Between two looks: many things may be learned in one of them.
const REST: Duration = Duration::from_millis(200);
/// Looked at this often even when nothing is committed: a look-up may have failed.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Between two looks at all waiting calls.
const ALL_EVERY: Duration = Duration::from_secs(10);

/// Works until it is dropped.
///
/// # Errors
/// When the spool is gone for good.
pub(crate) async fn keep(
    directory: Arc<LeadDirectory>,
    people: SharedPeople,
    rules: Rules,
    spool: Handle,
) -> anyhow::Result<()> {
    let mut changed = spool.changed();
    let mut all_anew = false;
    loop {
        // The watch ends with the spool, which is seen below.
        let _ = timeout(LOOK_EVERY, changed.changed()).await;
        let awaited = spool.read(|store| Ok(store.take_awaited())).await?;
        all_anew |= awaited.is_none() || directory.has_failed();
        let phones = awaited.unwrap_or_default();
        let (people, now) = (in_force(&people), clock::now().wall);
        if all_anew {
            all_anew = !passed(release(&spool, None, &rules, &people, now).await)?;
            tokio::time::sleep(ALL_EVERY).await;
        } else if !phones.is_empty() {
            let left = release(&spool, Some(&phones), &rules, &people, now).await;
            all_anew = !passed(left)?;
        }
        tokio::time::sleep(REST).await;
    }
}

fn in_force(people: &SharedPeople) -> Arc<People> {
    Arc::clone(&people.read().unwrap_or_else(PoisonError::into_inner))
}
