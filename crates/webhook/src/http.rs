//! Serves `POST /webhooks` over plain HTTP or our own TLS. A body is verified as it arrives, and
//! all bodies share a memory budget, so that a flood of requests can't keep out the CRM's
//! deliveries.

use super::headers::Headers;
use super::receiver::{BODY_WITHIN, Receiver};
use callbridge_listener::body::{self, Body};
use callbridge_listener::budget::ByteBudget;
use callbridge_listener::held::{BodyFault, BodyLimits, HeldBody};
use callbridge_listener::places::ConnectionPlace;
use callbridge_listener::serve::{AnswerHttp, Limits, Open};
use callbridge_listener::site::{HostRule, SiteRules};
use callbridge_listener::{descriptors, serve};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, header::HeaderValue};
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

/// The path of the URL that receives events.
pub const PATH: &str = "/webhooks";
/// Maximum length of a body in bytes. An event has a few kilobytes.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// A body that's too large is read and discarded up to this many bytes, so that its sender gets the
/// response.
pub const PASSED_OVER_MAX: usize = 16 << 20;
/// Memory budget in bytes for all bodies together, apart from what each one gets for free.
pub const BUDGET_BYTES: usize = 8 << 20;
/// Maximum number of open connections. The CRM has up to 20 deliveries per company in flight. With
/// this many places, a connection can't be closed until 512 others have arrived, which takes 0.2 s
/// in a flood of 2,500 per second.
pub const CONNECTIONS_MAX: usize = 1024;

/// Returns the listener's limits for this many connections.
pub fn limits(connections: usize) -> Limits {
    Limits {
        connections,
        stop_within: Duration::from_secs(2),
        ..Limits::FEW
    }
}

/// Serves `--webhook-listen` until `stop`, using TLS if `tls` has settings. At most `connections`
/// are open at once, or fewer if the limit on open files is low. The daemon uses
/// [`CONNECTIONS_MAX`].
pub async fn serve(
    listener: TcpListener,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    receiver: Arc<Receiver>,
    connections: usize,
    stop: impl Future<Output = ()>,
) {
    let open = Open {
        name: "--webhook-listen",
        listener,
        tls,
        limits: limits(descriptors::share(connections)),
        site: SiteRules {
            // Any hostname is accepted, because each delivery is verified by its signature, and a
            // proxy passes on its public name.
            hosts: HostRule::Any,
            ..SiteRules::STRICT
        },
    };
    let budget = ByteBudget::new(BUDGET_BYTES);
    let gate = Gate { receiver, budget };
    serve::serve(open, Arc::new(gate), stop).await;
}

/// Reads requests within the memory budget, and passes their bodies to the receiver.
struct Gate {
    receiver: Arc<Receiver>,
    budget: ByteBudget,
}

impl Gate {
    fn turn_away(&self, status: u16, word: &'static str) -> Response<Body> {
        self.receiver.record_refusal(word, status, "");
        response(status, word)
    }
}

impl AnswerHttp for Gate {
    async fn answer(&self, place: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path().trim_end_matches('/') != PATH {
            return self.turn_away(404, "no_such_path");
        }
        if request.method() != Method::POST {
            let mut response = self.turn_away(405, "no_such_method");
            let allow = HeaderValue::from_static("POST");
            response.headers_mut().insert(header::ALLOW, allow);
            return response;
        }
        let all = request.headers().iter();
        let headers = Headers::read(all.map(|(name, value)| (name.as_str(), value.as_bytes())));
        let headers = match headers {
            Ok(headers) => headers,
            Err(refusal) => {
                let answer = self.receiver.refuse(&refusal);
                return response(answer.status, answer.word);
            }
        };
        if length(&request).is_some_and(|(length, most)| length > most) {
            return self.turn_away(413, "too_large");
        }
        let mut proof = self.receiver.proof(&headers);
        let limits = BodyLimits {
            bytes_max: BODY_BYTES_MAX,
            dropped_max: PASSED_OVER_MAX,
        };
        let mut held = HeldBody::new(limits, self.budget.share());
        let reading = held.read(request.into_body(), |piece| proof.add(piece));
        let body = match timeout(BODY_WITHIN, reading).await {
            Ok(Ok(body)) => body,
            Ok(Err(BodyFault::Cut)) => return self.turn_away(408, "cut"),
            Ok(Err(BodyFault::TooLarge)) => return self.turn_away(413, "too_large"),
            // The lack of memory isn't the sender's fault, so the response makes it retry.
            Ok(Err(BodyFault::NoRoom)) => return self.turn_away(503, "no_room"),
            Err(_) => return self.turn_away(408, "too_slow"),
        };
        let _answering = place.answer();
        let answer = self.receiver.take(&headers, proof, &body).await;
        response(answer.status, answer.word)
    }

    fn no_tls(&self, why: &'static str) {
        self.receiver.record_refusal("no_tls", 0, why);
    }
}

/// Returns the declared length of a request's body, along with the maximum for this request. The
/// maximum is lower for a client that waits for permission (`Expect`), so that it's turned away
/// before sending the body.
fn length(request: &Request<Incoming>) -> Option<(usize, usize)> {
    let length = request.headers().get(header::CONTENT_LENGTH)?;
    let asks_first = request.headers().contains_key(header::EXPECT);
    let most = if asks_first {
        BODY_BYTES_MAX
    } else {
        PASSED_OVER_MAX
    };
    Some((length.to_str().ok()?.parse().ok()?, most))
}

fn response(status: u16, word: &'static str) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    body::response(status, "text/plain", body::whole(word))
}
