//! The HTTP server and the webhook dispatcher of a sandbox. It passes requests to the core, and
//! sends the answers as the core orders: at once, late, slowly, or not at all.

use crate::{
    BODY_BYTES_MAX, Config, Delivery, DeliveryClient, Error, Record, Request, Response, Role,
    Sandbox, SandboxClock, SharedSandbox, StateFile, steady_clock, webhook::post,
};
use bytes::Bytes;
use callbridge_call::EventTime;
use callbridge_listener::body::{self, Body};
use callbridge_listener::places::ConnectionPlace;
use callbridge_listener::serve::{self, AnswerHttp, Limits, Open};
use callbridge_listener::site::SiteRules;
use callbridge_model::{Code, ExposeSecret};
use hyper::{Response as HttpResponse, StatusCode, body::Incoming, header, header::HeaderValue};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A running sandbox with its listeners and its webhook dispatcher.
pub struct Server {
    addr: SocketAddr,
    auth: SocketAddr,
    shared: SharedSandbox,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Returns the address that the server listens on, with the port that the system chose.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL of the API: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the URL of the token and revoke endpoints. It is the URL of the API, unless these
    /// endpoints have a separate address.
    pub fn auth_url(&self) -> String {
        format!("http://{}", self.auth)
    }

    /// Runs `act` on the core with the current time, then saves the state.
    pub fn admin<R>(&self, act: impl FnOnce(&mut Sandbox, EventTime) -> R) -> R {
        self.shared.admin(act)
    }

    /// Returns a handle to the core that outlives the server.
    pub fn shared(&self) -> SharedSandbox {
        self.shared.clone()
    }

    /// Copies the journal's records, in the order they were written.
    pub fn journal(&self) -> Vec<Record> {
        self.admin(|core, _| core.records().to_vec())
    }

    /// Copies the clients' violations of the document, oldest first.
    pub fn violations(&self) -> Vec<super::Violation> {
        self.admin(|core, _| core.violations().all().to_vec())
    }

    /// Stops the server, and waits until all its tasks have ended.
    ///
    /// # Errors
    /// A task of the server panicked.
    pub async fn stop(self) -> Result<(), Error> {
        self.stop.send_replace(true);
        let mut ended = Ok(());
        for task in self.tasks {
            let joined = task.await.map_err(|error| {
                let message = format!("the HTTP listener ended: {error}");
                Error::new(Code::Unreachable, message)
            });
            ended = ended.and(joined);
        }
        ended
    }
}

/// Starts a sandbox with its state, token, and listeners.
///
/// # Errors
/// The state file or the address cannot be used.
pub async fn start(config: Config) -> Result<Server, Error> {
    start_with(config, steady_clock()).await
}

/// Starts a sandbox as [`start`] does, with the caller's `clock` instead of the machine's.
///
/// # Errors
/// The state file or the address cannot be used.
pub async fn start_with(config: Config, clock: SandboxClock) -> Result<Server, Error> {
    let private_targets = config.settings.private_targets;
    let poster = DeliveryClient::new(config.webhook_ca_file.clone(), private_targets);
    let addr = config.listen;
    let auth = config.auth_listen;
    let (core, state) = prepare(config, clock())?;
    let (api, addr) = listen(addr).await?;
    let (listeners, auth) = match auth {
        None => (vec![(api, Role::Whole)], addr),
        Some(auth) => {
            let (own, auth) = listen(auth).await?;
            (vec![(api, Role::Api), (own, Role::Auth)], auth)
        }
    };
    let held = Arc::new(Mutex::new((core, state)));
    let shared = SharedSandbox { held, clock };
    let stop = watch::Sender::new(false);
    let dispatching = post::dispatch(shared.clone(), Arc::new(poster), stop.subscribe());
    let mut tasks = vec![tokio::spawn(dispatching)];
    for (listener, role) in listeners {
        let shell = Shell {
            shared: shared.clone(),
            role,
            closing: stop.subscribe(),
        };
        tasks.push(tokio::spawn(serve(listener, shell)));
    }
    Ok(Server {
        addr,
        auth,
        shared,
        stop,
        tasks,
    })
}

async fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let listener = TcpListener::bind(addr)
        .await
        .map_err(|error| cannot_listen(addr, &error))?;
    let bound = listener
        .local_addr()
        .map_err(|error| cannot_listen(addr, &error))?;
    Ok((listener, bound))
}

fn cannot_listen(addr: SocketAddr, error: &std::io::Error) -> Error {
    let message = format!("cannot listen on {addr}: {error}; choose another with --listen");
    Error::new(Code::Unreachable, message)
}

/// Restores the core from its state file, or creates a new core if there is no file. Applies the
/// flags of this start, and saves the state.
fn prepare(config: Config, now: EventTime) -> Result<(Sandbox, Option<StateFile>), Error> {
    let (mut state, mut core) = match &config.state {
        Some(path) => StateFile::open(path, config.settings)?,
        None => (None, Sandbox::new(config.settings)),
    };
    core.set_faults(config.rules);
    let now = core.moment(now);
    core.begin(now, config.token.expose_secret(), config.expires_at);
    if let Some(state) = &mut state {
        state.keep(&core)?;
    }
    Ok((core, state))
}

/// Limits that exclude no client. At the order to stop, open connections have two seconds to end.
const LIMITS: Limits = Limits {
    connections: usize::MAX,
    head_within: A_YEAR,
    answer_within: A_YEAR,
    stop_within: Duration::from_secs(2),
    keep_alive: true,
};
const A_YEAR: Duration = Duration::from_secs(365 * 86_400);
/// Number of pieces that a slow body is sent in.
const SLOW_PIECES: usize = 8;

struct Shell {
    shared: SharedSandbox,
    role: Role,
    closing: watch::Receiver<bool>,
}

/// Serves the endpoints of one address (§5.6.9) until the order to stop. Then open connections have
/// two seconds to end, and the state is saved.
async fn serve(listener: TcpListener, shell: Shell) {
    let shared = shell.shared.clone();
    let mut closing = shell.closing.clone();
    let open = Open {
        name: "--listen",
        listener,
        tls: None,
        limits: LIMITS,
        site: SiteRules::STRICT,
    };
    // An error means that the sender is gone, which is also an order to stop.
    let stop = async { drop(closing.wait_for(|stop| *stop).await) };
    serve::serve(open, Arc::new(shell), stop).await;
    // Saves the changes that were not saved yet.
    shared.admin(|_, _| ());
}

impl AnswerHttp for Shell {
    async fn answer(
        &self,
        _: &ConnectionPlace,
        request: hyper::Request<Incoming>,
    ) -> HttpResponse<Body> {
        let request = read_request(request, self.role).await;
        let response = self.shared.handle(&request);
        match response.delivery {
            Delivery::Now => full_response(&response),
            Delivery::Lost => cut(),
            Delivery::After(time) => {
                let mut closing = self.closing.clone();
                tokio::select! {
                    () = tokio::time::sleep(time) => full_response(&response),
                    _ = closing.wait_for(|closing| *closing) => cut(),
                }
            }
            Delivery::Slow(time) => dripping(&response, time),
        }
    }
}

async fn read_request(request: hyper::Request<Incoming>, role: Role) -> Request {
    let (head, body) = request.into_parts();
    let mut headers = Vec::new();
    for (name, value) in &head.headers {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.push((name.to_string(), text));
    }
    let body = match body::read(body, BODY_BYTES_MAX).await {
        Ok(bytes) => bytes.to_vec(),
        // A larger body reaches the core as one byte above the limit, and the core answers with
        // 413.
        Err(_) => vec![0; BODY_BYTES_MAX + 1],
    };
    Request {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers,
        body,
        role,
    }
}

/// Ends the connection as a lost network does: the body fails before the head is sent.
fn cut() -> HttpResponse<Body> {
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let failed = std::future::ready(Err::<Bytes, _>(reset));
    HttpResponse::new(body::in_pieces(futures_util::stream::once(failed)))
}

fn full_response(response: &Response) -> HttpResponse<Body> {
    with_body(response, body::whole(response.body.clone()))
}

fn dripping(response: &Response, time: Duration) -> HttpResponse<Body> {
    let size = response.body.len().div_ceil(SLOW_PIECES).max(1);
    let pieces: Vec<Bytes> = response
        .body
        .chunks(size)
        .map(Bytes::copy_from_slice)
        .collect();
    let pause = time / u32::try_from(pieces.len().max(1)).unwrap_or(1);
    let drip = futures_util::stream::unfold(pieces.into_iter(), move |mut rest| async move {
        let piece = rest.next()?;
        tokio::time::sleep(pause).await;
        Some((Ok::<_, std::convert::Infallible>(piece), rest))
    });
    with_body(response, body::in_pieces(drip))
}

fn with_body(response: &Response, content: Body) -> HttpResponse<Body> {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = body::response(status, response.content_type, content);
    let headers = answer.headers_mut();
    // Tokens and pages with personal data must not be cached (RFC 6749 §5.1).
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let location = response.location.as_deref();
    if let Some(location) = location.and_then(|to| HeaderValue::from_str(to).ok()) {
        headers.insert(header::LOCATION, location);
    }
    answer
}
