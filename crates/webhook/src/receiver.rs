//! Receives deliveries, which includes verifying them, storing their content, and choosing the
//! responses.

use super::event::UnusedReason;
use super::headers::{Headers, Refusal};
use super::installations::{Installations, STORED};
pub use super::keyring::Proof;
use super::secrets::Secrets;
use super::tally::Tally;
use crate::verify::{Verified, VerifyContext, judge};
use callbridge_call::EventTime;
use callbridge_model::{Country, clock};
use callbridge_spool::{Delivered, Delivery, Done, Handle, Op, WebhookEvent};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// Timeout for storing an event. If it's exceeded, the response is 503, but the event may still be
/// stored, in which case it's recognized when it's redelivered.
const COMMIT_WITHIN: Duration = Duration::from_secs(1);
// First the event is stored and then its installation, so the commit time counts twice.
const _: () = assert!(
    BODY_WITHIN.as_secs() + 2 * COMMIT_WITHIN.as_secs() < 10,
    "the CRM waits 10 s for an answer (§6.9.2)"
);

/// Verifies deliveries, stores their content, and chooses the responses.
#[derive(Debug)]
pub struct Receiver {
    pub spool: Handle,
    /// The current secrets for verifying deliveries.
    pub secrets: Arc<Secrets>,
    pub installations: Installations,
    /// The country of phone numbers without a country code.
    pub country: Option<Country>,
    /// When the program was built. If our clock shows an earlier time, it's wrong.
    pub clock_right_from: EventTime,
    pub tally: Arc<Tally>,
}

/// The response to a delivery, or to a request that isn't one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The result as shown in the response body, in the log, and in metrics, such as `confirmed`.
    pub word: &'static str,
}

impl Receiver {
    /// Starts verifying a delivery with the current secrets.
    pub fn proof(&self, headers: &Headers) -> Proof {
        self.secrets.current().begin(headers)
    }

    /// Verifies a delivery using the `proof` of its signature, stores and counts it, and returns
    /// the response.
    pub async fn take(&self, headers: &Headers, proof: Proof, body: &[u8]) -> Answer {
        let now = clock::now().wall;
        let bench = VerifyContext {
            now,
            right_from: self.clock_right_from,
            country: self.country,
            could_be_ours: self.installations.could_be_ours(&headers.installation),
        };
        let judged = judge(headers, body, proof, bench);
        match &judged {
            Err(Refusal::Mismatch) => self.tally.note_mismatch(&headers.installation, now),
            Ok(_) => self.tally.note_match(&headers.installation),
            Err(_) => {}
        }
        match judged {
            Err(refusal) => self.refuse(&refusal),
            Ok(Verified::Drop { kind, company, why }) => {
                let word = why.word();
                self.tally.count(Some(kind), word, now);
                if let UnusedReason::Foreign(Some(call)) = why {
                    debug!(event = kind, result = word, "a call of another provider");
                    let op = Op::Foreign {
                        company,
                        call,
                        at: now,
                    };
                    // The call is only informational, so the CRM needn't resend it if it can't be
                    // stored.
                    let kept = timeout(COMMIT_WITHIN, self.spool.write(vec![op])).await;
                    if let Ok(Err(error)) = kept {
                        debug!(%error, "a call of another provider could not be stored");
                    }
                } else {
                    debug!(event = kind, result = word, "an event that is not used");
                }
                Answer { status: 200, word }
            }
            Ok(Verified::Keep { delivery }) => {
                let kind = delivery.news.kind();
                let (answer, is_new) = self.keep(&delivery, now).await;
                // The header isn't signed, so a replay could specify any installation.
                if is_new {
                    self.remember(&delivery.installation).await;
                }
                self.tally.count(Some(kind), answer.word, now);
                answer
            }
        }
    }

    /// Remembers that a delivery for this installation was verified. If this can't be stored now,
    /// it will be by the first delivery after the next restart.
    async fn remember(&self, installation: &str) {
        let Some(value) = self.installations.add(installation) else {
            return;
        };
        let op = Op::meta(STORED, value);
        match timeout(COMMIT_WITHIN, self.spool.write(vec![op])).await {
            Ok(Ok(_)) => info!(
                installation,
                "verified the first webhook of this installation"
            ),
            Ok(Err(error)) => debug!(%error, "cannot store an installation"),
            Err(_) => debug!("storing an installation takes long"),
        }
    }

    /// Counts a rejected delivery, logs it at most once a minute, and returns the response.
    pub fn refuse(&self, refusal: &Refusal) -> Answer {
        let status = refusal.status();
        let word = refusal.word();
        let message = match refusal {
            Refusal::Unreadable(message) => message,
            _ => "",
        };
        self.record_refusal(word, status, message);
        Answer { status, word }
    }

    /// Counts a request that wasn't verified, and logs it at most once a minute per `word`.
    /// `message` is a detail for the log.
    pub fn record_refusal(&self, word: &'static str, status: u16, message: &str) {
        let now = clock::now().wall;
        self.tally.count(None, word, now);
        if let Some(times) = self.tally.due(word, now) {
            warn!(
                reason = word,
                status,
                times,
                detail = message,
                "refused a webhook"
            );
        }
    }

    /// Stores a delivery. Returns the response, and `true` if the delivery is new.
    async fn keep(&self, delivery: &Delivery, now: EventTime) -> (Answer, bool) {
        let op = Op::Delivery(Box::new(delivery.clone()));
        match timeout(COMMIT_WITHIN, self.spool.write(vec![op])).await {
            Ok(Ok(done)) => match done.into_iter().next_back() {
                Some(Done::Delivered(delivered)) => {
                    (log_and_answer(delivery, &delivered), is_new(&delivered))
                }
                // This doesn't happen, because the spool's reply to a delivery is `Delivered`.
                Some(_) | None => request_redelivery("disk"),
            },
            Ok(Err(error)) => {
                if let Some(times) = self.tally.due("disk", now) {
                    warn!(%error, times, "cannot store an event; the CRM sends it again");
                }
                request_redelivery("disk")
            }
            Err(_) => {
                if let Some(times) = self.tally.due("slow", now) {
                    warn!(
                        times,
                        "storing an event took longer than a second; the CRM sends it again"
                    );
                }
                request_redelivery("slow")
            }
        }
    }
}

const fn request_redelivery(word: &'static str) -> (Answer, bool) {
    (Answer { status: 503, word }, false)
}

/// Returns `true` if the delivery is neither a replay nor an event of a different or unknown
/// company.
const fn is_new(delivered: &Delivered) -> bool {
    use Delivered::{CompanyUnknown, OtherCompany, Repeat};
    !matches!(delivered, Repeat | CompanyUnknown | OtherCompany)
}

/// Logs a delivery's result, and returns the response to it.
pub(crate) fn log_and_answer(delivery: &Delivery, delivered: &Delivered) -> Answer {
    let event = &delivery.event;
    let installation = &delivery.installation;
    let (uuid, lead) = match &delivery.news {
        WebhookEvent::Completed { uuid, .. } => (Some(uuid.to_string()), None),
        WebhookEvent::Learn(news) => (None, Some(news.lead.get())),
    };
    let (status, word) = match delivered {
        Delivered::Repeat => (200, "repeat"),
        Delivered::CompanyUnknown => {
            debug!(%event, "which company's events are ours is not known before the first answer \
                for the token");
            (503, "company_unknown")
        }
        Delivered::OtherCompany => (200, "other_company"),
        Delivered::Confirmed { row, other_lead } => {
            info!(call = uuid, id = row.0, %event, "journaled, according to a webhook");
            if *other_lead {
                warn!(
                    call = uuid,
                    id = row.0,
                    "the CRM journaled the call under a different lead than the one that was sent"
                );
            }
            (200, "confirmed")
        }
        Delivered::Overtaken(row) => {
            warn!(reason = "conflict", call = uuid, id = row.0, %event, "dead letter");
            (200, "overtaken")
        }
        Delivered::Settled(_) => (200, "settled"),
        Delivered::NotOurs => (200, "not_ours"),
        Delivered::Learned(true) => (200, "learned"),
        Delivered::Learned(false) => (200, "known"),
    };
    debug!(%event, %installation, lead, result = word, "a webhook");
    Answer { status, word }
}

/// Timeout for reading a body. The CRM waits 10 s for a response (§6.9).
pub(crate) const BODY_WITHIN: Duration = Duration::from_secs(4);

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
