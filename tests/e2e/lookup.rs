//! Who calls, asked of the real program while it rings: the lead that is shown is the lead to which
//! the call is journaled.

use crate::crm::{self, RATE_FLAG};
use crate::operations;
use crate::program::{Place, Program};
use crate::recordings;
use crate::wait::{soon, until};
use crate::webhooks;
use callbridge_model::Status;
use callbridge_sandbox::token::IdSet;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=directory";

/// Where `--lookup` with port 0 came to listen.
async fn address(program: &Program) -> SocketAddr {
    let find = || {
        let log = program.log();
        let line = log
            .lines()
            .find(|it| it.contains("callers are looked up"))?;
        let (_, port) = line.split_once("127.0.0.1:")?;
        let port = port.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
    };
    until("its address in the log", async || find().is_some()).await;
    find().expect("an address")
}

async fn ask(at: SocketAddr, query: &str) -> Value {
    let (status, body) = operations::get(at, &format!("/caller?{query}")).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Asks until the answer is this, whatever the machine has to do beside it.
async fn becomes(at: SocketAddr, query: &str, wanted: &Value) {
    let last = std::sync::Mutex::new(Value::Null);
    let asking = until("an answer", async || {
        let answer = ask(at, query).await;
        let fits = wanted.as_object().expect("fields").iter();
        let fits = fits.clone().all(|(name, value)| answer[name] == *value);
        *last.lock().expect("not poisoned") = answer;
        fits
    });
    let waited = tokio::time::timeout(Duration::from_secs(60), asking).await;
    assert!(waited.is_ok(), "{query}: {last:?}, not {wanted}");
}

async fn lead(crm: &callbridge_sandbox::Server, id: i64, phone: &str) {
    let lead = json!({
        "id": id, "name": "Anna, \"VIP\" ${SHELL(id)}", "responsibleId": 501,
        "contacts": [{"name": "Anna, \"VIP\" ${SHELL(id)}", "phones": [phone]}],
    });
    webhooks::admin(crm, "lead", &lead).await;
}

#[tokio::test]
async fn the_lead_that_is_shown_while_it_rings_is_the_one_of_the_journal() {
    let place = Place::new();
    place.append("recorded", b"");
    let flags = [TRUNK, RATE_FLAG, "--lookup=127.0.0.1:0"];
    let (crm, mut program, _authority) = webhooks::start(&place, &flags, |config| {
        config.settings.company.leads = IdSet::default();
    })
    .await;
    let at = address(&program).await;
    let call = recordings::one("inbound_answered");
    let phone = "phone=%2B998901110001&trunk=city";
    becomes(
        at,
        phone,
        &json!({"known": "no", "why": "no_lead", "lead": null}),
    )
    .await;
    lead(&crm, 4001, "+998901110001").await;
    becomes(
        at,
        phone,
        &json!({"known": "yes", "lead": 4001, "why": null}),
    )
    .await;
    becomes(
        at,
        "phone=901110001",
        &json!({"known": "yes", "lead": 4001}),
    )
    .await;

    place.append("recorded", &call.ami);
    program
        .until("the call", |it: &Status| it.books.journaled == 1)
        .await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));

    lead(&crm, 4002, "+998901110001").await;
    let several = json!({"known": "several", "lead": null, "name": null, "extension": null});
    becomes(at, phone, &several).await;
    let metrics = operations::metrics(&program).await;
    for answer in ["yes", "no", "several", "late", "full", "refused", "bad"] {
        let line = format!("callbridge_lookups_total{{answer=\"{answer}\"}} ");
        let found = metrics.lines().find_map(|it| it.strip_prefix(&line));
        let count: u64 = found.and_then(|it| it.parse().ok()).expect(&line);
        let asked = ["yes", "no", "several"].contains(&answer);
        assert!(count > 0 || !asked, "{line}{count}");
        assert!(count == 0 || asked || answer == "late", "{line}{count}");
    }
    assert!(
        metrics.contains("callbridge_lookup_duration_seconds_count "),
        "{metrics}"
    );
    let log = program.log();
    assert!(
        !log.contains("Anna") && !log.contains("998901110001"),
        "{log}"
    );
    program.terminate().await;
}

#[tokio::test]
async fn whoever_is_stopped_answers_nobody_and_whoever_is_killed_is_gone_at_once() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", b"");
    let source = place.file("recorded", "ami");
    let program = place.run(&crm.url(), &[&source, TRUNK, "--lookup=127.0.0.1:0"]);
    let at = address(&program).await;
    becomes(at, "phone=901110001", &json!({"known": "no"})).await;
    program.signal(Signal::STOP);
    let waits = async {
        tokio::time::timeout(Duration::from_millis(200), operations::get(at, "/caller")).await
    };
    assert!(soon("the caller's own time is over", waits).await.is_err());
    program.signal(Signal::CONT);
    becomes(at, "phone=901110001", &json!({"known": "no"})).await;
    program.kill().await;
    let refused = tokio::net::TcpStream::connect(at).await;
    assert!(refused.is_err(), "nothing listens there");
}

#[tokio::test]
async fn off_this_machine_it_starts_with_a_network_and_a_password_alone() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", b"");
    let source = place.file("recorded", "ami");
    let secret = format!("--lookup-secret-file={}", place.write("secret", "s3cret\n"));
    let (open, allow) = ("--lookup=0.0.0.0:0", "--lookup-allow=127.0.0.0/8");
    for refused in [vec![open], vec![open, allow], vec![open, &secret]] {
        let flags = [&[&*source, TRUNK], &refused[..]].concat();
        let program = place.run(&crm.url(), &flags);
        assert_eq!(program.ended().await.code(), Some(64), "{refused:?}");
    }
    let gone = format!("--lookup-secret-file={}", place.path("nowhere"));
    let flags = [&source, TRUNK, "--lookup=127.0.0.1:0", &gone];
    let program = place.run(&crm.url(), &flags);
    assert_eq!(program.ended().await.code(), Some(78));

    let flags = [&source, TRUNK, "--lookup=127.0.0.1:0", allow, &secret];
    let program = place.run(&crm.url(), &flags);
    let at = address(&program).await;
    let (status, body) = operations::get(at, "/caller?phone=901110001&format=hash").await;
    assert_eq!(status, 401);
    assert!(
        body.starts_with("known=no&") && body.ends_with("&why=refused"),
        "{body}"
    );
    assert!(!program.log().contains("s3cret"));
    program.terminate().await;
}
