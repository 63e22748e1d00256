//! Decides what to do with a delivery. Pure: gets headers, body, secrets, and the time.

use super::event::{self, UnusedReason};
use super::headers::{FRESH, Headers, Refusal};
use super::keyring::{Proof, SecretOwner};
use callbridge_call::EventTime;
use callbridge_model::Country;
use callbridge_spool::{Delivery, WebhookEvent};

/// Result for a verified delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The delivery must be stored.
    Keep {
        /// Content to store, without the body itself.
        delivery: Box<Delivery>,
        /// The installation is our own connection, which was not known: its secret verified the
        /// delivery. Only the header names the installation, so only a new delivery can bind it.
        binds: bool,
    },
    /// The delivery is verified, but not stored. Only a call of another provider is used.
    Drop {
        /// One of [`event::KINDS`].
        kind: &'static str,
        /// Its company (§6.5 `companyId`).
        company: String,
        why: UnusedReason,
    },
}

/// Facts for the verdict on a delivery, in addition to its secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyContext {
    /// Time of the delivery's arrival by our clock.
    pub now: EventTime,
    /// A clock before this time is wrong, because the program was built then.
    pub right_from: EventTime,
    /// Country of phones without a country code.
    pub country: Option<Country>,
}

/// Verifies a delivery with the result of the signature check.
///
/// # Errors
/// The reason why it must not be stored.
pub fn judge(
    headers: &Headers,
    body: &[u8],
    proof: Proof,
    bench: VerifyContext,
) -> Result<Verified, Refusal> {
    let owner = (proof.find_owner().ok_or(Refusal::NoSecret)?).ok_or(Refusal::Forged)?;
    if bench.now < bench.right_from {
        return Err(Refusal::Clock);
    }
    let signed_at = EventTime::from_seconds(headers.signed_at);
    // The signed time has whole seconds, so fractions do not count.
    let now = bench.now.floor_seconds().get();
    if now.abs_diff(signed_at.floor_seconds().get()) > FRESH.as_secs() {
        return Err(Refusal::Stale);
    }
    let event = event::read(body, bench.country).map_err(Refusal::Unreadable)?;
    if !event.id.eq_ignore_ascii_case(&headers.id) {
        return Err(Refusal::OtherId);
    }
    let company = event.company;
    let mut news = match event.what {
        Ok(news) => news,
        Err(why) => {
            return Ok(Verified::Drop {
                kind: event.kind,
                company,
                why,
            });
        }
    };
    if let WebhookEvent::Learn(news) = &mut news {
        // News with a future time would stay the newest forever.
        news.at = news.at.min(bench.now.floor_seconds());
    }
    Ok(Verified::Keep {
        delivery: Box::new(Delivery {
            installation: headers.installation.clone(),
            event: event.id.to_ascii_lowercase(),
            signature: headers.signature.bytes(),
            company,
            at: bench.now,
            news,
        }),
        binds: owner == SecretOwner::Unbound,
    })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
