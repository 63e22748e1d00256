//! What is to become of a delivery. No clock, no disk: headers, body, secrets and now come in.

use super::event::{self, UnusedReason};
use super::headers::{FRESH, Headers, Refusal};
use super::keyring::{Proof, Whose};
use callbridge_call::EventTime;
use callbridge_model::Country;
use callbridge_spool::{Delivery, WebhookEvent};

/// Verdict on a delivery that is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The delivery is to be stored.
    Keep {
        /// Content to store, without the body itself.
        delivery: Box<Delivery>,
        /// The installation is our own connection, which was not known: the secret of that has
        /// proved the delivery. The header alone says which it is, so only what is new may bind.
        binds: bool,
    },
    /// The delivery is proved, and nothing of it is used but the call of another provider.
    Drop {
        /// Kind of the event, one of [`event::KINDS`].
        kind: &'static str,
        /// Company that it comes from (§6.5 `companyId`).
        company: String,
        /// Reason for which it is not used.
        why: UnusedReason,
    },
}

/// Facts by which a delivery is judged, beside its secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyContext {
    /// Time of the delivery's arrival by our clock.
    pub now: EventTime,
    /// A clock before this is wrong: the program was built then.
    pub right_from: EventTime,
    /// Country of the phones that have no country's code.
    pub country: Option<Country>,
}

/// Judges a delivery by what was proved while its body came.
///
/// # Errors
/// When it is not to be taken.
pub fn judge(
    headers: &Headers,
    body: &[u8],
    proof: Proof,
    bench: VerifyContext,
) -> Result<Verified, Refusal> {
    let whose = (proof.whose().ok_or(Refusal::NoSecret)?).ok_or(Refusal::Forged)?;
    if bench.now < bench.right_from {
        return Err(Refusal::Clock);
    }
    let signed_at = EventTime::from_seconds(headers.signed_at);
    // Whole seconds were signed: the second itself is no difference.
    let (now, fresh) = (bench.now.floor_seconds().get(), FRESH.as_secs());
    if now.abs_diff(signed_at.floor_seconds().get()) > fresh {
        return Err(Refusal::Stale);
    }
    let event = event::read(body, bench.country).map_err(Refusal::Unreadable)?;
    if !event.id.eq_ignore_ascii_case(&headers.id) {
        return Err(Refusal::OtherId);
    }
    let (kind, company) = (event.kind, event.company);
    let mut news = match event.what {
        Ok(news) => news,
        Err(why) => return Ok(Verified::Drop { kind, company, why }),
    };
    if let WebhookEvent::Learn(news) = &mut news {
        // What is dated ahead would be the newest for ever.
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
        binds: whose == Whose::Unbound,
    })
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
