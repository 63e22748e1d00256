//! Violations of the document by clients.

use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Violations kept in full. Further ones are only counted.
const KEPT_MAX: usize = 10_000;

/// The kind of a violation, by which violations are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViolationKind {
    /// More requests than the window holds, so a 429 was given (Limits).
    WindowExceeded,
    /// A uuid posted again after its 200 with a requestId was delivered, unless the write FAILED.
    /// It has a separate count, because §4.5.4 allows it after a crash.
    RepeatAfter200,
    /// More requests than a window holds, within its length, by several tokens of one connection. A
    /// new counter is not a new budget (Limits, "circumvention").
    FreshBudget,
    /// The same uuid for another call, whose record is lost (§4.5.4).
    UuidReused,
    /// A field that the CRM derives (§2.6).
    DerivedField,
    /// A request refused by validation (§2.6, §4.7, §7.3).
    Invalid,
    /// The same request again after 400 or 409, or within a minute for a missing record (§7.7).
    RepeatAfter400,
    /// The same write again within a second of its 5xx (§7.7).
    SoonAfter5xx,
    /// A sixth attempt of a write of which five failed with 5xx while others passed (§7.7).
    RepeatAfter5xx,
    /// A request again within a minute after a refusal for the missing grant (§7.7).
    RepeatAfter403,
    /// A request again within a minute with a token that does not work (§7.7).
    RepeatAfter401,
    /// A field id that is skipped silently, so the client thinks that it was written (§4.4.2).
    SkippedField,
    /// A poll of a requestId that was never issued (§4.6).
    UnknownPoll,
    /// A poll with a token other than the one that created the request (§3.2).
    ForeignPoll,
    /// No token header, two of them, or `Authorization` (§5.1).
    WrongHeader,
    /// A body without the JSON content type.
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
    /// A refresh token used again after the answer to its first use left whole (§5.6.6). It has a
    /// separate count, because a client that was killed before it stored the answer cannot know.
    RefreshReused,
    /// An authorization code used again after the answer to its first use left whole (§5.6.3).
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

    /// The violations that were kept, oldest first; at most 10,000.
    pub fn all(&self) -> &[Violation] {
        &self.kept
    }

    /// Number of violations of a kind, including those that were not kept.
    pub fn count(&self, kind: ViolationKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Counts by kind; kinds that did not happen are absent.
    pub const fn counts(&self) -> &BTreeMap<ViolationKind, u64> {
        &self.counts
    }
}
