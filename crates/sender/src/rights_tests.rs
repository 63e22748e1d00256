//! When the token's record is read again, and what goes on without polls.

use super::tests::{at, due, info, lane, ready, submitted};
use crate::answered::Answered;
use crate::core::Core;
use crate::plan::{About, Decision, Lane, Launch, Settings};
use callbridge_crm::{ApiError, ApiReply, ApiResult, Page, Request, TokenInfo};
use callbridge_leads::lead_request::due::{DueRequest, DueRequests, LeadRequest, Urgency};
use callbridge_leads::lead_request::{LeadChange, LeadOutcome};
use callbridge_model::{LeadId, Now};
use callbridge_spool::{Confirmable, Op, OutcomeSource, Step, Unconfirmed, WebhookPace, WorkQueue};
use std::time::Duration;

fn answered(core: &mut Core, now: Now, head: &WorkQueue, answer: ApiResult) -> (Request, Answered) {
    let Decision::Send(plan) = core.next(now, head) else {
        panic!("something is sent at {now:?}");
    };
    let slot = plan.slot;
    let about = About {
        unconfirmed: head.polls.clone(),
        ..About::default()
    };
    let Launch {
        request: Some((request, _)),
        ..
    } = core.launch(now, plan, about)
    else {
        panic!("it goes");
    };
    let outcome = core.answered(now, slot, answer.into());
    (request, outcome.expect("under way"))
}

fn with(scope: &[&str]) -> ApiResult {
    let grants = scope
        .iter()
        .map(|grant| format!("PERMISSION_OPEN_API_{grant}"));
    Ok(ApiReply::TokenInfo(TokenInfo {
        grants: Some(grants.collect()),
        ..info()
    }))
}

fn forbidden() -> ApiResult {
    Err(ApiError::Forbidden("yo'q".to_owned()))
}

fn look_up() -> WorkQueue {
    let lead = LeadId::new(4_001).expect("positive");
    let lead_request = LeadRequest::LookUp(lead);
    let urgency = Urgency::Soon;
    WorkQueue {
        lead_requests: DueRequests {
            due: vec![DueRequest {
                urgency,
                lead_request,
            }],
            next: None,
        },
        ..WorkQueue::default()
    }
}

fn is_granted(outcome: &Answered) -> bool {
    outcome.ops.iter().any(|op| match op {
        Op::Lead(LeadChange::Request { outcome, .. }) => **outcome == LeadOutcome::Granted,
        _ => false,
    })
}

fn waits(call: &Unconfirmed) -> WorkQueue {
    WorkQueue {
        polls: vec![call.clone()],
        oldest_submitted: vec![call.clone()],
        submitted: 1,
        confirmable: Confirmable {
            calls: 1,
            oldest: Some(call.submitted_at),
        },
        ..WorkQueue::default()
    }
}

fn pause(core: &Core, now: Now) -> Option<String> {
    core.status(now, &WorkQueue::default())
        .pause
        .map(|it| it.reason)
}

#[test]
fn a_right_that_is_given_later_counts_within_an_hour() {
    let mut core = ready(Settings::default());
    let head = look_up();
    // the company takes the right away, which an hour later is known
    assert_eq!(lane(&mut core, at(3_599), &head), Some(Lane::LeadRequest));
    let (request, outcome) = answered(&mut core, at(3_600), &head, with(&["CALL:SAVE"]));
    assert_eq!(request, Request::TokenInfo);
    assert!(!is_granted(&outcome));
    assert_eq!(lane(&mut core, at(7_199), &head), None);
    let given = with(&["CALL:SAVE", "LEAD:READ"]);
    let (request, outcome) = answered(&mut core, at(7_200), &head, given.clone());
    assert_eq!(request, Request::TokenInfo);
    assert!(is_granted(&outcome), "what rests goes on");
    assert_eq!(lane(&mut core, at(7_201), &head), Some(Lane::LeadRequest));
    let (_, outcome) = answered(&mut core, at(10_800), &head, given);
    assert!(!is_granted(&outcome), "nothing is new");
}

#[test]
fn a_403_asks_for_the_record_at_once_and_others_a_minute_later() {
    let mut core = ready(Settings::default());
    let head = look_up();
    let (request, _) = answered(&mut core, at(20), &head, forbidden());
    assert!(matches!(request, Request::Lead(_)));
    let (request, _) = answered(&mut core, at(20), &head, with(&["CALL:SAVE", "LEAD:READ"]));
    assert_eq!(request, Request::TokenInfo);
    answered(&mut core, at(90), &head, forbidden());
    let (request, _) = answered(&mut core, at(90), &head, with(&["CALL:SAVE", "LEAD:READ"]));
    assert_eq!(request, Request::TokenInfo, "a minute has passed");
    let other = WorkQueue {
        lead_requests: DueRequests {
            due: vec![DueRequest {
                urgency: Urgency::Soon,
                lead_request: LeadRequest::LookUp(LeadId::new(4_002).expect("positive")),
            }],
            next: None,
        },
        ..WorkQueue::default()
    };
    answered(&mut core, at(101), &other, forbidden());
    assert_eq!(lane(&mut core, at(149), &WorkQueue::default()), None);
    assert_eq!(
        lane(&mut core, at(150), &WorkQueue::default()),
        Some(Lane::Token)
    );
}

#[test]
fn a_record_that_cannot_be_read_again_stops_no_call() {
    let mut core = ready(Settings::default());
    let live = WorkQueue {
        live: Some(due(1)),
        ..WorkQueue::default()
    };
    for (n, answer) in (0..).zip([
        Err(ApiError::TimedOut),
        Err(ApiError::NotConnected("refused".to_owned())),
        Err(ApiError::WrongAddress(405)),
        forbidden(),
    ]) {
        let now = at(3_600 + 60 * n);
        assert_eq!(lane(&mut core, now, &live), Some(Lane::Live), "calls first");
        let (request, _) = answered(&mut core, now, &WorkQueue::default(), answer);
        assert_eq!(request, Request::TokenInfo, "again after a minute");
        assert_eq!(pause(&core, now), None);
        assert_eq!(lane(&mut core, now, &live), Some(Lane::Live));
    }
    answered(
        &mut core,
        at(3_900),
        &WorkQueue::default(),
        Err(ApiError::UNAUTHORIZED),
    );
    assert_eq!(pause(&core, at(3_900)).as_deref(), Some("token_refused"));
}

#[test]
fn missing_poll_grant_falls_back_to_journal_pages() {
    let mut core = ready(Settings::default());
    let call = submitted(3, at(10));
    let (request, outcome) = answered(&mut core, at(20), &waits(&call), forbidden());
    assert!(matches!(request, Request::Poll { .. }), "{request:?}");
    assert_eq!(outcome.verdict, "no_grant");
    assert_eq!(pause(&core, at(20)), None);
    let degraded = core.status(at(20), &WorkQueue::default()).degraded;
    assert_eq!(degraded.len(), 1);
    assert_eq!(
        (degraded[0].part.as_str(), degraded[0].reason.as_str()),
        ("polls", "403: yo'q")
    );
    assert!(degraded[0].fallback.starts_with("pages"), "{degraded:?}");
    let grants = with(&["CALL:SAVE"]);
    let (request, _) = answered(&mut core, at(20), &waits(&call), grants);
    assert_eq!(request, Request::TokenInfo, "what may it do?");
    let page = Page {
        rows: 1,
        uuids: vec![call.uuid],
        shown: Vec::new(),
        current: Some(1),
        total: Some(1),
    };
    let (request, outcome) = answered(&mut core, at(21), &waits(&call), Ok(ApiReply::Page(page)));
    assert!(matches!(request, Request::Filter(_)), "{request:?}");
    let (row, at_wall) = (call.row, at(21).wall);
    let step = Step::Journaled(OutcomeSource::Confirmation);
    let confirmed = Op::Step {
        row,
        step,
        at: at_wall,
    };
    assert!(outcome.ops.contains(&confirmed), "{:?}", outcome.ops);
}

#[test]
fn unpollable_call_absent_from_all_pages_is_resubmitted() {
    let mut core = ready(Settings::default());
    let mut call = submitted(3, at(10));
    answered(&mut core, at(20), &waits(&call), forbidden());
    answered(&mut core, at(20), &waits(&call), with(&["CALL:SAVE"]));
    let page = || {
        Ok(ApiReply::Page(Page {
            rows: 0,
            uuids: Vec::new(),
            shown: Vec::new(),
            current: Some(1),
            total: Some(1),
        }))
    };
    for (seconds, again) in [(100, false), (200, false), (311, true)] {
        let (_, outcome) = answered(&mut core, at(seconds), &waits(&call), page());
        let step = outcome.swept.first().map(|(_, step)| step.clone());
        match step.expect("a step") {
            Step::NotYet {
                absent: Some(times),
                ..
            } if !again => {
                assert_eq!(times, 1, "never left to the polls");
                (call.absent, call.absent_at) = (times, Some(at(seconds).wall));
            }
            Step::Resubmit { .. } if again => {}
            other => panic!("{seconds}: {other:?}"),
        }
    }
}

#[test]
fn unconfirmable_call_becomes_dead_letter_after_23_hours() {
    let mut core = ready(Settings::default());
    let call = submitted(3, at(10));
    answered(&mut core, at(20), &waits(&call), forbidden());
    answered(&mut core, at(20), &waits(&call), with(&["CALL:SAVE"]));
    answered(&mut core, at(21), &waits(&call), forbidden());
    let ready = WorkQueue {
        live: Some(due(9)),
        ..waits(&call)
    };
    assert_eq!(lane(&mut core, at(22), &ready), Some(Lane::Live));
    let status = core.status(at(22), &ready);
    assert_eq!(status.pause, None);
    let [part] = &status.degraded[..] else {
        panic!("said once: {:?}", status.degraded);
    };
    assert!(part.fallback.contains("`unconfirmed`"), "{part:?}");
    // no poll for each of them, and none sent again
    let day = at(23 * 3_600 + 11);
    let head = WorkQueue {
        oldest_submitted: vec![call.clone()],
        ..waits(&call)
    };
    core.rights.bar_polls(day, "403: yo'q");
    core.confirmation.reconciliation.page_strategy.off(day.wall);
    let revive = Decision::Revive(Box::new(call.clone()));
    assert_eq!(core.next(day, &head), revive);
    let Step::Died {
        reason, message, ..
    } = core.revive(day, &call)
    else {
        panic!("listed");
    };
    assert_eq!(reason, callbridge_model::Reason::Unconfirmed);
    assert!(message.contains("403: yo'q"), "{message}");
}

#[test]
fn webhooks_are_a_way_as_long_as_they_come() {
    let mut core = ready(Settings::default());
    let call = submitted(3, at(10));
    let webhook_pace = |at: Now| {
        let seconds = Duration::from_secs(2);
        Some(WebhookPace {
            at: at.wall,
            after: seconds,
            usual: seconds,
        })
    };
    let head = |came: Now| WorkQueue {
        webhook_pace: webhook_pace(came),
        ..waits(&call)
    };
    core.confirmation
        .reconciliation
        .page_strategy
        .off(at(11).wall);
    answered(&mut core, at(200), &head(at(190)), forbidden());
    assert_eq!(pause(&core, at(200)), None);
    let degraded = core.status(at(200), &head(at(190))).degraded;
    assert!(
        degraded[0].fallback.starts_with("webhooks alone"),
        "{degraded:?}"
    );
    core.next(at(800), &head(at(190)));
    assert_eq!(pause(&core, at(800)), None);
    let degraded = core.status(at(800), &head(at(190))).degraded;
    assert!(degraded[0].fallback.contains("nothing shows"), "silent");
}
