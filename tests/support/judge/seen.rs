//! What the judge remembers of a request.

use super::fault::Fault;
use serde_json::Value;
use std::net::IpAddr;
use std::time::Duration;

/// One request; times are since the judge's start.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When it had arrived whole.
    pub at: Duration,
    /// How often the client had been killed before.
    pub life: usize,
    /// The address that it came from.
    pub from: Option<IpAddr>,
    pub method: String,
    pub path: String,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// What was done to it; `None` for nothing.
    pub fault: Option<Fault>,
    pub answer: Option<Answered>,
    /// From when on the client could know how it ended: before the last byte, or the reset.
    pub told: Option<Duration>,
    /// When the exchange was over: its answer written, or one side gone.
    pub ended: Option<Duration>,
}

/// What it was answered.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    pub status: u16,
    pub body: Vec<u8>,
    /// All of it left, undamaged, and the client read it to its end.
    pub whole: bool,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Submit,
    Poll,
    Filter,
    TokenInfo,
    /// A code or a refresh token for a pair of tokens.
    Exchange,
    /// Nothing that the document has for us.
    Other,
}

impl Purpose {
    pub fn of(method: &str, path: &str) -> Self {
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
        Purpose::of(&self.method, &self.path)
    }

    /// All values of a header.
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

    /// The uuid of a submission.
    pub fn uuid(&self) -> Option<String> {
        let submission = self.purpose() == Purpose::Submit;
        let uuid = self.json()["uuid"].as_str().map(str::to_owned);
        uuid.filter(|_| submission)
    }

    /// The id that a poll asks for.
    pub fn polled(&self) -> Option<&str> {
        self.path.strip_prefix("/v1/open-api/request/")
    }

    /// The status that reached the client whole.
    pub fn heard(&self) -> Option<u16> {
        let answer = self.answer.as_ref().filter(|answer| answer.whole);
        answer.map(|answer| answer.status)
    }

    /// The requestId that reached the client whole.
    pub fn request_id(&self) -> Option<String> {
        let answer = self.answer.as_ref().filter(|it| it.whole)?;
        let body: Value = serde_json::from_slice(&answer.body).ok()?;
        let accepted = answer.status == 200 && body["accept"] == true;
        let id = body["requestId"].as_str().map(str::to_owned);
        id.filter(|_| accepted)
    }
}
