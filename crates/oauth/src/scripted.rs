//! An OAuth host for tests. It answers from a script, and records the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers with this status and this body.
    Say(u16, String),
    /// Closes the connection without an answer, after the request was read.
    Close,
    /// Sends this answer after the next [`Scripted::go_on`].
    Wait(Box<Reply>),
}

/// The scripted host. Clones share its script and its records.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    pub(crate) url: String,
    script: Arc<Mutex<VecDeque<Reply>>>,
    asked: watch::Sender<Vec<String>>,
    going_on: watch::Sender<bool>,
}

impl Scripted {
    /// Listens on a free port. After the end of its script, it answers 503.
    pub(crate) async fn start(script: Vec<Reply>) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let host = Self {
            url: format!("http://127.0.0.1:{port}"),
            script: Arc::new(Mutex::new(script.into())),
            asked: watch::channel(Vec::new()).0,
            going_on: watch::channel(false).0,
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

    /// Appends an answer to the script.
    pub(crate) fn then(&self, reply: Reply) {
        self.script.lock().expect("the script").push_back(reply);
    }

    /// Path and form of each request so far: `/v1/… grant_type=…`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.borrow().clone()
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn is_asked(&self, count: usize) {
        let mut asked = self.asked.subscribe();
        drop(asked.wait_for(|asked| asked.len() >= count).await);
    }

    /// Sends the answers that wait.
    pub(crate) fn go_on(&self) {
        self.going_on.send_replace(true);
    }

    async fn serve(&self, mut line: TcpStream) {
        let mut bytes = Vec::new();
        let request = loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    let is = name.eq_ignore_ascii_case("content-length");
                    is.then(|| value.trim().parse::<usize>().ok())?
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
            self.note(&request);
            let mut going_on = self.going_on.subscribe();
            drop(going_on.wait_for(|going_on| *going_on).await);
            return answer(line, *reply).await;
        }
        answer(line, reply).await;
        self.note(&request);
    }

    fn note(&self, request: &str) {
        self.asked
            .send_modify(|asked| asked.push(request.to_owned()));
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

/// A pair as in the token endpoint's answer.
pub(crate) fn pair(name: &str, life: u64) -> Reply {
    let body = serde_json::json!({
        "access_token": format!("svc_at_{name}"), "token_type": "Bearer", "expires_in": life,
        "refresh_token": format!("svcrt_{name}"), "scope": "PERMISSION_OPEN_API_CALL:SAVE",
    });
    Reply::Say(200, body.to_string())
}
