//! The judge outside of the program. The judge counts arrivals, and decides for every violation
//! whether the program caused the violation.

use crate::simulation::scenario::UNKNOWN_LEAD;
use crate::simulation::way::PendingRequest;
use callbridge_call::EventTime;
use callbridge_model::CallRecord;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{Endpoint, Sandbox, Violation, ViolationKind};
use callbridge_sender::outcome::VerdictKind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Number of invalid page requests that the program can send within [`LEARNED_WITHIN`] of one life.
/// Only such a request shows that a page is too large or that a range is not allowed.
const LEARNED_MAX: u32 = 4;
const LEARNED_WITHIN: Duration = Duration::from_secs(3600);

/// The CRM requires this time between two requests that it refuses for the same reason.
const REFUSALS_APART: Duration = Duration::from_secs(60);

/// Observations from outside of the program.
pub struct OutcomeSource {
    /// When each request arrived at the CRM.
    pub arrivals: Vec<EventTime>,
    rate: Rate,
    /// Whether violations are judged when they happen.
    pub strict: bool,
    /// Calls that can be submitted again: their 200 was lost in a kill or on the way, a person
    /// retried them, or their requestId cannot be read.
    excused: BTreeSet<String>,
    all_excused: bool,
    /// Calls that a person sent with another lead after the journal did not show them.
    changed: BTreeSet<String>,
    left: BTreeMap<u64, EventTime>,
    /// The content of each request, and when the sender learned that it failed.
    asked: BTreeMap<u64, String>,
    failed: BTreeMap<u64, EventTime>,
    /// When the sender last learned that its token or grant is invalid.
    refused: Option<EventTime>,
    /// When the sender's last request failed after such a refusal. The lost answer could have been
    /// a refusal too.
    unheard: Option<EventTime>,
    /// The current token.
    token: String,
    learned: u32,
    learned_from: EventTime,
}

impl OutcomeSource {
    /// Creates a judge without observations.
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

    /// Records that the request `number` left at the time `at`. `asked` is its content.
    pub fn record_departure(&mut self, number: u64, at: EventTime, asked: String) {
        self.left.insert(number, at);
        self.asked.insert(number, asked);
        while self.left.len() > 1000 {
            if let Some((first, _)) = self.left.pop_first() {
                self.asked.remove(&first);
                self.failed.remove(&first);
            }
        }
    }

    /// Returns `true` if the sender knew, when this request left, that the same request had failed.
    fn is_failure_known(&self, number: u64) -> bool {
        let (left, asked) = (self.left.get(&number), self.asked.get(&number));
        self.failed.iter().any(|(before, received)| {
            left.is_some_and(|left| received <= left) && self.asked.get(before) == asked
        })
    }

    /// Records an arrival. No window, wherever it begins, can hold more than the limit.
    pub fn record_arrival(&mut self, at: EventTime) {
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

    /// Allows this call to be submitted again.
    pub fn excuse(&mut self, uuid: &str) {
        if self.strict {
            self.excused.insert(uuid.to_owned());
        }
    }

    /// Allows this call to be sent with another lead, after a search of the journal.
    pub fn allow_change(&mut self, uuid: &str) {
        self.changed.insert(uuid.to_owned());
    }

    /// Allows all calls to be submitted again.
    pub fn excuse_all(&mut self) {
        self.all_excused = true;
    }

    /// Returns `true` if the journal can have another version of this call: a process whose work a
    /// restored snapshot undid can have sent the call.
    pub fn can_differ(&self, sent: &CallRecord) -> bool {
        let lead = sent.lead_id.map(|lead| lead.get());
        self.all_excused && lead.is_some_and(|lead| [4001, UNKNOWN_LEAD].contains(&lead))
    }

    /// Records the verdict that the sender reached.
    pub fn record_verdict(
        &mut self,
        number: u64,
        waits: &PendingRequest,
        verdict: VerdictKind,
        at: EventTime,
    ) {
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
            // A lost answer does not count, because the program could not learn from it.
            self.learned = self.learned.saturating_sub(1);
        }
        match verdict {
            // A refusal of an older token says nothing about the current one.
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

    /// Records the sender's token. Refusals of the old token do not apply to a new token.
    pub fn record_token(&mut self, token: &str) {
        if self.token != token {
            token.clone_into(&mut self.token);
            self.refused = None;
        }
    }

    /// Records that the process was started again. The process knows earlier answers, unless it
    /// `forgot` them.
    pub fn begin_life(&mut self, forgot: bool) {
        if forgot {
            self.refused = None;
        }
        // The next life sends waiting requests as the spool has them, so this memory no longer
        // applies.
        self.failed.clear();
        self.learned = 0;
    }

    /// Returns `true` if the request was under way when the refusal arrived, or if no refusal has
    /// arrived.
    fn left_before_refusal(&self, number: u64) -> bool {
        match (self.left.get(&number), self.refused) {
            (Some(left), Some(refused)) => *left <= refused,
            (_, None) => true,
            (None, _) => false,
        }
    }

    /// Judges a violation of this request. Fails if the program caused the violation.
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
        let fine = match breach.kind {
            // The request for the first page of the journal is the same an hour later.
            ViolationKind::RepeatAfter400 if request.path.ends_with("/filter") => true,
            ViolationKind::RepeatAfter200 | ViolationKind::RepeatAfter400 => excused,
            ViolationKind::RepeatAfter401 | ViolationKind::RepeatAfter403 => {
                self.left_before_refusal(number)
                    || self
                        .unheard
                        .is_some_and(|lost| breach.at.since(lost) < REFUSALS_APART)
            }
            ViolationKind::Invalid if request.path.ends_with("/filter") => {
                if breach.at.since(self.learned_from) >= LEARNED_WITHIN {
                    self.learned_from = breach.at;
                    self.learned = 0;
                }
                self.learned += 1;
                self.learned <= LEARNED_MAX
            }
            // A snapshot does not have later changes by people, and the journal does not show calls
            // that are held.
            ViolationKind::UuidReused => {
                self.all_excused || uuid.is_some_and(|uuid| self.changed.contains(&uuid))
            }
            // A request that was delayed for long can arrive together with its repetition.
            ViolationKind::SoonAfter5xx => !self.is_failure_known(number),
            ViolationKind::WindowExceeded
            | ViolationKind::RepeatAfter5xx
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

    /// Checks that another company's token is used only for `token/info`.
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
