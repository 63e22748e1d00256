//! A single request to a hub, and its response. The client follows no redirects, never retries,
//! keeps no connections open, and reads responses only up to a limit.

use super::core::Reply;
use crate::protocol::{BRANCH, CALLS, NDJSON, REPORT, SEEN_INCARNATION, SEEN_SEQ, SENDER};
use callbridge_call::redact::Redactor;
use callbridge_crm::https::{self, ServerFlags};
use callbridge_crm::{Address, Timeouts};
use callbridge_model::{ExposeSecret as _, Secret};
use callbridge_spool::HubPosition;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    total: Duration::from_secs(40),
};
/// If the first byte of a response takes longer than this, a collector with several hubs tries the
/// next one.
const FIRST_BYTE: Duration = Duration::from_secs(12);
/// Bytes per second that even a slow line can carry. A long body gets extra time based on this.
const BYTES_PER_SECOND: usize = 32 << 10;
const SERVER: ServerFlags = ServerFlags {
    server: "the hub",
    address: "--forward",
    ca_file: "--forward-ca-file",
};
/// Maximum size of a response in bytes. For 500 lines, it's at most half a megabyte, even if every
/// line is refused.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Who sends a request, and what the sender knows about the hub.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// ID of the collector's state.
    pub id: &'a str,
    /// The highest position that the collector has seen.
    pub seen: Option<&'a HubPosition>,
}

/// HTTP client for a single hub. It's cheap to create, since TLS roots are loaded with the first
/// request, and reloaded when their file changes.
#[derive(Debug)]
pub struct HubClient {
    address: Address,
    ca_file: Option<PathBuf>,
    /// Maximum wait for the first byte of a response, or `None` if there's no other hub to try.
    first_byte: Option<Duration>,
    built: Mutex<Option<BuiltClient>>,
}

/// A client, along with the contents of the file that holds its roots.
#[derive(Debug)]
struct BuiltClient {
    roots: Option<Vec<u8>>,
    http: reqwest::Client,
}

impl HubClient {
    /// Creates a client without reading or opening anything yet. `ca_file` replaces the system's
    /// certificate authorities.
    pub fn new(address: Address, ca_file: Option<PathBuf>) -> Self {
        Self {
            address,
            ca_file,
            first_byte: None,
            built: Mutex::default(),
        }
    }

    /// Limits the wait for the first byte of a response to 12 s, because another hub can be tried
    /// after that.
    #[must_use]
    pub fn with_alternative(self) -> Self {
        Self {
            first_byte: Some(FIRST_BYTE),
            ..self
        }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sends call messages, one per line.
    pub async fn calls(&self, token: &Secret, sender: Sender<'_>, body: Vec<u8>) -> Reply {
        self.post(CALLS, NDJSON, token, sender, body).await
    }

    /// Sends a report as JSON.
    pub async fn report(&self, token: &Secret, sender: Sender<'_>, body: Vec<u8>) -> Reply {
        self.post(REPORT, "application/json", token, sender, body)
            .await
    }

    /// Asks the hub which branch the token belongs to.
    pub async fn branch(&self, token: &Secret) -> Reply {
        let http = match self.http().await {
            Ok(http) => http,
            Err(why) => return Reply::Lost(why),
        };
        self.exchange(http.get(self.url(BRANCH)), 0, token).await
    }

    async fn post(
        &self,
        path: &str,
        content_type: &'static str,
        token: &Secret,
        sender: Sender<'_>,
        body: Vec<u8>,
    ) -> Reply {
        let http = match self.http().await {
            Ok(http) => http,
            Err(why) => return Reply::Lost(why),
        };
        let length = body.len();
        let mut request = http
            .post(self.url(path))
            .header(CONTENT_TYPE, content_type)
            .header(SENDER, sender.id)
            .body(body);
        if let Some(seen) = sender.seen {
            request = request
                .header(SEEN_INCARNATION, &seen.incarnation)
                .header(SEEN_SEQ, seen.seq);
        }
        self.exchange(request, length, token).await
    }

    /// Sends a request with a body of this length, and reads the response.
    async fn exchange(&self, request: RequestBuilder, length: usize, token: &Secret) -> Reply {
        let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        else {
            let why = "the token has characters that no token has; check --forward-token-file";
            return Reply::NoToken(why.to_owned());
        };
        value.set_sensitive(true);
        let sending = request.header(AUTHORIZATION, value).send();
        let Ok(sent) = timeout(self.first_byte_within(length), sending).await else {
            return Reply::TimedOut(self.no_answer());
        };
        // A hub or a gateway may repeat the token in its response.
        let redactor = Redactor::new([token.expose_secret()]);
        let answered = match sent {
            Ok(response) => read(response, &redactor).await,
            Err(error) => Err(error),
        };
        answered.unwrap_or_else(|error| {
            // If a hub can't be reached at all, the request's size isn't what makes it slow.
            if error.is_timeout() && !error.is_connect() {
                Reply::TimedOut(self.failure(error))
            } else {
                Reply::Lost(self.failure(error))
            }
        })
    }

    /// Returns how long to wait for the first byte of the response to a body of this length.
    fn first_byte_within(&self, length: usize) -> Duration {
        let way = Duration::from_secs((length / BYTES_PER_SECOND) as u64);
        let within = self.first_byte.map(|first_byte| first_byte + way);
        within.map_or(TIMEOUTS.total, |within| within.min(TIMEOUTS.total))
    }

    fn no_answer(&self) -> String {
        format!("{} does not answer", self.address.place())
    }

    fn url(&self, path: &str) -> reqwest::Url {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        self.address.join(&segments)
    }

    /// Returns a client with the current roots. If their file has become unusable, the previous
    /// ones stay in use.
    async fn http(&self) -> Result<reqwest::Client, String> {
        let roots = match &self.ca_file {
            Some(path) => tokio::fs::read(path).await.ok(),
            None => None,
        };
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = &*built
            && built.roots == roots
        {
            return Ok(built.http.clone());
        }
        let ca_file = self.ca_file.as_deref();
        let http = https::builder(&self.address, ca_file, TIMEOUTS, &SERVER)
            .and_then(|builder| https::build(builder, &SERVER));
        let http = match (http, built.take()) {
            (Ok(http), _) => http,
            (Err(why), None) => return Err(why),
            (Err(error), Some(previous)) => {
                tracing::warn!(
                    error,
                    "cannot use the new certificates of the hub's CA; the \
                    previous ones stay in use"
                );
                previous.http
            }
        };
        *built = Some(BuiltClient {
            roots,
            http: http.clone(),
        });
        Ok(http)
    }

    fn failure(&self, error: reqwest::Error) -> String {
        let place = self.address.place();
        let error = error.without_url();
        if error.is_timeout() {
            return self.no_answer();
        }
        let why = https::tls_problem(&error, &SERVER).unwrap_or_else(|| https::innermost(&error));
        format!("{place}: {why}")
    }
}

async fn read(mut response: Response, redactor: &Redactor) -> Result<Reply, reqwest::Error> {
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|seconds| seconds.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            body.clear();
            break;
        }
        body.extend_from_slice(&piece);
    }
    let body = redactor.redact(&String::from_utf8_lossy(&body));
    Ok(Reply::Answer {
        status,
        retry_after,
        body: body.into_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    const SENDER: Sender<'_> = Sender {
        id: "collector",
        seen: None,
    };

    /// Responds to a single request with a 403 and the value of its `Authorization` header.
    async fn answer_with_token(listener: TcpListener) {
        let (mut line, _) = listener.accept().await.expect("a client");
        let mut request = [0; 4096];
        let length = line.read(&mut request).await.expect("a request");
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let mut headers = request.lines();
        let header = headers.find_map(|line| line.strip_prefix("authorization: "));
        let body = format!(
            r#"{{"error":"no branch has {}"}}"#,
            header.expect("a token")
        );
        let length = body.len();
        let answer = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\n\r\n{body}");
        line.write_all(answer.as_bytes()).await.expect("sent");
    }

    async fn serve_nothing() -> (TcpListener, HubClient) {
        // Another test in this process may already have installed the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let place = listener.local_addr().expect("bound");
        let address = Address::parse(&format!("http://{place}")).expect("loopback");
        (listener, HubClient::new(address, None))
    }

    /// Accepts a single request and doesn't respond until the client closes the connection.
    async fn take_without_answer(listener: TcpListener) {
        let (mut line, _) = listener.accept().await.expect("a client");
        let mut request = [0; 4096];
        while line.read(&mut request).await.is_ok_and(|length| length > 0) {}
    }

    #[tokio::test]
    async fn hub_without_first_byte_in_time_is_left() {
        let (listener, mut client) = serve_nothing().await;
        client.first_byte = Some(Duration::from_millis(50));
        let token = Secret::from("branch-token-1234".to_owned());
        let asking = client.calls(&token, SENDER, b"{}\n".to_vec());
        // Without the limit, the client would wait for the full timeout.
        let asking = timeout(TIMEOUTS.total / 2, asking);
        let (reply, ()) = tokio::join!(asking, take_without_answer(listener));
        let place = client.address().place();
        let timed_out = Reply::TimedOut(format!("{place} does not answer"));
        assert_eq!(reply.expect("a reply before the timeout"), timed_out);
    }

    #[tokio::test]
    async fn first_byte_has_12_s_and_time_of_body_if_another_hub_exists() {
        let (_listener, client) = serve_nothing().await;
        assert_eq!(client.first_byte_within(1_500), TIMEOUTS.total);
        let client = client.with_alternative();
        assert_eq!(client.first_byte_within(1_500).as_secs(), 12);
        let seconds = client.first_byte_within(320 << 10).as_secs();
        assert_eq!(seconds, 22);
        assert_eq!(client.first_byte_within(4 << 20), TIMEOUTS.total);
    }

    #[tokio::test]
    async fn token_that_a_hub_repeats_is_removed_from_its_answer() {
        let (listener, client) = serve_nothing().await;
        let token = Secret::from("branch-token-1234".to_owned());
        let (reply, ()) = tokio::join!(client.branch(&token), answer_with_token(listener));
        let Reply::Answer { status, body, .. } = reply else {
            panic!("no answer");
        };
        assert_eq!(status, 403);
        let wanted = r#"{"error":"no branch has Bearer [redacted]"}"#;
        assert_eq!(String::from_utf8_lossy(&body), wanted);
    }
}
