//! Responds to each of the page's queries using the component of the daemon that knows the answer.
//!
//! | module | what it contains |
//! | `calls` | stored calls, a single call, open calls |
//! | `figures` | the outcomes of a day's and a week's calls |
//! | `figures` | outcomes of the calls of a day and a week |
//! | `trial` | runs `check` from the page |

mod calls;
mod figures;
mod trial;

use super::CHECK_EVERY;
use crate::daemon::observer::Observer;
use async_trait::async_trait;
use callbridge_admin::{CommandHandler, LetterChange, LetterOutcome, Refusal};
use callbridge_call::Direction;
use callbridge_crm::FieldNames;
use callbridge_intake::Settings as IntakeSettings;
use callbridge_model::{LeadId, Reason, Status, TypedNumber, Zone, clock, status::TrunkStatus};
use callbridge_page::backend::{
    Answer, Backend, CallPage, CallQuery, CallView, CauseGroup, CheckFinding, EmployeeTable,
    Figures, LetterPage, LetterQuery, OpenCallView, Profiles, WaitingCustomer,
};
use callbridge_spool::{self as spool, CallFilter, LeadByHand, Letter, LetterFilter, Listed};
use callbridge_spool::{
    Place, RowId, State, Store, WaitingPhone, employee_work::employee_work, tables,
};
use figures::Week;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// The key under which the spool keeps the sessions.
const SESSIONS: &str = "page.sessions";
/// Number of dead letters on one page of the list.
const LETTERS_PAGE: usize = 50;
/// Maximum number of dead letter pages to read in order to fill one page, if only one cause is
/// wanted.
const LETTER_WALKS_MAX: usize = 100;
/// Number of dead letter pages that are grouped by cause.
const GROUPED_PAGES: usize = 5;
/// Number of dead letters to read at a time for their IDs.
const IDS_PAGE: usize = 1_000;
/// Number of phone numbers to read at a time.
const PHONES_PAGE: usize = 500;
/// Maximum number of phone numbers to show. Those with the most calls come first.
const PHONES_MAX: usize = 2_000;
/// Maximum number of calls with a customer to check for callback attempts.
const CALLS_MAX: usize = 100;
/// Number of leads whose profiles are read at once.
const PROFILES_AT_ONCE: usize = 50;

/// The page's access to the daemon.
pub(crate) struct DaemonBackend {
    pub(in crate::daemon) observer: Arc<Observer>,
    pub(in crate::daemon) handler: Arc<CommandHandler>,
    pub(in crate::daemon) intake: IntakeSettings,
    /// The PBX's time zone, or this machine's if no flag specifies one.
    pub(in crate::daemon) zone: Zone,
    /// The names of request fields, for the body shown on a call's page.
    pub(in crate::daemon) fields: FieldNames,
    pub(in crate::daemon) week: Mutex<Week>,
    pub(in crate::daemon) changes: watch::Sender<u64>,
}

impl DaemonBackend {
    /// Reads from the spool. A failure becomes a refusal.
    async fn read<R: Send + 'static>(
        &self,
        query: impl FnOnce(&Store) -> Result<R, spool::Error> + Send + 'static,
    ) -> Result<R, Refusal> {
        Ok(self.handler.spool.read(query).await?)
    }

    /// Returns up to `most` calls from `before` on, newest first, and where the next ones start.
    /// Since matches may be rare, this reads up to `pages` pages of the spool.
    async fn list_calls(
        &self,
        filter: &CallFilter,
        mut before: Place,
        (most, pages): (usize, usize),
    ) -> Result<(Vec<Listed>, Option<Place>), Refusal> {
        let mut all = Vec::new();
        let mut next = None;
        for _ in 0..pages {
            let of = filter.clone();
            let room = most - all.len();
            let read = self.read(move |db| tables::listed::list_calls_back(db, &of, before, room));
            let (found, behind) = read.await?;
            all.extend(found);
            next = behind;
            match next {
                Some(place) if all.len() < most => before = place,
                Some(_) | None => break,
            }
        }
        Ok((all, next))
    }

    /// Passes dead letters to `take` page by page, newest first, for as long as that returns
    /// `true`. If there may be more, returns the ID of the last dead letter. Each page is a
    /// separate read, so that writes can run in between.
    async fn walk(
        &self,
        mut filter: LetterFilter,
        pages_max: usize,
        mut take: impl FnMut(Vec<Letter>) -> bool,
    ) -> Result<Option<RowId>, Refusal> {
        for _ in 0..pages_max {
            let of = filter.clone();
            let read = self.read(move |store| tables::letters::letters(store, &of));
            let page = read.await?;
            let is_full = page.len() == filter.limit;
            let last = page.last().map(|letter| letter.id);
            let wants_more = take(page);
            match last {
                Some(last) if is_full => filter.before = Some(last),
                Some(_) | None => return Ok(None),
            }
            if !wants_more {
                break;
            }
        }
        Ok(filter.before)
    }

    /// Increments `changes` when a call or a source's state has changed, provided that a browser is
    /// showing the page.
    pub(crate) async fn watch_changes(self: Arc<Self>) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        let mut last = None;
        loop {
            ticks.tick().await;
            // The page itself holds one receiver, and each live view another one.
            if self.changes.receiver_count() <= 1 {
                continue;
            }
            let read = self.handler.spool.read(|store| {
                let open = tables::resume::open_call_count(store)?;
                Ok((store.moves_so_far(), store.letters_so_far(), open))
            });
            let Ok(moves) = read.await else { continue };
            let used = self.observer.outward.sender.borrow().requests.clone();
            let sources = self.observer.sources.borrow().clone();
            let states: Vec<_> = sources.iter().map(|source| source.state).collect();
            let now = Some((moves, used, states));
            if now != last {
                last = now;
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }
}

fn letter_filter(query: &LetterQuery, limit: usize) -> Result<LetterFilter, Refusal> {
    let mut filter = LetterFilter {
        before: Some(query.before.unwrap_or(RowId(i64::MAX))),
        limit,
        state: Some(State::Dead),
        ..LetterFilter::default()
    };
    if let Some(word) = &query.reason {
        let Some(reason) = Reason::from_word(word) else {
            let message = format!("`{word}` is not a reason of a dead letter");
            return Err(Refusal::usage(message));
        };
        filter.reason = Some(reason);
    }
    Ok(filter)
}

fn is_unanswered_callback(call: &Listed) -> bool {
    call.record.direction == Direction::Outbound && !call.record.answered
}

#[async_trait]
impl Backend for DaemonBackend {
    async fn status(&self) -> Answer<Status> {
        Ok(self.observer.status().await?)
    }

    async fn today(&self) -> Answer<Figures> {
        self.figures().await
    }

    async fn under_way(&self) -> Answer<Vec<OpenCallView>> {
        self.open_calls().await
    }

    async fn calls(&self, query: CallQuery) -> Answer<CallPage> {
        self.call_page(query).await
    }

    async fn call(&self, uuid: String) -> Answer<Option<CallView>> {
        self.one_call(uuid).await
    }

    async fn letters(&self, query: LetterQuery) -> Answer<LetterPage> {
        let filter = letter_filter(&query, LETTERS_PAGE)?;
        let mut letters = Vec::new();
        let walk = self.walk(filter, LETTER_WALKS_MAX, |page| {
            letters.extend(page.into_iter().filter(|letter| query.takes_cause(letter)));
            letters.len() < LETTERS_PAGE
        });
        let mut next = walk.await?;
        // The next page starts after the last dead letter shown.
        if letters.len() > LETTERS_PAGE {
            letters.truncate(LETTERS_PAGE);
            next = letters.last().map(|letter| letter.id);
        }
        let reasons = self.handler.spool.read(tables::letters::dead_by_reason);
        Ok(LetterPage {
            letters,
            next,
            reasons: reasons.await?,
        })
    }

    async fn causes(&self) -> Answer<Vec<CauseGroup>> {
        let filter = letter_filter(&LetterQuery::default(), IDS_PAGE)?;
        let mut newest = Vec::new();
        let walk = self.walk(filter, GROUPED_PAGES, |page| {
            newest.extend(page);
            true
        });
        walk.await?;
        Ok(CauseGroup::from_letters(newest.iter()))
    }

    async fn letter_ids(&self, query: LetterQuery) -> Answer<Vec<RowId>> {
        let filter = letter_filter(&query, IDS_PAGE)?;
        let mut ids = Vec::new();
        let walk = self.walk(filter, usize::MAX, |page| {
            let wanted = page.iter().filter(|letter| query.takes_cause(letter));
            ids.extend(wanted.map(|letter| letter.id));
            true
        });
        walk.await?;
        Ok(ids)
    }

    async fn act(
        &self,
        change: LetterChange,
        ids: &[RowId],
        who: &str,
    ) -> Answer<Vec<LetterOutcome>> {
        self.handler.change_letters(ids, change, who).await
    }

    async fn numbers(&self) -> Answer<Vec<WaitingPhone>> {
        let mut all: Vec<WaitingPhone> = Vec::new();
        loop {
            let after = all.last().map(|last| last.phone.clone());
            let read = self.read(move |store| {
                tables::waiting::waiting_phones(store, after.as_ref(), PHONES_PAGE)
            });
            let page = read.await?;
            let end = page.len() < PHONES_PAGE;
            all.extend(page);
            if end {
                break;
            }
        }
        all.sort_by_key(|phone| (std::cmp::Reverse(phone.calls), phone.first));
        all.truncate(PHONES_MAX);
        Ok(all)
    }

    async fn is_unknown_lead(&self, lead: LeadId) -> Answer<bool> {
        self.handler.is_unknown_lead(lead).await
    }

    async fn give_lead(&self, phone: &str, lead: LeadId, who: &str) -> Answer<(u64, Vec<RowId>)> {
        let (given, left) = self.handler.give_lead(phone, lead, who).await?;
        let (dead, _) = self.handler.refused_calls(given.phone).await?;
        Ok((left, dead))
    }

    async fn take_lead(&self, phone: &str) -> Answer<()> {
        self.handler.take_lead(phone).await.map(drop)
    }

    async fn given_leads(&self) -> Answer<Vec<LeadByHand>> {
        self.handler.assigned_leads().await
    }

    async fn profiles(&self, leads: BTreeSet<LeadId>) -> Answer<Profiles> {
        let leads: Vec<LeadId> = leads.into_iter().collect();
        let mut all = Profiles::new();
        for chunk in leads.chunks(PROFILES_AT_ONCE) {
            let chunk = chunk.to_vec();
            let read = self.handler.spool.read(move |store| {
                let mut profiles = Profiles::new();
                for lead in chunk {
                    profiles.insert(lead, tables::directory::profile(store, lead)?);
                }
                Ok(profiles)
            });
            all.extend(read.await?);
        }
        Ok(all)
    }

    async fn missed(&self) -> Answer<Vec<WaitingCustomer>> {
        let mut all = Vec::new();
        for customer in self.handler.missed_customers(None).await? {
            let filter = CallFilter {
                phone: TypedNumber::read(customer.phone.as_str(), []),
                from: Some(customer.first_at.get()),
                ..CallFilter::default()
            };
            // Each customer is a separate read, so that writes can run in between.
            let of_customer = self.list_calls(&filter, Place::END, (CALLS_MAX, 1));
            let (calls, _) = of_customer.await?;
            let tries: Vec<&Listed> = calls
                .iter()
                .filter(|call| is_unanswered_callback(call))
                .collect();
            all.push(WaitingCustomer {
                customer,
                tried: tries.len() as u64,
                tried_at: tries.first().map(|call| call.record.started_at.get()),
            });
        }
        Ok(all)
    }

    async fn missed_count(&self) -> Answer<u64> {
        let missed = self.read(|store| tables::missed::missed_by_trunk(store));
        Ok(missed.await?.into_iter().map(|(_, count)| count).sum())
    }

    async fn employees(&self, days: i64) -> Answer<EmployeeTable> {
        let now = clock::now().wall;
        let from = self.day_begun(now, days - 1);
        let until = now.floor_seconds().get() + 1;
        Ok(employee_work(&self.handler.spool, from, until).await?.work)
    }

    async fn trunks(&self) -> Answer<Vec<TrunkStatus>> {
        let today = self.day_begun(clock::now().wall, 0);
        let read = self.read(move |store| tables::trunk_calls::trunk_calls(store, today));
        let calls = read.await?;
        let (shown, _) = self.observer.trunks.statuses(&calls, &[]);
        Ok(shown)
    }

    async fn check(&self) -> Answer<Vec<CheckFinding>> {
        trial::run_check().await
    }

    async fn kept_sessions(&self) -> Answer<Option<String>> {
        Ok(self.handler.spool.meta(SESSIONS).await?)
    }

    async fn keep_sessions(&self, sessions: String) -> Answer<()> {
        Ok(self.handler.spool.keep_meta(SESSIONS, sessions).await?)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn pbx(&self) -> String {
        let sources = self.observer.sources.borrow();
        let pbxs = sources.iter().map(|source| source.pbx.as_str());
        let named: BTreeSet<&str> = pbxs.filter(|pbx| !pbx.is_empty()).collect();
        Vec::from_iter(named).join(", ")
    }
}
