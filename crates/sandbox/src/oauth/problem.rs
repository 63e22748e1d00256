//! The domain codes of the OAuth endpoints (§7.6). These codes are only in the CRM's log. Clients
//! get a status and a text for people. Also parses form-encoded fields of a body or a query.

use crate::Endpoint;
use callbridge_call::EventTime;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use url::form_urlencoded;

/// Most entries that the log keeps.
const KEPT_MAX: usize = 1_000;

/// A domain code of the OAuth endpoints (§7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Code {
    /// 2715: the company is blocked, so all its requests give 401 (§3.1).
    CompanyBlocked = 2715,
    /// 6900: no application has this client_id (authorization page).
    ApplicationNotFound = 6900,
    /// 6902: the redirect_uri is not registered.
    InvalidRedirectUri = 6902,
    /// 6904: the scope is malformed, empty, or outside the allowed grants.
    InvalidScope = 6904,
    /// 6905: unknown client_id, or wrong or missing client_secret.
    InvalidClient = 6905,
    /// 6906: the code or refresh token does not work, or the application is suspended.
    InvalidGrant = 6906,
    /// 6907: a field is missing, empty, or given twice, or the body is not form-encoded.
    InvalidRequest = 6907,
    /// 6909: the grant_type is neither `authorization_code` nor `refresh_token`.
    UnsupportedGrantType = 6909,
}

impl Code {
    /// Returns the status and the text for people in the envelope. The status is 401 for bad client
    /// credentials or a blocked company (§7.3), and 400 for everything else (§7.6).
    pub const fn answer(self) -> (u16, &'static str) {
        match self {
            // Both have the same answer, so a client cannot distinguish them.
            Self::CompanyBlocked | Self::InvalidClient => (401, "Ilova ma’lumotlari noto‘g‘ri"),
            Self::ApplicationNotFound => (400, "Ilova topilmadi"),
            Self::InvalidRedirectUri => (400, "redirect_uri ro‘yxatdan o‘tmagan"),
            Self::InvalidScope => (400, "Ruxsatlar ro‘yxati noto‘g‘ri"),
            Self::InvalidGrant => (400, "Kod yoki token yaroqsiz"),
            Self::InvalidRequest => (400, "So‘rov noto‘g‘ri tuzilgan"),
            Self::UnsupportedGrantType => (400, "Bu grant_type qo‘llab-quvvatlanmaydi"),
        }
    }

    /// Creates a refusal with this code.
    pub fn because(self, message: impl Into<String>) -> Problem {
        let message = message.into();
        Problem {
            code: self,
            message,
        }
    }
}

/// A refusal with a description of the error, without any token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", *code as u16)]
pub struct Problem {
    /// The domain code that the log shows.
    pub code: Code,
    /// A description of the error, without any token.
    pub message: String,
}

/// A line of the CRM's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProblemLine {
    /// The moment of the refusal.
    pub at: EventTime,
    /// The endpoint that refused the request.
    pub endpoint: Endpoint,
    /// The code's number, 2715 or 6900 to 6909.
    pub code: u16,
    /// A description of the error, without any token.
    pub words: String,
}

/// The last thousand refusals of the OAuth endpoints, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Log(pub VecDeque<ProblemLine>);

impl Log {
    /// Adds a refusal. If the log is full, the oldest refusal is removed.
    pub fn push(&mut self, at: EventTime, endpoint: Endpoint, problem: &Problem) {
        if self.0.len() >= KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(ProblemLine {
            at,
            endpoint,
            code: problem.code as u16,
            words: problem.message.clone(),
        });
    }
}

/// Most fields that a form can have. A request with more fields is malformed.
const FIELDS_MAX: usize = 100;

/// The fields of a form, in the order they were sent.
#[derive(Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl fmt::Debug for Form {
    /// Shows only names, because the values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl Form {
    /// Parses a form-encoded body or query. Invalid UTF-8 is replaced, so a value with invalid
    /// UTF-8 matches no code or token that was issued.
    ///
    /// # Errors
    /// More than a hundred fields.
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let fields: Vec<_> = form_urlencoded::parse(bytes)
            .into_owned()
            .take(FIELDS_MAX + 1)
            .collect();
        if fields.len() > FIELDS_MAX {
            return Err(Code::InvalidRequest.because(format!("more than {FIELDS_MAX} fields")));
        }
        Ok(Self(fields))
    }

    /// Returns the value of an optional field. An empty value counts as missing (RFC 6749 §3.1).
    ///
    /// # Errors
    /// The field appears twice.
    pub fn one<'a>(&'a self, name: &'a str) -> Result<Option<&'a str>, Problem> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() {
            return Err(Code::InvalidRequest.because(format!("{name} stands twice")));
        }
        Ok(first.filter(|value| !value.is_empty()))
    }

    /// Returns the value of a required field.
    ///
    /// # Errors
    /// The field is missing, is empty, or appears twice.
    pub fn needed<'a>(&'a self, name: &'a str) -> Result<&'a str, Problem> {
        self.one(name)?
            .ok_or_else(|| Code::InvalidRequest.because(format!("{name} is missing or empty")))
    }

    /// Iterates over all values of a name, in the order they were sent.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(given, _)| given == name);
        named.map(|(_, value)| value.as_str())
    }
}
