//! Keeps the lists of leads and employees in force, and lets parked calls go when they change.

use crate::clock;
use crate::dead_letter::release::release;
use crate::intake::run::SharedPeople;
use crate::journal::Rules;
use crate::people::files::{Change, News, Watched};
use crate::spool::{Error, Handle};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at the lists' files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads the lists for the first time. A list that cannot be used is said and holds nobody up:
/// its calls are parked until it can.
pub fn load(rules: &Rules) -> Watched {
    let mut lists = Watched::new(&rules.trunks);
    for news in lists.reload(clock::now().wall) {
        tell(&news);
    }
    lists
}

fn tell(news: &News) {
    let file = news.file.display();
    match &news.result {
        Ok(Change::Leads { rows, phones }) => {
            tracing::info!(%file, rows, changed = phones.len(), "the lead list is read");
        }
        Ok(Change::Employees { rows }) => tracing::info!(%file, rows, "the employees are read"),
        Err(error) => {
            tracing::error!(%error, "a list cannot be used; what was read before stays in force");
        }
    }
}

/// Works until it is dropped.
///
/// # Errors
/// When the spool is gone for good.
pub async fn keep(
    mut lists: Watched,
    people: SharedPeople,
    rules: Rules,
    spool: Handle,
) -> anyhow::Result<()> {
    // Lists and flags may have changed while nobody ran.
    let mut all_anew = true;
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        look.tick().await;
        let reading = tokio::task::spawn_blocking(move || {
            let news = lists.reload(clock::now().wall);
            (lists, news)
        });
        let news;
        (lists, news) = reading.await?;
        for news in &news {
            tell(news);
        }
        if news.iter().any(|news| news.result.is_ok()) {
            let newest = Arc::new(lists.people().clone());
            match people.write() {
                Ok(mut people) => *people = newest,
                Err(poisoned) => *poisoned.into_inner() = newest,
            }
        }
        for news in &news {
            match &news.result {
                Ok(Change::Leads { phones, .. }) if !all_anew => {
                    let now = clock::now().wall;
                    let left = release(&spool, Some(phones), &rules, lists.people(), now).await;
                    // What the full disk did not take is looked for among all parked calls.
                    all_anew = !passed(left)?;
                }
                Ok(Change::Employees { .. }) if rules.require_employee => all_anew = true,
                Ok(Change::Leads { .. } | Change::Employees { .. }) | Err(_) => {}
            }
        }
        if all_anew {
            let now = clock::now().wall;
            all_anew = !passed(release(&spool, None, &rules, lists.people(), now).await)?;
        }
    }
}

/// Whether it was done; a full disk passes, and it is to be done again then.
pub(super) fn passed(done: Result<u64, Error>) -> Result<bool, Error> {
    match done {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => {
            tracing::warn!(%error, "put off until the state can be written");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
