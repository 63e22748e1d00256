//! Receives a branch's calls and reports: reads, judges, and commits them, and creates the
//! response.

use crate::limits::{DAY_BYTES_MAX, DailyQuota};
use crate::lines::{BodyRefusal, CallLine, Lines, bytes_of_lines, read_lines, refuse_line};
use crate::protocol::{BranchAnswer, CallsAnswer, RefusedLine, ReportAnswer};
use crate::tally::Tally;
use crate::token::{BranchTable, KnownBranch, new_id};
use bytes::Bytes;
use callbridge_mapping::journal::{figures, phone_to_look_up};
use callbridge_mapping::{People, Rules, judge};
use callbridge_model::status::BranchReport;
use callbridge_model::{CallUuid, Now, clock};
use callbridge_spool::{
    BRANCH_SOURCE, BranchRequest, Done, Error, Finished, Handle, HubAnswer, HubPosition, Op,
    Silence, SilenceReason, UnreadableBytes, foreign_pbx_message, tables,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;

/// A call that arrives within this time of its end is live, and is sent before the backlog.
const LIVE_WITHIN: Duration = Duration::from_secs(60);

/// Maximum number of sources and of problems kept from a report.
const LISTED_MAX: usize = 100;
/// Maximum number of characters kept of any text in a report.
const TEXT_CHARS: usize = 300;

/// Handles requests from branches.
pub struct Receiver {
    pub spool: Handle,
    pub rules: Rules,
    /// The current lists of leads and employees, replaced when they're reloaded.
    pub people: Arc<RwLock<Arc<People>>>,
    pub branches: Arc<BranchTable>,
    pub tally: Arc<Tally>,
    /// How long to send the CRM no requests after lost commits: a window plus 45 s.
    pub silence: Duration,
    /// This program's version.
    pub version: &'static str,
    pub turns: Turns,
    /// Limits how much each branch adds to the state.
    pub quota: Mutex<DailyQuota>,
}

/// Stores each branch's requests one at a time, so that a branch that floods the hub delays another
/// by only one request. The branch's other bodies wait before they're parsed, because the parsed
/// calls take several times as much memory.
#[derive(Debug, Default)]
pub struct Turns(Mutex<BTreeMap<String, Arc<AsyncMutex<()>>>>);

impl Turns {
    fn for_branch(&self, branch: &str) -> Arc<AsyncMutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(branch.to_owned()).or_default())
    }
}

/// A request from a branch with a valid token.
#[derive(Clone, Debug)]
pub struct Origin {
    pub branch: Arc<KnownBranch>,
    /// ID of the collector's state, or `None` for a script, which keeps no dead letters of its own.
    pub sender: Option<String>,
    /// The highest position that the sender has seen, if the request includes one.
    pub seen: Option<HubPosition>,
}

/// Why a request doesn't get a 200.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Body(#[from] BodyRefusal),
    #[error("the report is not JSON as a collector sends it: {0}")]
    Report(serde_json::Error),
    /// The branch may not store any more calls for this long.
    #[error(
        "this branch has used up its {} MiB of new calls for today; if it has no such backlog, its \
         token may have been stolen, so run `callbridge branch rotate NAME --now` at the hub",
        DAY_BYTES_MAX >> 20
    )]
    Quota(Duration),
    /// The spool can't store the request now, or refuses it.
    #[error("{0}")]
    Spool(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Spool(error)
    }
}

/// A body's sender, and what it may store.
struct Arrival<'a> {
    origin: &'a Origin,
    now: Now,
    /// Whether the branch has used up its quota of new calls.
    only_repeats: bool,
}

/// A body's messages.
struct Messages {
    body: Bytes,
    /// Whether the body can't be split into lines.
    is_one: bool,
}

impl Messages {
    /// Returns the bytes of the refused lines, which must be in ascending order.
    fn of_lines(&self, refused: &[RefusedLine]) -> Vec<Bytes> {
        if self.is_one {
            return vec![self.body.clone()];
        }
        let numbers: Vec<usize> = refused.iter().map(|line| line.line).collect();
        let lines = bytes_of_lines(&self.body, &numbers).into_iter();
        lines.map(|line| self.body.slice_ref(line)).collect()
    }
}

/// A call and its line number.
struct JudgedLine {
    line: usize,
    bytes: usize,
    id: String,
    uuid: CallUuid,
    finished: Finished,
}

impl Receiver {
    /// Stores a body's calls, returning after the commit.
    ///
    /// # Errors
    /// Returns the reason why nothing in the body was stored.
    pub async fn calls(
        &self,
        origin: &Origin,
        body: Bytes,
        content_type: Option<String>,
    ) -> Result<CallsAnswer, Refusal> {
        let turn = self.turns.for_branch(&origin.branch.name);
        let _turn = turn.lock().await;
        let now = clock::now();
        // Repeats are stored already, so they're answered even if the quota is used up.
        let wait = self.quota().check(&origin.branch.name, now.boot).err();
        let arrival = Arrival {
            origin,
            now,
            only_repeats: wait.is_some(),
        };
        let judging = Judging {
            rules: self.rules.clone(),
            people: Arc::clone(&self.people.read().unwrap_or_else(PoisonError::into_inner)),
            branch: Arc::clone(&origin.branch),
            from_collector: origin.sender.is_some(),
            now,
        };
        // Judging hundreds of calls takes a while, so do it in another thread to avoid delaying
        // other requests.
        let read_body = body.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let lines = read_lines(&read_body, content_type.as_deref())?;
            let is_one = lines.is_one;
            Ok::<_, BodyRefusal>((judging.judge_all(lines), is_one))
        });
        let ((judged, mut refused), is_one) = reading.await.map_err(|_| Error::Closed)??;
        refused.sort_by_key(|line| line.line);
        let messages = Messages { body, is_one };
        let stored = self.store(&arrival, &judged, &refused, &messages).await;
        let stored = match stored {
            Err(error) if !is_of_all_calls(&error) => {
                // One of the calls can't be stored. It must not hold up the others, so store each
                // call separately.
                self.store_each(&arrival, &judged, &mut refused, &messages)
                    .await
            }
            stored => stored,
        };
        let (taken, position) = stored.map_err(|error| match wait {
            Some(wait) if error == Error::NewCalls => Refusal::Quota(wait),
            _ => error.into(),
        })?;
        self.count_lines(&origin.branch.name, &refused, now);
        Ok(CallsAnswer {
            position,
            taken,
            refused,
        })
    }

    fn quota(&self) -> MutexGuard<'_, DailyQuota> {
        self.quota.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_lines(&self, branch: &str, refused: &[RefusedLine], now: Now) {
        if let Some(last) = refused.last() {
            let lines = refused.len() as u64;
            self.tally.refuse_lines(branch, lines, last, now.boot);
        }
    }

    /// Returns the operations that keep the refused lines as the branch's dead letters. There are
    /// none for a collector's lines, since it keeps its own.
    async fn letters(
        &self,
        origin: &Origin,
        refused: &[RefusedLine],
        messages: &Messages,
        now: Now,
    ) -> Result<Vec<Op>, Error> {
        if origin.sender.is_some() || refused.is_empty() {
            return Ok(Vec::new());
        }
        let messages = messages.of_lines(refused);
        let source = format!("{BRANCH_SOURCE}{}", origin.branch.name);
        let (asked_source, asked) = (source.clone(), messages.clone());
        let read = self.spool.read(move |store| {
            let asked: Vec<&[u8]> = asked.iter().map(AsRef::as_ref).collect();
            tables::unreadable::are_new(store, &asked_source, &asked)
        });
        let mut ops = Vec::new();
        for ((message, line), is_new) in messages.into_iter().zip(refused).zip(read.await?) {
            if is_new {
                ops.push(Op::Unreadable(UnreadableBytes {
                    source: source.clone(),
                    pbx: origin.branch.name.clone(),
                    bytes: message.to_vec(),
                    cut_from: None,
                    file: None,
                    why: line.error.clone(),
                    at: now.wall,
                    content_type: None,
                }));
            }
        }
        Ok(ops)
    }

    async fn store(
        &self,
        arrival: &Arrival<'_>,
        judged: &[JudgedLine],
        refused: &[RefusedLine],
        messages: &Messages,
    ) -> Result<(Vec<CallUuid>, HubPosition), Error> {
        let Arrival { origin, now, .. } = *arrival;
        let kept = self.letters(origin, refused, messages, now).await?;
        let mut ops = vec![self.request(origin, judged.len(), refused, None, now)];
        ops.extend(kept);
        let first_call = ops.len();
        let mut taken = Vec::with_capacity(judged.len());
        for line in judged {
            ops.push(Op::Finish(Box::new(line.finished.clone())));
            taken.push(line.uuid);
        }
        if arrival.only_repeats {
            ops.push(Op::OnlyRepeats);
        }
        let done = self.spool.write(ops).await?;
        let stored = judged.iter().zip(done.iter().skip(first_call));
        let new = stored.filter(|(_, done)| done.is_new_call());
        let bytes: usize = new.map(|(line, _)| line.bytes).sum();
        self.quota()
            .note_stored(&origin.branch.name, bytes as u64, now.boot);
        Ok((taken, self.position(origin, done)?))
    }

    /// Stores each call separately, and then all refused lines, including those that the spool
    /// refuses.
    async fn store_each(
        &self,
        arrival: &Arrival<'_>,
        judged: &[JudgedLine],
        refused: &mut Vec<RefusedLine>,
        messages: &Messages,
    ) -> Result<(Vec<CallUuid>, HubPosition), Error> {
        let mut taken = Vec::with_capacity(judged.len());
        for line in judged {
            let call = std::slice::from_ref(line);
            match self.store(arrival, call, &[], messages).await {
                Ok((uuids, _)) => taken.extend(uuids),
                Err(error) if is_of_all_calls(&error) => return Err(error),
                Err(error) => {
                    let id = Some(line.id.clone());
                    refused.push(refuse_line(line.line, id, &error.to_string()));
                }
            }
        }
        refused.sort_by_key(|line| line.line);
        let (_, position) = self.store(arrival, &[], refused, messages).await?;
        Ok((taken, position))
    }

    /// Stores a branch's report.
    ///
    /// # Errors
    /// Returns an error if the report can't be read or stored.
    pub async fn report(&self, origin: &Origin, body: &[u8]) -> Result<ReportAnswer, Refusal> {
        let report: BranchReport = serde_json::from_slice(body).map_err(Refusal::Report)?;
        let text = serde_json::to_string(&shorten(report)).map_err(Refusal::Report)?;
        let now = clock::now();
        let op = self.request(origin, 0, &[], Some(text), now);
        let done = self.spool.write(vec![op]).await?;
        let position = self.position(origin, done)?;
        Ok(ReportAnswer { position })
    }

    /// Returns a token's branch, for `callbridge check`.
    pub fn branch(&self, origin: &Origin) -> BranchAnswer {
        BranchAnswer {
            branch: origin.branch.name.clone(),
            pbxs: origin.branch.pbxs.iter().cloned().collect(),
            version: self.version.to_owned(),
            time_ms: clock::now().wall.micros() / 1000,
        }
    }

    fn request(
        &self,
        origin: &Origin,
        calls: usize,
        refused: &[RefusedLine],
        report: Option<String>,
        now: Now,
    ) -> Op {
        let refusal = refused.last().map(|line| match &line.id {
            Some(id) => format!("{id}: {}", line.error),
            None => line.error.clone(),
        });
        Op::BranchRequest(Box::new(BranchRequest {
            branch: origin.branch.name.clone(),
            sender: origin.sender.clone(),
            seen: origin.seen.clone(),
            next_incarnation: new_id(),
            silence: Silence {
                boot_id: clock::boot_id().unwrap_or_default(),
                until: now.boot + self.silence,
                why: SilenceReason::LostCommits,
            },
            calls: calls as u64,
            refused: refused.len() as u64,
            refusal,
            report,
            at: now.wall,
        }))
    }

    fn position(&self, origin: &Origin, done: Vec<Done>) -> Result<HubPosition, Error> {
        let Some(Done::Hub(HubAnswer {
            position,
            lost_commits,
        })) = done.into_iter().next()
        else {
            return Err(Error::NoHub);
        };
        if lost_commits {
            tracing::error!(
                branch = origin.branch.name,
                incarnation = position.incarnation,
                silence_sec = self.silence.as_secs(),
                "this state has lost commits: began a new incarnation"
            );
        }
        Ok(position)
    }
}

/// The rules and lists used to judge a body's calls.
struct Judging {
    rules: Rules,
    people: Arc<People>,
    branch: Arc<KnownBranch>,
    from_collector: bool,
    now: Now,
}

impl Judging {
    fn judge_all(&self, lines: Lines) -> (Vec<JudgedLine>, Vec<RefusedLine>) {
        // The database may be far away, so it's queried for all calls at once.
        let phones = lines.calls.iter().filter_map(|line| {
            let reported = &line.call;
            phone_to_look_up(&reported.call, &reported.pbx, &self.rules)
        });
        let people = self.people.with_leads_of(phones.collect());
        let mut judged = Vec::with_capacity(lines.calls.len());
        let mut refused_lines = lines.refused;
        for CallLine {
            line,
            bytes,
            call: reported,
        } in lines.calls
        {
            let id = reported.call.linkedid.as_str().to_owned();
            if !self.branch.pbxs.contains(&reported.pbx) {
                let error = foreign_pbx_message(&reported.pbx, &self.branch.name);
                refused_lines.push(refuse_line(line, Some(id), &error));
                continue;
            }
            let uuid = figures::uuid(&reported.pbx, &reported.call.linkedid);
            let mut call = reported.call;
            call.live = self.now.wall.since(call.ended) <= LIVE_WITHIN;
            let verdict = judge(&call, &reported.pbx, &self.rules, &people, self.now.wall);
            let mut finished = Finished::new(verdict, call);
            finished.branch = Some(self.branch.name.clone());
            finished.from_collector = self.from_collector;
            judged.push(JudgedLine {
                line,
                bytes,
                id,
                uuid,
                finished,
            });
        }
        (judged, refused_lines)
    }
}

/// Returns `true` if the error isn't caused by an individual call.
fn is_of_all_calls(error: &Error) -> bool {
    let is_of_branch = matches!(error, Error::NoBranch(_) | Error::NoHub | Error::NewCalls);
    error.is_retryable() || is_of_branch || *error == Error::Closed
}

/// Cuts a report's lists and texts to their limits, because the report is stored and shown.
fn shorten(mut report: BranchReport) -> BranchReport {
    report.sources.truncate(LISTED_MAX);
    report.problems.truncate(LISTED_MAX);
    cut(&mut report.version);
    for source in &mut report.sources {
        cut(&mut source.name);
        cut(&mut source.pbx);
        if let Some(reason) = &mut source.reason {
            cut(reason);
        }
    }
    for problem in &mut report.problems {
        cut(problem);
    }
    report
}

fn cut(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS) {
        text.truncate(end);
    }
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
