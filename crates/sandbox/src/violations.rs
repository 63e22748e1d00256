//! What a client did against the document.

use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Violations kept in full; more are only counted.
const KEPT_MAX: usize = 10_000;

/// The kind of a violation, by which violations are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViolationKind {
    /// More requests than the window holds: a 429 was given (Limits).
    WindowExceeded,
    /// A uuid posted again after its 200 with a requestId was answered, and not for a FAILED
    /// write. §4.5.4 allows it after a crash, so it is counted apart.
    RepeatAfter200,
    /// More than a window's requests within its length by several token values of one connection:
    /// a fresh counter is no fresh budget (Limits, "circumvention").
    FreshBudget,
    /// The same uuid for another call: its record is lost (§4.5.4).
    UuidReused,
    /// A field that the service derives (§2.6).
    DerivedField,
    /// A request refused by validation (§2.6, §4.7, §7.3).
    Invalid,
    /// The same request again after 400 or 409, or a missing record within a minute (§7.7).
    RepeatAfter400,
    /// The same write again within a second of its 5xx (§7.7).
    SoonAfter5xx,
    /// A sixth attempt of a write of which five failed with 5xx while others passed (§7.7).
    RepeatAfter5xx,
    /// Again without the grant within a minute (§7.7).
    RepeatAfter403,
    /// Again with a dead token within a minute (§7.7).
    RepeatAfter401,
    /// A field id that is skipped silently: the client thinks it written (§4.4.2).
    SkippedField,
    /// A poll of a requestId that was never given (§4.6).
    UnknownPoll,
    /// A poll with another token than the creating one (§3.2).
    ForeignPoll,
    /// No token header, two of them, or `Authorization` (§5.1).
    WrongHeader,
    /// A body without the JSON content type.
    ContentType,
    /// The right path with another method, or a body where none belongs (§4).
    WrongMethod,
    /// A path that the document does not have (§4).
    UnknownPath,
    /// A redirect was followed: the token went where it led.
    RedirectFollowed,
    /// A token or a secret where it must not be: an address, another header, a body of the API, the
    /// wrong endpoint (§5.1, §5.6).
    SecretMisplaced,
    /// A refresh token again after its use was answered whole (§5.6.6). Whoever was killed between
    /// the answer and writing it down cannot know, so it is counted apart.
    RefreshReused,
    /// An authorization code again after its use was answered whole (§5.6.3).
    CodeReused,
    /// An endpoint asked at the address of the others (§5.6.9).
    WrongHost,
}

/// A violation of the document by a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The moment of the request.
    pub at: EventTime,
    /// The kind that it is counted under.
    pub kind: ViolationKind,
    /// The section that was broken: `§4.5.4`, `Limits`.
    pub rule: String,
    /// The violation in words, with its figures.
    pub words: String,
}

/// Violations by clients so far, across restarts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Violations {
    kept: Vec<Violation>,
    counts: BTreeMap<ViolationKind, u64>,
}

impl Violations {
    /// Counts a violation, and keeps it while there is room.
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

    /// Number of violations of a kind, those not kept included.
    pub fn count(&self, kind: ViolationKind) -> u64 {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Counts by kind; kinds that did not happen are absent.
    pub const fn counts(&self) -> &BTreeMap<ViolationKind, u64> {
        &self.counts
    }
}
