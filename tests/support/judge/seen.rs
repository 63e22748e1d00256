//! A request as the judge recorded it.

use super::fault::Fault;
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

/// One request. Times are measured from the judge's start.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When the whole request had arrived.
    pub at: Duration,
    /// Number of kills of the client before this request.
    pub life: usize,
    /// The address of the client.
    pub from: Option<IpAddr>,
    pub method: String,
    pub path: String,
    /// Headers in their order, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The fault of this request, if any.
    pub fault: Option<Fault>,
    pub answer: Option<Answered>,
    /// When the client could first know how the request ended: before the last byte, or at the
    /// reset.
    pub told: Option<Duration>,
    /// When the exchange was over: the answer was written, or one side was gone.
    pub ended: Option<Duration>,
}

/// The answer to a request.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    pub status: u16,
    pub body: Vec<u8>,
    /// Whether the whole answer was sent undamaged and the client read it to its end.
    pub whole: bool,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Submit,
    Poll,
    Filter,
    TokenInfo,
    /// Exchanges a code or a refresh token for a pair of tokens.
    Exchange,
    /// A request that the document does not describe for callbridge.
    Other,
}

impl Purpose {
    pub fn from_request(method: &str, path: &str) -> Self {
        let Some(rest) = path.strip_prefix("/v1/open-api/") else {
            return Self::Other;
        };
        match (method, rest) {
            ("POST", "call-history") => Self::Submit,
            ("POST", "call-history/filter") => Self::Filter,
            ("GET", "token/info") => Self::TokenInfo,
            ("POST", "oauth/token") => Self::Exchange,
            ("GET", rest) if rest.starts_with("request/") && rest.matches('/').count() == 1 => {
                Self::Poll
            }
            _ => Self::Other,
        }
    }
}

impl Seen {
    pub fn purpose(&self) -> Purpose {
        Purpose::from_request(&self.method, &self.path)
    }

    /// Returns all values of a header.
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.headers.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| value.as_str())
    }

    pub fn token(&self) -> &str {
        self.header("x-open-api-token").next().unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the uuid of a submission.
    pub fn uuid(&self) -> Option<String> {
        if self.purpose() != Purpose::Submit {
            return None;
        }
        let body = self.json();
        body["uuid"].as_str().map(str::to_owned)
    }

    /// Returns the requestId that a poll asks for.
    pub fn polled_id(&self) -> Option<&str> {
        self.path.strip_prefix("/v1/open-api/request/")
    }

    /// Returns the status if the whole answer reached the client.
    pub fn received_status(&self) -> Option<u16> {
        let answer = self.answer.as_ref().filter(|answer| answer.whole);
        answer.map(|answer| answer.status)
    }

    /// Returns the requestId if the whole answer reached the client and accepted the call.
    pub fn request_id(&self) -> Option<String> {
        let answer = self.answer.as_ref().filter(|answer| answer.whole)?;
        let body: Value = serde_json::from_slice(&answer.body).ok()?;
        if answer.status != 200 || body["accept"] != true {
            return None;
        }
        body["requestId"].as_str().map(str::to_owned)
    }
}
