//! The troubles of the service's parts, each by itself: submissions, polls, reconciliations and the
//! token's record. What failed is proved by its own success; while nothing at all passes they are
//! one trouble, and one request at a time looks whether it is over.

use crate::schedule::until_probe;
use crate::{Failure, Failures, Fault, PROBE_LEAST, Share};
use callbridge_crm::Endpoint;
use callbridge_model::Now;
use callbridge_spool::RowId;
use std::time::Duration;

/// Until an outage is certain, an answer that takes longer than this holds nothing up.
pub const SLOW: Duration = Duration::from_secs(5);

/// A part of the CRM that can fail separately.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Part {
    /// Reading of the token's record.
    Token,
    /// Submissions of calls.
    Submissions,
    /// Answers about the outcome of single calls.
    Polls,
    /// Pages of the journal.
    #[strum(serialize = "reconciliations")]
    Reconciliation,
}

impl Part {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the part of an endpoint that calls use. `None` for one that only lead requests use,
    /// which affects nothing else.
    pub const fn of(endpoint: Endpoint) -> Option<Self> {
        match endpoint {
            Endpoint::TokenInfo => Some(Self::Token),
            Endpoint::Submit => Some(Self::Submissions),
            Endpoint::Poll => Some(Self::Polls),
            Endpoint::Filter => Some(Self::Reconciliation),
            Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields | Endpoint::FieldList => None,
        }
    }

    /// Name of the part in `status --json`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    const fn place(self) -> usize {
        self as usize
    }
}

/// A request in flight, with the values that the admission depends on.
#[derive(Clone, Copy, Debug)]
pub struct InFlightPart {
    /// `None` for a lead request.
    pub part: Option<Part>,
    /// Time since boot at which it was sent.
    pub sent: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartAdmission {
    /// The request can be sent now.
    AtOnce,
    /// Not before this time since boot.
    From(Duration),
    /// Not before an answer comes.
    Answer,
}

/// How much of the CRM an outage affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Nothing of the CRM works.
    Everything,
    /// No call is accepted. Other requests are answered, or there were none.
    Submissions,
}

#[derive(Clone, Debug, Default)]
struct Health {
    share: Share,
    passed: Option<Duration>,
    asked: Option<Duration>,
    failures: Option<Failures>,
    /// The CRM may work again, so the next request need not wait.
    at_once: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Troubles {
    parts: [Health; 4],
    asked: Option<Duration>,
    /// The share by which waits are shortened, in 1024ths.
    pub(super) shorter: u32,
}

/// A failure of one part, or of all.
#[derive(Clone, Copy, Debug)]
struct TroubleState {
    since: Duration,
    suspected: Duration,
    outage: bool,
}

impl Troubles {
    pub fn sent(&mut self, now: Duration, part: Part) {
        self.asked = Some(now);
        let health = &mut self.parts[part.place()];
        health.asked = Some(now);
        health.at_once = false;
    }

    /// The part works. `first`: the call had no failure before, so only chance decided.
    pub fn passed(&mut self, now: Duration, part: Part, call: Option<RowId>, first: bool) {
        let all = self.whole().is_some();
        let health = &mut self.parts[part.place()];
        health.passed = Some(now);
        if let Some(failures) = health.failures.take().filter(|it| !it.outage) {
            for (call, _) in failures.calls.iter().filter(|(_, first)| *first) {
                health.share.tried(Some(*call), true);
            }
            if failures.calls.is_empty() {
                (0..failures.count.min(8)).for_each(|_| health.share.tried(None, true));
            }
        }
        if first {
            health.share.tried(call, false);
        }
        if all {
            let failing = self.parts.iter_mut().filter(|it| it.failures.is_some());
            failing.for_each(|it| it.at_once = true);
        }
    }

    /// A request of this part failed. `waiting` calls wait for it.
    pub fn failed(&mut self, now: Now, part: Part, failure: Failure, waiting: u64) {
        let health = &mut self.parts[part.place()];
        if health.failures.is_none() && !failure.is_evidence() {
            return;
        }
        if health.passed.is_some_and(|at| failure.sent < at) && failure.fault != Fault::Unreached {
            // others passed since, so it is only a sample of chance
            if failure.alone == 0 {
                health.share.tried(failure.call, true);
            }
            return;
        }
        let since = failure.sent;
        let share = health.share.expected();
        let failures = health.failures.get_or_insert_with(|| Failures {
            since,
            began: now.wall.minus(now.boot.saturating_sub(since)),
            ..Failures::default()
        });
        failures.add(now.boot, failure, share, waiting);
    }

    /// Nothing waits for this part any more, and others work. Whether it works is not known.
    pub fn nothing_waits(&mut self, part: Part) {
        if self.whole().is_none() {
            self.parts[part.place()].failures = None;
        }
    }

    /// The share of submissions that fails by chance.
    pub fn expected(&self) -> f64 {
        self.parts[Part::Submissions.place()].share.expected()
    }

    /// The highest plausible share of requests that fails by chance, for this call.
    pub fn feared(&self, call: RowId) -> f64 {
        let health = &self.parts[Part::Submissions.place()];
        let others = |it: &&(RowId, bool)| it.1 && it.0 != call;
        let failures = health.failures.as_ref();
        let failing = failures.map_or(0, |it| it.calls.iter().filter(others).count());
        health.share.feared(call, failing)
    }

    /// Decides when a request of this part can be sent, with these others in flight.
    pub fn admission(&self, now: Duration, part: Part, others: &[InFlightPart]) -> PartAdmission {
        let whole = self.whole();
        let Some(trial) = whole.or(self.parts[part.place()].trial()) else {
            return PartAdmission::AtOnce;
        };
        let counts = |it: &InFlightPart| {
            let slow = now.saturating_sub(it.sent) >= SLOW && !trial.outage;
            // a request from before the suspicion holds nothing up
            let after = it.sent >= trial.suspected && !slow;
            after && (whole.is_some() || it.part == Some(part))
        };
        if others.iter().any(counts) {
            return PartAdmission::Answer;
        }
        match self.next(part) {
            Some(at) if at > now => PartAdmission::From(at),
            Some(_) | None => PartAdmission::AtOnce,
        }
    }

    /// Time from which the next request of this part can be sent. `None` if nothing fails.
    pub fn next(&self, part: Part) -> Option<Duration> {
        let health = &self.parts[part.place()];
        let whole = self.whole();
        let trial = whole.or(health.trial())?;
        let all = whole.is_some();
        let asked = if all { self.asked } else { health.asked };
        let asked = asked.unwrap_or(trial.since);
        // a part that did not fail yet shows most
        let soon = health.at_once || all && health.failures.is_none();
        if soon {
            return Some(asked + PROBE_LEAST);
        }
        let so_far = asked.saturating_sub(trial.since);
        Some(asked + until_probe(so_far, self.is_replaced(part), self.shorter))
    }

    /// The CRM answered about the token or about us, so it works.
    pub fn spoke(&mut self) {
        self.parts.iter_mut().for_each(|it| it.failures = None);
    }

    /// Time since boot at which this part was last asked. Probes ask the parts in turns.
    pub fn asked(&self, part: Part) -> Option<Duration> {
        self.parts[part.place()].asked
    }

    /// All parts wait for one answer at a time.
    pub fn is_whole(&self) -> bool {
        self.whole().is_some()
    }

    /// Returns `true` if this part is certain to fail: its failures are an outage.
    pub fn fails(&self, part: Part) -> bool {
        self.certain(part).is_some()
    }

    /// Failures of this part that are an outage.
    pub fn certain(&self, part: Part) -> Option<&Failures> {
        self.failures(part).filter(|it| it.outage)
    }

    /// The outage, and the last message.
    pub fn outage(&self) -> Option<(Extent, &str)> {
        let failing = || (Part::ALL.iter()).filter_map(|part| Some((*part, self.failures(*part)?)));
        let all = self.whole().is_some();
        let stops = |part: Part| all || matches!(part, Part::Token | Part::Submissions);
        let (_, worst) = failing().find(|(part, it)| it.outage && stops(*part))?;
        let submissions = |(part, it): (Part, &Failures)| {
            part == Part::Submissions && !it.unreached || !all && part != Part::Token
        };
        let extent = match failing().all(submissions) {
            true => Extent::Submissions,
            false => Extent::Everything,
        };
        Some((extent, &worst.why))
    }

    /// Parts that fail while calls are accepted, or while other parts replace them.
    pub fn beside(&self) -> Vec<(Part, &Failures)> {
        let parts = [Part::Polls, Part::Reconciliation].into_iter();
        let alone = parts.filter(|_| !self.is_whole());
        alone
            .filter_map(|part| Some((part, self.certain(part)?)))
            .collect()
    }

    fn failures(&self, part: Part) -> Option<&Failures> {
        self.parts[part.place()].failures.as_ref()
    }

    /// Other parts replace this one: polls and pages show the same.
    fn is_replaced(&self, part: Part) -> bool {
        let other = match part {
            Part::Polls => Part::Reconciliation,
            Part::Reconciliation => Part::Polls,
            Part::Token | Part::Submissions => return false,
        };
        let other = &self.parts[other.place()];
        self.whole().is_none() && other.failures.is_none() && other.passed.is_some()
    }

    /// Nothing has passed since the last of the parts began to fail, so it is one outage.
    fn whole(&self) -> Option<TroubleState> {
        let trials = || self.parts.iter().filter_map(Health::trial);
        let newest = trials().map(|it| it.since).max()?;
        let passed = self.parts.iter().filter_map(|it| it.passed).max();
        if passed.is_some_and(|at| at > newest) {
            return None;
        }
        Some(TroubleState {
            since: trials().map(|it| it.since).min()?,
            suspected: trials().map(|it| it.suspected).min()?,
            outage: trials().any(|it| it.outage),
        })
    }
}

impl Health {
    fn trial(&self) -> Option<TroubleState> {
        let failures = self.failures.as_ref()?;
        let suspected = failures.suspected?;
        Some(TroubleState {
            since: failures.since,
            suspected,
            outage: failures.outage,
        })
    }
}

#[cfg(test)]
#[path = "troubles_tests.rs"]
mod tests;
