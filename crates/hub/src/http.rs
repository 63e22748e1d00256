//! The `--collect` listener. Before a body is read, the request must have a valid token whose
//! branch has requests left in the current minute. Bodies are kept within a memory budget.

use crate::limits::BranchRates;
use crate::protocol::{
    BODY_BYTES_MAX, BRANCH, CALLS, CallsAnswer, ErrorAnswer, ID_BYTES_MAX, REPORT,
    REPORT_BYTES_MAX, SEEN_INCARNATION, SEEN_SEQ, SENDER,
};
use crate::receiver::{Origin, Receiver, Refusal};
use crate::token::KnownBranch;
use callbridge_listener::body::{self, Body};
use callbridge_listener::budget::{ByteBudget, ByteShare};
use callbridge_listener::held::{BodyFault, BodyLimits, HeldBody};
use callbridge_listener::places::ConnectionPlace;
use callbridge_listener::serve::{AnswerHttp, Limits, Open};
use callbridge_listener::site::{HostRule, SiteRules};
use callbridge_listener::{descriptors, serve};
use callbridge_model::{Secret, clock};
use callbridge_spool::{Error, HubPosition};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header::HeaderValue};
use rustls::ServerConfig;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum total size in bytes of all bodies held at the same time.
pub const BUDGET_BYTES: usize = 16 << 20;
/// Maximum total size in bytes of one branch's bodies held at the same time.
const BRANCH_BYTES: usize = BUDGET_BYTES / 4;
/// A body that's too large is read and discarded up to this many bytes, because its sender won't
/// read a response before it has sent the whole body.
const PASSED_OVER_MAX: usize = 4 << 20;
/// Time within which a body must arrive.
const BODY_WITHIN: Duration = Duration::from_secs(20);
/// Maximum number of concurrent connections, which is lowered further if the limit on open files is
/// low.
pub const CONNECTIONS_MAX: usize = 1024;
/// Seconds after which a collector retries when the budget or the disk is full.
const RETRY_SOON_SEC: u64 = 5;

/// Serves `--collect` until `stop`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    receiver: Arc<Receiver>,
    stop: impl Future<Output = ()>,
) {
    let open = Open {
        name: "--collect",
        listener,
        tls,
        limits: Limits {
            connections: descriptors::share(CONNECTIONS_MAX),
            answer_within: BODY_WITHIN + Duration::from_secs(20),
            stop_within: Duration::from_secs(2),
            ..Limits::FEW
        },
        site: SiteRules {
            // Each request is authenticated by its token, and a proxy passes on its public name.
            hosts: HostRule::Any,
            ..SiteRules::STRICT
        },
    };
    let gate = Gate {
        receiver,
        budget: ByteBudget::new(BUDGET_BYTES),
        parts: Mutex::default(),
        rates: Mutex::default(),
    };
    serve::serve(open, Arc::new(gate), stop).await;
}

/// Checks requests, reads their bodies within the budget, and hands them to the receiver.
struct Gate {
    receiver: Arc<Receiver>,
    budget: ByteBudget,
    /// Each branch's portion of the budget.
    parts: Mutex<BTreeMap<String, ByteBudget>>,
    rates: Mutex<BranchRates>,
}

/// A refused request, with its status, the reason for metrics, the message, and when to retry.
struct Refused {
    status: StatusCode,
    reason: &'static str,
    message: String,
    retry_after_sec: Option<u64>,
}

impl Refused {
    fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
            retry_after_sec: None,
        }
    }

    fn retry_after(self, seconds: u64) -> Self {
        Self {
            retry_after_sec: Some(seconds.max(1)),
            ..self
        }
    }

    fn response(&self) -> Response<Body> {
        let answer = ErrorAnswer {
            error: self.message.clone(),
        };
        let mut response = json(self.status, &answer);
        if let Some(seconds) = self.retry_after_sec {
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

impl AnswerHttp for Gate {
    async fn answer(&self, place: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        let now = clock::now();
        let token = bearer(request.headers());
        let branch = token.and_then(|token| {
            self.receiver
                .branches
                .find(&token, now.wall.floor_seconds())
        });
        let name = branch.as_ref().map_or("", |branch| &branch.name).to_owned();
        match self.handle(place, request, branch).await {
            Ok(response) => response,
            Err(refused) => {
                self.receiver
                    .tally
                    .refuse(&name, refused.reason, 1, now.boot);
                refused.response()
            }
        }
    }

    fn no_tls(&self, _why: &'static str) {
        self.receiver
            .tally
            .refuse("", "no_tls", 1, clock::now().boot);
    }
}

impl Gate {
    async fn handle(
        &self,
        place: &ConnectionPlace,
        request: Request<Incoming>,
        branch: Option<Arc<KnownBranch>>,
    ) -> Result<Response<Body>, Refused> {
        let (method, bytes_max) = match request.uri().path() {
            CALLS => (Method::POST, BODY_BYTES_MAX),
            REPORT => (Method::POST, REPORT_BYTES_MAX),
            BRANCH => (Method::GET, 0),
            path => {
                let message = format!("there is no {path}; calls go to {CALLS}");
                return Err(Refused::new(StatusCode::NOT_FOUND, "path", message));
            }
        };
        if *request.method() != method {
            let message = format!("use {method}");
            return Err(Refused::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                message,
            ));
        }
        let Some(branch) = branch else {
            let message = "the token is missing or unknown; send Authorization: Bearer TOKEN";
            return Err(Refused::new(StatusCode::UNAUTHORIZED, "token", message));
        };
        let origin = Origin {
            branch,
            sender: id(request.headers(), SENDER),
            seen: seen_position(request.headers()),
        };
        if method == Method::GET {
            self.admit(&origin, 0)?;
            return Ok(json(StatusCode::OK, &self.receiver.branch(&origin)));
        }
        let length = length(request.headers());
        self.admit(&origin, length.unwrap_or(0))?;
        if length.is_some_and(|length| length > PASSED_OVER_MAX as u64) {
            return Err(too_large(bytes_max));
        }
        let path = request.uri().path().to_owned();
        let content_type = request
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|text| text.to_str().ok().map(str::to_owned));
        let limits = BodyLimits {
            bytes_max,
            dropped_max: PASSED_OVER_MAX,
        };
        let mut held = HeldBody::new(limits, self.share(&origin.branch.name));
        let reading = held.read(request.into_body(), |_| ());
        let read = timeout(BODY_WITHIN, reading).await;
        self.note_bytes(&origin, held.length());
        let body = match read {
            Ok(body) => body.map_err(|fault| unread(fault, bytes_max))?,
            Err(_) => {
                let message = "the body arrived too slowly";
                return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, "slow", message));
            }
        };
        let _answering = place.answer();
        let answered = if path == REPORT {
            let answer = self.receiver.report(&origin, &body).await;
            answer.map(|answer| json(StatusCode::OK, &answer))
        } else {
            let answer = self.receiver.calls(&origin, body, content_type).await;
            answer.map(|answer| json(status_of(&origin, &answer), &answer))
        };
        answered.map_err(refuse)
    }

    fn admit(&self, origin: &Origin, length: u64) -> Result<(), Refused> {
        let now = clock::now().boot;
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.forget_idle(now);
        let admitted = rates.admit(&origin.branch.name, length, now);
        admitted.map_err(|wait| {
            let message = "this branch has used up its requests or bytes of this minute";
            let refused = Refused::new(StatusCode::TOO_MANY_REQUESTS, "rate", message);
            refused.retry_after(wait.as_secs() + 1)
        })
    }

    fn note_bytes(&self, origin: &Origin, length: usize) {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.note_bytes(&origin.branch.name, length as u64, clock::now().boot);
    }

    /// Returns an empty share of the branch's portion of the budget.
    fn share(&self, branch: &str) -> ByteShare {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|name, part| name == branch || !part.is_unused());
        parts
            .entry(branch.to_owned())
            .or_insert_with(|| self.budget.part(BRANCH_BYTES))
            .share()
    }
}

fn unread(fault: BodyFault, bytes_max: usize) -> Refused {
    match fault {
        BodyFault::Cut => Refused::new(StatusCode::BAD_REQUEST, "cut", "the body was cut off"),
        BodyFault::TooLarge => too_large(bytes_max),
        BodyFault::NoRoom => {
            let message = "the hub holds too many request bodies now; send the request again later";
            let busy = Refused::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message);
            busy.retry_after(RETRY_SOON_SEC)
        }
    }
}

fn too_large(bytes_max: usize) -> Refused {
    let message =
        format!("the body has more than {bytes_max} bytes; send the calls in several requests");
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn refuse(refusal: Refusal) -> Refused {
    let message = refusal.to_string();
    match refusal {
        Refusal::Body(crate::lines::BodyRefusal::TooManyLines) => {
            Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_lines", message)
        }
        Refusal::Body(crate::lines::BodyRefusal::UnknownVersion(_)) => {
            Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "version", message)
        }
        Refusal::Quota(wait) => Refused::new(StatusCode::TOO_MANY_REQUESTS, "quota", message)
            .retry_after(wait.as_secs() + 1),
        Refusal::Report(_) => Refused::new(StatusCode::BAD_REQUEST, "report", message),
        Refusal::Spool(Error::NoBranch(_)) => {
            Refused::new(StatusCode::UNAUTHORIZED, "token", message)
        }
        Refusal::Spool(error) => {
            tracing::error!(%error, "could not store a request of a branch");
            let message = "the hub cannot store calls now";
            let status = if error.is_retryable() || error == Error::Closed {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            Refused::new(status, "not_stored", message).retry_after(RETRY_SOON_SEC)
        }
    }
}

/// Returns a request's bearer token, or `None` if there isn't one.
fn bearer(headers: &HeaderMap) -> Option<Secret> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    Some(Secret::from(token.trim().to_owned()))
}

/// Returns the status code of a response to calls. Since a script may look at nothing else, it's an
/// error if no line was accepted. A collector reads the response itself.
fn status_of(origin: &Origin, answer: &CallsAnswer) -> StatusCode {
    let accepts_none = answer.taken.is_empty() && !answer.refused.is_empty();
    if accepts_none && origin.sender.is_none() {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    }
}

/// Returns the highest position that a collector has seen, from the headers. Scripts don't send
/// one.
fn seen_position(headers: &HeaderMap) -> Option<HubPosition> {
    let seq: i64 = headers.get(SEEN_SEQ)?.to_str().ok()?.parse().ok()?;
    Some(HubPosition {
        incarnation: id(headers, SEEN_INCARNATION)?,
        seq: u64::try_from(seq).ok()?,
    })
}

/// Returns the ID in a header, or `None` if it's empty or too long.
fn id(headers: &HeaderMap, name: &str) -> Option<String> {
    let id = headers.get(name)?.to_str().ok()?;
    let is_usable = !id.is_empty() && id.len() <= ID_BYTES_MAX;
    is_usable.then(|| id.to_owned())
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn json(status: StatusCode, answer: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_vec(answer).unwrap_or_default();
    body::response(status, "application/json", body::whole(text))
}
