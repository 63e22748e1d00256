//! PBXs on loopback that send what a test sets: AMI on TCP, or AMI as JSON over a WebSocket. Each
//! records its logins and requests.

#[allow(missing_docs, reason = "each says what it does by its name")]
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
/// The end of an empty list of live channels.
const NO_CHANNELS: &str = "Event: CoreShowChannelsComplete\r\nActionID: {id}\r\n\
                           EventList: Complete\r\nListItems: 0\r\n\r\n";
/// The event after a login of an account with the right `system`.
const BOOTED: &str = "Event: FullyBooted\r\nStatus: Fully Booted\r\n\r\n";
const LOGIN_WITHIN: Duration = Duration::from_secs(180);

/// What a test makes a connection do.
enum Say {
    Bytes(Vec<u8>),
    Cut,
}

/// A fake PBX. Its messages go to the client that connected last.
pub struct FakePbx {
    addr: SocketAddr,
    shared: Arc<PbxState>,
    logins: watch::Receiver<u64>,
}

#[derive(Default)]
struct PbxState {
    line: Mutex<Option<mpsc::Sender<Say>>>,
    asked: watch::Sender<Vec<String>>,
    /// Answers `CoreShowChannels`.
    lists: std::sync::atomic::AtomicBool,
    /// Sends no `FullyBooted` after a login.
    hides_boot: std::sync::atomic::AtomicBool,
    /// Answers for each action, used one after the other. The last one is repeated.
    answers: Mutex<BTreeMap<String, Vec<String>>>,
    /// Release whose treatment of classes and filters is used. With `None`, all events are sent.
    release: Mutex<Option<Release>>,
}

/// One connection, on the PBX's side.
struct PbxConnection {
    stream: TcpStream,
    said: mpsc::Receiver<Say>,
    shared: Arc<PbxState>,
    logins: watch::Sender<u64>,
}

impl PbxState {
    fn ask(&self, action: String) {
        self.asked.send_modify(|asked| asked.push(action));
    }

    /// Returns the next of the answers that were set for this action, with this id.
    fn scripted(&self, action: &[String]) -> Option<String> {
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
                let (say, said) = mpsc::channel(1024);
                *ours.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(say);
                tokio::spawn(serve(PbxConnection {
                    stream,
                    said,
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

    /// Returns the address on which it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Makes it list no live channels from now on.
    pub fn lists_no_channels(&self) {
        let lists = &self.shared.lists;
        lists.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Makes it send no `FullyBooted` after a login from now on, as for an account without the
    /// right `system`.
    pub fn hides_boot(&self) {
        let hides = &self.shared.hides_boot;
        hides.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets the answers to the action from now on, one after the other. The last one is repeated.
    /// They are whole messages, with `{id}` for the id of the action.
    pub fn answers(&self, action: &str, answers: &[&str]) {
        let all = &self.shared.answers;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = answers.iter().map(|it| (*it).to_owned()).collect();
        all.insert(action.to_lowercase(), answers);
    }

    /// Makes it treat classes, filters, and actions as this release does, from the next line on.
    pub fn is_of(&self, release: Release) {
        let mut of = self
            .shared
            .release
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *of = Some(release);
    }

    /// Waits until a client has logged in for the `n`-th time.
    pub async fn logged_in(&self, n: u64) {
        let mut logins = self.logins.clone();
        let login = logins.wait_for(|count| *count >= n);
        let waited = tokio::time::timeout(LOGIN_WITHIN, login).await;
        waited.expect("a login in time").expect("a PBX");
    }

    /// Returns all requests, login included. On TCP these are AMI actions as text. On a WebSocket
    /// they are all messages except pings, because amiws passes them to the PBX as actions.
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.borrow().clone()
    }

    /// Waits until an action that begins like this was received.
    pub async fn is_asked(&self, action: &str) {
        let mut asked = self.shared.asked.subscribe();
        let heard = asked.wait_for(|asked| asked.iter().any(|it| it.starts_with(action)));
        let waited = tokio::time::timeout(LOGIN_WITHIN, heard).await;
        waited
            .expect("the action in time")
            .expect("whoever notes it");
    }

    /// Sends AMI text, or one JSON frame, to the current client.
    pub async fn say(&self, message: &[u8]) {
        self.send(Say::Bytes(message.to_vec())).await;
    }

    /// Closes the connection without a message.
    pub async fn cut(&self) {
        self.send(Say::Cut).await;
    }

    async fn send(&self, say: Say) {
        let line = &self.shared.line;
        let line = line.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let line = line.expect("somebody listens");
        assert!(line.send(say).await.is_ok(), "the line is open");
    }
}

async fn ami_line(line: PbxConnection) {
    let PbxConnection {
        stream,
        mut said,
        shared,
        logins,
    } = line;
    let (read, mut write) = stream.into_split();
    let (heard, mut actions) = mpsc::channel(16);
    tokio::spawn(hear_actions(BufReader::new(read).lines(), heard));
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
                    let own = manager.as_mut().and_then(|it| it.hear(&action));
                    answer = shared.scripted(&action).or(own).unwrap_or(answer);
                    let list = action.iter().any(|line| line == "Action: CoreShowChannels");
                    if list && shared.lists.load(std::sync::atomic::Ordering::Relaxed) {
                        let id = value(&action, "ActionID");
                        answer.push_str(&NO_CHANNELS.replace("{id}", id));
                    }
                    shared.ask(action.join("\n"));
                    open |= login;
                    logins.send_if_modified(|count| {
                        *count += u64::from(login);
                        login
                    });
                    answer.into_bytes()
                }
                None => return,
            },
            say = said.recv(), if open => match say {
                Some(Say::Bytes(bytes)) => match &manager {
                    Some(manager) => manager.lets_through(&bytes),
                    None => bytes,
                },
                Some(Say::Cut) | None => return,
            },
        };
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Passes on actions as they arrive, each as its lines.
async fn hear_actions(
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

/// Returns the value of an action under this key.
fn value<'a>(action: &'a [String], key: &str) -> &'a str {
    let pairs = action.iter().filter_map(|line| line.split_once(": "));
    let mut same = pairs.filter(|(name, _)| name.eq_ignore_ascii_case(key));
    same.next().map_or("", |(_, value)| value)
}

/// Returns the answer to an action, and whether it was a login that succeeded.
fn answer(action: &[String]) -> (String, bool) {
    let get = |key: &str| value(action, key);
    let id = match get("ActionID") {
        "" => String::new(),
        id => format!("ActionID: {id}\r\n"),
    };
    let success = |words: &str| format!("Response: Success\r\n{id}{words}\r\n\r\n");
    match get("Action").to_lowercase().as_str() {
        "challenge" => (success(&format!("Challenge: {CHALLENGE}")), false),
        "login" if get("Key") == md5_hex(&format!("{CHALLENGE}{SECRET}")) => {
            (success("Message: Authentication accepted") + BOOTED, true)
        }
        "login" => {
            let words = "Message: Authentication failed\r\n\r\n";
            (format!("Response: Error\r\n{id}{words}"), false)
        }
        "ping" => (success("Ping: Pong"), false),
        _ => (success("Message: done"), false),
    }
}

fn md5_hex(text: &str) -> String {
    let hash = Md5::digest(text.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn websocket_line(line: PbxConnection) {
    let PbxConnection {
        stream,
        mut said,
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
                    shared.ask(format!("{message:?}"));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            say = said.recv() => match say {
                Some(Say::Bytes(bytes)) => {
                    // A raw frame, because amiws sends bytes that are not UTF-8 inside text frames.
                    let text = OpCode::Data(Data::Text);
                    let frame = Frame::message(Bytes::from(bytes), text, true);
                    if write.send(Message::Frame(frame)).await.is_err() {
                        return;
                    }
                }
                Some(Say::Cut) | None => return,
            },
        }
    }
}
