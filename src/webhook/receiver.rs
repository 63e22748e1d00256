//! Takes deliveries: judges them, has them kept, and says what to answer.

use super::headers::Headers;
use super::judge::{Bench, Judged, Refusal, judge};
use super::secrets::Secrets;
use super::tally::Tally;
use crate::clock;
use crate::journal::figures;
use crate::journal::number::Country;
use crate::spool::{Delivered, Delivery, Done, Handle, Op, Told};
use callbridge_call::EventTime;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// A commit that takes longer is answered with 503. The event may be kept all the same; then it is
/// known when it comes again.
const COMMIT_WITHIN: Duration = Duration::from_secs(1);
/// Under which name it is remembered which installation `connect`'s secret belongs to.
pub const BOUND: &str = "webhook.installation";

/// Takes deliveries.
#[derive(Debug)]
pub struct Receiver {
    /// Where they are kept.
    pub spool: Handle,
    /// What proves them.
    pub secrets: Arc<Secrets>,
    /// Whose phones have no country's code.
    pub country: Option<Country>,
    /// What came of them.
    pub tally: Arc<Tally>,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The word for it.
    pub word: &'static str,
}

impl Receiver {
    /// Judges a delivery, keeps it, and says what to answer.
    pub async fn take(&self, headers: &Headers, body: &[u8]) -> Answer {
        let now = clock::now().wall;
        let bench = Bench {
            now,
            right_from: figures::right_from(),
            country: self.country,
        };
        let keyring = self.secrets.current();
        match judge(headers, body, &keyring, bench) {
            Err(refusal) => self.refuse(&refusal),
            Ok(Judged::Drop { kind, why }) => {
                self.tally.count(Some(kind), why.word(), now);
                let word = why.word();
                debug!(
                    event = kind,
                    result = word,
                    "an event that says nothing to us"
                );
                Answer { status: 200, word }
            }
            Ok(Judged::Keep {
                kind,
                delivery,
                binds,
            }) => {
                let mut ops = Vec::new();
                if let Some(connection) = keyring.connection.as_ref().filter(|_| binds) {
                    ops.push(Op::Meta {
                        key: BOUND.to_owned(),
                        value: connection.binding(&delivery.installation),
                    });
                }
                ops.push(Op::Delivery(delivery.clone()));
                let answer = self.keep(&delivery, ops, now).await;
                if binds && answer.status == 200 {
                    self.secrets.bind(&delivery.installation);
                }
                self.tally.count(Some(kind), answer.word, now);
                answer
            }
        }
    }

    /// Counts what is not taken, and tells of it now and then.
    pub fn refuse(&self, refusal: &Refusal) -> Answer {
        let (status, word) = (refusal.status(), refusal.word());
        let words = match refusal {
            Refusal::Unreadable(words) => words,
            Refusal::NoHeaders
            | Refusal::Malformed
            | Refusal::NoSecret
            | Refusal::Forged
            | Refusal::Stale
            | Refusal::Clock
            | Refusal::OtherId => "",
        };
        self.turned_away(word, status, words);
        Answer { status, word }
    }

    /// The same for what never came to be judged.
    pub fn turned_away(&self, word: &'static str, status: u16, words: &str) {
        let now = clock::now().wall;
        self.tally.count(None, word, now);
        if let Some(times) = self.tally.tell(word, now) {
            warn!(reason = word, status, times, words, "a webhook is refused");
        }
    }

    async fn keep(&self, delivery: &Delivery, ops: Vec<Op>, now: EventTime) -> Answer {
        let answer = |status, word| Answer { status, word };
        let done = match timeout(COMMIT_WITHIN, self.spool.write(ops)).await {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => {
                if let Some(times) = self.tally.tell("disk", now) {
                    warn!(%error, times, "an event cannot be kept; it comes again");
                }
                return answer(503, "disk");
            }
            Err(_) => {
                if let Some(times) = self.tally.tell("slow", now) {
                    warn!(
                        times,
                        "the disk takes longer than a second for an event; it comes again"
                    );
                }
                return answer(503, "slow");
            }
        };
        match done.last() {
            Some(Done::Delivered(delivered)) => told(delivery, delivered),
            // A delivery is answered as one.
            Some(_) | None => answer(503, "disk"),
        }
    }
}

/// What became of a delivery: the line in the log, and the answer.
fn told(delivery: &Delivery, delivered: &Delivered) -> Answer {
    let (event, installation) = (&delivery.event, &delivery.installation);
    let (uuid, lead) = match &delivery.told {
        Told::Completed { uuid, .. } => (Some(uuid.to_string()), None),
        Told::Learn(news) => (None, Some(news.lead.get())),
    };
    let (status, word) = match delivered {
        Delivered::Repeat => (200, "repeat"),
        Delivered::CompanyUnknown => {
            debug!(%event, "whose events are ours is not known before the token's first answer");
            (503, "company_unknown")
        }
        Delivered::OtherCompany => (200, "other_company"),
        Delivered::Confirmed { row, elsewhere } => {
            info!(call = uuid, id = row.0, %event, "journaled, a webhook says");
            if *elsewhere {
                warn!(
                    call = uuid,
                    id = row.0,
                    "the CRM put it down to another lead than was sent"
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
        Delivered::Learned { new: true } => (200, "learned"),
        Delivered::Learned { new: false } => (200, "known"),
    };
    debug!(%event, %installation, lead, result = word, "a webhook");
    Answer { status, word }
}
