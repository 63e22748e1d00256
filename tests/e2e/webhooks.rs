//! Events of the CRM reach the real program over HTTPS of its own, from a CRM that sends them as
//! its document says, and from others who would like to be it.

use crate::authority::{Authority, Flaw};
use crate::calls::{Call, recording};
use crate::crm::{self, RATE_FLAG};
use crate::operations;
use crate::program::{Place, Program};
use crate::wait::{soon, until};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::{Server, faults};
use callbridge_testbed::port::free_addr;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How the events that were forged may end: what none of them may be is 200. The same event
/// twice, and one for an installation that only the application's secret can vouch for, are true.
const REFUSED: [(&str, u16); 11] = [
    ("wrong-signature", 401),
    ("other-key", 401),
    ("other-body", 401),
    ("stale", 503),
    ("future", 503),
    ("unsigned", 401),
    ("half-headers", 401),
    ("other-algorithm", 401),
    ("other-id", 401),
    ("not-json", 400),
    ("huge", 413),
];

/// What the sandbox answers to a person in the CRM.
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
            "{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\
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

/// Where the program takes events.
async fn port(program: &Program) -> u16 {
    let find = || {
        let log = program.log();
        let line = log
            .lines()
            .find(|line| line.contains("webhooks are taken"))?;
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

/// A CRM whose events go to nobody yet, and the flags of whoever is to take them.
pub async fn crm_with_events(
    place: &Place,
    change: impl FnOnce(&mut sandbox::Config),
) -> (Server, Vec<String>, Authority) {
    // Whoever comes second finds it installed, which is as good.
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

/// From now on the CRM sends its events to this program.
pub async fn send_to(crm: &Server, program: &Program) {
    let target = format!("https://localhost:{}/webhooks", port(program).await);
    admin(crm, "webhook", &json!({"targetUrl": target})).await;
}

/// A CRM that sends its events to a program on this machine; `change` is made to its settings.
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

/// Requests that the program has made so far.
async fn requests(program: &Program) -> f64 {
    let metrics = operations::metrics(program).await;
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("callbridge_requests_total{"));
    let counts = counts.map(|line| line.rsplit(' ').next().expect("a number"));
    counts
        .map(|count| count.parse::<f64>().expect("a number"))
        .sum()
}

#[tokio::test]
async fn three_hundred_calls_are_confirmed_by_webhooks_at_one_request_each() {
    let place = Place::new();
    let calls: Vec<Call> = (0..300).map(|n| Call::new(n, 4001)).collect();
    place.append("recorded", b"");
    let (crm, mut program, _authority) = start(&place, &[RATE_FLAG], |config| {
        // As the service may: some twice, in any order, with fields that nobody knows.
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
    // The first may be asked for before it is known that events come.
    let confirmed = webhooks.events.get("confirmed").copied();
    assert!(confirmed >= Some(295), "{webhooks:?}");
    assert!(webhooks.last_event_at.is_some() && webhooks.tls);
    let conduct = crm::conduct(&crm, |_| false);
    assert!(conduct.is_empty(), "{conduct:?}");
    program.terminate().await;
}

#[tokio::test]
async fn forged_stale_and_doubled_events_confirm_nothing_and_the_true_one_is_taken_once() {
    let place = Place::new();
    let call = Call::new(1, 4001);
    place.append(
        "recorded",
        recording(std::slice::from_ref(&call)).as_bytes(),
    );
    let (crm, mut program, _authority) = start(&place, &[RATE_FLAG], |config| {
        // It never comes to be sent, so only an event could journal it.
        let (rules, _) = faults::parse("call-history status 503").expect("a rule");
        config.rules = rules;
    })
    .await;
    program
        .until("whose events are ours", |it| it.token.company.is_some())
        .await;
    let installation = admin(&crm, "webhook/install", &json!({})).await;
    let call_id = format!("oapi-{}", call.uuid("pbx1"));
    let forge = |how: &str| {
        json!({
            "how": how, "installation": installation["installation"], "event": "CALL_COMPLETED",
            "call": {"callId": call_id, "provider": "OPEN_API", "conversationKind": "CALL"},
        })
    };
    let mut all = Vec::from(REFUSED);
    all.push(("other-company", 200));
    let mut made = vec![0; all.len()];
    until("an answer to each", async || {
        let seen = ask(&crm, "GET", "/sandbox/webhooks", "").await;
        let ends = seen["forged"].as_array().expect("a list");
        let mut answered = 0;
        for ((how, status), made) in all.iter().zip(&mut made) {
            let of: Vec<&Value> = ends.iter().filter(|end| end["how"] == *how).collect();
            match of.iter().find(|end| !end["status"].is_null()) {
                Some(end) => {
                    assert_eq!(end["status"], *status, "{end}");
                    answered += 1;
                }
                // A busy machine may not take it in time: then it comes again, as others do.
                None if of.len() == *made => {
                    admin(&crm, "webhook/forge", &forge(how)).await;
                    *made += 1;
                }
                None => {}
            }
        }
        answered == all.len()
    })
    .await;
    let status = program.status().await.expect("a status");
    assert_eq!((status.books.finished, status.books.journaled), (1, 0));
    admin(&crm, "webhook/forge", &forge("doubled")).await;
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
async fn a_kill_between_events_loses_none_and_doubles_none() {
    let place = Place::new();
    let calls: Vec<Call> = (0..20).map(|n| Call::new(n, 4001)).collect();
    place.append("recorded", recording(&calls).as_bytes());
    let (crm, mut program, _authority) = start(&place, &[RATE_FLAG], |_| {}).await;
    program
        .until("the first events", |it| it.books.journaled > 0)
        .await;
    let port = port(&program).await;
    program.kill().await;
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
    let status = program.settled(20).await;
    assert_eq!(status.books.journaled, 20, "{:?}", status.books);
    assert_eq!(crm.journal().len(), 20);
    program.terminate().await;
}
