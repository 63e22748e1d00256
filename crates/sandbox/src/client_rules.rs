//! Checks how a client behaves after a refusal (§7.7): what it repeats, how soon, and how often.
//!
//! ```text
//! soon    within a second of its 5xx: the document gives no wait for a 5xx, and a second is
//!         the first step of its backoff
//! often   a sixth attempt of a write of which five failed while others passed
//! ```
//! An attempt of a write counts only if other requests of its endpoint passed since the previous
//! attempt and none failed. If all requests fail, the CRM has a problem, and the document sets no
//! limit. Queries can be repeated at any time.

use crate::{Delivery, Endpoint, Rate, Request, Response, TokenKey, ViolationKind};
use callbridge_call::EventTime;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use uuid::Uuid;

/// Shortest time between two tries of a refused request: a minute (§7.7), less the difference in
/// network delay between two requests.
const APART_MIN: Duration = Duration::from_secs(58);
/// Requests that arrive this soon after the first refusal were already under way, so they are not
/// repeats.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// Most requests of each kind that are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// A write that is repeated within this time of its 5xx comes too soon: a second, less the
/// difference in network delay between two requests.
const SOON: Duration = Duration::from_millis(900);
/// Most attempts of one write (§7.7).
const ATTEMPTS_MAX: u32 = 5;
/// If this much time has passed since the last attempt, a person probably ordered the next attempt.
/// Attempts are then counted from 1 again.
const SERIES: Duration = Duration::from_secs(3_600);
const NAMESPACE: Uuid = Uuid::from_u128(0x1c7e_90f2_4a36_4d7f_8b1d_52c0_c7ad_9e02);

/// A company and the public application of the connection. `None` means the company's own
/// application.
type ConnectionKey = (i64, Option<i64>);

/// A request that was refused, and can be repeated a minute later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// A token or client credentials that do not work (401).
    Token(TokenKey),
    /// An endpoint that the token has no grant for (403).
    Grant(TokenKey, Endpoint),
    /// A missing record (409), by the request that asked for it.
    Record(RequestKey),
}

/// The identity of a request, by which a repeat is recognized: its endpoint, whether it is a POST,
/// and the hash of its method, path, and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey(Endpoint, bool, Uuid);

impl RequestKey {
    /// Returns the key of a request to this endpoint.
    pub fn from_request(endpoint: Endpoint, request: &Request) -> Self {
        let method = &request.method;
        let path = &request.path;
        let place = Uuid::new_v5(&NAMESPACE, format!("{method} {path}").as_bytes());
        let hash = Uuid::new_v5(&place, &request.body);
        Self(endpoint, method == "POST", hash)
    }
}

/// Numbers of requests to one endpoint that passed and that failed so far.
#[derive(Clone, Copy, Debug, Default)]
struct EndpointHistory {
    passed: u64,
    failed: u64,
}

/// The failures of one write, as a series of attempts.
#[derive(Clone, Copy, Debug)]
struct Failed {
    last: EventTime,
    /// `true` if the last attempt was answered. Otherwise the client cannot know that it failed.
    answered: bool,
    attempts: u32,
    history: EndpointHistory,
}

impl Failed {
    /// Returns `true` if only this write fails: since its last attempt, other requests to the
    /// endpoint passed and none failed.
    const fn alone(&self, history: EndpointHistory) -> bool {
        history.passed > self.history.passed && history.failed == self.history.failed
    }
}

/// Refusals and failures of each client, to find repeats that come too soon or too often.
#[derive(Clone, Debug, Default)]
pub struct ClientRules {
    /// Times of the first and last refusal of each request. The first is reset after a pause of a
    /// minute.
    refused: BTreeMap<Refused, (EventTime, EventTime)>,
    /// Requests refused with 400 or 409.
    bodies: BTreeSet<RequestKey>,
    failed: BTreeMap<RequestKey, Failed>,
    history: BTreeMap<Endpoint, EndpointHistory>,
    /// Counted requests of each connection (company and public application) within a window's
    /// length, by any token.
    spans: BTreeMap<ConnectionKey, VecDeque<(EventTime, TokenKey)>>,
}

impl ClientRules {
    /// Records a request that counts for the rate limit. Returns the number of requests within a
    /// window's length if this number exceeds the limit of a window and several tokens were used.
    pub fn count_request(
        &mut self,
        connection: ConnectionKey,
        key: TokenKey,
        now: EventTime,
        rate: Rate,
    ) -> Option<usize> {
        let span = self.spans.entry(connection).or_default();
        while (span.front()).is_some_and(|(at, _)| now >= at.plus(rate.window)) {
            span.pop_front();
        }
        if span.len() < REMEMBERED_MAX {
            span.push_back((now, key));
        }
        let most = usize::try_from(rate.requests).unwrap_or(usize::MAX);
        if span.len() > most && span.iter().any(|(_, other)| *other != key) {
            Some(span.len())
        } else {
            None
        }
    }

    /// Records a refusal. Returns the time since the previous refusal of the same request if the
    /// repeat came too soon, within a minute.
    pub fn record_refusal(&mut self, what: Refused, now: EventTime) -> Option<Duration> {
        if self.refused.len() >= REMEMBERED_MAX {
            self.refused.clear();
        }
        let (first, last) = self.refused.entry(what).or_insert((now, now));
        let since_first = now.since(*first);
        let since_last = now.since(*last);
        *last = now;
        if since_last >= APART_MIN {
            *first = now;
            return None;
        }
        if since_first > UNDER_WAY {
            Some(since_last)
        } else {
            None
        }
    }

    /// Forgets the refusals of a token that is accepted again.
    pub fn token_works(&mut self, key: TokenKey) {
        self.refused.remove(&Refused::Token(key));
    }

    /// Forgets the refusals for missing grants. The grants have changed, so a denied request can be
    /// sent again.
    pub fn grants_changed(&mut self) {
        let refused = &mut self.refused;
        refused.retain(|what, _| !matches!(what, Refused::Grant(..)));
    }

    /// Forgets the refusals of the OAuth endpoints, because an application has changed.
    pub fn application_changed(&mut self) {
        self.bodies.retain(|key| !key.0.is_oauth());
    }

    /// Returns the violations of a request that repeats an earlier request which was refused, or
    /// failed with a 5xx.
    pub fn find_repeats(
        &self,
        key: RequestKey,
        now: EventTime,
    ) -> [Option<(ViolationKind, String)>; 2] {
        let RequestKey(endpoint, posted, _) = key;
        let refused = self.bodies.contains(&key).then(|| {
            let message = "the same body again after 400 or 409".to_owned();
            (ViolationKind::RepeatAfter400, message)
        });
        let failed = if posted && endpoint.is_write() {
            self.find_repeated_write(key, now)
        } else {
            None
        };
        [refused, failed]
    }

    /// Returns the violation of a write that repeats a failed write too soon (within a second of
    /// its 5xx) or too often (more than five attempts).
    fn find_repeated_write(
        &self,
        key: RequestKey,
        now: EventTime,
    ) -> Option<(ViolationKind, String)> {
        let before = self.failed.get(&key)?;
        let since = now.since(before.last);
        if before.answered && since < SOON {
            let message = format!("the same write {} ms after its 5xx", since.as_millis());
            return Some((ViolationKind::SoonAfter5xx, message));
        }
        let history = self.history.get(&key.0).copied().unwrap_or_default();
        if since >= SERIES || before.attempts < ATTEMPTS_MAX || !before.alone(history) {
            return None;
        }
        let attempt = before.attempts + 1;
        let message = format!(
            "attempt {attempt} of a write that failed while others passed; \
             {ATTEMPTS_MAX} are the most"
        );
        Some((ViolationKind::RepeatAfter5xx, message))
    }

    /// Records how a request was answered. `own` is `true` if the endpoint made the answer, and no
    /// fault rule.
    pub fn record_answer(
        &mut self,
        key: RequestKey,
        now: EventTime,
        response: &Response,
        own: bool,
    ) {
        let RequestKey(endpoint, posted, _) = key;
        let at_once = response.delivery == Delivery::Now;
        // A gateway's refusal says nothing about the request.
        let refused = matches!(response.status, 400 | 409) && posted;
        if refused && at_once && response.is_json() {
            if self.bodies.len() >= REMEMBERED_MAX {
                self.bodies.pop_first();
            }
            self.bodies.insert(key);
        }
        let history = self.history.entry(endpoint).or_default();
        let lost = response.delivery == Delivery::Lost;
        if !lost && (own || !(500..=599).contains(&response.status)) {
            history.passed += u64::from((200..=299).contains(&response.status));
            self.failed.remove(&key);
            return;
        }
        let before = self
            .failed
            .get(&key)
            .filter(|failed| now.since(failed.last) < SERIES);
        let attempts = before.map_or(1, |before| {
            before.attempts + u32::from(before.alone(*history))
        });
        history.failed += 1;
        if self.failed.len() >= REMEMBERED_MAX {
            self.failed.clear();
        }
        let failed = Failed {
            last: now,
            answered: !lost,
            attempts,
            history: *history,
        };
        self.failed.insert(key, failed);
    }
}
