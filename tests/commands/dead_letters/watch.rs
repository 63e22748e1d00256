//! Tests that `dead watch` shows new dead letters.

use crate::commands::sidecar::{PBX, Place, RunningCommand, json_lines, poll_until, start_crm};
use callbridge_testbed::calls::Call;
use rustix::process::Signal;
use std::io::Write;
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// Appends a call to the recording that a daemon follows.
fn append(place: &Place, call: &Call) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .append(true)
        .open(place.path("calls.ami"))
        .expect("a file");
    file.write_all(call.ami().as_bytes()).expect("written");
}

/// Starts `dead watch`.
fn start_watch(place: &Place, json: bool) -> RunningCommand {
    let state = format!("--state={}", place.path("state").display());
    let mut arguments = vec!["dead", "watch", &state];
    arguments.extend(json.then_some("--json"));
    place.start_as("watch", &arguments)
}

/// Waits until `dead watch` has written these words to stderr.
async fn wait_for_log(watch: &RunningCommand, words: &str) {
    poll_until(&format!("`{words}` on stderr"), async || {
        watch.log().contains(words).then_some(())
    })
    .await;
}

/// Waits until `dead watch` has printed this many lines, and returns them.
async fn wait_for_lines(watch: &RunningCommand, lines: usize) -> String {
    poll_until(&format!("{lines} lines"), async || {
        let out = watch.out();
        (out.lines().count() == lines).then_some(out)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_watch_reports_new_dead_letter_and_its_next_failure() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 9001).ami());
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    place.wait_for_number("/books/dead", 1).await;
    let watch = start_watch(&place, true);
    wait_for_log(&watch, "watching for dead letters").await;
    let call = Call::new(2, 9002);
    append(&place, &call);
    let first = json_lines(&wait_for_lines(&watch, 1).await).remove(0);
    assert_eq!(
        first["uuid"],
        call.uuid(PBX),
        "the older dead letter is not shown"
    );
    assert_eq!(first["reason"], "failed");
    place
        .run_on_state(&format!("dead retry {} --lead 9003", first["id"]))
        .await
        .expect_success();
    let second = json_lines(&wait_for_lines(&watch, 2).await).remove(1);
    assert_eq!(
        (&second["id"], &second["call"]["leadId"]),
        (&first["id"], &9003.into())
    );
    assert_eq!(watch.end(Signal::INT).await, 0);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_watch_waits_for_daemon_and_survives_its_restart() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", "");
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    let watch = start_watch(&place, false);
    wait_for_log(&watch, "waiting for one").await;
    for n in 1..=2 {
        let daemon = place.start_daemon(&flags).await;
        let message = "watching for dead letters";
        poll_until("a watch that is ready", async || {
            (watch.log().matches(message).count() == n).then_some(())
        })
        .await;
        append(&place, &Call::new(u32::try_from(n).expect("small"), 9001));
        let out = wait_for_lines(&watch, n).await;
        assert!(out.lines().all(|line| line.contains("failed")), "{out}");
        daemon.stop().await;
    }
    assert_eq!(watch.end(Signal::TERM).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn following_command_ends_when_its_output_is_closed() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    place.wait_for_number("/books/journaled", 1).await;
    let state = format!("--state={}", place.path("state").display());
    for arguments in [["calls", "--follow", &state], ["dead", "watch", &state]] {
        let mut following = place.start_piped(&arguments);
        let mut out = BufReader::new(following.stdout.take().expect("a pipe"));
        if arguments[0] == "calls" {
            let mut first = String::new();
            out.read_line(&mut first).await.expect("a call");
            assert!(first.contains("lead 4001"), "{first}");
        }
        drop(out);
        let status = poll_until("its end", async || following.try_wait().expect("a child")).await;
        assert!(status.success(), "{arguments:?}: {status}");
    }
    daemon.stop().await;
}
