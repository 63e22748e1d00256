//! Tests calls as messages published to a RabbitMQ queue by any kind of phone system
//! (`format=call`).

use crate::e2e::security::flood::peak;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_call::EventTime;
use callbridge_model::Status;
use callbridge_sandbox::Server;
use callbridge_spool::{Op, UnreadableBytes};
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::wait::until;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Confirmation};
use serde_json::{Value, json};

const TRUNK: &str = "--trunk=city=,country=UZ";
const CONTENT_TYPE: &str = "application/vnd.callbridge.call+json; version=1";
const NEWER_CONTENT_TYPE: &str = "application/vnd.callbridge.call+json; version=2";

/// Returns a queue's URL without the `format` parameter.
fn queue_url(node: &Broker, queue: &str, place: &Place) -> String {
    let secret = place.write("secret", broker::SECRET);
    let user = broker::ADMINISTRATOR;
    format!("{}?queue={queue}&secret-file={secret}", node.url(user))
}

/// Starts a daemon that reads calls from a queue.
fn start_daemon(place: &Place, crm: &Server, queue_url: &str) -> Program {
    let arguments = [
        "run".to_owned(),
        format!("--source={queue_url}&format=call"),
        format!("--crm-url={}", crm.url()),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
        TRUNK.to_owned(),
        RATE_FLAG.to_owned(),
    ];
    place.start(&arguments, &[])
}

/// Returns the message for a call with lead 4001.
fn message(id: &str) -> Value {
    json!({
        "pbx": "tashkent-1", "id": id, "direction": "INBOUND", "trunk": "city",
        "phone": "901110001", "startedAt": 1_795_151_317.52, "durationSec": 5.2, "answered": true,
        "talkSec": 4.1, "extension": "101", "extensions": ["101"], "leadId": 4001,
        "variables": {"LEAD_ID": "4001"}, "incomplete": false, "estimate": false
    })
}

/// Returns the messages for calls that start one second apart.
fn consecutive_calls(numbers: std::ops::Range<u32>) -> Vec<String> {
    let mut calls = Vec::new();
    for n in numbers {
        let mut call = message(&format!("1795151317.{n}"));
        call["startedAt"] = (1_795_151_317 + i64::from(n)).into();
        calls.push(call.to_string());
    }
    calls
}

fn has_journaled(calls: u64) -> impl Fn(&Status) -> bool {
    move |status| status.books.journaled >= calls
}

/// Returns messages that each have one invalid value, along with the field in question.
fn wrong_messages() -> Vec<(&'static str, String)> {
    let long = "x".repeat(3_000);
    let values = [
        ("pbx", json!(null)),
        ("pbx", json!(7)),
        ("pbx", json!("")),
        ("pbx", json!("two words")),
        ("id", json!(17)),
        ("id", json!("")),
        ("id", json!(long)),
        ("direction", json!("IN")),
        ("direction", json!(null)),
        ("trunk", json!("nowhere")),
        ("trunk", json!(1)),
        ("phone", json!(901_110_001)),
        ("phone", json!("nobody")),
        ("phone", json!("9".repeat(60))),
        ("startedAt", json!("today")),
        ("startedAt", json!("2026-11-20T08:28:37")),
        ("startedAt", json!(4_000_000_000_u64)),
        ("startedAt", json!(5)),
        ("startedAt", json!(null)),
        ("durationSec", json!(-1)),
        ("durationSec", json!("5")),
        ("durationSec", json!(1e9)),
        ("durationSec", json!(null)),
        ("answered", json!("yes")),
        ("answered", json!(1)),
        ("answered", json!(null)),
        ("talkSec", json!(-1)),
        ("talkSec", json!(0)),
        ("talkSec", json!(null)),
        ("talkSec", json!(60)),
        ("talkSec", json!("4")),
        ("extension", json!(101)),
        ("extensions", json!("101")),
        ("extensions", json!([101])),
        ("leadId", json!("4001")),
        ("leadId", json!(0)),
        ("leadId", json!(1.5)),
        ("employeeId", json!(-1)),
        ("variables", json!(["LEAD_ID"])),
        ("variables", json!({"LEAD_ID": 4001})),
        ("incomplete", json!("no")),
        ("estimate", json!(1)),
        ("version", json!(2)),
    ];
    let mut all = Vec::new();
    for (n, (field, value)) in values.into_iter().enumerate() {
        let mut call = message(&format!("wrong.{n}"));
        call[field] = value;
        all.push((field, call.to_string()));
    }
    let good = message("wrong.nan").to_string();
    all.push(("durationSec", good.replace("5.2", "NaN")));
    all.push(("talkSec", good.replace("4.1", "-Infinity")));
    let twice = r#"{"answered":false,"answered":true,"#;
    all.push(("answered", good.replacen('{', twice, 1)));
    all
}

#[tokio::test]
async fn wrong_messages_become_dead_letters_that_name_the_field() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (node, queue) = (Broker::shared(), "by-hand");
    node.declare(queue).await;
    let wrong = wrong_messages();
    assert!(wrong.len() >= 40, "{}", wrong.len());
    let good = ["1795151317.208", "1795151317.209"].map(|id| message(id).to_string());
    let bodies: Vec<&str> = wrong.iter().map(|(_, body)| body.as_str()).collect();
    node.publish(queue, &good[..1]).await;
    node.publish(queue, &bodies).await;
    node.publish(queue, &good).await;
    let mut program = start_daemon(&place, &crm, &queue_url(node, queue, &place));
    let all = u64::try_from(wrong.len()).expect("few");
    let status = program
        .until("all messages are read", |status| {
            let books = &status.books;
            books.unreadable + books.dead + books.waiting == all && books.settled()
        })
        .await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(status.books.journaled, 2);
    program.terminate().await;
    assert_eq!(node.depth(queue).await, 0);

    let letters = place.letters().await;
    let errors: Vec<&str> = letters
        .iter()
        .filter_map(|letter| letter["message"].as_str())
        .collect();
    assert_eq!(errors.len(), wrong.len());
    for (field, body) in &wrong {
        let prefix = format!("{field}: ");
        let found = errors.iter().filter(|error| error.starts_with(&prefix));
        let expected = wrong.iter().filter(|(other, _)| other == field);
        assert_eq!(
            found.count(),
            expected.count(),
            "{field} {body}\n{}",
            errors.join("\n")
        );
    }
    for error in errors {
        assert!(
            error.contains("; it must be ") || error.starts_with("version: "),
            "{error}"
        );
    }
    let journal = crm.journal();
    let record = &journal[0].call;
    assert_eq!((record.lead_id, record.started_at), (4001, 1_795_151_317));
    assert_eq!((record.duration_sec, record.talk_time_sec), (5, Some(4)));
}

/// Returns the first example below this heading that contains `text`.
fn example<'a>(page: &'a str, heading: &str, text: &str) -> &'a str {
    let (_, section) = page.split_once(heading).expect("a heading");
    let mut blocks = section.split("```text\n").skip(1);
    let block = blocks.find_map(|rest| {
        let content = rest.split("```").next();
        content.filter(|content| content.contains(text))
    });
    block.expect("an example")
}

#[tokio::test]
async fn documented_curl_example_publishes_a_journaled_call() {
    let (place, crm) = (Place::new(), crm::start().await);
    let node = tokio::task::spawn_blocking(Broker::shared);
    let node = node.await.expect("a node");
    let port = node.http_port();
    node.declare("calls").await;
    let page = include_str!("../../../docs/call-message.md");
    let script = example(page, "## curl", "curl --fail")
        .replace("127.0.0.1:15672", &format!("127.0.0.1:{port}"))
        .replace("%2F", node.vhost())
        .replace(
            "\"user_id\": \"cloud\"",
            &format!("\"user_id\": \"{}\"", broker::ADMINISTRATOR),
        );
    let (user, secret) = (broker::ADMINISTRATOR, broker::SECRET);
    let netrc = format!("machine 127.0.0.1 login {user} password \"{secret}\"\n");
    place.write("rabbit.netrc", netrc);
    // The HTTP plugin starts listening some time after the broker.
    until("curl has published the call", async || {
        let mut shell = tokio::process::Command::new("sh");
        let shell = shell.arg("-c").arg(&script).current_dir(place.at(""));
        let output = shell.output().await.expect("a shell with curl");
        String::from_utf8_lossy(&output.stdout).contains("\"routed\":true")
    })
    .await;
    let leads = place.write("leads.csv", "phone,leadId\n+998901110002,4002\n");
    let source = queue_url(node, "calls", &place);
    let mut program = place.start(
        &[
            "run".to_owned(),
            format!("--source={source}&format=call"),
            format!("--crm-url={}", crm.url()),
            format!("--token-file={}", place.path("token")),
            format!("--state={}", place.path("state")),
            format!("--lead=csv:{leads}"),
            "--country=UZ".to_owned(),
            "--trunk=city=".to_owned(),
            RATE_FLAG.to_owned(),
        ],
        &[],
    );
    let status = program.settled(1).await;
    assert_eq!(status.books.journaled, 1, "{:?}", status.books);
    program.terminate().await;
    assert_eq!(crm.journal()[0].call.lead_id, 4002);
}

#[tokio::test]
async fn oversized_messages_use_under_40_mib_and_block_no_call() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let queue = "too-long";
    node.declare(queue).await;
    node.publish(queue, &consecutive_calls(0..1)).await;
    let source = queue_url(node, queue, &place);
    let mut program = start_daemon(&place, &crm, &source);
    program
        .until("the first call is journaled", has_journaled(1))
        .await;
    let peak_before = peak(&program);
    program.kill().await;
    let huge = "x".repeat(60 << 20);
    for _ in 0..4 {
        node.publish(queue, &[&huge]).await;
    }
    node.publish(queue, &consecutive_calls(1..21)).await;
    let mut program = start_daemon(&place, &crm, &source);
    let status = program.until("all are journaled", has_journaled(21)).await;
    assert_eq!((status.books.unreadable, status.books.journaled), (4, 21));
    let grown = peak(&program).saturating_sub(peak_before);
    assert!(grown < 40 << 20, "{grown} bytes for messages of 60 MiB");
    program.terminate().await;
    let letters = place.letters().await;
    let text = letters[0]["message"].as_str().expect("a text");
    assert!(text.starts_with("the record has 62914560 bytes"), "{text}");
}

/// Publishes a call with this content type.
async fn publish_as(node: &Broker, queue: &str, call: &str, content_type: &str) {
    let (_connection, channel) = node.channel().await;
    let confirms = channel.confirm_select(ConfirmSelectOptions::default());
    confirms.await.expect("confirms");
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type(content_type.into());
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish(
        "".into(),
        queue.into(),
        options,
        call.as_bytes(),
        properties,
    );
    let confirmed = sent.await.expect("sent").await.expect("a confirm");
    assert!(
        matches!(confirmed, Confirmation::Ack(None)),
        "{confirmed:?}"
    );
}

#[tokio::test]
async fn message_of_a_newer_version_waits_for_a_newer_callbridge() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let queue = "newer";
    node.declare(queue).await;
    let all = consecutive_calls(0..3);
    publish_as(node, queue, &all[0], NEWER_CONTENT_TYPE).await;
    publish_as(node, queue, &all[1], CONTENT_TYPE).await;
    let source = queue_url(node, queue, &place);
    let mut program = start_daemon(&place, &crm, &source);
    program
        .until("the second message is journaled", |status| {
            status.books.journaled == 1 && status.books.unreadable == 1
        })
        .await;
    let retry = ["dead", "retry", "--reason", "unreadable", "--json"];
    let stdout = place.command(&retry).await.stdout;
    let refusal = String::from_utf8_lossy(&stdout);
    assert!(refusal.contains("version: it is 2"), "{refusal}");
    program.terminate().await;
    // An older callbridge kept this message as unreadable, but this version can read it.
    let settings = callbridge_spool::Settings::default();
    let (spool, guard) = callbridge_spool::open(&place.at("state"), settings).expect("opens");
    let unreadable = Op::Unreadable(UnreadableBytes {
        source: format!("{source}&format=call"),
        pbx: String::new(),
        bytes: all[2].clone().into_bytes(),
        cut_from: None,
        file: None,
        why: "version: it is 1, and this callbridge reads version 0".to_owned(),
        at: EventTime::from_seconds(1_795_151_400),
        content_type: Some(CONTENT_TYPE.to_owned()),
    });
    spool.write(vec![unreadable]).await.expect("stored");
    drop(spool);
    guard.close();
    let mut program = start_daemon(&place, &crm, &source);
    let status = program
        .until("the third message is journaled", has_journaled(2))
        .await;
    assert!(status.books.balance());
    assert_eq!(
        place.letters().await.len(),
        1,
        "the message of the newer version waits"
    );
    program.terminate().await;
}
