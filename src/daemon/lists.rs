//! Reloads the lists of leads and employees when they change, and releases waiting calls when a
//! list changes or the directory learns about their numbers. Also expires and purges old calls, in
//! small rounds so that no write has to wait for long.

use callbridge_intake::release::{expire, release};
use callbridge_intake::run::SharedPeople;
use callbridge_mapping::people::files::{ListKind, News, Watched};
use callbridge_mapping::people::{Directory, files, matching};
use callbridge_mapping::{People, Rules};
use callbridge_model::status::{Employees, ListFile};
use callbridge_model::{Country, clock};
use callbridge_ops::kept::unknown_employees;
use callbridge_source::EventTime;
use callbridge_spool::tables::unknown_employees::extensions_met;
use callbridge_spool::{Done, Error, Handle, LeadDirectory, Op};
use std::sync::{Arc, PoisonError};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Interval between checks of the lists' files.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Number of file checks between two comparisons of employees with calls.
const ROUNDS_BETWEEN_MEETINGS: u64 = 5;
/// Maximum number of bad rows per file to log. `check` shows all of them.
const LOGGED_MAX: usize = 20;
/// Maximum number of bad rows that `status` shows.
const NAMED_MAX: usize = 5;

/// A list's key, which consists of its file, its kind, and the country of its numbers.
type ListKey = (PathBuf, &'static str, Option<Country>);
/// The state of each list, as shown by `status`.
pub(crate) type ListStates = watch::Receiver<BTreeMap<ListKey, ListFile>>;

/// The lists, along with their states for `status`.
#[derive(Debug)]
pub(crate) struct Lists {
    watched: Watched,
    /// The lists' states.
    pub(crate) shown: watch::Sender<BTreeMap<ListKey, ListFile>>,
    /// How the employees compare with the extensions in the newest calls.
    pub(crate) met: watch::Sender<Option<Employees>>,
}

impl Lists {
    /// Reads the lists for the first time, and adds the directory of leads. If a list can't be
    /// used, that's logged and doesn't prevent the startup. Its calls wait until it can be used.
    pub(crate) fn load(rules: &Rules, directory: Arc<dyn Directory>) -> Self {
        let mut watched = Watched::for_trunks(rules.every_trunk()).with_directory(directory);
        let news = watched.reload(clock::now().wall);
        let lists = Self {
            watched,
            shown: watch::Sender::default(),
            met: watch::Sender::default(),
        };
        lists.publish(&news);
        lists
    }

    /// Returns the lists of leads and employees currently in effect.
    pub(crate) fn people(&self) -> &People {
        self.watched.people()
    }

    /// Compares the employees with the newest calls. An employee that the CRM doesn't know is only
    /// reported as long as a list contains them.
    async fn compare_employees(&self, rules: &Rules, spool: &Handle) {
        let read = spool.read(|store| Ok((extensions_met(store)?, unknown_employees(store)?)));
        let (met, mut unknown) = match read.await {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "the newest calls cannot be read");
                return;
            }
        };
        let mut seen = matching::compare(rules, self.people(), &met);
        unknown.retain(|employee| self.names(rules, employee.employee_id));
        seen.unknown = unknown;
        let before = self.met.borrow().clone().unwrap_or_default();
        for doubtful in &seen.doubtful {
            if !before.doubtful.contains(doubtful) {
                let extension = doubtful.extension.as_str();
                let meant = doubtful.meant.as_str();
                tracing::warn!(
                    extension,
                    meant,
                    "no call had an employee's extension; `meant` is the likely one"
                );
            }
        }
        for unknown in &seen.unknown {
            let employee = unknown.employee_id;
            let mut reported = before.unknown.iter();
            if !reported.any(|reported| reported.employee_id == employee) {
                let extension = unknown.extension.as_deref();
                tracing::warn!(employee, extension, "the CRM does not know an employee");
            }
        }
        self.met.send_replace(Some(seen));
    }

    fn names(&self, rules: &Rules, employee: i64) -> bool {
        rules.every_trunk().any(|trunk| {
            let listed = self.people().employees_at(trunk);
            listed.is_some_and(|listed| listed.values().any(|id| id.get() == employee))
        })
    }

    /// Logs the results of reading lists, and updates the lists' states for `status`.
    fn publish(&self, news: &[News]) {
        news.iter().for_each(log);
        self.shown.send_if_modified(|shown| {
            let at = clock::now().wall.floor_seconds().get();
            for one in news {
                let key = (one.file.clone(), one.kind.word(), one.country);
                show(one, at, shown.entry(key).or_default());
            }
            !news.is_empty()
        });
    }
}

/// Updates a list's state for `status` with the result of reading it. `at` is the time in epoch
/// seconds.
fn show(news: &News, at: i64, shown: &mut ListFile) {
    shown.file = news.file.display().to_string();
    news.kind.word().clone_into(&mut shown.kind);
    let about = news.list_report();
    shown.bad = about.map_or(0, |about| count(about.bad));
    let rows = about.map_or(&[][..], |about| &about.named[..]);
    let named = rows.iter().take(NAMED_MAX);
    shown.faults = named.map(ToString::to_string).collect();
    match &news.result {
        Ok(change) => {
            shown.rows = count(change.about.rows);
            shown.read_at = Some(at);
            shown.reason = None;
        }
        Err(files::Error::Useless(..)) => shown.reason = Some("no row can be used".to_owned()),
        Err(error) => shown.reason = Some(error.to_string()),
    }
}

fn count(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

fn log(news: &News) {
    let file = news.file.display();
    if let Err(error) = &news.result {
        let error = error.masked();
        tracing::error!(
            error,
            "a list cannot be used; rows that were read before, if any, stay in use"
        );
    }
    let Some(about) = news.list_report() else {
        return;
    };
    for row in about.named.iter().take(LOGGED_MAX) {
        let reason = row.masked();
        tracing::error!(%file, reason, "a row of the list cannot be used");
    }
    let more = about.bad.saturating_sub(LOGGED_MAX);
    if more > 0 {
        let hint = "`callbridge check` lists them";
        tracing::error!(%file, more, hint, "rows of the list cannot be used");
    }
    if news.result.is_err() {
        return;
    }
    let rows = about.rows;
    let bad = about.bad;
    let remarks = about.remarks();
    match (news.kind, about.is_empty()) {
        (_, true) => tracing::warn!(%file, "the list has no row"),
        (ListKind::Leads, false) => {
            tracing::info!(%file, rows, bad, "the lead list is read{remarks}");
        }
        (ListKind::Employees, false) => {
            tracing::info!(%file, rows, bad, "the employees are read{remarks}");
        }
    }
}

/// Reloads changed lists and releases waiting calls, until the future is dropped.
///
/// # Errors
/// Returns an error if the spool has ended.
pub(crate) async fn keep(
    mut lists: Lists,
    people: SharedPeople,
    rules: Rules,
    spool: Handle,
) -> anyhow::Result<()> {
    // Lists and flags may have changed while no process was running.
    let mut all_anew = true;
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    for round in 0_u64.. {
        ticks.tick().await;
        if round % ROUNDS_BETWEEN_MEETINGS == 0 {
            lists.compare_employees(&rules, &spool).await;
        }
        let reading = tokio::task::spawn_blocking(move || {
            let news = lists.watched.reload(clock::now().wall);
            (lists, news)
        });
        let (read, news) = reading.await?;
        lists = read;
        lists.publish(&news);
        if news.iter().any(|news| news.result.is_ok()) {
            let newest = Arc::new(lists.people().clone());
            *people.write().unwrap_or_else(PoisonError::into_inner) = newest;
        }
        for news in &news {
            let Ok(change) = &news.result else { continue };
            match news.kind {
                ListKind::Leads if !all_anew => {
                    let now = clock::now().wall;
                    let phones = Some(&change.phones[..]);
                    let left = release(&spool, phones, &rules, lists.people(), now).await;
                    // If the disk is full, all waiting calls are checked again later.
                    all_anew = !finish_write(left)?;
                }
                ListKind::Employees if rules.require_employee => all_anew = true,
                ListKind::Leads | ListKind::Employees => {}
            }
        }
        if all_anew {
            let now = clock::now().wall;
            all_anew = !finish_write(release(&spool, None, &rules, lists.people(), now).await)?;
        }
    }
    Ok(())
}

/// Returns `false` if the write was prevented by a full disk, in which case the caller must repeat
/// it.
pub(super) fn finish_write(done: Result<u64, Error>) -> Result<bool, Error> {
    match done {
        Ok(_) => Ok(true),
        Err(error) if error.is_retryable() => {
            tracing::warn!(%error, "postponed until the state can be written");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Pause between two checks for learned numbers, because the directory often learns several of them
/// within a short time.
const REST: Duration = Duration::from_millis(200);
/// Interval between checks if the spool doesn't commit anything, because a lookup in the directory
/// may have failed.
const AWAITED_EVERY: Duration = Duration::from_secs(2);
/// Pause after all waiting calls have been checked.
const ALL_EVERY: Duration = Duration::from_secs(10);

/// Releases waiting calls when the directory learns about their numbers, until the future is
/// dropped.
///
/// # Errors
/// Returns an error if the spool has ended.
pub(crate) async fn keep_learned(
    directory: Arc<LeadDirectory>,
    people: SharedPeople,
    rules: Rules,
    spool: Handle,
) -> anyhow::Result<()> {
    let mut changed = spool.changed();
    let mut all_anew = false;
    loop {
        // The watch ends with the spool, which the read below will report.
        let _ = timeout(AWAITED_EVERY, changed.changed()).await;
        let awaited = spool.read(|store| Ok(store.take_awaited())).await?;
        all_anew |= awaited.is_none() || directory.has_failed();
        let phones = awaited.unwrap_or_default();
        let people = Arc::clone(&people.read().unwrap_or_else(PoisonError::into_inner));
        let now = clock::now().wall;
        if all_anew {
            all_anew = !finish_write(release(&spool, None, &rules, &people, now).await)?;
            tokio::time::sleep(ALL_EVERY).await;
        } else if !phones.is_empty() {
            let left = release(&spool, Some(&phones), &rules, &people, now).await;
            all_anew = !finish_write(left)?;
        }
        tokio::time::sleep(REST).await;
    }
}

/// Interval between upkeep runs.
const UPKEEP_EVERY: Duration = Duration::from_secs(60);
/// Pause between two upkeep rounds, as a multiple of how long the last round took.
const UPKEEP_REST: u32 = 4;
/// Minimum pause between two upkeep rounds.
const UPKEEP_REST_MIN: Duration = Duration::from_millis(20);

/// Expires calls that have waited too long, and purges old data, until the future is dropped.
///
/// # Errors
/// Returns an error if the spool has ended.
pub(crate) async fn keep_up(spool: Handle) -> anyhow::Result<()> {
    // There's more urgent work at startup, so this waits.
    let mut ticks = tokio::time::interval_at(Instant::now() + UPKEEP_EVERY, UPKEEP_EVERY);
    loop {
        ticks.tick().await;
        let mut more = true;
        while more {
            let began = Instant::now();
            let done = run_round(&spool, clock::now().wall).await;
            more = matches!(done, Ok(1..));
            finish_write(done)?;
            if more {
                tokio::time::sleep((began.elapsed() * UPKEEP_REST).max(UPKEEP_REST_MIN)).await;
            }
        }
    }
}

/// Expires and purges one batch, returning 0 if nothing is left to do.
async fn run_round(spool: &Handle, now: EventTime) -> Result<u64, Error> {
    let ended = expire(spool, now).await?;
    let done = spool.write(vec![Op::Purge(now)]).await?;
    let more = done
        .iter()
        .any(|done| matches!(done, Done::PurgeCounts(purged) if purged.more));
    Ok(ended + u64::from(more))
}
