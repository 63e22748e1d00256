//! Answers the requests of commands. It runs in the daemon with its flags and lists, or in the
//! command itself over the same spool if no daemon runs.

use super::protocol::{ControlReply, ControlRequest, PageRole};
use super::refusal::Refusal;
use super::socket::AnswerRequest;
use crate::dead_letters::{Letters, Selection, plan_retry};
use callbridge_call::Direction;
use callbridge_hub::token::BranchTable;
use callbridge_intake::read_again::FilesAgain;
use callbridge_mapping::{People, RetryValues, Rules};
use callbridge_model::{CallUuid, Code, EmployeeId, LeadId, Reason, Status, clock};
use callbridge_sender::CrmProxy;
use callbridge_spool::{Error, Handle, Letter, Op, RowId, Step, tables};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::mpsc;

pub mod audit;
mod branches;
mod calls;
mod lead_set;
mod leads;
mod read_again;

/// Dead letters and waiting calls that `dead watch` reads at a time.
const WATCH_PAGE: usize = 100;
/// The error of `dead watch` if dead letters appeared faster than they were read.
const TOO_MANY: &str =
    "too many new dead letters to list: see `callbridge dead list`, then watch again";

/// A function that returns the [`Status`]. The daemon sets it, or a command that opened the spool
/// directly.
pub type StatusOf =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Status, Error>> + Send>> + Send + Sync>;

/// A function that makes a one-time link to the administrator's page for a user name and a role.
/// Returns `None` if the system provides no random bytes.
pub type PageDoor = Arc<dyn Fn(&str, PageRole) -> Option<String> + Send + Sync>;

/// The state, flags and connections that are needed to answer commands.
pub struct CommandHandler {
    pub spool: Handle,
    /// The mapping rules from the daemon's flags. They have no trunks if no daemon runs.
    pub rules: Rules,
    /// The current lists of leads and employees. A reload replaces them.
    pub people: Arc<RwLock<Arc<People>>>,
    /// Sends requests to the CRM within the daemon's budget. `None` without a daemon or a CRM.
    pub asking: Option<CrmProxy>,
    /// The time zone of the PBX, if known.
    pub zone: Option<String>,
    /// The value of `--field-list-wrapper`: the key under which the CRM expects the items of
    /// `lead set`.
    pub field_list_wrapper: Option<String>,
    /// Returns the status for [`ControlRequest::Status`].
    pub status: StatusOf,
    /// Makes links to the page. `None` without a page.
    pub page: Option<PageDoor>,
    /// The branches whose tokens the listener knows. `None` without `--collect`.
    pub branches: Option<Arc<BranchTable>>,
    /// Handles that make a source read files of a folder again, by the source's URL. Empty if no
    /// daemon runs.
    pub files_again: BTreeMap<String, FilesAgain>,
}

/// Why an answer ends early.
enum Stop {
    /// The client has closed the connection.
    Gone,
    Refused(Refusal),
}

impl<E: Into<Refusal>> From<E> for Stop {
    fn from(refusal: E) -> Self {
        Self::Refused(refusal.into())
    }
}

/// The result of an answer: complete, or the reason why it ended early.
type Answered = Result<(), Stop>;

/// A person's change to dead letters or waiting calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterChange {
    /// Sends the calls again. With `dry_run`, only reports what would be sent.
    Retry {
        /// The values that a person chose. They replace the values that the mapping rules return.
        wish: RetryValues,
        /// `true` if nothing is sent or stored.
        dry_run: bool,
    },
    /// Discards the calls permanently.
    Discard,
}

/// The result for one dead letter or waiting call, as in `dead retry --json`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterOutcome {
    pub id: RowId,
    uuid: Option<CallUuid>,
    linkedid: Option<String>,
    reason: Reason,
    /// The outcome as a word: `ready`, `looked_for`, `would_send`, `dead`, `counted`, `known` (the
    /// call was stored before), `discarded`, or `refused`.
    pub result: &'static str,
    /// Why the change was refused, or a note on the values that are sent.
    pub message: Option<String>,
    /// The lead with which the call is or would be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead_id: Option<Option<LeadId>>,
    /// The employee with whom the call is or would be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub employee_id: Option<Option<EmployeeId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    talk_time_sec: Option<u32>,
    /// The direction, if a person set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<Direction>,
}

impl LetterOutcome {
    /// Makes the outcome `result` for this dead letter, without the values to send.
    pub fn from_letter(letter: &Letter, result: &'static str, message: Option<String>) -> Self {
        Self {
            id: letter.id,
            uuid: letter.uuid,
            linkedid: letter.linkedid().map(str::to_owned),
            reason: letter.reason,
            result,
            message,
            lead_id: None,
            employee_id: None,
            answered: None,
            talk_time_sec: None,
            direction: None,
        }
    }

    fn refusal(letter: &Letter, why: String) -> Self {
        Self::from_letter(letter, "refused", Some(why))
    }
}

/// The future that sends all replies to a request.
type Saying<'a> = Pin<Box<dyn Future<Output = Answered> + Send + 'a>>;

/// Sends the replies to the client.
struct ReplySender {
    to: mpsc::Sender<ControlReply>,
    /// The person who made the request: the user name on the page, or the Unix user at the socket.
    who: String,
    said: u64,
}

impl ReplySender {
    async fn item(&mut self, item: impl Serialize) -> Answered {
        self.said += 1;
        self.reply(ControlReply::Item(json!(item))).await
    }

    async fn items<T: Serialize>(&mut self, items: impl IntoIterator<Item = T>) -> Answered {
        for item in items {
            self.item(item).await?;
        }
        Ok(())
    }

    async fn reply(&self, reply: ControlReply) -> Answered {
        self.to.send(reply).await.map_err(|_| Stop::Gone)
    }
}

impl AnswerRequest for CommandHandler {
    async fn answer(&self, ask: ControlRequest, who: &str, to: mpsc::Sender<ControlReply>) {
        let mut line = ReplySender {
            to: to.clone(),
            who: who.to_owned(),
            said: 0,
        };
        if let Some(zone) = &self.zone {
            // The client may have disconnected, which the next reply detects.
            let _ = to.send(ControlReply::Zone(zone.clone())).await;
        }
        let last = match self.answer_request(ask, &mut line).await {
            Ok(()) => ControlReply::End { count: line.said },
            Err(Stop::Refused(Refusal { code, message })) => ControlReply::Error { code, message },
            Err(Stop::Gone) => return,
        };
        // The client may have disconnected meanwhile.
        let _ = to.send(last).await;
    }
}

impl CommandHandler {
    /// Answers a request. The future is boxed here, so crates that wait for an answer do not each
    /// contain all of its code.
    #[inline(never)]
    fn answer_request<'a>(&'a self, ask: ControlRequest, line: &'a mut ReplySender) -> Saying<'a> {
        Box::pin(self.dispatch(ask, line))
    }

    async fn dispatch(&self, ask: ControlRequest, line: &mut ReplySender) -> Answered {
        match ask {
            ControlRequest::Status => line.item((self.status)().await?).await,
            ControlRequest::Letters { which, whole } => self.letters(&which, whole, line).await,
            ControlRequest::Watch => self.watch(line).await,
            ControlRequest::Retry {
                which,
                wish,
                dry_run,
                several_numbers,
            } => {
                if let Some(lead) = wish.lead.filter(|_| !dry_run && !several_numbers) {
                    self.refuse_several_numbers(&which, lead).await?;
                }
                let change = LetterChange::Retry { wish, dry_run };
                self.change(&which, change, line).await
            }
            ControlRequest::Discard { which } => {
                self.change(&which, LetterChange::Discard, line).await
            }
            ControlRequest::LeadMissing => self.lead_missing(line).await,
            ControlRequest::LeadGive { phone, lead, yes } => {
                self.lead_give(&phone, lead, yes, line).await
            }
            ControlRequest::LeadTake { phone } => line.item(self.take_lead(&phone).await?).await,
            ControlRequest::LeadGiven => line.items(self.assigned_leads().await?).await,
            ControlRequest::Missed { within_sec } => {
                line.items(self.missed_customers(within_sec).await?).await
            }
            ControlRequest::Branches => line.items(self.branches().await?).await,
            ControlRequest::BranchAdd { branch, pbxs, hash } => {
                line.item(self.add_branch(&branch, pbxs, hash).await?).await
            }
            ControlRequest::BranchRotate { branch, now } => {
                line.item(self.rotate_branch(&branch, now).await?).await
            }
            ControlRequest::BranchRemove { branch } => {
                line.item(self.remove_branch(&branch).await?).await
            }
            ControlRequest::Resume => line.item(self.resume_sending().await?).await,
            ControlRequest::LeadList => self.lead_list(line).await,
            ControlRequest::LeadSet { lead, items } => self.lead_set(lead, &items, line).await,
            ControlRequest::LeadCheck { phone } => self.lead_check(&phone, line).await,
            ControlRequest::PageLink { role } => {
                let url = self.page_link(&line.who, role)?;
                line.item(json!({"url": url})).await
            }
            ControlRequest::Audit { calls } => self.fates(calls, line).await,
            // Each item has the values that the CRM's journal should show. It is null if the call
            // is not journaled in this state.
            ControlRequest::Journaled { calls } => {
                let read = self
                    .spool
                    .read(move |store| tables::audited::journaled(store, &calls));
                line.items(read.await?).await
            }
            ControlRequest::JournalPage(query) => self.journal_page(query, line).await,
            ControlRequest::TakeIn { pbx, call, lost } => {
                self.take_in(&pbx, *call, lost, line).await
            }
            ControlRequest::Audited {
                unexplained,
                different,
            } => self.keep_audit_counts(unexplained, different).await,
            ControlRequest::Call { id } => self.call(&id, line).await,
            ControlRequest::Calls {
                which,
                past,
                follow,
            } => self.calls(&which, past, follow, line).await,
        }
    }

    /// Makes a one-time link to the administrator's page.
    fn page_link(&self, who: &str, role: PageRole) -> Result<String, Refusal> {
        let code = Code::Unreachable.number();
        let Some(door) = &self.page else {
            let message = "the daemon shows no page: start it with --page 127.0.0.1:9470";
            return Err(Refusal::new(code, message));
        };
        let message = "the operating system returned no random bytes";
        door(who, role).ok_or_else(|| Refusal::new(code, message))
    }

    fn people(&self) -> Arc<People> {
        Arc::clone(&self.people.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn letters(&self, which: &Selection, whole: bool, line: &mut ReplySender) -> Answered {
        let mut letters = Letters::from_selection(which)?;
        let mut found = 0;
        loop {
            let page = letters.next(&self.spool).await?;
            if page.is_empty() {
                return Ok(missing_ids(&which.ids, found)?);
            }
            found += page.len();
            for mut letter in page {
                if whole && letter.bytes.is_some() {
                    let id = letter.id;
                    let read = self
                        .spool
                        .read(move |store| tables::letters::letter(store, id));
                    // If the dead letter was discarded after the list was read, the listed values
                    // are sent.
                    letter = read.await?.unwrap_or(letter);
                }
                line.item(letter.to_json()).await?;
            }
        }
    }

    /// Sends each new dead letter and waiting call once. A call that becomes a dead letter again is
    /// sent again.
    async fn watch(&self, line: &mut ReplySender) -> Answered {
        let seen = self.spool.read(|store| Ok(store.letters_so_far())).await?;
        line.reply(ControlReply::Ready).await?;
        calls::follow(
            &self.spool,
            seen,
            |store, seen| tables::letters::letters_since(store, seen, WATCH_PAGE),
            |letter: Letter| Some(letter.to_json()),
            TOO_MANY,
            line,
        )
        .await
    }

    async fn change(
        &self,
        which: &Selection,
        change: LetterChange,
        line: &mut ReplySender,
    ) -> Answered {
        if which.is_empty() {
            let message = "name the dead letters: give ids, --reason REASON, or --all";
            return Err(Refusal::usage(message).into());
        }
        let mut letters = Letters::from_selection(which)?;
        let mut found = 0;
        loop {
            let page = self.change_next(&mut letters, change, &line.who).await?;
            if page.is_empty() {
                return Ok(missing_ids(&which.ids, found)?);
            }
            found += page.len();
            for outcome in page {
                line.item(outcome?).await?;
            }
        }
    }

    /// Refuses to give one lead to the calls of several numbers, which are rarely one customer's.
    async fn refuse_several_numbers(&self, which: &Selection, lead: LeadId) -> Result<(), Refusal> {
        let mut letters = Letters::from_selection(which)?;
        let mut numbers = BTreeSet::new();
        let mut calls = 0;
        loop {
            let page = letters.next(&self.spool).await?;
            if page.is_empty() {
                break;
            }
            let called = page.into_iter().filter_map(|letter| letter.call);
            for call in called {
                numbers.insert(call.client_phone);
                calls += 1;
            }
        }
        if numbers.len() < 2 {
            return Ok(());
        }
        let count = numbers.len();
        Err(Refusal::usage(format!(
            "--lead {lead} would log {calls} calls with {count} different numbers on one lead, so \
             nothing was sent: select the calls of one number by their ids, or add --yes if all of \
             them belong to this lead"
        )))
    }

    /// Changes the dead letters and waiting calls with these ids. The ids must fit on one page of
    /// [`Letters`]. `who` is stored as the person who made the change.
    ///
    /// # Errors
    /// If the spool fails, or an id is unknown. The calls of the other ids are changed even then.
    pub async fn change_letters(
        &self,
        ids: &[RowId],
        change: LetterChange,
        who: &str,
    ) -> Result<Vec<LetterOutcome>, Refusal> {
        let mut letters = Letters::new(Some(ids.to_vec()), None, None);
        let page = self.change_next(&mut letters, change, who).await?;
        missing_ids(ids, page.len())?;
        Ok(page.into_iter().collect::<Result<_, _>>()?)
    }

    /// Changes the calls on the next page of `letters`, and returns one outcome per call. The
    /// result is empty after the last page.
    async fn change_next(
        &self,
        letters: &mut Letters,
        change: LetterChange,
        who: &str,
    ) -> Result<Vec<Result<LetterOutcome, Error>>, Error> {
        let page = letters.next(&self.spool).await?;
        let changes = page.iter().map(async |letter| match change {
            LetterChange::Retry { wish, dry_run } => {
                self.retry_one(letter, wish, dry_run, who).await
            }
            LetterChange::Discard => self.discard_one(letter, who).await,
        });
        Ok(join_all(changes).await)
    }

    async fn discard_one(&self, letter: &Letter, who: &str) -> Result<LetterOutcome, Error> {
        let at = clock::now().wall;
        let op = Op::step(letter.id, Step::Discard, at);
        let act = Op::action(letter.id, who, "discard", at);
        let (result, why) = match self.spool.write(vec![act, op]).await {
            Ok(_) => ("discarded", None),
            Err(error @ Error::Refused { .. }) => ("refused", Some(error.to_string())),
            Err(error) => return Err(error),
        };
        Ok(LetterOutcome::from_letter(letter, result, why))
    }

    async fn retry_one(
        &self,
        letter: &Letter,
        wish: RetryValues,
        dry_run: bool,
        who: &str,
    ) -> Result<LetterOutcome, Error> {
        if let Some(file) = read_again::record_file(letter) {
            return match self.read_file_again(letter, file, dry_run).await? {
                Ok(()) => {
                    let result = if dry_run { "would_send" } else { "ready" };
                    let why = format!("the file is read again: {file}");
                    Ok(LetterOutcome::from_letter(letter, result, Some(why)))
                }
                Err(why) => Ok(LetterOutcome::refusal(letter, why)),
            };
        }
        if letter.reason == Reason::Unreadable {
            return match self.read_again(letter.id, dry_run, who).await? {
                Ok(result) => Ok(LetterOutcome::from_letter(letter, result, None)),
                Err(why) => Ok(LetterOutcome::refusal(letter, why)),
            };
        }
        let id = letter.id;
        let read = self.spool.read(move |store| tables::calls::row(store, id));
        let Some(row) = read.await? else {
            return Ok(LetterOutcome::refusal(letter, "it is gone".to_owned()));
        };
        let now = clock::now().wall;
        let step = match plan_retry(&row, wish, &self.rules, &self.people(), now) {
            Ok(step) => step,
            Err(why) => return Ok(LetterOutcome::refusal(letter, why)),
        };
        let (record, then, why) = match &step {
            Step::Recheck { record, before } => {
                let why = format!(
                    "it may be in the journal with {before}: it is sent if the journal does not \
                     show it"
                );
                (record, "looked_for", Some(why))
            }
            Step::Retry { record, .. } => (record, "ready", None),
            other => {
                let why = format!("{} is not a way to send it", other.name());
                return Ok(LetterOutcome::refusal(letter, why));
            }
        };
        let given = wish.said.unwrap_or_default();
        let mut outcome = LetterOutcome {
            lead_id: Some(record.lead_id),
            employee_id: Some(record.employee_id),
            direction: given.direction,
            ..LetterOutcome::from_letter(letter, if dry_run { "would_send" } else { then }, why)
        };
        if given.answered.is_some() || given.talk_sec.is_some() {
            outcome.answered = Some(record.answered);
            outcome.talk_time_sec = Some(record.talk_time_sec);
        }
        if dry_run {
            return Ok(outcome);
        }
        let op = Op::step(id, step, now);
        let act = Op::action(id, who, wish.text(), now);
        match self.spool.write(vec![act, op]).await {
            Ok(_) => Ok(outcome),
            Err(error @ (Error::Refused { .. } | Error::UuidTaken { .. })) => {
                Ok(LetterOutcome::refusal(letter, error.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns an error if fewer dead letters were `found` than there are different `ids`.
fn missing_ids<T: Ord>(ids: &[T], found: usize) -> Result<(), Refusal> {
    let all = BTreeSet::from_iter(ids).len();
    let ids = match (all, all.saturating_sub(found)) {
        (_, 0) => return Ok(()),
        (1, _) => "no dead letter has this id".to_owned(),
        (_, missing) => format!("{missing} of the {all} ids belong to no dead letter"),
    };
    let message = format!("{ids}: `callbridge dead list` lists all dead letters");
    Err(Refusal::new(65, message))
}
