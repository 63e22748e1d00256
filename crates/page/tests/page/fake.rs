//! A daemon that keeps what it is told in memory: calls, letters, numbers, and who acted.

use callbridge_control::protocol::MissedView;
use callbridge_model::Status;
use callbridge_page::backend::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Semaphore, watch};

/// Noon of a day in Tashkent.
pub const NOON: i64 = 1_795_158_000;

/// What the daemon knows.
#[derive(Default)]
pub struct Known {
    pub status: Status,
    pub figures: Figures,
    pub open: Vec<OpenCallView>,
    pub calls: Vec<CallLine>,
    pub letters: BTreeMap<u64, LetterView>,
    pub numbers: Vec<NumberView>,
    pub given: Vec<GivenLead>,
    pub missed: Vec<MissedView>,
    pub employees: Vec<EmployeeFigures>,
    pub pbx: PbxView,
    pub findings: Vec<CheckFinding>,
    pub sessions: Option<String>,
    /// Who did what with how many letters.
    pub acts: Vec<(String, LetterAction, usize)>,
    pub queries: Vec<CallQuery>,
}

/// The daemon.
pub struct Fake {
    pub known: Mutex<Known>,
    changes: watch::Sender<u64>,
    /// Actions wait here while a test holds them.
    pub turns: Semaphore,
}

fn ready<'a, T: Send + 'a>(value: Result<T, BackendRefusal>) -> BackendAnswer<'a, T> {
    Box::pin(std::future::ready(value))
}

fn input<T>(words: &str) -> Result<T, BackendRefusal> {
    let (kind, words) = (RefusalKind::Input, words.to_owned());
    Err(BackendRefusal { kind, words })
}

impl Fake {
    pub fn new(known: Known) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(known),
            changes: watch::channel(0).0,
            turns: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic before")
    }

    pub fn change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

impl Backend for Fake {
    fn status(&self) -> BackendAnswer<'_, Status> {
        let known = self.known();
        let mut status = known.status.clone();
        status.books.dead = known.letters.len() as u64;
        status.books.finished = status.books.journaled + status.books.dead;
        ready(Ok(status))
    }

    fn today(&self) -> BackendAnswer<'_, Figures> {
        ready(Ok(self.known().figures.clone()))
    }

    fn under_way(&self) -> BackendAnswer<'_, Vec<OpenCallView>> {
        ready(Ok(self.known().open.clone()))
    }

    fn calls(&self, query: CallQuery) -> BackendAnswer<'_, CallPage> {
        let mut known = self.known();
        known.queries.push(query.clone());
        if query.day.as_deref() == Some("tomorrow") {
            return ready(input("tomorrow is no day: YYYY-MM-DD is expected"));
        }
        let from: usize = query.before.and_then(|it| it.parse().ok()).unwrap_or(0);
        let rest = &known.calls[from.min(known.calls.len())..];
        let calls: Vec<CallLine> = rest.iter().take(50).cloned().collect();
        let next = (rest.len() > 50).then(|| (from + 50).to_string());
        ready(Ok(CallPage { calls, next }))
    }

    fn call(&self, uuid: String) -> BackendAnswer<'_, Option<CallView>> {
        let known = self.known();
        let line = known.calls.iter().find(|call| call.uuid == uuid).cloned();
        let letter = |line: &CallLine| {
            let mut letters = known.letters.values();
            letters
                .find(|it| it.uuid.as_ref() == Some(&line.uuid))
                .cloned()
        };
        let view = line.map(|line| CallView {
            picture: "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"400\" height=\"40\">\
                      <path d=\"M0 20h400\" stroke=\"#888\"/></svg>"
                .to_owned(),
            story: vec![
                "the customer calls trunk `city`".to_owned(),
                "101 answers".to_owned(),
            ],
            events: vec![("0.0".to_owned(), "rings".to_owned())],
            record: "{\n  \"uuid\": \"x\"\n}".to_owned(),
            attempts: vec![(NOON, "202 accepted".to_owned())],
            letter: letter(&line),
            line,
        });
        ready(Ok(view))
    }

    fn letters(&self, query: LetterQuery) -> BackendAnswer<'_, LetterPage> {
        let known = self.known();
        let below = query.before.unwrap_or(u64::MAX);
        let fits = |it: &&LetterView| query.reason.as_ref().is_none_or(|r| *r == it.reason);
        let mut found = known
            .letters
            .range(..below)
            .rev()
            .map(|(_, it)| it)
            .filter(fits);
        let letters: Vec<LetterView> = found.by_ref().take(50).cloned().collect();
        let next = found.next().and_then(|_| letters.last()).map(|it| it.id);
        let mut counts = BTreeMap::<String, u64>::new();
        for letter in known.letters.values() {
            *counts.entry(letter.reason.clone()).or_default() += 1;
        }
        let reasons = counts.into_iter().map(|(reason, count)| ReasonView {
            hint: "what to do".to_owned(),
            reason,
            count,
        });
        let reasons = reasons.collect();
        ready(Ok(LetterPage {
            letters,
            next,
            reasons,
        }))
    }

    fn letter_ids(&self, query: LetterQuery) -> BackendAnswer<'_, Vec<u64>> {
        let known = self.known();
        let fits = |it: &&LetterView| query.reason.as_ref().is_none_or(|r| *r == it.reason);
        ready(Ok(known
            .letters
            .values()
            .filter(fits)
            .map(|it| it.id)
            .collect()))
    }

    fn act<'a>(
        &'a self,
        action: &'a LetterAction,
        ids: &'a [u64],
        who: &'a str,
    ) -> BackendAnswer<'a, Vec<Acted>> {
        Box::pin(async move {
            assert!(ids.len() <= 100, "a hundred at once");
            self.turns.acquire().await.expect("never closed").forget();
            let mut known = self.known();
            known.acts.push((who.to_owned(), action.clone(), ids.len()));
            let (lead, dry) = match action {
                LetterAction::Retry { lead, dry_run, .. } => (lead.clone(), *dry_run),
                LetterAction::Discard => (None, false),
            };
            if lead.as_deref() == Some("666") {
                return input("the CRM has no lead 666");
            }
            let mut one = |id: u64| {
                let result = match (action, dry) {
                    _ if !known.letters.contains_key(&id) => "refused",
                    (LetterAction::Discard, _) => "discarded",
                    (_, true) => "would_send",
                    (_, false) => "ready",
                };
                if !dry {
                    known.letters.remove(&id);
                }
                Acted {
                    id,
                    result: result.to_owned(),
                    why: None,
                    lead_id: lead.as_ref().and_then(|it| it.parse().ok()),
                    employee_id: None,
                }
            };
            Ok(ids.iter().map(|id| one(*id)).collect())
        })
    }

    fn numbers(&self) -> BackendAnswer<'_, Vec<NumberView>> {
        ready(Ok(self.known().numbers.clone()))
    }

    fn give_lead<'a>(
        &'a self,
        phone: &'a str,
        lead: &'a str,
        who: &'a str,
    ) -> BackendAnswer<'a, u64> {
        let mut known = self.known();
        let Some(at) = known.numbers.iter().position(|it| it.phone == phone) else {
            return ready(input("this number waits no more"));
        };
        let left = known.numbers.remove(at).calls;
        let given = GivenLead {
            phone: phone.to_owned(),
            lead_id: lead.parse().expect("checked before"),
            at: NOON,
            who: who.to_owned(),
        };
        known.given.push(given);
        ready(Ok(left))
    }

    fn take_lead<'a>(&'a self, phone: &'a str, _who: &'a str) -> BackendAnswer<'a, ()> {
        self.known().given.retain(|it| it.phone != phone);
        ready(Ok(()))
    }

    fn given_leads(&self) -> BackendAnswer<'_, Vec<GivenLead>> {
        ready(Ok(self.known().given.clone()))
    }

    fn missed(&self) -> BackendAnswer<'_, Vec<MissedView>> {
        ready(Ok(self.known().missed.clone()))
    }

    fn employees(&self, _span: Span) -> BackendAnswer<'_, Vec<EmployeeFigures>> {
        ready(Ok(self.known().employees.clone()))
    }

    fn pbx(&self) -> BackendAnswer<'_, PbxView> {
        ready(Ok(self.known().pbx.clone()))
    }

    fn check(&self) -> BackendAnswer<'_, Vec<CheckFinding>> {
        ready(Ok(self.known().findings.clone()))
    }

    fn kept_sessions(&self) -> BackendAnswer<'_, Option<String>> {
        ready(Ok(self.known().sessions.clone()))
    }

    fn keep_sessions(&self, sessions: String) -> BackendAnswer<'_, ()> {
        self.known().sessions = Some(sessions);
        ready(Ok(()))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn zone(&self) -> String {
        "Asia/Tashkent".to_owned()
    }

    fn instance(&self) -> String {
        "tashkent 1".to_owned()
    }
}
