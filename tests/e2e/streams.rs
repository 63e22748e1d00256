//! A stream that changes under its reader: made anew, restored from a copy, overtaken by what the
//! broker drops, and messages that are longer than may be.

use crate::broker::{self, Broker, SECRET};
use crate::crm;
use crate::fleet::{message, sender, stream};
use crate::flood::peak;
use crate::program::{Place, Program};
use callbridge_call::EventTime;
use callbridge_model::Status;
use callbridge_model::status::FindingKind;
use callbridge_sandbox::Server;
use callbridge_spool::{Op, PublishedBy, UnreadableBytes};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Confirmation, Connection, ConnectionProperties};

/// A trunk as messages by hand name it.
const TRUNK: &str = "--trunk=city=,country=UZ";

/// Calls by hand, each a second after the one before.
fn calls(numbers: std::ops::Range<u32>) -> Vec<String> {
    let call = |n: u32| {
        let mut told = message(&format!("1795151317.{n}"));
        told["startedAt"] = (1_795_151_317 + i64::from(n)).into();
        told.to_string()
    };
    numbers.map(call).collect()
}

fn journaled(calls: u64) -> impl Fn(&Status) -> bool {
    move |status| status.books.journaled >= calls
}

/// A sender that has journaled these calls of its stream.
async fn has_read(
    node: &Broker,
    name: &str,
    (place, crm): (&Place, &Server),
    calls: &[String],
) -> Program {
    node.publish(name, calls).await;
    let mut program = sender(place, crm, &stream(node, name, place), &[TRUNK]);
    let all = u64::try_from(calls.len()).expect("few");
    program.until("all are journaled", journaled(all)).await;
    program
}

/// What `status` says of the stream, and that nothing was doubled.
fn judge(status: &Status, crm: &Server, calls: usize, words: &str) {
    assert!(status.books.balance(), "{:?}", status.books);
    let stream = status.sources[0].stream.as_ref().expect("a stream");
    assert!(stream.recreated_at.is_some(), "{stream:?}");
    assert_eq!(crm.journal().len(), calls);
    assert_eq!(status.sources[0].replaced, 1);
    let gap = status.gaps.last().expect("a gap");
    let why = gap.why.as_deref().expect("a reason");
    assert!(why.contains(words), "{why}");
    let mut todo = status.todo.iter();
    let found = todo.find(|it| it.kind == FindingKind::StreamRecreated);
    assert!(
        found.is_some_and(|it| it.what.contains(words)),
        "{:?}",
        status.todo
    );
}

#[tokio::test]
async fn a_stream_that_is_deleted_and_made_anew_is_read_from_its_first_message() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let (old, new) = (calls(0..100), calls(100..150));
    node.declare_stream("made-anew").await;
    let mut program = has_read(node, "made-anew", (&place, &crm), &old).await;
    // The sender declares it again itself, and finds it shorter than its place.
    node.delete("made-anew").await;
    let up = |it: &Status| it.sources[0].state.is_up() && it.sources[0].replaced == 1;
    program.until("the stream is known to be another", up).await;
    node.publish("made-anew", &new).await;
    let status = program.until("all are journaled", journaled(150)).await;
    judge(&status, &crm, 150, "ends before message");
    program.terminate().await;
}

#[tokio::test]
async fn a_stream_restored_while_the_sender_was_stopped_is_known_by_its_message() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let (old, new) = (calls(0..20), calls(20..60));
    node.declare_stream("restored").await;
    let program = has_read(node, "restored", (&place, &crm), &old).await;
    program.terminate().await;
    // A copy that lacks the last five, and goes on: other messages stand where the place is.
    node.delete("restored").await;
    node.declare_stream("restored").await;
    node.publish("restored", &old[..15]).await;
    node.publish("restored", &new).await;
    let from = stream(node, "restored", &place);
    let mut program = sender(&place, &crm, &from, &[TRUNK]);
    let status = program.until("all are journaled", journaled(60)).await;
    judge(&status, &crm, 60, "is another one");
    program.terminate().await;
    // The same stream on other hosts is no other one.
    let others = from.replace("127.0.0.1:", "localhost:");
    assert_ne!(others, from);
    let mut program = sender(&place, &crm, &others, &[TRUNK]);
    node.publish("restored", &calls(60..61)).await;
    let status = program.until("one more is journaled", journaled(61)).await;
    assert_eq!(status.sources[0].replaced, 0);
    // What became of it is known after a restart, too, and where its reading stands: behind calls,
    // and what was told of them.
    let shown = &place.lines(&["status", "--json"]).await[0]["sources"][0]["stream"];
    let is_there = shown["offset"].as_u64() >= Some(55) && shown["recreatedAt"].is_i64();
    assert!(is_there && shown["name"] == "restored", "{shown}");
    program.terminate().await;
}

#[tokio::test]
async fn messages_that_the_broker_dropped_before_they_were_read_are_a_gap() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let name = "overtaken";
    let mut arguments = FieldTable::default();
    let kind = AMQPValue::LongString("stream".into());
    arguments.insert("x-queue-type".into(), kind);
    for (key, bytes) in [
        ("x-max-length-bytes", 20_000),
        ("x-stream-max-segment-size-bytes", 4_000),
    ] {
        arguments.insert(key.into(), AMQPValue::LongLongInt(bytes));
    }
    node.declare_with(name, arguments).await;
    let program = has_read(node, name, (&place, &crm), &calls(0..5)).await;
    program.kill().await;
    // Pieces of the stream end between publishings: many of them, and the first ones are dropped.
    let more = calls(5..505);
    for part in more.chunks(10) {
        node.publish(name, part).await;
    }
    let from = stream(node, name, &place);
    let mut program = sender(&place, &crm, &from, &[TRUNK]);
    let replaced = |it: &Status| it.sources[0].replaced == 1 && it.books.settled();
    let caught_up = |it: &Status| replaced(it) && it.books.journaled > 5;
    let status = program.until("the rest is journaled", caught_up).await;
    let all = usize::try_from(status.books.journaled).expect("few");
    assert!(all < 505, "nothing was dropped: {all}");
    judge(&status, &crm, all, "dropped messages before they were read");
    program.terminate().await;
}

#[tokio::test]
async fn messages_longer_than_may_be_are_skipped_in_little_memory_and_the_calls_behind_them_come() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let name = "poison";
    node.declare_stream(name).await;
    let program = has_read(node, name, (&place, &crm), &calls(0..1)).await;
    let before = peak(&program);
    program.kill().await;
    let huge = "x".repeat(60 << 20);
    for _ in 0..4 {
        node.publish(name, &[&huge]).await;
    }
    node.publish(name, &calls(1..21)).await;
    let from = stream(node, name, &place);
    let mut program = sender(&place, &crm, &from, &[TRUNK]);
    let status = program.until("all are journaled", journaled(21)).await;
    assert_eq!((status.books.unreadable, status.books.journaled), (4, 21));
    let grown = peak(&program).saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes for messages of 60 MiB");
    program.terminate().await;
    let letters = place.letters().await;
    let words = letters[0]["message"].as_str().expect("words");
    assert!(
        words.starts_with("the record has 62914560 bytes"),
        "{words}"
    );
}

/// Publishes a call by hand as this user, who is named with it.
async fn publish_as(node: &Broker, user: &str, name: &str, call: &str, kind: &str) {
    let secret = SECRET.replace(' ', "%20");
    let url = node.url(user).replace('@', &format!(":{secret}@"));
    let line = Connection::connect(&url, ConnectionProperties::default()).await;
    let line = line.expect("a connection");
    let channel = line.create_channel().await.expect("a channel");
    let confirms = channel.confirm_select(ConfirmSelectOptions::default());
    confirms.await.expect("confirms");
    let named = BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type(kind.into())
        .with_user_id(user.into());
    let (body, options) = (call.as_bytes(), BasicPublishOptions::default());
    let sent = channel.basic_publish("".into(), name.into(), options, body, named);
    let confirmed = sent.await.expect("sent").await.expect("a confirm");
    assert!(
        matches!(confirmed, Confirmation::Ack(None)),
        "{confirmed:?}"
    );
}

const KIND: &str = "application/vnd.callbridge.call+json; version=1";
const NEWER: &str = "application/vnd.callbridge.call+json; version=2";

#[tokio::test]
async fn a_pbx_is_handed_to_a_renamed_user_and_what_was_refused_until_then_is_read_again() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let name = "renamed";
    node.declare_stream(name).await;
    node.let_in("renamed-branch", ["^$", "^amq\\.default$", "^$"]);
    let all = calls(0..3);
    publish_as(node, broker::ADMINISTRATOR, name, &all[0], KIND).await;
    publish_as(node, "renamed-branch", name, &all[1], KIND).await;
    let from = stream(node, name, &place);
    let mut program = sender(&place, &crm, &from, &[TRUNK]);
    let refused = |it: &Status| it.books.journaled == 1 && it.books.unreadable == 1;
    program.until("the other user is refused", refused).await;
    // It is read again by nobody who does not say whose the PBX is now.
    let retry = ["dead", "retry", "--reason", "unreadable", "--json"];
    let why = place.command(&retry).await.stdout;
    let why = String::from_utf8_lossy(&why);
    assert!(
        why.contains("callbridge fleet owner tashkent-1 renamed-branch"),
        "{why}"
    );
    let owner = ["fleet", "owner", "tashkent-1", "renamed-branch", "--json"];
    let before = place.lines(&owner).await[0]["before"].clone();
    assert_eq!(before, broker::ADMINISTRATOR);
    assert_eq!(place.lines(&retry).await[0]["result"], "ready");
    publish_as(node, "renamed-branch", name, &all[2], KIND).await;
    let status = program.until("all are journaled", journaled(3)).await;
    assert!(status.books.balance() && place.letters().await.is_empty());
    program.terminate().await;
    assert_eq!(crm.journal().len(), 3);
}

#[tokio::test]
async fn a_pbx_that_a_flag_gives_to_a_login_is_that_logins_whoever_was_first() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let name = "owned";
    node.declare_stream(name).await;
    node.let_in("owned-branch", ["^$", "^amq\\.default$", "^$"]);
    let all = calls(0..2);
    publish_as(node, broker::ADMINISTRATOR, name, &all[0], KIND).await;
    publish_as(node, "owned-branch", name, &all[1], KIND).await;
    let flags = [TRUNK, "--pbx-owner=tashkent-1=owned-branch"];
    let mut program = sender(&place, &crm, &stream(node, name, &place), &flags);
    let judged = |it: &Status| it.books.journaled == 1 && it.books.unreadable == 1;
    program.until("the first is refused", judged).await;
    let owner = ["fleet", "owner", "tashkent-1", broker::ADMINISTRATOR];
    let refused = place.command(&owner).await;
    assert_eq!(refused.status.code(), Some(64));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    let flag = "--pbx-owner=tashkent-1=owned-branch";
    assert!(why.contains(flag), "{why}");
    program.terminate().await;
    assert_eq!(crm.journal().len(), 1);
}

#[tokio::test]
async fn a_message_of_a_newer_version_stops_nobody_and_is_read_by_the_version_that_can() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let name = "newer";
    node.declare_stream(name).await;
    let all = calls(0..3);
    publish_as(node, broker::ADMINISTRATOR, name, &all[0], NEWER).await;
    publish_as(node, broker::ADMINISTRATOR, name, &all[1], KIND).await;
    let from = stream(node, name, &place);
    let mut program = sender(&place, &crm, &from, &[TRUNK]);
    let kept = |it: &Status| it.books.journaled == 1 && it.books.unreadable == 1;
    program.until("the next one is journaled", kept).await;
    let retry = ["dead", "retry", "--reason", "unreadable", "--json"];
    let why = place.command(&retry).await.stdout;
    let why = String::from_utf8_lossy(&why);
    assert!(why.contains("version: it is 2"), "{why}");
    program.terminate().await;
    // What an older callbridge would have kept of a message that this one reads.
    let settings = callbridge_spool::Settings::default();
    let (spool, guard) = callbridge_spool::open(&place.at("state"), settings).expect("opens");
    let kept = Op::Unreadable(UnreadableBytes {
        source: format!("{from}&format=call"),
        pbx: String::new(),
        bytes: all[2].clone().into_bytes(),
        cut_from: None,
        file: None,
        why: "version: it is 1, and this callbridge reads version 0".to_owned(),
        at: EventTime::from_seconds(1_795_151_400),
        by: Some(PublishedBy {
            user: Some(broker::ADMINISTRATOR.to_owned()),
            content_type: Some(KIND.to_owned()),
        }),
    });
    spool.write(vec![kept]).await.expect("stored");
    drop(spool);
    guard.close();
    let mut program = sender(&place, &crm, &from, &[TRUNK]);
    let status = program
        .until("it is journaled by itself", journaled(2))
        .await;
    assert!(status.books.balance());
    assert_eq!(place.letters().await.len(), 1, "the newer one waits");
    program.terminate().await;
}

#[tokio::test]
async fn a_message_that_is_to_be_skipped_is_not_read() {
    let (place, crm, node) = (Place::new(), crm::start().await, Broker::shared());
    let name = "skipped";
    node.declare_stream(name).await;
    let program = has_read(node, name, (&place, &crm), &calls(0..1)).await;
    program.kill().await;
    // The next one at the attaching, and one in the middle.
    node.publish(name, &["one that stops the reading"]).await;
    node.publish(name, &calls(1..2)).await;
    node.publish(name, &["another"]).await;
    node.publish(name, &calls(2..3)).await;
    let flags = [TRUNK, "--stream-skip=skipped:1", "--stream-skip=skipped:3"];
    let mut program = sender(&place, &crm, &stream(node, name, &place), &flags);
    let status = program.until("the calls are journaled", journaled(3)).await;
    assert_eq!(
        (status.books.unreadable, status.sources[0].replaced),
        (0, 0)
    );
    program.terminate().await;
}
