//! Tokens, connections and companies (§2.2, §2.3, §3.1, §5).

use callbridge_call::{EpochSeconds, EventTime};
use serde::{Deserialize, Serialize};

/// The grant that call submission needs (§4.5.6).
pub const CALL_SAVE: &str = "PERMISSION_OPEN_API_CALL:SAVE";
/// The grant that the sandbox requires for reading the journal. §5.4.3 leaves this open.
pub const CALL_READ: &str = "PERMISSION_OPEN_API_CALL:READ";

const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x5d0f_6a53_98b2_4b1e_9f43_7f2c_61ce_0a11);
/// The domains of §2.3. A permission is the prefix [`PERMISSION`] and a domain.
const DOMAINS: &str = "LEAD LEAD_NOTE LEAD_TASK CONTRACT CONTRACT_PAYMENT CALL CONFIGURATION";
const PERMISSION: &str = "PERMISSION_OPEN_API_";
/// Lifetime of an access token, in seconds (§4.1.1, §5.2).
pub const ACCESS_SECONDS: i64 = 3_600;
/// Longest lifetime of a PAT, in seconds (§5.3.2).
pub const PAT_SECONDS_MAX: i64 = 365 * DAY_SECONDS;
const DAY_SECONDS: i64 = 86_400;

/// The fingerprint of a token. The core and its state file never hold the token's value. No value
/// has the default fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenKey(uuid::Uuid);

impl TokenKey {
    /// Computes the fingerprint of a token's value.
    pub fn from_value(value: &str) -> Self {
        Self(uuid::Uuid::new_v5(&NAMESPACE, value.as_bytes()))
    }
}

/// A pair of permission and scope (§2.3), written `PERMISSION:SCOPE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Grant(String);

impl TryFrom<String> for Grant {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is not PERMISSION:SCOPE of §2.3"))
    }
}

impl Grant {
    /// Parses one of the permissions and scopes of §2.3. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, scope) = text.strip_prefix(PERMISSION)?.split_once(':')?;
        let known = DOMAINS.split(' ').any(|known| known == domain);
        (known && ["READ", "SAVE", "DELETE"].contains(&scope)).then(|| Self(text.to_owned()))
    }

    /// Returns the grant as text, such as `PERMISSION_OPEN_API_CALL:SAVE`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Splits the grant into permission and scope.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once(':').unwrap_or((&self.0, ""))
    }
}

/// The kind of a token (§2.2 `kind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TokenKind {
    /// Personal access token of a private application.
    Pat,
    /// OAuth access token of a public application.
    Access,
}

/// A token with its company and application. The token's value is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Personal or OAuth access token.
    pub kind: TokenKind,
    /// The id of the company that the token gives access to.
    pub company: i64,
    /// The id of the public application that the token was issued to. `None` means the company's
    /// own application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<i64>,
    /// The fingerprint of the refresh token that was issued together with this access token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh: Option<TokenKey>,
    /// The moment from which the token does not work. `None` means that it has no expiry date.
    pub expires_at: Option<EpochSeconds>,
    /// `true` if the token was replaced or revoked.
    pub revoked: bool,
}

impl Token {
    /// Returns `true` if the token is neither revoked nor expired.
    pub fn works(&self, now: EventTime) -> bool {
        let expired = self.expires_at.is_some_and(|at| now.floor_seconds() >= at);
        !self.revoked && !expired
    }

    /// Returns the whole days until expiry (0 on the last day), or `None` without an expiry date.
    pub fn days_left(&self, now: EventTime) -> Option<i64> {
        let left = self.expires_at?.get() - now.floor_seconds().get();
        Some(left.div_euclid(DAY_SECONDS))
    }

    /// Returns the `message` of a successful answer: `Success`, or a warning if the token expires
    /// within 7 days (§5.5).
    pub fn message(&self, now: EventTime) -> String {
        let ends_soon = self
            .expires_at
            .is_some_and(|at| at.get() - now.floor_seconds().get() <= 7 * DAY_SECONDS);
        let days_left = if ends_soon { self.days_left(now) } else { None };
        match days_left {
            None => "Success".to_owned(),
            Some(..=0) => "Token expires today. Please renew it.".to_owned(),
            Some(1) => "Token will expire in 1 day. Please renew it.".to_owned(),
            Some(days) => format!("Token will expire in {days} days. Please renew it."),
        }
    }
}

/// Ids given as numbers and ranges: `4001,4002,4005-4010`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdSet {
    pub(super) ranges: Vec<(i64, i64)>,
    removed: std::collections::BTreeSet<i64>,
}

impl IdSet {
    /// Parses numbers and ranges of positive ids, separated by commas. An empty text gives the
    /// empty set.
    ///
    /// # Errors
    /// The part that is neither a number nor a range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        let parts = text.split(',').map(str::trim);
        for part in parts.filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            match (low.trim().parse::<i64>(), high.trim().parse::<i64>()) {
                (Ok(low), Ok(high)) if 0 < low && low <= high => set.ranges.push((low, high)),
                _ => return Err(part.to_owned()),
            }
        }
        Ok(set)
    }

    /// Returns `true` if the id is in a range and was not removed.
    pub fn contains(&self, id: i64) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|&(low, high)| (low..=high).contains(&id)) && !self.removed.contains(&id)
    }

    /// Adds an id, also one that was removed before.
    pub fn add(&mut self, id: i64) {
        if !self.removed.remove(&id) && !self.contains(id) {
            self.ranges.push((id, id));
        }
    }

    /// Removes an id, also from the middle of a range.
    pub fn remove(&mut self, id: i64) {
        if self.contains(id) {
            self.removed.insert(id);
        }
    }
}

/// A company and its connection to its own, private application (§5.4). The grants belong to the
/// connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Company {
    /// The company's id, which its tokens report (§2.2 `company.id`).
    pub id: i64,
    /// The company's name, which its tokens report (§2.2 `company.name`).
    pub name: String,
    /// The id of the company's own application (§2.2 `application.id`).
    pub application_id: i64,
    /// The name of the company's own application (§2.2 `application.name`).
    pub application_name: String,
    /// Grants of the connection. A change applies to existing tokens at once.
    pub grants: Vec<Grant>,
    /// Ids of the leads from `--leads`, and of leads that `admin/leads` added.
    pub leads: IdSet,
    /// Ids of the company's employees, from `--employees`.
    pub employees: IdSet,
    /// `true` if the license has expired. Every request gives 401.
    pub blocked: bool,
    /// `true` if the company disconnected the application. Every request gives 401.
    pub disconnected: bool,
}
