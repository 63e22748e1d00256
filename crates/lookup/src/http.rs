//! `GET /caller` (`--lookup`) over plain HTTP, for a PBX on this machine or in its network.

use crate::answer::{Answer, Format, Question, UnknownReason};
use crate::{desk::Desk, network::Network, tally::Tally};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use callbridge_listener::body::{self, Body};
use callbridge_listener::serve::{self, AnswerHttp, Limits, Open};
use callbridge_listener::site::SiteRules;
use callbridge_listener::{descriptors, places::ConnectionPlace};
use callbridge_model::{ExposeSecret as _, Secret, clock};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use std::{sync::Arc, time::Duration};
use subtle::ConstantTimeEq as _;
use tokio::{net::TcpListener, sync::watch};

pub const PATH: &str = "/caller";
/// Maximum number of connections. Calls that start at the same time each use one for a few
/// milliseconds.
pub const CONNECTIONS_MAX: usize = 256;

/// The addresses and secrets that are allowed to query.
#[derive(Clone, Debug)]
pub struct Access {
    /// `--lookup-allow`, or empty to allow any client that can reach the address, which is then on
    /// loopback.
    pub networks: Vec<Network>,
    /// `--lookup-secret-file`, with the current secret and previous ones, or `None` if no secret is
    /// required.
    pub secrets: Option<watch::Receiver<Vec<Secret>>>,
}

/// What's needed to respond to a request.
#[derive(Clone, Debug)]
pub struct Gate {
    pub desk: Desk,
    pub access: Access,
    /// Counts of the results, including rejections.
    pub tally: Arc<Tally>,
}

/// Serves `GET /caller` on this listener until `stop`.
pub async fn serve(listener: TcpListener, gate: Gate, stop: impl Future<Output = ()>) {
    let limits = Limits {
        connections: descriptors::share(CONNECTIONS_MAX),
        // A PBX gives up within a second, so a slower response is useless.
        head_within: Duration::from_secs(2),
        answer_within: Duration::from_secs(1),
        ..Limits::FEW
    };
    let open = Open {
        name: "--lookup",
        listener,
        tls: None,
        limits,
        site: SiteRules::STRICT,
    };
    serve::serve(open, Arc::new(gate), stop).await;
}

impl AnswerHttp for Gate {
    async fn answer(&self, place: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        let _answering = place.answer();
        let begun = clock::now().boot;
        let (question, format) = Question::read(request.uri().query().unwrap_or_default());
        let (status, answer) = match self.refusal(place, &request) {
            Some((status, reason)) => (status, Answer::unknown(reason)),
            None => (StatusCode::OK, self.desk.ask(question).await),
        };
        self.tally.count(&answer, begun);
        response(status, &answer, format)
    }
}

impl Gate {
    /// Returns the status and reason if a request must be rejected, or `None` if it should get a
    /// result.
    fn refusal(
        &self,
        place: &ConnectionPlace,
        request: &Request<Incoming>,
    ) -> Option<(StatusCode, UnknownReason)> {
        let networks = &self.access.networks;
        let origin = place.origin;
        if !networks.is_empty() && !networks.iter().any(|network| network.contains(origin)) {
            return Some((StatusCode::FORBIDDEN, UnknownReason::Refused));
        }
        if let Some(secrets) = &self.access.secrets {
            let authorization = request.headers().get(header::AUTHORIZATION);
            let given = authorization.and_then(secret_in);
            if !given.is_some_and(|given| is_among(&given, &secrets.borrow())) {
                return Some((StatusCode::UNAUTHORIZED, UnknownReason::Refused));
            }
        }
        if request.uri().path() != PATH {
            return Some((StatusCode::NOT_FOUND, UnknownReason::BadRequest));
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads {
            return Some((StatusCode::METHOD_NOT_ALLOWED, UnknownReason::BadRequest));
        }
        None
    }
}

/// Reads the secret in `Bearer SECRET`, or any user's password in `Basic …` (`CURLOPT(userpwd)`).
fn secret_in(header: &HeaderValue) -> Option<Vec<u8>> {
    let (scheme, rest) = header.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().as_bytes().to_vec());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(rest.trim()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Returns `true` if `given` is one of the secrets. All secrets are compared in constant time, so
/// the duration doesn't reveal anything about them.
fn is_among(given: &[u8], secrets: &[Secret]) -> bool {
    secrets.iter().fold(false, |known, secret| {
        known | bool::from(secret.expose_secret().as_bytes().ct_eq(given))
    })
}

fn response(status: StatusCode, answer: &Answer, format: Format) -> Response<Body> {
    let content_type = match format {
        Format::Json => "application/json",
        Format::Hash => "application/x-www-form-urlencoded",
    };
    let mut response = body::response(status, content_type, body::whole(answer.text(format)));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let challenge = HeaderValue::from_static("Basic realm=\"callbridge\"");
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret_of_header(text: &'static str) -> Option<Vec<u8>> {
        secret_in(&HeaderValue::from_static(text))
    }

    #[test]
    fn secret_is_read_from_basic_password_or_bearer_token() {
        assert_eq!(
            secret_of_header("Bearer s3cret").as_deref(),
            Some(&b"s3cret"[..])
        );
        assert_eq!(
            secret_of_header("basic Y2FsbGJyaWRnZTphOmI=").as_deref(),
            Some(&b"a:b"[..])
        );
        for wrong in ["", "s3cret", "Digest x", "Basic !!!", "Basic bm9jb2xvbg=="] {
            assert_eq!(secret_of_header(wrong), None, "{wrong}");
        }
        let secrets = ["new", "old"].map(|secret| Secret::from(secret.to_owned()));
        assert!(is_among(b"new", &secrets) && is_among(b"old", &secrets));
        assert!(!is_among(b"", &secrets) && !is_among(b"newer", &secrets));
        assert!(!is_among(b"", &[]));
    }
}
