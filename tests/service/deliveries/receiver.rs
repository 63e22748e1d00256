//! An HTTPS endpoint that records its deliveries and gives the answers that a test sets.

use callbridge_testbed::authority::{Authority, Flaw};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

/// An answer to a delivery.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// An answer with this status.
    Status(u16),
    /// 302 to another path of the same host.
    Redirect,
    /// Closes the connection without an answer.
    Cut,
    /// Reads the request and never answers.
    Hang,
}

/// A delivery as it was received. Header names are in lower case.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the only value of a header.
    pub fn header(&self, name: &str) -> &str {
        let mut values = self.headers.iter().filter(|(given, _)| given == name);
        let value = values.next().unwrap_or_else(|| panic!("no header {name}"));
        assert!(values.next().is_none(), "{name} twice");
        &value.1
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// Returns `true` if the signature is HMAC-SHA256 of `timestamp.body` with the secret's text as
    /// the key. This follows the document and does not use callbridge's code.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let mut context = ring::hmac::Context::with_key(&key);
        context.update(self.header("x-webhook-timestamp").as_bytes());
        context.update(b".");
        context.update(&self.body);
        let hex: String = context
            .sign()
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.header("x-webhook-signature") == format!("sha256={hex}")
    }
}

/// A running endpoint.
pub struct Receiver {
    pub port: u16,
    received: tokio::sync::Mutex<mpsc::Receiver<Received>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
}

impl Receiver {
    /// Listens on a free loopback port, with a certificate of this authority for `localhost`.
    pub async fn start(authority: &Authority) -> Self {
        let identity = authority.identity(Flaw::None);
        let chain = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![chain.expect("a certificate")], key)
            .expect("a server");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (send, received) = mpsc::channel(1_000);
        let answers: Arc<Mutex<VecDeque<Answer>>> = Arc::default();
        let set_answers = Arc::clone(&answers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, send, set_answers) =
                    (acceptor.clone(), send.clone(), Arc::clone(&set_answers));
                tokio::spawn(async move { serve(stream, acceptor, send, set_answers).await });
            }
        });
        Self {
            port,
            received: tokio::sync::Mutex::new(received),
            answers,
        }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}/webhooks", self.port)
    }

    /// Sets the next answers, in this order. If no answer is set, the endpoint answers 204.
    pub fn answer(&self, answers: &[Answer]) {
        self.answers.lock().expect("not poisoned").extend(answers);
    }

    /// Waits for the next delivery.
    pub async fn next(&self) -> Received {
        let mut received = self.received.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(180), received.recv()).await;
        next.expect("a delivery within three minutes")
            .expect("it runs")
    }

    /// Removes and returns the deliveries that have already come.
    pub async fn take_received(&self) -> Vec<Received> {
        let mut received = self.received.lock().await;
        std::iter::from_fn(|| received.try_recv().ok()).collect()
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    send: mpsc::Sender<Received>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut bytes = Vec::new();
    let received = loop {
        let mut piece = [0; 16_384];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
        if let Some(received) = parse_request(&bytes) {
            break received;
        }
    };
    let answer = answers.lock().expect("not poisoned").pop_front();
    send.send(received).await.expect("the test listens");
    let text = match answer.unwrap_or(Answer::Status(204)) {
        Answer::Status(status) => format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"),
        Answer::Redirect => {
            "HTTP/1.1 302 X\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_owned()
        }
        Answer::Cut => return,
        Answer::Hang => std::future::pending().await,
    };
    // A client that has disconnected needs no answer.
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Parses a request if it is complete.
fn parse_request(bytes: &[u8]) -> Option<Received> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length")?;
    let body = &bytes[end + 4..];
    let length: usize = length.1.parse().ok()?;
    (body.len() >= length).then(|| Received {
        path,
        headers: headers.clone(),
        body: body[..length].to_vec(),
    })
}
