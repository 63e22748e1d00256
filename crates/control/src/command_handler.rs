//! Answers what commands ask: inside the daemon with its flags and people, or in the command
//! itself, over the same spool, when no daemon runs.

use super::lead_set::{LeadSet, LeadSetRefusal};
use super::page_door::PageDoor;
use super::protocol::{ControlReply, ControlRequest};
use super::socket::AnswerRequest;
use callbridge_broker::again::{self, ForwardAgain};
use callbridge_call::EventTime;
use callbridge_dead_letter::retry;
use callbridge_dead_letter::retry::Asked;
use callbridge_dead_letter::select::Letters;
use callbridge_dead_letter::select::Selection;
use callbridge_intake::owners::Owners;
use callbridge_mapping::journal::Rules;
use callbridge_mapping::people::People;
use callbridge_model::Reason;
use callbridge_model::Status;
use callbridge_model::clock;
use callbridge_model::exit::Code;
use callbridge_sender::CrmProxy;
use callbridge_spool::{Act, Error, Handle, Letter, Op, Step, Store, tables};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use tokio::sync::mpsc;

pub mod audit;
mod calls;
mod follow;
mod leads;
mod read_again;

/// Letters that `dead watch` reads at a time.
const WATCH_PAGE: usize = 100;
/// What it says when it was told of them too slowly.
const TOO_MANY: &str =
    "more letters came than were read: see `callbridge dead list`, then watch again";

/// Says how everything stands.
pub type StatusOf =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Status, Error>> + Send>> + Send + Sync>;

/// What is needed to answer.
pub struct CommandHandler {
    /// What is stored.
    pub spool: Handle,
    /// The daemon's flags; without trunks when no daemon runs.
    pub rules: Rules,
    /// The lists in force.
    pub people: Arc<RwLock<Arc<People>>>,
    /// Asks something of the CRM through the daemon's budget; `None` without daemon or CRM.
    pub asking: Option<CrmProxy>,
    /// The zone of the PBX, where one is given.
    pub zone: Option<String>,
    /// `--field-list-wrapper`
    pub field_list_wrapper: Option<String>,
    /// Says how everything stands.
    pub status: StatusOf,
    /// The way to the page; `None` without one.
    pub page: Option<PageDoor>,
    /// Whose the PBXs are that messages tell of; empty when no daemon runs.
    pub owners: Owners,
}

/// Nobody listens any more.
struct Gone;

/// Why an answer ends early.
enum Stop {
    Gone,
    Error { code: u8, words: String },
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error {
            code: error.exit_code(),
            words: error.to_string(),
        }
    }
}

impl From<LeadSetRefusal> for Stop {
    fn from(refusal: LeadSetRefusal) -> Self {
        let LeadSetRefusal { code, words } = refusal;
        Self::Error { code, words }
    }
}

impl From<callbridge_dead_letter::select::Fault> for Stop {
    fn from(fault: callbridge_dead_letter::select::Fault) -> Self {
        Self::Error {
            code: 64,
            words: fault.to_string(),
        }
    }
}

/// All that a question is told.
type Saying<'a> = Pin<Box<dyn Future<Output = Result<(), Stop>> + Send + 'a>>;

/// The way to whoever asked.
struct ReplySender {
    to: mpsc::Sender<ControlReply>,
    /// Whoever asked: the name at the page, or the Unix user at the socket.
    who: String,
    said: u64,
}

impl ReplySender {
    async fn item(&mut self, item: Value) -> Result<(), Gone> {
        self.said += 1;
        self.to
            .send(ControlReply::Item(item))
            .await
            .map_err(|_| Gone)
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
            // Whoever asked may have gone already, which the next reply finds.
            let _ = to.send(ControlReply::Zone(zone.clone())).await;
        }
        let last = match self.say(ask, &mut line).await {
            Ok(()) => ControlReply::End { count: line.said },
            Err(Stop::Error { code, words }) => ControlReply::Error { code, words },
            Err(Stop::Gone) => return,
        };
        // Whoever asked may have gone meanwhile.
        let _ = to.send(last).await;
    }
}

impl CommandHandler {
    /// Boxed here, lest each crate that waits for an answer holds all of this once more.
    #[inline(never)]
    fn say<'a>(&'a self, ask: ControlRequest, line: &'a mut ReplySender) -> Saying<'a> {
        Box::pin(self.say_it(ask, line))
    }

    async fn say_it(&self, ask: ControlRequest, line: &mut ReplySender) -> Result<(), Stop> {
        match ask {
            ControlRequest::Status => {
                let status = (self.status)().await?;
                Ok(line.item(json!(status)).await?)
            }
            ControlRequest::Letters { which, whole } => self.letters(&which, whole, line).await,
            ControlRequest::Watch => self.watch(line).await,
            ControlRequest::Retry {
                which,
                lead,
                employee,
                said,
                dry_run,
            } => {
                let asked = Asked {
                    lead,
                    employee,
                    said,
                };
                self.retry(&which, asked, dry_run, line).await
            }
            ControlRequest::Discard { which } => self.discard(&which, line).await,
            ControlRequest::LeadMissing => self.lead_missing(line).await,
            ControlRequest::LeadGive { phone, lead } => self.lead_give(&phone, lead, line).await,
            ControlRequest::LeadTake { phone } => self.lead_take(&phone, line).await,
            ControlRequest::LeadGiven => self.lead_given(line).await,
            ControlRequest::Missed { within_sec } => self.missed(within_sec, line).await,
            ControlRequest::LeadList => self.lead_list(line).await,
            ControlRequest::LeadSet { lead, items } => {
                let wrapper = self.field_list_wrapper.as_deref();
                let set = LeadSet {
                    spool: &self.spool,
                    asking: self.asking.as_ref(),
                    wrapper,
                };
                let accepted = set.send(lead, &items).await?;
                line.item(accepted.to_json()).await?;
                let written = set.settle(accepted).await?;
                Ok(line.item(written.to_json()).await?)
            }
            ControlRequest::LeadCheck { phone } => self.lead_check(&phone, line).await,
            ControlRequest::PageLink { role } => {
                let refused = |words: &str| Stop::Error {
                    code: Code::Unreachable.number(),
                    words: words.to_owned(),
                };
                let no_page = "the daemon shows no page: start it with --page 127.0.0.1:9470";
                let door = self.page.as_ref().ok_or_else(|| refused(no_page))?;
                let link = door.link(&line.who, role);
                let url = link.ok_or_else(|| refused("the system gives no random bytes"))?;
                Ok(line.item(json!({"url": url})).await?)
            }
            ControlRequest::ForwardAgain { since } => self.forward_again(since, line).await,
            ControlRequest::FleetOwner { pbx, user } => {
                read_again::hand_over(self, &pbx, &user, line).await
            }
            ControlRequest::Audit { calls } => audit::fates(self, calls, line).await,
            ControlRequest::Journaled { calls } => audit::journaled(self, calls, line).await,
            ControlRequest::JournalPage(query) => audit::journal_page(self, query, line).await,
            ControlRequest::TakeIn { pbx, call, lost } => {
                audit::take_in(self, &pbx, *call, lost, line).await
            }
            ControlRequest::Audited { unexplained } => audit::audited(self, unexplained).await,
            ControlRequest::Call { id } => self.call(&id, line).await,
            ControlRequest::Calls {
                which,
                past,
                follow,
            } => self.calls(&which, past, follow, line).await,
        }
    }

    fn people(&self) -> Arc<People> {
        match self.people.read() {
            Ok(people) => Arc::clone(&people),
            Err(poisoned) => Arc::clone(&poisoned.into_inner()),
        }
    }

    async fn letters(
        &self,
        which: &Selection,
        whole: bool,
        line: &mut ReplySender,
    ) -> Result<(), Stop> {
        let mut letters = Letters::of(which)?;
        let mut found = 0;
        loop {
            let page = letters.next(&self.spool).await?;
            if page.is_empty() {
                break;
            }
            found += page.len();
            for letter in page {
                let cut = whole && letter.bytes.is_some();
                let id = letter.id;
                // Discarded meanwhile: then what was listed is all there is.
                let all = match cut {
                    true => {
                        self.spool
                            .read(move |store| tables::letters::letter(store, id))
                            .await?
                    }
                    false => None,
                };
                line.item(all.unwrap_or(letter).to_json()).await?;
            }
        }
        missing_ids(which, found)
    }

    /// Each letter that comes to be, also one that dies again, once.
    async fn watch(&self, line: &mut ReplySender) -> Result<(), Stop> {
        let seen = self.spool.read(|store| Ok(store.letters_so_far())).await?;
        line.to.send(ControlReply::Ready).await.map_err(|_| Gone)?;
        let page = |store: &Store, seen| {
            callbridge_spool::appeared::letters_since(store, seen, WATCH_PAGE)
        };
        let told = |letter: Letter| Some(letter.to_json());
        follow::follow(&self.spool, seen, page, told, TOO_MANY, line).await
    }

    async fn retry(
        &self,
        which: &Selection,
        asked: Asked,
        dry_run: bool,
        line: &mut ReplySender,
    ) -> Result<(), Stop> {
        let mut letters = Letters::to_change(which)?;
        let mut found = 0;
        loop {
            let page = letters.next(&self.spool).await?;
            if page.is_empty() {
                return missing_ids(which, found);
            }
            found += page.len();
            let who = line.who.as_str();
            let tries = page
                .iter()
                .map(|letter| self.retry_one(letter, asked, dry_run, who));
            for item in join_all(tries).await {
                line.item(item?).await?;
            }
        }
    }

    async fn retry_one(
        &self,
        letter: &Letter,
        asked: Asked,
        dry_run: bool,
        who: &str,
    ) -> Result<Value, Error> {
        let refused = |why: String| Ok(outcome(letter, "refused", Some(why)));
        if letter.reason == Reason::Unreadable {
            return match read_again::read_again(self, letter.id, dry_run, who).await? {
                Ok(result) => Ok(outcome(letter, result, None)),
                Err(why) => refused(why),
            };
        }
        let id = letter.id;
        let Some(row) = self
            .spool
            .read(move |store| tables::calls::row(store, id))
            .await?
        else {
            return refused("it is gone".to_owned());
        };
        let now = clock::now().wall;
        let step = match retry::plan(&row, asked, &self.rules, &self.people(), now) {
            Ok(step) => step,
            Err(why) => return refused(why),
        };
        let (record, then, why) = match &step {
            Step::Recheck { record, before } => (record, "looked_for", Some(looked_for(before))),
            Step::Retry { record } => (record, "ready", None),
            other => return refused(format!("{} is no way to send it", other.name())),
        };
        let mut item = outcome(letter, if dry_run { "would_send" } else { then }, why);
        item["leadId"] = json!(record.lead_id);
        item["employeeId"] = json!(record.employee_id);
        if asked.said.is_some() {
            item["answered"] = json!(record.answered);
            item["talkTimeSec"] = json!(record.talk_time_sec);
        }
        if dry_run {
            return Ok(item);
        }
        let op = Op::Step {
            row: id,
            step,
            at: now,
        };
        let act = act(letter, who, asked.words(), now);
        match self.spool.write(vec![act, op]).await {
            Ok(_) => Ok(item),
            Err(error @ (Error::Refused { .. } | Error::UuidTaken { .. })) => {
                refused(error.to_string())
            }
            Err(error) => Err(error),
        }
    }

    /// What was forwarded since then is published again, by the daemon, or by the next one.
    async fn forward_again(&self, since: i64, line: &mut ReplySender) -> Result<(), Stop> {
        let (since, until) = (EventTime::from_micros(since), clock::now().wall);
        again::add(&self.spool, ForwardAgain::between(since, until)).await?;
        let who = line.who.as_str();
        tracing::info!(%since, who, "what was forwarded since then is published again");
        let [since, until] = [since, until].map(|at| at.floor_seconds().get());
        Ok(line.item(json!({"since": since, "until": until})).await?)
    }

    async fn discard(&self, which: &Selection, line: &mut ReplySender) -> Result<(), Stop> {
        let mut letters = Letters::to_change(which)?;
        let mut found = 0;
        loop {
            let page = letters.next(&self.spool).await?;
            if page.is_empty() {
                return missing_ids(which, found);
            }
            found += page.len();
            let at = clock::now().wall;
            let writes = page.iter().map(|letter| {
                let op = Op::Step {
                    row: letter.id,
                    step: Step::Discard,
                    at,
                };
                let act = act(letter, &line.who, "discard".to_owned(), at);
                self.spool.write(vec![act, op])
            });
            for (letter, written) in page.iter().zip(join_all(writes).await) {
                let item = match written {
                    Ok(_) => outcome(letter, "discarded", None),
                    Err(error @ Error::Refused { .. }) => {
                        outcome(letter, "refused", Some(error.to_string()))
                    }
                    Err(error) => return Err(error.into()),
                };
                line.item(item).await?;
            }
        }
    }
}

/// Who does what with a letter.
fn act(letter: &Letter, who: &str, what: String, at: EventTime) -> Op {
    let who = who.to_owned();
    Op::Act {
        row: letter.id,
        act: Act { at, who, what },
    }
}

/// Ids that name no letter are said, after what was done with the others.
fn missing_ids(which: &Selection, found: usize) -> Result<(), Stop> {
    let unique: std::collections::BTreeSet<_> = which.ids.iter().collect();
    if unique.len() <= found {
        return Ok(());
    }
    let words = format!(
        "{} of the {} ids named no dead letter: see `callbridge dead list`",
        unique.len() - found,
        unique.len()
    );
    Err(Stop::Error { code: 65, words })
}

fn looked_for(before: &str) -> String {
    format!(
        "it may stand in the journal with {before}: it is sent when the journal does not show it"
    )
}

fn outcome(letter: &Letter, result: &str, why: Option<String>) -> Value {
    json!({
        "id": letter.id, "uuid": letter.uuid, "linkedid": letter.linkedid,
        "reason": letter.reason, "result": result, "why": why,
    })
}
