//! A fake PBX: a listener, plain or with TLS, and the first messages of a PBX.

use crate::stage::within_deadline;
use callbridge_testbed::authority::Identity;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The PBX's side of a connection.
pub type Line = BufStream<Box<dyn Duplex>>;

pub struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    pub async fn plain() -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self { tcp, tls: None }
    }

    pub async fn tls(identity: &Identity) -> Self {
        let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.expect("a certificate")], key)
            .expect("a key that fits the certificate");
        Self {
            tls: Some(Arc::new(config).into()),
            ..Self::plain().await
        }
    }

    pub fn port(&self) -> u16 {
        self.tcp.local_addr().expect("bound").port()
    }

    /// Accepts the next connection whose handshake succeeds.
    pub async fn accept(&self) -> Line {
        let accepting = async {
            loop {
                let (tcp, _) = self.tcp.accept().await.expect("a connection");
                tcp.set_nodelay(true).expect("an option");
                match &self.tls {
                    None => return BufStream::new(Box::new(tcp) as Box<dyn Duplex>),
                    // A handshake that the client refuses is skipped, because some tests check it.
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(tcp).await {
                            return BufStream::new(Box::new(stream) as Box<dyn Duplex>);
                        }
                    }
                }
            }
        };
        within_deadline("a connection", accepting).await
    }

    /// Accepts the next connection and its login, as Asterisk does. Reads the filters, and answers
    /// none.
    pub async fn accept_ami(&self) -> Line {
        let mut line = self.accept_login().await;
        while !read_action(&mut line).await.starts_with("Action: Events") {}
        line
    }

    /// Accepts the next connection and its login.
    pub async fn accept_login(&self) -> Line {
        let mut line = self.accept().await;
        send(&mut line, b"Asterisk Call Manager/11.0.0\r\n").await;
        assert!(
            read_action(&mut line)
                .await
                .starts_with("Action: Challenge")
        );
        send(&mut line, b"Response: Success\r\nChallenge: 123\r\n\r\n").await;
        assert!(
            read_action(&mut line)
                .await
                .contains("Username: bridge\r\n")
        );
        send(&mut line, ACCEPTED.as_bytes()).await;
        line
    }

    /// Accepts the next connection and its login, and answers that the filters were added.
    pub async fn accept_filtered(&self) -> Line {
        let mut line = self.accept_login().await;
        loop {
            let request = read_action(&mut line).await;
            let (name, id) = (request.lines().next(), action_id_line(&request));
            let answer = format!("Response: Success\r\n{id}\r\n\r\n");
            send(&mut line, answer.as_bytes()).await;
            if name == Some("Action: Events") {
                return line;
            }
        }
    }

    /// Accepts the next connection as a WebSocket.
    pub async fn accept_websocket(&self) -> Line {
        let mut line = self.accept().await;
        let answer = upgrade(&mut line).await;
        send(&mut line, &answer).await;
        line
    }
}

pub const ACCEPTED: &str = "Response: Success\r\nMessage: Authentication accepted\r\n\r\n";

/// Reads the request for a WebSocket. Returns the answer that accepts the request.
pub async fn upgrade(line: &mut Line) -> Vec<u8> {
    let request = read_action(line).await;
    let key = request
        .lines()
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    let key = derive_accept_key(key.expect("a key").as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {key}\r\n\r\n"
    )
    .into_bytes()
}

pub async fn send(line: &mut Line, bytes: &[u8]) {
    line.write_all(bytes).await.expect("written");
    line.flush().await.expect("sent");
}

/// Returns the line of an action with the action's id.
pub fn action_id_line(action: &str) -> &str {
    let mut lines = action.lines();
    lines
        .find(|line| line.starts_with("ActionID: "))
        .expect("an id")
}

/// Reads the next action, up to an empty line.
pub async fn read_action(line: &mut Line) -> String {
    let reading = async {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            let read = line.read_line(&mut text).await.expect("text");
            assert!(read > 0, "closed after {text:?}");
        }
        text
    };
    within_deadline("an action", reading).await
}

/// Waits until the other side closes the connection.
pub async fn wait_until_closed(line: &mut Line) {
    let mut rest = Vec::new();
    // A reset ends the connection as well.
    let _ = within_deadline("the end of the line", line.read_to_end(&mut rest)).await;
}
