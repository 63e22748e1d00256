//! Each way in which the CRM can be out of work, for five virtual minutes: nothing is lost, what
//! is wrong and its cure are shown, at most one probe a minute goes out, and it goes on by itself.

use crate::calls::call;
use crate::world::{Network, World};
use callbridge::journal::{LeadId, Reason};
use callbridge::sandbox::faults::{Action, parse};
use callbridge::sandbox::token::TokenKind;
use callbridge::sandbox::{self, Kind};
use callbridge::sender::Settings;
use callbridge::spool::{Books, LetterFilter, Op, Step};
use callbridge_call::EpochSeconds;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Requests under way when the trouble began, and those by which it was found out.
const FINDING_OUT: usize = 6;

/// A uuid again after a 200 that the sender did not get to read.
const ALLOWED: [Kind; 1] = [Kind::RepeatAfter200];

fn world() -> World {
    World::new(7, Settings::default(), sandbox::Settings::default())
}

/// Live calls, one every ten seconds.
fn calls_for(world: &mut World, first: u32, time: Duration) {
    let count = u32::try_from(time.as_secs() / 10).expect("few");
    for n in first..first + count {
        world.finish(call(n, world.now.wall, 4001 + i64::from(n % 50), true));
        world.run_for(Duration::from_secs(10));
    }
}

fn faults(world: &mut World, text: &str) {
    let (rules, _) = parse(text).expect("faults that can be read");
    world.sandbox.set_faults(rules);
}

/// All is well, then trouble for five minutes, then all is well again.
fn trouble(begin: impl FnOnce(&mut World), end: impl FnOnce(&mut World), reason: &str, cure: &str) {
    let mut world = world();
    calls_for(&mut world, 0, MINUTE);
    begin(&mut world);
    let before = world.sent.len();
    let began = world.now.wall;
    calls_for(&mut world, 100, 5 * MINUTE);

    let pause = world.status().pause.expect("a pause");
    assert_eq!(pause.reason, reason);
    assert!(pause.cure.contains(cure), "{}", pause.cure);
    let Books {
        finished,
        dead,
        discarded,
        ..
    } = world.store.books();
    assert_eq!((finished, dead, discarded), (36, 0, 0));
    let sent = &world.sent[before..];
    let after = |from: u64, to: u64| {
        let within = |at: u64| at >= from * 60 && at < to * 60;
        sent.iter()
            .filter(|(at, _)| within(at.since(began).as_secs()))
            .count()
    };
    assert!(after(0, 1) <= FINDING_OUT, "{sent:?}");
    for minute in 1..5 {
        assert!(after(minute, minute + 1) <= 1, "minute {minute}: {sent:?}");
    }
    assert!(
        after(1, 5) >= 3,
        "it no longer looks whether it is over: {sent:?}"
    );

    end(&mut world);
    world.run_for(10 * MINUTE);
    let Books {
        finished,
        journaled,
        ..
    } = world.store.books();
    assert_eq!(
        (finished, journaled),
        (36, 36),
        "{:?}",
        world.status().pause
    );
    assert_eq!(world.status().pause, None);
    assert_eq!(world.sandbox.records().len(), 36);
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn under_401_everything_is_kept_and_a_new_token_is_taken_up() {
    trouble(
        |world| world.sandbox.revoke_all(world.now.wall),
        |world| {
            world.token = "svc_pat_two".to_owned();
            let token = world.token.clone();
            world.sandbox.issue_pat(world.now.wall, &token, None);
            world.use_token();
        },
        "token_refused",
        "--token-file",
    );
}

#[test]
fn a_company_unblocked_again_needs_no_new_token() {
    trouble(
        |world| {
            world
                .sandbox
                .company(world.now.wall, |company| company.blocked = true)
        },
        |world| {
            world
                .sandbox
                .company(world.now.wall, |company| company.blocked = false)
        },
        "token_refused",
        "whether the company is blocked",
    );
}

#[test]
fn under_406_everything_is_kept() {
    trouble(
        |world| faults(world, "any status 406"),
        |world| faults(world, ""),
        "token_refused",
        "406",
    );
}

#[test]
fn under_403_the_missing_grant_is_named_and_looked_for() {
    let grants = std::cell::RefCell::new(Vec::new());
    trouble(
        |world| {
            world.sandbox.company(world.now.wall, |company| {
                grants.replace(std::mem::take(&mut company.grants));
            });
        },
        |world| world.sandbox.set_grants(world.now.wall, grants.take()),
        "no_grant",
        "PERMISSION_OPEN_API_CALL:SAVE",
    );
}

#[test]
fn a_403_that_token_info_does_not_explain_is_tried_once_a_minute() {
    trouble(
        |world| faults(world, "call-history status 403"),
        |world| faults(world, ""),
        "no_grant",
        "PERMISSION_OPEN_API_CALL:SAVE",
    );
}

#[test]
fn under_500_everywhere_everything_is_kept() {
    trouble(
        |world| faults(world, "any status 500"),
        |world| faults(world, ""),
        "outage",
        "500",
    );
}

#[test]
fn under_500_on_submissions_alone_no_call_is_blamed() {
    trouble(
        |world| faults(world, "call-history status 503"),
        |world| faults(world, ""),
        "outage",
        "503",
    );
}

#[test]
fn behind_a_gateway_that_is_down_everything_is_kept() {
    trouble(
        |world| faults(world, "any gateway 502"),
        |world| faults(world, ""),
        "outage",
        "502",
    );
}

#[test]
fn under_time_outs_everything_is_kept() {
    trouble(
        |world| world.network.silent = true,
        |world| world.network.silent = false,
        "outage",
        "no answer in time",
    );
}

#[test]
fn without_a_connection_everything_is_kept() {
    trouble(
        |world| world.network.refuses = true,
        |world| world.network.refuses = false,
        "outage",
        "connection refused",
    );
}

#[test]
fn with_answers_that_cannot_be_read_everything_is_kept() {
    for action in ["broken", "no-request-id", "accept-false", "lost", "cut"] {
        let rule = format!("call-history {action}");
        trouble(
            |world| faults(world, &rule),
            |world| faults(world, ""),
            "outage",
            "",
        );
    }
}

#[test]
fn at_a_wrong_address_everything_is_kept() {
    for status in [302, 404, 405, 415] {
        let rule = format!("any status {status}");
        trouble(
            |world| faults(world, &rule),
            |world| faults(world, ""),
            "wrong_address",
            "--crm-url",
        );
    }
}

#[test]
fn a_service_that_is_down_from_the_start_is_waited_for() {
    let mut world = world();
    world.network.refuses = true;
    calls_for(&mut world, 0, 5 * MINUTE);
    assert!(world.sent.len() <= 5, "{:?}", world.sent);
    assert!(
        world
            .sent
            .iter()
            .all(|(_, endpoint)| *endpoint == "token_info")
    );
    world.network = Network {
        delay: Duration::from_millis(300),
        ..Network::default()
    };
    world.run_for(5 * MINUTE);
    assert_eq!(world.store.books().journaled, 30);
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn another_company_s_token_is_asked_once_and_not_used() {
    let mut world = world();
    calls_for(&mut world, 0, MINUTE);
    let right = std::mem::replace(&mut world.token, "svc_pat_other".to_owned());
    world
        .sandbox
        .issue(world.now.wall, "svc_pat_other", TokenKind::Pat, 2, None);
    world.use_token();
    let before = world.sent.len();
    calls_for(&mut world, 100, 5 * MINUTE);
    assert_eq!(
        world.sent[before..]
            .iter()
            .map(|it| it.1)
            .collect::<Vec<_>>(),
        ["token_info"]
    );
    let status = world.status();
    assert_eq!(status.token.state, "wrong_company");
    assert_eq!(status.pause.expect("a pause").reason, "wrong_company");
    world.token = right;
    world.use_token();
    world.run_for(5 * MINUTE);
    assert_eq!(world.store.books().journaled, 36);
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn one_call_that_the_service_fails_on_is_a_server_error_and_stops_no_other() {
    let mut world = world();
    world.poison = Some("\"leadId\":4999");
    for n in 0..2 {
        world.finish(call(n, world.now.wall, 4999, true));
    }
    for n in 2..200 {
        world.finish(call(n, world.now.wall, 4001, true));
        world.run_for(Duration::from_secs(30));
    }
    let books = world.store.books();
    assert!(books.journaled >= 190 && books.dead == 2, "{books:?}");
    for letter in world
        .store
        .letters(&LetterFilter::default())
        .expect("letters")
    {
        assert_eq!(letter.reason, Reason::ServerError);
        assert!(
            (5..=9).contains(&letter.attempts.len()),
            "{:?}",
            letter.attempts
        );
    }
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn five_refusals_in_a_row_stop_the_line_and_one_call_a_minute_tries_it() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    for n in 0..20 {
        world.finish(call(n, world.now.wall, 9999, false));
    }
    world.run_for(MINUTE);
    let books = world.store.books();
    let status = world.status();
    assert_eq!(status.pause.expect("a pause").reason, "calls_refused");
    let dead = books.dead;
    assert!((5..=8).contains(&dead), "{books:?}");
    let before = world.sent.len();
    world.run_for(5 * MINUTE);
    assert!(world.sent.len() - before <= 5);
    assert!(world.store.books().dead <= dead + 5);
    world.sandbox.add_lead(world.now.wall, 9999);
    for n in 100..105 {
        world.finish(call(n, world.now.wall, 4001, true));
    }
    world.run_for(60 * MINUTE);
    let books = world.store.books();
    assert!(books.settled(), "{books:?}");
    assert_eq!(books.journaled + books.dead, 25);
    assert!(books.journaled >= 5, "{books:?}");
    assert_eq!(world.status().pause, None);
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn a_400_is_a_letter_with_the_service_s_words_and_is_never_repeated() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    let mut bad = call(0, world.now.wall, 4001, true);
    bad.judged.record.talk_time_sec = bad.judged.record.duration_sec + 1;
    world.finish(bad);
    let mut worse = call(1, world.now.wall, 4001, true);
    worse.judged.record.started_at = EpochSeconds::new(1_795_151_317_000);
    world.finish(worse);
    world.run_for(20 * MINUTE);
    let submits = world
        .sent
        .iter()
        .filter(|(_, endpoint)| *endpoint == "submit")
        .count();
    assert_eq!(submits, 2);
    let letters = world
        .store
        .letters(&LetterFilter::default())
        .expect("letters");
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
    world.assert_never_wrong(&[Kind::Invalid]);
}

#[test]
fn a_429_that_is_not_ours_is_waited_out_and_halves_the_pace() {
    let mut world = world();
    world.run_for(Duration::from_secs(1));
    faults(&mut world, "call-history times 3 status 429");
    world.finish(call(0, world.now.wall, 4001, true));
    world.run_for(MINUTE);
    let submits: Vec<u64> = world
        .sent
        .iter()
        .filter(|(_, endpoint)| *endpoint == "submit")
        .map(|(at, _)| at.since(world.sent[0].0).as_secs())
        .collect();
    assert_eq!(submits.len(), 4, "{submits:?}");
    assert!(
        submits[3] >= 1 + 1 + 2 + 4 && submits[3] <= 11,
        "{submits:?}"
    );
    let status = world.status();
    assert!(status.token_shared);
    assert_eq!(status.budget(world.now.boot).limit, 30);
    assert_eq!(world.store.books().journaled, 1);
    assert_eq!(world.sandbox.breaches().count(Kind::WindowExceeded), 0);
}

#[test]
fn a_failed_write_is_a_dead_letter_and_its_retry_with_another_lead_is_journaled() {
    let rate = "60/6s";
    let settings = Settings {
        rate: rate.parse().expect("a rate"),
        ..Settings::default()
    };
    let rate = callbridge::sandbox::config::parse_rate(rate).expect("the same rate");
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
    let books = world.store.books();
    assert_eq!(
        (books.journaled, books.dead),
        (60, 30),
        "{:?}",
        world.status().pause
    );
    let now = world.now.wall;
    for letter in world
        .store
        .letters(&LetterFilter::default())
        .expect("letters")
    {
        assert_eq!(letter.reason, Reason::Failed);
        let mut record = letter.call.expect("a call");
        record.lead_id = LeadId::new(4002);
        let step = Step::Retry { record };
        world.write(vec![Op::Step {
            row: letter.id,
            step,
            at: now,
        }]);
    }
    world.run_for(MINUTE);
    assert_eq!(world.store.books().journaled, 90);
    assert_eq!(world.sandbox.records().len(), 90);
    world.assert_never_wrong(&ALLOWED);
}

#[test]
fn a_poll_that_finds_nothing_sends_the_call_again_three_times_at_most() {
    let mut world = world();
    faults(&mut world, "request status 404");
    world.finish(call(0, world.now.wall, 4001, true));
    world.run_for(5 * MINUTE);
    let submits = world
        .sent
        .iter()
        .filter(|(_, endpoint)| *endpoint == "submit")
        .count();
    assert_eq!(submits, 4);
    let letters = world
        .store
        .letters(&LetterFilter::default())
        .expect("letters");
    assert_eq!(letters[0].reason, Reason::Unconfirmed);
    assert_eq!(
        world.sandbox.records().len(),
        1,
        "written once all the same"
    );
}

#[test]
fn what_a_rule_strikes_always_has_an_action() {
    // keeps the texts above honest: a misspelt rule would strike nothing
    let (rules, _) = parse("call-history times 1 status 500; any gateway 502").expect("good");
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].action, Action::Status(500));
}
