//! Decides what a collector sends to its hubs. From responses and `now`, it derives requests, the
//! calls that the hub has stored, and the calls that it refuses. It doesn't use a clock, sockets,
//! or files.
//!
//! Requests are sent one at a time, at least [`REQUEST_EVERY`] apart, so that a branch stays within
//! its limit of 60 requests per minute. A report is sent once a minute.
//!
//! | response | what happens |
//! |---|---|
//! | 200 | `taken` calls are forwarded, `refused` calls become dead letters |
//! | 413 | the next request has half as many lines |
//! | 415 | pause: the hub is older than the collector |
//! | 401, 403 | pause: the token was refused |
//! | 3xx, other 4xx, an unreadable 200 | pause: this isn't the hub, or not a working one |
//! | 429, 5xx, no response | the next hub; after the last one, a backoff of up to 60 s |
//! | no response in time | the same, and the next request has half as many lines |
//!
//! If all hubs have failed, the first of them that responded is asked first in the next round. A
//! standby that answers 503 may soon lead, whereas a frozen hub costs each request 12 s.
//!
//! After a pause, the request is retried every minute.

use crate::protocol::{CallsAnswer, LINES_MAX, ReportAnswer};
use callbridge_call::EventTime;
use callbridge_model::{CallUuid, Reason};
use callbridge_spool::{HubPosition, Offer, Op, RowId, Step};
use std::collections::BTreeSet;
use std::time::Duration;

/// Name of the spool setting for the highest position that the hub has returned.
pub const POSITION: &str = "forward.hub";
/// Name of the spool setting for the random ID by which the hub recognizes this state.
pub const SENDER_ID: &str = "forward.sender";
/// Shortest time between two requests.
pub const REQUEST_EVERY: Duration = Duration::from_millis(1_100);
/// Time between two reports.
pub const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Time after which a paused request is retried.
pub const PAUSE: Duration = Duration::from_secs(60);
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// A `Retry-After` longer than this is cut short.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Maximum number of characters that a message quotes from a hub's error.
const ERROR_CHARS: usize = 300;

/// A call in a request. Calls are in the same order as the request's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchCall {
    pub row: RowId,
    pub uuid: CallUuid,
}

/// The result of a request to a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Answer {
        status: u16,
        retry_after: Option<Duration>,
        body: Vec<u8>,
    },
    /// No response arrived, although the hub may have stored the calls.
    Lost(String),
    /// The hub got the request but didn't respond in time, although it may have stored the calls.
    TimedOut(String),
    /// The token can't be read, so nothing was sent.
    NoToken(String),
}

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send up to this many calls to the hub with this number.
    Calls { hub: usize, lines: usize },
    /// Send a report to the hub with this number.
    Report { hub: usize },
    /// Send nothing before this time, unless a call becomes ready.
    WaitUntil(Duration),
}

/// Why calls aren't being forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardProblem {
    /// One of [`PAUSES`](callbridge_model::status::PAUSES).
    pub reason: &'static str,
    /// Message with the hub, the problem, and the fix.
    pub message: String,
}

/// The changes that result from a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub forwarded: Vec<RowId>,
    /// Calls that the hub refuses, each with its reason.
    pub refused: Vec<(RowId, String)>,
    /// The position to store, or `None` if it isn't newer.
    pub position: Option<HubPosition>,
    /// Whether the hub's incarnation differs from the previous one, in which case all forwarded
    /// calls are resent.
    pub new_incarnation: bool,
}

impl Outcome {
    /// Returns the operations for the response as a whole, and the steps for individual calls. The
    /// spool refuses a step if someone has changed its call in the meantime.
    pub fn ops(self, at: EventTime) -> (Vec<Op>, Vec<Op>) {
        let mut ops = Vec::new();
        if self.new_incarnation {
            let offer = Offer::Forwarded;
            ops.push(Op::Offer { offer, at });
        }
        if let Some(position) = &self.position {
            let text = serde_json::to_string(position).unwrap_or_default();
            ops.push(Op::meta(POSITION, text));
        }
        let mut steps = Vec::new();
        for row in self.forwarded {
            steps.push(Op::step(row, Step::Forwarded, at));
        }
        for (row, message) in self.refused {
            let died = Step::Died {
                reason: Reason::Rejected,
                message,
                errors: serde_json::Value::Null,
            };
            steps.push(Op::step(row, died, at));
        }
        (ops, steps)
    }
}

/// State of the connection to the hubs.
#[derive(Debug)]
pub struct ForwardCore {
    /// The hubs' addresses, for messages.
    hubs: Vec<String>,
    /// Number of the hub that gets the next request.
    hub: usize,
    /// Number of hubs that have failed since the last success or backoff.
    failed: usize,
    /// Number of the first hub that responded in this round, although it failed.
    responding: Option<usize>,
    /// Number of consecutive rounds in which all hubs failed.
    rounds: u32,
    lines: usize,
    not_before: Duration,
    report_at: Duration,
    seen: Option<HubPosition>,
    problem: Option<ForwardProblem>,
    /// Spreads out the backoffs of different collectors.
    seed: u64,
}

/// What a response means, before it's applied.
enum Verdict<T> {
    Taken(T),
    TooLarge,
    Pause(ForwardProblem),
    Failure(Failure),
}

struct Failure {
    /// Whether the hub responded at all.
    has_responded: bool,
    retry_after: Option<Duration>,
    message: String,
}

impl ForwardCore {
    /// Creates a core. `seen` is the highest position from an earlier run, and `first_report` is
    /// the time since boot at which the first report is due.
    pub fn new(
        hubs: Vec<String>,
        seen: Option<HubPosition>,
        seed: u64,
        first_report: Duration,
    ) -> Self {
        Self {
            hubs,
            hub: 0,
            failed: 0,
            responding: None,
            rounds: 0,
            lines: LINES_MAX,
            not_before: Duration::ZERO,
            report_at: first_report,
            seen,
            problem: None,
            seed,
        }
    }

    /// Returns the highest position so far, for request headers.
    pub fn seen(&self) -> Option<&HubPosition> {
        self.seen.as_ref()
    }

    /// Returns why nothing is being forwarded, or `None` while calls are forwarded.
    pub fn problem(&self) -> Option<&ForwardProblem> {
        self.problem.as_ref()
    }

    /// Returns the address of the hub that gets the next request.
    pub fn hub(&self) -> &str {
        self.hubs.get(self.hub).map_or("", String::as_str)
    }

    /// Returns the number of the hub that gets the next request.
    pub fn hub_number(&self) -> usize {
        self.hub
    }

    /// Decides the next request. `ready` tells whether there's a call to forward.
    pub fn next(&mut self, now: Duration, ready: bool) -> Next {
        if now < self.not_before {
            return Next::WaitUntil(self.not_before);
        }
        let hub = self.hub;
        if self.report_at <= now {
            self.report_at = now + REPORT_EVERY;
            self.not_before = now + REQUEST_EVERY;
            return Next::Report { hub };
        }
        if ready {
            self.not_before = now + REQUEST_EVERY;
            let lines = self.lines;
            return Next::Calls { hub, lines };
        }
        Next::WaitUntil(self.report_at)
    }

    /// Applies the response to a request with these calls.
    pub fn calls_answered(&mut self, now: Duration, batch: &[BatchCall], reply: Reply) -> Outcome {
        if matches!(reply, Reply::TimedOut(_)) {
            self.halve(batch.len());
        }
        let verdict = self.verdict::<CallsAnswer>(reply);
        let answer = match verdict {
            Verdict::Taken(answer) => answer,
            Verdict::TooLarge if batch.len() > 1 => {
                self.halve(batch.len());
                return Outcome::default();
            }
            Verdict::TooLarge => {
                let problem = self.pause(
                    "hub_refuses",
                    "refused one call because of its size (413); raise the limit of the proxy in \
                     front of the hub to 1 MiB",
                );
                self.pause_with(now, problem);
                return Outcome::default();
            }
            Verdict::Pause(problem) => {
                self.pause_with(now, problem);
                return Outcome::default();
            }
            Verdict::Failure(failure) => {
                self.fail(now, failure);
                return Outcome::default();
            }
        };
        self.succeed(batch.len());
        let mut outcome = Outcome::default();
        self.note_position(answer.position, &mut outcome);
        let taken: BTreeSet<CallUuid> = answer.taken.into_iter().collect();
        let mut left_out = 0;
        for (at, call) in batch.iter().enumerate() {
            let refused = answer.refused.iter().find(|refused| refused.line == at + 1);
            match refused {
                _ if taken.contains(&call.uuid) => outcome.forwarded.push(call.row),
                Some(refused) => {
                    let error = cut(&refused.error);
                    let message = format!("the hub refused the call: {error}");
                    outcome.refused.push((call.row, message));
                }
                None => left_out += 1,
            }
        }
        if left_out > 0 {
            let problem = self.pause(
                "hub_refuses",
                &format!(
                    "left {left_out} calls of the request out of its answer; check its version"
                ),
            );
            self.pause_with(now, problem);
        }
        outcome
    }

    /// Applies the response to a report.
    pub fn report_answered(&mut self, now: Duration, reply: Reply) -> Outcome {
        let mut outcome = Outcome::default();
        match self.verdict::<ReportAnswer>(reply) {
            Verdict::Taken(answer) => {
                self.succeed(0);
                self.note_position(answer.position, &mut outcome);
            }
            Verdict::TooLarge => {
                let problem = self.pause("hub_refuses", "refused a report because of its size");
                self.pause_with(now, problem);
            }
            Verdict::Pause(problem) => self.pause_with(now, problem),
            Verdict::Failure(failure) => self.fail(now, failure),
        }
        outcome
    }

    fn verdict<T: serde::de::DeserializeOwned>(&self, reply: Reply) -> Verdict<T> {
        let (status, retry_after, body) = match reply {
            Reply::Answer {
                status,
                retry_after,
                body,
            } => (status, retry_after, body),
            Reply::Lost(message) | Reply::TimedOut(message) => {
                return Verdict::Failure(Failure {
                    has_responded: false,
                    retry_after: None,
                    message,
                });
            }
            Reply::NoToken(message) => {
                return Verdict::Pause(ForwardProblem {
                    reason: "hub_token_refused",
                    message,
                });
            }
        };
        let error = error_text(&body);
        match status {
            200 => match serde_json::from_slice(&body) {
                Ok(answer) => Verdict::Taken(answer),
                Err(_) => Verdict::Pause(self.pause(
                    "hub_refuses",
                    "answered 200 with a body that is not a hub's; check the address in --forward",
                )),
            },
            413 => Verdict::TooLarge,
            415 => Verdict::Pause(self.pause(
                "hub_older",
                "does not know this version of call messages; upgrade the hub first",
            )),
            401 | 403 => Verdict::Pause(self.pause(
                "hub_token_refused",
                &format!(
                    "refuses the token ({status}{error}); put the token that `callbridge branch \
                     add` or `branch rotate` printed into the file of --forward-token-file"
                ),
            )),
            429 | 500.. => Verdict::Failure(Failure {
                has_responded: true,
                retry_after,
                message: format!("{} answered {status}{error}", self.hub()),
            }),
            _ => Verdict::Pause(self.pause(
                "hub_refuses",
                &format!("answered {status}{error}; check the address in --forward"),
            )),
        }
    }

    fn pause(&self, reason: &'static str, what: &str) -> ForwardProblem {
        let message = format!("{} {what}", self.hub());
        ForwardProblem { reason, message }
    }

    fn pause_with(&mut self, now: Duration, problem: ForwardProblem) {
        self.problem = Some(problem);
        self.failed = 0;
        self.responding = None;
        self.not_before = now + PAUSE;
        self.next_hub();
    }

    fn fail(&mut self, now: Duration, failure: Failure) {
        let Failure {
            has_responded,
            retry_after,
            message,
        } = failure;
        if has_responded {
            self.responding.get_or_insert(self.hub);
        }
        self.problem = Some(ForwardProblem {
            reason: "hub_unreachable",
            message,
        });
        self.next_hub();
        self.failed += 1;
        if self.failed < self.hubs.len() {
            self.not_before = now;
            return;
        }
        self.failed = 0;
        if let Some(hub) = self.responding.take() {
            self.hub = hub;
        }
        let backoff = BACKOFF_MIN.saturating_mul(1 << self.rounds.min(10));
        self.rounds += 1;
        let wait = self.shorten(backoff.min(BACKOFF_MAX));
        let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        self.not_before = now + wait.max(asked).max(REQUEST_EVERY);
    }

    /// Returns a backoff, shortened by up to a quarter.
    fn shorten(&mut self, backoff: Duration) -> Duration {
        // An xorshift generator, so that the same seed produces the same waits.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let less = u32::try_from(self.seed % 256).unwrap_or(0);
        backoff - backoff / 4 * less / 256
    }

    fn next_hub(&mut self) {
        self.hub = (self.hub + 1) % self.hubs.len().max(1);
    }

    /// Makes the next request half the size of one with this many lines.
    fn halve(&mut self, lines: usize) {
        self.lines = (lines / 2).max(1);
    }

    fn succeed(&mut self, lines: usize) {
        self.problem = None;
        self.failed = 0;
        self.responding = None;
        self.rounds = 0;
        if lines >= self.lines {
            self.lines = (self.lines * 2).min(LINES_MAX);
        }
    }

    fn note_position(&mut self, position: HubPosition, outcome: &mut Outcome) {
        let newer = match &self.seen {
            Some(seen) if seen.incarnation == position.incarnation => seen.seq < position.seq,
            Some(_) => {
                outcome.new_incarnation = true;
                true
            }
            None => true,
        };
        if newer {
            self.seen = Some(position.clone());
            outcome.position = Some(position);
        }
    }
}

/// Returns a response's error in the form in which a message quotes it: `: no branch has this
/// token`.
fn error_text(body: &[u8]) -> String {
    match serde_json::from_slice::<crate::protocol::ErrorAnswer>(body) {
        Ok(answer) if !answer.error.is_empty() => format!(": {}", cut(&answer.error)),
        Ok(_) | Err(_) => String::new(),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(ERROR_CHARS).collect()
}
