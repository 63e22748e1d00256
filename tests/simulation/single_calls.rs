//! Tests calls that the CRM refuses or fails on individually. Each becomes a dead letter with a
//! reason, and does not stop other calls.

use crate::simulation::trouble::{ALLOWED, MINUTE, faults, world};
use crate::simulation::world::World;
use crate::support::simulated_calls::call;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::{LeadId, Reason};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::ViolationKind;
use callbridge_sender::Settings;
use callbridge_spool::{Finished, Letter, LetterFilter, NewBranch, Op, State, Step, tables};
use std::time::Duration;

fn letters(world: &World) -> Vec<Letter> {
    tables::letters::letters(&world.disk.store, &LetterFilter::default()).expect("letters")
}

/// Returns when each submission left, in seconds since the first request.
fn submissions(world: &World) -> Vec<u64> {
    let began = world.sent[0].0;
    let times = submission_times(world).into_iter();
    times.map(|at| at.since(began).as_secs()).collect()
}

fn submission_times(world: &World) -> Vec<EventTime> {
    let sent = world.sent.iter();
    let submissions = sent.filter(|(_, endpoint)| *endpoint == "submit");
    submissions.map(|(at, _)| *at).collect()
}

#[test]
fn call_failing_with_500_is_dead_letter_and_stops_no_other() {
    let mut world = world();
    faults(&mut world, "call-history with \"leadId\":9999 status 500");
    for n in 0..2 {
        world.finish(call(n, world.now.wall, 9999, true));
    }
    for n in 2..200 {
        world.finish(call(n, world.now.wall, 4001, true));
        world.run_for(Duration::from_secs(30));
    }
    let books = world.disk.store.books();
    assert!(books.journaled >= 190 && books.dead == 2, "{books:?}");
    for letter in letters(&world) {
        assert_eq!(letter.reason, Reason::ServerError);
        // Five sends, and then the search in the journal.
        assert_eq!(letter.attempts.len(), 5 + 1, "{:?}", letter.attempts);
    }
    world.assert_never_wrong(&[ALLOWED[0]]);
}

/// A call that fails while no other is sent: the waits grow, and each attempt is followed by
/// `token/info`.
#[test]
fn call_that_fails_alone_is_sent_at_growing_intervals() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    faults(&mut world, "call-history status 500");
    world.finish(call(0, world.now.wall, 4001, true));
    world.run_for(4 * 60 * MINUTE);
    let times = submission_times(&world);
    let waits: Vec<u64> = times
        .windows(2)
        .map(|pair| pair[1].since(pair[0]).as_secs().div_ceil(60))
        .collect();
    assert_eq!(waits.len(), 8, "{waits:?}");
    for (wait, most) in waits.into_iter().zip([1, 4, 10, 20, 25, 60, 60, 60]) {
        assert!(wait <= most && wait >= most - most / 10, "{wait} of {most}");
    }
    world.assert_never_wrong(&[] as &[ViolationKind]);
}

#[test]
fn five_refusals_pause_and_all_calls_are_sent_after_a_probe() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    faults(&mut world, "call-history status 422");
    for n in 0..20 {
        world.finish(call(n, world.now.wall, 4001, false));
    }
    world.run_for(MINUTE);
    assert_eq!(world.pause().expect("a pause").reason, "calls_refused");
    let dead = world.disk.store.books().dead;
    assert!((5..=8).contains(&dead), "{dead}");
    let before = world.sent.len();
    world.run_for(50 * MINUTE);
    assert_eq!(world.sent.len(), before, "one trial an hour");
    world.run_for(20 * MINUTE);
    assert_eq!(world.disk.store.books().dead, dead + 1, "the trial call");
    faults(&mut world, "");
    world.run_for(70 * MINUTE);
    let books = world.disk.store.books();
    assert_eq!((books.journaled, books.dead), (20, 0), "{books:?}");
    assert_eq!(world.pause(), None);
    world.assert_never_wrong(&[ViolationKind::RepeatAfter400]);
}

/// A wrong lead of a number with many waiting calls. Other calls of the same employee go on.
#[test]
fn wrong_lead_delays_no_call_of_another_lead() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    faults(&mut world, "call-history with \"leadId\":9999 status 422");
    for n in 0..20 {
        world.finish(call(n, world.now.wall, 9999, false));
    }
    world.run_for(Duration::from_secs(20));
    for n in 20..50 {
        world.finish(call(n, world.now.wall, 4001, true));
        world.run_for(Duration::from_secs(5));
        assert_eq!(
            world.disk.store.books().ready,
            ready_of(&world, 9999),
            "{n}"
        );
    }
    world.run_for(MINUTE);
    let books = world.disk.store.books();
    assert_eq!(books.journaled, 30, "{books:?}");
    assert_eq!(books.dead + books.ready, 20, "{books:?}");
    world.assert_never_wrong(&[]);
}

/// Returns the number of ready calls of this lead.
fn ready_of(world: &World, lead: i64) -> u64 {
    let ready = world.disk.states.iter().filter(|(row, state)| {
        let row = tables::calls::row(&world.disk.store, **row).expect("readable");
        let record = row.expect("a call").record;
        **state == State::Ready && record.lead_id == LeadId::new(lead)
    });
    ready.count() as u64
}

/// Two branches of a hub, whose calls have different leads. All calls of the first are refused.
#[test]
fn refused_branch_lets_another_branch_send() {
    let settings = Settings {
        is_hub: true,
        ..Settings::default()
    };
    let mut world = World::new(7, settings, sandbox::Settings::default());
    for (name, at) in [("west", 0), ("east", 0)] {
        world.command(Op::AddBranch(NewBranch {
            name: name.to_owned(),
            token: name.to_owned(),
            pbxs: Vec::new(),
            at: EpochSeconds::new(at),
        }));
    }
    world.run_for(Duration::from_secs(1));
    let wrong = [4011, 4012, 4013];
    let rules = wrong.map(|lead| format!("call-history with \"leadId\":{lead} status 422"));
    faults(&mut world, &rules.join("; "));
    for n in 0..15 {
        let lead = wrong[n as usize / 5];
        world.finish(call_of_branch("west", n, &world, lead));
    }
    for n in 15..45 {
        world.finish(call_of_branch("east", n, &world, 4001));
        world.run_for(Duration::from_secs(5));
    }
    world.run_for(Duration::from_secs(20));
    let status = world.status();
    assert_eq!((status.pause, status.paused_branches.len()), (None, 1));
    let fix = &status.paused_branches["west"];
    assert!(fix.contains("and so was a call with another lead"), "{fix}");
    // Calls in flight at the fifth refusal are refused as well.
    let books = world.disk.store.books();
    assert!((6..=9).contains(&books.dead), "{books:?}");
    assert_eq!((books.journaled, books.dead + books.ready), (30, 15));
    faults(&mut world, "");
    world.run_for(70 * MINUTE);
    let books = world.disk.store.books();
    assert_eq!((books.journaled, books.dead), (45, 0), "{books:?}");
    assert!(world.status().paused_branches.is_empty());
    world.assert_never_wrong(&[ViolationKind::RepeatAfter400]);
}

fn call_of_branch(branch: &str, n: u32, world: &World, lead: i64) -> Finished {
    let mut call = call(n, world.now.wall, lead, true);
    call.branch = Some(branch.to_owned());
    call
}

#[test]
fn retried_call_is_sent_while_calls_are_refused() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    faults(&mut world, "call-history with \"leadId\":4001 status 422");
    for n in 0..20 {
        world.finish(call(n, world.now.wall, 4001, false));
    }
    world.run_for(MINUTE);
    let reason = world.pause().expect("a pause").reason;
    assert_eq!(reason, "calls_refused");
    let before = world.sent.len();
    let letter = letters(&world).pop().expect("a dead letter");
    retry(&mut world, &letter, 4001);
    world.run_for(MINUTE);
    assert_eq!(world.sent.len(), before + 1, "it is refused again");
    assert!(world.pause().is_some());
    retry(&mut world, &letter, 4002);
    world.run_for(MINUTE);
    assert_eq!(world.disk.store.books().journaled, 1);
    world.assert_never_wrong(&[ViolationKind::RepeatAfter400]);
}

/// Retries a dead letter with this lead, as a person could.
fn retry(world: &mut World, letter: &Letter, lead: i64) {
    let mut record = letter.call.clone().expect("a call");
    record.lead_id = LeadId::new(lead);
    world.command(Op::Step {
        row: letter.id,
        step: Step::Retry {
            by_itself: false,
            record,
        },
        at: world.now.wall,
    });
}

#[test]
fn status_400_makes_dead_letter_with_crm_errors_and_no_retry() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    let mut bad = call(0, world.now.wall, 4001, true);
    bad.judged.record.talk_time_sec = bad.judged.record.duration_sec + 1;
    world.finish(bad);
    let mut worse = call(1, world.now.wall, 4001, true);
    worse.judged.record.started_at = EpochSeconds::new(1_795_151_317_000);
    world.finish(worse);
    world.run_for(20 * MINUTE);
    let submits = submissions(&world).len();
    assert_eq!(submits, 2);
    let letters = letters(&world);
    assert!(
        letters
            .iter()
            .all(|letter| letter.reason == Reason::Rejected)
    );
    let errors: Vec<String> = letters
        .iter()
        .map(|letter| letter.errors.to_string())
        .collect();
    assert!(letters[0].message.starts_with("400: "), "{letters:?}");
    assert_eq!(
        errors[1],
        r#"[{"field":"startedAt","reason":"VALID_EPOCH_SEC"}]"#
    );
    world.assert_never_wrong(&[ViolationKind::Invalid]);
}

#[test]
fn status_429_despite_free_budget_waits_1_2_4_8_s() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    faults(&mut world, "call-history times 4 status 429");
    world.finish(call(0, world.now.wall, 4001, true));
    world.run_for(MINUTE);
    let times = submission_times(&world);
    assert_eq!(times.len(), 5, "{times:?}");
    for (pair, seconds) in times.windows(2).zip([1, 2, 4, 8]) {
        let wait = pair[1].since(pair[0]);
        let least = Duration::from_secs(seconds);
        // The jitter is at most half a second, and the answer needs some time.
        let most = least + Duration::from_secs(1);
        assert!(
            (least..=most).contains(&wait),
            "waited {wait:?}, expected at least {least:?}"
        );
    }
    assert!(!world.status().token_shared, "one window");
    assert_eq!(world.disk.store.books().journaled, 1);
    let exceeded = world
        .sandbox
        .violations()
        .count(ViolationKind::WindowExceeded);
    assert_eq!(exceeded, 0);
}

/// The CRM refuses the first of four requests at once, and accepts the other three later.
#[test]
fn calls_accepted_after_a_429_of_the_same_moment_end_no_wait() {
    let mut world = world();
    world.network.handling = Duration::from_millis(300);
    world.run_for(Duration::from_secs(1));
    faults(
        &mut world,
        r#"call-history with "leadId":4004 times 3 status 429"#,
    );
    for (n, lead) in (0..).zip([4004, 4001, 4002, 4003]) {
        world.finish(call(n, world.now.wall, lead, true));
    }
    world.run_for(MINUTE);
    let times = submission_times(&world);
    assert_eq!(times.len(), 4 + 3, "{times:?}");
    for (pair, seconds) in times[3..].windows(2).zip([1, 2, 4]) {
        let wait = pair[1].since(pair[0]);
        let least = Duration::from_secs(seconds);
        let most = least + Duration::from_secs(1);
        assert!((least..=most).contains(&wait), "{times:?}");
    }
    assert_eq!(world.disk.store.books().journaled, 4);
}

/// Promise: If another program uses the token, callbridge halves its rate.
#[test]
fn three_windows_with_a_429_halve_the_rate_for_ten_minutes() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    faults(&mut world, "call-history status 429");
    world.finish(call(0, world.now.wall, 4001, true));
    world.run_for(2 * MINUTE);
    assert!(!world.status().token_shared, "two windows");
    world.run_for(MINUTE);
    let status = world.status();
    assert!(status.token_shared);
    assert_eq!(status.budget(world.now.boot).limit, 30);
    faults(&mut world, "");
    world.run_for(9 * MINUTE);
    assert_eq!(world.status().budget(world.now.boot).limit, 30);
    world.run_for(2 * MINUTE);
    assert_eq!(world.status().budget(world.now.boot).limit, 60);
    assert_eq!(world.disk.store.books().journaled, 1);
}

#[test]
fn failed_write_is_dead_letter_until_retried_with_other_lead() {
    let rate = "60/6s";
    let settings = Settings {
        rate: rate.parse().expect("a rate"),
        ..Settings::default()
    };
    let rate = callbridge_sandbox::window::parse_rate(rate).expect("the same rate");
    let crm = sandbox::Settings {
        rate,
        ..sandbox::Settings::default()
    };
    let mut world = World::new(7, settings, crm);
    for n in 0..90 {
        let lead = if n % 3 == 2 { 9999 } else { 4001 };
        world.finish(call(n, world.now.wall, lead, false));
    }
    world.run_for(MINUTE);
    let books = world.disk.store.books();
    assert_eq!(
        (books.journaled, books.dead),
        (60, 30),
        "{:?}",
        world.pause()
    );
    for letter in letters(&world) {
        assert_eq!(letter.reason, Reason::Failed);
        retry(&mut world, &letter, 4002);
    }
    world.run_for(MINUTE);
    assert_eq!(world.disk.store.books().journaled, 90);
    assert_eq!(world.sandbox.records().len(), 90);
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn call_with_unreadable_request_id_is_confirmed_by_journal() {
    let mut world = world();
    faults(&mut world, "request status 404");
    world.finish(call(0, world.now.wall, 4001, true));
    world.run_for(2 * MINUTE);
    assert_eq!(submissions(&world).len(), 1);
    assert_eq!(world.disk.store.books().journaled, 1);
    world.assert_never_wrong(&[]);
}

/// The CRM answers 404 to every poll at once, and its pages cannot be read.
#[test]
fn call_is_resent_three_times_if_every_poll_answers_404() {
    let mut world = world();
    faults(&mut world, "request status 404; filter status 403");
    world.finish(call(0, world.now.wall, 4001, true));
    let hour = 60 * MINUTE;
    for (time, submits) in [(MINUTE / 2, 1), (MINUTE, 2), (2 * hour, 3), (25 * hour, 4)] {
        world.run_for(time);
        assert_eq!(submissions(&world).len(), submits, "{time:?}");
    }
    let letters = letters(&world);
    assert_eq!(letters[0].reason, Reason::Unconfirmed);
    assert_eq!(
        world.sandbox.records().len(),
        1,
        "written once all the same"
    );
}

/// Polls and pages are both refused, and there are no webhooks.
#[test]
fn call_is_sent_once_if_polls_and_pages_are_refused() {
    let mut world = world();
    faults(&mut world, "request status 403; filter status 403");
    for n in 0..3 {
        world.finish(call(n, world.now.wall, 4001, true));
    }
    world.run_for(23 * 60 * MINUTE);
    assert_eq!(
        (
            submissions(&world).len(),
            world.disk.store.books().submitted
        ),
        (3, 3)
    );
    assert_eq!(world.pause(), None);
    let degraded = world.status().degraded;
    assert_eq!(degraded.len(), 1, "{degraded:?}");
    assert!(
        degraded[0]
            .fallback
            .contains("PERMISSION_OPEN_API_CALL:READ")
    );
    world.run_for(3 * 60 * MINUTE);
    let letters = letters(&world);
    assert_eq!((submissions(&world).len(), letters.len()), (3, 3));
    assert!(
        letters
            .iter()
            .all(|letter| letter.reason == Reason::Unconfirmed)
    );
    assert_eq!(world.sandbox.records().len(), 3);
}

/// A new PAT ends the requestIds of the old one at once (§3.1, §4.6).
#[test]
fn calls_of_a_replaced_token_are_found_on_pages() {
    let mut world = world();
    faults(&mut world, "call-history hold 5s");
    for n in 0..10 {
        world.finish(call(n, world.now.wall, 4001, true));
    }
    world.run_for(Duration::from_secs(4));
    world.token = "svc_pat_two".to_owned();
    let token = world.token.clone();
    world.sandbox.issue_pat(world.now.wall, &token, None);
    world.use_token();
    world.run_for(3 * MINUTE);
    assert_eq!(
        (
            submissions(&world).len(),
            world.disk.store.books().journaled
        ),
        (10, 10)
    );
    world.assert_never_wrong(&[] as &[ViolationKind]);
}

/// OAuth: the old access token is valid until it expires, and reads its own requestIds (§5.6.6).
#[test]
fn calls_of_a_refreshed_token_are_polled_with_it() {
    let mut world = world();
    faults(&mut world, "filter status 403");
    world.finish(call(0, world.now.wall, 4001, true));
    world.run_for(Duration::from_secs(1));
    let kind = callbridge_sandbox::token::TokenKind::Access;
    let until = EpochSeconds::new(world.now.wall.floor_seconds().get() + 300);
    world
        .sandbox
        .issue(world.now.wall, "svc_at_two", kind, 1, None);
    let old = std::mem::replace(&mut world.token, "svc_at_two".to_owned());
    world.older = Some((old, until));
    world.use_token();
    world.run_for(MINUTE);
    assert_eq!(
        (
            submissions(&world).len(),
            world.disk.store.books().journaled
        ),
        (1, 1)
    );
    world.assert_never_wrong(&[] as &[ViolationKind]);
}

#[test]
fn call_written_despite_crm_error_is_no_dead_letter() {
    let mut world = world();
    faults(
        &mut world,
        "call-history with \"leadId\":4049 status-after 500",
    );
    world.finish(call(0, world.now.wall, 4049, true));
    for n in 1..120 {
        world.finish(call(n, world.now.wall, 4001, true));
        world.run_for(MINUTE);
    }
    let books = world.disk.store.books();
    assert_eq!((books.journaled, books.dead), (120, 0), "{books:?}");
    assert_eq!(world.sandbox.records().len(), 120);
    world.assert_never_wrong(&[ALLOWED[0]]);
}
