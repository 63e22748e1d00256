//! The intake's loop, which takes a group of items, assembles and judges their calls, and commits
//! the result. Only then does each source get its verdict. While the disk is full, the loop doesn't
//! take any more items, so none are lost.

use crate::{Batch, Intake, release::release, unmatched::Prefix, written::Files};
use callbridge_mapping::{People, journal};
use callbridge_model::{Heartbeat, Outcome, Reason, clock, status};
use callbridge_source::{Counts, Intake as RingEnd, Item, SourceId, Verdicts};
use callbridge_spool as spool;
use callbridge_spool::{Done, Finished, Op};
use std::sync::{Arc, PoisonError, RwLock};
use std::{collections::BTreeMap, time::Duration};
use tokio::sync::watch;

/// Maximum number of items per commit.
const GROUP_ITEMS_MAX: usize = 4_096;
/// Maximum size in bytes of the frames in a commit.
const GROUP_BYTES_MAX: usize = 8 << 20;
/// How long to wait before retrying a commit that the disk rejected.
const DISK_RETRY: Duration = Duration::from_secs(2);
/// The loop wakes up at least this often, so that changes to the wall clock are noticed quickly.
const IDLE_WAKE: Duration = Duration::from_secs(1);

/// The current lead and employee lists, which are replaced as a whole when a list changes.
pub type SharedPeople = Arc<RwLock<Arc<People>>>;

/// Views of the intake for `status`, metrics, and the readiness notification.
pub struct ShellViews {
    /// Each source's status, in the order of the flags, updated on each iteration of the loop.
    pub statuses: watch::Sender<Vec<status::SourceStatus>>,
    /// Which sources have been up at least once.
    pub seen_up: watch::Sender<Vec<bool>>,
}

impl ShellViews {
    /// Creates the views of these sources, none of which has been up yet.
    pub fn new(statuses: Vec<status::SourceStatus>) -> Self {
        Self {
            seen_up: watch::Sender::new(vec![false; statuses.len()]),
            statuses: watch::Sender::new(statuses),
        }
    }
}

/// What the intake's loop uses.
pub struct Shell {
    /// Assembles and judges calls, without a clock, socket, or file.
    pub intake: Intake,
    /// The end of the ring that the sources' items are taken from.
    pub ring: RingEnd,
    /// The channel to each source, in the order of the flags.
    pub verdicts: Vec<Verdicts>,
    /// Each source's counters, in the order of the flags.
    pub counts: Vec<Counts>,
    /// Stores calls and positions, with one transaction per batch.
    pub spool: spool::Handle,
    /// Looks up finished calls by their IDs.
    pub memory: spool::FinishedCalls,
    /// The current lead and employee lists, shared with the code that reloads them.
    pub people: SharedPeople,
    /// Publishes the state of the sources.
    pub views: ShellViews,
    /// Becomes `true` when the process should stop, after which the loop no longer waits for a full
    /// disk.
    pub stopped: watch::Receiver<bool>,
    /// Whether the log shows only the last digits of phone numbers.
    pub mask_phones: bool,
    /// The loop's heartbeat.
    pub pulse: Heartbeat,
    /// Checks the format of file sources in the background.
    pub files: Files,
}

impl Shell {
    /// Runs until all sources are gone, by which time all items taken have been committed and all
    /// sources have their verdicts.
    ///
    /// # Errors
    ///
    /// Returns an error if the spool is permanently gone or two endpoints conflict.
    pub async fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.pulse.beat();
            self.set_clocks();
            let deadline = self.intake.next_deadline();
            let wake = deadline
                .map_or(IDLE_WAKE, |at| at.since(clock::steady()))
                .clamp(Duration::from_millis(1), IDLE_WAKE);
            // `Ok(None)` if all sources are gone, or an error if the deadline passes first.
            let first = tokio::time::timeout(wake, self.ring.next()).await;
            let over = matches!(first, Ok(None));
            if let Ok(Some((source, item))) = first {
                self.take(source, item)?;
                self.fill()?;
            }
            self.set_clocks();
            let now = clock::steady();
            let was_held = self.intake.is_held();
            self.intake.tick(now);
            let is_held = self.intake.is_held();
            if was_held != is_held {
                let reason = "clock";
                if is_held {
                    tracing::warn!(
                        reason,
                        "this machine's clock shows a time before this program was built: calls \
                         are kept until it is set"
                    );
                } else {
                    tracing::info!(reason, "this machine's clock is right again: continuing");
                }
                // While our clock is wrong, calls can't be judged, so sources of whole calls are
                // paused.
                for (at, verdicts) in self.verdicts.iter().enumerate() {
                    if self.intake.carries_whole_calls(at) {
                        verdicts.pause(is_held);
                    }
                }
            }
            let memory = &mut self.memory;
            self.intake
                .fold(now, &mut |pbx, id| memory.finished(pbx, id));
            self.commit().await?;
            let counts = self.counts.iter().map(Counts::now);
            self.intake.note_counts(counts);
            self.views.statuses.send_replace(self.intake.statuses());
            if over {
                self.report();
                return Ok(());
            }
        }
    }

    /// Tells the intake how far the wall clock is from the clock used for arrivals, which is reset
    /// once a wrong wall clock has been set.
    fn set_clocks(&mut self) {
        let right_from = self.intake.settings.clock_right_from;
        if clock::steady() < right_from && clock::now().wall >= right_from {
            clock::set_steady();
        }
        self.intake.set_wall_ahead(clock::wall_ahead());
    }

    /// Takes all other items that are ready into the same commit, up to its limits.
    fn fill(&mut self) -> anyhow::Result<()> {
        let mut items = 1;
        let mut bytes = 0;
        while items < GROUP_ITEMS_MAX
            && bytes < GROUP_BYTES_MAX
            && let Some((source, item)) = self.ring.try_next()
        {
            items += 1;
            if let Item::Frame(frame) = &item {
                bytes += frame.bytes.len();
            }
            self.take(source, item)?;
        }
        Ok(())
    }

    fn take(&mut self, source: SourceId, item: Item) -> anyhow::Result<()> {
        match item {
            Item::Up => {
                self.intake.up(source, clock::steady());
                self.views.seen_up.send_if_modified(|seen| {
                    let place = seen.get_mut(usize::from(source.0));
                    place.is_some_and(|up| !std::mem::replace(up, true))
                });
            }
            Item::Down(outage) => self.intake.down(source, outage),
            Item::MissingRight(right) => self.intake.report_missing_right(source, right),
            Item::Pong {
                at,
                asked,
                answered,
            } => self.intake.pong(source, at, asked, answered),
            Item::Stalled(is_stalled) => self.intake.note_stall(source, is_stalled),
            Item::EventsFlow => self.intake.events_flow(source),
            Item::Mark { mark, arrived } => self.intake.on_mark(source, mark, "", arrived),
            Item::Gap { why } => self.intake.gap(source, &why, clock::steady()),
            Item::Idle { position } => {
                self.intake.read_to(source, &position);
                self.intake.at_end(source, clock::steady());
                // Nothing was read from this file, so check its format. This is done in the
                // background, because the disk might hang.
                if self.intake.has_read_nothing(source) {
                    self.files
                        .check_format(source, self.intake.settings.decoding());
                }
            }
            Item::Done => tracing::debug!(id = source.0, "a source has ended"),
            Item::Frame(frame) => {
                let memory = &mut self.memory;
                let mut finished = |pbx: &str, id: &str| memory.finished(pbx, id);
                self.intake.frame(source, &frame, &mut finished)?;
            }
        }
        Ok(())
    }

    /// Logs what has been learned about the sources since the last commit.
    fn report(&mut self) {
        for (source, message) in self.files.formats_found() {
            if self.intake.has_read_nothing(source) {
                self.intake.report_format_mismatch(source, message);
            }
        }
        for (source, reason) in std::mem::take(&mut self.intake.format_mismatches) {
            tracing::warn!(
                source,
                reason,
                "the source has another format than its format= says"
            );
        }
        for (source, reason) in self.intake.take_lacks() {
            tracing::warn!(
                source,
                reason,
                "the source is connected, but lacks a right or setting"
            );
        }
        for prefix in std::mem::take(&mut self.intake.unmatched.unreported) {
            let Prefix { pbx, text: id, .. } = prefix;
            if prefix.may_be_phones {
                tracing::warn!(
                    id,
                    pbx,
                    "a channel of an unknown technology took part in a call: if customers call \
                     over it, add it to a --trunk"
                );
            } else {
                tracing::warn!(
                    id,
                    pbx,
                    "an outside number appeared on a channel that isn't part of any trunk, so the \
                     call counts as internal: add the channel to a --trunk, or to --employees if \
                     it's a phone"
                );
            }
        }
        for (source, news) in self.intake.take_news(clock::steady()) {
            news.log(&source);
        }
    }

    async fn commit(&mut self) -> anyhow::Result<()> {
        let people = self.people_in_force();
        let memory = &mut self.memory;
        let now = clock::steady();
        let mut finished = |pbx: &str, id: &str| memory.finished(pbx, id);
        self.intake.reconcile(now, &mut finished);
        self.report();
        let Batch { ops, verdicts } = self.intake.take(&people, clock::steady());
        if !ops.is_empty() {
            self.log(&ops);
            let waiting = waiting_calls(&ops);
            let results = self.store(&ops).await?;
            let messages = results
                .iter()
                .filter(|done| **done == Done::Unreadable(None))
                .count();
            if messages > 0 {
                tracing::error!(
                    messages,
                    "unreadable messages are counted but not kept, because there is no room: see \
                     `callbridge dead list --reason unreadable`, and discard them"
                );
            }
            self.intake.note_commit();
            self.recheck(&waiting).await?;
        }
        for (source, verdict) in verdicts {
            self.verdicts[usize::from(source.0)].give(verdict);
        }
        for (at, verdicts) in self.verdicts.iter().enumerate() {
            verdicts.note_calls(self.intake.has_open_calls(at));
        }
        Ok(())
    }

    /// Stores the batch, no matter how long the disk stays full. Consumption is paused in the
    /// meantime, and continues automatically.
    async fn store(&mut self, ops: &[Op]) -> anyhow::Result<Vec<Done>> {
        let mut paused = false;
        let done = loop {
            self.pulse.beat();
            match self.spool.write(ops.to_vec()).await {
                Ok(done) => break done,
                Err(error) if error.is_retryable() => {
                    if !paused {
                        paused = true;
                        tracing::error!(%error, "the state cannot be written; intake is held");
                        for verdicts in &self.verdicts {
                            verdicts.pause(true);
                        }
                        let held = self.intake.statuses_while_held();
                        self.views.statuses.send_replace(held);
                    }
                    if *self.stopped.borrow() {
                        anyhow::bail!("the last events could not be committed: {error}");
                    }
                    tokio::time::sleep(DISK_RETRY).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        if paused {
            tracing::info!("the state can be written again; intake goes on");
            for verdicts in &self.verdicts {
                verdicts.pause(false);
            }
            self.intake.resumes(clock::steady());
        }
        Ok(done)
    }

    /// Releases newly stored calls that can be sent now. If a lead becomes known between a call's
    /// verdict and its commit, a release can't find the call yet. From now on, it will find it in
    /// the spool.
    async fn recheck(&mut self, waiting: &[Finished]) -> anyhow::Result<()> {
        let people = &self.people_in_force();
        let rules = &self.intake.settings.rules;
        let spool = &self.spool;
        let mut phones = Vec::new();
        for finished in waiting {
            let record = &finished.judged.record;
            let now = clock::now().wall;
            let judged = journal::remap(record, &finished.call, None, rules, people, now);
            if judged.outcome == Outcome::Journal {
                phones.extend(record.client_phone.clone());
            }
        }
        if phones.is_empty() {
            return Ok(());
        }
        loop {
            match release(spool, Some(&phones), rules, people, clock::now().wall).await {
                Ok(_) => return Ok(()),
                // All waiting calls will be checked at the next startup.
                Err(error) if error.is_retryable() && *self.stopped.borrow() => return Ok(()),
                Err(error) if error.is_retryable() => tokio::time::sleep(DISK_RETRY).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn people_in_force(&self) -> Arc<People> {
        Arc::clone(&self.people.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn log(&self, ops: &[Op]) {
        // A file in a different format has one unreadable message per line.
        let mut unreadable: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Finish(finished) => log_call(finished, self.mask_phones),
                Op::Unreadable(unread) => {
                    let source_and_reason = (unread.source.as_str(), unread.why.as_str());
                    *unreadable.entry(source_and_reason).or_default() += 1;
                }
                _ => {}
            }
        }
        for ((source, reason), messages) in unreadable {
            tracing::warn!(
                source,
                reason,
                messages,
                "an unreadable message is kept as a dead letter"
            );
        }
    }
}

/// Returns the calls that are waiting for a lead or an employee.
fn waiting_calls(ops: &[Op]) -> Vec<Finished> {
    let mut waiting = Vec::new();
    for op in ops {
        if let Op::Finish(finished) = op
            && let Some(reason) = finished.judged.reason
            && (reason.is_waiting() || reason == Reason::AmbiguousLead)
        {
            waiting.push(finished.as_ref().clone());
        }
    }
    waiting
}

fn log_call(finished: &spool::Finished, mask: bool) {
    let judged = &finished.judged;
    let record = &judged.record;
    let phone = record.client_phone.as_ref().map(|phone| {
        if mask {
            phone.masked()
        } else {
            phone.as_str().to_owned()
        }
    });
    let call = record.uuid.map(|uuid| uuid.to_string()).unwrap_or_default();
    for remark in &judged.remarks {
        tracing::info!(%call, linkedid = %record.linkedid, remark, "a value was corrected");
    }
    let trunk = record.trunk.as_deref().unwrap_or_default();
    // A waiting call doesn't require any action.
    let letter = match judged.reason {
        Some(Reason::NoLead) => "a finished call waits for its lead",
        Some(Reason::NoEmployee) => "a finished call waits for its employee",
        Some(_) | None => "a finished call is a dead letter",
    };
    match judged.outcome {
        Outcome::Journal => tracing::info!(
            %call,
            linkedid = %record.linkedid,
            trunk,
            direction = ?record.direction,
            answered = record.answered,
            phone,
            duration_sec = record.duration_sec,
            talk_sec = record.talk_time_sec,
            "a call is finished"
        ),
        Outcome::DeadLetter => tracing::warn!(
            %call,
            linkedid = %record.linkedid,
            trunk,
            phone,
            reason = judged.reason.map(callbridge_model::Reason::word).unwrap_or_default(),
            why = %judged.message,
            "{letter}"
        ),
        Outcome::Internal | Outcome::Skipped => tracing::debug!(
            linkedid = %record.linkedid,
            outcome = ?judged.outcome,
            "a finished call is not journaled"
        ),
    }
}
