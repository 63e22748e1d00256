//! Tests of FreeSWITCH's event socket.

use crate::listener::{Listener, send};
use crate::stage::{Stage, impatient_settings, settings};
use callbridge_call::Mark;
use callbridge_source::{Fix, Item, Secret, Settings, Source, SourceId, SourceUrl};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::switch::{FakeSwitch, PASSWORD};
use std::time::Duration;

const RUNNING: &str = r#"{"row_count":2,"rows":[{"uuid":"a-1"},{"uuid":"b-2"}]}"#;

fn url(port: u16) -> String {
    format!("esl://127.0.0.1:{port}?secret-file={}", secret_file())
}

/// Makes a file with the switch's password, and returns its path. All tests share the file.
fn secret_file() -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("esl-{}.secret", std::process::id()));
    std::fs::write(&file, PASSWORD).expect("written");
    file.display().to_string()
}

/// Returns the next mark, and skips the report that events flow.
async fn next_mark(stage: &mut Stage) -> Mark {
    loop {
        match stage.next().await {
            Item::Mark { mark, .. } => return mark,
            Item::EventsFlow => {}
            other => panic!("{other:?} instead of a mark"),
        }
    }
}

/// Waits until the connection to a switch without channels is up.
async fn expect_up_without_channels(stage: &mut Stage) {
    stage.expect_up().await;
    assert_eq!(next_mark(stage).await, Mark::LoggedIn);
    let uptime = Some(Duration::from_secs(86_400));
    assert_eq!(next_mark(stage).await, Mark::FullyBooted { uptime });
    assert_eq!(next_mark(stage).await, Mark::ListEnd { channels: None });
}

#[tokio::test]
async fn esl_source_subscribes_and_reads_events_sent_in_pieces() {
    let switch = FakeSwitch::start().await;
    let mut stage = Stage::start(&url(switch.addr().port()), settings());
    expect_up_without_channels(&mut stage).await;
    let asked = switch.requests();
    assert!(
        asked[1].starts_with("event json CHANNEL_CREATE "),
        "{asked:?}"
    );
    assert!(
        asked[1].ends_with(" CUSTOM conference::maintenance"),
        "{asked:?}"
    );
    // A plain event arrives as well, because another user of the socket may have requested it.
    let bodies = [
        r#"{"Event-Name":"HEARTBEAT"}"#,
        "Event-Name: CHANNEL_CREATE\n\n",
    ];
    for (kind, body) in ["json", "plain"].into_iter().zip(bodies) {
        let frame = format!(
            "Content-Length: {}\nContent-Type: text/event-{kind}\n\n{body}",
            body.len()
        );
        switch.send_in_pieces(frame.as_bytes(), 1).await;
        assert_eq!(stage.text().await, body);
    }
    // Answers to questions that were not asked, and frames that are not events, arrive in between.
    switch
        .send(b"Content-Type: log/data\nContent-Length: 3\n\nabcContent-Type: x/y\n\n")
        .await;
    switch.event(bodies[0]).await;
    assert_eq!(stage.text().await, bodies[0]);
    assert_eq!(stage.counts.now().frames, 3);
    assert_eq!(stage.stop().await, []);
}

#[tokio::test]
async fn live_channels_at_login_are_reported_one_by_one() {
    let switch = FakeSwitch::start().await;
    switch.answers("show channels as json", RUNNING);
    let dump = r#"{"Event-Name":"CHANNEL_DATA","Unique-ID":"a-1"}"#;
    switch.answers("uuid_dump a-1 json", dump);
    switch.answers("uuid_dump b-2 json", "-ERR No such channel!\n");
    let mut stage = Stage::start(&url(switch.addr().port()), settings());
    stage.expect_up().await;
    assert_eq!(next_mark(&mut stage).await, Mark::LoggedIn);
    assert!(matches!(
        next_mark(&mut stage).await,
        Mark::FullyBooted { .. }
    ));
    assert_eq!(stage.text().await, dump);
    assert_eq!(
        next_mark(&mut stage).await,
        Mark::ListEnd { channels: None }
    );
}

#[tokio::test]
async fn wrong_password_names_fix_and_recovers_after_correction() {
    let switch = FakeSwitch::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "ClueCon").expect("written");
    let port = switch.addr().port();
    let text = format!("esl://127.0.0.1:{port}?secret-file={}", file.display());
    let mut stage = Stage::start(&text, settings());
    let why = stage.next_outage_reason().await;
    assert!(
        why.contains("refused the password; give the password of event_socket.conf.xml"),
        "{why}"
    );
    assert!(!why.contains("ClueCon"), "{why}");
    let url = SourceUrl::parse(&text).expect("a source");
    let secret = Secret::File(file.clone());
    let defaults = Settings::default();
    let source = Source::new(SourceId(0), url, secret, None, defaults, || {
        callbridge_source::EventTime::from_seconds(0)
    });
    let error = source.probe().await.expect_err("a wrong password");
    assert_eq!(error.fix(), Fix::Secret);
    std::fs::write(&file, PASSWORD).expect("written");
    expect_up_without_channels(&mut stage).await;
}

#[tokio::test]
async fn address_blocked_by_acl_names_apply_inbound_acl() {
    let switch = FakeSwitch::start().await;
    switch.refuse_addresses();
    let mut stage = Stage::start(&url(switch.addr().port()), settings());
    let why = stage.next_outage_reason().await;
    assert!(why.contains("apply-inbound-acl"), "{why}");
}

#[tokio::test]
async fn peer_that_is_not_an_event_socket_is_reported() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept().await;
    send(&mut line, b"Asterisk Call Manager/11.0.0\r\n").await;
    let why = stage.next_outage_reason().await;
    assert!(
        why.contains("not an event socket of FreeSWITCH: it sent \"Asterisk Call"),
        "{why}"
    );
}

#[tokio::test]
async fn half_open_connection_is_reopened_with_a_gap() {
    let switch = FakeSwitch::start().await;
    let proxy = Proxy::start(switch.addr().port()).await;
    let mut stage = Stage::start(&url(proxy.port()), impatient_settings());
    expect_up_without_channels(&mut stage).await;
    // Answers to keep-alives keep the connection open. The test waits three times as long as the
    // silence that ends a connection.
    switch.wait_for_command("api uptime ms", 14).await;
    proxy.freeze();
    let why = stage.next_outage_reason().await;
    assert!(why.contains("no byte for "), "{why}");
    stage.expect_up().await;
    let why = stage.next_gap_reason().await;
    assert!(why.contains("events may be missing"), "{why}");
    assert_eq!(next_mark(&mut stage).await, Mark::LoggedIn);
}

fn heartbeat(core: &str) -> String {
    format!(r#"{{"Event-Name":"HEARTBEAT","Core-UUID":"{core}"}}"#)
}

#[tokio::test]
async fn switch_restart_is_reported_before_its_first_event() {
    let switch = FakeSwitch::start().await;
    switch.answers("uptime ms", "-ERR uptime Command not found!\n");
    switch.answers("show channels as json", "-ERR show Command not found!\n");
    let mut stage = Stage::start(&url(switch.addr().port()), settings());
    stage.expect_up().await;
    assert_eq!(next_mark(&mut stage).await, Mark::LoggedIn);
    switch.subscribed(1).await;
    switch.event(&heartbeat("one")).await;
    assert_eq!(stage.next().await, Item::EventsFlow);
    assert_eq!(stage.text().await, heartbeat("one"));
    switch.cut().await;
    assert!(stage.next_outage_reason().await.contains("closed"));
    stage.expect_up().await;
    stage.next_gap_reason().await;
    assert_eq!(next_mark(&mut stage).await, Mark::LoggedIn);
    switch.subscribed(2).await;
    switch.event(&heartbeat("two")).await;
    assert!(matches!(
        next_mark(&mut stage).await,
        Mark::Restarted { began: None }
    ));
    assert_eq!(stage.text().await, heartbeat("two"));
}

#[tokio::test]
async fn too_long_event_is_a_gap_and_an_orderly_stop_is_reported() {
    let switch = FakeSwitch::start().await;
    let mut stage = Stage::start(&url(switch.addr().port()), settings());
    expect_up_without_channels(&mut stage).await;
    let long = format!(
        r#"{{"Event-Name":"CHANNEL_CREATE","x":"{}"}}"#,
        "y".repeat(1 << 20)
    );
    switch.event(&long).await;
    let why = stage.next_gap_reason().await;
    assert!(why.starts_with("a message was discarded"), "{why}");
    assert_eq!(stage.counts.now().too_long, 1);
    switch
        .send(
            b"Content-Type: text/disconnect-notice\nContent-Length: 31\n\n\
              The system is being shut down.\n",
        )
        .await;
    let why = stage.next_outage_reason().await;
    assert!(why.contains("The system is being shut down."), "{why}");
}

#[tokio::test]
async fn two_session_count_mismatches_list_channels_with_a_gap() {
    let switch = FakeSwitch::start().await;
    let mut stage = Stage::start(&url(switch.addr().port()), settings());
    expect_up_without_channels(&mut stage).await;
    switch.answers("show channels as json", RUNNING);
    let dump = r#"{"Event-Name":"CHANNEL_DATA"}"#;
    switch.answers("uuid_dump a-1 json", dump);
    switch.answers("uuid_dump b-2 json", dump);
    let heartbeat = r#"{"Event-Name":"HEARTBEAT","Session-Count":"2"}"#;
    for _ in 0..2 {
        switch.event(heartbeat).await;
        assert_eq!(stage.text().await, heartbeat);
    }
    let why = stage.next_gap_reason().await;
    assert!(why.contains("2 that were not known"), "{why}");
    assert_eq!(
        (stage.text().await, stage.text().await),
        (dump.into(), dump.into())
    );
    assert_eq!(
        next_mark(&mut stage).await,
        Mark::ListEnd { channels: None }
    );
}

/// Returns the faults of a URL, one per line.
fn faults(text: &str) -> String {
    match SourceUrl::parse(text) {
        Ok(_) => String::new(),
        Err(faults) => faults.iter().map(|fault| format!("{fault}\n")).collect(),
    }
}

#[test]
fn esl_password_over_network_requires_clear_yes() {
    for well in [
        "esl://127.0.0.1",
        "esl://localhost:8022?pbx=hq",
        "esl://[::1]?secret-file=/s",
        "esl://10.0.0.5?clear=yes",
    ] {
        assert_eq!(faults(well), "", "{well}");
    }
    let said = faults("esl://pbx.example:8021");
    assert!(
        said.contains("add clear=yes") && said.contains("ssh -L"),
        "{said}"
    );
    assert!(faults("esl://10.0.0.5?clear=no").contains("clear=yes"));
    assert!(faults("esl://10.0.0.5?clear=perhaps").contains("yes or no"));
    assert!(faults("esl://user@127.0.0.1").contains("remove it"));
    let said = faults("esl://:ClueCon@127.0.0.1");
    assert!(
        said.contains("CALLBRIDGE_ESL_SECRET") && !said.contains("ClueCon"),
        "{said}"
    );
    let url = SourceUrl::parse("esl://127.0.0.1?secret-file=/s").expect("a source");
    assert_eq!(url.key(), "esl://127.0.0.1:8021");
}
