//! The judge outside: what was given, against what the journals hold, by uuid.

use crate::company::Company;
use callbridge_sandbox::ViolationKind;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A call as it was given, and what its record has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenCall {
    /// Whose token it belongs to.
    pub company: usize,
    pub lead: i64,
    pub started_at: i64,
    pub answered: bool,
    /// Seconds.
    pub duration: i64,
    /// Seconds.
    pub talk: i64,
}

/// All calls that were given, by uuid.
#[derive(Default)]
pub struct Ledger(Mutex<BTreeMap<String, GivenCall>>);

/// What the judge found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    pub given: usize,
    pub journaled: usize,
    pub lost: usize,
    pub doubled: usize,
    pub invented: usize,
    pub changed: usize,
}

impl Ledger {
    /// Before it is told to anybody.
    pub fn give(&self, uuid: String, call: GivenCall) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = calls.insert(uuid, call);
        assert_eq!(before, None, "no two calls share a uuid");
    }

    /// Of one company, so far.
    pub fn given(&self, company: usize) -> usize {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.values().filter(|it| it.company == company).count()
    }

    /// Counts; a line for each of the first calls with which something is wrong.
    pub fn judge(&self, companies: &[Company]) -> (Verdicts, Vec<String>) {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Verdicts {
            given: calls.len(),
            ..Verdicts::default()
        };
        let mut wrong = Vec::new();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for company in companies {
            for record in company.crm.journal() {
                let call = &record.call;
                let times = seen.entry(call.uuid.clone()).or_default();
                *times += 1;
                if *times > 1 {
                    found.doubled += 1;
                    wrong.push(format!("{} is there {times} times", call.uuid));
                    continue;
                }
                let has = GivenCall {
                    company: company.number,
                    lead: call.lead_id,
                    started_at: call.started_at,
                    answered: call.answered,
                    duration: call.duration_sec,
                    talk: call.talk_time_sec.unwrap_or(-1),
                };
                match calls.get(&call.uuid) {
                    None => {
                        found.invented += 1;
                        wrong.push(format!("nobody gave {has:?}"));
                    }
                    Some(given) if *given != has => {
                        found.changed += 1;
                        wrong.push(format!("{given:?} became {has:?}"));
                    }
                    Some(_) => found.journaled += 1,
                }
            }
        }
        for (uuid, call) in calls.iter() {
            if !seen.contains_key(uuid) {
                found.lost += 1;
                wrong.push(format!("{uuid} is lost: {call:?}"));
            }
        }
        (found, wrong)
    }
}

impl Verdicts {
    /// Each call is there once, as it was.
    pub const fn is_clean(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.invented == 0 && self.changed == 0
    }
}

/// What the senders of a company did against the document; a repeat after a lost answer, or of a
/// state made anew, is allowed and only counted.
pub fn conduct(company: &Company) -> (Vec<String>, u64) {
    let limit = company.limit;
    company.crm.admin(|core, _| {
        let breaches = core.violations();
        let mut wrong: Vec<String> = breaches
            .all()
            .iter()
            .filter(|breach| breach.kind != ViolationKind::RepeatAfter200)
            .map(|breach| format!("{:?} {}: {}", breach.kind, breach.rule, breach.words))
            .collect();
        let fullest = core.fullest().in_a_window;
        if fullest > limit {
            wrong.push(format!("{fullest} requests in a window of {limit}"));
        }
        let refused = core.counts().iter();
        let refused = refused.filter(|((_, status), _)| *status == 429);
        wrong.extend(refused.map(|((endpoint, _), n)| format!("429 from {endpoint:?} × {n}")));
        (wrong, breaches.count(ViolationKind::RepeatAfter200))
    })
}
