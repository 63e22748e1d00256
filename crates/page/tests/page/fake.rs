//! A daemon in memory, with calls, dead letters, and numbers. It records actions and who did them.

use async_trait::async_trait;
use callbridge_admin::{LetterChange, LetterOutcome, Refusal};
use callbridge_call::EpochSeconds;
use callbridge_model::status::TrunkStatus;
use callbridge_model::{LeadId, Phone, Reason, Status};
use callbridge_page::backend::*;
use callbridge_spool::{Attempt, LeadByHand, Letter, Listed, RowId, WaitingPhone};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Semaphore, watch};

/// Noon of a day in Tashkent, in epoch seconds.
pub const NOON: i64 = 1_795_158_000;

/// The data of the daemon.
#[derive(Default)]
pub struct Known {
    pub status: Status,
    pub figures: Figures,
    pub open: Vec<OpenCallView>,
    pub calls: Vec<Listed>,
    pub request: RequestView,
    pub attempts: Vec<Attempt>,
    pub letters: BTreeMap<RowId, Letter>,
    pub numbers: Vec<WaitingPhone>,
    pub given: Vec<LeadByHand>,
    pub profiles: Profiles,
    pub missed: Vec<WaitingCustomer>,
    pub employees: EmployeeTable,
    pub trunks: Vec<TrunkStatus>,
    pub findings: Vec<CheckFinding>,
    pub sessions: Option<String>,
    /// Actions: the user, the change, and the number of dead letters.
    pub actions: Vec<(String, LetterChange, usize)>,
    pub queries: Vec<CallQuery>,
}

/// A daemon in memory.
pub struct Fake {
    pub known: Mutex<Known>,
    changes: watch::Sender<u64>,
    /// Each action takes a permit, so a test can delay actions.
    pub permits: Semaphore,
}

fn refuse_input<T>(message: &str) -> Result<T, Refusal> {
    Err(Refusal::new(64, message))
}

/// Returns `true` if the reason and the cause of the dead letter are those of the query.
fn is_wanted(query: &LetterQuery, letter: &Letter) -> bool {
    let reason = query.reason.as_ref();
    reason.is_none_or(|reason| reason == letter.reason.word()) && query.takes_cause(letter)
}

impl Fake {
    pub fn new(known: Known) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(known),
            changes: watch::channel(0).0,
            permits: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic before")
    }

    pub fn change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl Backend for Fake {
    async fn status(&self) -> Answer<Status> {
        let known = self.known();
        let mut status = known.status.clone();
        let waiting = known
            .letters
            .values()
            .filter(|letter| letter.waiting)
            .count() as u64;
        status.books.waiting = waiting;
        status.books.dead = known.letters.len() as u64 - waiting;
        status.dead_letters.clear();
        status.waiting.clear();
        for letter in known.letters.values() {
            let counts = if letter.waiting {
                &mut status.waiting
            } else {
                &mut status.dead_letters
            };
            *counts.entry(letter.reason.word().to_owned()).or_default() += 1;
        }
        status.books.finished = status.books.journaled + known.letters.len() as u64;
        Ok(status)
    }

    async fn today(&self) -> Answer<Figures> {
        Ok(self.known().figures.clone())
    }

    async fn under_way(&self) -> Answer<Vec<OpenCallView>> {
        Ok(self.known().open.clone())
    }

    async fn calls(&self, query: CallQuery) -> Answer<CallPage> {
        let mut known = self.known();
        known.queries.push(query.clone());
        if query.day.as_deref() == Some("tomorrow") {
            return refuse_input("tomorrow is not a day: YYYY-MM-DD is expected");
        }
        let from: usize = query.before.and_then(|row| row.parse().ok()).unwrap_or(0);
        let rest = &known.calls[from.min(known.calls.len())..];
        let calls: Vec<Listed> = rest.iter().take(50).cloned().collect();
        let next = (rest.len() > 50).then(|| (from + 50).to_string());
        Ok(CallPage {
            calls,
            next,
            count: (from == 0).then_some(known.calls.len() as u64),
            more: false,
        })
    }

    async fn call(&self, uuid: String) -> Answer<Option<CallView>> {
        let known = self.known();
        let line = known.calls.iter().find(|call| call.uuid() == uuid).cloned();
        let view = line.map(|line| CallView {
            picture: "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"400\" height=\"40\">\
                      <path d=\"M0 20h400\" stroke=\"#888\"/></svg>"
                .to_owned(),
            values: "answered  yes  101 answers".to_owned(),
            wait_sec: Some(8),
            since: NOON,
            request: known.request.clone(),
            events: vec![("0.0".to_owned(), "rings".to_owned())],
            attempts: known.attempts.clone(),
            letter: known
                .letters
                .values()
                .find(|letter| letter.uuid == line.record.uuid)
                .cloned(),
            line,
        });
        Ok(view)
    }

    async fn letters(&self, query: LetterQuery) -> Answer<LetterPage> {
        let known = self.known();
        let below = query.before.unwrap_or(RowId(i64::MAX));
        let mut found = known
            .letters
            .range(..below)
            .rev()
            .map(|(_, letter)| letter)
            .filter(|letter| !letter.waiting && is_wanted(&query, letter));
        let letters: Vec<Letter> = found.by_ref().take(50).cloned().collect();
        let next = found
            .next()
            .and_then(|_| letters.last())
            .map(|letter| letter.id);
        let mut reasons = BTreeMap::<Reason, u64>::new();
        for letter in known.letters.values() {
            *reasons.entry(letter.reason).or_default() += 1;
        }
        Ok(LetterPage {
            letters,
            next,
            reasons,
        })
    }

    async fn causes(&self) -> Answer<Vec<CauseGroup>> {
        Ok(CauseGroup::from_letters(self.known().letters.values()))
    }

    async fn letter_ids(&self, query: LetterQuery) -> Answer<Vec<RowId>> {
        let known = self.known();
        Ok(known
            .letters
            .values()
            .filter(|letter| is_wanted(&query, letter))
            .map(|letter| letter.id)
            .collect())
    }

    async fn act(
        &self,
        change: LetterChange,
        ids: &[RowId],
        who: &str,
    ) -> Answer<Vec<LetterOutcome>> {
        assert!(ids.len() <= 100, "a hundred at once");
        self.permits.acquire().await.expect("never closed").forget();
        let mut known = self.known();
        known.actions.push((who.to_owned(), change, ids.len()));
        let (lead, dry) = match change {
            LetterChange::Retry { wish, dry_run } => (wish.lead, dry_run),
            LetterChange::Discard => (None, false),
        };
        if lead == LeadId::new(666) {
            return refuse_input("the CRM has no lead 666");
        }
        let mut outcomes = Vec::new();
        for id in ids {
            let letter = known.letters.get(id).cloned();
            let result = if letter.is_none() {
                "refused"
            } else if matches!(change, LetterChange::Discard) {
                "discarded"
            } else if dry {
                "would_send"
            } else {
                "ready"
            };
            if !dry {
                known.letters.remove(id);
            }
            let letter = letter.unwrap_or_else(|| crate::morning::letter("gone", NOON, id.0));
            let mut outcome = LetterOutcome::from_letter(&letter, result, None);
            outcome.lead_id = Some(lead);
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    async fn numbers(&self) -> Answer<Vec<WaitingPhone>> {
        Ok(self.known().numbers.clone())
    }

    /// Only the leads up to 5000 are known.
    async fn is_unknown_lead(&self, lead: LeadId) -> Answer<bool> {
        Ok(lead.get() > 5000)
    }

    async fn give_lead(&self, phone: &str, lead: LeadId, who: &str) -> Answer<(u64, Vec<RowId>)> {
        if Phone::from_e164(phone).is_none() {
            return refuse_input("this is not a full telephone number");
        }
        let mut known = self.known();
        let Some(at) = known
            .numbers
            .iter()
            .position(|waiting| waiting.phone.as_str() == phone)
        else {
            return refuse_input("this number waits no more");
        };
        let left = known.numbers.remove(at).calls;
        let given = LeadByHand {
            phone: Phone::from_e164(phone).expect("a number"),
            lead_id: lead,
            at: EpochSeconds::new(NOON),
            who: who.to_owned(),
        };
        known.given.push(given);
        let dead = if lead.get() == 4002 {
            vec![RowId(12), RowId(9)]
        } else {
            Vec::new()
        };
        Ok((left, dead))
    }

    async fn take_lead(&self, phone: &str) -> Answer<()> {
        self.known()
            .given
            .retain(|assigned| assigned.phone.as_str() != phone);
        Ok(())
    }

    async fn given_leads(&self) -> Answer<Vec<LeadByHand>> {
        Ok(self.known().given.clone())
    }

    async fn profiles(&self, leads: BTreeSet<LeadId>) -> Answer<Profiles> {
        let known = self.known();
        Ok(leads
            .into_iter()
            .filter_map(|lead| Some((lead, known.profiles.get(&lead)?.clone())))
            .collect())
    }

    async fn missed(&self) -> Answer<Vec<WaitingCustomer>> {
        Ok(self.known().missed.clone())
    }

    async fn missed_count(&self) -> Answer<u64> {
        Ok(self.known().missed.len() as u64)
    }

    async fn employees(&self, _days: i64) -> Answer<EmployeeTable> {
        Ok(self.known().employees.clone())
    }

    async fn trunks(&self) -> Answer<Vec<TrunkStatus>> {
        Ok(self.known().trunks.clone())
    }

    async fn check(&self) -> Answer<Vec<CheckFinding>> {
        Ok(self.known().findings.clone())
    }

    async fn kept_sessions(&self) -> Answer<Option<String>> {
        Ok(self.known().sessions.clone())
    }

    async fn keep_sessions(&self, sessions: String) -> Answer<()> {
        self.known().sessions = Some(sessions);
        Ok(())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn pbx(&self) -> String {
        "office".to_owned()
    }
}
