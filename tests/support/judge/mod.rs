//! The judge: a proxy between callbridge and the CRM. It records every request, injects faults, and
//! reports what violated the document. It shares no code with callbridge or the CRM.
//!
//! ```text
//!   callbridge ──▶ judge ──▶ CRM (a separate process)
//!                    └── every request with its time, token, body, and answer
//! ```

pub mod fault;
pub mod left;
pub mod rules;
pub mod seen;
pub mod truth;
pub mod wire;

use self::fault::{Fault, Weather};
use self::left::SpoolContents;
use self::rules::Times;
use self::seen::{Answered, Purpose, Seen};
use self::wire::Response;
use callbridge_testbed::port::free_addr;
use callbridge_testbed::wait::{pass, soon};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Number of pieces of a dripping answer.
const DRIPS: u32 = 8;
/// A client reads an answer to its end, gives up, or is killed long before this.
const READ_WITHIN: Duration = Duration::from_secs(120);

/// How the port behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    Open,
    /// Connections are refused.
    Closed,
    /// Connections are accepted, but no request is answered.
    Silent,
}

/// A running judge.
pub struct Judge {
    addr: SocketAddr,
    shared: Arc<Shared>,
    port: watch::Sender<Port>,
    count: watch::Receiver<usize>,
}

struct Shared {
    begun: Instant,
    crm: Mutex<SocketAddr>,
    weather: Mutex<Weather>,
    seen: Mutex<Vec<Seen>>,
    times: Mutex<Times>,
    count: watch::Sender<usize>,
    /// Number of connections whose request is being read.
    reading: watch::Sender<usize>,
    elsewhere: SocketAddr,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Judge {
    /// Starts a judge in front of a CRM.
    pub async fn start(crm: SocketAddr, seed: u64) -> Self {
        let addr = free_addr();
        let listener = TcpListener::bind(addr).await.expect("a port of its own");
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let elsewhere = other.local_addr().expect("bound");
        let (tell, count) = watch::channel(0);
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            crm: Mutex::new(crm),
            weather: Mutex::new(Weather::without_faults(seed)),
            seen: Mutex::new(Vec::new()),
            times: Mutex::new(Times::default()),
            count: tell,
            reading: watch::Sender::new(0),
            elsewhere,
        });
        let (port, state) = watch::channel(Port::Open);
        tokio::spawn(listen(listener, addr, state, Arc::clone(&shared)));
        let foreign = Arc::clone(&shared);
        tokio::spawn(async move {
            while other.accept().await.is_ok() {
                lock(&foreign.times).elsewhere += 1;
            }
        });
        Self {
            addr,
            shared,
            port,
            count,
        }
    }

    /// Returns the value of `--crm-url`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Sends requests to this CRM from now on.
    pub fn set_crm(&self, crm: SocketAddr) {
        *lock(&self.shared.crm) = crm;
    }

    /// Gives `percent` of all exchanges one of these faults from now on.
    pub fn set_faults(&self, percent: u64, kinds: &[Fault]) {
        lock(&self.shared.weather).set(percent, kinds);
    }

    /// Makes the token endpoint answer with these faults in turn. If `kinds` is empty, the endpoint
    /// works.
    pub fn set_token_faults(&self, kinds: &[Fault]) {
        lock(&self.shared.weather).set_token(kinds);
    }

    /// Sets how the port behaves from now on.
    pub fn set_port(&self, port: Port) {
        self.port.send_replace(port);
    }

    /// Records that the client was killed and left this spool. Returns when all requests of the
    /// killed client have been read. Later requests belong to the next client.
    pub async fn record_kill(&self, mut left: SpoolContents) {
        // Connections are accepted in order. When this silent connection is accepted, all earlier
        // connections were accepted.
        if let Ok(mut last) = TcpStream::connect(self.addr).await {
            let _ = last.shutdown().await;
            soon(
                "the end of what waits at the port",
                wait_until_closed(&mut last),
            )
            .await;
        }
        let mut reading = self.shared.reading.subscribe();
        let read = soon(
            "what the killed had sent",
            reading.wait_for(|count| *count == 0),
        );
        read.await.expect("a judge");
        let mut times = lock(&self.shared.times);
        let asked = asked_ids(&lock(&self.shared.seen), times.kills.len());
        left.calls.retain(|uuid, stored| {
            let id = stored.request_id.as_ref();
            asked.contains(uuid) || id.is_some_and(|id| asked.contains(id))
        });
        times.kills.push(left);
    }

    /// Returns the time since the judge's start.
    pub fn elapsed(&self) -> Duration {
        self.shared.begun.elapsed()
    }

    /// Returns the number of requests so far.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until `count` requests have come.
    pub async fn wait_for_requests(&self, count: usize) {
        let mut counts = self.count.clone();
        let reached = counts.wait_for(|current| *current >= count);
        reached.await.expect("a judge");
    }

    /// Returns `true` if any request so far matches.
    pub fn has_seen(&self, such: impl Fn(&Seen) -> bool) -> bool {
        lock(&self.shared.seen).iter().any(such)
    }

    /// Returns all requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    pub fn times(&self) -> Times {
        lock(&self.shared.times).clone()
    }

    /// Returns the host and port that the header `Host` must have.
    pub fn host(&self) -> String {
        self.addr.to_string()
    }

    /// Returns the number of times that each fault was applied, as text.
    pub fn fault_counts(&self) -> String {
        let struck = lock(&self.shared.weather).struck.clone();
        let each = struck.iter().map(|(fault, n)| format!("{fault:?} {n}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

async fn listen(
    first: TcpListener,
    addr: SocketAddr,
    mut state: watch::Receiver<Port>,
    shared: Arc<Shared>,
) {
    let mut listener = Some(first);
    loop {
        let port = *state.borrow_and_update();
        let Some(open) = listener.take() else {
            let opened = state.wait_for(|current| *current != Port::Closed);
            if opened.await.is_err() {
                return;
            }
            listener = TcpListener::bind(addr).await.ok();
            continue;
        };
        if port == Port::Closed {
            continue;
        }
        tokio::select! {
            taken = open.accept() => if let Ok((stream, _)) = taken {
                shared.reading.send_modify(|count| *count += 1);
                match port {
                    Port::Silent => tokio::spawn(mute(stream, state.clone(), Arc::clone(&shared))),
                    _ => tokio::spawn(serve(stream, Arc::clone(&shared))),
                };
            },
            changed = state.changed() => if changed.is_err() { return },
        }
        listener = Some(open);
    }
}

/// Reads a request and does not answer it until the port has another state.
async fn mute(mut stream: TcpStream, mut state: watch::Receiver<Port>, shared: Arc<Shared>) {
    let Some(at) = read_and_record(&mut stream, &shared).await else {
        return;
    };
    tokio::select! {
        _ = state.wait_for(|current| *current != Port::Silent) => {
            shared.mark_as_known(at);
            reset(stream);
        }
        () = wait_until_closed(&mut stream) => {}
    }
    shared.end(at, None);
}

/// Reads and records a request. Returns its index, or `None` for an incomplete request.
async fn read_and_record(stream: &mut TcpStream, shared: &Shared) -> Option<usize> {
    let from = stream.peer_addr().ok().map(|from| from.ip());
    let request = wire::read_request(stream).await;
    // Let the tasks of other connections run first: if one of them ended before this request came,
    // its end must be recorded first.
    tokio::task::yield_now().await;
    let at = note(request, from, shared);
    shared.reading.send_modify(|count| *count -= 1);
    at
}

fn note(
    request: Result<Seen, Option<Seen>>,
    from: Option<IpAddr>,
    shared: &Shared,
) -> Option<usize> {
    let (seen, whole) = match request {
        Ok(seen) => (seen, true),
        Err(torn) => (torn?, false),
    };
    let life = lock(&shared.times).kills.len();
    let mut all = lock(&shared.seen);
    all.push(Seen {
        at: shared.begun.elapsed(),
        life,
        from,
        ..seen
    });
    let at = all.len() - 1;
    shared.count.send_replace(all.len());
    whole.then_some(at)
}

/// Returns the uuids and requestIds that the client asked about between two kills. `life` is the
/// number of kills before.
fn asked_ids(seen: &[Seen], life: usize) -> BTreeSet<String> {
    let seen = seen.iter().filter(|request| request.life == life);
    let asked = seen.filter_map(|request| match request.purpose() {
        Purpose::Submit => request.uuid(),
        Purpose::Poll => request.polled_id().map(str::to_owned),
        Purpose::Filter | Purpose::TokenInfo | Purpose::Exchange | Purpose::Other => None,
    });
    asked.collect()
}

/// Waits until the client has closed its side.
async fn wait_until_closed(stream: &mut TcpStream) {
    let mut byte = [0];
    let _ = stream.read(&mut byte).await;
}

fn reset(stream: TcpStream) {
    // An error means that the connection is already closed.
    let _ = stream.set_zero_linger();
}

impl Shared {
    /// Records that the client can know from now on how the request ended.
    fn mark_as_known(&self, at: usize) {
        let now = self.begun.elapsed();
        if let Some(seen) = lock(&self.seen).get_mut(at) {
            seen.told.get_or_insert(now);
        }
    }

    fn end(&self, at: usize, answer: Option<Answered>) {
        self.mark_as_known(at);
        let now = self.begun.elapsed();
        if let Some(seen) = lock(&self.seen).get_mut(at) {
            seen.ended = Some(now);
            seen.answer = answer;
        }
    }

    fn strike(&self, at: usize) -> (Seen, Option<Fault>) {
        let mut all = lock(&self.seen);
        let seen = &mut all[at];
        seen.fault = lock(&self.weather).strike(seen.purpose(), seen.uuid());
        (seen.clone(), seen.fault)
    }

    async fn pass_on(&self, seen: &Seen) -> Option<Response> {
        let crm = *lock(&self.crm);
        wire::pass_on(seen, crm).await
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let Some(at) = read_and_record(&mut stream, &shared).await else {
        return;
    };
    let (seen, fault) = shared.strike(at);
    if let Some(response) = fault.and_then(|fault| replacement(fault, &shared)) {
        return finish(stream, &shared, at, response, fault).await;
    }
    if let Some(Fault::Reset | Fault::Straggler(_)) = fault {
        shared.mark_as_known(at);
        reset(stream);
        shared.end(at, None);
        if let Some(Fault::Straggler(time)) = fault {
            pass(time).await;
            shared.pass_on(&seen).await;
        }
        return;
    }
    if let Some(Fault::Hang(time)) = fault {
        let _ = timeout(time, wait_until_closed(&mut stream)).await;
        shared.mark_as_known(at);
        reset(stream);
        return shared.end(at, None);
    }
    if let Some(Fault::Stalled(time)) = fault {
        pass(time).await;
    }
    let response = shared.pass_on(&seen).await;
    let (Some(response), false) = (response, fault == Some(Fault::Lost)) else {
        shared.mark_as_known(at);
        reset(stream);
        return shared.end(at, None);
    };
    finish(stream, &shared, at, response, fault).await;
}

/// Returns the answer of a fault that keeps the request from the CRM.
fn replacement(fault: Fault, shared: &Shared) -> Option<Response> {
    let refused = r#"{"data":null,"message":"Xato","error":null,"accept":false,"errors":[]}"#;
    match fault {
        Fault::Status(status) => Some(Response::json(status, refused)),
        Fault::NotAccepted => Some(Response::json(200, refused)),
        Fault::Page(status) => Some(Response::page(status)),
        Fault::Torn => Some(Response::json(200, r#"{"access_token":"svc_at_"#)),
        Fault::Redirect => Some(Response {
            location: Some(format!("http://{}/v1/open-api/moved", shared.elsewhere)),
            ..Response::page(302)
        }),
        _ => None,
    }
}

/// Answers as far as the fault allows, and records the answer that the client got.
async fn finish(
    mut stream: TcpStream,
    shared: &Shared,
    at: usize,
    mut response: Response,
    fault: Option<Fault>,
) {
    let content_length = damage(&mut response, fault);
    let bytes = response.bytes(content_length);
    let sent = match fault {
        Some(Fault::Late(time)) => {
            let left = timeout(time, wait_until_closed(&mut stream)).await.is_ok();
            shared.mark_as_known(at);
            !left && stream.write_all(&bytes).await.is_ok()
        }
        Some(Fault::Drip(time)) => {
            let (first, last) = bytes.split_at(bytes.len() - 1);
            let sent = drip(&mut stream, first, time).await;
            shared.mark_as_known(at);
            sent && stream.write_all(last).await.is_ok()
        }
        _ => {
            shared.mark_as_known(at);
            stream.write_all(&bytes).await.is_ok()
        }
    };
    let mut rest = Vec::new();
    // A client that reads the whole answer closes its side. A client that is already gone resets
    // the connection.
    let closed = stream.shutdown().await.is_ok();
    let read = timeout(READ_WITHIN, stream.read_to_end(&mut rest)).await;
    let read = sent && closed && matches!(read, Ok(Ok(0)));
    let harmless = matches!(
        fault,
        None | Some(
            Fault::Late(_)
                | Fault::Stalled(_)
                | Fault::Drip(_)
                | Fault::Status(_)
                | Fault::Page(_)
                | Fault::StatusAfter(_)
                | Fault::Redirect
        )
    );
    let answer = Answered {
        status: response.status,
        body: response.body,
        whole: read && harmless,
    };
    shared.end(at, Some(answer));
}

/// Applies the fault to the answer. Returns the `Content-Length` to send.
fn damage(response: &mut Response, fault: Option<Fault>) -> usize {
    let length = response.body.len();
    match fault {
        Some(Fault::StatusAfter(status)) => *response = Response::page(status),
        Some(Fault::Cut) => {
            response.body.truncate(length / 2);
            return length;
        }
        Some(Fault::Garbled) => response.body[length / 2..].fill(b'\x01'),
        Some(Fault::Empty) => response.body.clear(),
        Some(Fault::NoRequestId) if response.status == 200 => {
            let accepted = r#"{"data":null,"message":"Success","error":null,"accept":true,
                "errors":[],"requestId":null}"#;
            *response = Response::json(response.status, accepted);
        }
        _ => {}
    }
    response.body.len()
}

async fn drip(stream: &mut TcpStream, bytes: &[u8], time: Duration) -> bool {
    for piece in bytes.chunks(bytes.len().div_ceil(DRIPS as usize)) {
        if stream.write_all(piece).await.is_err() {
            return false;
        }
        pass(time / DRIPS).await;
    }
    true
}

fn count_purpose(seen: &[Seen], purpose: Purpose) -> usize {
    let requests = seen.iter();
    requests
        .filter(|request| request.purpose() == purpose)
        .count()
}

/// Returns the number of requests for each purpose, as text.
pub fn purposes(seen: &[Seen]) -> String {
    format!(
        "{} requests ({} submissions, {} polls, {} sweeps, {} token/info)",
        seen.len(),
        count_purpose(seen, Purpose::Submit),
        count_purpose(seen, Purpose::Poll),
        count_purpose(seen, Purpose::Filter),
        count_purpose(seen, Purpose::TokenInfo)
    )
}
