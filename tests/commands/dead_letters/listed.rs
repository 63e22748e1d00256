//! Tests `calls` and `explain --call PHONE`, for stored calls and for new calls.

use crate::commands::sidecar::{Place, RunningCommand, json_lines, poll_until, start_crm};
use callbridge_testbed::calls::Call;
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;

const INTERNAL: &str = include_str!("../../recordings/internal_call/ami.raw");

/// Appends a call to the recording that a daemon follows.
fn append(place: &Place, call: &Call) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.append(true).open(place.path("calls.ami"));
    let mut file = file.expect("a file");
    file.write_all(call.ami().as_bytes()).expect("written");
}

/// Waits until a command has printed at least this many JSON lines, and returns all its lines.
async fn wait_for_lines(command: &RunningCommand, lines: usize) -> Vec<Value> {
    let out = poll_until(&format!("{lines} lines"), async || {
        let out = command.out();
        (out.lines().count() >= lines).then_some(out)
    })
    .await;
    json_lines(&out)
}

fn phones(calls: &[Value]) -> Vec<&str> {
    assert!(
        calls.iter().all(|call| call["clientPhone"].is_string()),
        "{calls:?}"
    );
    calls
        .iter()
        .filter_map(|call| call["clientPhone"].as_str())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_list_filters_work_with_and_without_daemon() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let (known, unknown) = (Call::new(1, 4001), Call::without_lead(2));
    let recording = [INTERNAL, &known.ami(), &unknown.ami()].concat();
    place.write("calls.ami", recording);
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push("--pbx-timezone=Asia/Tashkent".to_owned());
    let mut daemon = Some(place.start_daemon(&flags).await);
    place.wait_for_number("/books/journaled", 1).await;
    place.wait_for_number("/books/waiting", 1).await;
    place.wait_for_number("/books/internal", 1).await;
    let (first, second) = (known.phone(), unknown.phone());
    for _ in ["with a daemon", "without"] {
        let all_calls = place.run_on_state("calls --json").await.lines();
        assert_eq!(phones(&all_calls), [&first, &second], "newest last");
        let states: Vec<_> = all_calls
            .iter()
            .map(|call| (&call["state"], &call["outcome"]))
            .collect();
        let waiting = (&"waiting".into(), &"dead_letter".into());
        assert_eq!(states, [(&"journaled".into(), &"journal".into()), waiting]);
        assert_eq!(all_calls[1]["reason"], "no_lead");
        let digits = format!("calls --json --phone {}", &first[6..]);
        assert_eq!(phones(&place.run_on_state(&digits).await.lines()), [&first]);
        let waiting = place
            .run_on_state("calls --json --state waiting")
            .await
            .lines();
        assert_eq!(phones(&waiting), [&second]);
        let old_calls = place
            .run_on_state("calls --to 2026-01-01")
            .await
            .expect_success();
        assert_eq!(old_calls, "no calls\n");
        let gsm_calls = place.run_on_state("calls --trunk gsm --json").await.lines();
        assert!(gsm_calls.is_empty());
        let internal = place.run_on_state("calls --internal --json").await.lines();
        assert_eq!(
            (internal.len(), &internal[0]["state"]),
            (1, &"internal".into())
        );

        let text = place.run_on_state("calls").await.expect_success();
        let line = text.lines().next().expect("a line");
        let form = format!(" +05  in   {first}  lead 4001  101 talked 4 s   journaled");
        assert!(line.ends_with(&form) && !line.contains('\x1b'), "{line}");
        let explained = place
            .run_on_state(&format!("explain --call {first}"))
            .await
            .expect_success();
        assert!(explained.contains(&known.linkedid()), "{explained}");
        if let Some(daemon) = daemon.take() {
            daemon.stop().await;
        }
    }
    let wrong = place
        .run_on_state("calls --phone 12 --from never --today --internal")
        .await;
    assert_eq!(wrong.code, 64, "{wrong:?}");
    assert!(
        wrong.err.starts_with("callbridge: 4 errors in the flags"),
        "{}",
        wrong.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_by_number_shows_newest_call_and_lists_others() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let (older, mut newer) = (Call::new(1, 4001), Call::new(1, 4001));
    newer.begins += 600;
    place.write("calls.ami", older.ami() + &newer.ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    let output = place
        .run_on_state(&format!("explain --call {} --json", &older.phone()[1..]))
        .await;
    let explanation = output.lines().remove(0);
    assert_eq!(explanation["linkedid"], newer.linkedid());
    assert_eq!(explanation["others"][0]["linkedid"], older.linkedid());
    let text = place
        .run_on_state(&format!("explain --call {}", older.phone()))
        .await
        .expect_success();
    assert!(
        text.contains("other calls of this number, newest first:\n"),
        "{text}"
    );
    let file = place.path("calls.ami").display().to_string();
    let flag = format!("--trunk={}", crate::commands::sidecar::TRUNK);
    let phone = older.phone();
    let arguments = [
        "explain",
        "--format=ami",
        &file,
        "--call",
        &phone,
        "--json",
        &flag,
    ];
    let file_explanation = place.run_command(&arguments).await.lines().remove(0);
    assert_eq!(
        file_explanation["linkedid"],
        newer.linkedid(),
        "the newest call of a recording, too"
    );
    assert_eq!(file_explanation["others"][0]["linkedid"], older.linkedid());
    let unknown = place.run_on_state("explain --call +998900000000").await;
    assert_eq!(unknown.code, 65, "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_follow_shows_new_calls_across_daemon_restarts() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    let state = format!("--state={}", place.path("state").display());
    let arguments = ["calls", "--follow", "--json", &state];
    let follow = place.start_as("follow", &arguments);
    let stored = wait_for_lines(&follow, 1).await;
    assert_eq!(
        stored[0]["state"], "journaled",
        "without a daemon, stored calls are listed"
    );
    let mut seen = 1;
    for n in 2..=3 {
        let daemon = place.start_daemon(&flags).await;
        let message = "following calls";
        let count = n - 1;
        poll_until("the message of a command that follows", async || {
            (follow.log().matches(message).count() == count).then_some(())
        })
        .await;
        let call = Call::new(u32::try_from(n).expect("small"), 4001);
        append(&place, &call);
        seen = poll_until("a call that ends in the journal", async || {
            let out = json_lines(&follow.out());
            let of_call = out
                .iter()
                .skip(seen)
                .filter(|state| state["linkedid"] == call.linkedid());
            let states: Vec<String> = of_call.map(|state| state["state"].to_string()).collect();
            (states.last()? == "\"journaled\"").then_some(out.len())
        })
        .await;
        daemon.stop().await;
    }
    assert_eq!(follow.end(Signal::INT).await, 0);
}
