//! What a client may not do, as the document says it; over everything that was seen.

use super::seen::{Purpose, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// "Once a minute", less what the ways of two requests may differ by.
const MINUTE: Duration = Duration::from_secs(58);
/// What was under way when a refusal was given is no disobedience: so many requests at most, and
/// none later than this.
const UNDER_WAY: (usize, Duration) = (3, Duration::from_secs(1));
/// A kill this soon after an answer may have kept it from being written down.
const COMMIT: Duration = Duration::from_secs(2);
/// An outcome asked for again sooner than this is a busy loop.
const ASKED_AGAIN: Duration = Duration::from_millis(900);
/// Fields of a filter that the document publishes (§4.7).
const FILTER: [&str; 4] = ["page", "size", "orders", "registeredTimestampFrom"];

/// Moments that the judge was told of, and what happened elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The client was killed and is gone.
    pub kills: Vec<Duration>,
    /// Tokens or grants changed in the CRM.
    pub changes: Vec<Duration>,
    /// Connections to the host that redirects lead to.
    pub elsewhere: usize,
}

/// What is allowed here.
#[derive(Clone, Debug)]
pub struct Law {
    /// Requests in any span as long as `window`.
    pub requests: usize,
    pub window: Duration,
    /// What the header `Host` has to say.
    pub host: String,
    /// Refused pages of the journal that learning takes (§4.7: `MAX`, an unknown range).
    pub refused_pages: usize,
    /// A uuid may be sent again where a kill, or another token, took its requestId (§3.2, §4.5.4):
    /// only where nothing else could tell what became of it.
    pub again: bool,
}

/// Everything that was against the law, in words.
pub fn breaches(seen: &[Seen], times: &Times, law: &Law) -> Vec<String> {
    let mut order: Vec<&Seen> = seen.iter().filter(|it| !it.method.is_empty()).collect();
    order.sort_by_key(|it| it.at);
    let mut wrong = windows(&order, law);
    wrong.extend(order.iter().flat_map(|it| form(it, law)));
    wrong.extend(submissions(&order, times, law));
    wrong.extend(refused_tokens(&order, times));
    wrong.extend(missing_grants(&order));
    wrong.extend(polls(&order, times));
    let refused = |it: &&&Seen| it.purpose() == Purpose::Filter && it.heard() == Some(400);
    let refused = order.iter().filter(refused).count();
    if refused > law.refused_pages {
        wrong.push(format!(
            "§4.7: {refused} pages of the journal refused with 400"
        ));
    }
    let limited = order.iter().filter(|it| status(it) == Some(429)).count();
    if limited > 0 {
        wrong.push(format!("Limits: 429 × {limited}"));
    }
    if times.elsewhere > 0 {
        wrong.push(format!("a redirect was followed × {}", times.elsewhere));
    }
    wrong
}

fn status(seen: &Seen) -> Option<u16> {
    seen.answer.as_ref().map(|answer| answer.status)
}

/// The most counted requests of one token in any span as long as the window.
pub fn fullest(order: &[&Seen], window: Duration) -> usize {
    let mut arrivals: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for seen in order.iter().filter(|it| status(it) != Some(401)) {
        arrivals.entry(seen.token()).or_default().push(seen.at);
    }
    let of_token = |times: &Vec<Duration>| {
        let spans = (0..times.len()).map(|first| {
            let end = times[first] + window;
            times.partition_point(|at| *at < end) - first
        });
        spans.max().unwrap_or(0)
    };
    arrivals.values().map(of_token).max().unwrap_or(0)
}

fn windows(order: &[&Seen], law: &Law) -> Vec<String> {
    let fullest = fullest(order, law.window);
    let over = fullest > law.requests;
    let words = format!("Limits: {fullest} requests within {:?}", law.window);
    over.then_some(words).into_iter().collect()
}

/// Headers, method, path, fields.
fn form(seen: &Seen, law: &Law) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, words: &str| {
        if !holds {
            let (method, path) = (&seen.method, &seen.path);
            wrong.push(format!("{words}: {method} {path} {:?}", seen.headers));
        }
    };
    let one = |name: &'static str| seen.header(name).count() == 1;
    must(one("x-open-api-token"), "§5.1: not one token");
    must(!seen.token().is_empty(), "§5.1: an empty token");
    let plain = seen.header("authorization").count() == 0;
    must(plain, "§5.1.2: Authorization");
    let here = seen.header("host").eq([law.host.as_str()]);
    must(here, "another host");
    match seen.purpose() {
        Purpose::Other => must(false, "§4: no such endpoint"),
        Purpose::TokenInfo | Purpose::Poll => must(seen.body.is_empty(), "§4: a body on a GET"),
        Purpose::Submit | Purpose::Filter => {
            let json = seen.header("content-type").next().unwrap_or_default();
            must(json.starts_with("application/json"), "no JSON type");
            must(seen.json().is_object(), "no JSON object");
        }
    }
    if seen.purpose() == Purpose::Filter {
        let body = seen.json();
        let known = |key: &String| FILTER.contains(&key.as_str());
        let fields = body.as_object().is_some_and(|it| it.keys().all(known));
        must(fields, "§4.7: a field that is not published");
        let within = |name: &str, most: i64| {
            let value = body[name].as_i64();
            value.is_some_and(|value| (1..=most).contains(&value))
        };
        must(within("page", i64::MAX), "§4.7: no page");
        must(within("size", 100), "§4.7: no such size");
    }
    wrong
}

fn submissions(order: &[&Seen], times: &Times, law: &Law) -> Vec<String> {
    let mut by_uuid: BTreeMap<String, Vec<&Seen>> = BTreeMap::new();
    for seen in order {
        if let Some(uuid) = seen.uuid() {
            by_uuid.entry(uuid).or_default().push(seen);
        }
    }
    let mut wrong = Vec::new();
    for (uuid, all) in by_uuid {
        for pair in all.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let mut say = |words: &str| {
                let about = format!("{:?} (fault {:?}) then {:?}", a.at, a.fault, b.at);
                wrong.push(format!("{words}: {uuid} at {about}"));
            };
            if a.json() != b.json() {
                say("§4.5.4: changed when sent again");
            }
            if matches!(a.heard(), Some(400 | 409)) {
                say("§7.7: sent again after its refusal");
            }
            if a.life == b.life && a.ended.is_none_or(|ended| b.at < ended) {
                say("sent twice at the same time");
            }
            if a.request_id().is_none() {
                continue;
            }
            let between = |it: &Duration| (a.at..=b.at).contains(it);
            let changed = a.token() != b.token() || times.changes.iter().any(between);
            if !(law.again && (changed || unwritten(a, times))) {
                say("§4.5.4: sent again after a 200 that was delivered whole");
            }
        }
    }
    wrong
}

/// A kill may have kept this answer from being written down.
fn unwritten(seen: &Seen, times: &Times) -> bool {
    let Some(ended) = seen.ended else { return true };
    let near = |kill: &Duration| (seen.at..=ended + COMMIT).contains(kill);
    times.kills.iter().any(near)
}

/// After a 401: `token/info` once a minute, and nothing else.
fn refused_tokens(order: &[&Seen], times: &Times) -> Vec<String> {
    struct Dead {
        since: Duration,
        last: Duration,
        late: usize,
    }
    let mut dead: BTreeMap<&str, Dead> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seen in order {
        if let Some(token) = dead.get_mut(seen.token()).filter(|it| seen.at > it.since) {
            let (most, within) = UNDER_WAY;
            let under_way = seen.at < token.since + within && token.late < most;
            if under_way {
                token.late += 1;
            } else if seen.purpose() != Purpose::TokenInfo {
                let (what, at) = (seen.purpose(), seen.at);
                wrong.push(format!("§7.7: {what:?} with a refused token at {at:?}"));
            } else if seen.at < token.last + MINUTE {
                let apart = seen.at - token.last;
                wrong.push(format!(
                    "§7.7: a refused token asked about again after {apart:?}"
                ));
            }
            token.last = seen.at;
        }
        match seen.heard() {
            Some(401) if unwritten(seen, times) => {}
            Some(401) => {
                dead.entry(seen.token()).or_insert(Dead {
                    since: seen.ended.unwrap_or(seen.at),
                    last: seen.at,
                    late: 0,
                });
            }
            Some(200 | 400 | 403 | 404) => {
                dead.remove(seen.token());
            }
            _ => {}
        }
    }
    wrong
}

/// After a 403: not again within a minute, unless `token/info` was heard meanwhile.
fn missing_grants(order: &[&Seen]) -> Vec<String> {
    let mut denied: BTreeMap<(&str, Purpose), (Duration, Duration)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seen in order {
        let key = (seen.token(), seen.purpose());
        if let Some((first, last)) = denied.get(&key).copied()
            && (first + UNDER_WAY.1..last + MINUTE).contains(&seen.at)
        {
            let (what, apart) = (seen.purpose(), seen.at - last);
            wrong.push(format!("§7.7: {what:?} again {apart:?} after its 403"));
        }
        match seen.heard() {
            Some(403) => {
                let ended = seen.ended.unwrap_or(seen.at);
                let entry = denied.entry(key).or_insert((ended, seen.at));
                entry.1 = seen.at;
            }
            Some(200) if seen.purpose() == Purpose::TokenInfo => {
                denied.retain(|(token, _), _| *token != seen.token());
            }
            Some(200) => {
                denied.remove(&key);
            }
            _ => {}
        }
    }
    wrong
}

fn polls(order: &[&Seen], times: &Times) -> Vec<String> {
    let mut given: BTreeMap<String, &str> = BTreeMap::new();
    for seen in order {
        let answer = seen.answer.as_ref();
        let body = answer.and_then(|it| serde_json::from_slice(&it.body).ok());
        let body: serde_json::Value = body.unwrap_or_default();
        if let Some(id) = body["requestId"].as_str() {
            given.insert(id.to_owned(), seen.token());
        }
    }
    let mut last: BTreeMap<&str, &Seen> = BTreeMap::new();
    let mut over: BTreeSet<&str> = BTreeSet::new();
    let mut wrong = Vec::new();
    for seen in order.iter().filter(|it| it.purpose() == Purpose::Poll) {
        let id = seen.polled().unwrap_or_default();
        match given.get(id) {
            None => wrong.push(format!("§4.6: asked for {id}, which was never given")),
            Some(token) if *token != seen.token() => {
                wrong.push(format!("§3.2: {id} asked for with another token"));
            }
            Some(_) => {}
        }
        if let Some(before) = last.insert(id, seen) {
            let again = before.life == seen.life && seen.at < before.at + ASKED_AGAIN;
            if again {
                wrong.push(format!(
                    "{id} asked for again at {:?}: a busy loop",
                    seen.at
                ));
            }
            if over.contains(id) {
                wrong.push(format!("{id} asked for again after its outcome"));
            }
        }
        let body = seen.answer.as_ref().filter(|it| it.whole);
        let body = body.map(|it| String::from_utf8_lossy(&it.body).into_owned());
        let body = body.unwrap_or_default();
        // one that a kill kept from the spool has to be asked for again
        let kept = seen.heard() == Some(200) && !unwritten(seen, times);
        if kept && (body.contains("\"SUCCESS\"") || body.contains("FAILED")) {
            over.insert(id);
        }
    }
    wrong
}
