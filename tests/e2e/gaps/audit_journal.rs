//! Tests that `audit` finds exactly the calls that the CRM's journal lacks.

use crate::e2e::gaps::audit::{count_unexplained, run_audit, trunk};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings;
use callbridge_sandbox::token::Grant;
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{Action, Config, Endpoint, Rule, Server};
use callbridge_testbed::wait::until;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::time::Duration;

/// Makes calls older, because `audit` doesn't look for calls that were journaled only minutes ago.
const OLDER: &str = "UPDATE calls SET since = since - 600000000";

/// A state whose calls were confirmed by the CRM some time ago, along with the CRM and the daemon's
/// flags. The daemon has been stopped.
struct Day {
    place: Place,
    crm: Server,
    flags: Vec<String>,
}

impl Day {
    /// Journals this many recorded calls. `rate` is the `--rate` flag.
    async fn new(calls: usize, config: Config, rate: &str) -> Self {
        let place = Place::new();
        let crm = callbridge_sandbox::start(config).await.expect("a sandbox");
        for recording in recordings::consecutive(calls) {
            place.append("calls.ami", &recording.ami);
            place.append("cel.csv", &recording.cel_lines());
        }
        place.write("leads.csv", recordings::LEADS);
        let source = place.file("calls.ami", "ami");
        let flags = vec![source, trunk(&place, "city"), rate.to_owned()];
        let day = Self { place, crm, flags };
        let mut program = day.run(&[]).await;
        program.settled(calls as u64).await;
        program.terminate().await;
        assert_eq!(day.state().execute(OLDER, []), Ok(calls));
        day
    }

    /// Starts the daemon with the additional flags in `more`, and waits until it responds.
    async fn run(&self, more: &[&str]) -> Program {
        let flags = self.flags.iter().map(String::as_str);
        let flags: Vec<&str> = flags.chain(more.iter().copied()).collect();
        let mut program = self.place.run(&self.crm.url(), &flags);
        program.until("the daemon answers", |_| true).await;
        program
    }

    fn state(&self) -> Connection {
        Connection::open(self.place.at("state").join("spool.db")).expect("the state")
    }

    /// Returns the number of page requests received by the CRM.
    fn page_requests(&self) -> u64 {
        self.crm.admin(|core, _| {
            let counts = core.counts().iter();
            let pages = counts.filter(|((endpoint, _), _)| *endpoint == Endpoint::Filter);
            pages.map(|(_, count)| count).sum()
        })
    }

    /// Deletes the `nth` record in the CRM, as a user could.
    fn delete(&self, nth: usize) {
        let uuid = self.crm.journal()[nth].call.uuid.clone();
        self.crm.admin(|core, now| core.delete_record(now, &uuid));
    }
}

/// The start of the cause for a call whose record was deleted in the CRM.
const RECORD_DELETED: &str = "journaled here at ";

/// Changes the duration in the `nth` record in the CRM, as a user could.
fn change_duration(day: &Day, nth: usize) {
    let mut record = day.crm.journal()[nth].clone();
    record.call.duration_sec += 100;
    day.crm.admin(|core, _| core.journal.records[nth] = record);
}

/// Promise: `audit` finds each call that the PBX has and the CRM lacks.
#[tokio::test]
async fn audit_take_in_resends_records_deleted_in_crm_once() {
    let day = Day::new(12, crm::settings(), RATE_FLAG).await;
    let mut program = day.run(&["--listen=127.0.0.1:0"]).await;
    let (first_report, exit_code) = run_audit(&day.place, &[]).await;
    assert_eq!(exit_code, Some(0), "{first_report}");
    let reading = &first_report["journal"];
    assert_eq!(
        (&reading["read"], &reading["asked"]),
        (&json!(true), &json!(12))
    );
    assert_eq!(
        (&reading["missing"], &first_report["changed"]),
        (&json!(0), &json!([]))
    );

    day.delete(7);
    day.delete(2);
    change_duration(&day, 0);
    let (loss_report, exit_code) = run_audit(&day.place, &[]).await;
    assert_eq!(exit_code, Some(1));
    assert_eq!(
        (
            count_unexplained(&loss_report, RECORD_DELETED),
            &loss_report["journal"]["missing"]
        ),
        (2, &json!(2))
    );
    assert_eq!(loss_report["journaled"], 10);
    let changed = loss_report["changed"].as_array().expect("a list");
    let differs = &changed[0]["differs"][0];
    assert_eq!(
        (&differs["field"], changed.len()),
        (&json!("durationSec"), 1)
    );
    let [here, there] = ["here", "there"].map(|side| differs[side].as_i64().expect("seconds"));
    assert_eq!(there - here, 100);
    let scraped = crate::e2e::operations::monitoring::metrics(&program).await;
    assert!(
        scraped.contains("callbridge_audit_unexplained 2"),
        "{scraped}"
    );

    let (found_report, exit_code) = run_audit(&day.place, &["--take-in"]).await;
    assert_eq!(
        (count_unexplained(&found_report, RECORD_DELETED), exit_code),
        (2, Some(1)),
        "the report shows the state before the repair"
    );
    let status = program.settled(12).await;
    assert_eq!((status.books.journaled, status.books.balance()), (12, true));
    assert_eq!(day.crm.journal().len(), 12, "each once");
    let (last_report, exit_code) = run_audit(&day.place, &[]).await;
    assert_eq!(
        (&last_report["journaled"], exit_code),
        (&json!(12), Some(0)),
        "{last_report}"
    );
    // `audit` doesn't look for records that were only just sent, because the CRM may not show them
    // yet.
    let reading = &last_report["journal"];
    assert_eq!(
        (&reading["asked"], &reading["tooNew"]),
        (&json!(10), &json!(2))
    );
    program.terminate().await;
    let count = "SELECT count(*) FROM calls WHERE actions LIKE '%\"who\":\"%audit --take-in:%'";
    let actions: i64 = day
        .state()
        .query_row(count, [], |row| row.get(0))
        .expect("actions");
    assert_eq!(actions, 2, "both repairs are recorded as actions");
    let wrong = crm::conduct(&day.crm, |_| false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn audit_of_250_calls_with_purged_one_sends_three_requests() {
    let mut config = crm::settings();
    config.settings.rate = Rate {
        requests: 1000,
        window: Duration::from_secs(2),
    };
    let day = Day::new(250, config, "--rate=1000/2s").await;
    // Only keep the first call's outcome.
    let purged = "INSERT INTO purged_calls (pbx, id, uuid, state, started)
        SELECT 'pbx1', linkedid, uuid, state, started
        FROM calls ORDER BY id LIMIT 1";
    let state = day.state();
    assert_eq!(state.execute(purged, []), Ok(1));
    let uuid = "SELECT lower(hex(uuid)) FROM purged_calls";
    let uuid: String = state
        .query_row(uuid, [], |row| row.get(0))
        .expect("its uuid");
    let purge = "DELETE FROM calls WHERE id = (SELECT min(id) FROM calls);
        DELETE FROM seen_calls WHERE uuid NOT IN (SELECT uuid FROM calls)";
    state.execute_batch(purge).expect("purged");
    drop(state);
    let program = day.run(&[]).await;
    let requests_before = day.page_requests();
    let (first_report, exit_code) = run_audit(&day.place, &[]).await;
    assert_eq!(
        (&first_report["journaled"], exit_code),
        (&json!(250), Some(0)),
        "{first_report}"
    );
    assert_eq!(first_report["journal"]["requests"], 3);
    assert_eq!(day.page_requests() - requests_before, 3);
    // Delete the purged call's record, and another call's.
    let journal = day.crm.journal();
    let nth = (0..250)
        .find(|nth: &usize| journal[*nth].call.uuid.replace('-', "") == uuid)
        .expect("the record is in the journal");
    day.delete(nth);
    day.delete(100);
    let (loss_report, _) = run_audit(&day.place, &[]).await;
    assert_eq!(
        count_unexplained(&loss_report, RECORD_DELETED),
        1,
        "{loss_report}"
    );
    assert_eq!(
        count_unexplained(&loss_report, "journaled here long ago"),
        1
    );
    assert_eq!(loss_report["journal"]["requests"], 6, "each page twice");
    let (found_report, _) = run_audit(&day.place, &["--take-in"]).await;
    assert_eq!(
        found_report["unexplained"].as_array().map(Vec::len),
        Some(2)
    );
    until("both are written again", async || {
        day.crm.journal().len() == 250
    })
    .await;
    let (last_report, exit_code) = run_audit(&day.place, &["--no-journal"]).await;
    assert_eq!(exit_code, Some(0), "{last_report}");
    program.terminate().await;
    let fullest = day.crm.admin(|core, _| core.fullest().in_a_window);
    assert!(fullest <= 1000, "{fullest}");
}

/// Runs an `audit` that can't read the journal. Checks that no call is reported as missing, and
/// returns the reason in the report.
async fn reason_of_unread_journal(day: &Day, more: &[&str]) -> String {
    let requests_before = day.page_requests();
    let (report, exit_code) = run_audit(&day.place, more).await;
    assert_eq!(
        (&report["journaled"], exit_code),
        (&json!(5), Some(0)),
        "{report}"
    );
    let reading = &report["journal"];
    assert_eq!(reading["read"], json!(false));
    assert_eq!(
        Value::from(day.page_requests() - requests_before),
        reading["requests"],
        "{reading}"
    );
    reading["reason"].as_str().expect("a reason").to_owned()
}

#[tokio::test]
async fn audit_without_journal_access_shows_reason_and_uses_state() {
    let day = Day::new(5, crm::settings(), RATE_FLAG).await;
    // All records are gone, but if `audit` can't read the journal, it mustn't report the calls as
    // missing.
    (0..5).for_each(|_| day.delete(0));
    let no_daemon = reason_of_unread_journal(&day, &[]).await;
    assert!(no_daemon.starts_with("no daemon runs here"), "{no_daemon}");
    let mut dry_run = day.run(&["--dry-run"]).await;
    dry_run
        .until("the daemon runs", |status| status.pause.is_some())
        .await;
    let reason = reason_of_unread_journal(&day, &[]).await;
    assert!(reason.contains("dry_run"), "{reason}");
    dry_run.terminate().await;

    let program = day.run(&[]).await;
    let no_journal = reason_of_unread_journal(&day, &["--no-journal"]).await;
    assert_eq!(no_journal, "--no-journal was given");
    let no_record = reason_of_unread_journal(&day, &[]).await;
    assert!(
        no_record.starts_with("it shows none of the 5 calls"),
        "{no_record}"
    );
    let save = Grant::parse("PERMISSION_OPEN_API_CALL:SAVE").expect("a grant");
    day.crm.admin(|core, now| core.set_grants(now, vec![save]));
    let no_right = reason_of_unread_journal(&day, &[]).await;
    assert!(
        no_right.contains("PERMISSION_OPEN_API_CALL:READ"),
        "{no_right}"
    );
    let text = day.place.command(&text_audit_arguments(&day)).await;
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(
        text.contains("\nThe CRM's journal was not read: the token has no right"),
        "{text}"
    );
    // A page that can't be read doesn't prove that a call is missing.
    day.crm.admin(|core, _| {
        let bad_request = Rule::always(Endpoint::Filter, Action::Status(400));
        core.set_faults(vec![bad_request]);
    });
    let refusal = reason_of_unread_journal(&day, &[]).await;
    assert!(refusal.starts_with("the CRM refuses"), "{refusal}");
    program.terminate().await;
}

/// Returns the arguments for `audit` without `--json`.
fn text_audit_arguments(day: &Day) -> Vec<&str> {
    let cel = Box::leak(format!("--cel={}", day.place.path("cel.csv")).into_boxed_str());
    vec!["audit", cel, "--pbx-id=pbx1", &day.flags[1]]
}

#[tokio::test]
async fn audit_with_daemon_killed_in_page_read_reports_no_loss() {
    let day = Day::new(5, crm::settings(), RATE_FLAG).await;
    let program = day.run(&[]).await;
    day.crm.admin(|core, _| {
        let late = Rule::always(Endpoint::Filter, Action::Delay(Duration::from_secs(600)));
        core.set_faults(vec![late]);
    });
    let requests_before = day.page_requests();
    let kill_in_read = async {
        until("a page is requested", async || {
            day.page_requests() > requests_before
        })
        .await;
        program.kill().await;
    };
    let ((report, exit_code), ()) = tokio::join!(run_audit(&day.place, &[]), kill_in_read);
    assert_eq!(
        (&report["journaled"], exit_code),
        (&json!(5), Some(0)),
        "{report}"
    );
    assert_eq!(report["journal"]["read"], json!(false), "{report}");
    day.crm.admin(|core, _| core.set_faults(Vec::new()));
    day.delete(4);
    let program = day.run(&[]).await;
    let (loss_report, exit_code) = run_audit(&day.place, &[]).await;
    assert_eq!(
        (count_unexplained(&loss_report, RECORD_DELETED), exit_code),
        (1, Some(1)),
        "{loss_report}"
    );
    program.terminate().await;
    let wrong = crm::conduct(&day.crm, |_| false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
