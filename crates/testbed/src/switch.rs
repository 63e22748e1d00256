//! A FreeSWITCH on loopback whose event socket answers as the sockets in the recordings did. It
//! sends the events and answers that a test sets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// The password of the event socket of [`FakeSwitch`].
pub const PASSWORD: &str = "password of the switch";
/// Maximum wait for a subscription or a command of a client.
const WITHIN: Duration = Duration::from_secs(180);
/// The message of an event socket that closes a connection.
const FAREWELL: &str = "Content-Type: text/disconnect-notice\nContent-Length: 67\n\n\
    Disconnected, goodbye.\nSee you at ClueCon! http://www.cluecon.com/\n";

/// What the connection does next.
enum Step {
    /// Sends complete frames, in pieces of this many bytes.
    Frames(Vec<u8>, usize),
    /// Closes the connection.
    Cut,
}

#[derive(Default)]
struct SwitchState {
    line: Mutex<Option<mpsc::Sender<Step>>>,
    requests: watch::Sender<Vec<String>>,
    /// The answers to `api COMMAND`, by command.
    answers: Mutex<BTreeMap<String, String>>,
    /// Number of subscriptions to events so far.
    listeners: watch::Sender<u64>,
    refuses_addresses: std::sync::atomic::AtomicBool,
}

/// A fake switch. It sends its events to the client that subscribed last.
pub struct FakeSwitch {
    addr: SocketAddr,
    shared: Arc<SwitchState>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeSwitch {
    /// Starts a switch without channels. It accepts logins with [`PASSWORD`].
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("bound");
        let shared = Arc::new(SwitchState::default());
        let ours = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&ours)));
            }
        });
        let switch = Self { addr, shared };
        switch.answers("show channels as json", r#"{"row_count":0}"#);
        switch.answers("uptime ms", "86400000\n");
        switch
    }

    /// Returns the address on which the switch listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sets the answer to `api COMMAND` from now on.
    pub fn answers(&self, command: &str, answer: &str) {
        lock(&self.shared.answers).insert(command.to_owned(), answer.to_owned());
    }

    /// Makes the switch refuse connections from all addresses from now on.
    pub fn refuse_addresses(&self) {
        let refuses = &self.shared.refuses_addresses;
        refuses.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Waits until clients have subscribed to events `n` times.
    pub async fn subscribed(&self, n: u64) {
        let mut listeners = self.shared.listeners.subscribe();
        let waited = listeners.wait_for(|count| *count >= n);
        let waited = tokio::time::timeout(WITHIN, waited).await;
        waited.expect("a subscription in time").expect("a switch");
    }

    /// Returns all commands that clients sent, in order.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until clients have sent this command `n` times.
    pub async fn wait_for_command(&self, command: &str, n: usize) {
        let mut requests = self.shared.requests.subscribe();
        let waited = requests.wait_for(|all| {
            let same = all.iter().filter(|request| *request == command);
            same.count() >= n
        });
        let waited = tokio::time::timeout(WITHIN, waited).await;
        waited.expect("the command in time").expect("a switch");
    }

    /// Sends complete frames to the client that subscribed last.
    pub async fn send(&self, frames: &[u8]) {
        self.send_in_pieces(frames, frames.len().max(1)).await;
    }

    /// Sends complete frames to the client that subscribed last, in pieces of `bytes` bytes.
    pub async fn send_in_pieces(&self, frames: &[u8], bytes: usize) {
        self.send_step(Step::Frames(frames.to_vec(), bytes)).await;
    }

    /// Sends an event to the client that subscribed last. `body` is the event as JSON.
    pub async fn event(&self, body: &str) {
        let head = format!(
            "Content-Length: {}\nContent-Type: text/event-json\n\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body.as_bytes()].concat())
            .await;
    }

    /// Closes the connection without a message.
    pub async fn cut(&self) {
        self.send_step(Step::Cut).await;
    }

    async fn send_step(&self, step: Step) {
        let line = lock(&self.shared.line).clone();
        let line = line.expect("a client has subscribed");
        // If the connection is closed, the step is dropped without an error.
        let _ = line.send(step).await;
    }
}

/// Returns the frames that a recorded event socket sent after its answer to the subscription.
pub fn frames_after_subscription(recorded: &[u8]) -> &[u8] {
    let mut rest = recorded;
    for _ in 0..3 {
        let end = rest.windows(2).position(|pair| pair == b"\n\n");
        rest = &rest[end.expect("three answers") + 2..];
    }
    rest
}

async fn serve(stream: TcpStream, shared: Arc<SwitchState>) {
    let (read, mut write) = stream.into_split();
    if shared
        .refuses_addresses
        .load(std::sync::atomic::Ordering::Relaxed)
    {
        let words = "Content-Type: text/rude-rejection\nContent-Length: 24\n\n\
                     Access Denied, go away.\n";
        let _ = write.write_all(words.as_bytes()).await;
        return;
    }
    let mut commands = BufReader::new(read).lines();
    let (step_sender, mut steps) = mpsc::channel(1024);
    let mut authorized = false;
    if write
        .write_all(b"Content-Type: auth/request\n\n")
        .await
        .is_err()
    {
        return;
    }
    loop {
        let (bytes, piece) = tokio::select! {
            line = commands.next_line() => match line {
                Ok(Some(line)) if line.is_empty() => continue,
                Ok(Some(line)) => {
                    let (answer, end) = answer(&shared, &mut authorized, &line);
                    if line.starts_with("event ") && authorized {
                        *lock(&shared.line) = Some(step_sender.clone());
                        shared.listeners.send_modify(|count| *count += 1);
                    }
                    shared.requests.send_modify(|requests| requests.push(line));
                    if end {
                        let _ = write.write_all(answer.as_bytes()).await;
                        return;
                    }
                    let length = answer.len().max(1);
                    (answer.into_bytes(), length)
                }
                Ok(None) | Err(_) => return,
            },
            step = steps.recv() => match step {
                Some(Step::Frames(bytes, piece)) => (bytes, piece),
                Some(Step::Cut) | None => return,
            },
        };
        for piece in bytes.chunks(piece) {
            if write.write_all(piece).await.is_err() {
                return;
            }
        }
    }
}

fn reply(words: &str) -> String {
    format!("Content-Type: command/reply\nReply-Text: {words}\n\n")
}

/// Returns the answer to a command, and whether the switch closes the connection after the answer.
/// Sets `authorized` if the command is a login with the right password.
fn answer(shared: &SwitchState, authorized: &mut bool, line: &str) -> (String, bool) {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("auth", password) if password == PASSWORD => {
            *authorized = true;
            (reply("+OK accepted"), false)
        }
        ("auth", _) => (reply("-ERR invalid") + FAREWELL, true),
        ("exit", _) => (reply("+OK bye") + FAREWELL, true),
        _ if !*authorized => (reply("-ERR command not found"), false),
        ("event", _) => (reply("+OK event listener enabled json"), false),
        ("api", command) => {
            let answers = lock(&shared.answers);
            let name = command.split(' ').next().unwrap_or_default();
            let missing = format!("-ERR {name} Command not found!\n");
            let body = answers.get(command).cloned().unwrap_or(missing);
            let length = body.len();
            let head = format!("Content-Type: api/response\nContent-Length: {length}\n\n");
            (head + &body, false)
        }
        _ => (reply("-ERR command not found"), false),
    }
}
