//! Violations of the document by clients.

use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest number of violations that are kept in full. Further violations are only counted.
const KEPT_MAX: usize = 10_000;

/// The kind of a violation, by which violations are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViolationKind {
    /// A token made more requests than its window holds, so the answer was 429 (Limits).
    WindowExceeded,
    /// A uuid was posted again after the 200 with its requestId was sent, although the write has
    /// not FAILED. This kind is separate, because §4.5.4 allows such a repeat after a crash.
    RepeatAfter200,
    /// Several tokens of one connection together made more requests within the length of a window
    /// than one window holds. A new token gives no new budget (Limits, "circumvention").
    FreshBudget,
    /// A uuid was used for a second call, which then makes no record (§4.5.4).
    UuidReused,
    /// A submitted call has a field that the CRM derives, such as `hangupCause` (§2.6).
    DerivedField,
    /// A request refused by validation (§2.6, §4.7, §7.3).
    Invalid,
    /// A POST was repeated after 400 or 409, or a GET of a missing record was repeated within a
    /// minute (§7.7).
    RepeatAfter400,
    /// A write was repeated within a second after it failed with a 5xx (§7.7).
    SoonAfter5xx,
    /// A write was attempted a sixth time, after five attempts failed with a 5xx while other
    /// requests passed (§7.7).
    RepeatAfter5xx,
    /// A request was repeated within a minute after 403 because of a missing grant (§7.7).
    RepeatAfter403,
    /// A token that does not work was sent again within a minute (§7.7).
    RepeatAfter401,
    /// A lead field upsert has the id of a field that is skipped silently, so the client thinks
    /// that the field was written (§4.4.2).
    SkippedField,
    /// A client polled a requestId that was never issued (§4.6).
    UnknownPoll,
    /// A client polled a requestId with another token than the one that submitted the write (§3.2).
    ForeignPoll,
    /// A request has no token header, more than one, or the header `Authorization` (§5.1).
    WrongHeader,
    /// A body came without the JSON content type.
    ContentType,
    /// The right path with a wrong method, or a body with a method that takes none (§4).
    WrongMethod,
    /// A path that the document does not have (§4).
    UnknownPath,
    /// A redirect was followed, so the token went to its destination.
    RedirectFollowed,
    /// A token or a secret where it must not be: an address, another header, a body of the API, the
    /// wrong endpoint (§5.1, §5.6).
    SecretMisplaced,
    /// A refresh token was used again after the answer to its first use was sent completely
    /// (§5.6.6). This kind is separate, because a client that was killed before it stored the
    /// answer cannot know.
    RefreshReused,
    /// An authorization code was used again after the answer to its first use was sent completely
    /// (§5.6.3).
    CodeReused,
    /// An endpoint requested at the address of the other endpoints (§5.6.9).
    WrongHost,
}

/// A violation of the document by a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The moment of the request.
    pub at: EventTime,
    pub kind: ViolationKind,
    /// The section that was violated, such as `§4.5.4` or `Limits`.
    pub rule: String,
    /// A description of the violation, with its figures.
    pub words: String,
}

/// Violations by clients so far, across restarts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Violations {
    kept: Vec<Violation>,
    counts: BTreeMap<ViolationKind, u64>,
}

impl Violations {
    /// Counts a violation, and keeps it if fewer than 10,000 are kept.
    pub fn push(&mut self, breach: Violation) {
        *self.counts.entry(breach.kind).or_default() += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(breach);
        }
    }

    /// Returns the violations that were kept, oldest first; at most 10,000.
    pub fn all(&self) -> &[Violation] {
        &self.kept
    }

    /// Returns the number of violations of a kind, including those that were not kept.
    pub fn count(&self, kind: ViolationKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns the number of violations of each kind. Kinds without a violation are absent.
    pub const fn counts(&self) -> &BTreeMap<ViolationKind, u64> {
        &self.counts
    }
}
