//! Decides whether a delivery is stored, dropped, or rejected. This module does no I/O. Its input
//! is the headers, the body, the result of the signature check, and the time.

use super::event::{self, UnusedReason};
use super::headers::{FRESH, Headers, Refusal};
use super::keyring::Proof;
use callbridge_call::EventTime;
use callbridge_model::Country;
use callbridge_spool::{Delivery, WebhookEvent};

/// What to do with a verified delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The delivery must be stored.
    Keep {
        /// The content to store, which doesn't include the body itself.
        delivery: Box<Delivery>,
    },
    /// The delivery was verified but isn't stored. It's only used any further if it's another
    /// provider's call.
    Drop {
        /// One of [`event::KINDS`].
        kind: &'static str,
        /// The event's company (§6.5 `companyId`).
        company: String,
        why: UnusedReason,
    },
}

/// What's needed besides the secrets to decide on a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyContext {
    /// When the delivery arrived, by our clock.
    pub now: EventTime,
    /// When the program was built. If our clock shows an earlier time, it's wrong.
    pub right_from: EventTime,
    /// The country of phone numbers without a country code.
    pub country: Option<Country>,
    /// Whether the delivery's installation has been verified before, or no installation has.
    pub could_be_ours: bool,
}

/// Decides what to do with a delivery. `proof` has the result of the signature check, and `bench`
/// has the time and settings.
///
/// # Errors
/// Returns why the delivery is rejected.
pub fn judge(
    headers: &Headers,
    body: &[u8],
    proof: Proof,
    bench: VerifyContext,
) -> Result<Verified, Refusal> {
    let is_signed = proof.verify().ok_or(Refusal::NoSecret)?;
    if bench.now < bench.right_from {
        return Err(Refusal::Clock);
    }
    let signed_at = EventTime::from_seconds(headers.signed_at);
    // The signed time is in whole seconds, so fractions of our time are ignored.
    let now = bench.now.floor_seconds().get();
    let is_fresh = now.abs_diff(signed_at.floor_seconds().get()) <= FRESH.as_secs();
    match (is_signed, is_fresh) {
        (true, true) => {}
        (true, false) => return Err(Refusal::Stale),
        (false, true) if bench.could_be_ours => return Err(Refusal::Mismatch),
        (false, _) => return Err(Refusal::Forged),
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
        // News with a time in the future would remain the newest forever.
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
    })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
