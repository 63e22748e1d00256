//! Deliveries that are wrong by order, so that a receiver can be tried: none of them may change
//! anything there, but the doubled one once.

use super::CrmEvent;
use super::attempts::Kept;
use super::body::Recorded;
use super::config::SigningKey;
use super::dispatch::Dispatch;
use super::outbox::{DeliveryId, Outbox};
use super::verdict::AttemptOutcome;
use crate::core::Sandbox;
use crate::token_gen;
use crate::webhook;
use crate::webhook::dispatch;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::secret::Secret;
use callbridge_model::webhook_signature::Key;
use serde::Serialize;
use uuid::Uuid;

/// The header of the event's id (§6.3).
pub const ID: &str = "x-webhook-id";
/// The header of the connection (§6.3).
pub const INSTALLATION: &str = "x-webhook-installation-id";
/// The header of the moment of the signature (§6.3).
pub const TIMESTAMP: &str = "x-webhook-timestamp";
/// The header of the signature (§6.3).
pub const SIGNATURE: &str = "x-webhook-signature";

/// How far a stale or a future timestamp is off; receivers allow five minutes (§6.4.8).
const OFF_SECONDS: i64 = 600;
/// Bytes of a huge body.
const HUGE: usize = 8 * 1024 * 1024;

const NAMESPACE: Uuid = Uuid::from_u128(0x91d4_07be_6a2c_4c8d_b5f1_28c6_e90f_3a77);

/// What is wrong with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forgery {
    /// A digit of the signature is another.
    WrongSignature,
    /// Signed with a key that is nobody's.
    OtherKey,
    /// The body is another than the one signed.
    OtherBody,
    /// Signed ten minutes ago, and rightly so.
    Stale,
    /// Signed ten minutes from now.
    Future,
    /// No signature.
    Unsigned,
    /// No timestamp, no installation.
    HalfHeaders,
    /// `sha1=` instead of `sha256=`.
    OtherAlgorithm,
    /// An installation that nobody has, signed with the key of a true one.
    OtherInstallation,
    /// Rightly signed, of a company that is not the receiver's.
    OtherCompany,
    /// `X-Webhook-Id` is not the body's `eventId`, which the signature does not cover.
    OtherId,
    /// Rightly signed, of a kind that the document does not have yet.
    OtherEvent,
    /// Rightly signed, no JSON.
    NotJson,
    /// Rightly signed, eight megabytes.
    Huge,
    /// A true one, twice at the same moment.
    Doubled,
}

/// All of them.
pub const FORGERIES: [Forgery; 15] = [
    Forgery::WrongSignature,
    Forgery::OtherKey,
    Forgery::OtherBody,
    Forgery::Stale,
    Forgery::Future,
    Forgery::Unsigned,
    Forgery::HalfHeaders,
    Forgery::OtherAlgorithm,
    Forgery::OtherInstallation,
    Forgery::OtherCompany,
    Forgery::OtherId,
    Forgery::OtherEvent,
    Forgery::NotJson,
    Forgery::Huge,
    Forgery::Doubled,
];

impl Forgery {
    /// Its word in admin requests.
    pub const fn word(self) -> &'static str {
        match self {
            Self::WrongSignature => "wrong-signature",
            Self::OtherKey => "other-key",
            Self::OtherBody => "other-body",
            Self::Stale => "stale",
            Self::Future => "future",
            Self::Unsigned => "unsigned",
            Self::HalfHeaders => "half-headers",
            Self::OtherAlgorithm => "other-algorithm",
            Self::OtherInstallation => "other-installation",
            Self::OtherCompany => "other-company",
            Self::OtherId => "other-id",
            Self::OtherEvent => "other-event",
            Self::NotJson => "not-json",
            Self::Huge => "huge",
            Self::Doubled => "doubled",
        }
    }

    /// The forgery of a word; `None` for others.
    pub fn from_word(word: &str) -> Option<Self> {
        FORGERIES.into_iter().find(|one| one.word() == word)
    }

    /// Seconds by which the timestamp is off.
    pub const fn off_seconds(self) -> i64 {
        match self {
            Self::Stale => -OFF_SECONDS,
            Self::Future => OFF_SECONDS,
            Self::WrongSignature
            | Self::OtherKey
            | Self::OtherBody
            | Self::Unsigned
            | Self::HalfHeaders
            | Self::OtherAlgorithm
            | Self::OtherInstallation
            | Self::OtherCompany
            | Self::OtherId
            | Self::OtherEvent
            | Self::NotJson
            | Self::Huge
            | Self::Doubled => 0,
        }
    }

    /// Sent twice at once?
    const fn copies(self) -> usize {
        if matches!(self, Self::Doubled) { 2 } else { 1 }
    }

    fn body(self, recorded: &Recorded, plain: String) -> String {
        match self {
            Self::NotJson => "eventType=CALL_COMPLETED&call=…".to_owned(),
            Self::Huge => format!("{plain}{}", " ".repeat(HUGE)),
            Self::OtherCompany => {
                let (own, other) = (recorded.company, recorded.company.saturating_add(900_001));
                plain.replace(
                    &format!("\"companyId\":{own}"),
                    &format!("\"companyId\":{other}"),
                )
            }
            Self::OtherEvent => plain.replace(recorded.event.name(), "LEAD_TASK_FORGOTTEN"),
            Self::WrongSignature
            | Self::OtherKey
            | Self::OtherBody
            | Self::Stale
            | Self::Future
            | Self::Unsigned
            | Self::HalfHeaders
            | Self::OtherAlgorithm
            | Self::OtherInstallation
            | Self::OtherId
            | Self::Doubled => plain,
        }
    }
}

/// How a forged delivery ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForgedOutcome {
    /// When.
    pub at: EventTime,
    /// What was wrong with it.
    pub how: Forgery,
    /// Which delivery it said to be.
    #[serde(flatten)]
    pub id: DeliveryId,
    /// The receiver's status.
    pub status: Option<u16>,
    /// Or why there is none.
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// Forges an event for an installation; it leaves with the next cycle, past the queue, and is
/// forgotten by a restart.
///
/// # Errors
/// Why nothing can be sent to that installation.
pub fn forge(
    sandbox: &mut Sandbox,
    now: EventTime,
    installation: i64,
    forgery: Forgery,
    event: CrmEvent,
) -> Result<Uuid, String> {
    let (target, key) = dispatch::address(sandbox, installation).map_err(|death| death.words())?;
    let company = webhook::installed(sandbox, installation).map_or(0, |own| own.company);
    sandbox.webhooks.forged.made += 1;
    let serial = format!("{} {}", now.micros(), sandbox.webhooks.forged.made);
    let recorded = Recorded {
        event_id: Uuid::new_v5(&NAMESPACE, serial.as_bytes()),
        at: now,
        company,
        event,
    };
    let plain = recorded.body(&sandbox.settings.shapes.webhook).to_string();
    let key = match forgery {
        Forgery::OtherKey => SigningKey::new(token_gen::mint_key(sandbox, "nobody")),
        _ => key,
    };
    let dispatch = Dispatch {
        id: DeliveryId {
            event: recorded.event_id,
            installation,
        },
        target,
        key,
        body: forgery.body(&recorded, plain),
        forgery: Some(forgery),
    };
    for _ in 0..forgery.copies() {
        sandbox.webhooks.forged.waiting.push(dispatch.clone());
    }
    Ok(recorded.event_id)
}

impl Outbox {
    pub(super) fn forged_ended(
        &mut self,
        at: EventTime,
        id: DeliveryId,
        how: Forgery,
        outcome: &AttemptOutcome,
        duration_ms: u64,
    ) {
        let ended = ForgedOutcome {
            at,
            how,
            id,
            status: outcome.status(),
            error: outcome.error(),
            duration_ms,
        };
        self.forged.ended.push(at, ended);
    }

    /// How forged deliveries ended, oldest first.
    pub const fn forged(&self) -> &Kept<ForgedOutcome> {
        &self.forged.ended
    }
}

impl Dispatch {
    /// The four headers (§6.3), signed at this moment (§6.4) unless it is forged.
    pub fn headers(&self, sent_at: EpochSeconds) -> Vec<(&'static str, String)> {
        let off = self.forgery.map_or(0, Forgery::off_seconds);
        let timestamp = sent_at.get().saturating_add(off).to_string();
        let secret = Secret::from(self.key.expose());
        let mut signature = Key::new(&secret).sign(&timestamp, self.body.as_bytes());
        let (mut id, mut installation) = (self.id.event, self.id.installation);
        let mut all = true;
        match self.forgery {
            Some(Forgery::WrongSignature) => {
                let last = if signature.pop() == Some('0') {
                    '1'
                } else {
                    '0'
                };
                signature.push(last);
            }
            Some(Forgery::OtherBody) => {
                let other = self.body.replacen('{', "{ ", 1);
                signature = Key::new(&secret).sign(&timestamp, other.as_bytes());
            }
            Some(Forgery::OtherAlgorithm) => signature = signature.replacen("sha256", "sha1", 1),
            Some(Forgery::OtherInstallation) => installation += 800_000_000,
            Some(Forgery::OtherId) => id = Uuid::new_v5(&NAMESPACE, id.as_bytes()),
            Some(Forgery::HalfHeaders) => all = false,
            Some(
                Forgery::OtherKey
                | Forgery::Stale
                | Forgery::Future
                | Forgery::Unsigned
                | Forgery::OtherCompany
                | Forgery::OtherEvent
                | Forgery::NotJson
                | Forgery::Huge
                | Forgery::Doubled,
            )
            | None => {}
        }
        let mut given = vec![(ID, id.to_string())];
        if all {
            given.push((INSTALLATION, installation.to_string()));
            given.push((TIMESTAMP, timestamp));
        }
        if self.forgery != Some(Forgery::Unsigned) {
            given.push((SIGNATURE, signature));
        }
        given
    }
}
