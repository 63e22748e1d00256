//! Tests that `audit` explains each call in a PBX's file and names the cause of each missing one.

use crate::e2e::operations::monitoring::metrics;
use crate::support::crm;
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording};
use rusqlite::Connection;
use serde_json::Value;

/// Number of rows that the test deletes from the state.
const TAKEN_OUT: usize = 10;
/// Number of calls. Every fifth came over a trunk that no flag names.
const CALLS: usize = 25;

/// Returns a trunk with its leads in a list, because CEL has no variables.
pub fn trunk(place: &Place, name: &str) -> String {
    let leads = place.path("leads.csv");
    format!("--trunk={name}=PJSIP/{name},country=UZ,strip=9,lead=var:LEAD_ID;csv:{leads}")
}

/// Returns calls in a row. Every fifth is over a trunk called `second`.
fn day() -> Vec<Recording> {
    let mut day = recordings::in_a_row(CALLS);
    for recording in day.iter_mut().step_by(5) {
        let text = String::from_utf8(recording.ami.clone()).expect("text");
        recording.ami = text.replace("PJSIP/city", "PJSIP/second").into_bytes();
    }
    day
}

fn audit(place: &Place, more: &[&str]) -> Vec<String> {
    let cel = format!("--cel={}", place.path("cel.csv"));
    // No PBX id is given, because the state has it.
    let flags = ["audit", &cel, "--json"];
    let all = flags.iter().chain(more);
    let all = all.map(|flag| (*flag).to_owned());
    all.chain([trunk(place, "city")]).collect()
}

/// Runs `audit`. Returns its report and its exit code.
pub async fn report(place: &Place, more: &[&str]) -> (Value, Option<i32>) {
    let arguments = audit(place, more);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = place.command(&arguments).await;
    let told = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let first = text.lines().next().unwrap_or_else(|| panic!("{told}"));
    let report: Value = serde_json::from_str(first).expect("JSON");
    let figure = |name: &str| report[name].as_u64().expect("a figure");
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
    .map(figure)
    .sum();
    let unexplained = report["unexplained"].as_array().expect("a list").len() as u64;
    assert_eq!(figure("file"), sum + unexplained, "{report}");
    (report, output.status.code())
}

/// Returns the number of calls that are unexplained for this cause.
pub fn caused(report: &Value, begins: &str) -> usize {
    let all = report["unexplained"].as_array().expect("a list").iter();
    let causes = all.map(|call| call["cause"].as_str().expect("a cause"));
    causes.filter(|cause| cause.starts_with(begins)).count()
}

async fn stopped(program: Program, place: &Place) -> Connection {
    program.terminate().await;
    Connection::open(place.at("state").join("spool.db")).expect("the state")
}

/// Returns the CEL rows of a call until the PBX was killed, without any hangup.
fn cut(recording: &Recording) -> Vec<u8> {
    let rows = recording.cel_lines();
    let rows = rows.split_inclusive(|byte| *byte == b'\n');
    let is_end = |row: &[u8]| row.windows(6).any(|it| it == b"HANGUP");
    rows.take_while(|row| !is_end(row))
        .flatten()
        .copied()
        .collect()
}

#[tokio::test]
async fn call_without_end_is_under_way_until_max_call_or_pbx_restart() {
    let (place, crm) = (Place::new(), crm::start().await);
    let day = recordings::in_a_row(6);
    let (heard, unheard) = day.split_at(5);
    for recording in heard {
        place.append("calls.ami", &recording.ami);
        place.append("cel.csv", &recording.cel_lines());
    }
    // The last call has no end. It is an inbound_answered, like the first one of the day.
    place.append("cel.csv", &cut(&unheard[0]));
    place.write("leads.csv", recordings::LEADS);
    let (source, city) = (place.file("calls.ami", "ami"), trunk(&place, "city"));
    let mut program = place.run(&crm.url(), &[&source, &city, crm::RATE_FLAG]);
    program.settled(5).await;
    let (whole, ended) = report(&place, &[]).await;
    assert_eq!(
        (&whole["file"], &whole["underWay"], ended),
        (&6.into(), &1.into(), Some(0)),
        "{whole}"
    );
    // After the longest possible call, it counts as over. It also does once another process of the
    // PBX counts its channels from the beginning.
    let (long, ended) = report(&place, &["--max-call=1m"]).await;
    assert_eq!(
        (&long["file"], &long["underWay"]),
        (&6.into(), &0.into()),
        "{long}"
    );
    assert_eq!(ended, Some(1), "nobody heard of it");
    let again = unheard[0].moved_to(unheard[0].began() + 300);
    place.append("cel.csv", &again.cel_lines());
    let (anew, _) = report(&place, &[]).await;
    assert_eq!(
        (&anew["file"], &anew["underWay"]),
        (&7.into(), &0.into()),
        "{anew}"
    );
    assert_eq!(
        anew["unexplained"].as_array().map(Vec::len),
        Some(2),
        "{anew}"
    );
    let cel = place.path("cel.csv");
    let explain = ["explain", "--format=cel-csv", "--json", &city, &cel];
    let told = place.command(&explain).await.stdout;
    let told = String::from_utf8(told).expect("UTF-8");
    assert_eq!(told.lines().count(), 7, "{told}");
    program.terminate().await;
}

#[tokio::test]
async fn audit_take_in_repairs_deleted_calls_and_missing_trunk() {
    let (place, crm) = (Place::new(), crm::start().await);
    let day = day();
    for recording in &day {
        place.append("calls.ami", &recording.ami);
        place.append("cel.csv", &recording.cel_lines());
    }
    place.write("leads.csv", recordings::LEADS);
    let [city, second] = ["city", "second"].map(|name| trunk(&place, name));
    let source = place.file("calls.ami", "ami");
    let flags = [&source, &city, crm::RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    let over_first = u64::try_from(CALLS - CALLS / 5).expect("few");
    program.settled(over_first).await;
    let (whole, ended) = report(&place, &[]).await;
    assert_eq!(ended, Some(1), "the trunk that was left out shows");
    assert_eq!(caused(&whole, "no trunk matched: PJSIP/second"), CALLS / 5);
    assert_eq!(whole["journaled"], over_first);

    let state = stopped(program, &place).await;
    let gone = state.execute(
        "DELETE FROM calls WHERE id IN (SELECT id FROM calls ORDER BY id LIMIT ?1)",
        [i64::try_from(TAKEN_OUT).expect("few")],
    );
    assert_eq!(gone, Ok(TAKEN_OUT));
    drop(state);
    let (holes, ended) = report(&place, &[]).await;
    assert_eq!(ended, Some(1));
    assert_eq!(caused(&holes, "it was taken in"), TAKEN_OUT);
    assert_eq!(caused(&holes, "no trunk matched: PJSIP/second"), CALLS / 5);

    // Run again with the trunk that was missing, while the daemon runs.
    let flags = [
        &source,
        &city,
        &second,
        crm::RATE_FLAG,
        "--listen=127.0.0.1:0",
    ];
    let mut program = place.run(&crm.url(), &flags);
    program.until("it answers", |_| true).await;
    let (found, ended) = report(&place, &[&second, "--take-in"]).await;
    assert_eq!(ended, Some(1), "what was found then");
    assert_eq!(caused(&found, "no trunk matched when"), CALLS / 5);
    let all = u64::try_from(CALLS).expect("few");
    let sent = move |it: &callbridge_model::Status| {
        it.books.ready + it.books.sending + it.books.submitted == 0
    };
    program.until("all are sent", sent).await;
    let (healed, ended) = report(&place, &[&second]).await;
    assert_eq!(ended, Some(0), "{healed}");
    assert_eq!(
        (healed["journaled"].as_u64(), healed["file"].as_u64()),
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
async fn values_that_differ_from_the_file_are_named_and_counted() {
    let (place, crm) = (Place::new(), crm::start().await);
    for recording in recordings::in_a_row(6) {
        place.append("calls.ami", &recording.ami);
        place.append("cel.csv", &recording.cel_lines());
    }
    place.write("leads.csv", recordings::LEADS);
    let (source, city) = (place.file("calls.ami", "ami"), trunk(&place, "city"));
    let flags = [&source, &city, crm::RATE_FLAG, "--listen=127.0.0.1:0"];
    let mut program = place.run(&crm.url(), &flags);
    program.settled(6).await;
    let (equal, ended) = report(&place, &[]).await;
    assert_eq!(equal["different"], serde_json::json!([]), "{equal}");
    assert_eq!((&equal["journaled"], ended), (&6.into(), Some(0)));

    let state = stopped(program, &place).await;
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
    let (found, ended) = report(&place, &["--no-journal"]).await;
    assert_eq!(
        (&found["journaled"], ended),
        (&6.into(), Some(1)),
        "{found}"
    );
    let mut fields = Vec::new();
    for call in found["different"].as_array().expect("a list") {
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
    assert_eq!(fields, wrong, "{found}");
    let mut program = place.run(&crm.url(), &flags);
    program.until("it answers", |_| true).await;
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
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(told.contains("--cdr FILE or --cel FILE"), "{told}");
    let state = place.path("state");
    let (handle, guard) =
        callbridge_spool::open(state.as_ref(), callbridge_spool::Settings::default())
            .expect("a state");
    callbridge_admin::state_access::close(handle, guard).await;
    let output = place.command(&["audit", "--cel=/nowhere/cel.csv"]).await;
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(
        told.contains("--pbx-id") && told.contains("knows no PBX"),
        "{told}"
    );
    let missing = ["audit", "--cel=/nowhere/cel.csv", "--pbx-id=a"];
    let output = place.command(&missing).await;
    assert_eq!(output.status.code(), Some(66));
}
