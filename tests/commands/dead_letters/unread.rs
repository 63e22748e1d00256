//! Tests that unreadable messages are counted and kept, and that the source continues.

use super::seed;
use crate::commands::sidecar::{PBX, Place, RunningCommand, poll_until, start_crm};
use callbridge_model::Reason;
use callbridge_spool::fix;
use callbridge_testbed::broker::{ADMINISTRATOR, Broker};
use callbridge_testbed::calls::{Call, recording};
use callbridge_testbed::pbx::FakePbx;
use callbridge_testbed::proxy::Proxy;
use serde_json::{Value, json};
use std::io::Write as _;

/// Waits until the books count this many unreadable messages, and returns their dead letters.
async fn wait_for_unreadable(place: &Place, count: u64) -> Vec<Value> {
    place.wait_for_number("/books/unreadable", count).await;
    let letters = place.dead_letters("--reason unreadable").await;
    assert_eq!(letters.len() as u64, count);
    for letter in &letters {
        let expected_fix = fix(Reason::Unreadable).replace(" ID", &format!(" {}", letter["id"]));
        assert_eq!(letter["fix"], json!(expected_fix));
        assert_eq!(
            (&letter["uuid"], &letter["call"]),
            (&Value::Null, &Value::Null)
        );
    }
    letters
}

/// Returns how often the log of the daemon contains these words.
fn log_count(daemon: &RunningCommand, words: &str) -> usize {
    daemon.log().matches(words).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_file_lines_are_kept_and_calls_are_journaled() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let calls = [Call::new(1, 4001), Call::new(2, 4002)];
    let long = "x".repeat(128 * 1024);
    let mut bytes = calls[0].ami().into_bytes();
    bytes.extend_from_slice(b"\xff\xfe\x00 no colon at all\r\n\r\n");
    bytes.extend_from_slice(format!("Noise: {long}\r\n\r\n").as_bytes());
    bytes.extend_from_slice(b"Event: Hangup\r\nCause: 16\r\n\r\n");
    bytes.extend_from_slice(calls[1].ami().as_bytes());
    place.write("calls.ami", bytes);
    place
        .run_until_idle(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let letters = wait_for_unreadable(&place, 3).await;
    assert_eq!(crm.journal().len(), 2);
    assert!(
        letters[0]["text"]
            .as_str()
            .expect("text")
            .contains("no colon at all")
    );
    let length = long.len() as u64 + "Noise: ".len() as u64;
    assert_eq!(letters[1]["length"], json!(length));
    let listed = letters[1]["text"].as_str().expect("text").len();
    assert!(listed < 2_000, "a list shows only the beginning: {listed}");
    let id = &letters[1]["id"];
    let shown = place
        .run_on_state(&format!("dead show {id} --json"))
        .await
        .lines()
        .remove(0);
    let shown_length = shown["text"].as_str().expect("text").len() as u64;
    assert_eq!(shown_length, length, "the whole message is kept");
    let shown_text = place
        .run_on_state(&format!("dead show {}", letters[0]["id"]))
        .await
        .expect_success();
    assert!(shown_text.contains("no colon at all"), "{shown_text}");
    let retry = place
        .run_on_state("dead retry --reason unreadable --dry-run")
        .await;
    assert_eq!(retry.code, 65);
    assert!(retry.out.contains("discard it"), "{retry:?}");
    place
        .run_on_state("dead discard --reason unreadable")
        .await
        .expect_success();
    assert_eq!(
        place.number("/books/unreadable").await,
        Some(3),
        "a discarded message stays counted"
    );
    assert_eq!(place.dead_letters("").await, [] as [Value; 0]);
}

/// The state has the open call of a later version, as after a rollback.
#[tokio::test(flavor = "multi_thread")]
async fn unrestorable_open_call_becomes_one_dead_letter() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    seed::add_open_call(&place, br#"{"of": "another version"}"#).await;
    for _ in 0..2 {
        place
            .run_until_idle(&place.flags_of_file(&crm.url(), "calls.ami"))
            .await;
        let letters = wait_for_unreadable(&place, 1).await;
        assert_eq!(letters[0]["text"], json!(r#"{"of": "another version"}"#));
        let shown = letters[0].to_string();
        assert!(shown.contains("cannot be restored"), "{shown}");
    }
    assert_eq!(crm.journal().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn non_json_frame_does_not_close_the_websocket() {
    let (place, crm, pbx) = (
        Place::new(),
        start_crm(|_| ()).await,
        FakePbx::websocket().await,
    );
    let mut flags = place.flags(&crm.url());
    flags.push(format!("--source=ws://{}/", pbx.addr()));
    let daemon = place.start_daemon(&flags).await;
    pbx.logged_in(1).await;
    for frame in ["{\"type\":3,\"data\"", "hello", "[]", "\u{b}"] {
        pbx.say(frame.as_bytes()).await;
    }
    let letters = wait_for_unreadable(&place, 4).await;
    assert_eq!(letters[1]["text"], "hello");
    let source = place.status().await.expect("a status")["sources"][0].clone();
    assert_eq!(
        (&source["state"], &source["unreadable"]),
        (&json!("connected"), &json!(4))
    );
    assert_eq!(source["gaps"], json!(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_secret_is_logged_once_retried_and_shown_in_status() {
    let (place, crm, pbx) = (Place::new(), start_crm(|_| ()).await, FakePbx::ami().await);
    let secret = place.write("secret", "wrong");
    let mut flags = place.flags(&crm.url());
    flags.push(format!(
        "--source=ami://bridge@{}?secret-file={}",
        pbx.addr(),
        secret.display()
    ));
    let daemon = place.start_daemon(&flags).await;
    let reason = poll_until("the reason of the source", async || {
        let status = place.status().await?;
        status["sources"][0]["reason"].as_str().map(str::to_owned)
    })
    .await;
    assert!(reason.contains("secret"), "{reason}");
    let text = place.run_on_state("status").await.expect_success();
    assert!(text.contains("down") && text.contains(&reason), "{text}");
    // The login is refused twice more, and nothing is added to the log.
    poll_until("three logins", async || {
        let requests = pbx.requests();
        let logins = requests
            .iter()
            .filter(|request| request.contains("ction: Login"));
        (logins.count() >= 3).then_some(())
    })
    .await;
    assert_eq!(
        log_count(&daemon, "the source is down"),
        1,
        "{}",
        daemon.log()
    );
    place.write("secret", callbridge_testbed::pbx::SECRET);
    pbx.logged_in(1).await;
    place.wait_for_number("/books/finished", 0).await;
    poll_until("a source that is connected", async || {
        let status = place.status().await?;
        (status["sources"][0]["state"] == json!("connected")).then_some(())
    })
    .await;
    daemon.stop().await;
}

fn reason_of(source: &Value) -> &str {
    source["reason"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn source_connection_error_is_logged_once_and_in_status() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let mut flags = place.flags(&crm.url());
    flags.push("--source=ami://bridge@127.0.0.1:9".to_owned());
    flags.push("--source=ws://pbx.invalid:8000/?pbx=second".to_owned());
    let daemon = place.start_daemon(&flags).await;
    let sources = poll_until("the reasons of both sources", async || {
        let status = place.status().await?;
        let sources = status["sources"].as_array()?.clone();
        sources
            .iter()
            .all(|source| source["reason"].is_string())
            .then_some(sources)
    })
    .await;
    let (first, second) = (reason_of(&sources[0]), reason_of(&sources[1]));
    assert!(first.contains("connection refused"), "{first}");
    assert!(second.contains("unknown host"), "{second}");
    assert_eq!(
        log_count(&daemon, "the source is down"),
        2,
        "{}",
        daemon.log()
    );
    let ready = place.run_on_state("status").await.expect_success();
    assert!(ready.contains("connection refused"), "{ready}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_messages_are_kept_and_dead_lettered_by_broker() {
    let broker = Broker::shared();
    broker
        .declare_with_refused("cel_unread", "cel_refused")
        .await;
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let mut flags = place.flags(&crm.url());
    let url = broker.url(ADMINISTRATOR);
    flags.push(format!(
        "--source={url}?queue=cel_unread&format=asterisk-cel"
    ));
    broker
        .publish(
            "cel_unread",
            &[&b"\xff\xfe"[..], b"{\"event_name\":", b"{}"],
        )
        .await;
    let daemon = place.start_daemon(&flags).await;
    wait_for_unreadable(&place, 3).await;
    poll_until("three refused messages", async || {
        (broker.depth("cel_refused").await == 3).then_some(())
    })
    .await;
    assert_eq!(broker.depth("cel_unread").await, 0);
    // The source continues with the next messages.
    broker.publish("cel_unread", &[&b"neither"[..]]).await;
    wait_for_unreadable(&place, 4).await;
    daemon.stop().await;
    assert_eq!(broker.take("cel_refused").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_message_notice_goes_to_rabbitmq_without_uuid() {
    let broker = Broker::shared();
    broker.declare("unread_letters").await;
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write(
        "calls.ami",
        format!("no event\r\n\r\n{}", recording(&[Call::new(1, 9001)])),
    );
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    let url = broker.url("callbridge");
    flags.push(format!("--dead-letter-queue={url}?queue=unread_letters"));
    place.run_until_idle(&flags).await;
    let notices = broker.take("unread_letters").await;
    let headers: Vec<(String, String)> = notices
        .iter()
        .map(|notice| (notice.header("reason"), notice.header("uuid")))
        .collect();
    let failed = ("failed".to_owned(), Call::new(1, 9001).uuid(PBX));
    assert_eq!(headers[0], ("unreadable".to_owned(), String::new()));
    assert_eq!(headers[1].0, failed.0);
    assert_eq!(headers.len(), 2, "a stop sends what is in the outbox");
}

async fn wait_for_stopped_letters(broker: &Broker, letters: u32) {
    poll_until("the letter", async || {
        (broker.depth("stopped_letters").await == letters).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_dead_letter_at_stop_is_published_once() {
    let broker = Broker::shared();
    broker.declare("stopped_letters").await;
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let proxy = Proxy::start(broker.port()).await;
    place.write("calls.ami", "no event\r\n\r\n");
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push(format!(
        "--dead-letter-queue=amqp://callbridge@127.0.0.1:{}/{}?queue=stopped_letters",
        proxy.port(),
        broker.vhost()
    ));
    let daemon = place.start_daemon(&flags).await;
    wait_for_stopped_letters(broker, 1).await;
    let state = rusqlite::Connection::open(place.path("state").join("spool.db")).expect("a state");
    poll_until("its confirm", async || {
        let unsent_notices = state.query_row("SELECT count(*) FROM notices", [], |row| {
            row.get::<_, i64>(0)
        });
        (unsent_notices == Ok(0)).then_some(())
    })
    .await;
    proxy.mute();
    let mut file = std::fs::OpenOptions::new();
    let file = file.append(true).open(place.path("calls.ami"));
    let written = file.expect("a file").write_all(b"no event either\r\n\r\n");
    written.expect("written");
    wait_for_stopped_letters(broker, 2).await;
    daemon.stop().await;
    assert_eq!(broker.depth("stopped_letters").await, 2);
}
