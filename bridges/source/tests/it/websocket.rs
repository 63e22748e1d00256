//! Tests of AMI as JSON over a WebSocket, with the errors of real gateways.

use crate::listener::{Line, Listener, read_action, send, upgrade, wait_until_closed};
use crate::stage::{Stage, impatient_settings, settings, within_deadline};
use callbridge_testbed::proxy::Proxy;
use callbridge_testbed::wait::stand_still;
use tokio::io::AsyncReadExt;

fn url(port: u16) -> String {
    format!("ws://127.0.0.1:{port}/events")
}

/// Makes a server's frame (RFC 6455 §5.2).
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(u8::try_from(length).expect("short")),
        length @ 126..65_536 => {
            frame.push(126);
            frame.extend(u16::try_from(length).expect("middling").to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(payload);
    frame
}

const TEXT: u8 = 0x81;

/// Reads the next frame of the client, and returns the first byte of the frame. The payload, which
/// is masked, is skipped.
async fn client_frame(line: &mut Line) -> u8 {
    let reading = async {
        let first = line.read_u8().await.expect("a frame");
        let length = line.read_u8().await.expect("a frame") & 0x7f;
        let mut rest = vec![0; usize::from(length) + 4];
        line.read_exact(&mut rest).await.expect("its payload");
        first
    };
    within_deadline("a frame", reading).await
}

#[tokio::test]
async fn invalid_bytes_arrive_unchanged_and_keep_the_line_open() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_websocket().await;
    stage.expect_up().await;
    let messages: [&[u8]; 5] = [
        b"{\"CallerIDName\":\"\xc8\xe2\xe0\xed\"}",
        b"{\"CallerIDName\":\"\\v\x0b\"}",
        b"{\"CallerIDName\":\"\xd0",
        b"\xff",
        b"{\"type\":3}",
    ];
    for message in messages {
        send(&mut line, &frame(TEXT, message)).await;
        assert_eq!(&stage.frame().await.bytes[..], message);
    }
    send(&mut line, &frame(0x82, b"binary\xff")).await;
    assert_eq!(&stage.frame().await.bytes[..], b"binary\xff");
}

#[tokio::test]
async fn websocket_frames_are_read_split_or_behind_the_upgrade() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept().await;
    let mut bytes = upgrade(&mut line).await;
    let long = [b"{\"n\":\"".to_vec(), vec![0xfe; 300], b"\"}".to_vec()].concat();
    bytes.extend(frame(TEXT, b"\xff1"));
    send(&mut line, &bytes).await;
    stage.expect_up().await;
    assert_eq!(&stage.frame().await.bytes[..], b"\xff1");
    for byte in frame(TEXT, &long).into_iter().chain(frame(TEXT, b"\xff2")) {
        send(&mut line, &[byte]).await;
    }
    assert_eq!(&stage.frame().await.bytes[..], &long);
    assert_eq!(&stage.frame().await.bytes[..], b"\xff2");
}

#[tokio::test]
async fn fragmented_message_is_one_frame_with_a_ping_in_between() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_websocket().await;
    stage.expect_up().await;
    // The frame is the source's first ping.
    assert_eq!(client_frame(&mut line).await, 0x89);
    // The first fragment ends in the middle of a character.
    for (first, payload) in [
        (0x01, &b"{\"\xd0"[..]),
        (0x89, b"?"),
        (0x00, b"\xb0"),
        (0x80, b"\"}"),
    ] {
        send(&mut line, &frame(first, payload)).await;
    }
    assert_eq!(stage.text().await, "{\"а\"}");
    assert_eq!(client_frame(&mut line).await, 0x8a, "the ping is answered");
}

#[tokio::test]
async fn websocket_client_sends_only_pings() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), impatient_settings());
    let mut line = listener.accept().await;
    let answer = upgrade(&mut line).await;
    send(&mut line, &answer).await;
    stage.expect_up().await;
    for _ in 0..6 {
        assert_eq!(client_frame(&mut line).await, 0x89);
        send(&mut line, &frame(0x8a, b"")).await;
    }
}

#[tokio::test]
async fn silent_connection_is_reopened_and_the_gap_is_reported() {
    let listener = Listener::plain().await;
    let proxy = Proxy::start(listener.port()).await;
    let mut stage = Stage::start(&url(proxy.port()), impatient_settings());
    let mut line = listener.accept_websocket().await;
    stage.expect_up().await;
    send(&mut line, &frame(TEXT, b"{}")).await;
    assert_eq!(stage.text().await, "{}");
    proxy.freeze();
    let why = stage.next_outage_reason().await;
    assert!(why.contains("no byte for "), "{why}");
    let _again = listener.accept_websocket().await;
    stage.expect_up().await;
    assert!(
        stage
            .next_gap_reason()
            .await
            .contains("events may be missing")
    );
}

#[tokio::test]
async fn unread_bytes_are_read_before_the_connection_is_closed() {
    for _ in 0..4 {
        let listener = Listener::plain().await;
        let mut stage = Stage::start(&url(listener.port()), impatient_settings());
        let mut line = listener.accept_websocket().await;
        stage.expect_up().await;
        send(&mut line, &frame(TEXT, b"{}")).await;
        // All tasks of this process stop for longer than a connection may be silent.
        stand_still(impatient_settings().silent_after + std::time::Duration::from_millis(200));
        assert_eq!(stage.text().await, "{}");
    }
}

#[tokio::test]
async fn too_long_message_closes_and_reopens_the_connection() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_websocket().await;
    stage.expect_up().await;
    let mut head = frame(TEXT, &vec![0; (1 << 20) + 1]);
    head.truncate(10);
    send(&mut line, &head).await;
    let why = stage.next_outage_reason().await;
    assert!(why.contains("closed"), "{why}");
    let mut line = listener.accept_websocket().await;
    stage.expect_up().await;
    stage.next_gap_reason().await;
    let most = vec![b' '; 1 << 20];
    send(&mut line, &frame(TEXT, &most)).await;
    assert_eq!(stage.frame().await.bytes.len(), 1 << 20);
}

#[tokio::test]
async fn peer_that_is_not_a_websocket_is_reported() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept().await;
    assert!(
        read_action(&mut line)
            .await
            .starts_with("GET /events HTTP/1.1")
    );
    send(
        &mut line,
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let why = stage.next_outage_reason().await;
    assert!(why.contains("no WebSocket at /events (HTTP 404)"), "{why}");
    let mut line = listener.accept().await;
    read_action(&mut line).await;
    send(&mut line, b"Asterisk Call Manager/11.0.0\r\n\r\n").await;
    let why = stage.next_outage_reason().await;
    assert!(why.contains("does not answer as a WebSocket"), "{why}");
}

#[tokio::test]
async fn stop_closes_the_connection() {
    let listener = Listener::plain().await;
    let mut stage = Stage::start(&url(listener.port()), settings());
    let mut line = listener.accept_websocket().await;
    stage.expect_up().await;
    assert_eq!(stage.stop().await, []);
    wait_until_closed(&mut line).await;
}
