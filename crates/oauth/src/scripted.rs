//! An OAuth host for tests, which responds according to a script and records the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Respond with this status and body.
    Say(u16, String),
    /// Close the connection without a response after reading the request.
    Close,
    /// Send this response once [`Scripted::release_answers`] has been called.
    Wait(Box<Reply>),
}

/// The scripted host. Clones share its script and its records.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    pub(crate) url: String,
    script: Arc<Mutex<VecDeque<Reply>>>,
    requests: watch::Sender<Vec<String>>,
    released: watch::Sender<bool>,
}

impl Scripted {
    /// Starts a host on a free port. Once its script has ended, it responds with 503.
    pub(crate) async fn start(script: Vec<Reply>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let host = Self {
            url: format!("http://127.0.0.1:{port}"),
            script: Arc::new(Mutex::new(script.into())),
            requests: watch::channel(Vec::new()).0,
            released: watch::channel(false).0,
        };
        let serving = host.clone();
        tokio::spawn(async move {
            while let Ok((line, _)) = listener.accept().await {
                let host = serving.clone();
                tokio::spawn(async move { host.serve(line).await });
            }
        });
        host
    }

    /// Appends a response to the script.
    pub(crate) fn push(&self, reply: Reply) {
        self.script.lock().expect("the script").push_back(reply);
    }

    /// Returns the path and form of each request so far, such as `/v1/… grant_type=…`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.borrow().clone()
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        let mut requests = self.requests.subscribe();
        drop(requests.wait_for(|requests| requests.len() >= count).await);
    }

    /// Makes the host send all responses that are being held back, both now and later.
    pub(crate) fn release_answers(&self) {
        self.released.send_replace(true);
    }

    async fn serve(&self, mut line: TcpStream) {
        let mut bytes = Vec::new();
        let request = loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    let is_length = name.eq_ignore_ascii_case("content-length");
                    is_length.then(|| value.trim().parse::<usize>().ok())?
                });
                if body.len() >= length.unwrap_or(0) {
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    break format!("{path} {body}");
                }
            }
            let mut some = [0; 4096];
            match line.read(&mut some).await {
                Ok(count) if count > 0 => bytes.extend_from_slice(&some[..count]),
                _ => return,
            }
        };
        let scripted = self.script.lock().expect("the script").pop_front();
        let reply = scripted.unwrap_or(Reply::Say(503, String::new()));
        if let Reply::Wait(reply) = reply {
            self.record_request(&request);
            let mut released = self.released.subscribe();
            drop(released.wait_for(|released| *released).await);
            return answer(line, *reply).await;
        }
        answer(line, reply).await;
        self.record_request(&request);
    }

    fn record_request(&self, request: &str) {
        self.requests
            .send_modify(|requests| requests.push(request.to_owned()));
    }
}

async fn answer(mut line: TcpStream, reply: Reply) {
    let Reply::Say(status, body) = reply else {
        return;
    };
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}", body.len());
    let answer = format!("{head}\r\nconnection: close\r\n\r\n{body}");
    line.write_all(answer.as_bytes()).await.ok();
}

/// Returns a response from the token endpoint with a new pair of tokens. `name` is the end of both
/// tokens, as in `svc_at_second`, and `life` is `expires_in`, in seconds.
pub(crate) fn pair(name: &str, life: u64) -> Reply {
    let body = serde_json::json!({
        "access_token": format!("svc_at_{name}"), "token_type": "Bearer", "expires_in": life,
        "refresh_token": format!("svcrt_{name}"), "scope": "PERMISSION_OPEN_API_CALL:SAVE",
    });
    Reply::Say(200, body.to_string())
}
