//! Circuit breakers for the CRM's endpoints. Given the result of each request, they decide whether
//! the next request may be sent, and they know since when an endpoint has been failing.
//!
//! ```text
//! closed ── five failures in a row, or the CRM is unreachable ──▶ open
//!   ▲                                                              │ ▲
//!   │                              success of the probe half-opens │ │ failure
//!   └────────────────────── success ────────────── half open ◀─────┘─┘
//! ```
//! All open breakers share a single probe. If it fails, it's repeated after 1, 2, 4 s and so on, up
//! to 60 s. Jitter only shortens these waits, so an hour-long outage costs at most 90 requests.

pub mod pause;
pub mod refusals;
pub mod retry;

use crate::jitter::Jitter;
use callbridge_call::EventTime;
use callbridge_crm::Endpoint;
use callbridge_model::Now;
use std::time::Duration;

/// Number of consecutive failures that open a breaker.
pub const FAILURES_MAX: u32 = 5;

/// Longest wait between two probes.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Jitter shortens a wait by up to a thirty-second of it.
const JITTER_PART: u32 = 32;

/// Whether a request to an endpoint may be sent now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    #[default]
    Yes,
    /// Only as the one probe that all open breakers share.
    Probe,
    No,
}

impl Access {
    pub fn is_possible(self) -> bool {
        self != Self::No
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open,
    HalfOpen,
}

/// The breaker of one endpoint.
#[derive(Clone, Debug, Default)]
struct Breaker {
    state: State,
    /// Failures since the last success.
    failures: u32,
    /// Time of the first failure since the last success.
    since: Option<EventTime>,
    /// The last failure's message.
    reason: String,
    /// Whether the last failure kept us from reaching the CRM at all: no connection, no DNS name,
    /// or no valid certificate.
    unreachable: bool,
}

impl Breaker {
    fn note(&mut self, now: Now, reason: &str, unreachable: bool) {
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now.wall);
        reason.clone_into(&mut self.reason);
        self.unreachable = unreachable;
    }
}

/// A failing endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    pub endpoint: Endpoint,
    pub since: EventTime,
    /// Message from the CRM or the transport.
    pub reason: String,
    pub unreachable: bool,
}

/// The breakers of all endpoints that calls use, and the probe they share.
#[derive(Debug)]
pub struct Breakers {
    submit: Breaker,
    poll: Breaker,
    pages: Breaker,
    token: Breaker,
    jitter: Jitter,
    /// Failures of probes and of half-open breakers' requests since the first breaker opened.
    failed_probes: u32,
    /// Time since boot before which no probe is sent.
    next_probe: Duration,
    /// Slot of the probe in flight.
    probe: Option<u32>,
    /// Endpoint of the last probe, since the endpoints take turns.
    last_probed: Option<Endpoint>,
}

impl Breakers {
    /// Creates closed breakers. `submit_failing_since` was stored before a restart.
    pub fn new(seed: u64, submit_failing_since: Option<EventTime>) -> Self {
        Self {
            submit: Breaker {
                since: submit_failing_since,
                ..Breaker::default()
            },
            poll: Breaker::default(),
            pages: Breaker::default(),
            token: Breaker::default(),
            jitter: Jitter::new(seed),
            failed_probes: 0,
            next_probe: Duration::ZERO,
            probe: None,
            last_probed: None,
        }
    }

    /// Decides whether a request to this endpoint may be sent now. `under_way` tells whether
    /// another request to it is in flight.
    pub fn access(&self, endpoint: Endpoint, now: Duration, under_way: bool) -> Access {
        let Some(breaker) = self.breaker(endpoint) else {
            return Access::Yes;
        };
        match breaker.state {
            State::Closed => Access::Yes,
            State::HalfOpen if under_way => Access::No,
            State::HalfOpen => Access::Yes,
            State::Open if self.is_probe_due(now) => Access::Probe,
            State::Open => Access::No,
        }
    }

    /// Returns `true` if a breaker is open, no probe is in flight, and the wait before the next
    /// probe is over.
    pub fn is_probe_due(&self, now: Duration) -> bool {
        self.is_any_open() && self.probe.is_none() && now >= self.next_probe
    }

    /// Returns the time since boot at which the next probe is due, or `None` if no breaker is open
    /// or a probe is in flight.
    pub fn next_probe(&self) -> Option<Duration> {
        if self.is_any_open() && self.probe.is_none() {
            Some(self.next_probe)
        } else {
            None
        }
    }

    pub fn last_probed(&self) -> Option<Endpoint> {
        self.last_probed
    }

    /// Notes that a request is being sent. It counts as the probe if its endpoint's breaker is
    /// open, or if it `stands_in` because no other request can be the probe.
    pub fn note_sent(&mut self, slot: u32, endpoint: Endpoint, stands_in: bool) {
        let open = self.breaker(endpoint).map(|breaker| breaker.state) == Some(State::Open);
        if open || stands_in {
            self.probe = Some(slot);
            self.last_probed = Some(endpoint);
        }
    }

    /// Ends the probe if it's the request in this slot, because it was never sent or its result
    /// says nothing about its endpoint.
    pub fn release(&mut self, slot: u32) {
        if self.probe == Some(slot) {
            self.probe = None;
        }
    }

    /// Closes the breaker of an endpoint that responded. If that breaker was open, or the request
    /// was the probe, all open breakers become half open.
    pub fn note_success(&mut self, slot: u32, endpoint: Endpoint) {
        let was_probe = self.probe == Some(slot);
        self.release(slot);
        let Some(breaker) = self.breaker_mut(endpoint) else {
            return;
        };
        let was_open = breaker.state == State::Open;
        *breaker = Breaker::default();
        if was_open || was_probe {
            for breaker in self.all_mut() {
                if breaker.state == State::Open {
                    breaker.state = State::HalfOpen;
                }
            }
        }
    }

    /// Notes that a request failed. If the CRM is `unreachable`, the breakers of all endpoints
    /// open.
    pub fn note_failure(
        &mut self,
        now: Now,
        slot: u32,
        endpoint: Endpoint,
        reason: &str,
        unreachable: bool,
    ) {
        let was_probe = self.probe == Some(slot);
        self.release(slot);
        let had_open = self.is_any_open();
        let Some(breaker) = self.breaker_mut(endpoint) else {
            return;
        };
        let was_half_open = breaker.state == State::HalfOpen;
        breaker.note(now, reason, unreachable);
        if breaker.failures >= FAILURES_MAX || was_half_open {
            breaker.state = State::Open;
        }
        if unreachable {
            for breaker in self.all_mut() {
                if breaker.state != State::Open {
                    breaker.note(now, reason, unreachable);
                    breaker.state = State::Open;
                }
            }
        }
        if was_probe || was_half_open {
            self.failed_probes = self.failed_probes.saturating_add(1);
            self.next_probe = now.boot + self.backoff();
        } else if !had_open && self.is_any_open() {
            self.failed_probes = 0;
            self.next_probe = now.boot + self.backoff();
        }
    }

    /// Returns the time of the first failed submission since the last successful one.
    pub fn submit_failing_since(&self) -> Option<EventTime> {
        self.submit.since
    }

    /// Returns the endpoints whose breakers are open, the most important one first.
    pub fn failing(&self) -> Vec<Failing> {
        let all = [
            (Endpoint::Submit, &self.submit),
            (Endpoint::TokenInfo, &self.token),
            (Endpoint::Poll, &self.poll),
            (Endpoint::Filter, &self.pages),
        ];
        let mut failing = Vec::new();
        for (endpoint, breaker) in all {
            if let (State::Open, Some(since)) = (breaker.state, breaker.since) {
                failing.push(Failing {
                    endpoint,
                    since,
                    reason: breaker.reason.clone(),
                    unreachable: breaker.unreachable,
                });
            }
        }
        failing
    }

    /// Returns the wait before the next probe. It starts at 1 s, doubles with each failed probe up
    /// to 60 s, and is shortened by jitter.
    fn backoff(&mut self) -> Duration {
        let doubled = Duration::from_secs(1 << self.failed_probes.min(6));
        let wait = doubled.min(BACKOFF_MAX);
        wait - self.jitter.up_to(wait / JITTER_PART)
    }

    pub fn is_any_open(&self) -> bool {
        let all = [&self.submit, &self.poll, &self.pages, &self.token];
        all.iter().any(|breaker| breaker.state == State::Open)
    }

    fn all_mut(&mut self) -> [&mut Breaker; 4] {
        [
            &mut self.submit,
            &mut self.poll,
            &mut self.pages,
            &mut self.token,
        ]
    }

    /// Returns an endpoint's breaker, or `None` if only lead requests use the endpoint.
    fn breaker(&self, endpoint: Endpoint) -> Option<&Breaker> {
        match endpoint {
            Endpoint::Submit => Some(&self.submit),
            Endpoint::Poll => Some(&self.poll),
            Endpoint::Filter => Some(&self.pages),
            Endpoint::TokenInfo => Some(&self.token),
            Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields | Endpoint::FieldList => None,
        }
    }

    fn breaker_mut(&mut self, endpoint: Endpoint) -> Option<&mut Breaker> {
        match endpoint {
            Endpoint::Submit => Some(&mut self.submit),
            Endpoint::Poll => Some(&mut self.poll),
            Endpoint::Filter => Some(&mut self.pages),
            Endpoint::TokenInfo => Some(&mut self.token),
            Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields | Endpoint::FieldList => None,
        }
    }
}

#[cfg(test)]
mod tests;
