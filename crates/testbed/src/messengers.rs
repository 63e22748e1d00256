//! The servers that `deploy/notify` sends to: Telegram's bot API over plain HTTP, and an SMTP
//! server.

use crate::wait;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

/// A server that receives messages, and passes each one to the test.
#[derive(Debug)]
pub struct Messenger {
    /// `HOST:PORT`
    pub address: String,
    asked: mpsc::Receiver<String>,
}

impl Messenger {
    fn start(serve: fn(TcpStream) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (ask, asked) = mpsc::sync_channel(64);
        std::thread::spawn(move || {
            for line in listener.incoming().map_while(Result::ok) {
                if ask.send(serve(line)).is_err() {
                    return;
                }
            }
        });
        Self { address, asked }
    }

    /// Starts a server that takes messages for a chat. For each it passes on the first line of the
    /// request, the form, and whether an argument of any process showed the token `bot1:TOKEN`
    /// meanwhile.
    pub fn telegram() -> Self {
        Self::start(telegram)
    }

    /// Starts a server that takes mail, and passes on everything that it receives.
    pub fn smtp() -> Self {
        Self::start(smtp)
    }

    /// Returns the next request that it receives.
    pub async fn next(&self) -> String {
        let mut next = None;
        wait::until("a message", async || {
            next = self.asked.try_recv().ok();
            next.is_some()
        })
        .await;
        next.expect("a message")
    }
}

fn telegram(mut line: TcpStream) -> String {
    let mut reader = BufReader::new(line.try_clone().expect("a line"));
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            break;
        }
        let named = head[from..].to_ascii_lowercase();
        if let Some(value) = named.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut form = vec![0; length];
    reader.read_exact(&mut form).expect("a form");
    let form: Vec<(String, String)> = url::form_urlencoded::parse(&form).into_owned().collect();
    let seen = arguments();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    line.write_all(answer.as_bytes()).expect("answered");
    let shown = seen.contains("bot1:TOKEN");
    format!(
        "{} {form:?} token shown: {shown}",
        head.lines().next().unwrap_or_default()
    )
}

/// Returns the output of `ps`.
fn arguments() -> String {
    let all = std::fs::read_dir("/proc").expect("processes");
    let all = all.filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    all.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

fn say(line: &mut TcpStream, words: &str) {
    line.write_all(format!("{words}\r\n").as_bytes())
        .expect("said");
}

fn smtp(mut line: TcpStream) -> String {
    let reader = BufReader::new(line.try_clone().expect("a line"));
    let (mut told, mut in_mail) = (String::new(), false);
    say(&mut line, "220 double");
    for text in reader.lines().map_while(Result::ok) {
        told.push_str(&format!("{text}\n"));
        match (in_mail, text.as_str()) {
            (true, ".") => {
                in_mail = false;
                say(&mut line, "250 taken");
            }
            (true, _) => {}
            (false, "DATA") => {
                in_mail = true;
                say(&mut line, "354 go on");
            }
            (false, "QUIT") => {
                say(&mut line, "221 bye");
                break;
            }
            (false, _) => say(&mut line, "250 well"),
        }
    }
    told
}
