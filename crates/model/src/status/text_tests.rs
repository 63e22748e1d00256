//! Tests of the text that `status` prints.

use super::*;
use crate::status::{Backlog, Books, Pause, SourceGap, SwitchName, Token, Unlisted};
use crate::status::{ListFile, LostSession};

fn style(zone: &str) -> TextStyle {
    TextStyle {
        color: false,
        zone: Zone::from_name(zone).expect("a zone"),
    }
}

#[test]
fn unbalanced_books_are_reported() {
    let books = Books {
        finished: 2,
        ready: 1,
        ..Books::default()
    };
    assert!(!books.balance());
    let status = Status {
        books,
        ..Status::default()
    };
    assert!(status.to_text(&style("UTC")).contains("unbalanced"));
}

#[test]
fn database_times_and_lost_sessions_are_shown() {
    let leadership = LeadershipStatus {
        round_trip_us: Some(20_460),
        slowest_commit_us: Some(1_035_900),
        lost_sessions: 2,
        last_lost_session: Some(LostSession {
            at: 60,
            reason: "no answer within 8 s".to_owned(),
        }),
        ..LeadershipStatus::default()
    };
    let status = Status {
        leadership: Some(leadership),
        ..Status::default()
    };
    let text = status.to_text(&style("UTC"));
    let wanted = [
        "\ndatabase 20.4 ms per round trip, slowest commit of the last minute 1035.9 ms\n",
        "         this process lost 2 sessions with the database, the last one ",
        "1970-01-01 00:01:00 UTC: no answer within 8 s\n",
    ];
    assert!(text.contains(&wanted.concat()), "{text}");
}

#[test]
fn pause_is_listed_first_in_status_text() {
    let pause = Pause {
        reason: "token_refused".into(),
        fix: "put a new one".into(),
    };
    let status = Status {
        pause: Some(pause),
        backlog: Backlog {
            calls: 3,
            drain_sec: 1,
        },
        ..Status::default()
    };
    insta::assert_snapshot!(status.judged().to_text(&style("UTC")), @r"
    nothing reaches the CRM
      - paused (token_refused): put a new one
          callbridge check @FILE (with the flags of run)
    books    0 finished
             0 ready, 0 sending, 0 submitted, 0 journaled
             0 dead letters, 0 waiting, 0 discarded
             not among them: 0 internal, 0 left out by a flag, 0 unreadable
    backlog  3 calls, confirmed in about 1 s once it goes on
    token
    ");
}

#[test]
fn lists_and_employees_get_one_line_each_in_status_text() {
    let status = Status {
        lists: vec![ListFile {
            file: "/etc/leads.csv".to_owned(),
            kind: "leads".to_owned(),
            rows: 120,
            bad: 2,
            read_at: Some(1),
            ..ListFile::default()
        }],
        employees: Some(Employees {
            calls: 12,
            matched: 10,
            unlisted: vec![Unlisted {
                extension: "105".to_owned(),
                calls: 2,
                last_at: 1,
            }],
            ..Employees::default()
        }),
        ..Status::default()
    };
    let text = status.to_text(&style("UTC"));
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("staff") || line.starts_with("list"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    staff    10 of 12 calls have an extension in an employee list, not listed: 105 (2)
    list     /etc/leads.csv: 120 leads, 2 bad
    ");
}

fn daemon() -> Status {
    Status {
        at: 1_795_151_317,
        version: "1.2.3 (abc)".to_owned(),
        state: "/var/lib/callbridge".to_owned(),
        last_call_at: Some(1_795_151_300),
        books: Books {
            finished: 4,
            journaled: 4,
            ..Books::default()
        },
        token: Token {
            state: "ok".to_owned(),
            expires_at: Some(1_895_151_317),
            ..Token::default()
        },
        sources: vec![SourceStatus {
            url: "ami://a@pbx:5038".to_owned(),
            label: "pbx1/ami".to_owned(),
            pbx: "pbx1".to_owned(),
            state: SourceState::Up,
            last_event_at: Some(1_795_151_310),
            gaps: 1,
            ..SourceStatus::default()
        }],
        gaps: vec![SourceGap {
            source: "ami://a@pbx:5038".to_owned(),
            from: 1_795_100_000,
            to: 1_795_100_200,
            filled: true,
        }],
        ..Status::default()
    }
}

#[test]
fn healthy_status_starts_with_verdict_and_uses_zone_of_pbx() {
    insta::assert_snapshot!(daemon().judged().to_text(&style("Asia/Tashkent")), @r"
    no problem found
    books    4 finished
             0 ready, 0 sending, 0 submitted, 4 journaled
             0 dead letters, 0 waiting, 0 discarded
             not among them: 0 internal, 0 left out by a flag, 0 unreadable
    last     call of 2026-11-20 10:08:20 +05
    backlog  empty
    token    ok, expires 2030-01-20 19:55:17 +05
    source   pbx1/ami up
             ami://a@pbx:5038
             events: 0 read, 0 not needed, 0 repaired, 0 unreadable
             gaps: 1, last event 2026-11-20 10:08:30 +05
    gap      2026-11-19 19:53:20 +05 to 2026-11-19 19:56:40 +05 (3 min 20 s), filled
             of pbx1/ami
    version  1.2.3 (abc), state /var/lib/callbridge
    ");
}

#[test]
fn down_source_shows_reason_start_time_and_command() {
    let mut status = daemon();
    status.sources[0].state = SourceState::Down;
    status.sources[0].reason = Some("connection refused\u{1b}[2J".to_owned());
    status.sources[0].down_since = Some(1_795_151_200);
    status.gaps.clear();
    let text = status.judged().to_text(&style("Asia/Tashkent"));
    let head: Vec<&str> = text.lines().take(3).collect();
    insta::assert_snapshot!(head.join("\n"), @r"
    no source is up
      - source pbx1/ami is down: connection refused\u{1b}[2J
          callbridge check @FILE (with the flags of run)
    ");
    assert!(
        text.contains("pbx1/ami down since 2026-11-20 10:06:40 +05\n"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "no orders to a terminal");
}

#[test]
fn status_text_lists_only_the_last_gaps() {
    let mut status = daemon();
    let gap = status.gaps.remove(0);
    for hour in 0..8 {
        status.gaps.push(SourceGap {
            from: gap.from + 3_600 * hour,
            to: gap.to + 3_600 * hour,
            ..gap.clone()
        });
    }
    let style = style("UTC");
    let gaps = status.gaps.clone();
    let text = status.judged().to_text(&style);
    assert_eq!(text.matches("gap      ").count(), GAPS_MAX);
    for gap in &gaps[3..] {
        let line = format!("gap      {} to", style.zone.second(gap.from));
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert!(text.contains("and 3 before them: see --json"), "{text}");
}

#[test]
fn status_text_is_colored_only_if_requested() {
    let mut colored = style("UTC");
    assert!(!daemon().judged().to_text(&colored).contains('\u{1b}'));
    colored.color = true;
    assert!(
        daemon()
            .judged()
            .to_text(&colored)
            .starts_with("\u{1b}[1;32mno problem found")
    );
}

/// Returns the status with every text replaced by `text`, except words that callbridge chooses.
fn replace_texts(status: &Status, text: &str) -> Status {
    fn replace_text(value: &mut serde_json::Value, text: &str) {
        match value {
            serde_json::Value::Array(all) => {
                all.iter_mut().for_each(|item| replace_text(item, text))
            }
            serde_json::Value::Object(all) => {
                for (key, value) in all {
                    let word = matches!(key.as_str(), "kind" | "effect" | "verdict");
                    let of_source =
                        key == "state" && ["up", "down"].iter().any(|state| value == state);
                    if !word && !of_source {
                        replace_text(value, text);
                    }
                }
            }
            serde_json::Value::String(own) => text.clone_into(own),
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            }
        }
    }
    let mut value = serde_json::to_value(status).expect("a shape");
    replace_text(&mut value, text);
    serde_json::from_value(value).expect("the same shape")
}

/// Returns what `status` prints if every text in the status is `text`.
fn text_of_replaced(status: &Status, text: &str) -> String {
    let replaced = replace_texts(status, text).judged();
    replaced.to_text(&style("UTC"))
}

#[test]
fn external_text_adds_no_lines_or_control_characters() {
    let other = serde_json::json!({"pid": null, "state": "s", "pbx": "p", "effect": "unknown"});
    let source = crate::status::SourceStatus {
        reason: Some("refused".to_owned()),
        state: SourceState::Down,
        others: vec![serde_json::from_value(other).expect("another reader")],
        switches: vec![SwitchName::default(), SwitchName::default()],
        ..crate::status::SourceStatus::default()
    };
    let lead_fields = LeadFields {
        reason: Some("why".to_owned()),
        fields: vec![LeadField::default()],
        ..LeadFields::default()
    };
    let status = Status {
        sources: vec![source],
        gaps: vec![SourceGap::default()],
        lists: vec![ListFile::default()],
        unmatched: vec![crate::status::Unmatched::default()],
        degraded: vec![crate::status::DegradedPart::default()],
        pause: Some(Pause::default()),
        token: Token {
            company: Some("a company".to_owned()),
            application: Some("an application".to_owned()),
            ..Token::default()
        },
        directory: Some(Directory {
            backfill: Some("left".to_owned()),
            reason: Some("why".to_owned()),
            ..Directory::default()
        }),
        webhooks: Some(Webhooks {
            events: [("CALL\u{1b}[2J\n".to_owned(), 1)].into(),
            ..Webhooks::default()
        }),
        lead_fields: Some(lead_fields),
        version: "1".to_owned(),
        state: "/state".to_owned(),
        ..Status::default()
    };
    let evil = text_of_replaced(&status, "x\u{1b}[2J\u{9b}1m\u{202e}\r\nall is well");
    let tame = text_of_replaced(&status, "x");
    assert!(
        !evil.contains(|c: char| crate::safe::is_hostile(c) && c != '\n'),
        "{evil:?}"
    );
    assert_eq!(evil.lines().count(), tame.lines().count(), "{evil}");
    assert!(
        evil.contains(r"company x\u{1b}[2J\u{9b}1m\u{202e}\r\nall is well"),
        "{evil}"
    );
}
