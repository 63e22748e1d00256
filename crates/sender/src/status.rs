//! The sender's state for `status`, metrics, and the log, described the same way everywhere:
//! sending, rate limited until a certain time, paused (with the reason and the fix), CRM
//! unreachable since, or endpoint failing since.

use crate::breaker::Failing;
use crate::breaker::pause::Pause;
use crate::breaker::refusals::RefusedBranch;
use crate::budget::pacer::{Pacer, SilentTime};
use crate::confirm::Confirm;
use callbridge_call::EventTime;
use callbridge_crm::{Endpoint, TokenInfo};
use callbridge_model::dates::Zone;
use callbridge_model::status::{self, Backlog, BudgetStatus, DegradedPart, Requests, Token};
use callbridge_model::{Grant, Now, TokenFingerprint};
use callbridge_spool::{SilenceReason, WorkQueue};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The sender's state at a point in time. [`SenderStatus::budget`] brings it up to date.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SenderStatus {
    /// The token's state, including its record if that was read.
    pub token: Token,
    /// Why nothing is sent and how to fix it, or `None` if calls can be sent.
    pub pause: Option<status::Pause>,
    /// Why a branch's calls aren't sent, by branch name. Empty if `pause` already covers it.
    pub paused_branches: BTreeMap<String, String>,
    /// Parts of the CRM that are failing while others work.
    pub degraded: Vec<DegradedPart>,
    /// Requests so far, by endpoint and verdict.
    pub requests: Requests,
    /// Unconfirmed calls, and how long confirming them takes at the current rate.
    pub backlog: Backlog,
    /// Days until the token expires, if the CRM warned about it (§5.5).
    pub expires_in_days: Option<u32>,
    /// Whether another program uses the token, as shown by 429s that arrived below our cap.
    pub token_shared: bool,
    /// Fingerprint of the token that this status refers to.
    pub token_print: Option<TokenFingerprint>,
    /// Whether the CRM accepts the token, or `None` until that's known.
    pub token_taken: Option<bool>,
    /// Number of requests in flight.
    pub under_way: usize,
    pub(super) slots: Slots,
}

/// The state of the pacer's slots, for [`SenderStatus::budget`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Slots {
    pub(super) limit: u32,
    pub(super) window: Duration,
    /// Times since boot at which the taken slots become available, with `None` for a request in
    /// flight.
    pub(super) frees: Vec<Option<Duration>>,
    pub(super) silent_until: Option<Duration>,
}

impl SenderStatus {
    /// Returns the budget at this time since boot.
    pub fn budget(&self, now: Duration) -> BudgetStatus {
        let limit = self.slots.limit;
        let window = self.slots.window;
        let mut taken = self.slots.frees.clone();
        taken.retain(|free| free.is_none_or(|at| at > now));
        let used = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        let mut next = now;
        if used >= limit {
            next = taken.into_iter().flatten().min().unwrap_or(now + window);
        }
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

/// What a status is based on.
pub(super) struct StatusInputs<'a> {
    pub(super) pause: Option<&'a Pause>,
    pub(super) silent: Option<&'a SilentTime>,
    /// End of the wait after a 429, as time since boot.
    pub(super) limited: Option<Duration>,
    pub(super) failing: &'a [Failing],
    pub(super) confirm: &'a Confirm,
    pub(super) place: &'a TokenPlace,
    pub(super) is_verified: bool,
    pub(super) now: Now,
}

/// Returns the number of waiting calls and the time until they're confirmed, assuming one request
/// per call to submit and one per `confirmed_at_once` calls to confirm.
pub fn backlog(head: &WorkQueue, pacer: &Pacer, confirmed_at_once: u32, now: Duration) -> Backlog {
    let unsent = head.ready + head.sending;
    let confirmations = (unsent + head.submitted).div_ceil(u64::from(confirmed_at_once.max(1)));
    let requests = unsent + confirmations;
    let pace = u128::from(pacer.allowed(now).max(1));
    let wait = u128::from(requests) * pacer.rate.window().as_millis() / pace;
    Backlog {
        calls: head.ready + head.sending + head.submitted,
        drain_sec: u64::try_from(wait.div_ceil(1000)).unwrap_or(u64::MAX),
    }
}

/// Returns the token section of `status --json`. `present` tells whether a token was given.
pub fn token(info: Option<&TokenInfo>, pause: Option<&Pause>, present: bool) -> Token {
    let state = match pause {
        Some(Pause::TokenMissing) => "missing",
        Some(Pause::WrongCompany(_)) => "wrong_company",
        Some(Pause::TokenRefused(_)) => "refused",
        Some(Pause::NoGrant(_)) => "no_grant",
        _ => match (info, present) {
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
    Token {
        state,
        kind: name_or_id(&info.kind, None),
        company: name_or_id(&info.company_name, Some(info.company)),
        application: name_or_id(&info.application_name, info.application),
        expires_at: info.expires_at.map(|at| at.get()),
        grants: info.grants.clone().unwrap_or_default(),
        ..Token::default()
    }
}

/// Returns the name, or the ID if there's no name.
fn name_or_id(name: &str, id: Option<i64>) -> Option<String> {
    if name.is_empty() {
        return id.map(|id| id.to_string());
    }
    Some(name.to_owned())
}

/// Returns whether the CRM accepts the token, judging by its displayed state, or `None` if that's
/// unknown.
pub fn acceptance(token: &Token) -> Option<bool> {
    match token.state.as_str() {
        "ok" | "no_grant" | "wrong_company" => Some(true),
        "refused" => Some(false),
        _ => None,
    }
}

/// Returns the reason why nothing, or no calls, are sent, or `None` while the sender is sending.
pub(super) fn shown_pause(inputs: &StatusInputs<'_>) -> Option<status::Pause> {
    if let Some(pause) = inputs.pause
        && !matches!(pause, Pause::CallsRefused(..) | Pause::DryRun)
    {
        return Some(status::Pause::new(word(pause), fix(pause, inputs.place)));
    }
    if let Some(SilentTime {
        until,
        why: SilenceReason::TakenOver(from),
    }) = inputs.silent
    {
        let at = inputs.now.wall.plus(until.saturating_sub(inputs.now.boot));
        return Some(status::Pause::new(TAKEOVER, took_over(from, at)));
    }
    if let Some(until) = inputs.limited {
        let at = inputs.now.wall.plus(until.saturating_sub(inputs.now.boot));
        return Some(status::Pause::new(RATE_LIMITED, rate_limited(at)));
    }
    for failing in inputs.failing {
        let stops = match failing.endpoint {
            Endpoint::Submit => true,
            Endpoint::TokenInfo => !inputs.is_verified,
            _ => false,
        };
        if failing.unreachable {
            return Some(status::Pause::new(UNREACHABLE, unreachable(failing)));
        }
        if stops {
            return Some(status::Pause::new(FAILING, submissions_fail(failing)));
        }
    }
    let pause = inputs.pause?;
    Some(status::Pause::new(word(pause), fix(pause, inputs.place)))
}

/// Reason for the silence after a takeover.
pub const TAKEOVER: &str = "takeover";
/// Reason for a wait after a 429.
pub const RATE_LIMITED: &str = "rate_limited";
/// Reason for a CRM that no request can reach.
pub const UNREACHABLE: &str = "unreachable";
/// Reason for a CRM that accepts no calls.
pub const FAILING: &str = "failing";

fn took_over(from: &str, until: EventTime) -> String {
    format!(
        "took over from {from}; no request until {}, because requests of {from} can still count. \
         Sending continues automatically",
        stamp(until)
    )
}

fn rate_limited(until: EventTime) -> String {
    format!(
        "rate limited until {}: the CRM or a gateway has refused a request (429). Sending \
         continues automatically. If another program uses this token, share the limit with --rate, \
         or give that integration its own application",
        stamp(until)
    )
}

fn unreachable(failing: &Failing) -> String {
    format!(
        "CRM unreachable since {} ({}). callbridge tries again at least once a minute. If the CRM \
         stays unreachable, check the network, the proxy, and the certificates",
        stamp(failing.since),
        failing.reason
    )
}

fn submissions_fail(failing: &Failing) -> String {
    let what = if failing.endpoint == Endpoint::Submit {
        "submissions"
    } else {
        "token/info"
    };
    format!(
        "{what} failing since {} ({}). callbridge tries one request at least once a minute, and \
         keeps all calls. If requests keep failing, contact the support of the CRM",
        stamp(failing.since),
        failing.reason
    )
}

/// Formats a time in UTC. Commands find such times in messages and show them in the operator's time
/// zone.
fn stamp(at: EventTime) -> String {
    Zone::utc().format_or_seconds(at, "%Y-%m-%dT%H:%M:%SZ")
}

/// Returns the endpoints that are failing or aren't granted while calls are being sent.
pub(super) fn degraded(inputs: &StatusInputs<'_>) -> Vec<DegradedPart> {
    let mut degraded = Vec::new();
    if let Some(refused) = &inputs.confirm.polls_refused {
        degraded.push(DegradedPart {
            part: "polls".to_owned(),
            reason: refused.reason.clone(),
            fallback: without_polls(inputs.confirm, inputs.now.wall),
            since: refused.since.floor_seconds().get(),
        });
    }
    for failing in inputs.failing {
        let (part, fallback) = match failing.endpoint {
            Endpoint::Poll => ("polls", "pages of the CRM's journal are read instead"),
            Endpoint::Filter => ("pages", "calls are polled one by one instead"),
            _ => continue,
        };
        if failing.unreachable {
            continue;
        }
        degraded.push(DegradedPart {
            part: part.to_owned(),
            reason: failing.reason.clone(),
            fallback: fallback.to_owned(),
            since: failing.since.floor_seconds().get(),
        });
    }
    degraded
}

fn without_polls(confirm: &Confirm, now: EventTime) -> String {
    let fallback = if confirm.reads_pages(now) {
        "pages of the CRM's journal are read instead"
    } else if confirm.awaits_webhooks() {
        "only webhooks show whether calls are journaled"
    } else {
        "calls are sent, and nothing shows whether they are journaled: after 24 hours they are \
         listed as `unconfirmed`. Set up webhooks, or grant PERMISSION_OPEN_API_CALL:READ"
    };
    format!("{fallback}. Grant the application the right to read the status of its requests")
}

/// Returns a pause's name in metrics and logs.
pub const fn word(pause: &Pause) -> &'static str {
    match pause {
        Pause::WrongClock => "clock",
        Pause::SplitDatabase(_) => "split_database",
        Pause::DryRun => "dry_run",
        Pause::TokenMissing => TOKEN_MISSING,
        Pause::TokenRefused(_) => TOKEN_REFUSED,
        Pause::WrongCompany(_) => "wrong_company",
        Pause::NoGrant(_) => "no_grant",
        Pause::WrongAddress(_) => "wrong_address",
        Pause::CallsRefused(..) => "calls_refused",
    }
}

pub const TOKEN_MISSING: &str = "token_missing";
pub const TOKEN_REFUSED: &str = "token_refused";

/// Returns advice that tells the operator how to end a pause.
pub fn fix(pause: &Pause, place: &TokenPlace) -> String {
    match pause {
        Pause::WrongClock => {
            "this machine's clock shows a time before this program was built: set \
             it (timedatectl, NTP). Calls are kept until then"
                .to_owned()
        }
        Pause::SplitDatabase(branches) => format!(
            "two hubs use different databases: collectors of {branches} received responses from \
             both. Stop the hub whose database you won't keep, and run `callbridge sending resume` \
             at the other one. If there's only one hub, a collector was cloned or its token is \
             used elsewhere: run `callbridge branch rotate NAME --now` first"
        ),
        Pause::DryRun => {
            "with --dry-run nothing is submitted: to submit calls, start without it".to_owned()
        }
        Pause::TokenMissing => "give a token with --token-file, the credential `token` or \
                                CALLBRIDGE_TOKEN; the file is read again automatically"
            .to_owned(),
        Pause::WrongCompany(why) => format!(
            "the token belongs to another company than the calls in --state{}: put the right token \
             into {place}; or give --rebind or another --state",
            in_brackets(why)
        ),
        Pause::TokenRefused(why) => format!(
            "the CRM refuses the token{}: issue a new one in the CRM and put it into {place}; or \
             check whether the company is blocked",
            in_brackets(why)
        ),
        Pause::NoGrant(why) => format!(
            "the token's application lacks the grant {}{}: grant it in the CRM. callbridge checks \
             every minute",
            Grant::CallSave,
            in_brackets(why)
        ),
        Pause::WrongAddress(why) => format!(
            "the CRM's Open API is not at --crm-url{}: correct the address. callbridge tries again \
             every minute",
            in_brackets(why)
        ),
        Pause::CallsRefused(refused) => calls_refused(refused),
    }
}

/// Returns, for each of these branches, why its calls aren't sent.
pub(super) fn paused_branches(refused: &[RefusedBranch]) -> BTreeMap<String, String> {
    let mut paused = BTreeMap::new();
    for branch in refused {
        paused.insert(branch.branch.clone(), calls_refused(branch));
    }
    paused
}

fn calls_refused(refused: &RefusedBranch) -> String {
    let RefusedBranch {
        reason,
        message,
        is_confirmed,
        ..
    } = refused;
    let why = in_brackets(message);
    let list = format!("check `callbridge dead list --reason {reason}`");
    if *is_confirmed {
        return format!(
            "five calls in a row were refused as {reason}{why}, and so was a call with another \
             lead and employee: {list}, correct leads, employees or --field, and retry one of the \
             calls or restart callbridge. One call an hour is tried. When one is accepted, the \
             refused calls are sent again"
        );
    }
    format!(
        "five calls in a row were refused as {reason}{why}, and no call with another lead and \
         employee is ready: {list}, correct their leads or employees, and retry one of them. The \
         next call with another lead and employee is sent at once, and if the CRM accepts it, \
         sending goes on"
    )
}

fn in_brackets(why: &str) -> String {
    if why.is_empty() {
        return String::new();
    }
    format!(" ({why})")
}

/// Where the operator puts a new token, and what activates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPlace {
    /// A file or an environment variable.
    pub name: String,
    /// What has to be done afterwards if the token is read only once, or `None` if it's reloaded
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
            None => write!(f, "{}, it is read again automatically", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::Reason;
    use callbridge_model::status::PAUSES;

    fn failing_endpoint(endpoint: Endpoint, unreachable: bool) -> Failing {
        Failing {
            endpoint,
            since: EventTime::from_seconds(1_795_151_317),
            reason: "503".to_owned(),
            unreachable,
        }
    }

    fn now() -> Now {
        Now {
            wall: EventTime::from_seconds(1_795_151_400),
            boot: Duration::from_secs(100),
        }
    }

    fn pause_shown(
        pause: Option<Pause>,
        limited: Option<Duration>,
        failing: &[Failing],
    ) -> Option<status::Pause> {
        shown_pause(&StatusInputs {
            pause: pause.as_ref(),
            silent: None,
            limited,
            failing,
            confirm: &Confirm::new(None, callbridge_crm::PageSize::LARGEST),
            place: &TokenPlace::default(),
            is_verified: true,
            now: now(),
        })
    }

    /// Promise: Each pause says how to end it.
    #[test]
    fn every_pause_has_a_fix() {
        let paused = [
            Pause::TokenMissing,
            Pause::WrongCompany("it is of Uy (12)".to_owned()),
            Pause::TokenRefused("401".to_owned()),
            Pause::NoGrant("403".to_owned()),
            Pause::WrongAddress("404".to_owned()),
            Pause::CallsRefused(RefusedBranch {
                branch: String::new(),
                reason: Reason::Failed,
                message: "FAILED".to_owned(),
                is_confirmed: true,
            }),
            Pause::WrongClock,
            Pause::SplitDatabase("a, b".to_owned()),
            Pause::DryRun,
        ];
        let mut all = Vec::new();
        for pause in paused {
            all.extend(pause_shown(Some(pause), None, &[]));
        }
        all.push(status::Pause::new(TAKEOVER, took_over("hub2", now().wall)));
        all.extend(pause_shown(None, Some(Duration::from_secs(160)), &[]));
        all.extend(pause_shown(
            None,
            None,
            &[failing_endpoint(Endpoint::Submit, true)],
        ));
        all.extend(pause_shown(
            None,
            None,
            &[failing_endpoint(Endpoint::Submit, false)],
        ));
        let mut lines = Vec::new();
        for pause in all {
            assert!(PAUSES.contains(&pause.reason.as_str()), "{}", pause.reason);
            lines.push(format!("{}: {}", pause.reason, pause.fix));
        }
        insta::assert_snapshot!(wrap_lines(&lines.join("\n")), @r"
        token_missing: give a token with --token-file, the credential `token` or
         CALLBRIDGE_TOKEN; the file is read again automatically
        wrong_company: the token belongs to another company than the calls in --state (it is of
         Uy (12)): put the right token into --token-file, it is read again automatically; or give
         --rebind or another --state
        token_refused: the CRM refuses the token (401): issue a new one in the CRM and put it
         into --token-file, it is read again automatically; or check whether the company is
         blocked
        no_grant: the token's application lacks the grant PERMISSION_OPEN_API_CALL:SAVE (403):
         grant it in the CRM. callbridge checks every minute
        wrong_address: the CRM's Open API is not at --crm-url (404): correct the address.
         callbridge tries again every minute
        calls_refused: five calls in a row were refused as failed (FAILED), and so was a call
         with another lead and employee: check `callbridge dead list --reason failed`, correct
         leads, employees or --field, and retry one of the calls or restart callbridge. One call
         an hour is tried. When one is accepted, the refused calls are sent again
        clock: this machine's clock shows a time before this program was built: set it
         (timedatectl, NTP). Calls are kept until then
        split_database: two hubs use different databases: collectors of a, b received responses
         from both. Stop the hub whose database you won't keep, and run `callbridge sending
         resume` at the other one. If there's only one hub, a collector was cloned or its token
         is used elsewhere: run `callbridge branch rotate NAME --now` first
        dry_run: with --dry-run nothing is submitted: to submit calls, start without it
        takeover: took over from hub2; no request until 2026-11-20T05:10:00Z, because requests of
         hub2 can still count. Sending continues automatically
        rate_limited: rate limited until 2026-11-20T05:11:00Z: the CRM or a gateway has refused a
         request (429). Sending continues automatically. If another program uses this token,
         share the limit with --rate, or give that integration its own application
        unreachable: CRM unreachable since 2026-11-20T05:08:37Z (503). callbridge tries again at
         least once a minute. If the CRM stays unreachable, check the network, the proxy, and the
         certificates
        failing: submissions failing since 2026-11-20T05:08:37Z (503). callbridge tries one
         request at least once a minute, and keeps all calls. If requests keep failing, contact
         the support of the CRM
        ");
    }

    #[test]
    fn pause_is_not_shown_while_only_confirmations_fail() {
        assert_eq!(pause_shown(None, None, &[]), None);
        assert_eq!(
            pause_shown(None, None, &[failing_endpoint(Endpoint::Poll, false)]),
            None
        );
        assert_eq!(
            pause_shown(None, None, &[failing_endpoint(Endpoint::TokenInfo, false)]),
            None
        );
    }

    #[test]
    fn token_problem_is_shown_before_unreachable_crm() {
        let failing = [failing_endpoint(Endpoint::Submit, true)];
        for (pause, reason) in [
            (Pause::TokenMissing, "token_missing"),
            (Pause::DryRun, "unreachable"),
        ] {
            let shown = pause_shown(Some(pause), None, &failing).expect("a pause");
            assert_eq!(shown.reason, reason);
        }
    }

    /// Wraps lines at 90 characters for the docs page.
    fn wrap_lines(text: &str) -> String {
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
    fn budget_counts_slots_at_the_requested_time() {
        let second = Duration::from_secs(1);
        let sender = SenderStatus {
            slots: Slots {
                limit: 2,
                window: 60 * second,
                frees: vec![Some(100 * second), Some(130 * second)],
                silent_until: None,
            },
            ..SenderStatus::default()
        };
        for (at, expected) in [(90_u32, (2, 10_000)), (100, (1, 0)), (130, (0, 0))] {
            let budget = sender.budget(at * second);
            let seen = (budget.used, budget.next_free_in_ms);
            assert_eq!(seen, expected, "at {at} s");
        }
    }
}
