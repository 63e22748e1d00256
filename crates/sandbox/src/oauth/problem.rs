//! The domain codes that the OAuth endpoints answer for (§7.6): they stand in the service's log
//! alone, clients see a status and human text. Form-encoded fields, of a body or a query.

use crate::Endpoint;
use callbridge_call::EventTime;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use url::form_urlencoded;

/// Entries of the log that are kept.
const KEPT_MAX: usize = 1_000;

/// A domain code of the OAuth endpoints (§7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// 2715: the company is blocked; every request of its gives 401 (§3.1).
    CompanyBlocked,
    /// 6900: no application has this client_id (authorization page).
    ApplicationNotFound,
    /// 6902: the redirect_uri is not registered.
    InvalidRedirectUri,
    /// 6904: malformed, empty or outside the allowed grants.
    InvalidScope,
    /// 6905: unknown client_id, wrong or missing client_secret.
    InvalidClient,
    /// 6906: code or refresh token that does not work, or no longer.
    InvalidGrant,
    /// 6907: something is missing, empty, given twice, or not form-encoded.
    InvalidRequest,
    /// 6909: neither `authorization_code` nor `refresh_token`.
    UnsupportedGrantType,
}

impl Code {
    /// The number; 401 for bad client credentials or a blocked company (§7.3), 400 for everything
    /// else (§7.6); the human text of the envelope.
    const fn facts(self) -> (u16, u16, &'static str) {
        match self {
            // Alike but for the number: a client cannot tell them apart.
            Self::CompanyBlocked => (2715, 401, "Ilova ma’lumotlari noto‘g‘ri"),
            Self::InvalidClient => (6905, 401, "Ilova ma’lumotlari noto‘g‘ri"),
            Self::ApplicationNotFound => (6900, 400, "Ilova topilmadi"),
            Self::InvalidRedirectUri => (6902, 400, "redirect_uri ro‘yxatdan o‘tmagan"),
            Self::InvalidScope => (6904, 400, "Ruxsatlar ro‘yxati noto‘g‘ri"),
            Self::InvalidGrant => (6906, 400, "Kod yoki token yaroqsiz"),
            Self::InvalidRequest => (6907, 400, "So‘rov noto‘g‘ri tuzilgan"),
            Self::UnsupportedGrantType => (6909, 400, "Bu grant_type qo‘llab-quvvatlanmaydi"),
        }
    }

    /// The code's number, 2715 or 6900 to 6909.
    pub const fn number(self) -> u16 {
        self.facts().0
    }

    /// The HTTP status of the answer: 401 or 400.
    pub const fn status(self) -> u16 {
        self.facts().1
    }

    /// A refusal with this code.
    pub fn because(self, words: impl Into<String>) -> Problem {
        Problem {
            code: self,
            words: words.into(),
        }
    }

    /// The human text of the envelope.
    pub const fn message(self) -> &'static str {
        self.facts().2
    }
}

/// A refusal with what was wrong, in words without any token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {words}", code.number())]
pub struct Problem {
    /// The domain code that the log shows.
    pub code: Code,
    /// The fault in words, without any token.
    pub words: String,
}

/// A line of the service's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProblemLine {
    /// The moment of the refusal.
    pub at: EventTime,
    /// The endpoint that refused the request.
    pub endpoint: Endpoint,
    /// The code's number, 2715 or 6900 to 6909.
    pub code: u16,
    /// The fault in words, without any token.
    pub words: String,
}

/// The last thousand refusals of the OAuth endpoints.
#[derive(Clone, Debug, Default)]
pub struct Log(VecDeque<ProblemLine>);

impl Log {
    /// Adds a refusal, in place of the oldest of a full log.
    pub fn push(&mut self, at: EventTime, endpoint: Endpoint, problem: &Problem) {
        if self.0.len() >= KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(ProblemLine {
            at,
            endpoint,
            code: problem.code.number(),
            words: problem.words.clone(),
        });
    }

    /// Iterates over the refusals, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &ProblemLine> {
        self.0.iter()
    }

    /// The codes of the refusals, oldest first.
    pub fn codes(&self) -> Vec<u16> {
        self.0.iter().map(|line| line.code).collect()
    }
}

/// Most fields that are read; more is a malformed request.
const FIELDS_MAX: usize = 100;

/// The fields in the order they were sent.
#[derive(Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl fmt::Debug for Form {
    /// Names alone: the values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Form {
    /// Reads any bytes; what is no UTF-8 is replaced, and so equal to nothing that was given out.
    ///
    /// # Errors
    /// More than a hundred fields.
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let fields: Vec<(String, String)> = form_urlencoded::parse(bytes)
            .take(FIELDS_MAX + 1)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        if fields.len() > FIELDS_MAX {
            return Err(Code::InvalidRequest.because(format!("more than {FIELDS_MAX} fields")));
        }
        Ok(Self(fields))
    }

    /// A field that may be missing; an empty one counts as missing (RFC 6749 §3.1).
    ///
    /// # Errors
    /// It stands twice.
    pub fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Problem> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() {
            return Err(Code::InvalidRequest.because(format!("{name} stands twice")));
        }
        Ok(first.filter(|value| !value.is_empty()))
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// It is missing, empty, or stands twice.
    pub fn needed<'a>(&'a self, name: &'a str) -> Result<&'a str, Problem> {
        let missing = || Code::InvalidRequest.because(format!("{name} is missing or empty"));
        self.one(name)?.ok_or_else(missing)
    }

    /// Iterates over all values of a name, in the order they were sent.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(given, _)| given == name);
        named.map(|(_, value)| value.as_str())
    }
}
