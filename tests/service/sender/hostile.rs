//! Tests servers that send invalid answers. Each answer gets its verdict, none is read without a
//! limit, and the message names the error.

use super::client::{
    ACCEPTED, acceptor, client, http, identity, is_whole, plain_client, send, serve,
};
use super::client::{Server, serve_over};
use callbridge_crm::Timeouts;
use callbridge_crm::{Address, ApiError, ApiResult, Client, Endpoint, Setup};
use callbridge_sender::outcome::{Verdict, judge};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// More than the kernel can hold of an answer that the client no longer reads.
const UNREAD_MAX: usize = 32 << 20;

/// Returns the verdict on a submission with this answer: its kind and its message.
fn verdict(answer: ApiResult) -> (&'static str, String) {
    let verdict = judge(Endpoint::Submit, answer, false);
    let words = match &verdict {
        Verdict::Accepted(request_id) => request_id.clone(),
        other => other.message().to_owned(),
    };
    (verdict.word(), words)
}

/// Sends a submission to a server that answers with these bytes and closes. Returns the verdict.
async fn submit_and_judge(answer: impl Into<Vec<u8>>) -> (&'static str, String) {
    let server = serve(answer.into()).await;
    let met = verdict(send(&plain_client(server.addr)).await);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1, "asked once");
    met
}

/// Replaces the port in a message, because it differs in each run.
fn mask_port(words: &str, addr: SocketAddr) -> String {
    words.replace(&addr.port().to_string(), "PORT")
}

/// Starts a server that answers one request with `head` and then repeats `piece`, until the client
/// is gone or `most` bytes are sent. Its task returns the number of bytes.
async fn flood(
    head: impl AsRef<[u8]>,
    piece: Vec<u8>,
    most: usize,
) -> (SocketAddr, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    let head = head.as_ref().to_vec();
    let flooding = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client");
        read_request(&mut socket).await;
        let mut written = 0;
        let mut next = socket.write_all(&head).await;
        while next.is_ok() && written < most {
            next = socket.write_all(&piece).await;
            written += piece.len();
        }
        written
    });
    (addr, flooding)
}

async fn read_request(socket: &mut TcpStream) {
    let (mut asked, mut bytes) = (Vec::new(), [0; 4096]);
    while !is_whole(&asked) {
        match socket.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(n) => asked.extend_from_slice(&bytes[..n]),
        }
    }
}

/// Starts a server that sends `words` on each connection before it reads a request.
async fn serve_greeting(words: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(words).await;
            // Reads the request first, because otherwise a reset could overtake the answer.
            let _ = socket.read(&mut [0; 4096]).await;
        }
    });
    addr
}

/// Returns a client with this timeout.
fn client_with_timeout(url: &str, total: Duration) -> Client {
    let address = Address::parse(url).expect("an address");
    let timeouts = Timeouts {
        connect: total,
        total,
    };
    Client::new(Setup {
        timeouts,
        ..Setup::new(address)
    })
}

#[tokio::test]
async fn invalid_answer_bodies_are_failures_with_a_message() {
    for (answer, words) in [
        (http("200 OK", "", ""), "status 200, the body is empty"),
        (
            http("200 OK", "", &ACCEPTED[..30]),
            "status 200, the body is not JSON: EOF while parsing a string at line 1 column 30",
        ),
        (
            http(
                "200 OK",
                "Content-Type: text/html\r\n",
                "<html>Welcome</html>",
            ),
            "status 200, the body is not JSON: expected value at line 1 column 1",
        ),
        (
            http("200 OK", "", "[1,2]"),
            "status 200, the body is JSON, but not an object",
        ),
        (
            http("200 OK", "", &"[".repeat(200_000)),
            "status 200, the body is not JSON: recursion limit exceeded at line 1 column 128",
        ),
        (
            http("200 OK", "", "{}"),
            "accepted, but without a requestId",
        ),
        (http("502 Bad Gateway", "", "<html>nginx</html>"), "502"),
    ] {
        assert_eq!(
            submit_and_judge(answer).await,
            ("failure", words.to_owned())
        );
    }
}

#[tokio::test]
async fn answer_is_read_despite_unusual_headers_or_extra_fields() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let odd = format!(r#"{{"x":{deep},"n":1e999,"requestId":"r1","accept":true}}"#);
    for answer in [
        format!("HTTP/1.1 200 OK\r\n\r\n{ACCEPTED}"),
        format!("HTTP/1.0 200 OK\r\n\r\n{ACCEPTED}"),
        format!("HTTP/1.1 200\r\nConnection: keep-alive\r\n\r\n{ACCEPTED}"),
        format!("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n{ACCEPTED}"),
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n\r\n{ACCEPTED}"),
        format!("HTTP/1.1 200 OK\r\n\r\n\u{feff}{ACCEPTED}"),
        format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{ACCEPTED}"),
        format!("HTTP/1.1 299 Whatever\r\n\r\n{odd}"),
    ] {
        assert_eq!(
            submit_and_judge(answer.clone()).await,
            ("submitted", "r1".to_owned()),
            "{answer:.80}"
        );
    }
}

#[tokio::test]
async fn oversized_or_endless_body_is_read_only_up_to_its_limit() {
    let piece = vec![b' '; 64 << 10];
    let chunk = [b"10000\r\n", piece.as_slice(), b"\r\n"].concat();
    for (head, piece, most) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n",
            piece.clone(),
            100 << 20,
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", piece.clone(), usize::MAX),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            chunk.clone(),
            usize::MAX,
        ),
    ] {
        let (addr, flooding) = flood(head, piece, most).await;
        let words = "status 200, the body is larger than 262144 bytes".to_owned();
        assert_eq!(verdict(send(&plain_client(addr)).await), ("failure", words));
        let written = flooding.await.expect("a server");
        assert!(written < UNREAD_MAX, "{written} bytes were taken");
    }
    let head = "HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (addr, flooding) = flood(head, chunk, usize::MAX).await;
    assert_eq!(
        verdict(send(&plain_client(addr)).await).0,
        "failure",
        "without the envelope it is a gateway's"
    );
    assert!(flooding.await.expect("a server") < UNREAD_MAX);
}

#[tokio::test]
async fn oversized_head_is_read_only_up_to_its_limit() {
    for (head, piece) in [
        ("HTTP/1.1 200 OK\r\nX-A: ", vec![b'a'; 64 << 10]),
        ("HTTP/1.1 200 OK\r\n", b"X-A: 1\r\n".repeat(8 << 10)),
    ] {
        let (addr, flooding) = flood(head, piece, usize::MAX).await;
        let words = "the head of the answer is too large to be read".to_owned();
        assert_eq!(verdict(send(&plain_client(addr)).await), ("failure", words));
        assert!(flooding.await.expect("a server") < UNREAD_MAX);
    }
}

const ENCODINGS: [&str; 4] = ["gzip", "deflate", "br", "zstd"];

/// Compresses a body as a proxy does.
fn compress(encoding: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match encoding {
        "gzip" => {
            let mut encoder = GzEncoder::new(&mut out, flate2::Compression::default());
            encoder.write_all(body).expect("compressed");
            encoder.finish().expect("compressed");
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(&mut out, flate2::Compression::default());
            encoder.write_all(body).expect("compressed");
            encoder.finish().expect("compressed");
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 5, 22);
            encoder.write_all(body).expect("compressed");
        }
        "zstd" => out = zstd::encode_all(body, 3).expect("compressed"),
        other => panic!("{other}"),
    }
    out
}

fn encoded_answer(status: &str, encoding: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn compressed_body_is_read() {
    let refused = br#"{"accept":false,"message":"no such lead","errors":[]}"#;
    for encoding in ENCODINGS {
        let accepted = encoded_answer("200 OK", encoding, &compress(encoding, ACCEPTED.as_bytes()));
        assert_eq!(
            submit_and_judge(accepted).await,
            ("submitted", "r1".to_owned()),
            "{encoding}"
        );
        let refused = encoded_answer("400 Bad", encoding, &compress(encoding, refused));
        let words = "400: no such lead".to_owned();
        assert_eq!(
            submit_and_judge(refused).await,
            ("rejected", words),
            "{encoding}"
        );
    }
}

#[tokio::test]
async fn compression_bomb_is_refused_at_the_body_limit() {
    let spaces = vec![b' '; 64 << 20];
    for encoding in ENCODINGS {
        let bomb = compress(encoding, &spaces);
        let words = "status 200, the body is larger than 262144 bytes".to_owned();
        let answer = encoded_answer("200 OK", encoding, &bomb);
        assert_eq!(
            submit_and_judge(answer).await,
            ("failure", words),
            "{encoding}"
        );
        let answer = encoded_answer("409 Conflict", encoding, &bomb);
        assert_eq!(submit_and_judge(answer).await.0, "failure", "{encoding}");
    }
}

/// Returns the beginning of an endless gzip body, and the piece that continues it each time: a
/// mebibyte of spaces. After a flush, the next piece refers only to spaces before it.
fn endless_gzip() -> (Vec<u8>, Vec<u8>) {
    let spaces = vec![b' '; 1 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&spaces).expect("compressed");
    encoder.flush().expect("compressed");
    let begin = encoder.get_ref().clone();
    encoder.write_all(&spaces).expect("compressed");
    encoder.flush().expect("compressed");
    let piece = encoder.get_ref()[begin.len()..].to_vec();
    (begin, piece)
}

/// A client that decompresses the whole body before it checks the limit would not answer.
#[tokio::test]
async fn endless_compressed_body_is_refused_at_the_body_limit() {
    let (begin, piece) = endless_gzip();
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".as_slice();
    let (addr, flooding) = flood([head, begin.as_slice()].concat(), piece, usize::MAX).await;
    let words = "status 200, the body is larger than 262144 bytes".to_owned();
    assert_eq!(verdict(send(&plain_client(addr)).await), ("failure", words));
    let written = flooding.await.expect("a server");
    assert!(written < UNREAD_MAX, "{written} bytes were taken");
}

#[tokio::test]
async fn body_that_cannot_be_decompressed_is_a_failure() {
    // The first bytes of a gzip file.
    let broken = "\u{1f}\u{8}\0\0\0\0\0\0";
    for encoding in ENCODINGS {
        let header = format!("Content-Encoding: {encoding}\r\n");
        let (word, words) = submit_and_judge(http("200 OK", &header, broken)).await;
        let begin = "status 200, the body is compressed and cannot be decompressed; ";
        assert!(
            word == "failure" && words.starts_with(begin),
            "{encoding}: {words}"
        );
        let refused = submit_and_judge(http("403 Forbidden", &header, broken)).await;
        assert_eq!(refused.0, "failure", "{encoding}");
        let empty = submit_and_judge(http("503 Unavailable", &header, "")).await;
        assert_eq!(empty, ("failure", "503".to_owned()), "{encoding}");
    }
    for encoding in ["gzip, gzip, gzip", "compress"] {
        let header = format!("Content-Encoding: {encoding}\r\n");
        let (word, words) = submit_and_judge(http("200 OK", &header, broken)).await;
        let name = encoding.split(',').next().expect("a name");
        let begin = format!("status 200, the body is compressed ({name}) in a way that was not");
        assert!(word == "failure" && words.starts_with(&begin), "{words}");
    }
    let undeclared = submit_and_judge(http("200 OK", "", broken)).await;
    let words = "status 200, the body is not JSON: expected value at line 1 column 1";
    assert_eq!(undeclared, ("failure", words.to_owned()));
}

#[tokio::test]
async fn unknown_statuses_are_failures() {
    for (status, words) in [
        ("600 Odd", "status 600 is not an HTTP status"),
        ("999 Odd", "status 999 is not an HTTP status"),
        (
            "101 Switching Protocols",
            "status 101 is not an HTTP status",
        ),
    ] {
        assert_eq!(
            submit_and_judge(http(status, "", ACCEPTED)).await,
            ("failure", words.to_owned())
        );
    }
    let server = serve(http("1000 Odd", "", ACCEPTED)).await;
    let (word, words) = verdict(send(&plain_client(server.addr)).await);
    assert_eq!(word, "failure");
    insta::assert_snapshot!(
        mask_port(&words, server.addr),
        @"the server at 127.0.0.1:PORT does not speak HTTP (invalid HTTP status-code parsed); \
          check scheme and port of --crm-url"
    );
}

#[tokio::test]
async fn endless_interim_answers_or_trickle_time_out() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let continues = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(64);
    let (addr, flooding) = flood("", continues, usize::MAX).await;
    let client = client_with_timeout(&format!("http://{addr}"), Duration::from_secs(2));
    assert_eq!(send(&client).await, Err(ApiError::TimedOut));
    flooding.await.expect("a server that saw the end");

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    let trickle = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client");
        read_request(&mut socket).await;
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
        let mut next = socket.write_all(head).await;
        let mut drips = tokio::time::interval(Duration::from_millis(10));
        while next.is_ok() {
            drips.tick().await;
            next = socket.write_all(b" ").await;
        }
    });
    let client = client_with_timeout(&format!("http://{addr}"), Duration::from_secs(2));
    assert_eq!(send(&client).await, Err(ApiError::TimedOut));
    trickle.await.expect("a server that saw the end");
}

#[tokio::test]
async fn port_with_another_protocol_is_reported_with_fix() {
    let good = identity("localhost", |_| ());
    let tls: Server = serve_over(Vec::new(), Some(good.acceptor.clone())).await;
    let ssh = serve(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()).await;
    for addr in [tls.addr, ssh.addr] {
        let (word, words) = verdict(send(&plain_client(addr)).await);
        let begin = "the server at 127.0.0.1:PORT does not speak HTTP (invalid HTTP version";
        let words = mask_port(&words, addr);
        assert!(word == "failure" && words.starts_with(begin), "{words}");
    }
    let http = serve_greeting(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    for addr in [http, serve_greeting(b"SSH-2.0-OpenSSH_9.2\r\n").await] {
        let url = format!("https://localhost:{}", addr.port());
        let answer = send(&client(&url, Some(good.ca_file.clone()))).await;
        let words = "TLS refused: the server does not speak TLS; check the port of --crm-url";
        assert_eq!(verdict(answer), ("failure", words.to_owned()));
    }
}

#[tokio::test]
async fn not_yet_valid_or_ca_certificate_is_refused_with_reason() {
    let early = identity("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2999, 1, 1);
    });
    // The certificate is like one of `openssl req -x509`.
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let cert = params.self_signed(&key).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own.pem");
    std::fs::write(&own, cert.pem()).expect("written");
    for (acceptor, ca_file, begin) in [
        (
            early.acceptor.clone(),
            early.ca_file.clone(),
            "the certificate is not valid yet",
        ),
        (
            acceptor(&cert, &key),
            own,
            "the certificate is a CA certificate (CA:TRUE)",
        ),
    ] {
        let server = serve_over(Vec::new(), Some(acceptor)).await;
        let url = format!("https://localhost:{}", server.addr.port());
        match send(&client(&url, Some(ca_file))).await {
            Err(ApiError::TlsRefused(why)) => assert!(why.starts_with(begin), "{why}"),
            other => panic!("not refused: {other:?}"),
        }
    }
}

#[tokio::test]
async fn unreachable_host_or_port_is_named_in_the_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    drop(listener);
    let (word, words) = verdict(send(&plain_client(addr)).await);
    assert_eq!(word, "failure");
    let words = mask_port(&words, addr);
    assert_eq!(
        words,
        "no connection: 127.0.0.1:PORT: Connection refused (os error 111)"
    );
    let good = identity("localhost", |_| ());
    let nowhere = client("https://crm.invalid", Some(good.ca_file.clone()));
    let (word, words) = verdict(send(&nowhere).await);
    let begin = "no connection: crm.invalid:443";
    assert!(word == "failure" && words.starts_with(begin), "{words}");
}

#[tokio::test]
async fn refusing_proxy_is_reported_and_never_receives_the_token() {
    let good = identity("localhost", |_| ());
    for (answer, words) in [
        (
            http("407 Proxy Authentication Required", "", ""),
            "proxy authorization required",
        ),
        (http("403 Forbidden", "", "<html>no</html>"), "unsuccessful"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "unsuccessful"),
        (Vec::new(), "unexpected end of file"),
    ] {
        let proxy = serve(answer).await;
        let address = Address::parse("https://crm.example.uz").expect("an address");
        let proxied = Client::new(Setup {
            proxy: Some(format!("http://{}", proxy.addr).parse().expect("a URL")),
            ca_file: Some(good.ca_file.clone()),
            ..Setup::new(address)
        });
        let (word, said) = verdict(send(&proxied).await);
        let begin = "no connection: crm.example.uz:443 by way of http://127.0.0.1:";
        assert!(
            word == "failure" && said.starts_with(begin) && said.ends_with(words),
            "{said}"
        );
    }
}
