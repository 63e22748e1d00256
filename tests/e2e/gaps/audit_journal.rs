//! Tests that `audit` finds exactly the calls that the CRM's journal does not have.

use crate::e2e::gaps::audit::{caused, report, trunk};
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

/// Makes calls older, because `audit` does not look for calls that were journaled minutes ago.
const OLDER: &str = "UPDATE calls SET since = since - 600000000";

/// A day whose calls the CRM confirmed some time ago. The daemon is stopped.
struct Day {
    place: Place,
    crm: Server,
    flags: Vec<String>,
}

impl Day {
    async fn of(calls: usize, config: Config, rate: &str) -> Self {
        let place = Place::new();
        let crm = callbridge_sandbox::start(config).await.expect("a sandbox");
        for recording in recordings::in_a_row(calls) {
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

    /// Starts the daemon and waits until it answers.
    async fn run(&self, more: &[&str]) -> Program {
        let flags = self.flags.iter().map(String::as_str);
        let flags: Vec<&str> = flags.chain(more.iter().copied()).collect();
        let mut program = self.place.run(&self.crm.url(), &flags);
        program.until("it answers", |_| true).await;
        program
    }

    fn state(&self) -> Connection {
        Connection::open(self.place.at("state").join("spool.db")).expect("the state")
    }

    /// Returns the number of pages that the CRM was asked for.
    fn pages(&self) -> u64 {
        self.crm.admin(|core, _| {
            let counts = core.counts().iter();
            let pages = counts.filter(|((endpoint, _), _)| *endpoint == Endpoint::Filter);
            pages.map(|(_, count)| count).sum()
        })
    }

    /// Deletes the `nth` record in the CRM, as a person could.
    fn delete(&self, nth: usize) {
        let uuid = self.crm.journal()[nth].call.uuid.clone();
        self.crm.admin(|core, now| core.delete_record(now, &uuid));
    }
}

const LOST: &str = "journaled here at ";

/// Changes the duration of the `nth` record in the CRM, as a person could.
fn other_duration(day: &Day, nth: usize) {
    let mut other = day.crm.journal()[nth].clone();
    other.call.duration_sec += 100;
    day.crm.admin(|core, _| core.journal.records[nth] = other);
}

/// Promise: `audit` finds each call that the PBX has and the CRM lacks.
#[tokio::test]
async fn audit_take_in_resends_records_deleted_in_crm_once() {
    let day = Day::of(12, crm::settings(), RATE_FLAG).await;
    let mut program = day.run(&["--listen=127.0.0.1:0"]).await;
    let (whole, ended) = report(&day.place, &[]).await;
    assert_eq!(ended, Some(0), "{whole}");
    let reading = &whole["journal"];
    assert_eq!(
        (&reading["read"], &reading["asked"]),
        (&json!(true), &json!(12))
    );
    assert_eq!(
        (&reading["missing"], &whole["changed"]),
        (&json!(0), &json!([]))
    );

    day.delete(7);
    day.delete(2);
    other_duration(&day, 0);
    let (holes, ended) = report(&day.place, &[]).await;
    assert_eq!(ended, Some(1));
    assert_eq!(
        (caused(&holes, LOST), &holes["journal"]["missing"]),
        (2, &json!(2))
    );
    assert_eq!(holes["journaled"], 10);
    let changed = holes["changed"].as_array().expect("a list");
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

    let (found, ended) = report(&day.place, &["--take-in"]).await;
    assert_eq!(
        (caused(&found, LOST), ended),
        (2, Some(1)),
        "what was found then"
    );
    let status = program.settled(12).await;
    assert_eq!((status.books.journaled, status.books.balance()), (12, true));
    assert_eq!(day.crm.journal().len(), 12, "each once");
    let (healed, ended) = report(&day.place, &[]).await;
    assert_eq!(
        (&healed["journaled"], ended),
        (&json!(12), Some(0)),
        "{healed}"
    );
    // The CRM might not show records yet that were sent just now.
    let reading = &healed["journal"];
    assert_eq!(
        (&reading["asked"], &reading["tooNew"]),
        (&json!(10), &json!(2))
    );
    program.terminate().await;
    let acts = "SELECT count(*) FROM calls WHERE actions LIKE '%\"who\":\"%audit --take-in:%'";
    let acts: i64 = day
        .state()
        .query_row(acts, [], |row| row.get(0))
        .expect("acts");
    assert_eq!(acts, 2, "who did it, and when");
    let wrong = crm::conduct(&day.crm, |_| false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn audit_of_250_calls_with_purged_one_takes_three_requests() {
    let mut config = crm::settings();
    config.settings.rate = Rate {
        requests: 1000,
        window: Duration::from_secs(2),
    };
    let day = Day::of(250, config, "--rate=1000/2s").await;
    // Keep only the outcome of the first call.
    let purged = "INSERT INTO purged_calls (pbx, id, uuid, state, started)
        SELECT 'pbx1', linkedid, uuid, state, started
        FROM calls ORDER BY id LIMIT 1";
    let state = day.state();
    assert_eq!(state.execute(purged, []), Ok(1));
    let uuid = "SELECT lower(hex(uuid)) FROM purged_calls";
    let uuid: String = state
        .query_row(uuid, [], |row| row.get(0))
        .expect("its uuid");
    let gone = "DELETE FROM calls WHERE id = (SELECT min(id) FROM calls);
        DELETE FROM seen_calls WHERE uuid NOT IN (SELECT uuid FROM calls)";
    state.execute_batch(gone).expect("purged");
    drop(state);
    let program = day.run(&[]).await;
    let before = day.pages();
    let (whole, ended) = report(&day.place, &[]).await;
    assert_eq!(
        (&whole["journaled"], ended),
        (&json!(250), Some(0)),
        "{whole}"
    );
    assert_eq!(whole["journal"]["requests"], 3);
    assert_eq!(day.pages() - before, 3);
    // Delete this record and another one.
    let journal = day.crm.journal();
    let is_purged = |nth: &usize| journal[*nth].call.uuid.replace('-', "") == uuid;
    let nth = (0..250).find(is_purged).expect("it stands there");
    day.delete(nth);
    day.delete(100);
    let (holes, _) = report(&day.place, &[]).await;
    assert_eq!(caused(&holes, LOST), 1, "{holes}");
    assert_eq!(caused(&holes, "journaled here long ago"), 1);
    assert_eq!(holes["journal"]["requests"], 6, "each page twice");
    let (found, _) = report(&day.place, &["--take-in"]).await;
    assert_eq!(found["unexplained"].as_array().map(Vec::len), Some(2));
    let written = async || day.crm.journal().len() == 250;
    until("both are written again", written).await;
    let (healed, ended) = report(&day.place, &["--no-journal"]).await;
    assert_eq!(ended, Some(0), "{healed}");
    program.terminate().await;
    let fullest = day.crm.admin(|core, _| core.fullest().in_a_window);
    assert!(fullest <= 1000, "{fullest}");
}

/// Runs `audit` when it cannot read the journal. Returns the reason. No call is reported missing.
async fn unread(day: &Day, more: &[&str]) -> String {
    let before = day.pages();
    let (told, ended) = report(&day.place, more).await;
    assert_eq!((&told["journaled"], ended), (&json!(5), Some(0)), "{told}");
    let reading = &told["journal"];
    assert_eq!(reading["read"], json!(false));
    assert_eq!(
        Value::from(day.pages() - before),
        reading["requests"],
        "{reading}"
    );
    reading["reason"].as_str().expect("a reason").to_owned()
}

#[tokio::test]
async fn audit_without_journal_access_gives_reason_and_uses_state() {
    let day = Day::of(5, crm::settings(), RATE_FLAG).await;
    // No call is reported missing because the CRM did not answer.
    (0..5).for_each(|_| day.delete(0));
    let alone = unread(&day, &[]).await;
    assert!(alone.starts_with("no daemon runs here"), "{alone}");
    let mut trial = day.run(&["--dry-run"]).await;
    trial
        .until("it runs", |status| status.pause.is_some())
        .await;
    let dry = unread(&day, &[]).await;
    assert!(dry.contains("dry_run"), "{dry}");
    trial.terminate().await;

    let program = day.run(&[]).await;
    let refused = unread(&day, &["--no-journal"]).await;
    assert_eq!(refused, "--no-journal was given");
    let none_shown = unread(&day, &[]).await;
    assert!(
        none_shown.starts_with("it shows none of the 5 calls"),
        "{none_shown}"
    );
    let save = Grant::parse("PERMISSION_OPEN_API_CALL:SAVE").expect("a grant");
    day.crm.admin(|core, now| core.set_grants(now, vec![save]));
    let barred = unread(&day, &[]).await;
    assert!(barred.contains("PERMISSION_OPEN_API_CALL:READ"), "{barred}");
    let text = day.place.command(&audit_text(&day)).await;
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(
        text.contains("\nThe CRM's journal was not read: the token has no right"),
        "{text}"
    );
    // A page that cannot be read proves nothing.
    day.crm.admin(|core, _| {
        let odd = Rule::always(Endpoint::Filter, Action::Status(400));
        core.set_faults(vec![odd]);
    });
    let odd = unread(&day, &[]).await;
    assert!(odd.starts_with("the CRM refuses"), "{odd}");
    program.terminate().await;
}

fn audit_text(day: &Day) -> Vec<&str> {
    let cel = Box::leak(format!("--cel={}", day.place.path("cel.csv")).into_boxed_str());
    vec!["audit", cel, "--pbx-id=pbx1", &day.flags[1]]
}

#[tokio::test]
async fn audit_with_daemon_killed_in_page_read_reports_no_loss() {
    let day = Day::of(5, crm::settings(), RATE_FLAG).await;
    let program = day.run(&[]).await;
    day.crm.admin(|core, _| {
        let late = Rule::always(Endpoint::Filter, Action::Delay(Duration::from_secs(600)));
        core.set_faults(vec![late]);
    });
    let before = day.pages();
    let killed = async {
        until("a page is asked for", async || day.pages() > before).await;
        program.kill().await;
    };
    let ((told, ended), ()) = tokio::join!(report(&day.place, &[]), killed);
    assert_eq!((&told["journaled"], ended), (&json!(5), Some(0)), "{told}");
    assert_eq!(told["journal"]["read"], json!(false), "{told}");
    day.crm.admin(|core, _| core.set_faults(Vec::new()));
    day.delete(4);
    let program = day.run(&[]).await;
    let (holes, ended) = report(&day.place, &[]).await;
    assert_eq!((caused(&holes, LOST), ended), (1, Some(1)), "{holes}");
    program.terminate().await;
    let wrong = crm::conduct(&day.crm, |_| false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
