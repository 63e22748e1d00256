//! The rules of the document for clients, checked against all recorded requests.

use super::left::{SpoolContents, is_known};
use super::seen::{Purpose, Seen};
use std::collections::BTreeMap;
use std::time::Duration;

/// The document says "once a minute". The client counts from its decision to ask, and the judge
/// from the arrival of the request. On a busy machine, these are seconds apart.
const MINUTE: Duration = Duration::from_secs(45);
/// Requests that were under way when another one was refused are allowed: at most this many, and at
/// most this long after the refusal.
const UNDER_WAY: (usize, Duration) = (3, Duration::from_secs(30));
/// An answer that is not stored counts as forgotten when this many later answers are stored. A
/// client has four requests under way and stores answers as they come.
const LATER: usize = 8;
/// Asking for an outcome again sooner than this is a busy loop. A client waits one second after the
/// answer, and the judge's clock starts before the answer arrives.
const ASKED_AGAIN: Duration = Duration::from_millis(900);
/// Fields of a filter in the document (§4.7).
const FILTER: [&str; 4] = ["page", "size", "orders", "registeredTimestampFrom"];

/// Events that the requests do not show.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The spool after each kill of the client.
    pub kills: Vec<SpoolContents>,
    /// Number of connections to the host that redirects lead to.
    pub elsewhere: usize,
}

/// The limits of a test.
#[derive(Clone, Debug)]
pub struct Law {
    /// Requests allowed in any span of the length `window`.
    pub requests: usize,
    pub window: Duration,
    /// The required value of the header `Host`.
    pub host: String,
    /// Refused pages of the journal that are needed to learn its limits (§4.7: `MAX`, an unknown
    /// range).
    pub refused_pages: usize,
    /// Whether a uuid can be sent again after a kill or another token made its requestId unusable
    /// (§3.2, §4.5.4). This is only for tests in which nothing else can show the outcome.
    pub again: bool,
}

/// Returns all violations as text.
pub fn breaches(seen: &[Seen], times: &Times, law: &Law) -> Vec<String> {
    let mut order: Vec<&Seen> = seen
        .iter()
        .filter(|request| !request.method.is_empty())
        .collect();
    order.sort_by_key(|request| request.at);
    let mut wrong = windows(&order, law);
    wrong.extend(order.iter().flat_map(|request| form(request, law)));
    wrong.extend(submissions(&order, times, law));
    wrong.extend(forgotten(&order, times));
    wrong.extend(refused_tokens(&order, times));
    wrong.extend(missing_grants(&order));
    wrong.extend(polls(&order, times));
    let pages = order
        .iter()
        .filter(|request| request.purpose() == Purpose::Filter);
    let refused = pages
        .filter(|page| page.received_status() == Some(400))
        .count();
    if refused > law.refused_pages {
        wrong.push(format!(
            "§4.7: {refused} pages of the journal refused with 400"
        ));
    }
    let limited = order
        .iter()
        .filter(|request| status(request) == Some(429) && request.fault.is_none());
    let limited = limited.count();
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

/// Returns the highest number of counted requests of one token in any span of this length.
pub fn fullest(order: &[&Seen], window: Duration) -> usize {
    let mut arrivals: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for seen in order {
        if status(seen) != Some(401) && seen.purpose() != Purpose::Exchange {
            arrivals.entry(seen.token()).or_default().push(seen.at);
        }
    }
    let most = arrivals.values().map(|times| most_within(times, window));
    most.max().unwrap_or(0)
}

/// Returns the highest number of these times in any span of this length.
fn most_within(times: &[Duration], window: Duration) -> usize {
    let spans = (0..times.len()).map(|first| {
        let end = times[first] + window;
        times.partition_point(|at| *at < end) - first
    });
    spans.max().unwrap_or(0)
}

fn windows(order: &[&Seen], law: &Law) -> Vec<String> {
    let fullest = fullest(order, law.window);
    let over = fullest > law.requests;
    let words = format!("Limits: {fullest} requests within {:?}", law.window);
    over.then_some(words).into_iter().collect()
}

/// Checks headers, method, path, and fields.
fn form(seen: &Seen, law: &Law) -> Vec<String> {
    let exchange = seen.purpose() == Purpose::Exchange;
    let one_token = seen.header("x-open-api-token").count() == 1;
    let plain = seen.header("authorization").count() == 0;
    let here = seen.header("host").eq([law.host.as_str()]);
    let content_type = seen.header("content-type").next().unwrap_or_default();
    let mut checks = vec![
        (exchange != one_token, "§5.1: not one token"),
        (exchange == seen.token().is_empty(), "§5.1: an empty token"),
        (plain, "§5.1.2: Authorization"),
        (here, "another host"),
    ];
    match seen.purpose() {
        Purpose::Other => checks.push((false, "§4: no such endpoint")),
        Purpose::TokenInfo | Purpose::Poll => {
            checks.push((seen.body.is_empty(), "§4: a body on a GET"));
        }
        Purpose::Exchange => {
            let form = content_type == "application/x-www-form-urlencoded";
            checks.push((form, "§4.1: no form"));
        }
        Purpose::Submit | Purpose::Filter => {
            let json = content_type.starts_with("application/json");
            checks.push((json, "no JSON type"));
            checks.push((seen.json().is_object(), "no JSON object"));
        }
    }
    if seen.purpose() == Purpose::Filter {
        let body = seen.json();
        let published = body
            .as_object()
            .is_some_and(|fields| fields.keys().all(|key| FILTER.contains(&key.as_str())));
        checks.push((published, "§4.7: a field that is not published"));
        checks.push((is_within(&body["page"], i64::MAX), "§4.7: no page"));
        checks.push((is_within(&body["size"], 100), "§4.7: no such size"));
    }
    let broken = checks.into_iter().filter(|(holds, _)| !holds);
    let (method, path) = (&seen.method, &seen.path);
    broken
        .map(|(_, words)| format!("{words}: {method} {path} {:?}", seen.headers))
        .collect()
}

/// Returns `true` if the value is a number from 1 to `most`.
fn is_within(value: &serde_json::Value, most: i64) -> bool {
    value
        .as_i64()
        .is_some_and(|number| (1..=most).contains(&number))
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
            let about = format!("{:?} (fault {:?}) then {:?}", a.at, a.fault, b.at);
            for words in resend_breaches(a, b, &uuid, times, law) {
                wrong.push(format!("{words}: {uuid} at {about}"));
            }
        }
    }
    wrong
}

/// Returns the violations of `b`, which is the next submission of the uuid after `a`.
fn resend_breaches(a: &Seen, b: &Seen, uuid: &str, times: &Times, law: &Law) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if a.json() != b.json() {
        wrong.push("§4.5.4: changed when sent again");
    }
    if matches!(a.received_status(), Some(400 | 409)) {
        wrong.push("§7.7: sent again after its refusal");
    }
    if a.life == b.life && a.told.is_none_or(|told| b.at < told) {
        wrong.push("sent twice at the same time");
    }
    let Some(id) = a.request_id() else {
        return wrong;
    };
    let lost =
        a.life < b.life && !is_known(a, &times.kills, |witness| witness.has_acceptance(uuid, &id));
    if !(law.again && (a.token() != b.token() || lost)) {
        wrong.push("§4.5.4: sent again after a 200 that was delivered whole");
    }
    wrong
}

/// Returns answers that were not stored before a kill although many later answers were stored. The
/// kill is not the reason that such an answer is missing.
fn forgotten(order: &[&Seen], times: &Times) -> Vec<String> {
    let mut lives: BTreeMap<usize, Vec<(&Seen, bool)>> = BTreeMap::new();
    for seen in order
        .iter()
        .filter(|request| request.life < times.kills.len())
    {
        if let (Some(uuid), Some(id)) = (seen.uuid(), seen.request_id()) {
            let written = is_known(seen, &times.kills, |witness| {
                witness.has_acceptance(&uuid, &id)
            });
            lives.entry(seen.life).or_default().push((seen, written));
        }
    }
    let mut wrong = Vec::new();
    for answers in lives.values() {
        for (seen, _) in answers.iter().filter(|(_, written)| !written) {
            let stored = answers.iter().filter(|(_, written)| *written);
            let later = stored.filter(|(other, _)| seen.ended.is_some_and(|at| other.at > at));
            let later = later.count();
            if later >= LATER {
                let (uuid, at) = (seen.uuid().unwrap_or_default(), seen.at);
                wrong.push(format!(
                    "the answer at {at:?} about {uuid} was not written down, {later} later were"
                ));
            }
        }
    }
    wrong
}

/// Checks that a 401 is followed only by `token/info`, at most once a minute.
fn refused_tokens(order: &[&Seen], times: &Times) -> Vec<String> {
    struct Dead {
        since: Duration,
        last: Duration,
        late: usize,
        life: usize,
        /// Whether the spool has the refusal, so later processes know it too.
        written: bool,
        /// The life whose `token/info` was refused. It sends `token/info` one at a time, so none of
        /// its others was under way then.
        asked: Option<usize>,
    }
    let mut dead: BTreeMap<&str, Dead> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seen in order {
        if dead
            .get(seen.token())
            .is_some_and(|token| token.life < seen.life && !token.written)
        {
            dead.remove(seen.token());
        }
        let token = dead.get_mut(seen.token());
        if let Some(token) = token.filter(|token| seen.at > token.since) {
            let (most, within) = UNDER_WAY;
            let alone = seen.purpose() == Purpose::TokenInfo && token.asked == Some(seen.life);
            if !alone && seen.at < token.since + within && token.late < most {
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
        match seen.received_status() {
            Some(401) => {
                let token = dead.entry(seen.token()).or_insert(Dead {
                    since: seen.told.unwrap_or(seen.at),
                    last: seen.at,
                    late: 0,
                    life: seen.life,
                    written: is_known(seen, &times.kills, |witness| {
                        witness.has_refused_token(seen.token())
                    }),
                    asked: None,
                });
                if seen.purpose() == Purpose::TokenInfo {
                    token.asked = Some(seen.life);
                }
            }
            Some(200 | 400 | 403 | 404) => {
                dead.remove(seen.token());
            }
            _ => {}
        }
    }
    wrong
}

/// Checks that a request with a 403 is repeated only after a minute or after a successful
/// `token/info`.
fn missing_grants(order: &[&Seen]) -> Vec<String> {
    struct Denied {
        /// When the last request with a 403 was sent.
        last: Duration,
        since: Duration,
        late: usize,
    }
    let checks = order.iter().copied();
    let checks = checks.filter(|request| request.purpose() == Purpose::TokenInfo);
    let valid: Vec<&Seen> = checks
        .filter(|check| check.received_status() == Some(200))
        .collect();
    let mut denied: BTreeMap<(&str, Purpose), Denied> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seen in order {
        let key = (seen.token(), seen.purpose());
        if let Some(refusal) = denied.get(&key)
            && has_valid_token_since(&valid, seen, refusal.last)
        {
            denied.remove(&key);
        }
        let refusal = denied.get_mut(&key);
        if let Some(refusal) = refusal.filter(|refusal| seen.at > refusal.since) {
            let (most, within) = UNDER_WAY;
            if seen.at < refusal.since + within && refusal.late < most {
                refusal.late += 1;
            } else if seen.at < refusal.last + MINUTE {
                let (what, apart) = (seen.purpose(), seen.at - refusal.last);
                wrong.push(format!("§7.7: {what:?} again {apart:?} after its 403"));
            }
        }
        match seen.received_status() {
            Some(403) => {
                let since = seen.told.unwrap_or(seen.at);
                let (last, late) = (seen.at, 0);
                let first = Denied { last, since, late };
                denied.entry(key).or_insert(first).last = seen.at;
            }
            Some(200) => {
                denied.remove(&key);
            }
            _ => {}
        }
    }
    wrong
}

/// Returns `true` if a successful `token/info` of the same token came before this request and ended
/// after the refusal. Such a `token/info` can have been under way during the refusal.
fn has_valid_token_since(valid: &[&Seen], seen: &Seen, refused: Duration) -> bool {
    let checks = valid.iter().filter(|check| check.token() == seen.token());
    let mut earlier = checks.filter(|check| check.at <= seen.at);
    earlier.any(|check| check.ended.is_some_and(|ended| ended >= refused))
}

fn polls(order: &[&Seen], times: &Times) -> Vec<String> {
    let mut given: BTreeMap<String, (&str, String)> = BTreeMap::new();
    for seen in order {
        let answer = seen.answer.as_ref();
        let body = answer.and_then(|answer| serde_json::from_slice(&answer.body).ok());
        let body: serde_json::Value = body.unwrap_or_default();
        if let Some(id) = body["requestId"].as_str() {
            let uuid = seen.uuid().unwrap_or_default();
            given.insert(id.to_owned(), (seen.token(), uuid));
        }
    }
    let mut last: BTreeMap<&str, &Seen> = BTreeMap::new();
    let mut over: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
    let mut wrong = Vec::new();
    let polls = order.iter();
    for seen in polls.filter(|request| request.purpose() == Purpose::Poll) {
        let id = seen.polled_id().unwrap_or_default();
        match given.get(id) {
            None => wrong.push(format!("§4.6: asked for {id}, which was never given")),
            Some((token, _)) if *token != seen.token() => {
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
        }
        // An outcome that a kill kept from the spool must be asked for again.
        if let Some(&(life, written)) = over.get(id)
            && (life == seen.life || written)
        {
            wrong.push(format!("{id} asked for again after its outcome"));
        }
        let answer = seen.answer.as_ref().filter(|answer| answer.whole);
        let body = answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned());
        let body = body.unwrap_or_default();
        if seen.received_status() == Some(200)
            && (body.contains("\"SUCCESS\"") || body.contains("FAILED"))
        {
            let uuid = given.get(id).map_or("", |(_, uuid)| uuid.as_str());
            let written = is_known(seen, &times.kills, |witness| witness.has_outcome(uuid));
            over.insert(id, (seen.life, written));
        }
    }
    wrong
}
