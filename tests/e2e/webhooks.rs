//! Tests events that reach the real program over its own HTTPS: from a CRM that follows its
//! document, and from forgers.

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

/// The name of a forgery, its expected status, and the change of the delivery. No forgery may be
/// answered with 200.
type Forgery = (&'static str, u16, fn(&mut Delivery));

const REFUSED: [Forgery; 11] = [
    ("another signature", 401, |it| it.other_digit()),
    ("another key", 401, |it| it.sign(&"1".repeat(64))),
    ("another body", 401, |it| it.body.insert(1, ' ')),
    ("stale", 503, |it| it.signed_at(-600)),
    ("from the future", 503, |it| it.signed_at(600)),
    ("unsigned", 401, |it| it.without("x-webhook-signature")),
    ("half its headers", 401, |it| {
        it.without("x-webhook-installation-id");
        it.without("x-webhook-timestamp");
    }),
    ("another algorithm", 401, |it| {
        let sha1 = it.header("x-webhook-signature").replacen("256", "1", 1);
        it.set("x-webhook-signature", sha1);
    }),
    ("another id", 401, |it| {
        it.set("x-webhook-id", uuid::Uuid::nil().to_string());
    }),
    ("no JSON", 400, |it| {
        it.body = "eventType=CALL_COMPLETED&call=…".to_owned();
        it.sign(&it.secret.clone());
    }),
    ("huge", 413, |it| {
        it.body.push_str(&" ".repeat(8 * 1024 * 1024));
        it.sign(&it.secret.clone());
    }),
];

/// A delivery as the CRM makes it (§6.3, §6.4), until a test changes it.
#[derive(Clone)]
struct Delivery {
    headers: Vec<(&'static str, String)>,
    body: String,
    secret: String,
}

impl Delivery {
    /// Returns a delivery about a journaled call.
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
        let mut made = Self {
            headers: vec![
                ("content-type", "application/json".to_owned()),
                ("x-webhook-id", event.to_string()),
                ("x-webhook-installation-id", "7001".to_owned()),
                ("x-webhook-timestamp", now.to_string()),
            ],
            body: body.to_string(),
            secret: secret.to_owned(),
        };
        made.sign(secret);
        made
    }

    fn header(&self, name: &str) -> String {
        let found = self.headers.iter().find(|(given, _)| *given == name);
        found.expect("it is there").1.clone()
    }

    fn without(&mut self, name: &str) {
        self.headers.retain(|(given, _)| *given != name);
    }

    fn set(&mut self, name: &'static str, value: String) {
        self.without(name);
        self.headers.push((name, value));
    }

    fn sign(&mut self, secret: &str) {
        let key = Key::new(&Secret::from(secret));
        let signature = key.sign(&self.header("x-webhook-timestamp"), self.body.as_bytes());
        self.set("x-webhook-signature", signature);
    }

    /// Signs the delivery correctly with a timestamp that is `off` seconds away.
    fn signed_at(&mut self, off: i64) {
        let now: i64 = self.header("x-webhook-timestamp").parse().expect("seconds");
        self.set("x-webhook-timestamp", (now + off).to_string());
        self.sign(&self.secret.clone());
    }

    fn other_digit(&mut self) {
        let mut signature = self.header("x-webhook-signature");
        let other = if signature.pop() == Some('0') {
            '1'
        } else {
            '0'
        };
        signature.push(other);
        self.set("x-webhook-signature", signature);
    }

    async fn post(&self, client: &reqwest::Client, target: &str) -> u16 {
        let asking = async || {
            let mut request = client.post(target);
            for (name, value) in &self.headers {
                request = request.header(*name, value);
            }
            request.body(self.body.clone()).send().await
        };
        // A request that is refused before it is read can end without an answer. Then it is sent
        // again.
        let answered = async {
            loop {
                if let Ok(answer) = asking().await {
                    return answer.status().as_u16();
                }
            }
        };
        soon("the receiver's answer", answered).await
    }
}

/// Sends an admin request to the sandbox and returns its answer.
pub async fn admin(crm: &Server, act: &str, body: &Value) -> Value {
    ask(
        crm,
        "POST",
        &format!("/sandbox/admin/{act}"),
        &body.to_string(),
    )
    .await
}

async fn ask(crm: &Server, method: &str, path: &str, body: &str) -> Value {
    let asking = async {
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
    let answer = soon(path, asking).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.contains(" 200 "), "{method} {path}: {answer}");
    serde_json::from_str(body).expect("JSON")
}

/// Returns the port on which the program receives events.
async fn port(program: &Program) -> u16 {
    let find = || {
        let log = program.log();
        let line = log
            .lines()
            .find(|line| line.contains("webhooks are received"))?;
        let (_, after) = line.split_once("127.0.0.1:")?;
        after
            .split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    };
    until("its port in the log", async || find().is_some()).await;
    find().expect("a port")
}

/// Starts a CRM that sends no events yet. Returns the flags of the program that will receive them.
pub async fn crm_with_events(
    place: &Place,
    change: impl FnOnce(&mut sandbox::Config),
) -> (Server, Vec<String>, Authority) {
    // An error means that another test has already installed it.
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
    let made = admin(&crm, "webhook", &events).await;
    let secret = made["webhookSecret"].as_str().expect("shown once");
    let flag = |name: &str, text: &str| format!("--{name}={}", place.write(name, text));
    let flags = vec![
        format!("--webhook-listen={}", free_addr()),
        flag(
            "webhook-secret-file",
            &format!("{secret}\n{}\n", "0".repeat(64)),
        ),
        flag("webhook-cert", &identity.certificate),
        flag("webhook-key", &identity.key),
    ];
    (crm, flags, authority)
}

/// Makes the CRM send its events to this program from now on.
pub async fn send_to(crm: &Server, program: &Program) {
    let target = format!("https://localhost:{}/webhooks", port(program).await);
    admin(crm, "webhook", &json!({"targetUrl": target})).await;
}

/// Starts a CRM that sends its events to a program on this machine. `change` changes its settings.
pub async fn start(
    place: &Place,
    flags: &[&str],
    change: impl FnOnce(&mut sandbox::Config),
) -> (Server, Program, Authority) {
    let (crm, events, authority) = crm_with_events(place, change).await;
    let mut all = vec![
        place.file("recorded", "ami"),
        "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
    ];
    all.extend(events);
    if flags.iter().any(|flag| flag.starts_with("--trunk=")) {
        all.retain(|flag| !flag.starts_with("--trunk="));
    }
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let program = place.run(&crm.url(), &all);
    send_to(&crm, &program).await;
    (crm, program, authority)
}

/// Returns the number of requests that the program has made.
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
        // As the CRM can send them: some twice, in any order, and with unknown fields.
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
    assert!(per_request >= 0.99, "{per_request} calls a request");
    let webhooks = status.webhooks.expect("a receiver");
    // Calls whose events come after 2 s are polled, many at once, as the requests above show. Their
    // number depends on the speed of the machine.
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
        // The call cannot be sent, so only an event could journal it.
        let (rules, _) = faults::parse("call-history status 503").expect("a rule");
        config.rules = rules;
    })
    .await;
    program
        .until("the call, and whose events are ours", |it| {
            it.token.company.is_some() && it.books.finished == 1
        })
        .await;
    let secret = std::fs::read_to_string(place.path("webhook-secret-file")).expect("secrets");
    let secret = secret.lines().next().expect("the application's");
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
    for (what, status, forge) in REFUSED {
        let mut forged = delivery.clone();
        forge(&mut forged);
        assert_eq!(forged.post(&client, &target).await, status, "{what}");
    }
    let others = Delivery::new(secret, now, company + 900_001, &call_id);
    assert_eq!(
        others.post(&client, &target).await,
        200,
        "not for us: dropped"
    );
    let status = program.status().await.expect("a status");
    assert_eq!((status.books.finished, status.books.journaled), (1, 0));
    for _ in 0..2 {
        assert_eq!(delivery.post(&client, &target).await, 200);
    }
    let status = program
        .until("the call journaled", |it| it.books.journaled == 1)
        .await;
    assert!(
        status.books.balance() && status.books.settled(),
        "{:?}",
        status.books
    );
    let twice = |it: &callbridge_model::Status| {
        let events = it
            .webhooks
            .as_ref()
            .map(|it| it.events.clone())
            .unwrap_or_default();
        events.get("repeat") == Some(&1) && events.get("confirmed") == Some(&1)
    };
    program.until("the second one", twice).await;
    program.terminate().await;
}

#[tokio::test]
async fn kill_between_events_loses_none_and_doubles_none() {
    let place = Place::new();
    let calls: Vec<Call> = (0..20).map(|n| Call::new(n, 4001)).collect();
    place.append("recorded", recording(&calls).as_bytes());
    let (crm, mut program, _authority) = start(&place, &[RATE_FLAG], |_| {}).await;
    program
        .until("the first events", |it| it.books.journaled > 0)
        .await;
    let port = port(&program).await;
    program.kill().await;
    // Each event fails twice, as on a slow machine. The third attempt follows after 5 minutes.
    until("two failures of each event", async || {
        crm.admin(|core, now| {
            attempt_now(core, now);
            core.webhooks.rows.values().all(|row| row.attempts >= 2)
        })
    })
    .await;
    let flags = |port| {
        let at = |name: &str| format!("--{name}={}", place.path(name));
        vec![
            place.file("recorded", "ami"),
            "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID".to_owned(),
            RATE_FLAG.to_owned(),
            format!("--webhook-listen=127.0.0.1:{port}"),
            at("webhook-secret-file"),
            at("webhook-cert"),
            at("webhook-key"),
        ]
    };
    let mut program = place.run(&crm.url(), &flags(port));
    let status = program
        .until("the end of 20 calls", |it| {
            crm.admin(attempt_now);
            it.books.finished == 20 && it.books.settled()
        })
        .await;
    assert_eq!(status.books.journaled, 20, "{:?}", status.books);
    assert_eq!(crm.journal().len(), 20);
    program.terminate().await;
}

/// Makes the sandbox send the waiting events now.
fn attempt_now(core: &mut sandbox::Sandbox, now: EventTime) {
    for row in core.webhooks.rows.values_mut() {
        row.due = now;
    }
}
