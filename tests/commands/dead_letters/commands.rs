//! Tests `dead list`, `show`, `retry`, `discard`, and `export`, each with a daemon and without one.

use crate::commands::sidecar::{PBX, Place, json_lines, start_crm};
use callbridge_sandbox::{Record, Server};
use callbridge_testbed::calls::{Call, recording};
use serde_json::{Value, json};

/// Runs four calls to their end. Two become dead letters, because the CRM does not know their lead.
/// The third call waits for a lead, and the fourth is journaled.
async fn stage() -> (Place, Server, [Call; 4]) {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let calls = [
        Call::new(1, 9001),
        Call::new(2, 9002),
        Call::without_lead(3),
        Call::new(4, 4001),
    ];
    place.write("calls.ami", recording(&calls));
    place
        .run_until_idle(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    (place, crm, calls)
}

fn text<'a>(letter: &'a Value, field: &str) -> &'a str {
    letter[field].as_str().unwrap_or_default()
}

/// Returns the id of the dead letter of a call.
async fn dead_letter_id(place: &Place, call: &Call) -> u64 {
    let letters = place.dead_letters("").await;
    let of_call = letters
        .iter()
        .find(|letter| text(letter, "uuid") == call.uuid(PBX));
    of_call.expect("a letter")["id"].as_u64().expect("a number")
}

/// Returns the id and the result in each line of `retry --json` or `discard --json`.
fn results(lines: &[Value]) -> Vec<(u64, String)> {
    let mut results = Vec::new();
    for line in lines {
        let id = line["id"].as_u64().expect("an id");
        results.push((id, text(line, "result").to_owned()));
    }
    results
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_views_are_same_with_and_without_daemon() {
    let (place, crm, calls) = stage().await;
    let commands = [
        "dead list",
        "dead list --json",
        "dead list --waiting --json --reason no_lead",
        "dead show --all",
        "dead show --all --json",
        "dead export --waiting --format csv",
        "dead export --format jsonl --reason failed",
        "lead missing",
    ];
    let mut offline_outputs = Vec::new();
    for command in commands {
        offline_outputs.push(place.run_on_state(command).await.expect_success());
    }
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    for (command, offline) in commands.iter().zip(&offline_outputs) {
        assert_eq!(
            &place.run_on_state(command).await.expect_success(),
            offline,
            "{command}"
        );
    }
    daemon.stop().await;
    let listed = json_lines(&offline_outputs[1]);
    let reasons: Vec<&str> = listed.iter().map(|letter| text(letter, "reason")).collect();
    assert_eq!(reasons, ["failed", "failed"]);
    let first = &listed[0];
    assert_eq!(text(first, "linkedid"), calls[0].linkedid());
    assert_eq!(first["call"]["leadId"], json!(9001));
    assert_eq!(first["call"]["outcome"], json!("dead_letter"));
    assert_eq!(first["attempts"].as_array().map(Vec::len), Some(1));
    assert!(
        json_lines(&offline_outputs[2])
            .iter()
            .all(|letter| letter["reason"] == json!("no_lead"))
    );
    for word in ["dead letter ", "fix", &calls[1].phone(), "attempt"] {
        assert!(
            offline_outputs[3].contains(word),
            "{word}: {}",
            offline_outputs[3]
        );
    }
    assert!(
        offline_outputs[7].contains(&calls[2].phone()),
        "{}",
        offline_outputs[7]
    );
}

/// Returns the cell of a row in the column `name`.
fn cell<'a>(header: &[String], row: &'a csv::StringRecord, name: &str) -> &'a str {
    let column = header.iter().position(|column| column == name);
    &row[column.expect("a column")]
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_export_has_one_row_per_dead_letter_with_call_values() {
    let (place, _crm, calls) = stage().await;
    let csv = place
        .run_on_state("dead export --format csv")
        .await
        .expect_success();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header: Vec<String> = reader
        .headers()
        .expect("a header")
        .iter()
        .map(Into::into)
        .collect();
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (
            cell(&header, &rows[0], "reason"),
            cell(&header, &rows[0], "leadId")
        ),
        ("failed", "9001")
    );
    assert_eq!(cell(&header, &rows[1], "clientPhone"), calls[1].phone());
    assert_eq!(
        cell(&header, &rows[1], "startedAt"),
        calls[1].begins.to_string()
    );
    let waiting = place
        .run_on_state("dead export --waiting --format csv")
        .await
        .expect_success();
    assert!(waiting.contains(&calls[2].phone()), "{waiting}");
    let lines = place
        .run_on_state("dead export --format jsonl")
        .await
        .lines();
    assert_eq!(lines, place.run_on_state("dead list --json").await.lines());
    let missing = place.run_on_state("dead export").await;
    assert_eq!(missing.code, 64, "{missing:?}");
    assert!(missing.err.contains("--format"), "{}", missing.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_dead_letter_id_exits_65_and_others_are_processed() {
    let (place, _crm, calls) = stage().await;
    let id = dead_letter_id(&place, &calls[0]).await;
    let output = place
        .run_on_state(&format!("dead list --json {id} 777"))
        .await;
    assert_eq!(
        (output.code, json_lines(&output.out).len()),
        (65, 1),
        "{output:?}"
    );
    assert!(
        output
            .err
            .contains("1 of the 2 ids belong to no dead letter"),
        "{}",
        output.err
    );
    let output = place
        .run_on_state(&format!("dead discard --json 777 {id}"))
        .await;
    assert_eq!(output.code, 65, "{output:?}");
    assert_eq!(
        results(&json_lines(&output.out)),
        [(id, "discarded".to_owned())]
    );
    for command in [
        "dead show 777",
        "dead retry 777",
        "dead export --format csv 777",
    ] {
        assert_eq!(place.run_on_state(command).await.code, 65, "{command}");
    }
    let no_number = place.run_on_state("dead show seven").await;
    assert_eq!(no_number.code, 64, "{no_number:?}");
    assert!(
        no_number
            .err
            .contains("`seven` is not the id of a dead letter"),
        "{}",
        no_number.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn change_commands_require_a_selection_of_dead_letters() {
    let (place, _crm, _) = stage().await;
    for command in [
        "dead retry",
        "dead discard",
        "dead show",
        "dead retry --lead 4001",
    ] {
        let output = place.run_on_state(command).await;
        assert_eq!(output.code, 64, "{command}: {output:?}");
        assert!(output.err.contains("--all"), "{command}: {}", output.err);
    }
    let output = place
        .run_on_state("dead retry --reason nonsense --lead x --employee y")
        .await;
    assert_eq!(output.code, 64);
    for part in ["--reason", "--lead", "--employee", "no_lead"] {
        assert!(output.err.contains(part), "{part} in {}", output.err);
    }
    let output = place
        .run_on_state("dead retry --all --answered maybe --talk long")
        .await;
    assert_eq!(output.code, 64);
    for part in ["--answered", "--talk", "yes or no"] {
        assert!(output.err.contains(part), "{part} in {}", output.err);
    }
    let output = place
        .run_on_state("dead retry --all --answered no --talk 3")
        .await;
    assert_eq!(output.code, 64, "{output:?}");
    let nothing = place.run_on_state("dead discard --reason conflict").await;
    assert_eq!(nothing.expect_success().trim_end(), "no dead letters");
    assert_eq!(place.number("/books/dead").await, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_reports_calls_to_be_sent_and_changes_nothing() {
    let (place, crm, _) = stage().await;
    let letters_before = place.dead_letters("").await;
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let dry = "dead retry --all --dry-run --lead 4002 --employee 501 --json";
    let output = place.run_on_state(dry).await.lines();
    assert_eq!(output.len(), 2);
    for line in &output {
        assert_eq!(text(line, "result"), "would_send", "{line}");
        assert_eq!(
            (&line["leadId"], &line["employeeId"]),
            (&json!(4002), &json!(501))
        );
    }
    assert_eq!(place.dead_letters("").await, letters_before);
    daemon.stop().await;
    assert_eq!(
        place.run_on_state(dry).await.lines(),
        output,
        "without a daemon"
    );
    assert_eq!(
        (place.dead_letters("").await, crm.journal().len()),
        (letters_before, 1)
    );
}

fn retry_command(lead: u32, employee: &str, id: u64) -> String {
    format!("dead retry {id} --lead {lead} --employee {employee}")
}

/// Returns the lead and the employee of the call's record in the journal.
fn journaled_ids(journal: &[Record], call: &Call) -> (i64, Option<i64>) {
    let record = journal
        .iter()
        .find(|record| record.call.uuid == call.uuid(PBX));
    let record = &record.expect("journaled").call;
    (record.lead_id, record.employee_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_journals_call_with_given_lead_and_employee() {
    let (place, crm, calls) = stage().await;
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push("--employees=101:507".to_owned());
    let daemon = place.start_daemon(&flags).await;
    let ids = [
        dead_letter_id(&place, &calls[0]).await,
        dead_letter_id(&place, &calls[1]).await,
    ];
    place
        .run_on_state(&retry_command(4001, "502", ids[0]))
        .await
        .expect_success();
    place
        .run_on_state(&retry_command(4002, "none", ids[1]))
        .await
        .expect_success();
    place
        .run_on_state("dead retry --waiting --lead 4003")
        .await
        .expect_success();
    place.wait_for_number("/books/journaled", 4).await;
    daemon.stop().await;
    let journal = crm.journal();
    assert_eq!(journaled_ids(&journal, &calls[0]), (4001, Some(502)));
    assert_eq!(journaled_ids(&journal, &calls[1]), (4002, None));
    assert_eq!(
        journaled_ids(&journal, &calls[2]),
        (4003, Some(507)),
        "as listed"
    );
    assert_eq!(crm.violations(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_without_lead_flag_of_call_without_lead_is_refused() {
    let (place, crm, _) = stage().await;
    let offline = place
        .run_on_state("dead retry --waiting --reason no_lead")
        .await;
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let online = place
        .run_on_state("dead retry --waiting --reason no_lead")
        .await;
    daemon.stop().await;
    for output in [offline, online] {
        assert_eq!(output.code, 65, "{output:?}");
        assert!(output.out.contains("refused: "), "{output:?}");
        assert!(
            output.err.contains("1 of 1 dead letters were refused"),
            "{output:?}"
        );
    }
    assert_eq!(place.number("/books/waiting").await, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_dead_letters_are_counted_and_cannot_be_retried() {
    let (place, crm, calls) = stage().await;
    let id = dead_letter_id(&place, &calls[0]).await;
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let output = place
        .run_on_state(&format!("dead discard {id}"))
        .await
        .expect_success();
    assert!(output.trim_end().ends_with("discarded"), "{output}");
    daemon.stop().await;
    let rest = place
        .run_on_state("dead discard --all --json")
        .await
        .lines();
    assert_eq!(rest.len(), 1, "the waiting call stays: {rest:?}");
    assert_eq!(place.number("/books/waiting").await, Some(1));
    place
        .run_on_state("dead discard --waiting")
        .await
        .expect_success();
    assert_eq!(place.number("/books/discarded").await, Some(3));
    assert_eq!(
        place
            .run_on_state("dead list")
            .await
            .expect_success()
            .trim_end(),
        "no dead letters"
    );
    let second_retry = place
        .run_on_state(&format!("dead retry {id} --lead 4001"))
        .await;
    assert_eq!(second_retry.code, 65, "{second_retry:?}");
    assert_eq!(crm.journal().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_a_daemon_and_state_exit_69() {
    let place = Place::new();
    for command in [
        "status",
        "dead list",
        "dead watch",
        "dead retry --all",
        "lead missing",
    ] {
        let output = place.run_on_state(command).await;
        assert_eq!(output.code, 69, "{command}: {output:?}");
        assert!(
            output.err.contains("there is no state in it"),
            "{command}: {}",
            output.err
        );
    }
    assert!(!place.path("state").exists(), "looking makes no state");
}
