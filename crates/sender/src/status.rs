//! What the sender shows of itself: for `status`, metrics and the log.

use crate::{Extent, Pacer, Part, PauseCause, StopReason};
use callbridge_crm::{Endpoint, TokenInfo};
use callbridge_model::status::{Backlog, BudgetStatus, DegradedPart, Pause, Requests, Token};
use callbridge_model::{Grant, TokenFingerprint};
use callbridge_spool::WorkQueue;
use std::fmt;
use std::time::Duration;

/// The sender's state at one time. [`SenderStatus::budget`] updates it to another time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SenderStatus {
    /// State of the token, with its record if that was read.
    pub token: Token,
    /// Reason why nothing is sent, and its fix. `None` if calls can be sent.
    pub pause: Option<Pause>,
    /// Parts of the CRM that fail while the rest works.
    pub degraded: Vec<DegradedPart>,
    /// Requests so far, by endpoint and verdict.
    pub requests: Requests,
    /// Unconfirmed calls, and the time to confirm them at the current rate.
    pub backlog: Backlog,
    /// Days until the token expires, if the CRM warned about it (§5.5).
    pub expires_in_days: Option<u32>,
    /// Another program uses the token: a 429 came below our own cap.
    pub token_shared: bool,
    /// Fingerprint of the token that this status is about.
    pub token_print: Option<TokenFingerprint>,
    /// Whether the CRM accepts the token. `None` before it is known.
    pub token_taken: Option<bool>,
    /// Number of requests in flight.
    pub under_way: usize,
    pub(super) slots: Slots,
}

/// The pacer's budget.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slots {
    pub(super) limit: u32,
    pub(super) window: Duration,
    /// Times since boot at which the taken slots become free. `None` if the request is in flight.
    pub(super) frees: Vec<Option<Duration>>,
    pub(super) silent_until: Option<Duration>,
}

impl SenderStatus {
    /// The budget at this time since boot.
    pub fn budget(&self, now: Duration) -> BudgetStatus {
        let (limit, window, frees) = (self.slots.limit, self.slots.window, &self.slots.frees);
        let taken = || (frees.iter()).filter(|free| free.is_none_or(|at| at > now));
        let used = u32::try_from(taken().count()).unwrap_or(u32::MAX);
        let next = match used >= limit {
            true => taken().flatten().min().copied().unwrap_or(now + window),
            false => now,
        };
        let next = next.max(self.slots.silent_until.unwrap_or_default());
        let wait = next.saturating_sub(now);
        BudgetStatus {
            limit,
            window_sec: window.as_secs(),
            used,
            next_free_in_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Waiting calls, and the time until they are confirmed: one request per call to submit, and one
/// per `confirmed_at_once` calls to confirm.
pub fn backlog(head: &WorkQueue, pacer: &Pacer, confirmed_at_once: u32, now: Duration) -> Backlog {
    let unsent = head.ready + head.sending;
    let reconciliation = (unsent + head.submitted).div_ceil(u64::from(confirmed_at_once.max(1)));
    let requests = unsent + reconciliation;
    let pace = u128::from(pacer.allowed(now).max(1));
    let wait = u128::from(requests) * pacer.rate.window().as_millis() / pace;
    Backlog {
        calls: head.ready + head.sending + head.submitted,
        drain_sec: u64::try_from(wait.div_ceil(1000)).unwrap_or(u64::MAX),
    }
}

/// The token's part of `status --json`.
pub fn token(info: Option<&TokenInfo>, cause: Option<PauseCause>, present: bool) -> Token {
    let state = match cause {
        Some(PauseCause::TokenMissing) => "missing",
        Some(PauseCause::WrongCompany) => "wrong_company",
        Some(PauseCause::StopReason(StopReason::TokenRefused)) => "refused",
        Some(PauseCause::StopReason(StopReason::NoGrant(_))) => "no_grant",
        Some(PauseCause::StopReason(StopReason::WrongAddress))
        | Some(PauseCause::Outage(_) | PauseCause::TooMany | PauseCause::Refused(_))
        | None => match (info, present) {
            (Some(_), _) => "ok",
            (None, true) => "unknown",
            (None, false) => "missing",
        },
    };
    let state = state.to_owned();
    let Some(info) = info else {
        return Token {
            state,
            ..Token::default()
        };
    };
    let named = |name: &str, id: Option<i64>| match name {
        "" => id.map(|id| id.to_string()),
        name => Some(name.to_owned()),
    };
    Token {
        state,
        kind: named(&info.kind, None),
        company: named(&info.company_name, Some(info.company)),
        application: named(&info.application_name, info.application),
        expires_at: info.expires_at.map(|at| at.get()),
        grants: info.grants.clone().unwrap_or_default(),
        ..Token::default()
    }
}

/// Reads from a displayed token whether the CRM accepts it. `None` if this is not known.
pub fn taken(token: &Token) -> Option<bool> {
    match token.state.as_str() {
        "ok" | "no_grant" | "wrong_company" => Some(true),
        "refused" => Some(false),
        _ => None,
    }
}

/// Describes the fallback for a failing part. Empty if there is none.
pub const fn fallback(part: Part, other_works: bool) -> &'static str {
    match (part, other_works) {
        (Part::Polls, true) => "pages of the CRM's journal are read instead",
        (Part::Reconciliation, true) => {
            "pages of the CRM's journal are not read: calls are asked for one by one"
        }
        (Part::Polls | Part::Reconciliation, false) => {
            "calls are taken, and whether they are journaled is asked later"
        }
        (Part::Token | Part::Submissions, _) => "",
    }
}

/// The word of a pause, for metrics and logs.
pub const fn word(cause: PauseCause) -> &'static str {
    match cause {
        PauseCause::TokenMissing => "token_missing",
        PauseCause::WrongCompany => "wrong_company",
        PauseCause::StopReason(StopReason::TokenRefused) => "token_refused",
        PauseCause::StopReason(StopReason::NoGrant(_)) => "no_grant",
        PauseCause::StopReason(StopReason::WrongAddress) => "wrong_address",
        PauseCause::Outage(_) => "outage",
        PauseCause::TooMany => "too_many_requests",
        PauseCause::Refused(_) => "calls_refused",
    }
}

/// Advice to the operator that ends a pause. `why` is the message of the CRM or the transport.
pub fn fix(cause: PauseCause, why: &str, place: &TokenPlace) -> String {
    let said = match why {
        "" => String::new(),
        why => format!(" ({why})"),
    };
    match cause {
        PauseCause::TokenMissing => {
            "give a token with --token-file, the credential `token` or CALLBRIDGE_TOKEN; \
             the file is read again by itself"
                .to_owned()
        }
        PauseCause::WrongCompany => format!(
            "the token is not of this state's company{said}: put the right token \
             into {place}; or give --rebind or another --state"
        ),
        PauseCause::StopReason(StopReason::TokenRefused) => format!(
            "the CRM refuses the token{said}: issue a new one in the CRM and put it into \
             {place}; or see whether the company is blocked"
        ),
        PauseCause::StopReason(StopReason::NoGrant(endpoint)) => format!(
            "the token's application lacks {}{said}: grant it in the CRM; \
             it is looked for every minute",
            match endpoint {
                Endpoint::Submit => format!("the grant {}", Grant::CallSave),
                Endpoint::Poll => "a grant for reading the status of its requests".to_owned(),
                Endpoint::TokenInfo => "the right to read its token's record".to_owned(),
                Endpoint::Filter => "a grant for reading the journal".to_owned(),
                Endpoint::Lead | Endpoint::Leads | Endpoint::CrmFields | Endpoint::FieldList =>
                    "a grant for leads".to_owned(),
            }
        ),
        PauseCause::StopReason(StopReason::WrongAddress) => format!(
            "the CRM's Open API is not at --crm-url{said}: correct the address; \
             it is tried again every minute"
        ),
        PauseCause::Outage(Extent::Everything) => format!(
            "the CRM does not work or cannot be reached{said}: nothing to do if it comes back by \
             itself, it is tried at least once a minute; else look at network, proxy and \
             certificates"
        ),
        PauseCause::Outage(Extent::Submissions) => format!(
            "an outage of submissions: the CRM takes no calls{said}; nothing to do if it comes \
             back by itself, one is tried at least once a minute and all are kept; else ask \
             whoever runs the CRM"
        ),
        PauseCause::TooMany => {
            "too many requests, by the CRM's count or a gateway's: it goes on by \
                           itself; where another program uses this token, share the limit \
                           with --rate, or give that integration an application of its own"
                .to_owned()
        }
        PauseCause::Refused(reason) => format!(
            "five calls in a row were refused as {reason}{said}: look at `callbridge dead list \
             --reason {reason}`, correct leads, employees or --field; one call a minute is tried"
        ),
    }
}

/// Place into which a person puts a new token, and the step that activates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPlace {
    /// A file or a variable.
    pub name: String,
    /// The step that must follow if the token is only read once. `None` if it is read again
    /// automatically.
    pub then: Option<String>,
}

impl Default for TokenPlace {
    fn default() -> Self {
        Self {
            name: "--token-file".to_owned(),
            then: None,
        }
    }
}

impl fmt::Display for TokenPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.then {
            Some(then) => write!(f, "{}, then {then}", self.name),
            None => write!(f, "{}, it is read again by itself", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::Reason;
    use callbridge_model::status::PAUSES;

    /// Promise: Each pause says how to end it.
    #[test]
    fn every_pause_says_what_mends_it() {
        let all = [
            (PauseCause::TokenMissing, ""),
            (PauseCause::WrongCompany, "it is of Uy (12)"),
            (PauseCause::StopReason(StopReason::TokenRefused), "401"),
            (
                PauseCause::StopReason(StopReason::NoGrant(Endpoint::Submit)),
                "403",
            ),
            (PauseCause::StopReason(StopReason::WrongAddress), "404"),
            (
                PauseCause::Outage(Extent::Everything),
                "no connection: connection refused",
            ),
            (PauseCause::Outage(Extent::Submissions), "503"),
            (PauseCause::TooMany, ""),
            (PauseCause::Refused(Reason::Failed), "FAILED"),
        ];
        for (cause, _) in all {
            assert!(
                PAUSES.contains(&word(cause)),
                "metrics miss {}",
                word(cause)
            );
        }
        let shown: Vec<String> = all
            .iter()
            .map(|(cause, why)| {
                format!(
                    "{}: {}",
                    word(*cause),
                    fix(*cause, why, &TokenPlace::default())
                )
            })
            .collect();
        insta::assert_snapshot!(wrapped(&shown.join("\n")), @r"
        token_missing: give a token with --token-file, the credential `token` or
         CALLBRIDGE_TOKEN; the file is read again by itself
        wrong_company: the token is not of this state's company (it is of Uy (12)): put the right
         token into --token-file, it is read again by itself; or give --rebind or another --state
        token_refused: the CRM refuses the token (401): issue a new one in the CRM and put it
         into --token-file, it is read again by itself; or see whether the company is blocked
        no_grant: the token's application lacks the grant PERMISSION_OPEN_API_CALL:SAVE (403):
         grant it in the CRM; it is looked for every minute
        wrong_address: the CRM's Open API is not at --crm-url (404): correct the address; it is
         tried again every minute
        outage: the CRM does not work or cannot be reached (no connection: connection refused):
         nothing to do if it comes back by itself, it is tried at least once a minute; else look
         at network, proxy and certificates
        outage: an outage of submissions: the CRM takes no calls (503); nothing to do if it comes
         back by itself, one is tried at least once a minute and all are kept; else ask whoever
         runs the CRM
        too_many_requests: too many requests, by the CRM's count or a gateway's: it goes on by
         itself; where another program uses this token, share the limit with --rate, or give that
         integration an application of its own
        calls_refused: five calls in a row were refused as failed (FAILED): look at `callbridge
         dead list --reason failed`, correct leads, employees or --field; one call a minute is
         tried
        ");
    }

    /// Lines of at most 90 characters, for the page.
    fn wrapped(text: &str) -> String {
        let mut lines = Vec::new();
        for line in text.lines() {
            let mut current = String::new();
            for word in line.split(' ') {
                if current.len() + word.len() > 88 {
                    lines.push(std::mem::replace(&mut current, " ".to_owned()));
                }
                current.push_str(if current.trim().is_empty() { "" } else { " " });
                current.push_str(word);
            }
            lines.push(current);
        }
        lines.join("\n")
    }

    #[test]
    fn the_budget_is_brought_up_to_the_moment_it_is_asked_for() {
        let second = Duration::from_secs(1);
        let status = SenderStatus {
            slots: Slots {
                limit: 2,
                window: 60 * second,
                frees: vec![Some(100 * second), Some(130 * second)],
                silent_until: None,
            },
            ..SenderStatus::default()
        };
        let seen = |at: u32| {
            let budget = status.budget(at * second);
            (budget.used, budget.next_free_in_ms)
        };
        assert_eq!(seen(90), (2, 10_000));
        assert_eq!(seen(100), (1, 0));
        assert_eq!(seen(130), (0, 0));
    }
}
