//! Requests about leads, beside the calls: when they go out, and what their answers mean for the
//! line. What is due of them says the spool; what an answer means for the errand itself says
//! [`callbridge_leads::errand`].

use super::cause::Cause;
use super::core::Core;
use super::flight::Flight;
use super::kind::Kind;
use super::outcome::{Ended, Outcome};
use super::plan::{Lane, Task};
use super::troubles::Extent;
use super::verdict::Halt;
use callbridge_crm::{Answer, Endpoint, Request};
use callbridge_leads::errand;
use callbridge_leads::errand::FieldWrite;
use callbridge_leads::errand::due::{Asked, Errand, Ticket, Urgency};
use callbridge_model::clock::Now;
use callbridge_spool::{Head, Op};
use std::collections::VecDeque;
use std::time::Duration;

/// While calls wait to be submitted, one errand in this time.
const LOADED_EVERY: Duration = Duration::from_secs(10);

/// An errand whose answer changed nothing of what is due is not sent again sooner.
const AGAIN: Duration = Duration::from_secs(60);

/// Errands that commands may have waiting.
const ASKED_MAX: usize = 16;

/// What is remembered of errands.
#[derive(Debug, Default)]
pub(super) struct Errands {
    /// Asked for by commands, the first one first.
    asked: VecDeque<(Ticket, Asked)>,
    /// None goes out before, while calls wait.
    from: Duration,
    /// The last ones answered, and when.
    pub(super) answered: VecDeque<(Errand, Duration)>,
}

impl Core {
    /// Somebody asks for this, and waits; `false` when too many do.
    pub fn asked(&mut self, ticket: Ticket, asked: Asked) -> bool {
        let room = self.errands.asked.len() < ASKED_MAX;
        if room {
            self.errands.asked.push_back((ticket, asked));
        }
        room
    }

    /// They wait no longer; `false` when it is under way already.
    pub fn not_asked(&mut self, ticket: Ticket) -> bool {
        let before = self.errands.asked.len();
        self.errands.asked.retain(|(it, _)| *it != ticket);
        self.errands.asked.len() < before
    }

    /// The CRM takes no calls, and what commands ask is asked all the same.
    pub fn asks_all_the_same(&self) -> bool {
        let cause = self.line.pause_cause().map(|(cause, _)| cause);
        cause == Some(Cause::Outage(Extent::Submissions)) && !self.settings.dry_run
    }

    /// What a command asks while calls are tried one by one, for none is taken.
    pub(super) fn asked_in_outage(&self, now: Now) -> Option<(Lane, Task)> {
        let (ticket, asked) = self.errands.asked.front()?;
        let errand = Errand::Asked(*ticket, asked.clone());
        let may = self.asks_all_the_same() && self.may_go(now, &errand);
        may.then(|| (Lane::Errand, Task::Errand(Box::new(errand))))
    }

    /// The errand that goes before a call of this lane; the one that can wait where none goes out.
    pub(super) fn errand(&self, now: Now, head: &Head, before: Lane) -> Option<(Lane, Task)> {
        if self.settings.dry_run {
            return None;
        }
        if before > Lane::Live
            && let Some((ticket, asked)) = self.errands.asked.front()
        {
            let errand = Errand::Asked(*ticket, asked.clone());
            if self.may_go(now, &errand) {
                return Some((Lane::Errand, Task::Errand(Box::new(errand))));
            }
        }
        let mut due = head.errands.due.iter().filter_map(|job| {
            let lane = match job.urgency {
                Urgency::Ending => Lane::Deadline,
                Urgency::Soon => Lane::Errand,
                Urgency::Spare => Lane::Spare,
            };
            let turn = match lane {
                Lane::Deadline => before > Lane::Deadline,
                Lane::Errand => {
                    before >= Lane::Backlog && (!self.load.loaded || self.errands.from <= now.boot)
                }
                _ => before == Lane::Spare && self.flights.count() == 0,
            };
            (turn && self.may_go(now, &job.errand)).then_some((lane, &job.errand))
        });
        let (lane, errand) = due.next()?;
        Some((lane, Task::Errand(Box::new(errand.clone()))))
    }

    fn may_go(&self, now: Now, errand: &Errand) -> bool {
        let just = |(it, at): &(Errand, Duration)| it == errand && *at + AGAIN > now.boot;
        // a command is told by the service itself that it may not ask
        let asks = matches!(errand, Errand::FieldPoll(_));
        errand
            .token()
            .is_none_or(|token| self.tokens.reads(now, token))
            && !(asks && self.rights.polls_barred(now.boot))
            && self.is_granted(errand)
            && !self.flights.errands().any(|other| other.is_like(errand))
            && !self.errands.answered.iter().any(just)
    }

    /// What the token's record shows that it may not do is not tried (§5.4). A command is told by
    /// the service itself.
    fn is_granted(&self, errand: &Errand) -> bool {
        let scope = match errand {
            Errand::LookUp(_) => "READ",
            Errand::FieldWrite(_) => "SAVE",
            Errand::Catalogue | Errand::FieldPoll(_) | Errand::Backfill(_) | Errand::Asked(..) => {
                return true;
            }
        };
        self.tokens.may_with_leads(scope)
    }

    /// Makes its request.
    pub(super) fn run_errand(
        &mut self,
        now: Now,
        errand: &Errand,
        write: Option<FieldWrite>,
        ops: &mut Vec<Op>,
    ) -> Option<Request> {
        let body = write.as_ref().filter(|it| !it.items.is_empty());
        let body = body.map(|it| it.body.clone());
        if matches!(errand, Errand::FieldWrite(_)) && body.is_none() {
            // nothing is left of it that could be written
            ops.extend(
                errand::launched(now.wall, errand, write)
                    .into_iter()
                    .map(Op::Lead),
            );
            return None;
        }
        let request = match errand {
            Errand::LookUp(lead) => Request::Lead(*lead),
            Errand::Catalogue | Errand::Asked(_, Asked::CrmFields) => Request::CrmFields,
            Errand::FieldWrite(lead) => Request::FieldList {
                lead: *lead,
                body: body?,
            },
            Errand::Asked(_, Asked::FieldList { lead, body }) => Request::FieldList {
                lead: *lead,
                body: body.clone(),
            },
            Errand::FieldPoll(poll) => Request::Poll {
                request_id: poll.request_id.clone(),
            },
            Errand::Asked(_, Asked::Poll { request_id, .. }) => Request::Poll {
                request_id: request_id.clone(),
            },
            Errand::Backfill(page) => Request::Leads(*page),
        };
        if let Errand::Asked(ticket, _) = errand {
            self.not_asked(*ticket);
        }
        self.errands.from = now.boot + LOADED_EVERY;
        ops.extend(
            errand::launched(now.wall, errand, write)
                .into_iter()
                .map(Op::Lead),
        );
        Some(request)
    }

    /// Judges the answer to an errand: a dead token and a 429 stop the line, all else is the
    /// errand's own affair.
    pub(super) fn errand_answered(
        &mut self,
        now: Now,
        flight: &Flight,
        errand: Errand,
        answer: Answer,
        mut ops: Vec<Op>,
    ) -> Outcome {
        let endpoint = flight.plan.task.endpoint();
        let mut kind = Kind::Errand;
        match &answer {
            Answer::Unauthorized | Answer::TokenState { .. } => {
                kind = Kind::TokenRefused;
                self.tokens.over(&flight.token);
                if self.tokens.is_current(&flight.token) {
                    let words = answer.words();
                    self.halted(now, &flight.token, Halt::TokenRefused, &words);
                }
            }
            Answer::Forbidden { .. } if endpoint == Endpoint::Poll => {
                self.errand_unpolled(now, &answer.words());
            }
            Answer::TooMany => {
                kind = Kind::TooMany;
                self.too_many(flight, now, &mut ops);
            }
            _ => {}
        }
        let settled = errand::settle(now.wall, &errand, &answer, &flight.token);
        let unchanged = settled.changes.is_empty();
        ops.extend(settled.changes.into_iter().map(Op::Lead));
        let answered = &mut self.errands.answered;
        answered.retain(|(_, at)| *at + AGAIN > now.boot);
        if unchanged && !matches!(errand, Errand::Asked(..)) {
            answered.push_back((errand.clone(), now.boot));
        }
        let verdict = word(&answer);
        self.count(endpoint, verdict);
        self.remember(now, &mut ops);
        Outcome {
            ops,
            row: None,
            request_id: None,
            endpoint,
            ended: if settled.done {
                Ended::Well
            } else {
                Ended::Again
            },
            verdict,
            kind,
            words: settled.words,
            swept: Vec::new(),
            errand: Some((errand, answer, flight.token.clone())),
        }
    }
}

/// The label of metrics: fixed words.
const fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Told(_) | Answer::Page(_) | Answer::TokenInfo(_) => "told",
        Answer::Accepted { .. } => "submitted",
        Answer::StatusSuccess => "written",
        Answer::StatusFailed { .. } => "failed",
        Answer::StatusPending { .. } => "not_yet",
        Answer::Conflict { .. } | Answer::NotFound { .. } => "missing",
        Answer::Rejected { .. } | Answer::OtherClientError { .. } => "rejected",
        Answer::Forbidden { .. } => "no_grant",
        Answer::WrongAddress { .. } => "wrong_address",
        Answer::Unauthorized | Answer::TokenState { .. } => "token_refused",
        Answer::TooMany => "too_many",
        Answer::AcceptedWithoutId
        | Answer::NotAccepted { .. }
        | Answer::ServerError { .. }
        | Answer::BrokenBody { .. }
        | Answer::TimedOut
        | Answer::Lost { .. }
        | Answer::NotConnected { .. }
        | Answer::TlsRefused { .. } => "fault",
    }
}
