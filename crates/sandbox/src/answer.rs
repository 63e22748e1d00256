//! Answers a request, with the checks in the order of the CRM:
//!
//! ```text
//! token (401, not counted) ─▶ window (429) ─▶ fault ─▶ address (404) ─▶ method (405) ─▶
//! content type (415) ─▶ grant (403) ─▶ body (400) ─▶ the endpoint
//! ```

use crate::{
    Action, Asked, BODY_BYTES_MAX, Endpoint, Grant, Refusal, Refused, Request, Response, Role,
    Sandbox, Success, TOKEN_HEADER, Token, TokenKey, ViolationKind, admin, endpoints,
    envelope::MEDIA_TYPE, envelope::METHOD, envelope::NO_ADDRESS, envelope::TOO_LARGE,
    envelope::auth_refusal, lead::endpoints as leads, oauth::connection, oauth::consent,
    oauth::exchange, routes::route,
};
use callbridge_call::EventTime;

impl Sandbox {
    /// Answers a request that arrived at `now`, which must not be earlier than in a previous call.
    pub fn handle(&mut self, now: EventTime, request: &Request) -> Response {
        self.tick(now);
        if let Some(path) = request.path.strip_prefix("/sandbox/") {
            return admin::answer(self, path, request);
        }
        let (endpoint, id) = route(&request.path);
        let elsewhere = match request.role {
            Role::Whole => false,
            Role::Api => endpoint.is_oauth(),
            Role::Auth => !endpoint.is_oauth(),
        };
        let response = match endpoint {
            _ if elsewhere => {
                // The token and revoke endpoints are served only at `--auth-listen`, and all others
                // only at `--listen` (§5.6.9).
                let message = format!("{} {} at the other address", request.method, request.path);
                self.record_violation(ViolationKind::WrongHost, "§5.6.9", message);
                NO_ADDRESS.respond()
            }
            Endpoint::OauthToken | Endpoint::OauthRevoke => {
                exchange::answer(self, endpoint, request)
            }
            Endpoint::Consent => consent::consent(self, request),
            _ => self.open_api(endpoint, id, request),
        };
        let count = self.client.counts.entry((endpoint, response.status));
        *count.or_default() += 1;
        response
    }

    fn open_api(&mut self, endpoint: Endpoint, id: &str, request: &Request) -> Response {
        if endpoint == Endpoint::Moved {
            let message = format!("{} followed a redirect", request.method);
            self.record_violation(ViolationKind::RedirectFollowed, "§4", message);
        }
        let Some((key, token)) = self.authenticate(request) else {
            return auth_refusal(401);
        };
        let fault = self.faults.pick(endpoint, request);
        if fault == Some(Action::Status(401)) {
            self.record_dead_token(key, "again with a dead token");
            return auth_refusal(401);
        }
        self.client.rules.token_works(key);
        let counted = self.client.windows.count(key, self.now);
        let rate = self.client.windows.rate;
        let connection = (token.company, token.application);
        if let Some(many) = self
            .client
            .rules
            .count_request(connection, key, self.now, rate)
        {
            let message = format!("{many} requests by several tokens within one window's length");
            self.record_violation(ViolationKind::FreshBudget, "Limits", message);
        }
        if !counted.within {
            let number = counted.number;
            let opened = counted.opened;
            let message = format!("request {number} of the window that opened at {opened}");
            self.record_violation(ViolationKind::WindowExceeded, "Limits", message);
            return auth_refusal(429);
        }
        self.answer_with_fault(endpoint, request, fault, |core| {
            core.answer_authenticated(&Asked {
                key,
                token,
                endpoint,
                id,
                request,
                fault,
            })
        })
    }

    /// Checks the token (§5.1): exactly one token header, a known token that is neither revoked nor
    /// expired, and a company that is connected and not blocked. Returns `None` if a check fails.
    /// All failures have the same answer.
    fn authenticate(&mut self, request: &Request) -> Option<(TokenKey, Token)> {
        self.judge_api(request);
        let authorized = request.header("authorization").next().is_some();
        if authorized {
            let message = "the header Authorization is ignored and carries the token elsewhere";
            self.record_violation(ViolationKind::WrongHeader, "§5.1.2", message);
        }
        let asked = (request.method.as_str(), request.path.as_str());
        let values: Vec<&str> = request.header(TOKEN_HEADER).collect();
        let value = match values.as_slice() {
            [value] if !value.is_empty() => *value,
            // A client can send `token/info` without a token to check that the CRM is reachable.
            // This is no violation.
            [] if !authorized && asked == ("GET", "/v1/open-api/token/info") => return None,
            _ => {
                let message = "no token, or more than one, in X-Open-Api-Token";
                self.record_violation(ViolationKind::WrongHeader, "§5.1.1", message);
                return None;
            }
        };
        if request.path.contains(value) || request.query.contains(value) {
            let message = "the token in the address, where every proxy logs it";
            self.record_violation(ViolationKind::WrongHeader, "§5.1.1", message);
        }
        let key = TokenKey::from_value(value);
        let token = self.tokens.get(&key).copied().filter(|token| {
            let connection = connection::connection_of(self, token);
            token.works(self.now) && connection.is_some_and(|(company, _)| !company.blocked)
        });
        if token.is_none() {
            self.record_dead_token(key, "again with a dead token");
        }
        token.map(|token| (key, token))
    }

    /// Answers a request whose token works: checks its method, content type, size, and grant, then
    /// calls the endpoint. Also applies the fault `no-request-id`.
    fn answer_authenticated(&mut self, asked: &Asked<'_>) -> Response {
        let result = self.admit(asked).and_then(|()| match asked.endpoint {
            Endpoint::TokenInfo => Ok(endpoints::token_info(self, asked)),
            Endpoint::CallHistory => endpoints::submit(self, asked),
            Endpoint::Filter => endpoints::filter(self, asked),
            Endpoint::Request => endpoints::request_status(self, asked),
            Endpoint::LeadFilter => leads::filter(self, asked),
            Endpoint::Lead => leads::one(self, asked),
            Endpoint::LeadFields => leads::upsert_fields(self, asked),
            Endpoint::CrmField => Ok(Success::from_data(self.settings.catalog.record())),
            Endpoint::OauthToken
            | Endpoint::OauthRevoke
            | Endpoint::Consent
            | Endpoint::Moved
            | Endpoint::Unknown => Err(NO_ADDRESS),
        });
        match result {
            Ok(mut success) => {
                if asked.fault == Some(Action::NoRequestId) {
                    success.request_id = None;
                }
                success.respond(&asked.token.message(self.now))
            }
            Err(refusal) => {
                self.note(asked, &refusal);
                refusal.respond()
            }
        }
    }

    fn admit(&mut self, asked: &Asked<'_>) -> Result<(), Refusal> {
        let endpoint = asked.endpoint;
        let request = asked.request;
        let Some(method) = endpoint.method() else {
            return Ok(());
        };
        if request.method != method {
            return Err(METHOD);
        }
        if method == "POST" && !request.is_of_type("application/json") {
            return Err(MEDIA_TYPE);
        }
        if request.body.len() > BODY_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        let needed = self.needed(endpoint);
        if !needed.is_none_or(|grant| connection::granted(self, &asked.token, grant)) {
            let what = Refused::Grant(asked.key, endpoint);
            let message = "again without the grant";
            self.record_refusal(what, ViolationKind::RepeatAfter403, message);
            return Err(Refusal::Denied);
        }
        if method != "POST" && !request.body.is_empty() {
            let message = format!("a body on {}", endpoint.word());
            self.record_violation(ViolationKind::WrongMethod, "§4.3", message);
        }
        Ok(())
    }

    /// Returns the grant that a request needs (§5.4.3). For `call-history/filter` and
    /// `request/{requestId}`, a shape selects the grant.
    fn needed(&self, endpoint: Endpoint) -> Option<&str> {
        let shapes = &self.settings.shapes;
        let chosen = match endpoint {
            Endpoint::Filter => &shapes.filter_grant,
            Endpoint::Request => &shapes.request_grant,
            _ => return endpoint.grant(),
        };
        chosen.as_ref().map(Grant::as_str)
    }

    /// Records a violation if the request was refused for its path, method, content type, or body.
    fn note(&mut self, asked: &Asked<'_>, refusal: &Refusal) {
        let Request { method, path, .. } = asked.request;
        let section = asked.endpoint.section();
        let (kind, rule, message) = match refusal {
            Refusal::Unparsable(message) => (ViolationKind::Invalid, section, message.clone()),
            Refusal::Invalid(fields) => (ViolationKind::Invalid, section, format!("{fields:?}")),
            Refusal::Plain(400, message) => {
                (ViolationKind::Invalid, section, (*message).to_owned())
            }
            Refusal::Plain(404, _) if asked.endpoint == Endpoint::Unknown => {
                (ViolationKind::UnknownPath, "§4", format!("{method} {path}"))
            }
            Refusal::Plain(405, _) => {
                (ViolationKind::WrongMethod, "§4", format!("{method} {path}"))
            }
            Refusal::Plain(413, _) => {
                let message = format!("a body above {BODY_BYTES_MAX} bytes");
                (ViolationKind::Invalid, section, message)
            }
            Refusal::Plain(415, _) => {
                let message = format!("{path} without Content-Type application/json");
                (ViolationKind::ContentType, "§4.5", message)
            }
            Refusal::Plain(..) | Refusal::Denied | Refusal::Status(_) => return,
        };
        self.record_violation(kind, rule, message);
    }
}
