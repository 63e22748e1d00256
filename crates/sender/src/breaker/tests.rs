//! Tests when breakers open, how often they're probed, and when they close.

use super::*;
use callbridge_call::EventTime;

const S: Duration = Duration::from_secs(1);
const ALL: [Endpoint; 4] = [
    Endpoint::Submit,
    Endpoint::Poll,
    Endpoint::Filter,
    Endpoint::TokenInfo,
];

fn now_at(seconds: u64) -> Now {
    now_after(Duration::from_secs(seconds))
}

fn now_after(time: Duration) -> Now {
    Now {
        wall: EventTime::from_seconds(1_795_151_000).plus(time),
        boot: time,
    }
}

fn fresh_breakers() -> Breakers {
    Breakers::new(7, None)
}

fn fail(breakers: &mut Breakers, now: Now, slot: u32, endpoint: Endpoint) {
    breakers.note_failure(now, slot, endpoint, "500", false);
}

/// Creates breakers for which submissions failed five times at this second.
fn breakers_opened_at(seconds: u64) -> Breakers {
    let mut breakers = fresh_breakers();
    for slot in 0..5 {
        fail(&mut breakers, now_at(seconds), slot, Endpoint::Submit);
    }
    breakers
}

/// Creates breakers for which the CRM was unreachable at this second.
fn breakers_unreachable_at(seconds: u64) -> Breakers {
    let mut breakers = fresh_breakers();
    breakers.note_failure(now_at(seconds), 0, Endpoint::Poll, "refused", true);
    breakers
}

fn access(breakers: &Breakers, now: Now, endpoint: Endpoint) -> Access {
    breakers.access(endpoint, now.boot, false)
}

#[test]
fn fifth_failure_in_a_row_opens_breaker_of_its_endpoint() {
    let mut breakers = fresh_breakers();
    for slot in 0..4 {
        fail(&mut breakers, now_at(1), slot, Endpoint::Submit);
    }
    assert_eq!(access(&breakers, now_at(1), Endpoint::Submit), Access::Yes);
    assert!(!breakers.is_any_open());
    fail(&mut breakers, now_at(1), 4, Endpoint::Submit);
    assert!(breakers.is_any_open());
    assert_eq!(access(&breakers, now_at(1), Endpoint::Submit), Access::No);
    for endpoint in [Endpoint::Poll, Endpoint::Filter, Endpoint::TokenInfo] {
        assert_eq!(access(&breakers, now_at(1), endpoint), Access::Yes);
    }
}

#[test]
fn success_between_failures_keeps_breaker_closed() {
    let mut breakers = fresh_breakers();
    for slot in 0..4 {
        fail(&mut breakers, now_at(1), slot, Endpoint::Poll);
    }
    breakers.note_success(4, Endpoint::Poll);
    for slot in 5..9 {
        fail(&mut breakers, now_at(2), slot, Endpoint::Poll);
    }
    assert_eq!(access(&breakers, now_at(2), Endpoint::Poll), Access::Yes);
}

#[test]
fn unreachable_crm_opens_all_breakers_at_once() {
    let breakers = breakers_unreachable_at(1);
    for endpoint in ALL {
        assert_eq!(access(&breakers, now_at(1), endpoint), Access::No);
        assert_eq!(access(&breakers, now_at(2), endpoint), Access::Probe);
    }
    let failing = breakers.failing();
    assert_eq!(failing.len(), 4);
    for one in failing {
        assert!(one.unreachable);
        assert_eq!(
            (one.since, one.reason.as_str()),
            (now_at(1).wall, "refused")
        );
    }
}

#[test]
fn lead_endpoints_have_no_breaker() {
    let mut breakers = fresh_breakers();
    for slot in 0..9 {
        breakers.note_failure(now_at(1), slot, Endpoint::Lead, "500", true);
    }
    breakers.note_success(9, Endpoint::Leads);
    breakers.note_sent(10, Endpoint::FieldList, false);
    assert!(!breakers.is_any_open());
    for endpoint in [
        Endpoint::Lead,
        Endpoint::Leads,
        Endpoint::CrmFields,
        Endpoint::FieldList,
    ] {
        assert_eq!(access(&breakers, now_at(1), endpoint), Access::Yes);
    }
}

#[test]
fn open_breakers_share_one_probe() {
    let mut breakers = breakers_unreachable_at(1);
    assert!(!breakers.is_probe_due(now_at(1).boot) && breakers.is_probe_due(now_at(2).boot));
    let due = breakers.next_probe().expect("a probe");
    assert!(due > now_at(1).boot && due <= now_at(2).boot);
    breakers.note_sent(1, Endpoint::Submit, false);
    assert_eq!(breakers.last_probed(), Some(Endpoint::Submit));
    for endpoint in ALL {
        assert_eq!(access(&breakers, now_at(30), endpoint), Access::No);
    }
    assert!(!breakers.is_probe_due(now_at(30).boot));
    assert_eq!(breakers.next_probe(), None);
}

/// Returns the times of the probes before `until`, assuming that each one fails immediately.
fn probe_times(breakers: &mut Breakers, until: Duration) -> Vec<Duration> {
    let mut times = Vec::new();
    loop {
        let next = breakers.next_probe().expect("an open breaker");
        if next >= until {
            return times;
        }
        times.push(next);
        breakers.note_sent(9, Endpoint::Submit, false);
        breakers.note_failure(now_after(next), 9, Endpoint::Submit, "500", false);
    }
}

#[test]
fn probes_back_off_from_1_s_to_60_s_and_jitter_only_shortens() {
    for seed in 0..300 {
        let mut breakers = Breakers::new(seed, None);
        breakers.note_failure(now_at(0), 0, Endpoint::Submit, "refused", true);
        let mut last = Duration::ZERO;
        let times = probe_times(&mut breakers, 600 * S);
        assert!(times.len() >= 9, "{times:?}");
        for (time, most) in times.iter().zip([1, 2, 4, 8, 16, 32, 60, 60, 60]) {
            let (wait, most) = (*time - last, S * most);
            assert!(
                wait <= most && wait > most - most / 32,
                "{wait:?} of {most:?}"
            );
            last = *time;
        }
    }
    let [mut one, mut other] = [1, 2].map(|seed| Breakers::new(seed, None));
    one.note_failure(now_at(0), 0, Endpoint::Submit, "refused", true);
    other.note_failure(now_at(0), 0, Endpoint::Submit, "refused", true);
    assert_ne!(
        one.next_probe(),
        other.next_probe(),
        "programs do not all ask at the same time"
    );
}

#[test]
fn failing_probes_are_sent_60_to_69_times_in_an_hour() {
    for seed in 0..50 {
        let mut breakers = Breakers::new(seed, None);
        breakers.note_failure(now_at(0), 0, Endpoint::Submit, "refused", true);
        let probes = probe_times(&mut breakers, 3600 * S).len();
        assert!((60..70).contains(&probes), "{probes}");
    }
}

#[test]
fn success_of_a_probe_half_opens_all_breakers() {
    let mut breakers = breakers_unreachable_at(1);
    breakers.note_sent(1, Endpoint::Poll, false);
    breakers.note_success(1, Endpoint::Poll);
    assert_eq!(access(&breakers, now_at(2), Endpoint::Poll), Access::Yes);
    assert_eq!(
        breakers.access(Endpoint::Poll, now_at(2).boot, true),
        Access::Yes
    );
    for endpoint in [Endpoint::Submit, Endpoint::Filter, Endpoint::TokenInfo] {
        assert_eq!(access(&breakers, now_at(2), endpoint), Access::Yes);
        let second = breakers.access(endpoint, now_at(2).boot, true);
        assert_eq!(second, Access::No, "one request at a time");
    }
    assert_eq!(breakers.failing(), []);
    assert!(!breakers.is_any_open());
}

#[test]
fn half_open_breaker_closes_on_success_and_opens_on_failure() {
    let mut breakers = breakers_unreachable_at(1);
    breakers.note_sent(1, Endpoint::Poll, false);
    breakers.note_success(1, Endpoint::Poll);
    breakers.note_success(2, Endpoint::Filter);
    assert_eq!(
        breakers.access(Endpoint::Filter, now_at(2).boot, true),
        Access::Yes
    );
    fail(&mut breakers, now_at(2), 3, Endpoint::Submit);
    assert_eq!(access(&breakers, now_at(2), Endpoint::Submit), Access::No);
    let next = breakers.next_probe().expect("open again");
    assert!(
        next > now_at(3).boot && next <= now_at(4).boot,
        "the wait is doubled"
    );
}

#[test]
fn success_of_a_closed_endpoint_half_opens_nothing() {
    let mut breakers = breakers_opened_at(1);
    breakers.note_success(9, Endpoint::Poll);
    assert_eq!(access(&breakers, now_at(1), Endpoint::Submit), Access::No);
    assert_eq!(breakers.failing().len(), 1);
}

#[test]
fn late_success_of_an_open_endpoint_closes_it() {
    let mut breakers = breakers_opened_at(1);
    breakers.note_success(9, Endpoint::Submit);
    assert_eq!(access(&breakers, now_at(1), Endpoint::Submit), Access::Yes);
    assert!(!breakers.is_any_open());
}

#[test]
fn failure_of_another_request_does_not_change_probe_wait() {
    let mut breakers = breakers_opened_at(1);
    let next = breakers.next_probe();
    fail(&mut breakers, now_at(1), 9, Endpoint::Submit);
    assert_eq!(breakers.next_probe(), next);
    for slot in 10..15 {
        fail(&mut breakers, now_at(1), slot, Endpoint::Poll);
    }
    assert_eq!(breakers.next_probe(), next, "another breaker joins");
    assert_eq!(breakers.failing().len(), 2);
}

#[test]
fn token_info_serves_as_probe_and_half_opens_others() {
    let mut breakers = breakers_opened_at(1);
    breakers.note_sent(9, Endpoint::TokenInfo, true);
    assert_eq!(breakers.last_probed(), Some(Endpoint::TokenInfo));
    assert!(!breakers.is_probe_due(now_at(9).boot));
    breakers.note_success(9, Endpoint::TokenInfo);
    assert_eq!(access(&breakers, now_at(2), Endpoint::Submit), Access::Yes);
    let mut breakers = breakers_opened_at(1);
    breakers.note_sent(9, Endpoint::TokenInfo, false);
    breakers.note_success(9, Endpoint::TokenInfo);
    assert_eq!(access(&breakers, now_at(1), Endpoint::Submit), Access::No);
    assert_eq!(breakers.last_probed(), None);
}

#[test]
fn failed_token_info_probe_doubles_the_wait() {
    let mut breakers = breakers_opened_at(1);
    breakers.note_sent(9, Endpoint::TokenInfo, true);
    fail(&mut breakers, now_at(2), 9, Endpoint::TokenInfo);
    let next = breakers.next_probe().expect("a probe");
    assert!(next > now_at(3).boot && next <= now_at(4).boot, "{next:?}");
}

#[test]
fn released_probe_permits_another_probe() {
    let mut breakers = breakers_opened_at(1);
    breakers.note_sent(9, Endpoint::Submit, false);
    breakers.release(8);
    assert_eq!(access(&breakers, now_at(2), Endpoint::Submit), Access::No);
    breakers.release(9);
    assert_eq!(
        access(&breakers, now_at(2), Endpoint::Submit),
        Access::Probe
    );
}

#[test]
fn next_outage_restarts_the_backoff() {
    let mut breakers = breakers_unreachable_at(0);
    assert_eq!(probe_times(&mut breakers, 60 * S).len(), 5);
    breakers.note_sent(1, Endpoint::Poll, false);
    breakers.note_success(1, Endpoint::Poll);
    for endpoint in ALL {
        breakers.note_success(2, endpoint);
    }
    breakers.note_failure(now_at(100), 3, Endpoint::Poll, "refused", true);
    let next = breakers.next_probe().expect("a probe");
    assert!(next > now_at(100).boot && next <= now_at(101).boot);
}

#[test]
fn failing_endpoint_shows_its_first_failure_and_last_reason() {
    let mut breakers = fresh_breakers();
    for (slot, reason) in [(0, "500"), (1, "503"), (2, "503"), (3, "504"), (4, "502")] {
        breakers.note_failure(
            now_at(u64::from(slot)),
            slot,
            Endpoint::Filter,
            reason,
            false,
        );
    }
    let expected = Failing {
        endpoint: Endpoint::Filter,
        since: now_at(0).wall,
        reason: "502".to_owned(),
        unreachable: false,
    };
    assert_eq!(breakers.failing(), [expected]);
}

#[test]
fn failing_submissions_keep_their_start_over_a_restart() {
    let since = EventTime::from_seconds(7);
    let mut breakers = Breakers::new(7, Some(since));
    fail(&mut breakers, now_at(1), 0, Endpoint::Submit);
    assert_eq!(breakers.submit_failing_since(), Some(since));
    breakers.note_success(1, Endpoint::Submit);
    assert_eq!(breakers.submit_failing_since(), None);
    fail(&mut breakers, now_at(2), 2, Endpoint::Submit);
    assert_eq!(breakers.submit_failing_since(), Some(now_at(2).wall));
}
