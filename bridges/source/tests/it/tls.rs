//! Tests of TLS on AMI and WebSocket connections. A test CA is trusted only with `ca-file=`, and
//! each refusal names its reason. Tests with a real broker check TLS of brokers.

use crate::listener::Listener;
use crate::stage::{Stage, settings};
use callbridge_testbed::authority::{Authority, Flaw};

fn url(scheme: &str, host: &str, port: u16, authority: &Authority) -> String {
    let user = if scheme == "amis" { "bridge@" } else { "" };
    let ca_file = authority.ca_file();
    format!(
        "{scheme}://{user}{host}:{port}?ca-file={}",
        ca_file.display()
    )
}

#[tokio::test]
async fn amis_connects_to_a_pbx_with_the_given_ca() {
    let authority = Authority::new();
    let listener = Listener::tls(&authority.identity(Flaw::None)).await;
    let url = url("amis", "localhost", listener.port(), &authority);
    let mut stage = Stage::start(&url, settings());
    let _line = listener.accept_ami().await;
    stage.expect_up().await;
    assert!(stage.text().await.starts_with("Response: Success"));
}

#[tokio::test]
async fn wss_connects_to_a_gateway_with_the_given_ca() {
    let authority = Authority::new();
    let listener = Listener::tls(&authority.identity(Flaw::None)).await;
    let url = url("wss", "localhost", listener.port(), &authority);
    let mut stage = Stage::start(&url, settings());
    let _line = listener.accept_websocket().await;
    stage.expect_up().await;
}

/// Checks that a source refuses each flawed certificate and names the flaw.
async fn check_refusals(scheme: &str) {
    let authority = Authority::new();
    for (flaw, word) in Flaw::REFUSED {
        let listener = Listener::tls(&authority.identity(flaw)).await;
        let url = url(scheme, "localhost", listener.port(), &authority);
        let mut stage = Stage::start(&url, settings());
        let why = tokio::select! {
            why = stage.next_outage_reason() => why,
            _ = listener.accept() => panic!("{flaw:?} was accepted"),
        };
        assert!(
            why.contains("localhost") && why.contains(word),
            "{flaw:?}: {why}"
        );
    }
}

#[tokio::test]
async fn amis_flawed_certificate_is_refused_and_flaw_named() {
    check_refusals("amis").await;
}

#[tokio::test]
async fn wss_flawed_certificate_is_refused_and_flaw_named() {
    check_refusals("wss").await;
}

#[tokio::test]
async fn ca_missing_from_ca_file_is_refused_despite_same_name() {
    let authority = Authority::new();
    let listener = Listener::tls(&authority.identity(Flaw::None)).await;
    let other = Authority::new();
    let url = url("wss", "localhost", listener.port(), &other);
    let mut stage = Stage::start(&url, settings());
    let why = tokio::select! {
        why = stage.next_outage_reason() => why,
        _ = listener.accept() => panic!("accepted"),
    };
    assert!(
        why.contains("give the issuer's certificate with ca-file=PATH"),
        "{why}"
    );
}

#[tokio::test]
async fn amis_to_a_port_without_tls_is_reported() {
    let authority = Authority::new();
    let listener = Listener::plain().await;
    let url = url("amis", "localhost", listener.port(), &authority);
    let mut stage = Stage::start(&url, settings());
    let mut line = listener.accept().await;
    crate::listener::send(&mut line, b"Asterisk Call Manager/11.0.0\r\n").await;
    let why = stage.next_outage_reason().await;
    assert!(why.contains("does not use TLS"), "{why}");
}

#[tokio::test]
async fn empty_or_missing_ca_file_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("written");
    for (file, word) in [
        (empty, "no PEM certificate"),
        (folder.path().join("none"), "No such"),
    ] {
        let listener = Listener::plain().await;
        let port = listener.port();
        let url = format!("wss://localhost:{port}?ca-file={}", file.display());
        let mut stage = Stage::start(&url, settings());
        let why = stage.next_outage_reason().await;
        assert!(why.contains("ca-file=") && why.contains(word), "{why}");
    }
}
