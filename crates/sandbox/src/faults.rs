//! Fault rules, which order errors of the CRM or of the network. The same text also selects shapes:
//! answer formats and rules that the document leaves open.
//!
//! ```text
//! ENDPOINT [with TEXT] [after N] [times K] [chance P%] ACTION   one per line, or with ; between
//! TEXT      the rule applies only to requests with TEXT in their body or path
//! ENDPOINT  any, token-info, call-history, filter, request, lead, lead-filter, lead-fields,
//!           crm-field, oauth-token, oauth-revoke ([`Endpoint::word`])
//! ACTION    status N         refused with N before anything was done
//!           gateway N        as status N, with the HTML page of a proxy
//!           status-after N   done, then answered N
//!           lost             done, then closed without an answer
//!           cut              closed without an answer, nothing done
//!           delay TIME       done, answered after TIME
//!           slow TIME        done, the body is sent in pieces over TIME
//!           broken           done, answered with half the body
//!           no-request-id    done, 200 without requestId
//!           accept-false     200 with accept false, nothing done
//!           redirect         302 to another path
//!           failed           accepted, then FAILED
//!           hold TIME        accepted, written TIME later than others
//! shape status bare|object, shape rows strings|objects, shape rows-key NAME,
//! shape page inside|beside, shape range kept|ignored|refused, shape registered stored|started,
//! shape size-max N, shape pending WORD,
//! shape filter-grant none|PERMISSION:SCOPE, shape request-grant none|PERMISSION:SCOPE,
//! shape orders kept|ignored|refused,
//! shape webhook-call-id prefixed|plain, shape webhook-extra yes|no, shape webhook-shuffled yes|no,
//! shape webhook-twice P%, shape webhook-late TIME
//! shape journal-without FIELD,…, shape journal-foreign PROVIDER
//! ```

use crate::{
    Delivery, Endpoint, Refusal, Request, Response, Shapes, envelope::auth_refusal,
    window::parse_duration,
};
use std::time::Duration;

/// The fault that a rule orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is refused with this status and not carried out.
    Status(u16),
    /// The request is refused with this status and the HTML page of a proxy, and not carried out.
    Gateway(u16),
    /// The request is carried out, then answered with this status.
    StatusAfter(u16),
    /// The request is carried out, then the connection is closed without an answer.
    Lost,
    /// The connection is closed without an answer, and the request is not carried out.
    Cut,
    /// The request is carried out, and answered after this time.
    Delay(Duration),
    /// The request is carried out, and the body of the answer is sent in pieces over this time.
    Slow(Duration),
    /// The request is carried out, and answered with only the first half of the body.
    Broken,
    /// The write is accepted, and answered with 200 but without a requestId.
    NoRequestId,
    /// The answer is 200 with `accept: false`, and the request is not carried out.
    AcceptFalse,
    /// The answer is 302 to another path of the sandbox, and the request is not carried out.
    Redirect,
    /// The write is accepted with 200, and later ends FAILED.
    Failed,
    /// The write is accepted, and carried out this much later than without the rule.
    Hold(Duration),
}

/// A fault, and the requests that it applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The endpoint that the rule applies to. `None` means any.
    pub endpoint: Option<Endpoint>,
    /// The rule applies only to requests with this text in their body or path.
    pub with: Option<String>,
    /// Number of matching requests that pass before the rule applies.
    pub after: u64,
    /// Number of requests that the rule applies to. `None` means no limit.
    pub times: Option<u64>,
    /// Probability that the rule applies, in millionths. 1,000,000 means always.
    pub chance_ppm: u32,
    /// The fault of the requests that the rule applies to.
    pub action: Action,
}

impl Rule {
    /// Creates a rule for every request of the endpoint.
    pub const fn always(endpoint: Endpoint, action: Action) -> Self {
        Self {
            endpoint: Some(endpoint),
            with: None,
            after: 0,
            times: None,
            chance_ppm: 1_000_000,
            action,
        }
    }

    /// Creates a rule for the next `times` requests of the endpoint.
    pub const fn next(endpoint: Endpoint, times: u64, action: Action) -> Self {
        let mut rule = Self::always(endpoint, action);
        rule.times = Some(times);
        rule
    }
}

/// Parses a text of fault rules and shapes.
///
/// # Errors
/// A message for every line that cannot be read.
pub fn parse(text: &str) -> Result<(Vec<Rule>, Shapes), Vec<String>> {
    let mut rules = Vec::new();
    let mut shapes = Shapes::default();
    let mut wrong = Vec::new();
    let uncommented = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    for line in uncommented.flat_map(|line| line.split(';')).map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let read = match words.as_slice() {
            [] => Ok(()),
            ["shape", name, value] => shapes.set(name, value),
            _ => parse_rule(&words).map(|rule| rules.push(rule)),
        };
        if let Err(message) = read {
            wrong.push(format!("fault `{line}`: {message}"));
        }
    }
    if wrong.is_empty() {
        Ok((rules, shapes))
    } else {
        Err(wrong)
    }
}

fn parse_rule(words: &[&str]) -> Result<Rule, String> {
    let (first, mut rest) = words.split_first().ok_or("nothing in it")?;
    // Both arguments are placeholders, which are replaced below.
    let mut rule = Rule::always(Endpoint::Unknown, Action::Lost);
    rule.endpoint = match *first {
        "any" => None,
        word => match Endpoint::from_word(word) {
            Some(endpoint) => Some(endpoint),
            None => return Err(format!("`{word}` is none of any, {}", Endpoint::words())),
        },
    };
    while let [key, value, more @ ..] = rest {
        match *key {
            "with" => rule.with = Some((*value).to_owned()),
            "after" => rule.after = number(value)?,
            "times" => rule.times = Some(number(value)?),
            "chance" => rule.chance_ppm = percent(value)?,
            _ => break,
        }
        rest = more;
    }
    rule.action = parse_action(rest)?;
    Ok(rule)
}

fn parse_action(words: &[&str]) -> Result<Action, String> {
    Ok(match words {
        ["status", status] => Action::Status(status_number(status)?),
        ["gateway", status] => Action::Gateway(status_number(status)?),
        ["status-after", status] => Action::StatusAfter(status_number(status)?),
        ["lost"] => Action::Lost,
        ["cut"] => Action::Cut,
        ["delay", time] => Action::Delay(parse_duration(time)?),
        ["slow", time] => Action::Slow(parse_duration(time)?),
        ["broken"] => Action::Broken,
        ["no-request-id"] => Action::NoRequestId,
        ["accept-false"] => Action::AcceptFalse,
        ["redirect"] => Action::Redirect,
        ["failed"] => Action::Failed,
        ["hold", time] => Action::Hold(parse_duration(time)?),
        other => return Err(format!("`{}` is not an action", other.join(" "))),
    })
}

/// Parses a number. The error is a message.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    (text.parse()).map_err(|_| format!("`{text}` is not a number"))
}

fn status_number(text: &str) -> Result<u16, String> {
    let status = (text.parse().ok()).filter(|status| (300..=599).contains(status));
    status.ok_or_else(|| format!("`{text}` is not a status from 300 to 599"))
}

fn percent(text: &str) -> Result<u32, String> {
    let value = (text.strip_suffix('%')).and_then(|digits| digits.parse::<f64>().ok());
    match value {
        Some(value) if (0.0..=100.0).contains(&value) => Ok((value * 10_000.0).round() as u32),
        Some(_) | None => Err(format!("`{text}` is not a percentage such as 5%")),
    }
}

/// A random number generator that gives the same numbers for the same seed (splitmix64).
#[derive(Clone, Debug, Default)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits of the sequence.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a random number that is less than `bound`, or 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        let roll = self.roll();
        if bound == 0 { 0 } else { roll % bound }
    }
}

/// The fault rules, with counts of their requests.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Each rule, with the number of requests that matched it, and the number that it applied to.
    pub(crate) rules: Vec<(Rule, u64, u64)>,
    dice: Dice,
}

impl Faults {
    /// Creates the list of rules. If several rules apply to a request, the first rule decides.
    /// `seed` is for rules that apply with a chance.
    pub fn new(rules: Vec<Rule>, seed: u64) -> Self {
        let rules = rules.into_iter().map(|rule| (rule, 0, 0)).collect();
        let dice = Dice::new(seed ^ 0xfa17);
        Self { rules, dice }
    }

    /// Counts a request in all rules that match it. Returns the action of the first rule that
    /// applies.
    pub fn pick(&mut self, endpoint: Endpoint, request: &Request) -> Option<Action> {
        let mut struck = None;
        for (rule, seen, fired) in &mut self.rules {
            let elsewhere = rule.endpoint.is_some_and(|only| only != endpoint);
            let without = rule.with.as_ref().is_some_and(|text| !request.holds(text));
            if elsewhere || without {
                continue;
            }
            *seen += 1;
            let due = *seen > rule.after && rule.times.is_none_or(|times| *fired < times);
            let always = rule.chance_ppm >= 1_000_000;
            let chance = u64::from(rule.chance_ppm);
            if due && struck.is_none() && (always || self.dice.below(1_000_000) < chance) {
                *fired += 1;
                struck = Some(rule.action);
            }
        }
        struck
    }
}

/// Returns the answer of a fault that refuses the request before it reaches the endpoint. Returns
/// `None` for other faults.
pub(super) fn instead(action: Action) -> Option<Response> {
    Some(match action {
        Action::Status(429) => auth_refusal(429),
        Action::Status(status @ 300..=399) | Action::Gateway(status @ 300..=399) => {
            redirect(status)
        }
        Action::Status(403) => Refusal::Denied.respond(),
        Action::Status(status) => Refusal::Status(status).respond(),
        Action::Gateway(status) => {
            let page = format!("<html><body><h1>{status}</h1><hr>nginx</body></html>\n");
            Response::new(status, "text/html", page)
        }
        Action::Redirect => redirect(302),
        Action::Cut => Response {
            delivery: Delivery::Lost,
            ..empty_response(500)
        },
        Action::AcceptFalse => Refusal::Plain(200, "Qabul qilinmadi").respond(),
        _ => return None,
    })
}

fn redirect(status: u16) -> Response {
    Response {
        location: Some("/v1/open-api/moved".to_owned()),
        ..empty_response(status)
    }
}

fn empty_response(status: u16) -> Response {
    Response {
        body: Vec::new(),
        ..Refusal::Status(status).respond()
    }
}

/// Applies a fault to the answer of a request that was carried out.
pub(super) fn after_effect(response: &mut Response, action: Action) {
    match action {
        Action::StatusAfter(status) => *response = Refusal::Status(status).respond(),
        Action::Lost => response.delivery = Delivery::Lost,
        Action::Delay(time) => response.delivery = Delivery::After(time),
        Action::Slow(time) => response.delivery = Delivery::Slow(time),
        Action::Broken => response.body.truncate(response.body.len() / 2),
        _ => {}
    }
}

impl Action {
    /// Returns `true` if the client learns at once from the answer that its write was accepted.
    pub(super) const fn leaves_answer_whole(self) -> bool {
        matches!(self, Self::Failed | Self::Hold(_))
    }
}
