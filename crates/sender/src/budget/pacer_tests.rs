//! Compares the pacer with a fixed window starting at any offset, across delays, stalls, and
//! restarts.

use super::*;
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

fn fresh_pacer(text: &str) -> Pacer {
    Pacer::start(rate(text), BTreeMap::new(), Duration::ZERO, LOST_ARRIVE)
}

/// Creates a pacer whose slots are from another boot, or from an unknown one.
fn doubtful_pacer(rate: Rate, slots: impl IntoIterator<Item = u32>, now: Duration) -> Pacer {
    let (sent, ended) = (now, Some(now + STRAGGLER));
    let uses = slots.into_iter().map(|slot| (slot, Use { sent, ended }));
    let mut pacer = Pacer::start(rate, uses.collect(), now, LOST_ARRIVE);
    pacer.await_unknown(now, None, SilenceReason::UncertainSlots);
    pacer
}

/// Returns how many slots count in a window that's open now.
fn used_slots(pacer: &Pacer, now: Duration) -> usize {
    pacer.frees(now).count()
}

/// Sends requests at `now`, each with an immediate response, until one is refused. Returns how many
/// were sent.
fn burst(pacer: &mut Pacer, now: Duration) -> u32 {
    let mut sent = 0;
    while let Ok(slot) = pacer.take(now, Pace::AtOnce) {
        pacer.note_end(slot, now).expect("a slot under way");
        sent += 1;
    }
    sent
}

#[test]
fn fresh_pacer_sends_whole_limit_then_waits_one_window() {
    let mut pacer = fresh_pacer("60/60s");
    assert_eq!(burst(&mut pacer, S), 60);
    assert_eq!(used_slots(&pacer, S), 60);
    assert_eq!(burst(&mut pacer, 61 * S), 0);
    let free = pacer.frees(61 * S).next().expect("a slot");
    assert_eq!(free, Some(61 * S + Duration::from_millis(30)));
    assert_eq!(burst(&mut pacer, 61 * S + Duration::from_millis(30)), 60);
}

#[test]
fn slot_frees_one_window_after_its_answer() {
    let mut pacer = fresh_pacer("1/60s");
    let slot = pacer.take(S, Pace::AtOnce).expect("free");
    assert_eq!(pacer.take(100 * S, Pace::AtOnce), Err(None));
    pacer.note_end(slot, 100 * S);
    let free = 160 * S + Duration::from_millis(30);
    assert_eq!(pacer.take(159 * S, Pace::AtOnce), Err(Some(free)));
    assert_eq!(pacer.take(free, Pace::AtOnce), Ok(slot));
}

#[test]
fn request_that_was_never_sent_returns_its_slot() {
    let mut pacer = fresh_pacer("1/60s");
    let slot = pacer.take(S, Pace::AtOnce).expect("free");
    pacer.never_sent(slot);
    assert_eq!(pacer.take(S, Pace::AtOnce), Ok(slot));
}

#[test]
fn backlog_is_paced_evenly_and_live_call_does_not_wait() {
    let mut pacer = fresh_pacer("60/60s");
    let mut now = S;
    let mut sent = Vec::new();
    while sent.len() < 20 {
        match pacer.take(now, Pace::Even) {
            Ok(_) => sent.push(now),
            Err(at) => now = at.expect("a moment"),
        }
    }
    assert_eq!(sent.iter().filter(|at| **at == S).count(), 15);
    assert_eq!(sent[19], 6 * S, "then one a second");
    assert!(pacer.take(now, Pace::Even).is_err());
    assert!(pacer.take(now, Pace::AtOnce).is_ok());
}

#[test]
fn restart_in_same_boot_keeps_slots_and_adds_no_wait() {
    let mut pacer = fresh_pacer("3/60s");
    let first = pacer.take(S, Pace::AtOnce).expect("free");
    pacer.note_end(first, 2 * S);
    pacer.take(3 * S, Pace::AtOnce).expect("free");
    let kept = pacer.uses(4 * S).collect();
    let mut again = Pacer::start(rate("3/60s"), kept, 10 * S, LOST_ARRIVE);
    assert_eq!(used_slots(&again, 10 * S), 2);
    assert!(again.take(10 * S, Pace::AtOnce).is_ok());
    let ends: Vec<_> = again.uses(10 * S).map(|(_, one)| one.ended).collect();
    assert_eq!(
        ends,
        [Some(2 * S), Some(10 * S + LOST_ARRIVE), None],
        "killed in flight"
    );
}

/// Promise: After a reboot, callbridge sends nothing for 60 seconds.
#[test]
fn reboot_is_followed_by_a_window_of_silence() {
    let mut pacer = doubtful_pacer(rate("60/60s"), [0, 7], S);
    let until = S + LOST_ARRIVE + 60 * S + Duration::from_millis(30);
    assert_eq!(pacer.take(S, Pace::AtOnce), Err(Some(until)));
    assert_eq!(pacer.silent(S).map(|silent| silent.until), Some(until));
    assert_eq!(burst(&mut pacer, until), 60);
}

#[test]
fn freed_slot_does_not_count_as_used() {
    let mut pacer = fresh_pacer("2/60s");
    assert_eq!(pacer.rate, rate("2/60s"));
    assert_eq!(burst(&mut pacer, S), 2);
    let free = pacer.frees(S).next().flatten().expect("answered");
    let before = free - Duration::from_nanos(1);
    assert_eq!(
        (used_slots(&pacer, before), used_slots(&pacer, free)),
        (2, 0)
    );
    assert_eq!(pacer.uses(free).count(), 0);
}

/// Creates a pacer that got a 429 at each of these seconds.
fn pacer_limited_at(seconds: &[u32]) -> Pacer {
    let mut pacer = fresh_pacer("60/60s");
    for second in seconds {
        pacer.note_limit(S * *second);
    }
    pacer
}

#[test]
fn third_window_in_a_row_with_a_429_halves_the_rate() {
    assert_eq!(pacer_limited_at(&[1, 2, 60, 61, 62]).allowed(62 * S), 60);
    let pacer = pacer_limited_at(&[1, 2, 61, 121]);
    assert_eq!(pacer.allowed(121 * S), 30);
    assert!(pacer.is_shared(121 * S));
    assert_eq!(pacer.shared(), Some((30, 121 * S)));
}

#[test]
fn window_without_a_429_resets_the_count() {
    let pacer = pacer_limited_at(&[1, 61, 181, 241]);
    assert_eq!(pacer.allowed(241 * S), 60);
    let mut pacer = pacer;
    pacer.note_limit(301 * S);
    assert_eq!(pacer.allowed(301 * S), 30);
}

#[test]
fn rate_is_never_halved_below_a_quarter() {
    let mut pacer = pacer_limited_at(&[1, 61, 121]);
    for second in [181, 241, 301] {
        pacer.note_limit(S * second);
    }
    assert_eq!(pacer.allowed(301 * S), 15);
    for second in [361, 421, 481] {
        pacer.note_limit(S * second);
    }
    assert_eq!(pacer.allowed(481 * S), 15);
}

#[test]
fn lowered_rate_doubles_after_ten_minutes_without_a_429() {
    let pacer = pacer_limited_at(&[1, 61, 121, 181, 241, 301]);
    assert_eq!(pacer.allowed(900 * S), 15);
    assert_eq!(pacer.allowed(901 * S), 30);
    assert!(pacer.is_shared(1500 * S));
    assert_eq!(pacer.allowed(1501 * S), 60);
    assert!(!pacer.is_shared(1501 * S));
    assert_eq!(pacer.allowed(100_000 * S), 60);
}

#[test]
fn each_429_keeps_lowered_rate_for_another_ten_minutes() {
    let mut pacer = pacer_limited_at(&[1, 61, 121]);
    pacer.note_limit(700 * S);
    assert_eq!(pacer.allowed(1299 * S), 30);
    assert_eq!(pacer.allowed(1300 * S), 60);
    let mut pacer = pacer_limited_at(&[1, 61, 121, 181, 241, 301]);
    pacer.note_limit(1000 * S);
    assert_eq!(pacer.allowed(1000 * S), 30, "doubled before");
    assert_eq!(pacer.allowed(1600 * S), 60);
}

#[test]
fn unknown_requests_start_a_silence_and_restored_share_is_kept() {
    let mut pacer = fresh_pacer("60/60s");
    assert_eq!(pacer.shared(), None);
    pacer.await_unknown(S, None, SilenceReason::UncertainSlots);
    let until = S + LOST_ARRIVE + 60 * S + Duration::from_millis(30);
    assert_eq!(pacer.silent(S).map(|silent| silent.until), Some(until));
    assert_eq!(pacer.take(S, Pace::AtOnce), Err(Some(until)));
    pacer.share(20, 2 * S);
    assert_eq!(pacer.shared(), Some((20, 2 * S)));
    assert_eq!(pacer.allowed(3 * S), 20);
    pacer.share(3, 2 * S);
    assert_eq!(pacer.allowed(3 * S), 15, "never below a quarter");
}

#[test]
fn lower_limit_after_restart_counts_earlier_requests() {
    let mut pacer = fresh_pacer("60/60s");
    assert_eq!(burst(&mut pacer, S), 60);
    let kept = pacer.uses(S).collect();
    let mut lower = Pacer::start(rate("10/60s"), kept, 2 * S, LOST_ARRIVE);
    assert_eq!(burst(&mut lower, 60 * S), 0);
    assert_eq!(burst(&mut lower, 62 * S), 10);
}

#[test]
fn shorter_window_before_restart_counts_in_crm_window() {
    let mut pacer = fresh_pacer("30/30s");
    assert_eq!(burst(&mut pacer, S), 30);
    assert_eq!(
        burst(&mut pacer, 32 * S),
        30,
        "sixty in the service's window"
    );
    let kept = pacer.uses(33 * S).collect();
    let mut again = Pacer::start(rate("60/60s"), kept, 34 * S, LOST_ARRIVE);
    assert_eq!(burst(&mut again, 60 * S), 0);
    assert_eq!(burst(&mut again, 62 * S), 30);
}

#[test]
fn shorter_window_after_restart_keeps_crm_window_limit() {
    let mut pacer = fresh_pacer("60/60s");
    assert_eq!(burst(&mut pacer, S), 60);
    let kept = pacer.uses(31 * S).collect();
    let mut again = Pacer::start(rate("10/10s"), kept, 32 * S, LOST_ARRIVE);
    assert_eq!(
        used_slots(&again, 32 * S),
        0,
        "none in the last ten seconds"
    );
    assert_eq!(burst(&mut again, 33 * S), 0, "sixty in the last minute");
    assert_eq!(burst(&mut again, 62 * S), 10);
}

#[test]
fn rate_above_the_crm_limit_is_the_only_limit() {
    let mut pacer = fresh_pacer("60/6s");
    assert_eq!(burst(&mut pacer, S), 60);
    assert_eq!(burst(&mut pacer, 8 * S), 60);
    assert_eq!(pacer.uses(8 * S).count(), 60);
}

/// Something that happens between two requests. Times are in milliseconds.
#[derive(Clone, Debug)]
enum Event {
    /// A request, with the time that its commit stalls, the time until it arrives, and the time
    /// until its response arrives. It times out if it takes longer than 30 s.
    Request {
        pace: Pace,
        stall: u64,
        there: u64,
        back: u64,
    },
    /// A request's commit fails, so nothing is sent.
    CommitFails,
    /// Time passes.
    Idle(u64),
    /// The process is killed, and restarted in the same boot with this rate.
    Restart { down: u64, rate: Rate },
    /// The machine is rebooted, so its monotonic clock starts over.
    Reboot { down: u64, rate: Rate },
    /// Another program's requests cause a 429.
    Refused,
}

/// Generates rates for one token, each allowing at most 60 requests per minute.
fn rates() -> impl Strategy<Value = Rate> {
    let texts = [
        "60/60s", "60/60s", "10/10s", "30/30s", "7/60s", "1/1s", "20/20s", "60/90s",
    ];
    prop::sample::select(texts.to_vec()).prop_map(rate)
}

fn milliseconds() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..300_u64, 2 => 0..5_000_u64, 1 => 0..70_000_u64]
}

fn event() -> impl Strategy<Value = Event> {
    let stall = prop_oneof![8 => Just(0), 1 => 0..4_000_u64];
    let pace = prop_oneof![3 => Just(Pace::AtOnce), 1 => Just(Pace::Even)];
    let down = prop_oneof![Just(0), 0..3_000_u64, 0..40_000_u64];
    prop_oneof![
        40 => (pace, stall, milliseconds(), milliseconds()).prop_map(|(pace, stall, there, back)| {
            Event::Request { pace, stall, there, back }
        }),
        2 => Just(Event::CommitFails),
        4 => milliseconds().prop_map(Event::Idle),
        2 => (down, rates()).prop_map(|(down, rate)| Event::Restart { down, rate }),
        1 => (20_000..60_000_u64, rates()).prop_map(|(down, rate)| Event::Reboot { down, rate }),
        1 => Just(Event::Refused),
    ]
}

/// Generates events: bursts that reach the limit, and single requests with time between them.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let many = (1..80_usize, 0..300_u64, 0..300_u64).prop_map(|(times, there, back)| {
        let (pace, stall) = (Pace::AtOnce, 0);
        vec![
            Event::Request {
                pace,
                stall,
                there,
                back
            };
            times
        ]
    });
    let some = prop_oneof![1 => many, 4 => event().prop_map(|event| vec![event])];
    prop::collection::vec(some, 1..60).prop_map(|parts| parts.concat())
}

const TIME_OUT: u64 = 30_000;
const NEVER_LATER: u64 = 5_000;

/// A simulated process and network, whose time continues across reboots.
struct Simulation {
    now: u64,
    /// Time at which this boot began.
    booted: u64,
    pacer: Pacer,
    /// Each slot, when its end is seen, and the time that counts as its end.
    under_way: Vec<(u32, u64, u64)>,
    arrived: Vec<u64>,
}

impl Simulation {
    fn new(rate: Rate) -> Self {
        Self {
            now: 0,
            booted: 0,
            pacer: Pacer::start(rate, BTreeMap::new(), Duration::ZERO, LOST_ARRIVE),
            under_way: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// Returns the monotonic clock's time at this moment.
    fn boot_time(&self, at: u64) -> Duration {
        Duration::from_millis(at - self.booted)
    }

    fn play(&mut self, event: &Event) {
        self.settle();
        match *event {
            Event::Request {
                pace,
                stall,
                there,
                back,
            } => self.request(pace, stall, there, back),
            Event::CommitFails => {
                if let Ok(slot) = self.pacer.take(self.boot_time(self.now), Pace::AtOnce) {
                    self.pacer.never_sent(slot);
                }
            }
            Event::Idle(for_ms) => self.now += for_ms,
            Event::Refused => {
                self.pacer.note_limit(self.boot_time(self.now));
            }
            Event::Restart { down, rate } => {
                let kept = self.pacer.uses(self.boot_time(self.now)).collect();
                self.kill(down);
                self.pacer = Pacer::start(rate, kept, self.boot_time(self.now), LOST_ARRIVE);
            }
            Event::Reboot { down, rate } => {
                let kept = self
                    .pacer
                    .uses(self.boot_time(self.now))
                    .map(|(slot, _)| slot);
                let kept: Vec<u32> = kept.collect();
                self.kill(down);
                self.booted = self.now - 3_000;
                self.pacer = doubtful_pacer(rate, kept, self.boot_time(self.now));
            }
        }
    }

    /// Handles the responses seen by now.
    fn settle(&mut self) {
        let (seen, open) = self
            .under_way
            .iter()
            .partition(|(_, seen, _)| *seen <= self.now);
        self.under_way = open;
        for (slot, _, ended) in Vec::<(u32, u64, u64)>::into_iter(seen) {
            self.pacer
                .note_end(slot, self.boot_time(ended))
                .expect("under way");
        }
    }

    fn request(&mut self, pace: Pace, stall: u64, there: u64, back: u64) {
        let taken = self.pacer.take(self.boot_time(self.now), pace);
        let Ok(slot) = taken else {
            // A wait may end later than planned, but never earlier.
            self.now += 250;
            return;
        };
        let left = self.now + stall;
        // A request that hasn't arrived 5 s after its connection was closed never will.
        if there < TIME_OUT + NEVER_LATER {
            self.arrived.push(left + there);
        }
        let (answer, out) = (left + there + back, left + TIME_OUT);
        let (seen, ended) = if answer < out {
            (answer, answer)
        } else {
            (out, out + NEVER_LATER)
        };
        self.under_way.push((slot, seen, ended));
        self.now = left;
    }

    /// Kills the process, which closes its connections. Any request that hasn't arrived 5 s later
    /// is lost.
    fn kill(&mut self, down: u64) {
        let closed = self.now;
        self.arrived.retain(|at| *at < closed + NEVER_LATER);
        self.under_way.clear();
        self.now += down;
    }
}

/// Returns the maximum number of requests that arrive within any `window` milliseconds on the CRM's
/// clock. `per_million` says how many microseconds its clock advances per second of ours.
fn largest_window(arrived: &[u64], window: u64, per_million: u64) -> usize {
    // In millionths of a millisecond of the CRM's clock.
    let mut arrived: Vec<u64> = arrived.iter().map(|at| at * per_million).collect();
    arrived.sort_unstable();
    let (mut first, mut most) = (0, 0);
    for (last, at) in arrived.iter().enumerate() {
        while at - arrived[first] >= window * 1_000_000 {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Promise: No 60 seconds hold more than 60 requests.
    #[test]
    fn window_at_any_offset_holds_at_most_the_limit(
        limit in 1..6_u32, events in prop::collection::vec(event(), 1..120),
        theirs in 999_500..1_000_500_u64,
    ) {
        let rate = rate(&format!("{limit}/60s"));
        let mut simulation = Simulation::new(rate);
        for event in &events {
            simulation.play(&match event.clone() {
                Event::Restart { down, .. } => Event::Restart { down, rate },
                Event::Reboot { down, .. } => Event::Reboot { down, rate },
                other => other,
            });
        }
        let held = largest_window(&simulation.arrived, 60_000, theirs);
        prop_assert!(held <= limit as usize, "{held} in a window: {:?}", simulation.arrived);
    }

    #[test]
    fn rate_changes_never_exceed_sixty_requests_per_window(
        first in rates(), events in events(), theirs in 999_500..1_000_500_u64,
    ) {
        let mut simulation = Simulation::new(first);
        for event in &events {
            simulation.play(event);
        }
        let held = largest_window(&simulation.arrived, 60_000, theirs);
        prop_assert!(held <= 60, "{held} in a window: {:?}", simulation.arrived);
    }

    #[test]
    fn rate_of_a_shorter_window_is_never_exceeded(
        rate in prop::sample::select(vec!["10/10s", "30/30s", "1/1s", "3/20s"]).prop_map(rate),
        events in events(), theirs in 999_500..1_000_500_u64,
    ) {
        let mut simulation = Simulation::new(rate);
        for event in events {
            simulation.play(&match event {
                Event::Restart { down, .. } => Event::Restart { down, rate },
                Event::Reboot { down, .. } => Event::Reboot { down, rate },
                other => other,
            });
        }
        let window = u64::try_from(rate.window().as_millis()).expect("short");
        let held = largest_window(&simulation.arrived, window, theirs);
        prop_assert!(held <= rate.limit() as usize, "{held}: {:?}", simulation.arrived);
    }
}
