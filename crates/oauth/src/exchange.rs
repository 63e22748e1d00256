//! A client for the OAuth endpoints (§4.1), which exchanges a code or a refresh token for a new
//! pair of tokens, and revokes tokens.
//!
//! These endpoints have their own host and format. Requests are form-encoded and lack the API's
//! header, and a success isn't wrapped in an envelope. They don't count toward a token's 60
//! requests.

use super::connection::Client;
use callbridge_call::redact::Redactor;
use callbridge_crm::{self as crm, Unanswered};
use callbridge_model::{ExposeSecret, Secret, is_token, safe};
use serde_json::{Map, Value};
use std::time::Duration;
use url::form_urlencoded::{Serializer, byte_serialize};

/// An access token's lifetime if the response doesn't contain one (Limits).
const LIFE: Duration = Duration::from_secs(3_600);
/// Upper limit for an access token's lifetime, to which any longer lifetime in a response is
/// reduced.
const LIFE_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Maximum length in characters of an error text. Anything longer is cut off.
const WORDS_MAX: usize = 300;

/// A request to the OAuth endpoints, along with its secret.
#[derive(Clone, Debug)]
pub enum TokenRequest {
    /// Exchange an authorization code for the first pair of tokens.
    Code(Secret),
    /// Exchange a refresh token for the next pair of tokens.
    Refresh(Secret),
    /// Revoke an access token or a refresh token.
    Revoke(Secret),
}

impl TokenRequest {
    /// Returns the endpoint's name, which is the last segment of its path. In metrics, it's
    /// prefixed with `oauth_`.
    pub const fn endpoint(&self) -> &'static str {
        match self {
            Self::Code(_) | Self::Refresh(_) => "token",
            Self::Revoke(_) => "revoke",
        }
    }

    /// Sends the request to the OAuth endpoint at `host`, using the ID and secret of `client`. Any
    /// result is a [`TokenReply`].
    pub async fn send(&self, host: &crm::Client, client: &Client) -> TokenReply {
        let path = ["v1", "open-api", "oauth", self.endpoint()];
        match host.post_form(&path, self.form(client)).await {
            Ok((status, body)) => read_redacted(self, status, &body, &self.redactor(client)),
            Err(Unanswered::NotSent(why)) => TokenReply::NotSent(name_auth_flag(&why)),
            Err(Unanswered::Perhaps(why)) => TokenReply::Unsure(name_auth_flag(&why)),
        }
    }

    /// Returns a redactor that removes this request's secrets from the texts in its response.
    fn redactor(&self, client: &Client) -> Redactor {
        let (Self::Code(secret) | Self::Refresh(secret) | Self::Revoke(secret)) = self;
        let mut redactor = Redactor::default();
        for secret in [secret, &client.client_secret] {
            redactor.add(secret.expose_secret());
            // If the response echoes the whole form, the secret may have been encoded a second
            // time.
            let in_form: String = byte_serialize(secret.expose_secret().as_bytes()).collect();
            redactor.add(&in_form);
        }
        redactor
    }

    fn form(&self, client: &Client) -> String {
        let mut form = Serializer::new(String::new());
        match self {
            Self::Code(code) => form
                .append_pair("grant_type", "authorization_code")
                .append_pair("code", code.expose_secret())
                .append_pair("redirect_uri", &client.redirect_uri),
            Self::Refresh(token) => form
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token.expose_secret()),
            Self::Revoke(token) => form.append_pair("token", token.expose_secret()),
        };
        form.append_pair("client_id", &client.client_id)
            .append_pair("client_secret", client.client_secret.expose_secret())
            .finish()
    }
}

/// A new pair of access and refresh token (§4.1.1).
#[derive(Clone, Debug)]
pub struct Pair {
    /// The response's `access_token`, which is visible ASCII.
    pub access: Secret,
    /// The response's `refresh_token`, or `None` if it has none, in which case the old refresh
    /// token stays in use.
    pub refresh: Option<Secret>,
    /// The response's `expires_in`, from 1 s to 366 days, or one hour if it's missing or not a
    /// number.
    pub life: Duration,
    /// The response's `scope`, i.e., the granted scope, or `None` if it has none, which means that
    /// the scope is unchanged.
    pub scope: Option<String>,
    /// The response's `webhook_secret`, which is only returned by the first exchange (§5.6.8).
    pub webhook_secret: Option<Secret>,
    /// The response's `embedded_secret`, which is only returned by the first exchange (§5.6.8).
    pub embedded_secret: Option<Secret>,
}

/// What a response from the OAuth endpoints, or the lack of one, means.
#[derive(Clone, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TokenReply {
    /// A new pair of tokens was issued. The code or refresh token that was exchanged for it can't
    /// be used again.
    #[strum(serialize = "granted")]
    Pair(Box<Pair>),
    /// The token was revoked or unknown.
    Revoked,
    /// 400: the code or token isn't valid, or no longer is.
    Refused(String),
    /// 401: client_id or client_secret isn't valid.
    WrongClient(String),
    /// The request may have been carried out, but its response was lost (a 5xx, a timeout, an
    /// invalid response, or a proxy's response).
    Unsure(String),
    /// Nothing was sent, because no connection could be established.
    NotSent(String),
    /// 429 or 425: the request wasn't carried out, because it came too early.
    TooMany,
    /// The request wasn't carried out, because the host has no OAuth endpoint at this URL or
    /// rejects the request before it reaches the endpoint.
    WrongAddress(String),
}

impl TokenReply {
    /// Returns the outcome's name in metrics.
    pub fn word(&self) -> &'static str {
        self.into()
    }
}

/// Replaces `--crm-url` with `--auth-url` in an error message from the HTTP client, because the
/// OAuth endpoints have their own URL.
pub(crate) fn name_auth_flag(why: &str) -> String {
    why.replace("--crm-url", "--auth-url")
}

/// Reads the response to the request `ask`, going by its status (§7.6). A 400 or 401 without the
/// envelope must come from a proxy, so it's `Unsure`, because a proxy doesn't know anything about
/// codes, tokens, or clients (§7.1).
pub fn read(ask: &TokenRequest, status: u16, body: &[u8]) -> TokenReply {
    read_redacted(ask, status, body, &Redactor::default())
}

/// Reads a response like [`read`], and removes the request's secrets from all texts.
fn read_redacted(ask: &TokenRequest, status: u16, body: &[u8], redactor: &Redactor) -> TokenReply {
    let object = serde_json::from_slice::<Map<String, Value>>(body).ok();
    let own = object.as_ref().is_some_and(crm::is_own);
    let text = object.as_ref().map(|object| error_text(object, redactor));
    let message = match text.as_deref() {
        None | Some("") => status.to_string(),
        Some(text) => format!("{status}: {text}"),
    };
    match status {
        200..=299 if matches!(ask, TokenRequest::Revoke(_)) => TokenReply::Revoked,
        200..=299 => match object.as_ref().map(|object| pair(object, redactor)) {
            Some(Some(pair)) => TokenReply::Pair(Box::new(pair)),
            Some(None) => TokenReply::Unsure(format!("{status} without a token")),
            None => TokenReply::Unsure(format!("{status} with a body that is not a JSON object")),
        },
        400 if own => TokenReply::Refused(message),
        401 if own => TokenReply::WrongClient(message),
        400 | 401 => TokenReply::Unsure(format!("{message}, but not from the CRM")),
        408 => TokenReply::Unsure(message),
        425 | 429 => TokenReply::TooMany,
        300..=499 => TokenReply::WrongAddress(message),
        _ => TokenReply::Unsure(message),
    }
}

/// Reads a pair of tokens, returning `None` if there's no valid access token. The fields are at the
/// top level as documented (§4.1), or in an envelope's `data`.
fn pair(object: &Map<String, Value>, redactor: &Redactor) -> Option<Pair> {
    let fields = if object.contains_key("access_token") {
        object
    } else {
        object.get("data").and_then(Value::as_object)?
    };
    let scope = match fields.get("scope") {
        Some(Value::String(scope)) => Some(scope.clone()),
        Some(Value::Array(all)) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            Some(all.join(" "))
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => None,
    };
    Some(Pair {
        access: token_under(fields, "access_token")?,
        refresh: token_under(fields, "refresh_token"),
        life: life(fields),
        scope: scope.map(|scope| redactor.redact(&scope)),
        webhook_secret: secret_under(fields, "webhook_secret"),
        embedded_secret: secret_under(fields, "embedded_secret"),
    })
}

/// Returns the access token's lifetime, which is `expires_in`, or one hour if that's missing or not
/// a positive number.
fn life(fields: &Map<String, Value>) -> Duration {
    let number = fields.get("expires_in").and_then(Value::as_f64);
    let seconds = number.or_else(|| text_under(fields, "expires_in")?.parse().ok());
    match seconds {
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => {
            Duration::from_secs_f64(seconds.clamp(1.0, LIFE_MAX.as_secs_f64()))
        }
        Some(_) | None => LIFE,
    }
}

fn text_under<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    fields.get(key).and_then(Value::as_str).map(str::trim)
}

fn secret_under(fields: &Map<String, Value>, key: &str) -> Option<Secret> {
    let text = text_under(fields, key);
    text.filter(|text| !text.is_empty()).map(Secret::from)
}

fn token_under(fields: &Map<String, Value>, key: &str) -> Option<Secret> {
    let text = text_under(fields, key);
    text.filter(|text| is_token(text)).map(Secret::from)
}

/// Returns the text of an error response, which is either the envelope's `message` (§7.6) or a
/// field from RFC 6749.
fn error_text(object: &Map<String, Value>, redactor: &Redactor) -> String {
    let keys = ["message", "error_description", "error"];
    let texts = keys.iter().filter_map(|key| object.get(*key)?.as_str());
    let text = texts.map(str::trim).find(|text| !text.is_empty());
    let text = safe(&redactor.redact(text.unwrap_or_default()));
    text.chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::connection::tests::connection;
    use super::*;
    use callbridge_call::redact::REDACTED;
    use proptest::prelude::*;
    use serde_json::json;

    fn refresh() -> TokenRequest {
        TokenRequest::Refresh(Secret::from("svcrt_hidden"))
    }

    fn classify(status: u16, body: &Value) -> TokenReply {
        let ask = refresh();
        let redactor = ask.redactor(&connection().client);
        read_redacted(&ask, status, body.to_string().as_bytes(), &redactor)
    }

    fn read_pair(body: &Value) -> Pair {
        match classify(200, body) {
            TokenReply::Pair(pair) => *pair,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn forms_contain_only_the_documented_fields() {
        let client = connection().client;
        let code = TokenRequest::Code(Secret::from("a b&c"));
        insta::assert_snapshot!(code.form(&client).replace('&', "\n"), @r"
        grant_type=authorization_code
        code=a+b%26c
        redirect_uri=http%3A%2F%2F127.0.0.1%3A8765%2Fback
        client_id=svc_app_1
        client_secret=svc_sec_hidden
        ");
        insta::assert_snapshot!(refresh().form(&client).replace('&', "\n"), @r"
        grant_type=refresh_token
        refresh_token=svcrt_hidden
        client_id=svc_app_1
        client_secret=svc_sec_hidden
        ");
        let revoke = TokenRequest::Revoke(Secret::from("svcrt_hidden"));
        insta::assert_snapshot!(revoke.form(&client).replace('&', "\n"), @r"
        token=svcrt_hidden
        client_id=svc_app_1
        client_secret=svc_sec_hidden
        ");
    }

    #[test]
    fn token_pair_is_read_with_or_without_optional_fields() {
        let whole = json!({
            "access_token": "svc_at_1", "token_type": "Bearer", "expires_in": 20,
            "refresh_token": "svcrt_1", "scope": "A:READ", "webhook_secret": "ab", "later": [1],
        });
        let pair = read_pair(&whole);
        assert_eq!(pair.access.expose_secret(), "svc_at_1");
        assert_eq!(pair.refresh.expect("given").expose_secret(), "svcrt_1");
        assert_eq!(pair.life, Duration::from_secs(20));
        assert_eq!(pair.scope.as_deref(), Some("A:READ"));
        assert!(pair.webhook_secret.is_some() && pair.embedded_secret.is_none());
        let bare = read_pair(&json!({"data": {"access_token": "svc_at_1", "expires_in": "7"}}));
        assert_eq!(bare.life, Duration::from_secs(7));
        assert!(bare.refresh.is_none() && bare.scope.is_none());
        for odd in [json!(null), json!(-1), json!("x"), json!(0)] {
            let pair = read_pair(&json!({"access_token": "svc_at_1", "expires_in": odd}));
            assert_eq!(pair.life, LIFE, "{odd}");
        }
    }

    #[test]
    fn answer_is_classified_by_its_status() {
        let words = json!({"message": "Yaroqsiz", "accept": false, "error": null, "errors": []});
        for (status, word) in [
            (200, "unsure"),
            (302, "wrong_address"),
            (400, "refused"),
            (401, "wrong_client"),
            (403, "wrong_address"),
            (404, "wrong_address"),
            (408, "unsure"),
            (429, "too_many"),
            (500, "unsure"),
            (503, "unsure"),
            (999, "unsure"),
        ] {
            assert_eq!(classify(status, &words).word(), word, "{status}");
        }
        assert!(matches!(classify(400, &words), TokenReply::Refused(it) if it == "400: Yaroqsiz"));
        for (status, page) in [
            (400, "<html>400</html>"),
            (401, "{\"message\": \"Denied\"}"),
        ] {
            let gateway = read(&refresh(), status, page.as_bytes());
            assert_eq!(gateway.word(), "unsure", "{status} {page}");
        }
        let revoke = TokenRequest::Revoke(Secret::from("x"));
        assert!(matches!(read(&revoke, 200, b""), TokenReply::Revoked));
    }

    #[test]
    fn echoed_secrets_of_a_request_are_redacted() {
        let long = "x".repeat(WORDS_MAX - 1 - REDACTED.len());
        for key in ["message", "error_description", "error"] {
            for echoed in [
                "svcrt_hidden",
                "svc_sec_hidden",
                "svcrt%5Fhidden",
                // svc_app_1:svc_sec_hidden
                "c3ZjX2FwcF8xOnN2Y19zZWNfaGlkZGVu",
            ] {
                let body = json!({"accept": false, key: format!("no {echoed}")});
                for (status, text) in [
                    (400, "400: no [redacted]"),
                    (401, "401: no [redacted]"),
                    (403, "403: no [redacted]"),
                    (500, "500: no [redacted]"),
                ] {
                    let shown = format!("{:?}", classify(status, &body));
                    assert!(shown.contains(text), "{shown}");
                }
                let cut = json!({"accept": false, key: format!("{long} {echoed}")});
                let shown = format!("{:?}", classify(400, &cut));
                assert!(shown.ends_with("x [redacted]\")"), "{shown}");
            }
        }
        let granted =
            read_pair(&json!({"access_token": "svc_at_1", "scope": "A:READ svcrt_hidden"}));
        assert_eq!(granted.scope.as_deref(), Some("A:READ [redacted]"));
    }

    #[test]
    fn debug_output_contains_no_secret() {
        let pair = read_pair(&json!({
            "access_token": "svc_at_hidden", "refresh_token": "svcrt_hidden",
            "webhook_secret": "hidden", "embedded_secret": "hidden",
        }));
        let shown = format!(
            "{pair:?} {:?} {:?}",
            refresh(),
            TokenReply::Pair(Box::new(pair.clone()))
        );
        assert!(!shown.contains("hidden"), "{shown}");
    }

    proptest! {
        #[test]
        fn token_answer_parser_never_panics(
            status in 0u16..1000,
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = read(&refresh(), status, &body);
        }
    }
}
