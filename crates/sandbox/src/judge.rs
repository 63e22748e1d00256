//! What a request says of its client against the document: repeats too soon (§7.7), and tokens and
//! secrets where they must not be: in an address, at the wrong endpoint, in a header that is
//! ignored. They are known by how they begin (§5.2, §5.6.1).

use super::client_rules::{ATTEMPTS_MAX, Repeat};
use super::core::Sandbox;
use super::envelope::{Delivery, Request, Response, TOKEN_HEADER};
use super::routes::Endpoint;
use super::token::TokenKey;
use super::violations::ViolationKind;
use callbridge_call::EventTime;

impl Sandbox {
    /// What an answer says of how the same request may come again (§7.7). `own`: no fault made it.
    pub(super) fn note_answer(
        &mut self,
        now: EventTime,
        endpoint: Endpoint,
        request: &Request,
        response: &Response,
        own: bool,
    ) {
        self.client
            .rules
            .answered(endpoint, request, now, response, own);
        let at_once = response.delivery == Delivery::Now;
        match (request.method.as_str(), response.status) {
            ("POST", 400 | 409) if at_once => {
                self.client.rules.refused(endpoint, request, response);
            }
            // A missing record is not to be asked for again at once (§7.4).
            ("GET", 409) if at_once && own => {
                if let Some(after) = self.client.rules.missing(request, now) {
                    let words = format!("a missing record again after {} ms", after.as_millis());
                    self.violation(now, ViolationKind::RepeatAfter400, "§7.7", words);
                }
            }
            _ => {}
        }
    }

    pub(super) fn dead_token(&mut self, now: EventTime, key: TokenKey) {
        if let Some(after) = self.client.rules.dead_token(key, now) {
            let words = format!("again with a dead token after {} ms", after.as_millis());
            self.violation(now, ViolationKind::RepeatAfter401, "§7.7", words);
        }
    }

    /// A request that was refused, or failed with a 5xx, comes again (§7.7).
    pub(super) fn judge_repeat(&mut self, now: EventTime, endpoint: Endpoint, request: &Request) {
        if request.method == "POST" && self.client.rules.was_refused(endpoint, request) {
            let words = "the same body again after 400 or 409";
            self.violation(now, ViolationKind::RepeatAfter400, "§7.7", words);
        }
        let (kind, words) = match self.client.rules.after_failure(endpoint, request, now) {
            None => return,
            Some(Repeat::Soon(after)) => {
                let words = format!("the same write {} ms after its 5xx", after.as_millis());
                (ViolationKind::SoonAfter5xx, words)
            }
            Some(Repeat::Often(attempt)) => {
                let words = format!(
                    "attempt {attempt} of a write that failed while others passed; \
                     {ATTEMPTS_MAX} are the most"
                );
                (ViolationKind::RepeatAfter5xx, words)
            }
        };
        self.violation(now, kind, "§7.7", words);
    }
}

/// How a secret begins, what it is, and whether the API takes it in the header of tokens.
type Secret = (&'static str, &'static str, bool);

const KNOWN: [Secret; 5] = [
    ("svc_at_", "an access token", true),
    ("svcrt_", "a refresh token", false),
    ("svc_pat_", "a personal access token", true),
    ("svc_sec_", "a client secret", false),
    ("svc_ac_", "an authorization code", false),
];

/// A request to the API: nothing but the token, and that in its header alone.
pub(crate) fn judge_api(core: &mut Sandbox, now: EventTime, request: &Request) {
    if let Some(what) = found(&request.path).or_else(|| found(&request.query)) {
        // The request's own token in the address is told by the token check.
        let own = |value: &str| request.path.contains(value) || request.query.contains(value);
        if !request.header(TOKEN_HEADER).any(own) {
            tell(core, now, what, "in an address of the API", "§5.6.1");
        }
    }
    for (name, value) in &request.headers {
        // The token check tells of Authorization by itself.
        let Some(what) = found(value).filter(|_| name != "authorization") else {
            continue;
        };
        if name != TOKEN_HEADER {
            tell(core, now, what, "in another header of the API", "§5.1.1");
        } else if !what.2 {
            tell(core, now, what, "in the place of the token", "§5.1.1");
        }
    }
    if let Some(what) = found(&String::from_utf8_lossy(&request.body)) {
        tell(core, now, what, "in a body of the API", "§5.6.1");
    }
}

/// A request to the token or the revoke endpoint: all in the body, and no header of the API.
pub(crate) fn judge_oauth(core: &mut Sandbox, now: EventTime, request: &Request) {
    if !request.query.is_empty() {
        let words = "a query at an OAuth endpoint, whose fields stand in the body";
        core.violation(now, ViolationKind::Invalid, "§4.1", words.to_owned());
    }
    if let Some(what) = found(&request.path).or_else(|| found(&request.query)) {
        tell(core, now, what, "in an address", "§4.1");
    }
    for name in [TOKEN_HEADER, "authorization"] {
        if request.header(name).next().is_some() {
            let words = format!("the header {name} at an OAuth endpoint");
            core.violation(now, ViolationKind::WrongHeader, "§4.1", words);
        }
    }
    let body = String::from_utf8_lossy(&request.body);
    if body.contains("svc_pat_") {
        let words = "a personal access token at an OAuth endpoint".to_owned();
        core.violation(now, ViolationKind::SecretMisplaced, "§5.2", words);
    }
}

/// A request for the authorization page, which a browser makes: no secret at all.
pub(crate) fn judge_consent(core: &mut Sandbox, now: EventTime, request: &Request) {
    let body = String::from_utf8_lossy(&request.body);
    let places = [request.query.as_str(), body.as_ref()];
    if let Some(what) = places.into_iter().find_map(found) {
        tell(core, now, what, "at the authorization page", "§4.2");
    }
}

fn tell(core: &mut Sandbox, now: EventTime, (_, what, _): &Secret, place: &str, rule: &str) {
    let words = format!("{what} {place}");
    core.violation(now, ViolationKind::SecretMisplaced, rule, words);
}

fn found(text: &str) -> Option<&'static Secret> {
    // A quick no for nearly every body.
    if !text.contains("svc") {
        return None;
    }
    KNOWN.iter().find(|(begins, ..)| text.contains(begins))
}
