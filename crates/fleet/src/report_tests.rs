use super::*;
use callbridge_model::status::fleet::FleetLease;
use callbridge_model::status::{
    Books, BudgetStatus, Lease, LeasePhase, Pause, SourceGap, SourceState, SourceStatus, Token,
};
use serde_json::{Value, json};

const NOW: i64 = 1_795_151_317;

fn identity(role: FleetRole) -> Identity {
    Identity {
        role,
        version: "0.1.0",
        commit: "abc",
        hostname: "gw7".to_owned(),
        started_at: NOW - 900,
    }
}

fn status() -> Status {
    let source = |pbx: &str, state| SourceStatus {
        url: format!("ami://callbridge@{pbx}:5038"),
        label: format!("{pbx}/ami"),
        pbx: pbx.to_owned(),
        state,
        last_event_at: Some(NOW - 3),
        ..SourceStatus::default()
    };
    let gap = |to, filled| SourceGap {
        source: String::new(),
        from: to - 60,
        to,
        filled,
        why: None,
    };
    Status {
        books: Books {
            finished: 7,
            forwarded: 5,
            ready: 2,
            ..Books::default()
        },
        budget: BudgetStatus {
            limit: 60,
            window_sec: 60,
            ..BudgetStatus::default()
        },
        sources: vec![
            source("branch7", SourceState::Up),
            source("branch7", SourceState::Down),
            source("branch8", SourceState::Connected),
        ],
        gaps: vec![
            gap(NOW - 500, false),
            gap(NOW - 90, true),
            gap(NOW - 300, false),
        ],
        letters: [("no_lead".to_owned(), 2), ("failed".to_owned(), 1)].into(),
        pause: Some(Pause {
            reason: "outage".to_owned(),
            cure: "secret words of a broker".to_owned(),
        }),
        token: Token {
            print: Some("0123456789abcdef".to_owned()),
            company: Some("Savdo LLC".to_owned()),
            ..Token::default()
        },
        ..Status::default()
    }
}

fn publisher() -> Publisher {
    Publisher {
        user: Some("branch7".into()),
        content_type: Some(CONTENT_TYPE.into()),
        is_own: false,
    }
}

fn told() -> Value {
    let word = of(&identity(FleetRole::Collector), &status(), NOW, false);
    serde_json::to_value(word).expect("JSON")
}

fn wrong(value: &Value) -> Option<Wrong> {
    read(value.to_string().as_bytes(), &publisher(), NOW).err()
}

#[test]
fn a_collector_is_known_by_its_pbxs_and_tells_what_status_tells() {
    let word = of(&identity(FleetRole::Collector), &status(), NOW, true);
    assert_eq!(word.instance, "branch7,branch8");
    assert_eq!(word.pbx, ["branch7", "branch8"]);
    assert_eq!((word.gaps.count, word.gaps.newest), (2, Some(NOW - 300)));
    assert_eq!((word.letters, word.pause.as_deref()), (3, Some("outage")));
    assert!(word.ends && word.lease.is_none());
    let names: Vec<&str> = word.sources.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["branch7/ami", "branch7/ami", "branch8/ami"]);
}

#[test]
fn a_sender_is_known_by_its_company_and_its_tokens_fingerprint_alone() {
    let word = of(&identity(FleetRole::Sender), &status(), NOW, false);
    assert_eq!((word.instance.as_str(), word.pbx.len()), ("Savdo LLC", 0));
    let token = word.token.expect("a token's name");
    assert_eq!(token.print, "0123456789abcdef");
    let unknown = of(&identity(FleetRole::Sender), &Status::default(), NOW, false);
    assert_eq!(
        (unknown.instance.as_str(), unknown.token),
        ("a token not known yet", None)
    );
    assert!(unknown.rate.is_none());
}

#[test]
fn a_sender_with_a_standby_tells_whether_it_holds_the_lease() {
    let held = |state| {
        let status = Status {
            lease: Some(Lease {
                name: "calls.lease".to_owned(),
                state,
                ..Lease::default()
            }),
            ..status()
        };
        let word = of(&identity(FleetRole::Sender), &status, NOW, false);
        word.lease.map(|lease| (lease.name, lease.held))
    };
    assert_eq!(
        held(LeasePhase::Holding),
        Some(("calls.lease".to_owned(), true))
    );
    assert_eq!(
        held(LeasePhase::Silent),
        Some(("calls.lease".to_owned(), false))
    );
}

#[test]
fn a_word_is_read_back_as_it_was_said_and_its_shape_is_that_of_the_docs() {
    for role in [FleetRole::Collector, FleetRole::Sender] {
        let mut word = of(&identity(role), &status(), NOW, false);
        word.lease = Some(FleetLease {
            name: "calls.lease".to_owned(),
            held: true,
            unable_since: None,
        });
        let body = serde_json::to_vec(&word).expect("JSON");
        let read = read(&body, &publisher(), NOW);
        assert_eq!(read, Ok(("branch7".to_owned(), word)));
    }
    let told = told();
    let keys: Vec<&String> = told.as_object().expect("an object").keys().collect();
    let docs = include_str!("../../../docs/fleet-decisions.md");
    for key in keys {
        assert!(
            docs.contains(&format!("`{key}`")),
            "{key} is not in docs/fleet-decisions.md"
        );
    }
}

#[test]
fn unknown_fields_are_ignored_and_what_may_be_missing_has_its_default() {
    let mut told = told();
    told["mood"] = json!("well");
    assert_eq!(wrong(&told), None);
    let least = json!({
        "role": "collector", "instance": "b", "pbx": ["b"], "hostname": "h", "version": "9",
        "books": told["books"], "startedAt": NOW, "at": NOW
    });
    assert_eq!(wrong(&least), None);
}

/// One wrong value each, with what it is counted as.
fn wrong_values() -> Vec<(&'static str, Value, Wrong)> {
    use Wrong::{Future, Shape, Value as V};
    let long = "x".repeat(301);
    let source = |name: &str| json!({"name": name, "state": "up"});
    vec![
        ("role", json!("manager"), Shape),
        ("role", json!(null), Shape),
        ("instance", json!(7), Shape),
        ("instance", json!(null), Shape),
        ("instance", json!(""), V),
        ("instance", json!(long), V),
        ("pbx", json!("branch7"), Shape),
        ("pbx", json!([7]), Shape),
        ("pbx", json!([]), V),
        ("pbx", json!([""]), V),
        ("pbx", json!(["two words"]), V),
        ("pbx", json!(["a\"} 1\nb"]), V),
        ("pbx", json!(vec!["b"; 101]), V),
        ("pbx", json!(["x".repeat(65)]), V),
        ("hostname", json!(["gw7"]), Shape),
        ("hostname", json!(long), V),
        ("state", json!(long), V),
        ("version", json!(""), V),
        ("version", json!(1), Shape),
        ("version", json!(long), V),
        ("books", json!(null), Shape),
        ("books", json!([1, 2]), Shape),
        ("books", json!({"finished": -1}), Shape),
        ("sources", json!("none"), Shape),
        ("sources", json!([{"name": "a", "state": "well"}]), Shape),
        ("sources", json!([{"state": "up"}]), Shape),
        ("sources", json!([source(&"x".repeat(65))]), V),
        ("sources", json!(vec![source("a"); 101]), V),
        (
            "sources",
            json!([{"name": "a", "state": "up", "lastEventAt": -5}]),
            V,
        ),
        ("gaps", json!(2), Shape),
        ("gaps", json!({"count": u64::MAX, "newest": null}), V),
        ("gaps", json!({"count": 1, "newest": i64::MAX}), V),
        ("backlog", json!({"calls": 1.5, "drainSec": 0}), Shape),
        ("backlog", json!({"calls": u64::MAX, "drainSec": 0}), V),
        ("backlog", json!({"calls": 0, "drainSec": 1_u64 << 60}), V),
        ("rate", json!({"limit": -60, "windowSec": 60}), Shape),
        ("rate", json!({"limit": 60, "windowSec": u64::MAX}), V),
        ("letters", json!("3"), Shape),
        ("letters", json!(u64::MAX), V),
        ("lease", json!({"name": long, "held": true}), V),
        ("lease", json!({"name": "a", "held": "yes"}), Shape),
        ("token", json!({"print": "not hex at all"}), V),
        ("token", json!({"print": "abc"}), V),
        (
            "token",
            json!({"print": "0123456789abcdef", "company": long}),
            V,
        ),
        ("pause", json!(long), V),
        ("verdict", json!("fine"), Shape),
        ("startedAt", json!(-1), V),
        ("startedAt", json!("today"), Shape),
        ("at", json!(null), Shape),
        ("at", json!(1.5), Shape),
        ("at", json!(-1), V),
        ("at", json!(i64::MAX), V),
        ("at", json!(NOW + AHEAD_SEC + 1), Future),
        ("ends", json!("no"), Shape),
    ]
}

#[test]
fn each_wrong_value_is_known_for_what_it_is() {
    assert!(wrong_values().len() >= 47);
    for (field, value, kind) in wrong_values() {
        let mut told = told();
        told[field] = value.clone();
        assert_eq!(wrong(&told), Some(kind), "{field}: {value}");
    }
}

#[test]
fn what_is_no_word_at_all_is_known_for_what_it_is() {
    let told = told().to_string();
    let body = told.as_bytes();
    let of_type = |content_type: Option<&str>| Publisher {
        content_type: content_type.map(Into::into),
        ..publisher()
    };
    let by = |user: Option<String>| Publisher {
        user: user.map(Into::into),
        ..publisher()
    };
    let newer = "application/vnd.callbridge.words+json; version=2";
    let long = vec![b' '; BYTES_MAX + 1];
    let list = format!("[{told}]");
    let twice = told.replacen('{', "{\"letters\":1,", 1);
    let deep = "{\"a\":".repeat(5_000);
    let cases: [(&[u8], Publisher, Wrong); 14] = [
        (&long, publisher(), Wrong::Long),
        (body, of_type(None), Wrong::ContentType),
        (body, of_type(Some("application/json")), Wrong::ContentType),
        (body, of_type(Some(newer)), Wrong::Version),
        (body, by(None), Wrong::User),
        (body, by(Some(String::new())), Wrong::User),
        (body, by(Some("u".repeat(301))), Wrong::User),
        (b"", publisher(), Wrong::Shape),
        (b"null", publisher(), Wrong::Shape),
        (b"\xff\xfe{}", publisher(), Wrong::Shape),
        (&body[..body.len() - 1], publisher(), Wrong::Shape),
        (list.as_bytes(), publisher(), Wrong::Shape),
        (twice.as_bytes(), publisher(), Wrong::Shape),
        (deep.as_bytes(), publisher(), Wrong::Shape),
    ];
    for (body, publisher, kind) in cases {
        let text = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
        assert_eq!(read(body, &publisher, NOW).err(), Some(kind), "{text}");
    }
}

#[test]
fn what_is_said_is_never_longer_than_what_is_read() {
    let mut status = status();
    let long = "я".repeat(9_000);
    status.state.clone_from(&long);
    status.token.company = Some(long.clone());
    for source in &mut status.sources {
        source.label.clone_from(&long);
    }
    let one = status.sources[0].clone();
    status.sources = (0..500)
        .map(|n| SourceStatus {
            pbx: format!("{n}"),
            ..one.clone()
        })
        .collect();
    for role in [FleetRole::Collector, FleetRole::Sender] {
        let word = of(&identity(role), &status, NOW, false);
        let body = serde_json::to_vec(&word).expect("JSON");
        let read = read(&body, &publisher(), NOW).map(|(_, word)| word);
        assert!(read == Ok(word), "{} bytes: {:?}", body.len(), read.err());
    }
}
