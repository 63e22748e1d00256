//! How a client behaves after a refusal (§7.7): what it may not repeat, and how soon.

use super::envelope::{Delivery, Request, Response};
use super::repeats::{Repeat, Repeats, RequestEnd};
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
