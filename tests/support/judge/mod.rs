//! The judge: it stands between callbridge and the CRM, sees every request, does to it what bad
//! weather does, and says in the end what was against the document. It shares no code with either.
//!
//! ```text
//! callbridge ──▶ judge ──▶ CRM (a process of its own)
//!                  └── every request with its time, token, body, and what was answered
//! ```

pub mod fault;
pub mod left;
pub mod rules;
pub mod seen;
pub mod truth;
pub mod wire;

use self::fault::{Fault, Weather};
use self::left::Left;
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

/// Pieces that a dripping answer comes in.
const DRIPS: u32 = 8;
/// A client reads an answer to its end, gives up or is killed long before.
const READ_WITHIN: Duration = Duration::from_secs(120);

/// How the port behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    Open,
    /// Connections are refused.
    Closed,
    /// Connections are taken, and nothing is ever said.
    Silent,
}

/// See the module.
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
    /// Connections whose request is being read.
    reading: watch::Sender<usize>,
    elsewhere: SocketAddr,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Judge {
    /// Stands in front of a CRM.
    pub async fn start(crm: SocketAddr, seed: u64) -> Self {
        let addr = free_addr();
        let listener = TcpListener::bind(addr).await.expect("a port of its own");
        let other = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let elsewhere = other.local_addr().expect("bound");
        let (tell, count) = watch::channel(0);
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            crm: Mutex::new(crm),
            weather: Mutex::new(Weather::fair(seed)),
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
                locked(&foreign.times).elsewhere += 1;
            }
        });
        Self {
            addr,
            shared,
            port,
            count,
        }
    }

    /// Of `--crm-url`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The CRM has moved.
    pub fn behind(&self, crm: SocketAddr) {
        *locked(&self.shared.crm) = crm;
    }

    /// From now on so many of a hundred exchanges are struck by one of these.
    pub fn weather(&self, percent: u64, kinds: &[Fault]) {
        locked(&self.shared.weather).set(percent, kinds);
    }

    /// The token endpoint does these from now on, one after the other; none of them: it is well.
    pub fn token_trouble(&self, kinds: &[Fault]) {
        locked(&self.shared.weather).set_token(kinds);
    }

    /// How the port behaves from now on.
    pub fn port(&self, port: Port) {
        self.port.send_replace(port);
    }

    /// The client was killed and is gone; this it left behind. Ends when all that it had sent is
    /// read: what comes from now on is the next one's.
    pub async fn killed(&self, mut left: Left) {
        // Connections are taken in their order: a silent one at the end shows that all were.
        if let Ok(mut last) = TcpStream::connect(self.addr).await {
            let _ = last.shutdown().await;
            soon("the end of what waits at the port", gone(&mut last)).await;
        }
        let mut reading = self.shared.reading.subscribe();
        let read = soon("what the killed had sent", reading.wait_for(|it| *it == 0));
        read.await.expect("a judge");
        let mut times = locked(&self.shared.times);
        let asked = asked_in(&locked(&self.shared.seen), times.kills.len());
        left.calls.retain(|uuid, stored| {
            let id = stored.request_id.as_ref();
            asked.contains(uuid) || id.is_some_and(|id| asked.contains(id))
        });
        times.kills.push(left);
    }

    /// Time since its start.
    pub fn elapsed(&self) -> Duration {
        self.shared.begun.elapsed()
    }

    /// Requests so far.
    pub fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until so many requests have come.
    pub async fn reaches(&self, count: usize) {
        let mut counts = self.count.clone();
        counts.wait_for(|it| *it >= count).await.expect("a judge");
    }

    /// Any request so far is such a one.
    pub fn has_seen(&self, such: impl Fn(&Seen) -> bool) -> bool {
        locked(&self.shared.seen).iter().any(such)
    }

    /// Everything seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        locked(&self.shared.seen).clone()
    }

    pub fn times(&self) -> Times {
        locked(&self.shared.times).clone()
    }

    /// Host and port that `Host` has to name.
    pub fn host(&self) -> String {
        self.addr.to_string()
    }

    /// How often each fault struck.
    pub fn struck(&self) -> String {
        let struck = locked(&self.shared.weather).struck.clone();
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
            if state.wait_for(|it| *it != Port::Closed).await.is_err() {
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
                shared.reading.send_modify(|it| *it += 1);
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

/// Takes a request, and says nothing until the port is another.
async fn mute(mut stream: TcpStream, mut state: watch::Receiver<Port>, shared: Arc<Shared>) {
    let Some(at) = take(&mut stream, &shared).await else {
        return;
    };
    tokio::select! {
        _ = state.wait_for(|it| *it != Port::Silent) => {
            shared.tells(at);
            reset(stream);
        }
        () = gone(&mut stream) => {}
    }
    shared.end(at, None);
}

/// Reads a request and writes it down; its place, or `None` for one that did not come whole.
async fn take(stream: &mut TcpStream, shared: &Shared) -> Option<usize> {
    let from = stream.peer_addr().ok().map(|from| from.ip());
    let request = wire::read_request(stream).await;
    // Whatever happened before it came is noted before it: the ends of other connections have been
    // told to us by now, and those tasks go first.
    tokio::task::yield_now().await;
    let at = note(request, from, shared);
    shared.reading.send_modify(|it| *it -= 1);
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
    let life = locked(&shared.times).kills.len();
    let mut all = locked(&shared.seen);
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

/// The uuids and requestIds that were asked about in one life.
fn asked_in(seen: &[Seen], life: usize) -> BTreeSet<String> {
    let seen = seen.iter().filter(|it| it.life == life);
    let asked = seen.filter_map(|it| match it.purpose() {
        Purpose::Submit => it.uuid(),
        Purpose::Poll => it.polled().map(str::to_owned),
        Purpose::Filter | Purpose::TokenInfo | Purpose::Exchange | Purpose::Other => None,
    });
    asked.collect()
}

/// The client has closed its side.
async fn gone(stream: &mut TcpStream) {
    let mut byte = [0];
    let _ = stream.read(&mut byte).await;
}

fn reset(stream: TcpStream) {
    // An error means that it is gone already.
    let _ = stream.set_zero_linger();
}

impl Shared {
    /// From now on the client may know how it ended.
    fn tells(&self, at: usize) {
        let now = self.begun.elapsed();
        if let Some(seen) = locked(&self.seen).get_mut(at) {
            seen.told.get_or_insert(now);
        }
    }

    fn end(&self, at: usize, answer: Option<Answered>) {
        self.tells(at);
        let now = self.begun.elapsed();
        if let Some(seen) = locked(&self.seen).get_mut(at) {
            seen.ended = Some(now);
            seen.answer = answer;
        }
    }

    fn strike(&self, at: usize) -> (Seen, Option<Fault>) {
        let mut all = locked(&self.seen);
        let seen = &mut all[at];
        seen.fault = locked(&self.weather).strike(seen.purpose());
        (seen.clone(), seen.fault)
    }

    async fn pass_on(&self, seen: &Seen) -> Option<Response> {
        let crm = *locked(&self.crm);
        wire::pass_on(seen, crm).await
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let Some(at) = take(&mut stream, &shared).await else {
        return;
    };
    let (seen, fault) = shared.strike(at);
    if let Some(response) = fault.and_then(|fault| instead(fault, &shared)) {
        return finish(stream, &shared, at, response, fault).await;
    }
    if let Some(Fault::Reset | Fault::Straggler(_)) = fault {
        shared.tells(at);
        reset(stream);
        shared.end(at, None);
        if let Some(Fault::Straggler(time)) = fault {
            pass(time).await;
            shared.pass_on(&seen).await;
        }
        return;
    }
    if let Some(Fault::Hang(time)) = fault {
        let _ = timeout(time, gone(&mut stream)).await;
        shared.tells(at);
        reset(stream);
        return shared.end(at, None);
    }
    let response = shared.pass_on(&seen).await;
    let (Some(response), false) = (response, fault == Some(Fault::Lost)) else {
        shared.tells(at);
        reset(stream);
        return shared.end(at, None);
    };
    finish(stream, &shared, at, response, fault).await;
}

/// The answer of a fault that keeps the request from the CRM.
fn instead(fault: Fault, shared: &Shared) -> Option<Response> {
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

/// Answers, as far as the fault lets it, and writes down what the client got.
async fn finish(
    mut stream: TcpStream,
    shared: &Shared,
    at: usize,
    mut response: Response,
    fault: Option<Fault>,
) {
    let told = damage(&mut response, fault);
    let bytes = response.bytes(told);
    let sent = match fault {
        Some(Fault::Late(time)) => {
            let left = timeout(time, gone(&mut stream)).await.is_ok();
            shared.tells(at);
            !left && stream.write_all(&bytes).await.is_ok()
        }
        Some(Fault::Drip(time)) => {
            let (first, last) = bytes.split_at(bytes.len() - 1);
            let sent = drip(&mut stream, first, time).await;
            shared.tells(at);
            sent && stream.write_all(last).await.is_ok()
        }
        _ => {
            shared.tells(at);
            stream.write_all(&bytes).await.is_ok()
        }
    };
    let mut rest = Vec::new();
    // A client that reads all of it closes in order; one that is gone before resets.
    let closed = stream.shutdown().await.is_ok();
    let read = timeout(READ_WITHIN, stream.read_to_end(&mut rest)).await;
    let read = sent && closed && matches!(read, Ok(Ok(0)));
    let harmless = matches!(
        fault,
        None | Some(
            Fault::Late(_)
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

/// Changes what the fault changes; the length to tell.
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

/// How many requests there were for each purpose.
pub fn purposes(seen: &[Seen]) -> String {
    let count = |purpose| seen.iter().filter(|it| it.purpose() == purpose).count();
    format!(
        "{} requests ({} submissions, {} polls, {} sweeps, {} token/info)",
        seen.len(),
        count(Purpose::Submit),
        count(Purpose::Poll),
        count(Purpose::Filter),
        count(Purpose::TokenInfo)
    )
}
