//! PBXs that say what a test tells them to: one speaks AMI on TCP, one AMI as JSON over a
//! WebSocket. Each remembers who is connected, so that a test waits for the event itself.

use futures_util::{SinkExt, StreamExt};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// The secret every test PBX accepts.
pub const SECRET: &str = "bridgesecret";

/// What a line carries to its listener.
enum Say {
    Bytes(Vec<u8>),
    Cut,
}

/// A PBX on loopback.
pub struct Pbx {
    addr: SocketAddr,
    line: Arc<Mutex<Option<mpsc::Sender<Say>>>>,
    logins: watch::Receiver<u64>,
}

impl Pbx {
    /// One that speaks AMI on TCP and lets in whoever knows [`SECRET`].
    pub async fn ami() -> Self {
        Self::listen(ami_line).await
    }

    /// One that speaks AMI as JSON over a WebSocket, as amiws does.
    pub async fn websocket() -> Self {
        Self::listen(websocket_line).await
    }

    async fn listen<F, L>(serve: F) -> Self
    where
        F: Fn(TcpStream, mpsc::Receiver<Say>, watch::Sender<u64>) -> L + Send + Sync + 'static,
        L: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
        let addr = listener.local_addr().expect("its address");
        let line = Arc::new(Mutex::new(None));
        let (logged_in, logins) = watch::channel(0);
        let current = Arc::clone(&line);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (say, said) = mpsc::channel(1024);
                *current.lock().await = Some(say);
                tokio::spawn(serve(stream, said, logged_in.clone()));
            }
        });
        Self { addr, line, logins }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Waits until somebody has logged in for the `n`-th time.
    pub async fn logged_in(&self, n: u64) {
        let mut logins = self.logins.clone();
        let login = logins.wait_for(|count| *count >= n);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(60), login).await;
        waited.expect("a login within a minute").expect("a PBX");
    }

    /// Says a message (AMI text with its empty line; one JSON frame) to who listens now.
    pub async fn say(&self, message: &[u8]) {
        self.send(Say::Bytes(message.to_vec())).await;
    }

    /// Ends the line without a word.
    pub async fn cut(&self) {
        self.send(Say::Cut).await;
    }

    async fn send(&self, say: Say) {
        let line = self.line.lock().await.clone().expect("somebody listens");
        line.send(say).await.ok().expect("the line is open");
    }
}

async fn ami_line(
    stream: TcpStream,
    mut said: mpsc::Receiver<Say>,
    logged_in: watch::Sender<u64>,
) {
    let (read, mut write) = stream.into_split();
    let (answer, mut answers) = mpsc::channel::<(String, bool)>(16);
    tokio::spawn(async move {
        let mut lines = BufReader::new(read).lines();
        let mut action = Vec::new();
        while let Ok(Some(line)) = lines.next_line().await {
            if !line.is_empty() {
                action.push(line);
            } else if answer.send(ami_answer(&std::mem::take(&mut action))).await.is_err() {
                return;
            }
        }
    });
    let _ = write.write_all(b"Asterisk Call Manager/11.0.0\r\n").await;
    let mut heard = false;
    loop {
        let bytes = tokio::select! {
            answer = answers.recv() => match answer {
                Some((text, login)) => {
                    if login {
                        heard = true;
                        logged_in.send_modify(|count| *count += 1);
                    }
                    text.into_bytes()
                }
                None => return,
            },
            say = said.recv(), if heard => match say {
                Some(Say::Bytes(bytes)) => bytes,
                Some(Say::Cut) | None => return,
            },
        };
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// The answer to an action, and whether it was a login that succeeded.
fn ami_answer(action: &[String]) -> (String, bool) {
    let get = |key: &str| {
        let line = action.iter().find(|line| line.to_lowercase().starts_with(key));
        line.and_then(|line| line.split_once(": ")).map_or("", |(_, value)| value).to_owned()
    };
    let id = match get("actionid:") {
        id if id.is_empty() => String::new(),
        id => format!("ActionID: {id}\r\n"),
    };
    let success = |words: &str| format!("Response: Success\r\n{id}{words}\r\n\r\n");
    match get("action:").to_lowercase().as_str() {
        "challenge" => (success("Challenge: 4711"), false),
        "login" => {
            let digest = md5_hex(format!("4711{SECRET}").as_bytes());
            if get("key:") == digest || get("secret:") == SECRET {
                let booted = "Event: FullyBooted\r\nStatus: Fully Booted\r\n\r\n";
                (success("Message: Authentication accepted") + booted, true)
            } else {
                let words = "Message: Authentication failed\r\n\r\n";
                (format!("Response: Error\r\n{id}{words}"), false)
            }
        }
        "ping" => (success("Ping: Pong"), false),
        _ => (success("Message: done"), false),
    }
}

fn md5_hex(bytes: &[u8]) -> String {
    use md5::Digest;
    md5::Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn websocket_line(
    stream: TcpStream,
    mut said: mpsc::Receiver<Say>,
    logged_in: watch::Sender<u64>,
) {
    let Ok(socket) = tokio_tungstenite::accept_async(stream).await else { return };
    let (mut write, mut read) = socket.split();
    logged_in.send_modify(|count| *count += 1);
    loop {
        tokio::select! {
            heard = read.next() => match heard {
                // Whatever a client sends, amiws forwards to the PBX as an action.
                Some(Ok(Message::Text(text))) => panic!("an action reached the PBX: {text}"),
                Some(Ok(Message::Binary(bytes))) => panic!("an action reached the PBX: {bytes:?}"),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            say = said.recv() => match say {
                Some(Say::Bytes(bytes)) => {
                    // Raw, for amiws sends bad bytes inside text frames.
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
