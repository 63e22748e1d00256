//! Tests that each status produces the right findings and the right verdict.

use super::FindingKind as K;
use super::*;
use crate::status::{
    DegradedPart, Directory, Echo, Employees, ForeignCalls, FreeSpace, JournalField, LeadField,
    LeadFields, ListFile, MissingRight, OverallState, PAUSES, Pause, RightKind, SecretFile,
    SourceGap, SourceState, SourceStatus, Token, TrunkStatus, Unmatched, WebhookMismatch, Webhooks,
    other_reader::OtherReader,
};

const NOW: i64 = 1_795_151_317;
const DAY: i64 = 86_400;

fn source_up(url: &str) -> SourceStatus {
    SourceStatus {
        url: url.to_owned(),
        pbx: "pbx1".to_owned(),
        state: SourceState::Up,
        ..SourceStatus::default()
    }
}

/// Makes the status of a daemon without problems.
fn healthy_status() -> Status {
    Status {
        at: NOW,
        state: "/var/lib/callbridge".to_owned(),
        sources: vec![source_up("ami://a@pbx:5038"), source_up("wss://b/ws")],
        token: Token {
            state: "ok".to_owned(),
            kind: Some("PAT".to_owned()),
            expires_at: Some(NOW + 400 * DAY),
            ..Token::default()
        },
        ..Status::default()
    }
}

fn status_with(change: impl FnOnce(&mut Status)) -> Status {
    let mut status = healthy_status();
    change(&mut status);
    status.judged()
}

/// Makes a status in which an endpoint of the CRM fails and a fallback replaces it.
fn degraded_status() -> Status {
    status_with(|status| {
        status.degraded = vec![DegradedPart {
            part: "polls".to_owned(),
            reason: "500".to_owned(),
            fallback: "pages are read".to_owned(),
            since: 1_795_151_000,
        }];
    })
}

fn paused_status(reason: &str) -> Status {
    status_with(|status| {
        status.pause = Some(Pause {
            reason: reason.to_owned(),
            fix: "do this".to_owned(),
        });
    })
}

fn letters(reason: &str, count: u64) -> Status {
    status_with(|status| {
        let waits = Reason::from_word(reason).is_some_and(Reason::is_waiting);
        let counts = if waits {
            &mut status.waiting
        } else {
            &mut status.dead_letters
        };
        counts.insert(reason.to_owned(), count);
    })
}

fn gap(seconds: i64, ago: i64, filled: bool) -> Status {
    let source = "ami://a@pbx:5038".to_owned();
    status_with(|status| {
        status.gaps.push(SourceGap {
            source,
            from: NOW - ago - seconds,
            to: NOW - ago,
            filled,
        });
    })
}

/// Creates the status of a source whose directory has this much of 100 MiB free.
fn full_directory(free_mib: u64) -> Status {
    status_with(|status| {
        status.sources[0].space = Some(FreeSpace {
            path: "/var/log/freeswitch/json_cdr".to_owned(),
            free_bytes: free_mib << 20,
            total_bytes: 100 << 20,
            ..FreeSpace::default()
        });
    })
}

#[test]
fn gap_suggests_audit_of_the_records_that_the_pbx_writes() {
    for (source, command) in [
        ("ami://a@pbx:5038", "callbridge audit --cel FILE"),
        ("esl://127.0.0.1:8021", "callbridge audit --cdr FOLDER"),
    ] {
        let mut status = gap(600, 60, false);
        status.gaps[0].source = source.to_owned();
        status.state = String::new();
        let commands: Vec<String> = findings(&status)
            .into_iter()
            .filter(|problem| problem.kind == FindingKind::Gap)
            .map(|problem| problem.command)
            .collect();
        assert_eq!(commands, [command]);
    }
}

fn sources_down(which: &[usize]) -> Status {
    status_with(|status| {
        for at in which {
            status.sources[*at].state = SourceState::Down;
            status.sources[*at].reason = Some("connection refused".to_owned());
        }
    })
}

fn token(state: &str) -> Status {
    status_with(|status| status.token.state = state.to_owned())
}

/// Makes the status of a source that was connected this many seconds ago, has received nothing
/// since, and lacks this right.
fn silent_source(kind: Option<RightKind>, seconds: i64) -> Status {
    status_with(|status| {
        let source = &mut status.sources[0];
        source.state = SourceState::Connected;
        source.connected_since = Some(NOW - seconds);
        source.missing_rights.extend(kind.map(|kind| MissingRight {
            kind,
            message: "set read".to_owned(),
        }));
    })
}

/// Makes statuses of connected sources that have received nothing yet.
fn silent_source_cases() -> Vec<(Status, &'static [FindingKind])> {
    use FindingKind as K;
    vec![
        (silent_source(None, DAY - 60), &[]),
        (silent_source(None, DAY), &[K::NotHeard]),
        (silent_source(Some(RightKind::Calls), 60), &[K::NotHeard]),
        (silent_source(Some(RightKind::System), 60), &[]),
        (silent_source(Some(RightKind::Echo), 60), &[]),
        (silent_source(Some(RightKind::List), 60), &[K::Rights]),
        (silent_source(Some(RightKind::Zone), 60), &[K::Rights]),
        (silent_source(Some(RightKind::Variables), 60), &[K::Rights]),
        (silent_source(Some(RightKind::Times), 60), &[K::Rights]),
        (silent_source(Some(RightKind::Filter), 60), &[]),
    ]
}

fn unknown_technology() -> Status {
    status_with(|status| {
        status.unknown_channels.push(Unmatched {
            prefix: "TAPI/5".to_owned(),
            calls: 1,
            ..Unmatched::default()
        });
    })
}

fn unmatched_channel() -> Status {
    status_with(|status| {
        status.unmatched.push(Unmatched {
            prefix: "PJSIP/citty".to_owned(),
            calls: 1,
            ..Unmatched::default()
        });
    })
}

fn token_expiring_in(kind: &str, seconds: i64) -> Status {
    status_with(|status| {
        status.token.kind = Some(kind.to_owned());
        status.token.expires_at = Some(NOW + seconds);
    })
}

fn catch_up(state: SourceState) -> Status {
    status_with(|status| {
        let file = SourceStatus {
            catch_up: true,
            state,
            ..SourceStatus::default()
        };
        status.sources.push(file);
    })
}

fn backfill(state: &str) -> Status {
    status_with(|status| {
        status.directory = Some(Directory {
            backfill: Some(state.to_owned()),
            ..Directory::default()
        });
    })
}

fn fields(state: &str, ok: bool) -> Status {
    let field = LeadField {
        ok,
        ..LeadField::default()
    };
    status_with(|status| {
        status.lead_fields = Some(LeadFields {
            state: state.to_owned(),
            fields: vec![field],
            ..LeadFields::default()
        });
    })
}

fn webhooks(state: &str) -> Status {
    status_with(|status| {
        status.webhooks = Some(Webhooks {
            state: state.to_owned(),
            ..Webhooks::default()
        });
    })
}

#[test]
fn webhook_mismatch_names_installation_and_fix() {
    let status = status_with(|status| {
        status.webhooks = Some(Webhooks {
            state: "listening".to_owned(),
            mismatch: Some(WebhookMismatch {
                installation: "9001".to_owned(),
                at: 1_795_151_317,
                fix: "write it to the first line of secret".to_owned(),
            }),
            ..Webhooks::default()
        });
    });
    let found = findings(&status);
    assert_eq!(found.len(), 1, "{found:?}");
    let wanted = "a webhook for installation 9001 isn't signed with a known secret. The CRM \
                  retries it for 35 minutes. If its secret was regenerated in the CRM, write it to \
                  the first line of secret";
    assert_eq!(found[0].message, wanted);
    assert_eq!(found[0].detail.code, "webhook_mismatch");
}

fn staff(calls: u64, matched: u64) -> Status {
    let employees = Employees {
        calls,
        matched,
        ..Employees::default()
    };
    status_with(|status| status.employees = Some(employees))
}

fn list(change: impl FnOnce(&mut ListFile)) -> Status {
    let mut list = ListFile {
        file: "/etc/l".to_owned(),
        rows: 3,
        read_at: Some(NOW),
        ..ListFile::default()
    };
    change(&mut list);
    status_with(|status| status.lists.push(list))
}

fn secret_file() -> Status {
    status_with(|status| {
        status.secret_files = vec![SecretFile {
            flag: "--lookup-secret-file".to_owned(),
            reason: "it is empty, so no one is let in".to_owned(),
        }];
    })
}

fn late_events(late_seconds: Option<u64>) -> Status {
    status_with(|status| status.sources[0].late_seconds = late_seconds)
}

fn other_format(read: u64) -> Status {
    status_with(|status| {
        status.sources[0].read = read;
        status.sources[0].reason = Some("this looks like CEL".to_owned());
    })
}

fn other_daemon(effect: Effect) -> Status {
    let other = OtherReader {
        pid: Some(7),
        effect,
    };
    status_with(|status| status.sources[0].others.push(other))
}

/// Makes the status of a trunk that had `day_calls` of the day's two calls. `day_extensions` of
/// its calls had an extension.
fn trunk_with_calls(day_calls: u64, day_extensions: u64) -> Status {
    status_with(|status| {
        status.day_calls = 2;
        status.trunks = vec![TrunkStatus {
            name: "city".to_owned(),
            since: Some(NOW - DAY),
            journal: true,
            has_employees: true,
            day_calls,
            day_extensions,
            ..TrunkStatus::default()
        }];
    })
}

/// Makes the status of a trunk without a list of employees. Its one call had an extension.
/// `day_employees` of its calls had an employee.
fn trunk_without_list(day_employees: u64, employees: Option<Employees>) -> Status {
    let mut status = trunk_with_calls(1, 1);
    status.trunks[0].has_employees = false;
    status.trunks[0].day_employees = day_employees;
    status.employees = employees;
    status.judged()
}

fn trunks() -> Vec<(Status, &'static [FindingKind])> {
    let employees = Some(Employees::default());
    vec![
        (trunk_without_list(0, employees.clone()), &[K::NoEmployees]),
        // The source itself names the employees, or there is no list of employees.
        (trunk_without_list(1, employees), &[]),
        (trunk_without_list(0, None), &[]),
        (trunk_with_calls(0, 0), &[K::SilentTrunk]),
        (trunk_with_calls(1, 0), &[]),
        (trunk_with_calls(1, 1), &[K::SilentEmployees]),
    ]
}

/// Makes a status with this result for the newest call that was compared.
fn newest_field_shown(last: Echo) -> Status {
    status_with(|status| {
        status.journal_fields = vec![JournalField {
            last,
            ..JournalField::default()
        }];
    })
}

/// Makes a status with this number of calls that another provider has journaled within an hour.
fn foreign_calls(most_in_an_hour: u64) -> Status {
    status_with(|status| {
        status.foreign_calls = vec![ForeignCalls {
            most_in_an_hour,
            ..ForeignCalls::default()
        }];
    })
}

/// Makes one status for each thing that the CRM's journal can show.
fn journals() -> Vec<(Status, &'static [FindingKind])> {
    vec![
        (newest_field_shown(Echo::Right), &[]),
        (newest_field_shown(Echo::Missing), &[K::FieldNotShown]),
        (newest_field_shown(Echo::Different), &[K::FieldNotShown]),
        (foreign_calls(1), &[]),
        (foreign_calls(2), &[K::ForeignCalls]),
    ]
}

fn is_incomplete(problem: &Problem) -> bool {
    problem.message.is_empty() || problem.command.is_empty()
}

#[test]
fn worst_problem_decides_the_verdict() {
    let both_down = {
        let mut status = sources_down(&[0, 1]);
        status.dead_letters.insert("failed".to_owned(), 1);
        status.judged()
    };
    let wrong_books = status_with(|status| (status.books.finished, status.books.ready) = (2, 1));
    let table: Vec<(Status, &[FindingKind])> = vec![
        (healthy_status().judged(), &[]),
        (paused_status("unreachable"), &[K::Paused]),
        (degraded_status(), &[K::CrmDegraded]),
        (paused_status(NO_DAEMON), &[K::NoDaemon]),
        (sources_down(&[0]), &[K::SourceDown]),
        (both_down, &[K::NoSource, K::NoSource, K::DeadLetters]),
        (catch_up(SourceState::Down), &[K::SourceDown]),
        (catch_up(SourceState::Reading), &[]),
        (late_events(Some(61)), &[K::LateEvents]),
        (late_events(None), &[]),
        (other_format(0), &[K::OtherFormat]),
        (other_format(1), &[]),
        (other_daemon(Effect::Torn), &[K::OtherDaemon]),
        (other_daemon(Effect::Unknown), &[]),
        (letters("failed", 2), &[K::DeadLetters]),
        (letters("unreadable", 1), &[K::DeadLetters]),
        (letters("failed", 0), &[]),
        (letters("no_lead", 1), &[K::NoLead]),
        (letters("no_employee", 1), &[K::NoEmployee]),
        (staff(9, 0), &[]),
        (staff(10, 1), &[]),
        (staff(10, 0), &[K::Employees]),
        (list(|_| ()), &[]),
        (secret_file(), &[K::SecretFiles]),
        (list(|file| file.bad = 1), &[K::Lists]),
        (list(|file| file.rows = 0), &[K::Lists]),
        (
            list(|list| list.reason = Some("gone".to_owned())),
            &[K::Lists],
        ),
        (full_directory(0), &[K::SourceDisk]),
        (full_directory(50), &[]),
        (gap(600, 60, false), &[K::Gap]),
        (gap(600, 60, true), &[]),
        (gap(5, 60, false), &[]),
        (gap(600, 2 * DAY, false), &[]),
        (unmatched_channel(), &[K::NoTrunk]),
        (unknown_technology(), &[K::UnknownTechnology]),
        (token("reconnect"), &[K::Token]),
        (token("client_refused"), &[K::Token]),
        (token("refused"), &[K::Token]),
        (token("unknown"), &[]),
        (token_expiring_in("PAT", 13 * DAY), &[K::TokenEnds]),
        (token_expiring_in("PAT", -5), &[K::TokenEnds]),
        (token_expiring_in("PAT", 15 * DAY), &[]),
        (token_expiring_in("ACCESS", 60), &[]),
        (backfill("left"), &[K::LeadDirectory]),
        (backfill("no_grant"), &[K::LeadDirectory]),
        (backfill("waiting"), &[]),
        (fields("ok", true), &[]),
        (fields("off", false), &[K::LeadFields, K::LeadFields]),
        (webhooks("no_secret"), &[K::Webhooks]),
        (webhooks("listening"), &[]),
        (wrong_books, &[K::Books]),
    ];
    let mut found_kinds = std::collections::BTreeSet::new();
    let more = trunks().into_iter();
    let more = more
        .chain(journals())
        .chain(super::super::outboxes::tests::statuses_with_findings())
        .chain(super::super::hub::tests::statuses_with_findings())
        .chain(super::super::leadership::tests::statuses_with_findings());
    for (status, kinds) in table.into_iter().chain(silent_source_cases()).chain(more) {
        let found: Vec<FindingKind> = status.problems.iter().map(|problem| problem.kind).collect();
        assert_eq!(found, kinds, "{status:?}");
        let worst = kinds.iter().map(|kind| kind.verdict()).max();
        assert_eq!(status.verdict, worst.unwrap_or(OverallState::Ok));
        found_kinds.extend(found);
        assert!(
            !status.problems.iter().any(is_incomplete),
            "{:?}",
            status.problems
        );
    }
    assert!(
        found_kinds.iter().eq(FindingKind::ALL),
        "a kind that nothing finds"
    );
}

#[test]
fn finished_catch_up_file_does_not_count_as_a_source_up() {
    let mut status = sources_down(&[0, 1]);
    status.sources.push(SourceStatus {
        catch_up: true,
        state: SourceState::Done,
        ..SourceStatus::default()
    });
    let status = status.judged();
    assert_eq!(status.verdict, OverallState::Down);
}

#[test]
fn every_pause_stops_calls_and_shows_fix_and_command() {
    for reason in PAUSES {
        let status = paused_status(reason);
        assert_eq!(status.verdict, OverallState::Down, "{reason}");
        let problem = &status.problems[0];
        assert_eq!(problem.message, format!("paused ({reason}): do this"));
        assert!(!problem.command.is_empty(), "{reason}");
    }
    assert_eq!(
        paused_status("disk").problems[0].command,
        "df -h /var/lib/callbridge"
    );
}

fn first_message(status: &Status) -> String {
    status.problems[0].message.clone()
}

/// Makes a status with a list that cannot be read, and that was read before at `read_at`.
fn unreadable_list(read_at: Option<i64>) -> Status {
    list(|list| {
        list.reason = Some("/etc/l: no such file".to_owned());
        list.read_at = read_at;
    })
}

#[test]
fn list_problem_reports_wrong_rows_and_rows_in_force() {
    let two = list(|file| {
        file.bad = 3;
        file.faults = vec!["line 4: a".to_owned(), "line 7: b".to_owned()];
    });
    let read_before = unreadable_list(Some(NOW));
    let never_read = unreadable_list(None);
    let empty = list(|list| list.rows = 0);
    let messages = [two, read_before, never_read, empty].map(|status| first_message(&status));
    insta::assert_snapshot!(messages.join("\n"), @r"
    3 rows of the list /etc/l cannot be used: line 4: a; line 7: b; and 1 more
    the list /etc/l cannot be used: no such file; the rows read before stay in use (3 rows)
    the list /etc/l cannot be used: no such file; no row of it is in use
    the list /etc/l has no row
    ");
}

#[test]
fn problem_commands_can_be_pasted_into_a_shell() {
    let mut status = healthy_status();
    status.state = "/srv/it's here".to_owned();
    status.dead_letters.insert("failed".to_owned(), 2);
    status.dead_letters.insert("conflict".to_owned(), 1);
    let status = status.judged();
    assert_eq!(
        status.problems[0].message,
        "3 dead letters: 2 failed, 1 conflict"
    );
    let mut waiting = status.clone();
    waiting.waiting.insert("no_lead".to_owned(), 28);
    let messages: Vec<String> = waiting
        .judged()
        .problems
        .into_iter()
        .map(|problem| problem.message)
        .collect();
    let all = "3 dead letters: 2 failed, 1 conflict";
    assert_eq!(messages, [all, "28 calls wait for a lead"]);
    let command = r"callbridge dead list --state '/srv/it'\''s here'";
    assert_eq!(status.problems[0].command, command);
    let mut status = sources_down(&[0]);
    status.check_command = Some("callbridge check @/etc/flags".to_owned());
    let status = status.judged();
    assert_eq!(status.problems[0].command, "callbridge check @/etc/flags");
    let message = "source ami://a@pbx:5038 is down: connection refused";
    assert_eq!(status.problems[0].message, message);
}
