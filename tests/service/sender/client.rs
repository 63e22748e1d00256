//! Tests the client with servers that behave well, badly, or do not answer.

use callbridge_crm::Timeouts;
use callbridge_crm::{Address, ApiError, ApiReply, ApiResult, Client, Request, Setup};
use callbridge_model::Secret;
use rcgen::{CertificateParams, KeyPair};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

pub const ACCEPTED: &str = r#"{"data":null,"message":"Success","accept":true,"requestId":"r1"}"#;

/// A server that answers every connection with these bytes and records the requests.
pub struct Server {
    pub addr: SocketAddr,
    pub asked: mpsc::Receiver<String>,
    pub connections: Arc<AtomicUsize>,
}

pub async fn serve(answer: Vec<u8>) -> Server {
    serve_over(answer, None).await
}

pub async fn serve_over(answer: Vec<u8>, tls: Option<TlsAcceptor>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    let (tell, asked) = mpsc::channel(16);
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let asked = match &tls {
                None => converse(socket, &answer).await,
                Some(tls) => match tls.accept(socket).await {
                    Ok(socket) => converse(socket, &answer).await,
                    Err(_) => continue,
                },
            };
            if tell.send(asked).await.is_err() {
                return;
            }
        }
    });
    Server {
        addr,
        asked,
        connections,
    }
}

/// Reads one request, answers, and closes the connection.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S, answer: &[u8]) -> String {
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    while !is_whole(&received) {
        match socket.read(&mut bytes).await {
            Ok(0) | Err(_) => break,
            Ok(n) => received.extend_from_slice(&bytes[..n]),
        }
    }
    let _ = socket.write_all(answer).await;
    let _ = socket.shutdown().await;
    String::from_utf8(received).expect("text")
}

pub fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    body.len() >= length.unwrap_or(0)
}

pub fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

pub fn client(url: &str, ca_file: Option<PathBuf>) -> Client {
    // An error means that another test has already installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = Address::parse(url).expect("an address");
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        total: Duration::from_secs(20),
    };
    Client::new(Setup {
        ca_file,
        timeouts,
        ..Setup::new(address)
    })
}

pub fn plain_client(addr: SocketAddr) -> Client {
    client(&format!("http://{addr}"), None)
}

pub fn submit() -> Request {
    Request::Submit(serde_json::json!({ "leadId": 4001 }))
}

pub async fn send(client: &Client) -> ApiResult {
    client
        .send(&submit(), &Secret::from("svc_pat_secret"), Duration::MAX)
        .await
        .answer
}

#[tokio::test]
async fn request_has_token_in_header_and_no_authorization_header() {
    let mut server = serve(http("200 OK", "", ACCEPTED)).await;
    let answer = send(&plain_client(server.addr)).await;
    assert_eq!(answer, Ok(ApiReply::Accepted("r1".to_owned())));
    let request = server.asked.recv().await.expect("a request").to_lowercase();
    assert!(
        request.starts_with("post /v1/open-api/call-history http/1.1\r\n"),
        "{request}"
    );
    assert_eq!(
        request
            .matches("\r\nx-open-api-token: svc_pat_secret\r\n")
            .count(),
        1
    );
    assert_eq!(
        request
            .matches("\r\ncontent-type: application/json\r\n")
            .count(),
        1
    );
    assert!(!request.contains("authorization"));
    assert!(request.ends_with("\r\n\r\n{\"leadid\":4001}"), "{request}");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = serve(http("200 OK", "", ACCEPTED)).await;
    let location = format!(
        "Location: http://{}/v1/open-api/call-history\r\n",
        elsewhere.addr
    );
    for status in ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"] {
        let server = serve(http(status, &location, "")).await;
        let answer = send(&plain_client(server.addr)).await;
        assert!(
            matches!(
                answer,
                Err(ApiError::WrongAddress {
                    status: 301..=308,
                    ..
                })
            ),
            "{answer:?}"
        );
    }
    assert_eq!(elsewhere.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn oversized_answer_body_is_unreadable() {
    let padding = " ".repeat(300 * 1024);
    let server = serve(http("200 OK", "", &format!("{padding}{ACCEPTED}"))).await;
    let answer = send(&plain_client(server.addr)).await;
    assert!(
        matches!(answer, Err(ApiError::Unreadable(..))),
        "{answer:?}"
    );
    let server = serve(http("401 Unauthorized", "", &padding)).await;
    // Without the envelope, the answer comes from a gateway and says nothing about the token.
    let answer = send(&plain_client(server.addr)).await;
    assert!(
        matches!(
            answer,
            Err(ApiError::Server {
                status: 401,
                own: false,
                ..
            })
        ),
        "{answer:?}"
    );
}

#[tokio::test]
async fn cut_connection_is_reported_lost_and_request_not_repeated() {
    for answer in [
        Vec::new(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{".to_vec(),
    ] {
        let server = serve(answer).await;
        let answer = send(&plain_client(server.addr)).await;
        assert!(matches!(answer, Err(ApiError::Lost(..))), "{answer:?}");
        assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn closed_port_is_reported_as_not_connected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    drop(listener);
    let answer = send(&plain_client(addr)).await;
    assert!(
        matches!(answer, Err(ApiError::NotConnected(..))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn silent_server_times_out() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    let address = Address::parse(&format!("http://{addr}")).expect("an address");
    let total = Duration::from_secs(2);
    let timeouts = Timeouts {
        connect: total,
        total,
    };
    let client = Client::new(Setup {
        timeouts,
        ..Setup::new(address)
    });
    assert_eq!(send(&client).await, Err(ApiError::TimedOut));
}

#[tokio::test]
async fn token_with_line_break_is_refused_without_a_request() {
    let server = serve(http("200 OK", "", ACCEPTED)).await;
    let client = plain_client(server.addr);
    let token = Secret::from("two\nlines");
    let answer = client.send(&submit(), &token, Duration::MAX).await;
    assert_eq!(answer.answer, Err(ApiError::UNAUTHORIZED));
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn proxy_receives_a_connect_request_without_the_token() {
    let mut proxy = serve(http("502 Bad Gateway", "", "")).await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = Address::parse("https://crm.example.uz").expect("an address");
    let url = format!("http://{}", proxy.addr).parse().expect("a URL");
    let good = identity("localhost", |_| ());
    let (proxied, ca_file) = (Some(url), Some(good.ca_file.clone()));
    let client = Client::new(Setup {
        proxy: proxied,
        ca_file,
        ..Setup::new(address)
    });
    let answer = send(&client).await;
    assert!(
        matches!(answer, Err(ApiError::NotConnected(..))),
        "{answer:?}"
    );
    let request = proxy.asked.recv().await.expect("a request");
    assert!(
        request.starts_with("CONNECT crm.example.uz:443 "),
        "{request}"
    );
    assert!(!request.contains("svc_pat_secret"), "{request}");
}

/// A certificate with its key, and a file with which a client trusts its authority.
pub struct Identity {
    pub acceptor: TlsAcceptor,
    pub ca_file: PathBuf,
    _folder: tempfile::TempDir,
}

pub fn identity(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).expect("a certificate");
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    change(&mut params);
    let cert = params.signed_by(&key, &issuer).expect("a certificate");
    let acceptor = acceptor(&cert, &key);
    let folder = tempfile::tempdir().expect("a folder");
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, ca_cert.pem()).expect("written");
    Identity {
        acceptor,
        ca_file,
        _folder: folder,
    }
}

fn self_signed() -> TlsAcceptor {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "nobody");
    acceptor(&params.self_signed(&key).expect("a certificate"), &key)
}

pub fn acceptor(cert: &rcgen::Certificate, key: &KeyPair) -> TlsAcceptor {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], der)
        .expect("a server");
    TlsAcceptor::from(Arc::new(config))
}

async fn send_over_tls(server: &Identity, trusted: Option<&Identity>) -> ApiResult {
    let acceptor = Some(server.acceptor.clone());
    let running = serve_over(http("200 OK", "", ACCEPTED), acceptor).await;
    let url = format!("https://localhost:{}", running.addr.port());
    send(&client(
        &url,
        trusted.map(|identity| identity.ca_file.clone()),
    ))
    .await
}

pub fn tls_refusal(answer: ApiResult) -> String {
    match answer {
        Err(ApiError::TlsRefused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn certificate_of_the_given_authority_is_trusted() {
    let good = identity("localhost", |_| ());
    let answer = send_over_tls(&good, Some(&good)).await;
    assert_eq!(answer, Ok(ApiReply::Accepted("r1".to_owned())));
}

/// Promise: TLS certificates are verified.
#[tokio::test]
async fn certificate_for_another_name_is_refused_with_reason() {
    let other = identity("crm.example.uz", |_| ());
    let why = tls_refusal(send_over_tls(&other, Some(&other)).await);
    insta::assert_snapshot!(
        why,
        @"the certificate is for another name; use that name in --crm-url"
    );
}

#[tokio::test]
async fn expired_certificate_is_refused_with_reason() {
    let expired = identity("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let why = tls_refusal(send_over_tls(&expired, Some(&expired)).await);
    insta::assert_snapshot!(why, @"the certificate has expired; renew it at the CRM");
}

#[tokio::test]
async fn untrusted_or_self_signed_certificate_is_refused_with_fix() {
    let (own, another) = (identity("localhost", |_| ()), identity("localhost", |_| ()));
    let why = tls_refusal(send_over_tls(&own, Some(&another)).await);
    assert!(
        why.starts_with("the certificate is self-signed, or signed by an authority that is not")
    );
    assert!(
        why.ends_with("if it is your own, give it with --crm-ca-file"),
        "{why}"
    );
    let lone = Identity {
        acceptor: self_signed(),
        ..identity("localhost", |_| ())
    };
    assert_eq!(tls_refusal(send_over_tls(&lone, Some(&another)).await), why);
}

#[tokio::test]
async fn missing_ca_file_is_named() {
    let good = identity("localhost", |_| ());
    let running = serve_over(http("200 OK", "", ACCEPTED), Some(good.acceptor.clone())).await;
    let url = format!("https://localhost:{}", running.addr.port());
    let Err(ApiError::NotConnected(why)) =
        send(&client(&url, Some("/no/such/ca.pem".into()))).await
    else {
        panic!("connected");
    };
    assert!(why.starts_with("--crm-ca-file /no/such/ca.pem: "), "{why}");
    assert_eq!(running.connections.load(Ordering::SeqCst), 0);
}
