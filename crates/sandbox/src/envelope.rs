//! Requests and answers, and the two envelopes of the CRM's answers (§2.1, §7.1).
//!
//! ```text
//! after authentication   { data, message, error: null | { messageCode, args },
//!                          accept, errors, requestId }
//! authentication layer   { message, accept: false, errors: null, data: null }
//! ```

use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// The header that carries the token (§5.1).
pub const TOKEN_HEADER: &str = "x-open-api-token";
/// Largest body that is read, in bytes. A larger one is answered with 413.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// The endpoints served at the address that a request came to (§5.6.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// All endpoints, at one address.
    #[default]
    Whole,
    /// All but the token and revoke endpoints.
    Api,
    /// Only the token and revoke endpoints.
    Auth,
}

/// One HTTP request, as the core sees it.
#[derive(Clone, Default)]
pub struct Request {
    /// The HTTP method in capitals: `GET`, `POST`.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query without its question mark; empty for none.
    pub query: String,
    /// Headers in the order received, with names in lower case. A name can appear twice.
    pub headers: Vec<(String, String)>,
    /// The bytes of the body; empty for none.
    pub body: Vec<u8>,
    /// The endpoints that are served at the address to which the request came.
    pub role: Role,
}

impl fmt::Debug for Request {
    /// Leaves out headers and body, because they contain tokens and personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            method, path, body, ..
        } = self;
        write!(f, "{method} {path} ({} bytes)", body.len())
    }
}

impl Request {
    /// Returns `true` if the body or the path contains this text.
    pub fn holds(&self, text: &str) -> bool {
        let body = String::from_utf8_lossy(&self.body);
        body.contains(text) || self.path.contains(text)
    }

    /// Creates a GET without a body.
    pub fn get(path: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            path: path.to_owned(),
            ..Self::default()
        }
    }

    /// Creates a POST with a JSON body and its content type.
    pub fn post(path: &str, body: &Value) -> Self {
        Self::post_bytes(path, body.to_string()).with_header("content-type", "application/json")
    }

    /// Creates a POST with any bytes, without a content type.
    pub fn post_bytes(path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: "POST".to_owned(),
            body: body.into(),
            ..Self::get(path)
        }
    }

    /// Adds a header, with its name in lower case.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        let header = (name.to_ascii_lowercase(), value.to_owned());
        self.headers.push(header);
        self
    }

    /// Adds the token in its header.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        self.with_header(TOKEN_HEADER, token)
    }

    /// Returns `true` if `Content-Type` names the media type `kind`. The header must appear once, a
    /// charset must be UTF-8, and the body must not be compressed.
    pub(crate) fn is_of_type(&self, kind: &str) -> bool {
        let mut types = self.header("content-type");
        let mut parts = types.next().unwrap_or_default().split(';').map(str::trim);
        let named = parts.next().unwrap_or_default().eq_ignore_ascii_case(kind);
        let plain = parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) => {
                let charset = value.trim().trim_matches('"');
                name.trim().eq_ignore_ascii_case("charset") && charset.eq_ignore_ascii_case("utf-8")
            }
            None => parameter.is_empty(),
        });
        let encoded = self.header("content-encoding").any(|v| v != "identity");
        named && plain && !encoded && types.next().is_none()
    }

    /// Returns all values of a header. `name` must be in lower case.
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.headers.iter().filter(move |(given, _)| given == name);
        named.map(|(_, value)| value.as_str())
    }
}

/// The manner in which an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The whole answer at once.
    Now,
    /// The whole answer after this wait.
    After(Duration),
    /// The head at once, the body spread over this time.
    Slow(Duration),
    /// Never: the connection is closed without a byte.
    Lost,
}

/// The answer to one HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code, 100 to 599.
    pub status: u16,
    /// The value of the header `Content-Type`.
    pub content_type: &'static str,
    /// The `Location` of a redirect.
    pub location: Option<String>,
    /// The bytes of the body.
    pub body: Vec<u8>,
    /// When and how completely the answer is sent.
    pub delivery: Delivery,
}

impl Response {
    /// Returns `true` if the answer is JSON, as the CRM's own answers are, and not an HTML page.
    pub fn is_json(&self) -> bool {
        self.content_type == "application/json"
    }

    /// Creates an answer that is sent at once.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            content_type,
            location: None,
            body: body.into(),
            delivery: Delivery::Now,
        }
    }

    /// Creates a JSON answer that is sent at once.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string())
    }

    /// Returns the body as JSON, or null if it is not JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// An entry of `errors[]`: a field and the reason for its refusal (§7.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The field's name as sent.
    pub field: String,
    /// The reason, such as `NOT_NULL` or `MAX`.
    pub reason: RefusalReason,
}

/// Reasons for the refusal of a field (§7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefusalReason {
    /// The field is required and missing.
    NotNull,
    /// The string is empty or blank.
    NotBlank,
    /// The number is below the bound.
    Min,
    /// The number is above the bound.
    Max,
    /// The text has too many characters.
    Length,
    /// The list is empty.
    NotEmpty,
    /// The list is missing.
    NotNullCollection,
    /// The text is not a telephone number.
    ValidPhone,
    /// The number is not a valid time in epoch seconds.
    ValidEpochSec,
}

/// Returns a refusal of the authentication layer: 401 or 429 (§7.2). The bodies are fixed English
/// text.
pub fn auth_refusal(status: u16) -> Response {
    let message = match status {
        429 => "Rate limit exceeded. Max 60 requests per minute.",
        _ => "Invalid or expired Open API token",
    };
    let body = json!({ "message": message, "accept": false, "errors": null, "data": null });
    Response::json(status, &body)
}

/// A refusal after the authentication layer (§7.3, §7.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The token is valid but lacks the grant: 403, code 3701.
    Denied,
    /// The body is not JSON, or has wrong types: 400, code 3705, with the parser's message in
    /// `data`.
    Unparsable(String),
    /// The validation of fields failed: 400 with `errors[]`.
    Invalid(Vec<FieldError>),
    /// A status with only a text for people: business validation (400, whose codes are only in the
    /// CRM's log), an unknown address or request (404), a missing record (409, §7.4), or OAuth
    /// (§7.6).
    Plain(u16, &'static str),
    /// A status with a generic text, for example because a fault rule orders it.
    Status(u16),
}

/// The path is not served.
pub(crate) const NO_ADDRESS: Refusal = Refusal::Plain(404, "Manzil topilmadi");
/// The path does not allow the method.
pub(crate) const METHOD: Refusal = Refusal::Plain(405, "Bu usul qo‘llab-quvvatlanmaydi");
/// The body exceeds [`BODY_BYTES_MAX`].
pub(crate) const TOO_LARGE: Refusal = Refusal::Plain(413, "So‘rov tanasi juda katta");
/// The content type of the body is not JSON.
pub(crate) const MEDIA_TYPE: Refusal =
    Refusal::Plain(415, "Content-Type application/json bo‘lishi kerak");

impl Refusal {
    /// Returns the answer in the full envelope. Messages are Uzbek text for people, and clients
    /// must not depend on them.
    pub fn respond(&self) -> Response {
        let (status, message, code) = match self {
            Self::Denied => (403, "Ruxsat berilmagan", Some(3701)),
            Self::Unparsable(_) => (400, "So‘rov tanasini o‘qib bo‘lmadi", Some(3705)),
            Self::Invalid(_) => (400, "Maydonlar noto‘g‘ri to‘ldirilgan", None),
            Self::Plain(status, message) => (*status, *message, None),
            Self::Status(status @ 500..=599) => (*status, "Tizimda xatolik yuz berdi", Some(3704)),
            Self::Status(status) => (*status, "So‘rov bajarilmadi", None),
        };
        let mut body = json!({
            "data": null, "message": message, "accept": false, "errors": [], "requestId": null,
            "error": code.map(|code| json!({ "messageCode": code, "args": [] })),
        });
        if let Self::Unparsable(reason) = self {
            body["data"] = json!(reason);
        } else if let Self::Invalid(fields) = self {
            body["errors"] = json!(fields);
        }
        Response::json(status, &body)
    }
}

/// A success: its payload and, for an accepted write, the id to poll (§2.1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Success {
    /// The value of `data` in the envelope.
    pub data: Value,
    /// The value of `requestId`. `None` unless a write was accepted.
    pub request_id: Option<String>,
    /// `currentPage` and `totalPages`, if they are beside `data`.
    pub paging: Option<(u64, u64)>,
}

impl Success {
    /// Creates a success with this `data` and no requestId.
    pub fn from_data(data: Value) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }

    /// Returns the answer in the full envelope. `message` is `Success` or the expiry warning
    /// (§5.5).
    pub fn respond(&self, message: &str) -> Response {
        let mut body = json!({
            "data": self.data, "message": message, "error": null,
            "accept": true, "errors": [], "requestId": self.request_id,
        });
        if let Some((current, total)) = self.paging {
            body["currentPage"] = json!(current);
            body["totalPages"] = json!(total);
        }
        Response::json(200, &body)
    }
}

/// Parses a body as JSON, or returns the refusal.
pub fn json_value(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Unparsable(format!("JSON parse error: {error}")))
}

/// Parses a body as a JSON object, or returns the refusal.
pub fn json_object(body: &[u8]) -> Result<serde_json::Map<String, Value>, Refusal> {
    match json_value(body)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Refusal::Unparsable("JSON object expected".to_owned())),
    }
}
