use super::*;
use callbridge_model::Zone;
use callbridge_model::status::fleet::{FleetGaps, FleetTotals, StatusReport, TokenName};
use callbridge_model::status::{Backlog, Books, OverallState};

const NOW: i64 = 1_795_151_317;

fn member(role: FleetRole, name: &str, speech: Liveness, trouble: Option<&str>) -> FleetMember {
    FleetMember {
        speech,
        trouble: trouble.map(|it| it.to_owned().into()),
        user: name.to_owned(),
        heard_at: NOW - 42,
        word: StatusReport {
            role,
            instance: name.to_owned(),
            pbx: Vec::new(),
            hostname: "gw7".to_owned(),
            state: String::new(),
            version: "0.1.0".to_owned(),
            commit: String::new(),
            books: Books {
                finished: 12,
                forwarded: 10,
                ..Books::default()
            },
            sources: Vec::new(),
            gaps: FleetGaps::default(),
            backlog: Backlog {
                calls: 2,
                drain_sec: 2,
                ..Backlog::default()
            },
            rate: None,
            letters: 1,
            lease: None,
            token: None,
            pause: None,
            verdict: OverallState::Well,
            started_at: NOW,
            at: NOW,
            ends: false,
        },
    }
}

fn table() -> FleetTable {
    let silent = "silent for 12 min 00 s";
    FleetTable {
        at: NOW,
        troubles: vec!["token Savdo: nobody holds the lease".to_owned().into()],
        members: vec![
            member(
                FleetRole::Collector,
                "branch7",
                Liveness::Silent,
                Some(silent),
            ),
            member(FleetRole::Sender, "Savdo LLC", Liveness::Speaking, None),
        ],
        tokens: vec![FleetToken {
            token: TokenName {
                print: "0123456789abcdef".to_owned(),
                company: Some("Savdo LLC".to_owned()),
            },
            senders: 1,
            holder: None,
            backlog: Backlog {
                calls: 61,
                drain_sec: 120,
                ..Backlog::default()
            },
            letters: 3,
        }],
        totals: FleetTotals {
            collectors: 1,
            senders: 1,
            speaking: 1,
            silent: 1,
            waiting: 63,
            ..FleetTotals::default()
        },
        skipped: [("shape".to_owned(), 4)].into(),
        ..FleetTable::default()
    }
}

fn shown(table: &FleetTable, colour: bool) -> String {
    let zone = Zone::of(None);
    render(table, &TextStyle { colour, zone })
}

#[test]
fn the_table_is_aligned_and_says_who_is_silent_first() {
    assert_eq!(shown(&table(), false), include_str!("text_tests.txt"));
}

#[test]
fn who_is_silent_is_red() {
    let text = shown(&table(), true);
    let silent = text
        .lines()
        .find(|line| line.contains("branch7"))
        .expect("a row");
    assert!(
        silent.starts_with("\x1b[31m") && silent.ends_with("\x1b[0m"),
        "{silent:?}"
    );
    let speaks = text
        .lines()
        .find(|line| line.starts_with("sender"))
        .expect("a row");
    assert!(!speaks.contains('\x1b'), "{speaks:?}");
}

#[test]
fn a_hostile_name_stays_in_its_cell() {
    let mut table = table();
    let evil = format!("\x1b[2J\nall is well\u{202e}{}", "x".repeat(300));
    for member in &mut table.members {
        member.word.instance.clone_from(&evil);
        member.word.hostname.clone_from(&evil);
        member.trouble = Some(evil.clone().into());
    }
    table.troubles = vec![evil.clone().into()];
    table.tokens[0].token.company = Some(evil);
    let text = shown(&table, false);
    assert!(!text.contains('\x1b') && !text.contains('\u{202e}'));
    assert!(
        !text
            .lines()
            .any(|line| line.starts_with("no problem found")),
        "{text}"
    );
    assert_eq!(text.lines().count(), 7);
}
