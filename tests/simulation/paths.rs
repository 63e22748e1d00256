//! The possible paths, made from the enums, and the paths that runs have met.
//!
//! A new variant of an enum does not compile until this file names the variant. A run must meet
//! each path, unless [`Path::impossible`] gives a reason why the path cannot happen.

use crate::simulation::strikes::Moment;
use crate::support::simulated_calls;
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiReply, ApiResult, Endpoint, WriteStatus};
use callbridge_model::status::PAUSES;
use callbridge_model::{Reason, TokenFingerprint};
use callbridge_sender::outcome::VerdictKind;
use callbridge_sender::queue::Lane;
use callbridge_spool::{IfAbsent, OutcomeSource, State, Step, next};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use strum::VariantArray;

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// A request of this lane got this verdict while its call was in this state.
    Verdict {
        lane: Lane,
        endpoint: Endpoint,
        kind: VerdictKind,
        state: Option<State>,
    },
    /// A request got this answer.
    Answer(Endpoint, &'static str),
    /// A call took a step.
    Step { state: State, step: &'static str },
    /// Sending paused for this reason.
    Pause(&'static str),
    /// The process, its machine, or the CRM had this failure.
    Hardship(Hardship),
}

/// A failure that the simulation causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hardship {
    Killed,
    KilledUnderWay,
    StruckAtChoice,
    StruckAtWriting,
    StruckAfterCommit,
    StruckAtAnswer,
    StruckAtStart,
    WrittenInDoubt,
    Rebooted,
    Stopped,
    Stalled,
    RateChanged,
    ClockForward,
    ClockBack,
    DiskFull,
    DiskFailing,
    SnapshotRestored,
    TokenReplaced,
    TokenMissing,
    TokenOfAnother,
    TokenEnded,
    CompanyBlocked,
    SaveTaken,
    ReadTaken,
    Outage,
    Silence,
    Mistrusted,
    BodyMangled,
    LongNight,
    TokenRefreshed,
    WebhooksCut,
    AnswerOvertaken,
}

impl Hardship {
    pub const ALL: [Self; 32] = [
        Self::Killed,
        Self::KilledUnderWay,
        Self::StruckAtChoice,
        Self::StruckAtWriting,
        Self::StruckAfterCommit,
        Self::StruckAtAnswer,
        Self::StruckAtStart,
        Self::WrittenInDoubt,
        Self::Rebooted,
        Self::Stopped,
        Self::Stalled,
        Self::RateChanged,
        Self::ClockForward,
        Self::ClockBack,
        Self::DiskFull,
        Self::DiskFailing,
        Self::SnapshotRestored,
        Self::TokenReplaced,
        Self::TokenMissing,
        Self::TokenOfAnother,
        Self::TokenEnded,
        Self::CompanyBlocked,
        Self::SaveTaken,
        Self::ReadTaken,
        Self::Outage,
        Self::Silence,
        Self::Mistrusted,
        Self::BodyMangled,
        Self::LongNight,
        Self::TokenRefreshed,
        Self::WebhooksCut,
        Self::AnswerOvertaken,
    ];

    /// Returns the hardship of a kill or stall at this moment.
    pub const fn from_moment(moment: Moment) -> Self {
        match moment {
            Moment::Chosen => Self::StruckAtChoice,
            Moment::Writing => Self::StruckAtWriting,
            Moment::Committed => Self::StruckAfterCommit,
            Moment::Answered => Self::StruckAtAnswer,
            Moment::Started => Self::StruckAtStart,
        }
    }
}

/// The names of all answers.
const ANSWERS: [&str; 18] = [
    "accepted",
    "success",
    "failed",
    "pending",
    "page",
    "token info",
    "data",
    "token refused",
    "forbidden",
    "not found",
    "wrong address",
    "rejected",
    "too many",
    "server error",
    "unreadable",
    "timed out",
    "lost",
    "not connected, or TLS refused",
];

/// Returns the index of an answer's name.
const fn place(answer: &ApiResult) -> usize {
    match answer {
        Ok(ApiReply::Accepted(..)) => 0,
        Ok(ApiReply::Status(WriteStatus::Success)) => 1,
        Ok(ApiReply::Status(WriteStatus::Failed(..))) => 2,
        Ok(ApiReply::Status(WriteStatus::Pending(..))) => 3,
        Ok(ApiReply::Page(_)) => 4,
        Ok(ApiReply::TokenInfo(_)) => 5,
        Ok(ApiReply::Data(_)) => 6,
        Err(ApiError::TokenRefused { .. }) => 7,
        Err(ApiError::Forbidden(..)) => 8,
        Err(ApiError::NotFound { .. }) => 9,
        Err(ApiError::WrongAddress { .. }) => 10,
        Err(ApiError::Rejected { .. }) => 11,
        Err(ApiError::TooMany(..)) => 12,
        Err(ApiError::Server { .. }) => 13,
        Err(ApiError::Unreadable(..)) => 14,
        Err(ApiError::TimedOut) => 15,
        Err(ApiError::Lost(..)) => 16,
        // Nothing was sent.
        Err(ApiError::NotConnected(..) | ApiError::TlsRefused(..) | ApiError::TooLate) => 17,
    }
}

/// Returns one step of each name. A new step does not compile until this function lists it.
pub fn steps() -> Vec<Step> {
    let (at, words) = (EventTime::from_seconds(0), String::new);
    let record = simulated_calls::call(0, at, 4001, false).judged.record;
    let all = vec![
        Step::Send,
        Step::Accepted {
            request_id: words(),
            token: TokenFingerprint::of(""),
        },
        Step::Returned {
            not_before: at,
            why: words(),
            failures: 0,
        },
        Step::Journaled(OutcomeSource::Confirmation),
        Step::Journaled(OutcomeSource::Webhook),
        Step::NotYet {
            next_check: at,
            absent: None,
        },
        Step::NotYet {
            next_check: at,
            absent: Some(1),
        },
        Step::Unresolved {
            next_check: at,
            if_absent: IfAbsent::Resubmit,
            why: words(),
        },
        Step::Resubmit { why: words() },
        Step::Died {
            reason: Reason::Failed,
            message: words(),
            errors: serde_json::Value::Null,
        },
        Step::Retry {
            by_itself: true,
            record: record.clone(),
        },
        Step::Retry {
            by_itself: false,
            record: record.clone(),
        },
        Step::Recheck {
            record: record.clone(),
            before: words(),
        },
        Step::Rejudged {
            reason: Reason::NoLead,
            message: words(),
        },
        Step::Moved {
            record: Box::new(record),
            reroute_history: Default::default(),
            why: words(),
        },
        Step::Expire,
        Step::Discard,
        Step::Reopened { why: words() },
        Step::SendAgain { why: words() },
        Step::Forwarded,
    ];
    for step in &all {
        match step {
            Step::Send | Step::Accepted { .. } | Step::Returned { .. } => {}
            Step::Journaled(_) | Step::NotYet { .. } | Step::Resubmit { .. } => {}
            Step::Unresolved { .. } | Step::Recheck { .. } => {}
            Step::Died { .. } | Step::Retry { .. } => {}
            Step::Rejudged { .. } | Step::Moved { .. } | Step::Expire => {}
            Step::Discard | Step::Reopened { .. } => {}
            Step::SendAgain { .. } | Step::Forwarded => {}
        }
    }
    all
}

impl Path {
    /// Returns the path of an answer.
    pub const fn answer(endpoint: Endpoint, answer: &ApiResult) -> Self {
        Self::Answer(endpoint, ANSWERS[place(answer)])
    }

    /// Returns every combination of the enums, possible or not.
    pub fn all() -> Vec<Self> {
        let states: Vec<Option<State>> = [None]
            .into_iter()
            .chain(State::ALL.iter().copied().map(Some))
            .collect();
        let mut all = Vec::new();
        for &lane in Lane::VARIANTS {
            for endpoint in Endpoint::CALLS {
                for &kind in VerdictKind::VARIANTS {
                    all.extend(states.iter().map(|&state| Self::Verdict {
                        lane,
                        endpoint,
                        kind,
                        state,
                    }));
                }
            }
        }
        for endpoint in Endpoint::CALLS {
            all.extend(ANSWERS.map(|answer| Self::Answer(endpoint, answer)));
        }
        for &state in State::ALL {
            let steps = steps();
            all.extend(steps.iter().map(|step| Self::Step {
                state,
                step: step.name(),
            }));
        }
        all.extend(PAUSES.map(Self::Pause));
        all.extend(Hardship::ALL.map(Self::Hardship));
        all
    }

    /// Returns `true` if this many seeds should have met the path.
    pub fn is_due(self, seeds: u64) -> bool {
        let from = match self {
            Self::Hardship(Hardship::Killed | Hardship::KilledUnderWay) => 8,
            Self::Hardship(_) | Self::Pause(_) => 100,
            // A webhook must come after the call was given up, or a call that might have been
            // written must get another lead. A call is given up after an hour of failures, or
            // after a day.
            Self::Step {
                state: State::Dead,
                step: "hooked" | "recheck",
            } => 10_000,
            // The probe `token/info` must be sent while no call waits.
            Self::Verdict {
                lane: Lane::StandIn,
                kind,
                ..
            } if kind != VerdictKind::Record => 10_000,
            // The grant must be lost shortly before a requestId can no longer be read.
            Self::Verdict {
                lane: Lane::Deadline,
                kind: VerdictKind::NotGranted,
                ..
            } => 10_000,
            // A stall must happen at one of many moments.
            Self::Verdict {
                kind: VerdictKind::TooLate,
                ..
            } => 10_000,
            Self::Verdict { .. } | Self::Answer(..) | Self::Step { .. } => 1000,
        };
        seeds >= from
    }

    /// Returns the reason why the path cannot happen, or `None` if a run must meet the path.
    pub fn impossible(self) -> Option<&'static str> {
        match self {
            Self::Verdict {
                lane,
                endpoint,
                kind,
                state,
            } => no_such_request(lane, endpoint)
                .or_else(|| no_such_state(endpoint, state))
                .or_else(|| no_such_verdict(endpoint, kind)),
            Self::Answer(endpoint, answer) => no_such_answer(endpoint, answer),
            Self::Step { state, step } => no_such_step(state, step),
            Self::Pause("disk") => Some("the daemon's word for what is `spool` here"),
            Self::Pause("reconnect" | "client_refused") => {
                Some("whoever keeps a connection is simulated in `tokens`")
            }
            Self::Pause("split_database") => Some("two databases"),
            Self::Pause("takeover") => Some("one process on one machine"),
            Self::Pause(pause) if pause.starts_with("hub_") => Some("a collector's"),
            Self::Pause("dry_run") => Some("--dry-run submits nothing: nothing to simulate"),
            Self::Pause(_) | Self::Hardship(_) => None,
        }
    }
}

fn no_such_request(lane: Lane, endpoint: Endpoint) -> Option<&'static str> {
    let asks: &[Endpoint] = match lane {
        Lane::Token | Lane::StandIn => &[Endpoint::TokenInfo],
        Lane::Deadline => &[Endpoint::Poll],
        Lane::Live | Lane::Backlog => &[Endpoint::Submit],
        Lane::DueConfirmation | Lane::Confirmation => &[Endpoint::Filter, Endpoint::Poll],
        // There is no request, or only a request about leads, so no call is involved.
        Lane::Settle | Lane::LeadTurn | Lane::Lead | Lane::SpareLead => &[],
    };
    (!asks.contains(&endpoint)).then_some("the lane asks something else")
}

fn no_such_state(endpoint: Endpoint, state: Option<State>) -> Option<&'static str> {
    let (only, why) = match endpoint {
        Endpoint::TokenInfo => (None, "token/info is about no call"),
        Endpoint::Filter => (None, "a page of the journal is about many calls"),
        Endpoint::Submit => (Some(State::Sending), "a call is `sending` until its answer"),
        Endpoint::Poll => (Some(State::Submitted), "only `submitted` calls are polled"),
        Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields | Endpoint::FieldList => {
            return Some("it is about no call");
        }
    };
    (state != only).then_some(why)
}

fn no_such_verdict(endpoint: Endpoint, kind: VerdictKind) -> Option<&'static str> {
    let (only, why): (&[Endpoint], &str) = match kind {
        VerdictKind::Accepted => (&[Endpoint::Submit], "only submissions give a requestId"),
        VerdictKind::Journaled | VerdictKind::Pending => {
            (&[Endpoint::Poll], "only polls tell an outcome")
        }
        VerdictKind::Lost => (&[Endpoint::Poll], "only a requestId can be lost"),
        VerdictKind::Record => (&[Endpoint::TokenInfo], "only token/info gives the record"),
        VerdictKind::Page | VerdictKind::PageTooLarge | VerdictKind::PageRefused => {
            (&[Endpoint::Filter], "only the journal gives a page")
        }
        VerdictKind::Refused => (
            &[Endpoint::Submit, Endpoint::Poll],
            "only submissions and polls are about one call",
        ),
        VerdictKind::NotGranted => (
            &[Endpoint::Submit, Endpoint::Poll, Endpoint::Filter],
            "token/info needs no grant",
        ),
        VerdictKind::WrongAddress => (
            &[Endpoint::Submit, Endpoint::TokenInfo],
            "a CRM without polls or pages is no pause",
        ),
        VerdictKind::Failed
        | VerdictKind::Unreachable
        | VerdictKind::TooLate
        | VerdictKind::TokenRefused
        | VerdictKind::RateLimited => return None,
    };
    (!only.contains(&endpoint)).then_some(why)
}

fn no_such_answer(endpoint: Endpoint, answer: &str) -> Option<&'static str> {
    let (only, why) = match answer {
        "accepted" => (Endpoint::Submit, "only writes give a requestId"),
        "success" | "failed" | "pending" => (Endpoint::Poll, "only polls tell an outcome"),
        "page" => (Endpoint::Filter, "only the journal gives a page"),
        "data" => return Some("only leads and fields are told so"),
        "token info" => (Endpoint::TokenInfo, "only token/info gives the record"),
        _ => return None,
    };
    (endpoint != only).then_some(why)
}

fn no_such_step(state: State, step: &str) -> Option<&'static str> {
    let all = steps();
    let taken = all.iter().find(|other| other.name() == step);
    let taken = taken.expect("a step");
    if next(state, taken).is_err() {
        return Some("the pure function refuses it");
    }
    match (state, step) {
        (_, "forwarded") => Some("no hub takes the calls"),
        (_, "rejudged" | "moved") => Some("the simulation keeps no directory of leads"),
        (_, "send again") => {
            Some("a person does so after an audit; the journal here loses nothing")
        }
        (State::Ready, "died") => Some("a ready call always has a lead and a uuid"),
        _ => None,
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict {
                lane,
                endpoint,
                kind,
                state,
            } => {
                let state = state.map_or("no call", State::word);
                write!(f, "verdict   {lane:?} · {endpoint} · {state} · {kind:?}")
            }
            Self::Answer(endpoint, answer) => write!(f, "answer    {endpoint} · {answer}"),
            Self::Step { state, step } => write!(f, "step      {state} · {step}"),
            Self::Pause(reason) => write!(f, "pause     {reason}"),
            Self::Hardship(hardship) => write!(f, "hardship  {hardship:?}"),
        }
    }
}

/// The paths that were met, each with its count.
#[derive(Clone, Debug, Default)]
pub struct Met {
    paths: BTreeMap<Path, u64>,
    words: BTreeSet<&'static str>,
}

impl Met {
    /// Counts a path.
    pub fn count(&mut self, path: Path) {
        *self.paths.entry(path).or_default() += 1;
    }

    /// Counts a hardship.
    pub fn count_hardship(&mut self, hardship: Hardship) {
        self.count(Path::Hardship(hardship));
    }

    /// Counts a pause.
    pub fn count_pause(&mut self, reason: &str) {
        if let Some(known) = PAUSES.into_iter().find(|known| *known == reason) {
            self.count(Path::Pause(known));
        }
    }

    /// Adds the word of a verdict.
    pub fn add_word(&mut self, word: &'static str) {
        self.words.insert(word);
    }

    /// Adds the paths of another run.
    pub fn add(&mut self, other: &Self) {
        for (path, count) in &other.paths {
            *self.paths.entry(*path).or_default() += count;
        }
        self.words.extend(&other.words);
    }

    /// Returns the possible paths that were not met.
    pub fn unmet(&self) -> Vec<Path> {
        let mut all = Path::all();
        all.retain(|path| path.impossible().is_none() && !self.paths.contains_key(path));
        all
    }

    /// Returns the table of the paths that were met, with counts.
    pub fn table(&self) -> String {
        let mut lines = String::new();
        for (path, count) in &self.paths {
            lines.push_str(&format!("{count:>10}  {path}\n"));
        }
        let mut why: BTreeMap<&str, u64> = BTreeMap::new();
        for reason in Path::all().into_iter().filter_map(Path::impossible) {
            *why.entry(reason).or_default() += 1;
        }
        for (why, count) in why {
            lines.push_str(&format!("{count:>10}  cannot be: {why}\n"));
        }
        lines
    }

    /// Checks that no impossible path was met.
    pub fn assert_possible(&self) {
        for path in self.paths.keys() {
            assert_eq!(path.impossible(), None, "{path} was met");
        }
    }
}

#[test]
fn every_path_is_listed_once_in_the_order_of_its_enum() {
    let all = Path::all();
    let distinct: BTreeSet<Path> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len());
    for (at, hardship) in Hardship::ALL.into_iter().enumerate() {
        assert_eq!(hardship as usize, at);
    }
    let struck: BTreeSet<Hardship> = Moment::ALL.map(Hardship::from_moment).into();
    assert_eq!(struck.len(), Moment::ALL.len());
}
