//! Checks what a request shows about its client: repeats that come too soon (§7.7), and tokens and
//! secrets in a wrong place, such as an address, another endpoint, or an ignored header. Secrets
//! are recognized by their prefixes (§5.2, §5.6.1).

use crate::{
    Action, Delivery, Endpoint, Refused, Request, Response, Sandbox, TOKEN_HEADER, TokenKey,
    ViolationKind, client_rules::RequestKey, faults::after_effect, faults::instead,
};

/// The prefix of a secret, its kind in words, and `true` if the API accepts it in the token header.
type Secret = (&'static str, &'static str, bool);

const KNOWN: [Secret; 5] = [
    ("svc_at_", "an access token", true),
    ("svcrt_", "a refresh token", false),
    ("svc_pat_", "a personal access token", true),
    ("svc_sec_", "a client secret", false),
    ("svc_ac_", "an authorization code", false),
];

impl Sandbox {
    /// Answers a request with `answer`, or as its `fault` orders. Records a violation if the
    /// request repeats a refused or failed request too soon or too often (§7.7).
    pub(super) fn answer_with_fault(
        &mut self,
        endpoint: Endpoint,
        request: &Request,
        fault: Option<Action>,
        answer: impl FnOnce(&mut Self) -> Response,
    ) -> Response {
        let key = RequestKey::from_request(endpoint, request);
        // A request that was refused, or that failed with a 5xx, must not come again too soon
        // (§7.7).
        let repeated = self.client.rules.find_repeats(key, self.now);
        for (kind, message) in repeated.into_iter().flatten() {
            self.record_violation(kind, "§7.7", message);
        }
        let mut response = match fault.and_then(instead) {
            Some(response) => response,
            None => answer(self),
        };
        if let Some(action) = fault {
            after_effect(&mut response, action);
        }
        let own = fault.is_none();
        self.client
            .rules
            .record_answer(key, self.now, &response, own);
        let missing = own && response.status == 409 && response.delivery == Delivery::Now;
        if missing && request.method == "GET" {
            // A missing record must not be requested again at once (§7.4).
            let message = "a missing record again";
            self.record_refusal(Refused::Record(key), ViolationKind::RepeatAfter400, message);
        }
        response
    }

    /// Records that a token or client credentials were refused with 401. If that happened too
    /// recently before, records a violation with `message`.
    pub(super) fn record_dead_token(&mut self, key: TokenKey, message: &str) {
        self.record_refusal(Refused::Token(key), ViolationKind::RepeatAfter401, message);
    }

    /// Records a refusal. If the previous refusal of the same request was too recent, records a
    /// violation of this `kind` with `message`.
    pub(super) fn record_refusal(&mut self, what: Refused, kind: ViolationKind, message: &str) {
        if let Some(after) = self.client.rules.record_refusal(what, self.now) {
            let text = format!("{message} after {} ms", after.as_millis());
            self.record_violation(kind, "§7.7", text);
        }
    }

    /// Records a violation if a request to the API contains a secret other than the token in its
    /// header.
    pub(super) fn judge_api(&mut self, request: &Request) {
        if let Some(what) = find_secret(&request.path).or_else(|| find_secret(&request.query)) {
            // The request's own token in the address is reported by the token check.
            let is_own = request
                .header(TOKEN_HEADER)
                .any(|token| request.path.contains(token) || request.query.contains(token));
            if !is_own {
                self.record_misplaced(what, "in an address of the API", "§5.6.1");
            }
        }
        for (name, value) in &request.headers {
            // The token check reports Authorization.
            if name == "authorization" {
                continue;
            }
            let Some(what) = find_secret(value) else {
                continue;
            };
            if name != TOKEN_HEADER {
                self.record_misplaced(what, "in another header of the API", "§5.1.1");
            } else if !what.2 {
                self.record_misplaced(what, "in the place of the token", "§5.1.1");
            }
        }
        if let Some(what) = find_secret(&String::from_utf8_lossy(&request.body)) {
            self.record_misplaced(what, "in a body of the API", "§5.6.1");
        }
    }

    /// Records the violations of a request to the token or revoke endpoint: a query, a secret
    /// outside the body, a token header of the API, or a personal access token.
    pub(super) fn judge_oauth(&mut self, request: &Request) {
        if !request.query.is_empty() {
            let message = "a query at an OAuth endpoint, whose fields stand in the body";
            self.record_violation(ViolationKind::Invalid, "§4.1", message);
        }
        if let Some(what) = find_secret(&request.path).or_else(|| find_secret(&request.query)) {
            self.record_misplaced(what, "in an address", "§4.1");
        }
        for name in [TOKEN_HEADER, "authorization"] {
            if request.header(name).next().is_some() {
                let message = format!("the header {name} at an OAuth endpoint");
                self.record_violation(ViolationKind::WrongHeader, "§4.1", message);
            }
        }
        if String::from_utf8_lossy(&request.body).contains("svc_pat_") {
            let message = "a personal access token at an OAuth endpoint";
            self.record_violation(ViolationKind::SecretMisplaced, "§5.2", message);
        }
    }

    /// Records a violation if a request for the authorization page contains a secret. A browser
    /// makes this request, so the secret would be exposed.
    pub(super) fn judge_consent(&mut self, request: &Request) {
        let body = String::from_utf8_lossy(&request.body);
        if let Some(what) = find_secret(&request.query).or_else(|| find_secret(&body)) {
            self.record_misplaced(what, "at the authorization page", "§4.2");
        }
    }

    fn record_misplaced(&mut self, (_, what, _): &Secret, place: &str, rule: &str) {
        let message = format!("{what} {place}");
        self.record_violation(ViolationKind::SecretMisplaced, rule, message);
    }
}

fn find_secret(text: &str) -> Option<&'static Secret> {
    // This check is fast, and excludes nearly every body.
    if !text.contains("svc") {
        return None;
    }
    KNOWN.iter().find(|(begins, ..)| text.contains(begins))
}
