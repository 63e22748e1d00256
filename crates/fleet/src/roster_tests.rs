use super::*;
use crate::report::CONTENT_TYPE;
use callbridge_model::status::Books;
use callbridge_model::status::fleet::{FleetGaps, FleetLease, FleetRate, FleetSource};
use std::sync::Mutex;

const NOW: i64 = 1_795_151_317;

fn word(role: FleetRole, name: &str, at: i64) -> StatusReport {
    let is_collector = role == FleetRole::Collector;
    StatusReport {
        role,
        instance: name.to_owned(),
        pbx: match is_collector {
            true => vec![name.to_owned()],
            false => Vec::new(),
        },
        hostname: format!("host-{name}"),
        state: "/var/lib/callbridge".to_owned(),
        version: "0.1.0".to_owned(),
        commit: "abc".to_owned(),
        books: Books::default(),
        sources: vec![FleetSource {
            name: "a".to_owned(),
            state: SourceState::Up,
            last_event_at: None,
        }],
        gaps: FleetGaps::default(),
        backlog: Backlog::default(),
        rate: None,
        letters: 0,
        lease: None,
        token: (!is_collector).then(|| TokenName {
            print: "0123456789abcdef".to_owned(),
            company: Some("Savdo".to_owned()),
        }),
        pause: None,
        verdict: OverallState::Well,
        started_at: at - 100,
        at,
        ends: false,
    }
}

fn heard(user: &str, word: &StatusReport, live: bool) -> FleetMessage {
    FleetMessage {
        body: serde_json::to_vec(word).expect("JSON"),
        publisher: Publisher {
            user: Some(user.into()),
            content_type: Some(CONTENT_TYPE.into()),
            is_own: false,
        },
        live,
    }
}

fn collector(name: &str, at: i64) -> StatusReport {
    word(FleetRole::Collector, name, at)
}

fn sender(name: &str, at: i64) -> StatusReport {
    word(FleetRole::Sender, name, at)
}

fn roster(words: &[StatusReport]) -> Roster {
    let mut roster = Roster::default();
    for word in words {
        roster.on_message(&heard(&word.instance, word, false), NOW);
    }
    roster
}

fn table(words: &[StatusReport]) -> FleetTable {
    roster(words).table("calls.words", NOW)
}

/// What is wrong with all of them, in words.
fn said(table: &FleetTable) -> Vec<String> {
    let said = table.troubles.iter().map(|it| it.what.clone());
    said.collect()
}

#[test]
fn who_has_said_nothing_for_three_minutes_is_silent_and_stands_first() {
    let words = [
        collector("b1", NOW - SILENT_SEC),
        collector("b2", NOW - SILENT_SEC - 1),
        sender("s", NOW - 5),
    ];
    let table = table(&words);
    let all = table
        .members
        .iter()
        .map(|it| (it.word.instance.as_str(), it.speech));
    assert_eq!(
        all.collect::<Vec<_>>(),
        [
            ("b2", Liveness::Silent),
            ("b1", Liveness::Speaking),
            ("s", Liveness::Speaking)
        ]
    );
    assert!(!table.healthy);
    assert_eq!(
        table.members[0].trouble.as_ref().map(|it| it.what.as_str()),
        Some("silent for 3 min 01 s")
    );
    assert_eq!(
        table.collectors().into_iter().collect::<Vec<_>>(),
        [("b1", true), ("b2", false)]
    );
}

#[test]
fn the_newest_word_of_each_counts_and_all_is_well_while_all_speak() {
    let table = table(&[
        collector("b1", NOW - 900),
        sender("s", NOW - 900),
        collector("b1", NOW - 30),
        sender("s", NOW - 20),
    ]);
    assert!(table.healthy, "{table:?}");
    assert_eq!((table.totals.speaking, table.members.len()), (2, 2));
}

#[test]
fn what_comes_while_we_listen_counts_from_then_whatever_its_clock_says() {
    let mut roster = Roster::default();
    let slow = collector("b1", NOW - 7_000);
    roster.on_message(&heard("b1", &slow, true), NOW);
    let fast = collector("b2", NOW + 3_000);
    roster.on_message(&heard("b2", &fast, false), NOW);
    let table = roster.table("calls.words", NOW);
    assert_eq!((table.totals.speaking, table.members[0].heard_at), (2, NOW));
    assert_eq!(
        table.members[1].heard_at, NOW,
        "nobody was heard in the future"
    );
    // The line was lost, and the word is read once more.
    roster.on_message(&heard("b1", &slow, false), NOW + 9);
    let again = roster.table("calls.words", NOW + 9);
    assert_eq!((again.totals.speaking, again.members[0].heard_at), (2, NOW));
}

#[test]
fn who_was_stopped_in_order_is_told_from_who_is_silent_and_forgotten_sooner() {
    let mut ends = collector("b1", NOW - 900);
    ends.ends = true;
    let mut roster = roster(&[ends, collector("b2", NOW - 900), sender("s", NOW)]);
    let table = roster.table("calls.words", NOW);
    let stopped = table.members.iter().find(|it| it.word.instance == "b1");
    assert_eq!(stopped.map(|it| it.speech), Some(Liveness::Stopped));
    assert!(!table.healthy && table.totals.stopped == 1 && table.totals.silent == 1);
    let names = |roster: &Roster, now| {
        let table = roster.table("calls.words", now);
        let names = table.members.into_iter().map(|it| it.word.instance);
        names.collect::<Vec<_>>()
    };
    roster.forget(NOW + STOPPED_FORGOTTEN_SEC);
    assert_eq!(names(&roster, NOW), ["b2", "s"]);
    roster.forget(NOW + SILENT_FORGOTTEN_SEC - 900);
    assert_eq!(names(&roster, NOW), ["b2", "s"]);
    roster.forget(NOW + SILENT_FORGOTTEN_SEC - 899);
    assert_eq!(names(&roster, NOW), ["s"]);
}

#[test]
fn words_make_nobody_the_owner_of_a_pbx_and_nobody_speaks_for_that_of_another() {
    let known = Arc::new(Mutex::new(BTreeMap::new()));
    let owners = Arc::clone(&known);
    let owner_of = move |pbx: &str| owners.lock().expect("sound").get(pbx).cloned();
    let mut roster = Roster::of_owners(PbxOwners::new(owner_of));
    let users = |roster: &Roster, now| {
        let members = roster.table("calls.words", now).members;
        let users = members.into_iter().map(|it| it.user);
        users.collect::<Vec<_>>()
    };
    // who speaks first is shown, and keeps nobody out
    roster.on_message(&heard("thief", &collector("b1", NOW), true), NOW);
    roster.on_message(&heard("b1", &collector("b1", NOW), true), NOW);
    assert_eq!(users(&roster, NOW), ["b1", "thief"]);
    let owner = ("b1".to_owned(), "b1".to_owned());
    known.lock().expect("sound").extend([owner]);
    roster.forget(NOW);
    assert_eq!(users(&roster, NOW), ["b1"]);
    // nor does its owner's silence let another in
    let later = NOW + 2 * 24 * 3600;
    roster.on_message(&heard("thief", &collector("b1", later), true), later);
    let table = roster.table("calls.words", later);
    assert_eq!(table.skipped["owner"], 1);
    assert!(!table.collectors()["b1"]);
    roster.on_message(&heard("b1", &collector("b1", later), true), later);
    assert!(roster.table("calls.words", later).collectors()["b1"]);
}

#[test]
fn wrong_messages_are_counted_by_kind_and_harm_nobody() {
    let mut roster = roster(&[collector("b1", NOW)]);
    let mut wrong = heard("b1", &collector("b1", NOW), true);
    wrong.body.truncate(9);
    roster.on_message(&wrong, NOW);
    roster.on_message(&wrong, NOW);
    wrong.publisher.user = None;
    roster.on_message(&wrong, NOW);
    let table = roster.table("calls.words", NOW);
    let skipped: Vec<_> = table.skipped.into_iter().collect();
    assert_eq!(
        skipped,
        [("shape".to_owned(), 2), ("user_id".to_owned(), 1)]
    );
    assert_eq!(table.totals.speaking, 1);
}

#[test]
fn there_is_a_limit_to_how_many_are_known_and_those_who_are_known_go_on() {
    let mut roster = Roster::default();
    for n in 0..=MEMBERS_MAX {
        let name = format!("b{n}");
        roster.on_message(&heard(&name, &collector(&name, NOW), true), NOW);
    }
    roster.on_message(&heard("b1", &collector("b1", NOW), true), NOW + 9);
    let table = roster.table("calls.words", NOW);
    assert_eq!(table.members.len(), MEMBERS_MAX);
    assert_eq!(table.skipped["too_many"], 1);
    assert!(table.members.iter().any(|it| it.heard_at == NOW + 9));
}

#[test]
fn words_of_many_megabytes_are_not_kept_and_what_is_forgotten_makes_room() {
    let mut roster = Roster::default();
    let padded = |n: usize, at| {
        let name = format!("b{n}");
        let mut heard = heard(&name, &collector(&name, at), true);
        heard.body.resize(100 << 10, b' ');
        heard
    };
    for n in 0..400 {
        roster.on_message(&padded(n, NOW), NOW);
        roster.on_message(&padded(n, NOW), NOW);
    }
    let table = roster.table("calls.words", NOW);
    assert_eq!(table.members.len(), ROSTER_BYTES_MAX / (100 << 10));
    assert_eq!(
        table.skipped["too_many"],
        2 * (400 - table.members.len() as u64)
    );
    let later = NOW + SILENT_FORGOTTEN_SEC + 1;
    roster.forget(later);
    roster.on_message(&padded(399, later), later);
    assert_eq!(roster.table("calls.words", later).members.len(), 1);
}

#[test]
fn a_pause_a_source_that_is_down_and_books_that_do_not_add_up_are_troubles() {
    let change = |change: fn(&mut StatusReport)| {
        let mut word = collector("b1", NOW);
        change(&mut word);
        let table = table(&[word, sender("s", NOW)]);
        assert_eq!(table.healthy, table.members[0].trouble.is_none());
        table.members[0]
            .trouble
            .clone()
            .map_or_else(String::new, String::from)
    };
    assert_eq!(change(|_| ()), "");
    assert_eq!(
        change(|it| it.pause = Some("outage".to_owned())),
        "paused: outage"
    );
    assert_eq!(change(|it| it.pause = Some("standby".to_owned())), "");
    assert_eq!(
        change(|it| it.sources[0].state = SourceState::Down),
        "its source is down"
    );
    assert_eq!(
        change(|it| it.books.finished = 1),
        "its books do not add up"
    );
    assert_eq!(
        change(|it| it.verdict = OverallState::Down),
        "its status is down"
    );
    assert_eq!(
        change(|it| it.verdict = OverallState::Attention),
        "",
        "letters wait, calls go"
    );
    let two = change(|it| {
        let mut down = it.sources[0].clone();
        down.state = SourceState::Down;
        it.sources.push(down);
    });
    assert_eq!(two, "1 of 2 sources are down");
}

#[test]
fn senders_of_one_token_add_up_and_the_backlog_drains_at_its_pace() {
    let of = |name: &str, calls| {
        let mut word = sender(name, NOW);
        word.backlog.calls = calls;
        word.rate = Some(FleetRate {
            limit: 60,
            window_sec: 60,
        });
        word.letters = 2;
        word
    };
    let table = table(&[of("a", 61), of("b", 600)]);
    let [token] = &table.tokens[..] else {
        panic!("one token: {:?}", table.tokens);
    };
    assert_eq!(
        (token.backlog.calls, token.backlog.drain_sec),
        (661, 120 + 600)
    );
    assert_eq!((token.senders, token.letters, &token.holder), (2, 4, &None));
    assert_eq!((table.totals.waiting, table.totals.letters), (661, 4));
}

#[test]
fn of_senders_with_a_lease_the_holders_backlog_counts_in_whatever_order_they_are_met() {
    let of = |name: &str, held, calls| {
        let mut word = sender(name, NOW);
        word.backlog.calls = calls;
        word.lease = Some(FleetLease {
            name: "calls.lease".to_owned(),
            held,
            unable_since: None,
        });
        word
    };
    for (first, second) in [("a", "b"), ("b", "a")] {
        let found = table(&[of(first, true, 5), of(second, false, 9)]);
        assert_eq!(found.tokens[0].backlog.calls, 5, "{first}");
        assert_eq!(found.tokens[0].holder, Some(format!("host-{first}")));
        assert!(found.healthy);
    }
    let nameless = StatusReport {
        hostname: String::new(),
        ..of("a", true, 5)
    };
    let nameless = table(&[nameless, of("b", false, 9)]);
    assert_eq!(
        nameless.tokens[0].backlog.calls, 5,
        "a holder without a name"
    );
    let nobody = table(&[of("a", false, 5), of("b", false, 9)]);
    assert_eq!(nobody.tokens[0].backlog.calls, 9);
    assert_eq!(
        said(&nobody),
        ["token Savdo (0123456789abcdef): nobody holds the lease"]
    );
    let mut gone = of("a", true, 5);
    gone.at = NOW - 600;
    let gone = table(&[gone, of("b", false, 9)]);
    assert_eq!(
        gone.tokens[0].holder.as_deref(),
        Some(""),
        "who is silent holds nothing"
    );
}

#[test]
fn two_that_hold_leases_of_other_names_or_brokers_for_one_token_are_named() {
    let holder = |name: &str, lease: &str, at| {
        let lease = Some(FleetLease {
            name: lease.to_owned(),
            held: true,
            unable_since: None,
        });
        StatusReport {
            lease,
            ..sender(name, at)
        }
    };
    let told = |words: &[StatusReport]| said(&table(words)).join("; ");
    let two = [holder("a", "crm", NOW - 9), holder("b", "crm2", NOW - 50)];
    let words = told(&two);
    assert!(
        words.contains("host-a (--standby crm) and host-b (--standby crm2)"),
        "{words}"
    );
    // The same name on two brokers is no better; one after the other is as it should be.
    let same = [holder("a", "crm", NOW - 9), holder("b", "crm", NOW - 50)];
    assert!(told(&same).contains("send at the same time"));
    let followed = [holder("a", "crm", NOW - 90), holder("b", "crm", NOW)];
    assert_eq!(told(&followed), "");
}

#[test]
fn a_fleet_without_a_sender_and_one_without_anybody_are_said_to_be_wrong() {
    let alone = table(&[collector("b1", NOW)]);
    assert!(!alone.healthy && said(&alone)[0].starts_with("no sender has sent a status report"));
    let none = table(&[]);
    assert!(!none.healthy && said(&none)[0].starts_with("nobody has sent a status report"));
    let silent = table(&[sender("s", NOW - 999)]);
    assert!(
        said(&silent)[0].ends_with("none of its senders reports"),
        "{silent:?}"
    );
}

#[test]
fn sums_of_the_largest_counts_that_are_taken_do_no_harm() {
    let most = 1 << 48;
    let words: Vec<StatusReport> = (0..50)
        .map(|n| {
            let mut word = sender(&format!("s{n}"), NOW);
            word.backlog.calls = most;
            word.letters = most;
            word.books.journaled = most;
            word.books.finished = most;
            word.rate = Some(FleetRate {
                limit: 1,
                window_sec: most,
            });
            word
        })
        .collect();
    let table = table(&words);
    assert_eq!(table.totals.journaled, 50 * most);
    assert_eq!(table.tokens[0].backlog.calls, 50 * most);
}

/// `branch7` owns the PBXs `own…`, and nobody any other.
fn owned() -> Roster {
    let owner_of = |pbx: &str| pbx.starts_with("own").then(|| "branch7".to_owned());
    Roster::of_owners(PbxOwners::new(owner_of))
}

#[test]
fn a_login_that_makes_up_names_or_machines_keeps_nobody_else_out_and_is_named() {
    for role in [FleetRole::Collector, FleetRole::Sender] {
        let mut roster = owned();
        for n in 0..1_000 {
            let made_up = word(role, &format!("made-up-{n}"), NOW);
            roster.on_message(&heard("branch7", &made_up, true), NOW);
        }
        // What is its own it may tell of still, and all others as ever.
        for n in 0..1_000 {
            let own = collector(&format!("own-{n}"), NOW);
            roster.on_message(&heard("branch7", &own, true), NOW);
        }
        for n in 0..100 {
            let other = collector(&format!("pbx-{n}"), NOW);
            roster.on_message(&heard(&format!("branch-{n}"), &other, true), NOW);
        }
        let told = roster.table("calls.words", NOW);
        assert_eq!(told.members.len(), 200 + 1_000 + 100);
        assert_eq!(told.skipped["too_many"], 800);
        assert_eq!(told.floods, BTreeMap::from([("branch7".to_owned(), 800)]));
        let mut all = prometheus_client::registry::Registry::default();
        crate::metrics::collectors(&mut all, &told);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &all).expect("a text");
        assert!(text.contains("collector_up{pbx=\"too_many\"} 0"), "{text}");
        assert!(text.lines().count() < 1_400, "{text}");

        roster.forget(NOW + FLOOD_FORGOTTEN_SEC + 1);
        assert!(roster.table("calls.words", NOW).floods.is_empty());
    }
}

#[test]
fn a_login_with_long_words_leaves_room_to_the_words_of_others() {
    let mut roster = owned();
    for n in 0..100 {
        let mut long = heard("branch7", &collector(&format!("own-{n}"), NOW), true);
        long.body.resize(100 << 10, b' ');
        roster.on_message(&long, NOW);
    }
    assert!(roster.bytes <= BYTES_OF_LOGIN_MAX, "{}", roster.bytes);
    let other = collector("b1", NOW);
    roster.on_message(&heard("b1", &other, true), NOW);
    let told = roster.table("calls.words", NOW);
    assert!(told.floods.contains_key("branch7"), "{:?}", told.floods);
    assert!(told.members.iter().any(|it| it.user == "b1"));
}

#[test]
fn of_a_login_that_speaks_without_end_so_many_words_are_read_in_a_minute() {
    let mut roster = owned();
    let mut said = heard("branch7", &collector("own-1", NOW), true);
    for _ in 0..WORDS_A_MINUTE_MAX {
        roster.on_message(&said, NOW);
    }
    assert!(roster.table("calls.words", NOW).skipped.is_empty());
    // What comes then is not read at all, or its shape would be what is wrong with it.
    said.body = b"[]".to_vec();
    for _ in 0..7 {
        roster.on_message(&said, NOW);
    }
    let other = collector("b1", NOW);
    roster.on_message(&heard("b1", &other, true), NOW);
    let told = roster.table("calls.words", NOW);
    assert_eq!(told.skipped, BTreeMap::from([("too_many".to_owned(), 7)]));
    assert_eq!(told.floods, BTreeMap::from([("branch7".to_owned(), 7)]));
    assert_eq!(told.members.len(), 2);

    let later = collector("own-1", NOW + 60);
    roster.on_message(&heard("branch7", &later, true), NOW + 60);
    let told = roster.table("calls.words", NOW + 60);
    assert_eq!(told.skipped["too_many"], 7, "a minute later it goes on");
    assert!(told.members.iter().any(|it| it.heard_at == NOW + 60));
}

#[test]
fn of_long_words_fewer_are_read_in_a_minute_and_more_of_what_was_said_before() {
    let long = 100 << 10;
    let most = (BYTES_A_MINUTE_MAX / long) as u64;
    for (live, skipped) in [(true, 200 - most), (false, 0)] {
        let mut roster = owned();
        let mut said = heard("branch7", &collector("own-1", NOW), live);
        said.body.resize(long, b' ');
        for _ in 0..200 {
            roster.on_message(&said, NOW);
        }
        let told = roster.table("calls.words", NOW).skipped;
        assert_eq!(told.values().sum::<u64>(), skipped, "live: {live}");
    }
}

#[test]
fn what_a_login_fills_is_weighed_anew_once_its_calls_have_come() {
    let known = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = Arc::clone(&known);
    let owner_of = move |pbx: &str| {
        let known = asked.load(std::sync::atomic::Ordering::Relaxed);
        (known && pbx.starts_with('p')).then(|| "branch7".to_owned())
    };
    let mut roster = Roster::of_owners(PbxOwners::new(owner_of));
    let said = |n: usize| heard("branch7", &collector(&format!("p{n}"), NOW), true);
    for n in 0..UNKNOWN_OF_LOGIN_MAX + 1 {
        roster.on_message(&said(n), NOW);
    }
    assert_eq!(
        roster.table("calls.words", NOW).members.len(),
        UNKNOWN_OF_LOGIN_MAX
    );
    known.store(true, std::sync::atomic::Ordering::Relaxed);
    roster.forget(NOW);
    roster.on_message(&heard("branch7", &collector("another", NOW), true), NOW);
    for n in 0..2 * UNKNOWN_OF_LOGIN_MAX {
        roster.on_message(&said(n), NOW);
    }
    let told = roster.table("calls.words", NOW);
    assert_eq!(told.members.len(), 2 * UNKNOWN_OF_LOGIN_MAX + 1);
    // The sums are those of the words, whatever has come and gone.
    let all = &roster.logins["branch7"];
    let bytes = roster.members.values().map(|it| it.bytes).sum();
    assert_eq!((all.weight, all.bytes, roster.bytes), (1, bytes, bytes));
    roster.forget(NOW + SILENT_FORGOTTEN_SEC + FLOOD_FORGOTTEN_SEC);
    assert!(roster.logins.is_empty() && roster.members.is_empty());
}
