//! Calls by way of a broker: collectors that forward, a sender that reads their stream, and
//! messages that anybody writes by hand.

use crate::broker::{self, Broker};
use crate::crm::{self, RATE_FLAG};
use crate::program::{Place, Program};
use crate::recordings::{self, LEADS, TRUNKS, in_a_row};
use crate::wait::soon;
use callbridge_model::Status;
use callbridge_sandbox::{Server, ViolationKind};
use callbridge_testbed::port::free_port;
use futures_util::StreamExt as _;
use lapin::BasicProperties;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use serde_json::{Value, json};

/// Calls of a run, and kills of both programs in it.
const CALLS: usize = 100;
const KILLS: usize = 5;

/// A stream on this node, behind a host that nobody answers at.
pub fn stream(node: &Broker, name: &str, place: &Place) -> String {
    let secret = place.write("secret", broker::SECRET);
    let (user, vhost) = (broker::ADMINISTRATOR, broker::VHOST);
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", free_port(), node.port());
    format!("amqp://{user}@{hosts}/{vhost}?stream={name}&declare=yes&secret-file={secret}")
}

/// A collector of this PBX: it has no token and no CRM.
pub fn collector(place: &Place, forward: &str, flags: &[&str]) -> Program {
    let mut arguments = vec![
        "run".to_owned(),
        format!("--forward={forward}"),
        format!("--state={}", place.path("state")),
        "--pbx-id=pbx1".to_owned(),
        "--employees=101:501;102:502;103:503;104:504;105-desk:505".to_owned(),
    ];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    place.start(&arguments, &[])
}

/// Who sends what the stream holds.
pub fn sender(place: &Place, crm: &Server, source: &str, flags: &[&str]) -> Program {
    let mut arguments = vec![
        "run".to_owned(),
        format!("--source={source}&format=call"),
        format!("--crm-url={}", crm.url()),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
        RATE_FLAG.to_owned(),
    ];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    place.start(&arguments, &[])
}

fn forwarded(calls: u64) -> impl Fn(&Status) -> bool {
    move |status| status.books.forwarded >= calls
}

#[tokio::test]
async fn calls_go_by_stream_through_kills_of_collector_and_sender_none_lost_or_doubled() {
    let (here, there, crm) = (Place::new(), Place::new(), crm::start().await);
    let (node, calls) = (Broker::shared(), in_a_row(CALLS));
    let text = calls.iter().map(|call| call.ami.as_slice());
    let text = text.collect::<Vec<_>>().concat();
    let mut parts = text.chunks(text.len().div_ceil(KILLS + 1));
    let file = here.file("recorded", "ami");
    let flags = [file.as_str(), TRUNKS[0], TRUNKS[1]];
    let (to, from) = (
        stream(node, "killed", &here),
        stream(node, "killed", &there),
    );
    for kill in 1..=KILLS {
        here.append("recorded", parts.next().unwrap_or_default());
        let told = u64::try_from(kill * CALLS / (KILLS + 1)).expect("few") - 3;
        let mut collector = collector(&here, &to, &flags);
        let mut sender = sender(&there, &crm, &from, &[]);
        // Each of them dies with calls in hand, now the one first, now the other.
        if kill % 2 == 0 {
            collector.until("some are forwarded", forwarded(told)).await;
            collector.kill().await;
            let some = told.div_ceil(2);
            let what = "some are taken from the stream";
            sender.until(what, |it| it.books.finished >= some).await;
            sender.kill().await;
        } else {
            let what = "some are taken from the stream";
            sender.until(what, |it| it.books.finished >= told).await;
            sender.kill().await;
            collector.kill().await;
        }
    }
    for part in parts {
        here.append("recorded", part);
    }
    let until_idle = [&flags[..], &["--until-idle"]].concat();
    let last = collector(&here, &to, &until_idle);
    last.succeeds().await;
    let books = here.lines(&["status", "--json"]).await[0]["books"].clone();
    assert_eq!(
        (&books["finished"], &books["forwarded"]),
        (&json!(CALLS), &json!(CALLS))
    );
    assert_eq!(books["journaled"], 0);

    let mut sender = sender(&there, &crm, &from, &[]);
    let status = sender.settled(CALLS as u64).await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(
        (status.books.journaled, status.books.forwarded),
        (CALLS as u64, 0)
    );
    sender.terminate().await;
    let mut wrong = crm::compare(&crm, &there.letters().await, &recordings::expected(&calls));
    wrong.extend(crm::conduct(&crm, |_| false));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_state_made_anew_reads_the_whole_stream_and_doubles_nothing() {
    let (here, there, crm) = (Place::new(), Place::new(), crm::start().await);
    let (node, calls) = (Broker::shared(), in_a_row(20));
    for call in &calls {
        here.append("recorded", &call.ami);
    }
    let file = here.file("recorded", "ami");
    let (to, from) = (stream(node, "anew", &here), stream(node, "anew", &there));
    let flags = [&file, TRUNKS[0], TRUNKS[1], "--until-idle"];
    collector(&here, &to, &flags).succeeds().await;
    let mut first = sender(&there, &crm, &from, &[]);
    first.settled(20).await;
    first.kill().await;
    std::fs::remove_dir_all(there.at("state")).expect("gone");
    let mut second = sender(&there, &crm, &from, &["--stream-from=30d"]);
    let status = second.settled(20).await;
    assert_eq!(status.books.journaled, 20);
    second.terminate().await;
    let mut wrong = crm::compare(&crm, &there.letters().await, &recordings::expected(&calls));
    // What the lost state had sent is sent again with the same uuid, which makes no second record.
    let repeats = |kind| kind == ViolationKind::RepeatAfter200;
    wrong.extend(crm::conduct(&crm, repeats));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The ids of the stream's messages, in its order.
async fn ids_in(node: &Broker, stream: &str, many: usize) -> Vec<String> {
    let (_connection, channel) = node.channel().await;
    let qos = channel.basic_qos(100, BasicQosOptions::default());
    qos.await.expect("a prefetch");
    let mut arguments = FieldTable::default();
    arguments.insert(
        "x-stream-offset".into(),
        AMQPValue::LongString("first".into()),
    );
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(stream.into(), "judge".into(), options, arguments);
    let mut consumer = consumer.await.expect("a consumer");
    let mut ids = Vec::new();
    while ids.len() < many {
        let delivery = soon("a message of the stream", consumer.next()).await;
        let delivery = delivery.expect("more").expect("a message");
        let body: Value = serde_json::from_slice(&delivery.data).expect("JSON");
        ids.push(body["id"].as_str().expect("an id").to_owned());
        let user = delivery.properties.user_id().as_ref().map(|it| it.as_str());
        assert_eq!(user, Some(broker::ADMINISTRATOR));
        assert_eq!(*delivery.properties.delivery_mode(), Some(2));
        delivery
            .ack(BasicAckOptions::default())
            .await
            .expect("acked");
    }
    ids
}

#[tokio::test]
async fn while_no_broker_answers_calls_are_kept_and_leave_in_their_order_after_it() {
    let (here, calls) = (Place::new(), in_a_row(30));
    let node = tokio::task::spawn_blocking(Broker::start);
    let node = node.await.expect("a node");
    let to = stream(&node, "away", &here);
    let file = here.file("recorded", "ami");
    let flags = [file.as_str(), TRUNKS[0], TRUNKS[1]];
    here.append("recorded", &calls[0].ami);
    let mut program = collector(&here, &to, &flags);
    program
        .until("the first call is forwarded", forwarded(1))
        .await;
    let node = tokio::task::spawn_blocking(move || {
        node.stop();
        node
    });
    let node = node.await.expect("it stops");
    for call in &calls[1..] {
        here.append("recorded", &call.ami);
    }
    let kept = program
        .until("calls are kept", |it| it.books.ready == 29)
        .await;
    assert!(kept.books.balance(), "{:?}", kept.books);
    let paused = |it: &Status| it.pause.as_ref().is_some_and(|it| it.reason == "outage");
    program.until("the outage is told", paused).await;
    // They survive a kill in the middle of it.
    program.kill().await;
    let mut program = collector(&here, &to, &flags);
    program.until("the outage is told", paused).await;
    let node = tokio::task::spawn_blocking(move || {
        node.start_again();
        node
    });
    let node = node.await.expect("it starts");
    let status = program.until("all are forwarded", forwarded(30)).await;
    assert!(status.books.balance() && status.books.settled());
    program
        .until("the outage is over", |it| it.pause.is_none())
        .await;
    program.terminate().await;
    let ids = ids_in(&node, "away", 30).await;
    let linkedid = |call: recordings::Recording| recordings::expected(&[call])[0].linkedid.clone();
    let wants: Vec<String> = calls.into_iter().map(linkedid).collect();
    assert_eq!(ids, wants);
}

#[tokio::test]
async fn what_was_confirmed_last_before_a_broker_was_lost_is_published_again_once() {
    let (here, calls) = (Place::new(), in_a_row(6));
    let node = tokio::task::spawn_blocking(Broker::start);
    let node = node.await.expect("a node");
    let to = stream(&node, "lost", &here);
    let file = here.file("recorded", "ami");
    let flags = [file.as_str(), TRUNKS[0], TRUNKS[1]];
    for call in &calls[..5] {
        here.append("recorded", &call.ami);
    }
    let mut program = collector(&here, &to, &flags);
    program.until("all are forwarded", forwarded(5)).await;
    let stopped = tokio::task::spawn_blocking(move || {
        node.stop();
        node
    });
    let node = stopped.await.expect("it stops");
    let paused = |it: &Status| it.pause.as_ref().is_some_and(|it| it.reason == "outage");
    program.until("the outage is told", paused).await;
    let node = tokio::task::spawn_blocking(move || {
        node.start_again();
        node
    });
    let node = node.await.expect("it starts");
    let over = |it: &Status| it.pause.is_none();
    let status = program.until("the outage is over", over).await;
    assert_eq!((status.books.forwarded, status.books.ready), (5, 0));
    let ids = ids_in(&node, "lost", 10).await;
    assert_eq!(ids[..5], ids[5..], "each once more");
    here.append("recorded", &calls[5].ami);
    program
        .until("the next one is forwarded", forwarded(6))
        .await;
    let ids = ids_in(&node, "lost", 11).await;
    assert!(!ids[..10].contains(&ids[10]), "the next one comes next");
    // By hand from any moment, also what was forwarded long ago.
    let again = ["state", "forward-again", "--since=1d", "--json"];
    here.lines(&again).await;
    let ids = ids_in(&node, "lost", 17).await;
    assert_eq!(ids[11..], [&ids[..5], &ids[10..11]].concat());
    program.terminate().await;
}

#[tokio::test]
async fn a_collector_parks_what_its_rule_finds_no_lead_for_and_without_a_rule_the_sender_finds_it()
{
    let (here, there, crm) = (Place::new(), Place::new(), crm::start().await);
    let (node, calls) = (Broker::shared(), in_a_row(5));
    for call in &calls {
        here.append("recorded", &call.ami);
    }
    let (to, from) = (stream(node, "ruled", &here), stream(node, "ruled", &there));
    let nobody = here.write("nobody.csv", "phone,leadId\n+998900000000,1\n");
    let file = here.file("recorded", "ami");
    let trunk = format!("--trunk=city=PJSIP/city,country=UZ,strip=9,lead=csv:{nobody}");
    let flags = [file.as_str(), &trunk, "--until-idle"];
    collector(&here, &to, &flags).succeeds().await;
    let books = here.lines(&["status", "--json"]).await[0]["books"].clone();
    assert_eq!(
        (&books["parked"], &books["forwarded"]),
        (&json!(5), &json!(0))
    );

    let elsewhere = Place::new();
    for call in &calls {
        elsewhere.append("recorded", &call.ami);
    }
    let to = stream(node, "ruled", &elsewhere);
    let file = elsewhere.file("recorded", "ami");
    let trunk = "--trunk=city=PJSIP/city,country=UZ,strip=9";
    let flags = [file.as_str(), trunk, "--until-idle"];
    collector(&elsewhere, &to, &flags).succeeds().await;
    let leads = there.write("leads.csv", LEADS);
    let trunk = format!("--trunk=city=,country=UZ,lead=csv:{leads}");
    let mut program = sender(&there, &crm, &from, &[&trunk]);
    let status = program.settled(5).await;
    assert_eq!(status.books.journaled, 5, "{:?}", status.books);
    program.terminate().await;
    crm::judge(&crm, &there.letters().await, &recordings::expected(&calls));
}

/// A message by hand: a call of the lead 4001.
pub fn message(id: &str) -> Value {
    json!({
        "pbx": "tashkent-1", "id": id, "direction": "INBOUND", "trunk": "city",
        "phone": "901110001", "startedAt": 1_795_151_317.52, "durationSec": 5.2, "answered": true,
        "talkSec": 4.1, "extension": "101", "extensions": ["101"], "leadId": 4001,
        "variables": {"LEAD_ID": "4001"}, "incomplete": false, "estimate": false
    })
}

/// Messages with one wrong value each, and the field that it is in.
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
        ("startedAt", json!(1_795_151_317_520_u64)),
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
        let mut told = message(&format!("wrong.{n}"));
        told[field] = value;
        all.push((field, told.to_string()));
    }
    let good = message("wrong.nan").to_string();
    all.push(("durationSec", good.replace("5.2", "NaN")));
    all.push(("talkSec", good.replace("4.1", "-Infinity")));
    let twice = r#"{"answered":false,"answered":true,"#;
    all.push(("answered", good.replacen('{', twice, 1)));
    all
}

#[tokio::test]
async fn a_message_by_hand_is_journaled_and_wrong_ones_become_letters_that_name_the_field() {
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
    let secret = place.write("secret", broker::SECRET);
    let source = format!(
        "{}?queue={queue}&secret-file={secret}",
        node.url(broker::ADMINISTRATOR)
    );
    let mut program = sender(&place, &crm, &source, &["--trunk=city=,country=UZ"]);
    let all = u64::try_from(wrong.len()).expect("few");
    let read = |it: &Status| {
        it.books.unreadable + it.books.dead + it.books.parked == all && it.books.settled()
    };
    let status = program.until("each is read", read).await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!(status.books.journaled, 2);
    program.terminate().await;
    assert_eq!(node.depth(queue).await, 0);

    let letters = place.letters().await;
    let words: Vec<&str> = letters
        .iter()
        .filter_map(|it| it["message"].as_str())
        .collect();
    assert_eq!(words.len(), wrong.len());
    for (field, body) in &wrong {
        let named = format!("{field}: ");
        let count = |fields: &[&str]| fields.iter().filter(|it| **it == *field).count();
        let told = words.iter().filter(|it| it.starts_with(&named));
        let fields: Vec<&str> = wrong.iter().map(|it| it.0).collect();
        assert_eq!(
            told.count(),
            count(&fields),
            "{field} {body}\n{}",
            words.join("\n")
        );
    }
    for words in words {
        assert!(
            words.contains("; it may be ") || words.starts_with("version: "),
            "{words}"
        );
    }
    let journal = crm.journal();
    let record = &journal[0].call;
    assert_eq!((record.lead_id, record.started_at), (4001, 1_795_151_317));
    assert_eq!((record.duration_sec, record.talk_time_sec), (5, Some(4)));
}

#[tokio::test]
async fn a_pbx_belongs_to_the_user_who_published_for_it_first() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (node, queue) = (Broker::shared(), "whose");
    node.declare(queue).await;
    let (_connection, channel) = node.channel().await;
    let named = BasicProperties::default()
        .with_delivery_mode(2)
        .with_user_id(broker::ADMINISTRATOR.into());
    let nameless = BasicProperties::default().with_delivery_mode(2);
    for (id, properties) in [("1.1", named), ("1.2", nameless)] {
        let (body, options) = (message(id).to_string(), BasicPublishOptions::default());
        let sent = channel.basic_publish(
            "".into(),
            queue.into(),
            options,
            body.as_bytes(),
            properties,
        );
        let _ = sent.await.expect("sent").await.expect("confirmed");
    }
    let secret = place.write("secret", broker::SECRET);
    let source = format!(
        "{}?queue={queue}&secret-file={secret}",
        node.url(broker::ADMINISTRATOR)
    );
    let mut program = sender(&place, &crm, &source, &["--trunk=city=,country=UZ"]);
    let both = |it: &Status| it.books.journaled == 1 && it.books.unreadable == 1;
    program.until("one call and one letter", both).await;
    program.terminate().await;
    let letters = place.letters().await;
    let words = letters[0]["message"].as_str().expect("words");
    assert!(
        words.starts_with("user_id: it is missing, and PBX tashkent-1 belongs"),
        "{words}"
    );
}
