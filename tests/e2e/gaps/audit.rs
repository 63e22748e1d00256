//! Tests that `audit` explains each call in a PBX's file and gives the cause for each one that's
//! missing.

use crate::e2e::operations::monitoring::metrics;
use crate::support::crm;
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording};
use rusqlite::Connection;
use serde_json::Value;

/// Number of rows that the test deletes from the state.
const DELETED: usize = 10;
/// Number of calls. Every fifth one came in over a trunk that isn't given by any flag.
const CALLS: usize = 25;

/// Returns the flag for a trunk whose leads come from a list, because CEL has no variables.
pub fn trunk(place: &Place, name: &str) -> String {
    let leads = place.path("leads.csv");
    format!("--trunk={name}=PJSIP/{name},country=UZ,strip=9,lead=var:LEAD_ID;csv:{leads}")
}

/// Returns recordings of consecutive calls, where every fifth one uses the trunk `second`.
fn calls_over_two_trunks() -> Vec<Recording> {
    let mut day = recordings::consecutive(CALLS);
    for recording in day.iter_mut().step_by(5) {
        let text = String::from_utf8(recording.ami.clone()).expect("text");
        recording.ami = text.replace("PJSIP/city", "PJSIP/second").into_bytes();
    }
    day
}

/// Returns the arguments for `audit` with the test's CEL file and the flags in `more`.
fn audit_arguments(place: &Place, more: &[&str]) -> Vec<String> {
    let cel = format!("--cel={}", place.path("cel.csv"));
    // The `--pbx-id` flag isn't necessary, because the state has the PBX ID.
    let flags = ["audit", &cel, "--json"];
    let all = flags.iter().chain(more);
    let all = all.map(|flag| (*flag).to_owned());
    all.chain([trunk(place, "city")]).collect()
}

/// Runs `audit` with the flags in `more`, and returns the JSON report and the exit status.
pub async fn run_audit(place: &Place, more: &[&str]) -> (Value, Option<i32>) {
    let arguments = audit_arguments(place, more);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = place.command(&arguments).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let first_line = text.lines().next().unwrap_or_else(|| panic!("{errors}"));
    let report: Value = serde_json::from_str(first_line).expect("JSON");
    let sum: u64 = [
        "journaled",
        "dead",
        "waiting",
        "discarded",
        "underWay",
        "internal",
        "skipped",
    ]
    .into_iter()
    .map(|state| count_in(&report, state))
    .sum();
    let unexplained = report["unexplained"].as_array().expect("a list").len() as u64;
    assert_eq!(count_in(&report, "file"), sum + unexplained, "{report}");
    (report, output.status.code())
}

/// Returns the count in this field of the report.
fn count_in(report: &Value, field: &str) -> u64 {
    report[field].as_u64().expect("a count")
}

/// Returns the number of unexplained calls whose cause starts with `prefix`.
pub fn count_unexplained(report: &Value, prefix: &str) -> usize {
    let all = report["unexplained"].as_array().expect("a list").iter();
    let causes = all.map(|call| call["cause"].as_str().expect("a cause"));
    causes.filter(|cause| cause.starts_with(prefix)).count()
}

/// Stops the program and opens its spool.
async fn stop_and_open_spool(program: Program, place: &Place) -> Connection {
    program.terminate().await;
    Connection::open(place.at("state").join("spool.db")).expect("the state")
}

/// Returns a call's CEL rows from before its first hangup, as if the PBX had been killed at that
/// point.
fn cel_before_hangup(recording: &Recording) -> Vec<u8> {
    let rows = recording.cel_lines();
    let rows = rows.split_inclusive(|byte| *byte == b'\n');
    rows.take_while(|row| !row.windows(6).any(|part| part == b"HANGUP"))
        .flatten()
        .copied()
        .collect()
}

#[tokio::test]
async fn call_without_end_is_under_way_until_max_call_or_pbx_restart() {
    let (place, crm) = (Place::new(), crm::start().await);
    let day = recordings::consecutive(6);
    let (reported, unreported) = day.split_at(5);
    for recording in reported {
        place.append("calls.ami", &recording.ami);
        place.append("cel.csv", &recording.cel_lines());
    }
    // The sixth call is an `inbound_answered`, like the first one. No source reports it, and its
    // CEL rows have no end.
    place.append("cel.csv", &cel_before_hangup(&unreported[0]));
    place.write("leads.csv", recordings::LEADS);
    let (source, city) = (place.file("calls.ami", "ami"), trunk(&place, "city"));
    let mut program = place.run(&crm.url(), &[&source, &city, crm::RATE_FLAG]);
    program.settled(5).await;
    let (first_report, exit_code) = run_audit(&place, &[]).await;
    assert_eq!(
        (&first_report["file"], &first_report["underWay"], exit_code),
        (&6.into(), &1.into(), Some(0)),
        "{first_report}"
    );
    // A call without an end counts as over after `--max-call`, or when another of the PBX's
    // processes starts counting its channels from the beginning.
    let (short_limit_report, exit_code) = run_audit(&place, &["--max-call=1m"]).await;
    assert_eq!(
        (&short_limit_report["file"], &short_limit_report["underWay"]),
        (&6.into(), &0.into()),
        "{short_limit_report}"
    );
    assert_eq!(exit_code, Some(1), "no source reported the sixth call");
    let later_call = unreported[0].moved_to(unreported[0].start() + 300);
    place.append("cel.csv", &later_call.cel_lines());
    let (restart_report, _) = run_audit(&place, &[]).await;
    assert_eq!(
        (&restart_report["file"], &restart_report["underWay"]),
        (&7.into(), &0.into()),
        "{restart_report}"
    );
    assert_eq!(
        restart_report["unexplained"].as_array().map(Vec::len),
        Some(2),
        "{restart_report}"
    );
    let cel = place.path("cel.csv");
    let explain = ["explain", "--format=cel-csv", "--json", &city, &cel];
    let stdout = place.command(&explain).await.stdout;
    let explained = String::from_utf8(stdout).expect("UTF-8");
    assert_eq!(explained.lines().count(), 7, "{explained}");
    program.terminate().await;
}

#[tokio::test]
async fn audit_take_in_repairs_deleted_calls_and_missing_trunk() {
    let (place, crm) = (Place::new(), crm::start().await);
    let day = calls_over_two_trunks();
    for recording in &day {
        place.append("calls.ami", &recording.ami);
        place.append("cel.csv", &recording.cel_lines());
    }
    place.write("leads.csv", recordings::LEADS);
    let [city, second] = ["city", "second"].map(|name| trunk(&place, name));
    let source = place.file("calls.ami", "ami");
    let flags = [&source, &city, crm::RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    let calls_over_city = u64::try_from(CALLS - CALLS / 5).expect("few");
    program.settled(calls_over_city).await;
    let (first_report, exit_code) = run_audit(&place, &[]).await;
    assert_eq!(exit_code, Some(1), "the missing trunk is reported");
    assert_eq!(
        count_unexplained(
            &first_report,
            "no trunk matched: an outside number appeared on PJSIP/second"
        ),
        CALLS / 5
    );
    assert_eq!(first_report["journaled"], calls_over_city);

    let state = stop_and_open_spool(program, &place).await;
    let deleted = state.execute(
        "DELETE FROM calls WHERE id IN (SELECT id FROM calls ORDER BY id LIMIT ?1)",
        [i64::try_from(DELETED).expect("few")],
    );
    assert_eq!(deleted, Ok(DELETED));
    drop(state);
    let (loss_report, exit_code) = run_audit(&place, &[]).await;
    assert_eq!(exit_code, Some(1));
    assert_eq!(count_unexplained(&loss_report, "it was taken in"), DELETED);
    assert_eq!(
        count_unexplained(
            &loss_report,
            "no trunk matched: an outside number appeared on PJSIP/second"
        ),
        CALLS / 5
    );

    // `audit` runs alongside a daemon that has the trunk that was missing.
    let flags = [
        &source,
        &city,
        &second,
        crm::RATE_FLAG,
        "--listen=127.0.0.1:0",
    ];
    let mut program = place.run(&crm.url(), &flags);
    program.until("the daemon answers", |_| true).await;
    let (found_report, exit_code) = run_audit(&place, &[&second, "--take-in"]).await;
    assert_eq!(
        exit_code,
        Some(1),
        "the report shows the state before the repair"
    );
    assert_eq!(
        count_unexplained(&found_report, "no trunk matched when"),
        CALLS / 5
    );
    let all = u64::try_from(CALLS).expect("few");
    program
        .until("all are sent", |status| {
            status.books.ready + status.books.sending + status.books.submitted == 0
        })
        .await;
    let (last_report, exit_code) = run_audit(&place, &[&second]).await;
    assert_eq!(exit_code, Some(0), "{last_report}");
    assert_eq!(
        (
            last_report["journaled"].as_u64(),
            last_report["file"].as_u64()
        ),
        (Some(all), Some(all))
    );
    let scraped = metrics(&program).await;
    assert!(
        scraped.contains("callbridge_audit_unexplained 0"),
        "{scraped}"
    );
    let records = crm.journal().len();
    assert_eq!(records, CALLS, "each once");
    program.terminate().await;
}

#[tokio::test]
async fn values_different_from_the_file_are_listed_and_counted() {
    let (place, crm) = (Place::new(), crm::start().await);
    for recording in recordings::consecutive(6) {
        place.append("calls.ami", &recording.ami);
        place.append("cel.csv", &recording.cel_lines());
    }
    place.write("leads.csv", recordings::LEADS);
    let (source, city) = (place.file("calls.ami", "ami"), trunk(&place, "city"));
    let flags = [&source, &city, crm::RATE_FLAG, "--listen=127.0.0.1:0"];
    let mut program = place.run(&crm.url(), &flags);
    program.settled(6).await;
    let (equal_report, exit_code) = run_audit(&place, &[]).await;
    assert_eq!(
        equal_report["different"],
        serde_json::json!([]),
        "{equal_report}"
    );
    assert_eq!(
        (&equal_report["journaled"], exit_code),
        (&6.into(), Some(0))
    );

    let state = stop_and_open_spool(program, &place).await;
    // Change one value in each of the first five calls.
    for (id, change) in [
        (
            1,
            "'$.talkTimeSec', json_extract(record, '$.talkTimeSec') + 8",
        ),
        (
            2,
            "'$.answered', json(iif(json_extract(record, '$.answered'), 'false', 'true')), \
             '$.talkTimeSec', iif(json_extract(record, '$.answered'), 0, 9)",
        ),
        (3, "'$.clientPhone', '+998901119999'"),
        (
            4,
            "'$.startedAt', json_extract(record, '$.startedAt') - 3600",
        ),
        (
            5,
            "'$.durationSec', json_extract(record, '$.durationSec') + 5",
        ),
    ] {
        let change = format!("UPDATE calls SET record = json_set(record, {change}) WHERE id = ?1");
        assert_eq!(state.execute(&change, [id]), Ok(1));
    }
    drop(state);
    let (found_report, exit_code) = run_audit(&place, &["--no-journal"]).await;
    assert_eq!(
        (&found_report["journaled"], exit_code),
        (&6.into(), Some(1)),
        "{found_report}"
    );
    let mut fields = Vec::new();
    for call in found_report["different"].as_array().expect("a list") {
        for difference in call["differs"].as_array().expect("differences") {
            assert_ne!(difference["stored"], difference["file"]);
            fields.push(difference["field"].as_str().expect("a field"));
        }
    }
    fields.sort_unstable();
    let wrong = [
        "answered",
        "clientPhone",
        "durationSec",
        "startedAt",
        "talkTimeSec",
        "talkTimeSec",
    ];
    assert_eq!(fields, wrong, "{found_report}");
    let mut program = place.run(&crm.url(), &flags);
    program.until("the daemon answers", |_| true).await;
    let scraped = metrics(&program).await;
    assert!(
        scraped.contains("callbridge_audit_different 5"),
        "{scraped}"
    );
    program.terminate().await;
}

#[tokio::test]
async fn audit_without_file_or_pbx_id_names_missing_flag() {
    let place = Place::new();
    let output = place.command(&["audit", "--json"]).await;
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(64), "{errors}");
    assert!(errors.contains("--cdr FILE or --cel FILE"), "{errors}");
    let state = place.path("state");
    let (handle, guard) =
        callbridge_spool::open(state.as_ref(), callbridge_spool::Settings::default())
            .expect("a state");
    callbridge_admin::state_access::close(handle, guard).await;
    let output = place.command(&["audit", "--cel=/nowhere/cel.csv"]).await;
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(64), "{errors}");
    assert!(
        errors.contains("--pbx-id") && errors.contains("knows no PBX"),
        "{errors}"
    );
    let missing = ["audit", "--cel=/nowhere/cel.csv", "--pbx-id=a"];
    let output = place.command(&missing).await;
    assert_eq!(output.status.code(), Some(66));
}
