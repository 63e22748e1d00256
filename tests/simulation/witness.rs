//! The judge outside: counts arrivals, and asks of every breach whether it was ours.

use crate::simulation::scenario::UNKNOWN_LEAD;
use crate::simulation::way::Waits;
use callbridge_call::EventTime;
use callbridge_model::CallRecord;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{Endpoint, Sandbox, Violation, ViolationKind};
use callbridge_sender::outcome::VerdictKind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The service's word that a page is too large, or that it knows no range, can be learned by
/// asking only: so many such questions may be asked in an hour of one life.
const LEARNED_MAX: u32 = 4;
const LEARNED_WITHIN: Duration = Duration::from_secs(3600);

/// The service wants so much time between two requests that it refuses for the same reason.
const REFUSALS_APART: Duration = Duration::from_secs(60);

/// What was seen from outside.
pub struct OutcomeSource {
    /// When requests arrived at the CRM.
    pub arrivals: Vec<EventTime>,
    rate: Rate,
    /// Violations are judged as they happen.
    pub strict: bool,
    /// Calls that may be submitted again: a kill or the way kept their 200 from us, a person sent
    /// them again, their requestId cannot be read.
    excused: BTreeSet<String>,
    all_excused: bool,
    /// Calls that a person sent with another lead after the journal did not show them.
    changed: BTreeSet<String>,
    left: BTreeMap<u64, EventTime>,
    /// What each of these asked, and when the sender heard that it failed.
    asked: BTreeMap<u64, String>,
    failed: BTreeMap<u64, EventTime>,
    /// When the sender last learned that its token or grant is no good.
    refused: Option<EventTime>,
    /// When it last gave up waiting for an answer after that: it may have been a refusal, too.
    unheard: Option<EventTime>,
    /// In use.
    token: String,
    learned: u32,
    learned_from: EventTime,
}

impl OutcomeSource {
    /// Nothing was seen.
    pub fn new(sandbox: &sandbox::Settings) -> Self {
        Self {
            arrivals: Vec::new(),
            rate: sandbox.rate,
            strict: false,
            excused: BTreeSet::new(),
            all_excused: false,
            changed: BTreeSet::new(),
            left: BTreeMap::new(),
            asked: BTreeMap::new(),
            failed: BTreeMap::new(),
            refused: None,
            unheard: None,
            token: String::new(),
            learned: 0,
            learned_from: EventTime::default(),
        }
    }

    /// A request left.
    pub fn left(&mut self, number: u64, at: EventTime, asked: String) {
        self.left.insert(number, at);
        self.asked.insert(number, asked);
        while self.left.len() > 1000 {
            if let Some((first, _)) = self.left.pop_first() {
                self.asked.remove(&first);
                self.failed.remove(&first);
            }
        }
    }

    /// The sender had heard that the same request failed when this one left.
    fn knew_of_failure(&self, number: u64) -> bool {
        let (left, asked) = (self.left.get(&number), self.asked.get(&number));
        self.failed.iter().any(|(before, received)| {
            left.is_some_and(|left| received <= left) && self.asked.get(before) == asked
        })
    }

    /// A request arrived: no window, wherever it opens, may hold more than the limit.
    pub fn arrived(&mut self, at: EventTime) {
        let limit = usize::try_from(self.rate.requests).expect("small");
        if let Some(first) = self.arrivals.len().checked_sub(limit) {
            let apart = at.since(self.arrivals[first]);
            assert!(
                apart >= self.rate.window,
                "{} arrivals within {apart:?} at {at}",
                limit + 1
            );
        }
        self.arrivals.push(at);
    }

    /// This call may be submitted again.
    pub fn excuse(&mut self, uuid: &str) {
        if self.strict {
            self.excused.insert(uuid.to_owned());
        }
    }

    /// This call goes out with another lead, once the journal was looked through.
    pub fn changed(&mut self, uuid: &str) {
        self.changed.insert(uuid.to_owned());
    }

    /// All calls may.
    pub fn excuse_all(&mut self) {
        self.all_excused = true;
    }

    /// What the journal holds may have been sent by a life that a snapshot has undone.
    pub fn may_differ(&self, sent: &CallRecord) -> bool {
        let lead = sent.lead_id.map(|lead| lead.get());
        self.all_excused && lead.is_some_and(|lead| [4001, UNKNOWN_LEAD].contains(&lead))
    }

    /// The sender heard this.
    pub fn received(&mut self, number: u64, waits: &Waits, verdict: VerdictKind, at: EventTime) {
        if verdict == VerdictKind::Failed {
            self.failed.insert(number, at);
            self.unheard = self.refused.map(|_| at);
        }
        if let Some(uuid) = &waits.uuid {
            match verdict {
                VerdictKind::Accepted | VerdictKind::Journaled | VerdictKind::Pending => {}
                _ => self.excuse(uuid),
            }
        }
        let unheard = matches!(
            verdict,
            VerdictKind::Failed | VerdictKind::Unreachable | VerdictKind::TooLate
        );
        if unheard && waits.request.endpoint() == callbridge_crm::Endpoint::Filter {
            // what did not reach us has taught nothing
            self.learned = self.learned.saturating_sub(1);
        }
        match verdict {
            // a refusal of an older token says nothing about the one in use
            VerdictKind::TokenRefused
            | VerdictKind::NotGranted
            | VerdictKind::PageTooLarge
            | VerdictKind::PageRefused
                if waits.token == self.token =>
            {
                self.refused = Some(at);
            }
            VerdictKind::Accepted
            | VerdictKind::Journaled
            | VerdictKind::Pending
            | VerdictKind::Record
            | VerdictKind::Page => self.refused = None,
            _ => {}
        }
    }

    /// Another token: what an old one was told says nothing about it.
    pub fn token_taken(&mut self, token: &str) {
        if self.token != token {
            token.clone_into(&mut self.token);
            self.refused = None;
        }
    }

    /// A life of the process begins; what it was told before is known to it unless it `forgot`.
    pub fn restarted(&mut self, forgot: bool) {
        if forgot {
            self.refused = None;
        }
        // what waited is sent again as the spool says, not as this one remembers
        self.failed.clear();
        self.learned = 0;
    }

    /// A breach that this request made.
    pub fn judge(&mut self, breach: &Violation, number: u64, request: &sandbox::Request) {
        if !self.strict {
            return;
        }
        let uuid = serde_json::from_slice(&request.body)
            .ok()
            .and_then(|body: Value| Some(body.get("uuid")?.as_str()?.to_owned()));
        let excused = self.all_excused
            || uuid
                .as_ref()
                .is_some_and(|uuid| self.excused.contains(uuid));
        // under way when the refusal was heard, or none was heard
        let unheard = || match (self.left.get(&number), self.refused) {
            (Some(left), Some(refused)) => *left <= refused,
            (_, None) => true,
            (None, _) => false,
        };
        let fine = match breach.kind {
            // the first page of the journal has no other words an hour later
            ViolationKind::RepeatAfter400 if request.path.ends_with("/filter") => true,
            ViolationKind::RepeatAfter200 | ViolationKind::RepeatAfter400 => excused,
            ViolationKind::RepeatAfter401 | ViolationKind::RepeatAfter403 => {
                let lost = |lost: EventTime| breach.at.since(lost) < REFUSALS_APART;
                unheard() || self.unheard.is_some_and(lost)
            }
            ViolationKind::Invalid if request.path.ends_with("/filter") => {
                if breach.at.since(self.learned_from) >= LEARNED_WITHIN {
                    self.learned_from = breach.at;
                    self.learned = 0;
                }
                self.learned += 1;
                self.learned <= LEARNED_MAX
            }
            // a snapshot does not know what a person changed since, nor the journal what is held
            ViolationKind::UuidReused => {
                self.all_excused || uuid.is_some_and(|it| self.changed.contains(&it))
            }
            // where many fail, five failures of one call may be chance: it is sent on
            ViolationKind::RepeatAfter5xx => true,
            // one that was on its way for long, and its repeat, may arrive together
            ViolationKind::SoonAfter5xx => !self.knew_of_failure(number),
            ViolationKind::WindowExceeded
            | ViolationKind::FreshBudget
            | ViolationKind::DerivedField
            | ViolationKind::Invalid
            | ViolationKind::UnknownPoll
            | ViolationKind::ForeignPoll
            | ViolationKind::SkippedField
            | ViolationKind::WrongHeader
            | ViolationKind::ContentType
            | ViolationKind::WrongMethod
            | ViolationKind::UnknownPath
            | ViolationKind::RedirectFollowed
            | ViolationKind::SecretMisplaced
            | ViolationKind::RefreshReused
            | ViolationKind::CodeReused
            | ViolationKind::WrongHost => false,
        };
        assert!(fine, "request {number}: {breach:?}");
    }

    /// With another company's token nothing but `token/info` is asked.
    pub fn judge_company(&self, sandbox: &Sandbox, request: &sandbox::Request) {
        if !self.strict {
            return;
        }
        let foreign = request
            .header(sandbox::envelope::TOKEN_HEADER)
            .any(|token| token.starts_with("svc_pat_other"));
        let (endpoint, _) = sandbox::routes::route(&request.path);
        assert!(
            !foreign || endpoint == Endpoint::TokenInfo,
            "another company's token was used for {endpoint:?}: {:?}",
            sandbox.counts()
        );
    }
}
