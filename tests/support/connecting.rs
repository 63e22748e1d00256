//! Runs `callbridge connect` and plays the user at its terminal and browser.

use callbridge_testbed::wait::soon;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

/// An HTTP answer.
pub struct Page {
    pub status: u16,
    pub location: Option<String>,
    pub body: String,
}

/// Sends one HTTP request. Follows no redirect, because the tests check redirects.
pub async fn http(method: &str, url: &str, kind: &str, body: &str) -> Page {
    let url = url::Url::parse(url).expect("a URL");
    let host = format!(
        "{}:{}",
        url.host_str().expect("a host"),
        url.port().expect("a port")
    );
    let target = url[url::Position::BeforePath..].to_owned();
    let mut line = TcpStream::connect(&host).await.expect("connected");
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {kind}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    line.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    let read = line.read_to_string(&mut text);
    soon("an answer", read).await.expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let location = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("location")
            .then(|| value.to_owned())
    });
    let status = head.split(' ').nth(1).expect("a status");
    Page {
        status: status.parse().expect("a number"),
        location,
        body: body.to_owned(),
    }
}

/// A running `callbridge connect`.
pub struct Connecting {
    pub child: Child,
    out: BufReader<ChildStdout>,
    /// The address that `connect` asks the user to open.
    pub open: String,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Connecting {
    pub async fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("stdout"));
        let mut stdout = String::new();
        // In a terminal, other output can precede the address.
        let open = loop {
            let from = stdout.len();
            let read = soon("the address to open", out.read_line(&mut stdout)).await;
            assert!(read.expect("text") > 0, "{stdout}");
            if let Some(open) = stdout[from..].trim_end().strip_prefix("open: ") {
                break open.to_owned();
            }
        };
        Self { child, out, open }
    }

    /// Waits until a line on stdout contains `words`.
    pub async fn wait_for_output(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            let read = soon(words, self.out.read_line(&mut line)).await;
            assert!(read.expect("text") > 0, "it ended before `{words}`");
        }
    }

    /// Submits the consent page. Returns the address that the browser is redirected to.
    pub async fn submit_consent(&self, form: &str) -> String {
        let kind = "application/x-www-form-urlencoded";
        let page = http("POST", &self.open, kind, form).await;
        assert_eq!(page.status, 302, "{}", page.body);
        page.location.expect("an address")
    }

    /// Submits the consent page and follows the redirect.
    pub async fn answer(&self, form: &str) {
        let back = self.submit_consent(form).await;
        let page = http("GET", &back, "text/plain", "").await;
        assert_eq!(page.status, 200, "{}", page.body);
    }

    /// Writes a line to stdin, as a user pastes a line into the terminal.
    pub async fn paste(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin");
        let line = format!("{line}\n");
        stdin.write_all(line.as_bytes()).await.expect("written");
        stdin.flush().await.expect("written");
    }

    /// Waits until the command exits. Returns its exit code and output.
    pub async fn end(mut self) -> CommandOutput {
        let stdin = self.child.stdin.take();
        let mut out = String::new();
        let rest = async {
            self.out.read_to_string(&mut out).await.expect("text");
            self.child.wait_with_output().await.expect("its end")
        };
        let output = soon("the end of connect", rest).await;
        drop(stdin);
        CommandOutput {
            code: output.status.code(),
            out,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
