//! Tests that the demo ends automatically with balanced books, and prints without colors on
//! request.

use crate::support::program::Place;
use callbridge_testbed::wait::soon;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::process::Stdio;
use tokio::process::Command;

/// Returns the output of the demo on its own terminal.
async fn on_a_terminal(variables: &[(&str, &str)]) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("its name");
    let name = name.to_str().expect("UTF-8");
    let theirs = OpenOptions::new().read(true).write(true).open(name);
    let theirs = theirs.expect("its other side");
    let mut child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .env_clear()
        .env("TERM", "xterm-256color")
        .envs(variables.iter().copied())
        .arg("demo")
        .stdin(Stdio::null())
        .stdout(theirs.try_clone().expect("one more"))
        .stderr(theirs)
        .kill_on_drop(true)
        .spawn()
        .expect("the demo starts");
    let mut ours = File::from(ours);
    let reading = tokio::task::spawn_blocking(move || {
        let mut all = Vec::new();
        // On Linux, reading ends with an error when the other side of the terminal is closed.
        let _ = ours.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    });
    let ended = soon("the demo's end", child.wait()).await.expect("a child");
    drop(child);
    let text = soon("all it wrote", reading).await.expect("text");
    assert!(ended.success(), "{ended}\n{text}");
    text
}

#[tokio::test]
async fn demo_on_terminal_is_live_table_and_plain_with_no_color() {
    let (live, plain) = tokio::join!(on_a_terminal(&[]), on_a_terminal(&[("NO_COLOR", "1")]));
    assert!(live.contains('\x1b'), "{live}");
    assert!(!plain.contains('\x1b'), "{plain}");
    for text in [live, plain] {
        assert!(
            text.contains("no_lead") && text.contains("failed"),
            "{text}"
        );
        assert!(text.contains("5 journaled, 1 dead, 1 waiting"), "{text}");
    }
}

#[tokio::test]
async fn last_line_of_demo_json_has_balanced_books() {
    balances(&["demo", "--json"]).await;
}

#[tokio::test]
async fn same_calls_of_a_freeswitch_come_to_the_same_books() {
    balances(&["demo", "--json", "--pbx=freeswitch"]).await;
}

async fn balances(arguments: &[&str]) {
    let place = Place::new();
    let lines = place.lines(arguments).await;
    let last = lines.last().expect("a line");
    let books = last["books"].as_object().expect("books");
    let book = |name: &str| books[name].as_u64().expect("a number");
    let parts = "ready sending submitted journaled dead waiting discarded";
    let sum: u64 = parts.split_whitespace().map(book).sum();
    assert_eq!(sum, book("finished"));
    assert_eq!(
        ["journaled", "dead", "waiting", "internal"].map(book),
        [5, 1, 1, 1]
    );
    for name in ["budget", "backlog", "sources", "token", "pause"] {
        assert!(last.get(name).is_some(), "{name} is missing in {last}");
    }
    assert!(lines.iter().all(Value::is_object));
}
