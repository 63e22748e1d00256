//! Sends one request to the CRM, and reads its response.
//!
//! The client doesn't follow redirects, because the token would be sent to the other server. The
//! HTTP library doesn't repeat anything, doesn't keep connections (since hyper would resend a
//! request if a kept connection turned out to be dead), and doesn't use a proxy from the
//! environment. Bodies are only read up to a limit. Compressed bodies aren't requested, but they're
//! decompressed if a proxy compressed them. If there's no response, the error says whether nothing
//! was sent or the request may have arrived.

use super::answer::{ApiError, ApiResponse, read_redacted};
use super::https::{self, ServerFlags, causes};
use super::in_time::{SEND_BY, TimedBody, TooLate, connected};
use super::{Address, Request, Setup};
use callbridge_call::redact::Redactor;
use callbridge_model::{ExposeSecret, Secret};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use std::sync::OnceLock;
use std::time::Duration;
use tower::util::MapFutureLayer;

/// Maximum number of bytes to read from the response to a form.
const FORM_BODY_MAX: usize = 256 * 1024;

/// The token's header (§5.1).
const TOKEN: &str = "X-Open-Api-Token";

const SERVER: ServerFlags = ServerFlags {
    server: "the CRM",
    address: "--crm-url",
    ca_file: "--crm-ca-file",
};

/// Why a form has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// No connection could be established, so nothing was sent.
    NotSent(String),
    /// There was no response, but the request may have arrived.
    Perhaps(String),
}

impl Unanswered {
    fn from_error(error: reqwest::Error, way: &Setup) -> Self {
        let sent = !error.is_connect() && !error.is_builder();
        let why = match failure(error, way) {
            ApiError::NotConnected(why) | ApiError::TlsRefused(why) | ApiError::Lost(why) => why,
            other => other.to_string(),
        };
        if sent {
            Self::Perhaps(why)
        } else {
            Self::NotSent(why)
        }
    }
}

/// Sends one request at a time. It's cheap to create, because the TLS root certificates aren't
/// loaded until the first request over HTTPS.
#[derive(Debug)]
pub struct Client {
    setup: Setup,
    http: OnceLock<reqwest::Client>,
}

impl Client {
    /// Creates a client, without reading or opening anything yet.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            http: OnceLock::new(),
        }
    }

    /// Returns the CRM's URL, from `--crm-url`.
    pub fn address(&self) -> &Address {
        &self.setup.address
    }

    /// Performs one exchange, whose result covers every possible outcome. Nothing is sent after
    /// `send_by`, in time since boot ([`ApiError::TooLate`]).
    pub async fn send(&self, request: &Request, token: &Secret, send_by: Duration) -> ApiResponse {
        let http = match self.http() {
            Ok(http) => http,
            Err(why) => return Err(ApiError::NotConnected(why)).into(),
        };
        let exchange = async {
            let url = request.url(&self.setup.address);
            let builder = match request.body() {
                Some(body) => http
                    .post(url)
                    .header(CONTENT_TYPE, "application/json")
                    .body(reqwest::Body::wrap(TimedBody::new(
                        body.to_string(),
                        send_by,
                    ))),
                None => http.get(url),
            };
            let Ok(mut secret) = HeaderValue::from_str(token.expose_secret()) else {
                // The token can't be sent in any header, so the CRM can't have issued it.
                return Ok(Err(ApiError::UNAUTHORIZED).into());
            };
            secret.set_sensitive(true);
            let builder = builder
                .header(TOKEN, secret)
                .header(ACCEPT_ENCODING, "identity");
            let mut response = builder.send().await?;
            let endpoint = request.endpoint();
            let status = response.status().as_u16();
            let redactor = Redactor::new([token.expose_secret()]);
            Ok(match body(&mut response, endpoint.body_max()).await? {
                Ok(body) => read_redacted(endpoint, status, &body, &redactor),
                Err(why) if (200..300).contains(&status) => {
                    let why = format!("status {status}, {why}");
                    Err(ApiError::Unreadable(why)).into()
                }
                // The status is valid even without the body. Only a success is useless without its
                // body.
                Err(_) => read_redacted(endpoint, status, b"", &redactor),
            })
        };
        let answer: Result<ApiResponse, reqwest::Error> = SEND_BY.scope(send_by, exchange).await;
        answer.unwrap_or_else(|error| Err(failure(error, &self.setup)).into())
    }

    /// Posts a form to a path below the base URL, without a token, for the OAuth endpoints (§4.1),
    /// and returns the status and body.
    ///
    /// # Errors
    /// Returns why there's no readable response.
    pub async fn post_form(
        &self,
        path: &[&str],
        form: String,
    ) -> Result<(u16, Vec<u8>), Unanswered> {
        let http = self.http().map_err(Unanswered::NotSent)?;
        let builder = http
            .post(self.setup.address.join(path))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT_ENCODING, "identity")
            .body(form);
        let mut response = builder
            .send()
            .await
            .map_err(|error| Unanswered::from_error(error, &self.setup))?;
        let status = response.status().as_u16();
        let success = (200..300).contains(&status);
        match body(&mut response, FORM_BODY_MAX).await {
            Ok(Ok(body)) => Ok((status, body)),
            Ok(Err(why)) if success => Err(Unanswered::Perhaps(format!("status {status}, {why}"))),
            Err(error) if success => Err(Unanswered::from_error(error, &self.setup)),
            // The status is valid even without its body.
            Ok(Err(_)) | Err(_) => Ok((status, Vec::new())),
        }
    }

    fn http(&self) -> Result<&reqwest::Client, String> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let built = build(&self.setup)?;
        Ok(self.http.get_or_init(|| built))
    }
}

/// Reads the body, up to `most` bytes. The inner error says why the body isn't read. The limit is
/// on decompressed bytes, because a few compressed bytes can contain gigabytes.
async fn body(
    response: &mut reqwest::Response,
    most: usize,
) -> Result<Result<Vec<u8>, String>, reqwest::Error> {
    if let Some(why) = unknown_encoding(response) {
        return Ok(Err(why));
    }
    let mut body = Vec::new();
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) if is_decompression_error(&error) => {
                let why = "the body is compressed and cannot be decompressed; check whether \
                           --crm-url leads to the Open API itself";
                return Ok(Err(why.to_owned()));
            }
            Err(error) => return Err(error),
        };
        if body.len() + chunk.len() > most {
            return Ok(Err(format!("the body is larger than {most} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Ok(body))
}

/// Returns a message if the body is compressed in a way that can't be read, or `None` if it can be.
/// When the HTTP library decompresses a body, it removes the `Content-Encoding` header.
fn unknown_encoding(response: &reqwest::Response) -> Option<String> {
    let encoding = response.headers().get(CONTENT_ENCODING)?;
    let encoding = String::from_utf8_lossy(encoding.as_bytes()).to_lowercase();
    if matches!(encoding.trim(), "" | "identity") {
        return None;
    }
    let known = ["gzip", "deflate", "br", "zstd", "compress"];
    let Some(name) = known.into_iter().find(|name| encoding.contains(name)) else {
        return Some("the body has an encoding that was not asked for".to_owned());
    };
    Some(format!(
        "the body is compressed ({name}) in a way that was not asked for; check whether \
         --crm-url leads to the Open API itself"
    ))
}

/// Returns `true` if a body is complete but doesn't match its `Content-Encoding`.
fn is_decompression_error(error: &reqwest::Error) -> bool {
    error.is_decode()
        && !error.is_timeout()
        && !causes(error).any(|cause| cause.is::<hyper::Error>())
}

fn build(setup: &Setup) -> Result<reqwest::Client, String> {
    let ca_file = setup.ca_file.as_deref();
    let mut builder = https::builder(&setup.address, ca_file, setup.timeouts, &SERVER)?
        .connector_layer(MapFutureLayer::new(connected));
    if let Some(proxy) = &setup.proxy {
        let proxy = reqwest::Proxy::all(proxy.clone())
            .map_err(|error| format!("--crm-proxy: {}", error.without_url()))?;
        builder = builder.proxy(proxy);
    }
    https::build(builder, &SERVER)
}

/// Returns the error for a failed exchange with the CRM. The message omits the URL, which wouldn't
/// add anything. The URL may contain a requestId, but never a secret.
fn failure(error: reqwest::Error, way: &Setup) -> ApiError {
    let error = error.without_url();
    let why = https::innermost(&error);
    if let Some(tls) = https::tls_problem(&error, &SERVER) {
        return ApiError::TlsRefused(tls);
    }
    if causes(&error).any(|cause| cause.is::<TooLate>()) {
        return ApiError::TooLate;
    }
    if error.is_timeout() && !error.is_connect() {
        return ApiError::TimedOut;
    }
    if error.is_builder() {
        return ApiError::NotConnected(why);
    }
    if error.is_connect() {
        let place = match &way.proxy {
            Some(proxy) => format!("{} by way of {proxy}", way.address.place()),
            None => way.address.place(),
        };
        return ApiError::NotConnected(if error.is_timeout() {
            format!("{place} does not answer, or its name cannot be looked up in DNS")
        } else {
            format!("{place}: {why}")
        });
    }
    match causes(&error).find_map(|cause| cause.downcast_ref::<hyper::Error>()) {
        // There was a response, but it isn't valid HTTP.
        Some(hyper) if hyper.is_parse_too_large() => {
            ApiError::Unreadable("the head of the answer is too large to be read".to_owned())
        }
        Some(hyper) if hyper.is_parse() => ApiError::Unreadable(format!(
            "the server at {} does not speak HTTP ({why}); check scheme and port of --crm-url",
            way.address.place()
        )),
        Some(_) | None => ApiError::Lost(why),
    }
}
