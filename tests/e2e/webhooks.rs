//! Tests that the program counts the webhooks that the CRM sends over HTTPS, and rejects forged
//! ones.

use crate::e2e::operations::monitoring;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_call::EventTime;
use callbridge_model::Secret;
use callbridge_model::webhook_signature::Key;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::{Server, faults};
use callbridge_testbed::authority::{Authority, Flaw};
use callbridge_testbed::calls::{Call, recording};
use callbridge_testbed::port::free_addr;
use callbridge_testbed::wait::{soon, until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A forgery's name, the HTTP status it must get, and the change that turns a genuine delivery into
/// it.
type Forgery = (&'static str, u16, fn(&mut Delivery));

/// Forgeries that the receiver must reject.
const FORGERIES: [Forgery; 11] = [
    ("another signature", 503, |delivery| {
        delivery.change_last_digit();
    }),
    ("another key", 503, |delivery| {
        delivery.sign(&"1".repeat(64));
    }),
    ("another body", 503, |delivery| delivery.body.insert(1, ' ')),
    ("stale", 503, |delivery| delivery.sign_with_offset(-600)),
    ("from the future", 503, |delivery| {
        delivery.sign_with_offset(600);
    }),
    ("unsigned", 401, |delivery| {
        delivery.remove_header("x-webhook-signature");
    }),
    ("half its headers", 401, |delivery| {
        delivery.remove_header("x-webhook-installation-id");
        delivery.remove_header("x-webhook-timestamp");
    }),
    ("another algorithm", 401, |delivery| {
        let sha1 = delivery
            .header("x-webhook-signature")
            .replacen("256", "1", 1);
        delivery.set_header("x-webhook-signature", sha1);
    }),
    ("another id", 401, |delivery| {
        delivery.set_header("x-webhook-id", uuid::Uuid::nil().to_string());
    }),
    ("no JSON", 400, |delivery| {
        delivery.body = "eventType=CALL_COMPLETED&call=…".to_owned();
        delivery.sign(&delivery.secret.clone());
    }),
    ("huge", 413, |delivery| {
        delivery.body.push_str(&" ".repeat(8 * 1024 * 1024));
        delivery.sign(&delivery.secret.clone());
    }),
];

/// A webhook request as sent by the CRM (§6.3, §6.4), to be modified by tests.
#[derive(Clone)]
struct Delivery {
    headers: Vec<(&'static str, String)>,
    body: String,
    secret: String,
}

impl Delivery {
    /// Returns a signed delivery saying that the CRM has journaled the call `call_id` (such as
    /// `oapi-UUID`). `now` is the time in seconds since the epoch.
    fn new(secret: &str, now: i64, company: i64, call_id: &str) -> Self {
        let event = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, call_id.as_bytes());
        let body = json!({
            "eventId": event, "eventType": "CALL_COMPLETED", "occurredAt": now,
            "companyId": company,
            "call": {
                "callId": call_id, "provider": "OPEN_API", "conversationKind": "CALL",
                "direction": "INBOUND", "answered": true, "leadIds": [4001],
            },
        });
        let mut delivery = Self {
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("x-webhook-id", event.to_string()),
                ("x-webhook-installation-id", "7001".to_owned()),
                ("x-webhook-timestamp", now.to_string()),
            ],
            body: body.to_string(),
            secret: secret.to_owned(),
        };
        delivery.sign(secret);
        delivery
    }

    fn header(&self, name: &str) -> String {
        let found = self
            .headers
            .iter()
            .find(|(header_name, _)| *header_name == name);
        found.expect("the header").1.clone()
    }

    fn remove_header(&mut self, name: &str) {
        self.headers.retain(|(header_name, _)| *header_name != name);
    }

    fn set_header(&mut self, name: &'static str, value: String) {
        self.remove_header(name);
        self.headers.push((name, value));
    }

    fn sign(&mut self, secret: &str) {
        let key = Key::new(&Secret::from(secret));
        let signature = key.sign(&self.header("x-webhook-timestamp"), self.body.as_bytes());
        self.set_header("x-webhook-signature", signature);
    }

    /// Signs the delivery correctly with a timestamp that's `offset` seconds later.
    fn sign_with_offset(&mut self, offset: i64) {
        let now: i64 = self.header("x-webhook-timestamp").parse().expect("seconds");
        self.set_header("x-webhook-timestamp", (now + offset).to_string());
        self.sign(&self.secret.clone());
    }

    /// Changes the signature's last digit.
    fn change_last_digit(&mut self) {
        let mut signature = self.header("x-webhook-signature");
        let digit = if signature.pop() == Some('0') {
            '1'
        } else {
            '0'
        };
        signature.push(digit);
        self.set_header("x-webhook-signature", signature);
    }

    /// Sends the delivery to the URL `target`, and returns the HTTP status of the response.
    async fn post(&self, client: &reqwest::Client, target: &str) -> u16 {
        // If the receiver rejects a request before it has read the body, the connection may end
        // without a response, in which case the test sends the request again.
        let status = async {
            loop {
                let mut request = client.post(target);
                for (name, value) in &self.headers {
                    request = request.header(*name, value);
                }
                if let Ok(answer) = request.body(self.body.clone()).send().await {
                    return answer.status().as_u16();
                }
            }
        };
        soon("the receiver's answer", status).await
    }
}

/// Posts `body` to `/sandbox/admin/{path}`, and returns the sandbox's response.
pub async fn admin(crm: &Server, path: &str, body: &Value) -> Value {
    request(
        crm,
        "POST",
        &format!("/sandbox/admin/{path}"),
        &body.to_string(),
    )
    .await
}

/// Sends an HTTP request to the sandbox, and returns the JSON of the response, which must be a 200.
async fn request(crm: &Server, method: &str, path: &str, body: &str) -> Value {
    let exchange = async {
        let mut stream = TcpStream::connect(crm.addr()).await?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = soon(path, exchange).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.contains(" 200 "), "{method} {path}: {answer}");
    serde_json::from_str(body).expect("JSON")
}

/// Returns the port on which the program receives events.
pub async fn port(program: &Program) -> u16 {
    until("the port of webhooks in the log", async || {
        logged_port(&program.log()).is_some()
    })
    .await;
    logged_port(&program.log()).expect("a port")
}

/// Returns the webhook port found in the log.
fn logged_port(log: &str) -> Option<u16> {
    let mut lines = log.lines();
    let line = lines.find(|line| line.contains("webhooks are received"))?;
    let (_, after) = line.split_once("127.0.0.1:")?;
    let port = after.split(|c: char| !c.is_ascii_digit()).next()?;
    port.parse().ok()
}

/// Starts a CRM whose webhooks are turned on by `send_events_to`. Returns the CRM, the flags for a
/// program that receives the webhooks, and its certificate's CA. `change` changes the CRM's
/// settings.
pub async fn crm_with_events(
    place: &Place,
    change: impl FnOnce(&mut sandbox::Config),
) -> (Server, Vec<String>, Authority) {
    // An error means that another test has already installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = Authority::new();
    let identity = authority.identity(Flaw::None);
    let mut config = crm::settings();
    config.settings.private_targets = true;
    config.webhook_ca_file = Some(authority.ca_file());
    change(&mut config);
    let crm = sandbox::start(config).await.expect("a sandbox");
    let events = json!({
        "targetUrl": "https://localhost:1/webhooks", "events": ["LEAD", "CALL"],
    });
    let created = admin(&crm, "webhook", &events).await;
    let secret = created["webhookSecret"].as_str().expect("a secret");
    let secrets = format!("{secret}\n{}\n", "0".repeat(64));
    let mut flags = vec![format!("--webhook-listen={}", free_addr())];
    for (name, text) in [
        ("webhook-secret-file", &secrets),
        ("webhook-cert", &identity.certificate),
        ("webhook-key", &identity.key),
    ] {
        flags.push(format!("--{name}={}", place.write(name, text)));
    }
    (crm, flags, authority)
}

/// Makes the CRM send its webhooks to this program from now on.
pub async fn send_events_to(crm: &Server, program: &Program) {
    let target = format!("https://localhost:{}/webhooks", port(program).await);
    admin(crm, "webhook", &json!({"targetUrl": target})).await;
}

/// Starts a CRM and a program that receives its webhooks. `flags` are additional flags for the
/// program, where a `--trunk` replaces the usual trunk. `change` changes the CRM's settings.
pub async fn start(
    place: &Place,
    flags: &[&str],
    change: impl FnOnce(&mut sandbox::Config),
) -> (Server, Program, Authority) {
    let (crm, events, authority) = crm_with_events(place, change).await;
    let mut arguments = vec![
        place.file("recorded", "ami"),
        "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
    ];
    arguments.extend(events);
    if flags.iter().any(|flag| flag.starts_with("--trunk=")) {
        arguments.retain(|flag| !flag.starts_with("--trunk="));
    }
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let program = place.run(&crm.url(), &arguments);
    send_events_to(&crm, &program).await;
    (crm, program, authority)
}

/// Returns the number of requests that the program has sent to the CRM.
async fn requests(program: &Program) -> f64 {
    let metrics = monitoring::metrics(program).await;
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("callbridge_requests_total{"));
    let counts = counts.map(|line| line.rsplit(' ').next().expect("a number"));
    counts
        .map(|count| count.parse::<f64>().expect("a number"))
        .sum()
}

#[tokio::test]
async fn webhooks_confirm_300_calls_at_about_one_request_each() {
    let place = Place::new();
    let calls: Vec<Call> = (0..300).map(|n| Call::new(n, 4001)).collect();
    place.append("recorded", b"");
    let (crm, mut program, _authority) = start(&place, &[RATE_FLAG], |config| {
        // The CRM may send webhooks twice, in any order, and with unknown fields.
        let shapes = "shape webhook-twice 10%; shape webhook-shuffled yes; \
                      shape webhook-extra yes; shape webhook-call-id plain";
        (_, config.settings.shapes) = faults::parse(shapes).expect("shapes");
    })
    .await;
    place.append("recorded", recording(&calls).as_bytes());
    let status = program.settled(300).await;
    assert_eq!(status.books.journaled, 300, "{:?}", status.books);
    assert_eq!(crm.journal().len(), 300);
    let per_request = 300.0 / requests(&program).await;
    assert!(per_request >= 0.99, "{per_request} calls per request");
    let webhooks = status.webhooks.expect("a receiver");
    // If a call's webhook takes longer than 2 s, callbridge polls the call, many of them in a
    // single request. How many calls that applies to depends on the speed of the machine.
    let confirmed = webhooks.events.get("confirmed").copied();
    assert!(confirmed >= Some(270), "{webhooks:?}");
    assert!(webhooks.last_event_at.is_some() && webhooks.tls);
    let conduct = crm::conduct(&crm, |_| false);
    assert!(conduct.is_empty(), "{conduct:?}");
    program.terminate().await;
}

/// Promise: A webhook counts only with the CRM's signature, and once.
#[tokio::test]
async fn forged_webhooks_confirm_no_call_and_true_event_counts_once() {
    let place = Place::new();
    let call = Call::new(1, 4001);
    place.append(
        "recorded",
        recording(std::slice::from_ref(&call)).as_bytes(),
    );
    let (crm, mut program, authority) = start(&place, &[RATE_FLAG], |config| {
        // The CRM rejects the call, so only a webhook can mark it as journaled.
        let (rules, _) = faults::parse("call-history status 503").expect("a rule");
        config.rules = rules;
    })
    .await;
    program
        .until("the call, and the company of the token", |status| {
            status.token.company.is_some() && status.books.finished == 1
        })
        .await;
    let secret = std::fs::read_to_string(place.path("webhook-secret-file")).expect("secrets");
    let secret = secret
        .lines()
        .next()
        .expect("the secret of the application");
    let company = crm::settings().settings.company.id;
    let now = crm.admin(|_, now| now.floor_seconds().get());
    let call_id = format!("oapi-{}", call.uuid("pbx1"));
    let target = format!("https://localhost:{}/webhooks", port(&program).await);
    let ca = std::fs::read(authority.ca_file()).expect("a certificate");
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only(reqwest::Certificate::from_pem_bundle(&ca).expect("a certificate"))
        .build()
        .expect("a client");
    let delivery = Delivery::new(secret, now, company, &call_id);
    for (what, status, forge) in FORGERIES {
        let mut forged = delivery.clone();
        forge(&mut forged);
        assert_eq!(forged.post(&client, &target).await, status, "{what}");
    }
    let status = program.status().await.expect("a status");
    let mismatch = status.webhooks.and_then(|webhooks| webhooks.mismatch);
    let fix = mismatch.expect("a problem until the true event").fix;
    assert!(
        fix.contains("first line of ") && fix.contains("webhook-secret-file"),
        "{fix}"
    );
    let foreign = Delivery::new(secret, now, company + 900_001, &call_id);
    assert_eq!(
        foreign.post(&client, &target).await,
        200,
        "a webhook of another company is accepted and dropped"
    );
    let status = program.status().await.expect("a status");
    assert_eq!((status.books.finished, status.books.journaled), (1, 0));
    for _ in 0..2 {
        assert_eq!(delivery.post(&client, &target).await, 200);
    }
    let status = program
        .until("the call journaled", |current| current.books.journaled == 1)
        .await;
    let webhooks = status.webhooks.as_ref().expect("a receiver");
    assert_eq!(webhooks.mismatch, None, "the true event has ended it");
    assert!(
        status.books.balance() && status.books.settled(),
        "{:?}",
        status.books
    );
    program
        .until("the repeated webhook", is_webhook_counted_once)
        .await;
    program.terminate().await;
}

/// Returns `true` if one webhook confirmed a call and another one was a duplicate.
fn is_webhook_counted_once(status: &callbridge_model::Status) -> bool {
    let events = status
        .webhooks
        .as_ref()
        .map(|webhooks| webhooks.events.clone())
        .unwrap_or_default();
    events.get("repeat") == Some(&1) && events.get("confirmed") == Some(&1)
}

#[tokio::test]
async fn kill_between_webhooks_loses_and_doubles_no_call() {
    let place = Place::new();
    let calls: Vec<Call> = (0..20).map(|n| Call::new(n, 4001)).collect();
    place.append("recorded", recording(&calls).as_bytes());
    let (crm, mut program, _authority) = start(&place, &[RATE_FLAG], |_| {}).await;
    program
        .until("the first events", |status| status.books.journaled > 0)
        .await;
    let port = port(&program).await;
    program.kill().await;
    // Each webhook fails twice while the program is dead. The CRM waits up to 5 minutes between
    // attempts, so the test makes every attempt due right away.
    until("two failures of each webhook", async || {
        crm.admin(|core, now| {
            attempt_now(core, now);
            core.webhooks.rows.values().all(|row| row.attempts >= 2)
        })
    })
    .await;
    let mut flags = vec![
        place.file("recorded", "ami"),
        "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID".to_owned(),
        RATE_FLAG.to_owned(),
        format!("--webhook-listen=127.0.0.1:{port}"),
    ];
    for name in ["webhook-secret-file", "webhook-cert", "webhook-key"] {
        flags.push(format!("--{name}={}", place.path(name)));
    }
    let mut program = place.run(&crm.url(), &flags);
    let status = program
        .until("the end of 20 calls", |current| {
            crm.admin(attempt_now);
            current.books.finished == 20 && current.books.settled()
        })
        .await;
    assert_eq!(status.books.journaled, 20, "{:?}", status.books);
    assert_eq!(crm.journal().len(), 20);
    program.terminate().await;
}

/// Makes all of the sandbox's waiting webhooks due now.
fn attempt_now(core: &mut sandbox::Sandbox, now: EventTime) {
    for row in core.webhooks.rows.values_mut() {
        row.due = now;
    }
}
