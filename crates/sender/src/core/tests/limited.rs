//! Tests the wait after a 429.

use super::*;

fn server_error(status: u16) -> ApiResult {
    Err(ApiError::Server {
        status,
        own: true,
        message: String::new(),
    })
}

#[test]
fn requests_after_429_wait_1_2_4_8_s_and_run_one_at_a_time() {
    let mut core = ready_core(Settings::default());
    let mut now = now_at(1);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let limited = Err(ApiError::TooMany(true));
        exchange(&mut core, now, &live_queue(1), limited);
        assert_eq!(pause_reason(&core, now).as_deref(), Some("rate_limited"));
        let Decision::WaitUntil(until) = core.next(now, &live_queue(1)) else {
            panic!("it waits");
        };
        let wait = until - now.boot;
        waits.push(wait.as_millis());
        now = Now {
            wall: now.wall.plus(wait),
            boot: until,
        };
    }
    for (wait, (least, more)) in waits.iter().zip([
        (1_000, 500),
        (2_000, 500),
        (4_000, 500),
        (8_000, 500),
        (60_000, 1_000),
        (60_000, 1_000),
    ]) {
        assert!((least..=least + more).contains(wait), "{wait} of {least}");
    }
    launch_next(&mut core, now, &live_queue(1));
    assert_eq!(
        core.next(now, &live_queue(2)),
        Decision::Idle,
        "its answer first"
    );
}

/// Four requests are in flight, and the one sent first gets a 429.
#[test]
fn answers_to_requests_sent_before_a_429_do_not_end_the_wait() {
    for others in [
        [accepted_answer(), accepted_answer(), accepted_answer()],
        [
            Err(ApiError::TimedOut),
            server_error(503),
            accepted_answer(),
        ],
        [
            Err(ApiError::TooMany(true)),
            Err(ApiError::TooMany(true)),
            accepted_answer(),
        ],
    ] {
        let mut core = ready_core(Settings::default());
        let four = [1, 2, 3, 4].map(|call| launch_next(&mut core, now_at(1), &live_queue(call)).0);
        let [first, rest @ ..] = four;
        core.judge_answer(now_at(10), first, Err(ApiError::TooMany(true)).into());
        for (request, answer) in rest.into_iter().zip(others) {
            core.judge_answer(now_at(10), request, answer.into());
        }
        let Decision::WaitUntil(until) = core.next(now_at(10), &live_queue(5)) else {
            panic!("it waits");
        };
        assert!((now_at(11).boot..now_at(12).boot).contains(&until));
        // The next request tests the limit, but its failure tells us nothing.
        exchange(
            &mut core,
            now_at(12),
            &live_queue(5),
            Err(ApiError::TimedOut),
        );
        assert!(core.budget.is_limited());
        exchange(&mut core, now_at(80), &live_queue(6), accepted_answer());
        assert!(!core.budget.is_limited());
    }
}

#[test]
fn accepted_answer_resets_the_wait_after_429() {
    let mut core = ready_core(Settings::default());
    exchange(
        &mut core,
        now_at(1),
        &live_queue(1),
        Err(ApiError::TooMany(true)),
    );
    exchange(&mut core, now_at(3), &live_queue(1), accepted_answer());
    assert_eq!(pause_reason(&core, now_at(3)), None);
    exchange(
        &mut core,
        now_at(4),
        &live_queue(2),
        Err(ApiError::TooMany(false)),
    );
    let Decision::WaitUntil(until) = core.next(now_at(4), &live_queue(2)) else {
        panic!("it waits");
    };
    assert!(until <= now_at(6).boot, "from 1 s on again");
}
