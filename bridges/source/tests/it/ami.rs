//! Tests of AMI over TCP.

use crate::listener::{ACCEPTED, Listener, action_id_line, read_action, send, wait_until_closed};
use crate::stage::{Stage, impatient_settings, is_pong, settings, wait_until};
use callbridge_source::{EventTime, Item};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::stand_still;
use std::time::Duration;

fn url(port: u16) -> String {
    format!("ami://bridge@127.0.0.1:{port}")
}

#[tokio::test]
async fn messages_after_the_login_arrive_as_frames() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    assert_eq!(stage.text().await + "\r\n\r\n", ACCEPTED);
    // The sizes of the pieces do not matter, even inside a name in Windows-1251.
    for byte in b"Event: Hangup\r\nCallerIDName: \xc8\xe2\xe0\xed\r\n\r\nEvent: Shutdown\r\n\r\n" {
        send(&mut line, &[*byte]).await;
    }
    let frame = stage.frame().await;
    assert_eq!(
        &frame.bytes[..],
        b"Event: Hangup\r\nCallerIDName: \xc8\xe2\xe0\xed"
    );
    assert_eq!((frame.seq, frame.position), (2, None));
    assert_eq!(frame.arrived.micros(), 1_795_151_317_000_000);
    assert_eq!(stage.text().await, "Event: Shutdown");
    assert_eq!(stage.counts.now().frames, 3);
    assert_eq!(stage.stop().await, []);
}

#[tokio::test]
async fn refused_login_is_reported_once_and_tried_again() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    for _ in 0..4 {
        let mut line = listener.accept().await;
        send(&mut line, b"Asterisk Call Manager/11.0.0\r\n").await;
        read_action(&mut line).await;
        send(&mut line, b"Response: Success\r\nChallenge: 123\r\n\r\n").await;
        read_action(&mut line).await;
        send(
            &mut line,
            b"Response: Error\r\nMessage: Authentication failed\r\n\r\n",
        )
        .await;
        wait_until_closed(&mut line).await;
    }
    listener.accept_ami().await;
    let why = stage.next_outage_reason().await;
    assert!(
        why.contains("refused the login: Authentication failed"),
        "{why}"
    );
    assert!(!why.contains("bridgesecret"));
    // The connection was never up before, so there is no gap.
    stage.expect_up().await;
    stage.text().await;
    assert!(matches!(stage.next().await, Item::Down(_)));
    assert_eq!(stage.counts.now().reconnects, 1);
}

#[tokio::test]
async fn refused_connection_is_reported_with_a_fix() {
    let listener = Listener::plain().await;
    let port = listener.port();
    drop(listener);
    let mut stage = Stage::start(&url(port), settings());
    let why = stage.next_outage_reason().await;
    assert!(
        why.contains("connection refused; check that the server runs"),
        "{why}"
    );
    assert!(why.contains(&port.to_string()), "{why}");
}

#[tokio::test]
async fn peer_that_is_not_asterisk_is_reported() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept().await;
    send(&mut line, b"SSH-2.0-OpenSSH_9.9\r\n").await;
    let why = stage.next_outage_reason().await;
    assert!(
        why.contains("not an Asterisk manager: it sent \"SSH-2.0"),
        "{why}"
    );
}

#[tokio::test]
async fn silent_connection_is_reopened_and_the_gap_is_reported() {
    let listener = Listener::plain().await;
    let proxy = Proxy::start(listener.port()).await;
    let mut stage = Stage::start(&url(proxy.port()), impatient_settings());
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    stage.text().await;
    for asked in ["Action: CoreShowChannels", "Action: UserEvent"] {
        assert!(read_action(&mut line).await.starts_with(asked));
    }
    assert!(read_action(&mut line).await.starts_with("Action: Ping"));
    send(&mut line, b"Response: Success\r\nPing: Pong\r\n\r\n").await;
    assert!(stage.text().await.contains("Pong"));
    proxy.freeze();
    let why = stage.next_outage_reason().await;
    assert!(why.contains("no byte for "), "{why}");
    let _again = listener.accept_ami().await;
    stage.expect_up().await;
    let why = stage.next_gap_reason().await;
    assert!(why.contains("events may be missing"), "{why}");
}

#[tokio::test]
async fn unread_bytes_are_read_before_the_connection_is_closed() {
    for _ in 0..4 {
        let listener = Listener::plain().await;
        let mut stage = Stage::start(&url(listener.port()), impatient_settings());
        let mut line = listener.accept_ami().await;
        stage.expect_up().await;
        stage.text().await;
        send(&mut line, b"Event: Hangup\r\n\r\n").await;
        // All tasks of this process stop for longer than a connection may be silent.
        stand_still(impatient_settings().silent_after + Duration::from_millis(200));
        assert_eq!(stage.text().await, "Event: Hangup");
    }
}

#[tokio::test]
async fn ping_answer_is_reported_with_its_time() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    stage.text().await;
    let ping = loop {
        let asked = read_action(&mut line).await;
        if asked.starts_with("Action: Ping") {
            break asked;
        }
    };
    let id = action_id_line(&ping);
    let time = "Timestamp: 1795151300.250000\r\n";
    let answer = format!("Response: Success\r\n{id}\r\nPing: Pong\r\n{time}\r\n");
    send(&mut line, answer.as_bytes()).await;
    let pong = Item::Pong {
        at: Some(EventTime::from_micros(1_795_151_300_250_000)),
        asked: EventTime::from_seconds(1_795_151_317),
        answered: EventTime::from_seconds(1_795_151_317),
    };
    assert_eq!(stage.next_or_pong().await, pong);
    assert!(stage.text().await.contains("Pong"));
}

#[tokio::test]
async fn connection_that_receives_bytes_never_counts_as_silent() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), impatient_settings());
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    stage.text().await;
    for asked in ["Action: CoreShowChannels", "Action: UserEvent"] {
        assert!(read_action(&mut line).await.starts_with(asked));
    }
    // The test takes three times as long as the silence that ends a connection. Each ping is
    // answered.
    for _ in 0..12 {
        assert!(read_action(&mut line).await.starts_with("Action: Ping"));
        send(&mut line, b"Response: Success\r\n\r\n").await;
        assert_eq!(stage.text().await, "Response: Success");
    }
}

#[tokio::test]
async fn lost_connection_is_reopened_and_frame_numbers_continue() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    drop(listener.accept_ami().await);
    stage.expect_up().await;
    assert_eq!(stage.frame().await.seq, 1);
    let why = stage.next_outage_reason().await;
    assert!(why.contains("closed"), "{why}");
    let _line = listener.accept_ami().await;
    stage.expect_up().await;
    stage.next_gap_reason().await;
    assert_eq!(stage.frame().await.seq, 2);
    let counts = stage.counts.clone();
    wait_until("the count", || counts.now().reconnects == 1).await;
}

#[tokio::test]
async fn too_long_message_is_a_gap_and_the_connection_stays_up() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    stage.text().await;
    let long = vec![b'x'; (1 << 20) + 100];
    send(&mut line, b"Event: Long\r\nData: ").await;
    send(&mut line, &long).await;
    send(&mut line, b"\r\n\r\nEvent: Hangup\r\n\r\n").await;
    let why = stage.next_gap_reason().await;
    assert!(
        why.starts_with("a message of 1048695 bytes was discarded"),
        "{why}"
    );
    assert_eq!(stage.text().await, "Event: Hangup");
    assert_eq!(stage.counts.now().too_long, 1);
}

#[tokio::test]
async fn clean_stop_waits_for_the_response_to_a_last_ping() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    stage.text().await;
    while !read_action(&mut line).await.starts_with("Action: Ping") {}
    let stopping = tokio::spawn(stage.stop_with_pongs());
    let ping = read_action(&mut line).await;
    assert!(ping.starts_with("Action: Ping"), "{ping}");
    let id = action_id_line(&ping);
    let event = "Event: Hangup\r\n\r\n";
    let answer = format!("{event}Response: Success\r\n{id}\r\nPing: Pong\r\n\r\n");
    send(&mut line, answer.as_bytes()).await;
    let items = stopping.await.expect("no panic");
    let texts: Vec<_> = items
        .iter()
        .map(|item| match item {
            Item::Frame(frame) => String::from_utf8_lossy(&frame.bytes).into_owned(),
            Item::Pong { .. } => "pong".to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts[..2], ["Event: Hangup", "pong"]);
}

#[tokio::test]
async fn clean_stop_does_not_wait_for_a_stalled_line() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let _line = listener.accept_ami().await;
    stage.expect_up().await;
    let items = stage.stop_with_pongs().await;
    assert!(!items.iter().any(is_pong), "{items:?}");
}
