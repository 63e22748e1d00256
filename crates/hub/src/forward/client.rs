//! One request to a hub, and its answer. No redirect is followed, nothing is sent twice, no
//! connection is kept, and no answer is read beyond its limit.

use super::core::Reply;
use crate::protocol::{BRANCH, CALLS, NDJSON, REPORT, SEEN_INCARNATION, SEEN_SEQ};
use callbridge_crm::Address;
use callbridge_model::{ExposeSecret as _, Secret};
use callbridge_spool::HubPosition;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_secs(40);
/// An answer to 500 lines has at most half a megabyte, with all lines refused.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Most characters of a transport error's text.
const ERROR_CHARS: usize = 300;

/// HTTP client for one hub. Cheap to make: TLS roots are loaded with the first request.
#[derive(Debug)]
pub struct HubClient {
    address: Address,
    ca_file: Option<PathBuf>,
    http: OnceLock<reqwest::Client>,
}

impl HubClient {
    /// Makes a client. Nothing is read or opened yet. `ca_file` replaces the system's roots.
    pub fn new(address: Address, ca_file: Option<PathBuf>) -> Self {
        Self {
            address,
            ca_file,
            http: OnceLock::new(),
        }
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sends call messages, one per line.
    pub async fn calls(&self, token: &Secret, seen: Option<&HubPosition>, body: Vec<u8>) -> Reply {
        self.post(CALLS, NDJSON, token, seen, body).await
    }

    /// Sends a report, which is JSON.
    pub async fn report(&self, token: &Secret, seen: Option<&HubPosition>, body: Vec<u8>) -> Reply {
        self.post(REPORT, "application/json", token, seen, body)
            .await
    }

    /// Asks for the branch of the token.
    pub async fn branch(&self, token: &Secret) -> Reply {
        let http = match self.http() {
            Ok(http) => http,
            Err(why) => return Reply::Lost(why),
        };
        self.exchange(http.get(self.url(BRANCH)), token).await
    }

    async fn post(
        &self,
        path: &str,
        content_type: &'static str,
        token: &Secret,
        seen: Option<&HubPosition>,
        body: Vec<u8>,
    ) -> Reply {
        let http = match self.http() {
            Ok(http) => http,
            Err(why) => return Reply::Lost(why),
        };
        let mut request = http
            .post(self.url(path))
            .header(CONTENT_TYPE, content_type)
            .body(body);
        if let Some(seen) = seen {
            request = request
                .header(SEEN_INCARNATION, &seen.incarnation)
                .header(SEEN_SEQ, seen.seq);
        }
        self.exchange(request, token).await
    }

    async fn exchange(&self, request: RequestBuilder, token: &Secret) -> Reply {
        let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        else {
            let why = "the token has characters that no token has; check --forward-token-file";
            return Reply::NoToken(why.to_owned());
        };
        value.set_sensitive(true);
        let sent = request.header(AUTHORIZATION, value).send().await;
        let answered = match sent {
            Ok(response) => read(response).await,
            Err(error) => Err(error),
        };
        answered.unwrap_or_else(|error| Reply::Lost(self.failure(error)))
    }

    fn url(&self, path: &str) -> reqwest::Url {
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        self.address.join(&segments)
    }

    fn http(&self) -> Result<&reqwest::Client, String> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let built = self.build()?;
        Ok(self.http.get_or_init(|| built))
    }

    fn build(&self) -> Result<reqwest::Client, String> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            .tcp_user_timeout(ANSWER_WITHIN)
            .user_agent(concat!("callbridge/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &self.ca_file {
            let pem = std::fs::read(path).map_err(|error| ca_file_error(path, &error))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem);
            let roots = roots.map_err(|error| ca_file_error(path, &error))?;
            if roots.is_empty() {
                let shown = path.display();
                return Err(format!("--forward-ca-file {shown}: no certificate in it"));
            }
            builder = builder.tls_certs_only(roots);
        } else if self.address.is_plain() {
            // Without TLS, an empty list avoids loading the system's, which may not exist.
            builder = builder.tls_certs_only([]);
        }
        builder.build().map_err(|error| {
            let why = innermost(&error);
            format!(
                "TLS cannot be set up: {why}; install CA certificates or give --forward-ca-file"
            )
        })
    }

    fn failure(&self, error: reqwest::Error) -> String {
        let place = self.address.place();
        let error = error.without_url();
        if error.is_timeout() {
            return format!("{place} does not answer");
        }
        let why = innermost(&error);
        if why.contains("certificate") {
            return format!(
                "{place}: {why}; if its certificate comes from an authority of your company, give \
                 --forward-ca-file"
            );
        }
        format!("{place}: {why}")
    }
}

fn ca_file_error(path: &std::path::Path, error: &dyn std::fmt::Display) -> String {
    format!("--forward-ca-file {}: {error}", path.display())
}

async fn read(mut response: Response) -> Result<Reply, reqwest::Error> {
    let status = response.status().as_u16();
    let seconds = response.headers().get(RETRY_AFTER);
    let seconds = seconds.and_then(|text| text.to_str().ok()?.parse().ok());
    let retry_after = seconds.map(Duration::from_secs);
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            body.clear();
            break;
        }
        body.extend_from_slice(&piece);
    }
    Ok(Reply::Answer {
        status,
        retry_after,
        body,
    })
}

/// The innermost cause of an error says most.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut cause = error;
    loop {
        let io = cause.downcast_ref::<std::io::Error>();
        let inner = io.and_then(std::io::Error::get_ref);
        let next: Option<&(dyn StdError + 'static)> = match inner {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
        match next {
            Some(next) => cause = next,
            None => break,
        }
    }
    cause.to_string().chars().take(ERROR_CHARS).collect()
}
