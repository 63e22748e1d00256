//! Tests that no output shows a secret if a server or a proxy repeats each request's secrets in its
//! response.

use crate::e2e::security::secrets::forms;
use crate::support::connecting::{Connecting, http};
use crate::support::crm::RATE_FLAG;
use crate::support::program::{Place, Program, TOKEN};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use callbridge_testbed::calls::{Call, recording};
use callbridge_testbed::port::free_addr;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const CLIENT: &str = "svc_app_1";
const CLIENT_SECRET: &str = "svc_sec/of+the tests\"1";
const CODE: &str = "code/of+the tests";
const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";

/// The encoding in which the server repeats a text.
#[derive(Clone, Copy, Debug)]
enum EchoForm {
    Plain,
    Percent,
    PercentLowerCase,
    Json,
    Base64,
    Base64UrlSafe,
}

impl EchoForm {
    const ALL: [Self; 6] = [
        Self::Plain,
        Self::Percent,
        Self::PercentLowerCase,
        Self::Json,
        Self::Base64,
        Self::Base64UrlSafe,
    ];

    /// Encodes a text.
    fn encode(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Percent => percent_encode(text.as_bytes(), NON_ALPHANUMERIC).to_string(),
            Self::PercentLowerCase => {
                let escaped = text.bytes().map(|byte| format!("%{byte:02x}"));
                escaped.collect()
            }
            Self::Json => json!({ "request": text }).to_string(),
            Self::Base64 => STANDARD.encode(text),
            Self::Base64UrlSafe => URL_SAFE_NO_PAD.encode(text),
        }
    }
}

/// Creates the server's response, consisting of the HTTP status and the body, given the request's
/// path and the text to repeat.
type Answer = fn(&str, &str) -> (u16, Value);

/// Starts a server that repeats each request's token or body in each `EchoForm` in turn, and
/// returns the server's URL.
async fn start_server(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut count = 0;
        while let Ok((stream, _)) = listener.accept().await {
            if let Some((path, secret)) = read_request(&stream).await {
                let form = EchoForm::ALL[count % EchoForm::ALL.len()];
                count += 1;
                let (status, body) = answer(&path, &form.encode(&secret));
                write_answer(stream, status, &body.to_string()).await;
            }
        }
    });
    format!("http://{address}")
}

/// Reads a request, and returns its path along with its token, or with its body if it has no token.
async fn read_request(stream: &TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = header_value(head, "content-length");
            let length = length.map_or(0, |value| value.parse().expect("n"));
            if body.len() >= length {
                let path = head.split(' ').nth(1)?.to_owned();
                let secret = header_value(head, "x-open-api-token").unwrap_or(body);
                return Some((path, secret.to_owned()));
            }
        }
        let mut part = [0; 4096];
        let read = loop {
            stream.readable().await.ok()?;
            match stream.try_read(&mut part) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                read => break read.ok()?,
            }
        };
        if read == 0 {
            return None;
        }
        bytes.extend_from_slice(&part[..read]);
    }
}

/// Returns a header's value, or `None` if the request doesn't have that header.
fn header_value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let (_, value) = headers.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    Some(value)
}

async fn write_answer(mut stream: TcpStream, status: u16, body: &str) {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    let _ = stream.read(&mut [0]).await;
}

/// Checks that a text doesn't show a secret in any form, and has `[redacted]` instead. `source`
/// identifies the text in the message.
fn assert_redacted(source: &str, text: &str, secrets: &[&str]) {
    for form in secrets.iter().flat_map(|secret| forms(secret)) {
        assert!(!text.contains(&form), "`{form}` is in {source}: {text}");
    }
    assert!(text.contains("[redacted]"), "{source}: {text}");
}

/// Returns the response to `token/info` for a company with this name.
fn token_info(name: &str) -> Value {
    json!({"accept": true, "message": "Success", "data": {
        "company": {"id": 1, "name": format!("Company {name}")}, "kind": "PAT",
        "permissions": [{"permission": "PERMISSION_OPEN_API_CALL", "scope": "SAVE"}],
    }})
}

/// Promise: No secret is in logs, status, metrics, the state, or arguments.
#[tokio::test]
async fn check_redacts_an_echoed_token() {
    let answers: [Answer; 3] = [
        |_, echo| (200, token_info(echo)),
        |_, echo| {
            let message = format!("no right: {echo}");
            (403, json!({"accept": false, "message": message}))
        },
        // A proxy responds without the API's envelope.
        |_, echo| (403, json!({"message": format!("blocked: {echo}")})),
    ];
    for answer in answers {
        let url = start_server(answer).await;
        let place = Place::new();
        place.append("recorded", b"");
        let source = place.file("recorded", "ami");
        let mut check = place.arguments(&url, &[&source, TRUNK, RATE_FLAG]);
        check[0] = "check".to_owned();
        let check: Vec<&str> = check.iter().map(String::as_str).collect();
        for _ in EchoForm::ALL {
            let output = place.command(&check).await;
            let text = [output.stdout, output.stderr].concat();
            assert_redacted("check", &String::from_utf8_lossy(&text), &[TOKEN]);
        }
    }
}

/// Responds to calls with 400 and an error that repeats the text `echo`.
fn reject_calls(path: &str, echo: &str) -> (u16, Value) {
    if path.contains("token/info") {
        return (200, token_info(echo));
    }
    let errors = json!([{"field": "uuid", "reason": format!("no {echo}"), "args": [echo]}]);
    (
        400,
        json!({"accept": false, "message": format!("rejected: {echo}"), "errors": errors}),
    )
}

/// Responds to calls with 503 and a message that repeats the text `echo`.
fn refuse_calls(path: &str, echo: &str) -> (u16, Value) {
    if path.contains("token/info") {
        return (200, token_info(echo));
    }
    (
        503,
        json!({"accept": false, "message": format!("down: {echo}")}),
    )
}

/// Runs callbridge with `count` calls and a server that sends these responses.
async fn run_with_calls(place: &Place, count: u32, answer: Answer) -> Program {
    let url = start_server(answer).await;
    let calls: Vec<Call> = (1..=count).map(|n| Call::new(n, 4001)).collect();
    place.append("recorded", recording(&calls).as_bytes());
    let source = place.file("recorded", "ami");
    place.run(&url, &[&source, TRUNK, RATE_FLAG, "--log=debug"])
}

#[tokio::test]
async fn dead_letters_log_and_status_redact_an_echoed_token() {
    let place = Place::new();
    let mut program = run_with_calls(&place, 4, reject_calls).await;
    program
        .until("four dead letters", |status| status.books.dead == 4)
        .await;
    for arguments in [
        &["dead", "list", "--json"][..],
        &["dead", "export", "--all", "--format=jsonl"],
        &["status"],
    ] {
        let output = place.command(arguments).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_redacted(&arguments.join(" "), &text, &[TOKEN]);
    }
    let letters = place.letters().await;
    for letter in &letters {
        assert_redacted("errors[]", &letter["errors"].to_string(), &[TOKEN]);
    }
    program.terminate().await;
    assert_redacted("the log", &place.logs(), &[TOKEN]);
}

#[tokio::test]
async fn log_and_status_of_an_outage_redact_an_echoed_token() {
    let place = Place::new();
    let mut program = run_with_calls(&place, 6, refuse_calls).await;
    program
        .until("the outage", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| pause.fix.contains("(503: down: "))
        })
        .await;
    let output = place.command(&["status"]).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_redacted("status", &text, &[TOKEN]);
    program.terminate().await;
    assert_redacted("the log", &place.logs(), &[TOKEN]);
}

#[tokio::test]
async fn connect_redacts_an_echoed_code_and_client_secret() {
    let answers: [Answer; 3] = [
        |_, echo| (400, json!({"accept": false, "message": echo})),
        |_, echo| (401, json!({"accept": false, "error_description": echo})),
        |_, echo| (403, json!({"error": echo})),
    ];
    for answer in answers {
        let url = start_server(answer).await;
        for _ in EchoForm::ALL {
            let place = Place::new();
            place.write("client.secret", CLIENT_SECRET);
            let redirect = format!("http://{}/back", free_addr());
            let flags = [
                format!("--crm-url={url}"),
                format!("--auth-url={url}"),
                format!("--consent-url={url}/consent"),
                format!("--client-id={CLIENT}"),
                format!("--client-secret-file={}", place.path("client.secret")),
                format!("--redirect-uri={redirect}"),
                format!("--state={}", place.path("state")),
            ];
            let mut command = Command::new(env!("CARGO_BIN_EXE_callbridge"));
            let command = command.env_clear().arg("connect").args(flags);
            let connecting = Connecting::start(command).await;
            let open = url::Url::parse(&connecting.open).expect("a URL");
            let mut query = open.query_pairs();
            let (_, state) = query.find(|(key, _)| key == "state").expect("a state");
            let code = percent_encode(CODE.as_bytes(), NON_ALPHANUMERIC);
            let back = format!("{redirect}?code={code}&state={state}");
            assert_eq!(http("GET", &back, "text/plain", "").await.status, 200);
            let output = connecting.end().await;
            let text = format!("{}{}", output.out, output.err);
            assert_redacted("connect", &text, &[CODE, CLIENT_SECRET]);
        }
    }
}
