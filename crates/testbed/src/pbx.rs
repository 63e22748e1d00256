//! PBXs on loopback that send the messages and answers that a test sets: AMI on TCP, or AMI as JSON
//! over a WebSocket. Each PBX records the logins and requests that it receives.

#[allow(missing_docs, reason = "the names are clear without comments")]
#[path = "manager.rs"]
mod manager;

use futures_util::{SinkExt, StreamExt};
pub use manager::{Manager, Release};
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// An answer to `Login` that refuses it.
pub const NOT_YET: &str = "Response: Error\nActionID: {id}\nMessage: Authentication failed\n\n";
/// An answer to `Login` that accepts it.
pub const COME_IN: &str = "Response: Success\nActionID: {id}\nMessage: Authentication accepted\n\n\
                       Event: FullyBooted\nPrivilege: system,all\nStatus: Fully Booted\n\n";

/// The secret of the AMI account.
pub const SECRET: &str = "secret of the manager";
/// The challenge that an MD5 login hashes together with the secret.
const CHALLENGE: &str = "471147114";
/// The answer to `CoreShowChannels` of a PBX that has no live channels.
const NO_CHANNELS: &str = "Event: CoreShowChannelsComplete\r\nActionID: {id}\r\n\
                           EventList: Complete\r\nListItems: 0\r\n\r\n";
/// The event after a login of an account with the right `system`.
const BOOTED: &str = "Event: FullyBooted\r\nStatus: Fully Booted\r\n\r\n";
/// Maximum wait for a login or an action of a client.
const LOGIN_WITHIN: Duration = Duration::from_secs(180);

/// What a connection of the PBX does next.
enum Step {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Closes the connection.
    Cut,
}

/// A fake PBX. It sends its messages to the client that connected last.
pub struct FakePbx {
    addr: SocketAddr,
    shared: Arc<PbxState>,
    logins: watch::Receiver<u64>,
}

#[derive(Default)]
struct PbxState {
    line: Mutex<Option<mpsc::Sender<Step>>>,
    requests: watch::Sender<Vec<String>>,
    /// If `true`, the PBX answers `CoreShowChannels` with an empty list.
    lists: std::sync::atomic::AtomicBool,
    /// If `true`, the PBX sends no `FullyBooted` after a login.
    hides_boot: std::sync::atomic::AtomicBool,
    /// The answers to each action, by its name in lowercase. They are sent one after another, and
    /// the last answer is repeated.
    answers: Mutex<BTreeMap<String, Vec<String>>>,
    /// The release of Asterisk that the PBX imitates. With `None`, it sends all events.
    release: Mutex<Option<Release>>,
}

/// A connection of a client, with the parts that the task for this connection needs.
struct PbxConnection {
    stream: TcpStream,
    steps: mpsc::Receiver<Step>,
    shared: Arc<PbxState>,
    logins: watch::Sender<u64>,
}

impl PbxState {
    fn record_request(&self, action: String) {
        self.requests.send_modify(|requests| requests.push(action));
    }

    /// Returns the next answer that a test set for this action, with the `ActionID` of the action.
    /// `action` has the lines of the action.
    fn scripted_answer(&self, action: &[String]) -> Option<String> {
        let name = value(action, "Action").to_lowercase();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = answers.get_mut(&name)?;
        let answer = match left.len() {
            1 => left[0].clone(),
            _ => left.remove(0),
        };
        let answer = answer.replace("{id}", value(action, "ActionID"));
        Some(answer.replace("\r\n", "\n").replace('\n', "\r\n"))
    }
}

impl FakePbx {
    /// Starts a PBX with AMI on TCP. It accepts logins with [`SECRET`].
    pub async fn ami() -> Self {
        Self::listen(ami_line).await
    }

    /// Starts a PBX with AMI as JSON over a WebSocket, as amiws provides it.
    pub async fn websocket() -> Self {
        Self::listen(websocket_line).await
    }

    async fn listen<F, L>(serve: F) -> Self
    where
        F: Fn(PbxConnection) -> L + Send + Sync + 'static,
        L: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("bound");
        let (counted, logins) = watch::channel(0);
        let shared = Arc::new(PbxState::default());
        let ours = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (step_sender, steps) = mpsc::channel(1024);
                *ours.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(step_sender);
                tokio::spawn(serve(PbxConnection {
                    stream,
                    steps,
                    shared: Arc::clone(&ours),
                    logins: counted.clone(),
                }));
            }
        });
        Self {
            addr,
            shared,
            logins,
        }
    }

    /// Returns the address on which the PBX listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Makes the PBX answer `CoreShowChannels` with an empty list from now on.
    pub fn list_no_channels(&self) {
        let lists = &self.shared.lists;
        lists.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Makes the PBX send no `FullyBooted` after a login from now on, as for an account without
    /// the right `system`.
    pub fn hide_boot(&self) {
        let hides = &self.shared.hides_boot;
        hides.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets the answers to the action `action` (a name such as `Login`) from now on. They are sent
    /// one after another, and the last answer is repeated. Each answer is one or more complete AMI
    /// messages, with `{id}` for the `ActionID` of the action.
    pub fn answers(&self, action: &str, answers: &[&str]) {
        let all = &self.shared.answers;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = answers.iter().map(|text| (*text).to_owned()).collect();
        all.insert(action.to_lowercase(), answers);
    }

    /// Makes the PBX treat classes, filters, and actions as this release does, from the next
    /// connection on.
    pub fn set_release(&self, release: Release) {
        let mut current = self
            .shared
            .release
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *current = Some(release);
    }

    /// Waits until a client has logged in for the `n`-th time.
    pub async fn logged_in(&self, n: u64) {
        let mut logins = self.logins.clone();
        let login = logins.wait_for(|count| *count >= n);
        let waited = tokio::time::timeout(LOGIN_WITHIN, login).await;
        waited.expect("a login in time").expect("a PBX");
    }

    /// Returns all requests that clients sent, login included. On TCP, a request is the text of an
    /// AMI action. On a WebSocket, every text or binary message counts as a request, because amiws
    /// passes these messages to the PBX as actions.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until a client has sent an action whose text begins with `action`.
    pub async fn wait_for_action(&self, action: &str) {
        let mut requests = self.shared.requests.subscribe();
        let received =
            requests.wait_for(|requests| requests.iter().any(|text| text.starts_with(action)));
        let waited = tokio::time::timeout(LOGIN_WITHIN, received).await;
        waited.expect("the action in time").expect("a PBX");
    }

    /// Sends AMI text, or one JSON frame, to the current client.
    pub async fn say(&self, message: &[u8]) {
        self.send(Step::Bytes(message.to_vec())).await;
    }

    /// Closes the connection without a message.
    pub async fn cut(&self) {
        self.send(Step::Cut).await;
    }

    async fn send(&self, step: Step) {
        let line = &self.shared.line;
        let line = line.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let line = line.expect("a client has connected");
        assert!(line.send(step).await.is_ok(), "the line is open");
    }
}

async fn ami_line(line: PbxConnection) {
    let PbxConnection {
        stream,
        mut steps,
        shared,
        logins,
    } = line;
    let (read, mut write) = stream.into_split();
    let (heard, mut actions) = mpsc::channel(16);
    tokio::spawn(read_actions(BufReader::new(read).lines(), heard));
    let release = *shared
        .release
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let mut manager = release.map(Manager::new);
    let banner = release.map_or("Asterisk Call Manager/11.0.0\r\n", Release::banner);
    let _ = write.write_all(banner.as_bytes()).await;
    let mut open = false;
    loop {
        let bytes = tokio::select! {
            action = actions.recv() => match action {
                Some(action) => {
                    let (mut answer, login) = answer(&action);
                    if login && shared.hides_boot.load(std::sync::atomic::Ordering::Relaxed) {
                        answer = answer.replace(BOOTED, "");
                    }
                    let own = manager.as_mut().and_then(|fake| fake.handle_action(&action));
                    answer = shared.scripted_answer(&action).or(own).unwrap_or(answer);
                    let list = action.iter().any(|line| line == "Action: CoreShowChannels");
                    if list && shared.lists.load(std::sync::atomic::Ordering::Relaxed) {
                        let id = value(&action, "ActionID");
                        answer.push_str(&NO_CHANNELS.replace("{id}", id));
                    }
                    shared.record_request(action.join("\n"));
                    open |= login;
                    logins.send_if_modified(|count| {
                        *count += u64::from(login);
                        login
                    });
                    answer.into_bytes()
                }
                None => return,
            },
            step = steps.recv(), if open => match step {
                Some(Step::Bytes(bytes)) => match &manager {
                    Some(manager) => manager.filter_messages(&bytes),
                    None => bytes,
                },
                Some(Step::Cut) | None => return,
            },
        };
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Reads actions from a connection, and sends the lines of each action to `heard`.
async fn read_actions(
    mut lines: Lines<BufReader<OwnedReadHalf>>,
    heard: mpsc::Sender<Vec<String>>,
) {
    let mut action = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.is_empty() {
            action.push(line);
        } else if heard.send(std::mem::take(&mut action)).await.is_err() {
            return;
        }
    }
}

/// Returns the value of the line `key: value` of an action, or an empty text. The case of the key
/// is ignored.
pub(crate) fn value<'a>(action: &'a [String], key: &str) -> &'a str {
    let pairs = action.iter().filter_map(|line| line.split_once(": "));
    let mut same = pairs.filter(|(name, _)| name.eq_ignore_ascii_case(key));
    same.next().map_or("", |(_, value)| value)
}

/// Returns the answer to an action, and whether the action was a login that succeeded.
fn answer(action: &[String]) -> (String, bool) {
    let id = match value(action, "ActionID") {
        "" => String::new(),
        id => format!("ActionID: {id}\r\n"),
    };
    match value(action, "Action").to_lowercase().as_str() {
        "challenge" => (success(&id, &format!("Challenge: {CHALLENGE}")), false),
        "login" if value(action, "Key") == md5_hex(&format!("{CHALLENGE}{SECRET}")) => {
            let accepted = success(&id, "Message: Authentication accepted");
            (accepted + BOOTED, true)
        }
        "login" => {
            let words = "Message: Authentication failed\r\n\r\n";
            (format!("Response: Error\r\n{id}{words}"), false)
        }
        "ping" => (success(&id, "Ping: Pong"), false),
        _ => (success(&id, "Message: done"), false),
    }
}

/// Returns the answer to an action that succeeded. `id` is the line of the `ActionID`, or empty.
fn success(id: &str, fields: &str) -> String {
    format!("Response: Success\r\n{id}{fields}\r\n\r\n")
}

fn md5_hex(text: &str) -> String {
    let hash = Md5::digest(text.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn websocket_line(line: PbxConnection) {
    let PbxConnection {
        stream,
        mut steps,
        shared,
        logins,
    } = line;
    let Ok(socket) = tokio_tungstenite::accept_async(stream).await else {
        return;
    };
    let (mut write, mut read) = socket.split();
    logins.send_modify(|count| *count += 1);
    loop {
        tokio::select! {
            heard = read.next() => match heard {
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                    shared.record_request(format!("{message:?}"));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            step = steps.recv() => match step {
                Some(Step::Bytes(bytes)) => {
                    // A raw frame, because amiws sends bytes that are not UTF-8 inside text frames.
                    let text = OpCode::Data(Data::Text);
                    let frame = Frame::message(Bytes::from(bytes), text, true);
                    if write.send(Message::Frame(frame)).await.is_err() {
                        return;
                    }
                }
                Some(Step::Cut) | None => return,
            },
        }
    }
}
