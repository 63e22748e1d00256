//! Every question of the page, handed to whoever knows the answer.
//!
//! | module | what lives there |
//! |---|---|
//! | `calls` | kept calls, one call, those that go on |
//! | `letters` | dead letters, and numbers without a lead |
//! | `people` | what employees did, what trunks took |
//! | `figures` | what became of the calls of a day and a week |
//! | `trial` | `check`, run from the page |

mod calls;
mod figures;
mod letters;
mod people;
mod trial;

use super::CHECK_EVERY;
use crate::daemon::observer::Observer;
use callbridge_admin::{CommandHandler, LetterChange, LetterOutcome, Refusal};
use callbridge_crm::FieldNames;
use callbridge_intake::Settings as IntakeSettings;
use callbridge_model::{LeadId, Status, Zone, status::TrunkStatus};
use callbridge_page::backend::{
    Answer, Backend, CallPage, CallQuery, CallView, CauseGroup, CheckFinding, EmployeeTable,
    Figures, LetterPage, LetterQuery, OpenCallView, Profiles, WaitingCustomer,
};
use callbridge_spool as spool;
use callbridge_spool::{CallFilter, LeadByHand, Listed, ParkedPhone, Place, RowId, Store, tables};
use figures::Week;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Under which name the spool keeps the sessions.
const SESSIONS: &str = "page.sessions";

/// The daemon, as the page sees it.
pub(crate) struct DaemonBackend {
    pub(in crate::daemon) observer: Arc<Observer>,
    pub(in crate::daemon) handler: Arc<CommandHandler>,
    pub(in crate::daemon) intake: IntakeSettings,
    /// The zone of the PBX, else this machine's.
    pub(in crate::daemon) zone: Zone,
    /// The names of request fields, for the body that a call's page shows.
    pub(in crate::daemon) fields: FieldNames,
    pub(in crate::daemon) week: Mutex<Week>,
    pub(in crate::daemon) changes: watch::Sender<u64>,
}

impl DaemonBackend {
    /// Reads from the spool; a failure becomes a refusal.
    async fn read<R: Send + 'static>(
        &self,
        query: impl FnOnce(&Store) -> Result<R, spool::Error> + Send + 'static,
    ) -> Result<R, Refusal> {
        Ok(self.handler.spool.read(query).await?)
    }

    /// Calls from there on backwards, newest first, and where the next ones begin. What is rare is
    /// found by going on, over that many pages of the spool.
    async fn listed(
        &self,
        filter: &CallFilter,
        mut before: Place,
        (most, pages): (usize, usize),
    ) -> Result<(Vec<Listed>, Option<Place>), Refusal> {
        let (mut all, mut next) = (Vec::new(), None);
        for _ in 0..pages {
            let (of, room) = (filter.clone(), most - all.len());
            let page = self.read(move |db| tables::listed::listed_back(db, &of, before, room));
            let (found, behind) = page.await?;
            all.extend(found);
            next = behind;
            match next.filter(|_| all.len() < most) {
                Some(place) => before = place,
                None => break,
            }
        }
        Ok((all, next))
    }

    /// Counts up when a call moved or how a source is doing changed, while somebody looks.
    pub(crate) async fn watch_changes(self: Arc<Self>) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        let mut last = None;
        loop {
            ticks.tick().await;
            // the page itself holds one, each live view another
            if self.changes.receiver_count() <= 1 {
                continue;
            }
            let moves = self.handler.spool.read(|store| {
                let open = tables::resume::open_call_count(store)?;
                Ok((store.moves_so_far(), store.letters_so_far(), open))
            });
            let Ok(moves) = moves.await else { continue };
            let used = self.observer.outward.sender.borrow().requests.clone();
            let states = self.observer.sources.borrow().clone();
            let states: Vec<_> = states.into_iter().map(|it| it.state).collect();
            let now = Some((moves, used, states));
            if now != last {
                last = now;
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }
}

impl Backend for DaemonBackend {
    fn status(&self) -> Answer<'_, Status> {
        Box::pin(async { Ok(self.observer.status().await?) })
    }

    fn today(&self) -> Answer<'_, Figures> {
        Box::pin(self.figures())
    }

    fn under_way(&self) -> Answer<'_, Vec<OpenCallView>> {
        Box::pin(self.open_calls())
    }

    fn calls(&self, query: CallQuery) -> Answer<'_, CallPage> {
        Box::pin(self.call_page(query))
    }

    fn call(&self, uuid: String) -> Answer<'_, Option<CallView>> {
        Box::pin(self.one_call(uuid))
    }

    fn letters(&self, query: LetterQuery) -> Answer<'_, LetterPage> {
        Box::pin(self.letter_page(query))
    }

    fn causes(&self) -> Answer<'_, Vec<CauseGroup>> {
        Box::pin(self.cause_groups())
    }

    fn letter_ids(&self, query: LetterQuery) -> Answer<'_, Vec<RowId>> {
        Box::pin(self.ids_of_letters(query))
    }

    fn act<'a>(
        &'a self,
        change: LetterChange,
        ids: &'a [RowId],
        who: &'a str,
    ) -> Answer<'a, Vec<LetterOutcome>> {
        Box::pin(self.handler.change_letters(ids, change, who))
    }

    fn numbers(&self) -> Answer<'_, Vec<ParkedPhone>> {
        Box::pin(self.numbers_without_lead())
    }

    fn give_lead<'a>(&'a self, phone: &'a str, lead: LeadId, who: &'a str) -> Answer<'a, u64> {
        Box::pin(async move { Ok(self.handler.give_lead(phone, lead, who).await?.1) })
    }

    fn take_lead<'a>(&'a self, phone: &'a str) -> Answer<'a, ()> {
        Box::pin(async { self.handler.take_lead(phone).await.map(drop) })
    }

    fn given_leads(&self) -> Answer<'_, Vec<LeadByHand>> {
        Box::pin(self.handler.leads_given())
    }

    fn profiles(&self, leads: BTreeSet<LeadId>) -> Answer<'_, Profiles> {
        Box::pin(self.lead_profiles(leads))
    }

    fn missed(&self) -> Answer<'_, Vec<WaitingCustomer>> {
        Box::pin(self.waiting_customers())
    }

    fn missed_count(&self) -> Answer<'_, u64> {
        let missed = self.read(|store| tables::missed::missed_by_trunk(store));
        Box::pin(async { Ok(missed.await?.into_iter().map(|(_, count)| count).sum()) })
    }

    fn employees(&self, days: i64) -> Answer<'_, EmployeeTable> {
        Box::pin(self.employee_figures(days))
    }

    fn trunks(&self) -> Answer<'_, Vec<TrunkStatus>> {
        Box::pin(self.trunk_views())
    }

    fn check(&self) -> Answer<'_, Vec<CheckFinding>> {
        Box::pin(trial::checked())
    }

    fn kept_sessions(&self) -> Answer<'_, Option<String>> {
        Box::pin(async { Ok(self.handler.spool.meta(SESSIONS).await?) })
    }

    fn keep_sessions(&self, sessions: String) -> Answer<'_, ()> {
        Box::pin(async { Ok(self.handler.spool.keep_meta(SESSIONS, sessions).await?) })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn pbx(&self) -> String {
        let sources = self.observer.sources.borrow();
        let named = sources.iter().map(|it| &*it.pbx);
        let named: BTreeSet<&str> = named.filter(|it| !it.is_empty()).collect();
        Vec::from_iter(named).join(", ")
    }
}
