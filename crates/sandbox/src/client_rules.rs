//! How a client behaves after a refusal (§7.7): what it may not repeat, how soon and how often.
//!
//! ```text
//! soon    within a second of its 5xx: the document gives 5xx no wait of their own, and a second is
//!         the first step of its backoff
//! often   a sixth attempt of a write of which five failed while others passed
//! ```
//! An attempt counts for its write once others of its endpoint have passed since the one before and
//! none of them failed: what fails with all others is the service's trouble, and no limit of the
//! document. A question is asked anew as soon and as often as something is to be known.

use super::envelope::{Delivery, Request, Response};
use super::routes::Endpoint;
use super::token::TokenKey;
use super::window::Rate;
use callbridge_call::EventTime;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// "At most once a minute", less what the way of two requests may differ by.
const APART_MIN: Duration = Duration::from_secs(58);
/// Requests that were under way when the first refusal was given are no repeats.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// Most tokens, and most refused bodies, remembered.
const REMEMBERED_MAX: usize = 10_000;
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x1c7e_90f2_4a36_4d7f_8b1d_52c0_c7ad_9e02);

/// A company, and the public application of the connection; `None`: its own.
type ConnectionKey = (i64, Option<i64>);

#[derive(Clone, Copy, Debug)]
struct RefusedRequest {
    first: EventTime,
    last: EventTime,
}

/// What was refused so far.
#[derive(Clone, Debug, Default)]
pub struct ClientRules {
    dead_tokens: BTreeMap<TokenKey, RefusedRequest>,
    denied: BTreeMap<(TokenKey, Endpoint), RefusedRequest>,
    missing: BTreeMap<uuid::Uuid, RefusedRequest>,
    bodies: BTreeSet<(Endpoint, uuid::Uuid)>,
    repeats: Repeats,
    /// Counted requests of each connection (company, public application) within a window's length,
    /// by whatever token.
    spans: BTreeMap<ConnectionKey, VecDeque<(EventTime, TokenKey)>>,
}

impl ClientRules {
    /// Notes a counted request; tells how many there were within a window's length, when they are
    /// more than a window holds and came by several token values.
    pub fn counted(
        &mut self,
        connection: ConnectionKey,
        key: TokenKey,
        now: EventTime,
        rate: Rate,
    ) -> Option<usize> {
        let span = self.spans.entry(connection).or_default();
        while span
            .front()
            .is_some_and(|(at, _)| now >= at.plus(rate.window))
        {
            span.pop_front();
        }
        if span.len() < REMEMBERED_MAX {
            span.push_back((now, key));
        }
        let most = usize::try_from(rate.requests).unwrap_or(usize::MAX);
        let several = span.len() > most && span.iter().any(|(_, other)| *other != key);
        several.then_some(span.len())
    }

    /// Notes a 401; tells how long after the one before when that was too soon.
    pub fn dead_token(&mut self, key: TokenKey, now: EventTime) -> Option<Duration> {
        too_soon(&mut self.dead_tokens, key, now)
    }

    /// The token works again.
    pub fn token_works(&mut self, key: TokenKey) {
        self.dead_tokens.remove(&key);
    }

    /// Notes a 403; tells how long after the one before when that was too soon.
    pub fn denied(
        &mut self,
        key: TokenKey,
        endpoint: Endpoint,
        now: EventTime,
    ) -> Option<Duration> {
        too_soon(&mut self.denied, (key, endpoint), now)
    }

    /// The grants changed: what was denied may be asked again.
    pub fn grants_changed(&mut self) {
        self.denied.clear();
    }

    /// What these endpoints refused may be asked again: something changed.
    pub fn forget_refused(&mut self, endpoints: &[Endpoint]) {
        self.bodies
            .retain(|(endpoint, _)| !endpoints.contains(endpoint));
    }

    /// Was this request refused with 400 or 409 before?
    pub fn was_refused(&self, endpoint: Endpoint, request: &Request) -> bool {
        self.bodies.contains(&(endpoint, fingerprint(request)))
    }

    /// Notes a request refused with 400 or 409; not by a gateway, which says nothing of it.
    pub fn refused(&mut self, endpoint: Endpoint, request: &Request, response: &Response) {
        if !response.is_json() {
            return;
        }
        if self.bodies.len() >= REMEMBERED_MAX {
            self.bodies.pop_first();
        }
        self.bodies.insert((endpoint, fingerprint(request)));
    }

    /// Does this write come again too soon, or too often, after it failed with a 5xx?
    pub fn after_failure(
        &self,
        endpoint: Endpoint,
        request: &Request,
        now: EventTime,
    ) -> Option<Repeat> {
        let write = request.method == "POST" && endpoint.is_write();
        let again = write.then(|| self.repeats.asked(endpoint, fingerprint(request), now));
        again.flatten()
    }

    /// Notes how a request was answered. `own`: no fault made the answer.
    pub fn answered(
        &mut self,
        endpoint: Endpoint,
        request: &Request,
        now: EventTime,
        response: &Response,
        own: bool,
    ) {
        let end = match (response.status, response.delivery) {
            (_, Delivery::Lost) => RequestEnd::Lost,
            (500..=599, _) if !own => RequestEnd::Failed,
            (200..=299, _) => RequestEnd::Passed,
            _ => RequestEnd::Other,
        };
        self.repeats.ended(endpoint, fingerprint(request), now, end);
    }

    /// Notes a record that was asked for and is missing; tells how long after the time before when
    /// that was too soon.
    pub fn missing(&mut self, request: &Request, now: EventTime) -> Option<Duration> {
        too_soon(&mut self.missing, fingerprint(request), now)
    }
}

fn fingerprint(request: &Request) -> uuid::Uuid {
    let Request {
        method, path, body, ..
    } = request;
    let place = uuid::Uuid::new_v5(&NAMESPACE, format!("{method} {path}").as_bytes());
    uuid::Uuid::new_v5(&place, body)
}

fn too_soon<K: Ord>(
    refused: &mut BTreeMap<K, RefusedRequest>,
    key: K,
    now: EventTime,
) -> Option<Duration> {
    if refused.len() >= REMEMBERED_MAX {
        refused.clear();
    }
    let fresh = RefusedRequest {
        first: now,
        last: now,
    };
    let entry = refused.entry(key).or_insert(fresh);
    let (since_first, since_last) = (now.since(entry.first), now.since(entry.last));
    if since_last >= APART_MIN {
        *entry = fresh;
        return None;
    }
    entry.last = now;
    (since_first > UNDER_WAY).then_some(since_last)
}

/// A second, less what the way of two requests may differ by.
const SOON: Duration = Duration::from_millis(900);
/// Attempts of one write (§7.7).
pub const ATTEMPTS_MAX: u32 = 5;
/// So long after its last attempt a write is sent on somebody's order, and begins again.
const SERIES: Duration = Duration::from_secs(3_600);

/// What is wrong with a request that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// So long after its 5xx.
    Soon(Duration),
    /// As this attempt, counted from 1.
    Often(u32),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// It was done.
    Passed,
    /// A 5xx.
    Failed,
    /// No answer: the client cannot know whether it was done.
    Lost,
    /// Neither speaks for the service nor against it.
    Other,
}

/// Answers of one endpoint so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EndpointHistory {
    passed: u64,
    failed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    last: EventTime,
    answered: bool,
    attempts: u32,
    told: EndpointHistory,
}

impl Failed {
    /// Since the last attempt others passed, and none failed.
    const fn alone(&self, told: EndpointHistory) -> bool {
        told.passed > self.told.passed && told.failed == self.told.failed
    }
}

/// What failed so far.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    failed: BTreeMap<(Endpoint, uuid::Uuid), Failed>,
    told: BTreeMap<Endpoint, EndpointHistory>,
}

impl Repeats {
    /// A write comes, named by its fingerprint.
    pub fn asked(&self, endpoint: Endpoint, request: uuid::Uuid, now: EventTime) -> Option<Repeat> {
        let before = self.failed.get(&(endpoint, request))?;
        let since = now.since(before.last);
        if before.answered && since < SOON {
            return Some(Repeat::Soon(since));
        }
        let often =
            since < SERIES && before.attempts >= ATTEMPTS_MAX && before.alone(self.told(endpoint));
        often.then_some(Repeat::Often(before.attempts + 1))
    }

    /// The same request ended so.
    pub fn ended(
        &mut self,
        endpoint: Endpoint,
        request: uuid::Uuid,
        now: EventTime,
        end: RequestEnd,
    ) {
        let key = (endpoint, request);
        let told = self.told.entry(endpoint).or_default();
        let before = match end {
            RequestEnd::Passed => {
                told.passed += 1;
                self.failed.remove(&key);
                return;
            }
            RequestEnd::Other => {
                self.failed.remove(&key);
                return;
            }
            RequestEnd::Failed | RequestEnd::Lost => self.failed.get(&key).copied(),
        };
        let before = before.filter(|before| now.since(before.last) < SERIES);
        let attempts = before.map_or(1, |before| before.attempts + u32::from(before.alone(*told)));
        told.failed += 1;
        if self.failed.len() >= REMEMBERED_MAX {
            self.failed.clear();
        }
        let failed = Failed {
            last: now,
            answered: end == RequestEnd::Failed,
            attempts,
            told: *told,
        };
        self.failed.insert(key, failed);
    }

    fn told(&self, endpoint: Endpoint) -> EndpointHistory {
        self.told.get(&endpoint).copied().unwrap_or_default()
    }
}
