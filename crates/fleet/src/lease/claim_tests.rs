use super::*;

const TERMS: Terms = Terms {
    silence: Duration::from_secs(100),
    window: Duration::from_secs(60),
};

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn tick(number: u128) -> TickId {
    TickId(uuid::Uuid::from_u128(number))
}

fn delivered(tag: u64, number: u128) -> Delivered {
    Delivered {
        tag,
        tick: Some(tick(number)),
        ..Delivered::default()
    }
}

/// Ticks that come back at once, every three seconds from `from` until `to`.
fn fed(claim: &mut Claim, from: u32, to: u32) {
    for second in (from..=to).step_by(3) {
        let number = second.into();
        claim.publishing(at(second.into()), tick(number));
        let tag = u64::from(second);
        claim.received(at(second.into()), delivered(tag, number));
    }
}

#[test]
fn the_silence_is_the_sum_with_room_for_two_clocks() {
    let terms = Terms::new(Duration::from_secs(35), Duration::from_secs(60));
    assert_eq!(terms.silence, Duration::from_millis(107_100));
}

#[test]
fn who_is_fed_keeps_silent_first_and_then_holds_until_ten_seconds_after_a_tick_was_published() {
    let mut claim = Claim::new(TERMS);
    assert_eq!(claim.phase(at(0.0)), LeasePhase::Standby);
    fed(&mut claim, 3, 102);
    assert_eq!(claim.phase(at(102.5)), LeasePhase::Silent);
    assert_eq!(claim.next_change(at(102.5)), Some(at(103.0)));
    assert_eq!(claim.leave(at(102.9)), None);
    assert_eq!(claim.leave(at(103.0)), Some(at(112.0)));
    assert_eq!(claim.phase(at(111.9)), LeasePhase::Holding);
    assert_eq!(claim.phase(at(112.0)), LeasePhase::Standby);
    // it lapsed, so it begins anew
    fed(&mut claim, 112, 112);
    assert_eq!(claim.phase(at(112.1)), LeasePhase::Silent);
    assert_eq!(claim.silent_until, Some(at(212.0)));
}

#[test]
fn a_turn_that_is_given_away_comes_back_by_no_tick_from_before() {
    let mut claim = Claim::new(TERMS);
    fed(&mut claim, 3, 120);
    claim.publishing(at(121.0), tick(121));
    claim.give_away();
    assert_eq!(claim.phase(at(121.0)), LeasePhase::Standby);
    claim.received(at(122.0), delivered(121, 121));
    assert_eq!(claim.phase(at(122.0)), LeasePhase::Standby);
    fed(&mut claim, 123, 123);
    assert_eq!(claim.silent_until, Some(at(223.0)));
}

#[test]
fn after_the_clock_has_jumped_only_a_tick_that_is_published_then_gives_leave() {
    let mut claim = Claim::new(TERMS);
    fed(&mut claim, 3, 120);
    claim.publishing(at(121.0), tick(121));
    assert!(claim.leave(at(122.0)).is_some());
    claim.clock_jumped(at(122.0));
    assert_eq!(claim.leave(at(122.0)), None);
    assert_eq!(claim.next_change(at(122.0)), Some(at(130.0)));
    claim.received(at(123.0), delivered(121, 121));
    assert_eq!(claim.phase(at(123.0)), LeasePhase::Silent, "from before");
    fed(&mut claim, 124, 124);
    assert_eq!(
        claim.leave(at(124.0)),
        Some(at(134.0)),
        "it was fed all along"
    );
    // without one it lapses as ever
    claim.clock_jumped(at(125.0));
    assert_eq!(claim.phase(at(134.0)), LeasePhase::Standby);
}

#[test]
fn a_tick_counts_by_when_it_was_published_and_a_late_one_not_at_all() {
    let mut claim = Claim::new(TERMS);
    claim.publishing(at(1.0), tick(1));
    let late = claim.received(at(11.0), delivered(1, 1));
    assert_eq!(late, Receipt::default());
    assert_eq!(claim.phase(at(11.0)), LeasePhase::Standby);
    claim.publishing(at(12.0), tick(2));
    let slow = claim.received(at(21.5), delivered(2, 2));
    assert_eq!(slow.round_trip, Some(at(9.5)));
    assert_eq!(claim.next_change(at(21.5)), Some(at(22.0)));
}

#[test]
fn the_last_tick_that_counted_is_kept_and_all_before_it_acknowledged() {
    let mut claim = Claim::new(TERMS);
    assert_eq!(claim.publishing(at(0.0), tick(1)), None);
    assert_eq!(claim.received(at(0.5), delivered(1, 77)).ack_through, None);
    // it counts, and does not carry the turn that it begins
    assert_eq!(claim.received(at(0.5), delivered(2, 1)).ack_through, None);
    for (second, number) in [(1.0, 2), (2.0, 3), (3.0, 4)] {
        let turn = claim.publishing(at(second), tick(number));
        assert_eq!(turn, Some(TurnId(tick(1))));
    }
    assert_eq!(
        claim.received(at(3.0), delivered(3, 2)).ack_through,
        Some(2)
    );
    assert_eq!(claim.received(at(3.0), delivered(4, 78)).ack_through, None);
    assert_eq!(
        claim.received(at(3.0), delivered(5, 3)).ack_through,
        Some(4)
    );
    // another channel counts from 1 again
    claim.channel_opened();
    assert_eq!(claim.received(at(4.0), delivered(1, 3)).ack_through, None);
    assert_eq!(
        claim.received(at(4.0), delivered(2, 4)).ack_through,
        Some(1)
    );
}

/// Of another's turn, as it comes to whoever is fed next.
fn anothers(number: u128, turn: u128, slots: Option<SlotAges>) -> Delivered {
    Delivered {
        turn: Some(TurnId(tick(turn))),
        slots,
        redelivered: true,
        ..delivered(number.try_into().expect("small"), number)
    }
}

fn left(window: u64) -> Option<SlotAges> {
    SlotAges::new(Duration::from_secs(window), &[at(0.0)], at(20.0))
}

/// What ticks of ours bring after these deliveries.
fn after(deliveries: impl IntoIterator<Item = Delivered>) -> (Claim, Option<Vec<Duration>>) {
    let mut claim = Claim::new(TERMS);
    claim.channel_opened();
    claim.publishing(at(1000.0), tick(1));
    for delivered in deliveries {
        claim.received(at(1000.0), delivered);
    }
    claim.received(at(1000.0), delivered(900, 1));
    claim.publishing(at(1001.0), tick(2));
    let inherited = claim.received(at(1001.5), delivered(901, 2)).inherited;
    (claim, inherited)
}

#[test]
fn slots_that_the_turn_before_has_left_are_taken_over_with_a_tick_published_after_that() {
    let (claim, inherited) = after([anothers(70, 7, None), anothers(71, 7, left(60))]);
    // 20 s before it was heard, and a fiftieth of the window for two clocks
    let ended = inherited.expect("slots");
    assert_eq!(ended, [at(1000.0 - 20.0 + 1.2) + Duration::from_millis(1)]);
    assert_eq!(claim.phase(at(1001.5)), LeasePhase::Holding);
    assert!(claim.turn(at(1001.5)).is_some());
    // not given to anybody before, where it came after the tick that says whose turn it was
    let fresh = Delivered {
        redelivered: false,
        ..anothers(71, 7, left(60))
    };
    assert!(after([anothers(70, 7, None), fresh]).1.is_some());
}

#[test]
fn slots_of_any_other_turn_than_the_one_before_are_not_believed() {
    let fresh = |turn| Delivered {
        redelivered: false,
        ..anothers(71, turn, left(60))
    };
    let unknown = Delivered {
        turn: None,
        ..anothers(70, 7, None)
    };
    let cases: [(&str, Vec<Delivered>); 7] = [
        ("nobody's turn is known", vec![fresh(7)]),
        ("another's turn", vec![anothers(70, 7, None), fresh(8)]),
        ("of an older version", vec![unknown, fresh(7)]),
        (
            "another held since",
            vec![anothers(70, 7, None), anothers(71, 8, None), fresh(7)],
        ),
        (
            "another held before it came",
            vec![anothers(70, 8, None), anothers(71, 7, None), fresh(7)],
        ),
        (
            "another was fed after it",
            vec![anothers(70, 7, None), fresh(7), anothers(72, 8, None)],
        ),
        (
            "counted in another window",
            vec![anothers(70, 7, None), anothers(71, 7, left(30))],
        ),
    ];
    for (name, deliveries) in cases {
        let (claim, inherited) = after(deliveries);
        assert_eq!(inherited, None, "{name}");
        assert_eq!(claim.phase(at(1001.5)), LeasePhase::Silent, "{name}");
        assert_eq!(claim.turn(at(1001.5)), None, "{name}");
    }
}

#[test]
fn no_tick_that_was_published_before_the_slots_came_makes_them_ours() {
    let mut claim = Claim::new(TERMS);
    claim.publishing(at(1.0), tick(1));
    claim.publishing(at(2.0), tick(2));
    claim.received(at(3.0), anothers(70, 7, None));
    claim.received(at(3.0), anothers(71, 7, left(60)));
    for number in [1, 2] {
        let receipt = claim.received(at(3.0), delivered(80, number));
        assert_eq!(receipt.inherited, None);
    }
    claim.publishing(at(4.0), tick(3));
    // neither does one that somebody else was given meanwhile, nor one on another channel
    let again = Delivered {
        redelivered: true,
        ..delivered(81, 3)
    };
    assert_eq!(claim.clone().received(at(4.0), again).inherited, None);
    let mut reopened = claim.clone();
    reopened.channel_opened();
    let receipt = reopened.received(at(4.0), delivered(1, 3));
    assert_eq!(receipt.inherited, None);
    assert!(
        claim
            .received(at(4.0), delivered(82, 3))
            .inherited
            .is_some()
    );
}

#[test]
fn a_tick_published_when_one_has_left_its_slots_takes_over_no_other_slots() {
    let mut claim = Claim::new(TERMS);
    claim.received(at(3.0), anothers(70, 7, None));
    claim.received(at(3.0), anothers(71, 7, left(60)));
    claim.publishing(at(4.0), tick(3));
    claim.channel_opened();
    claim.received(at(4.0), anothers(72, 8, None));
    claim.received(at(4.0), anothers(73, 8, left(60)));
    let receipt = claim.received(at(4.0), delivered(1, 3));
    assert_eq!(receipt.inherited, None);
    assert_eq!(claim.phase(at(4.0)), LeasePhase::Silent);
}

#[test]
fn anothers_tick_that_was_given_before_begins_the_silence_anew_and_ones_own_does_not() {
    let mut claim = Claim::new(TERMS);
    fed(&mut claim, 3, 150);
    let again = |tag, number| Delivered {
        redelivered: true,
        ..delivered(tag, number)
    };
    claim.channel_opened();
    claim.received(at(151.0), again(1, 150));
    assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
    claim.received(at(151.0), delivered(2, 7_000));
    assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
    claim.received(at(151.0), again(3, 7_001));
    assert_eq!(claim.phase(at(151.0)), LeasePhase::Standby);
    fed(&mut claim, 153, 153);
    assert_eq!(claim.silent_until, Some(at(253.0)));
}

#[test]
fn what_is_no_tick_is_anothers() {
    let mut claim = Claim::new(TERMS);
    fed(&mut claim, 3, 150);
    let garbage = |redelivered| Delivered {
        tag: 900,
        redelivered,
        ..Delivered::default()
    };
    assert_eq!(claim.received(at(151.0), garbage(false)).ack_through, None);
    assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
    claim.received(at(151.0), garbage(true));
    assert_eq!(claim.phase(at(151.0)), LeasePhase::Standby);
}

#[test]
fn an_older_tick_that_comes_late_takes_no_leave_away() {
    let mut claim = Claim::new(TERMS);
    fed(&mut claim, 3, 150);
    claim.publishing(at(151.0), tick(1_001));
    claim.publishing(at(152.0), tick(1_002));
    claim.received(at(153.0), delivered(901, 1_002));
    claim.received(at(153.0), delivered(902, 1_001));
    assert_eq!(claim.leave(at(153.0)), Some(at(162.0)));
    assert_eq!(claim.next_change(at(153.0)), Some(at(162.0)));
    assert_eq!(
        claim.next_change(at(162.0)),
        None,
        "a standby waits for a tick"
    );
}

#[test]
fn of_many_ticks_that_never_came_back_the_oldest_are_taken_for_anothers() {
    let mut claim = Claim::new(TERMS);
    fed(&mut claim, 3, 150);
    for number in 0..=KNOWN_MAX as u128 {
        claim.publishing(at(151.0), tick(10_000 + number));
    }
    assert_eq!(claim.ours.len(), KNOWN_MAX);
    let again = |number| Delivered {
        redelivered: true,
        ..delivered(901, number)
    };
    claim.received(at(151.0), again(10_001));
    assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
    claim.received(at(151.0), again(10_000));
    assert_eq!(claim.phase(at(151.0)), LeasePhase::Standby);
}
