//! Tests that the demo ends on its own with balanced books, and prints without colors if `NO_COLOR`
//! is set.

use crate::support::program::Place;
use callbridge_testbed::wait::soon;
use serde_json::Value;
use std::process::Stdio;
use tokio::process::Command;

/// Runs the demo on a new terminal with these environment variables, and returns its output.
async fn run_demo_on_terminal(variables: &[(&str, &str)]) -> String {
    // The `script` command (from the Debian package bsdutils) runs another command on a terminal,
    // and copies its output.
    let demo = concat!("'", env!("CARGO_BIN_EXE_callbridge"), "' demo");
    let output = Command::new("script")
        .env_clear()
        .env("TERM", "xterm-256color")
        .envs(variables.iter().copied())
        .args(["--quiet", "--return", "--command", demo, "/dev/null"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = soon("the demo's end", output).await;
    let output = output.expect("script runs (package bsdutils)");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    text
}

#[tokio::test]
async fn demo_on_terminal_is_live_table_and_plain_with_no_color() {
    let (live, plain) = tokio::join!(
        run_demo_on_terminal(&[]),
        run_demo_on_terminal(&[("NO_COLOR", "1")])
    );
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
    check_demo_books(&["demo", "--json"]).await;
}

#[tokio::test]
async fn freeswitch_demo_ends_with_the_same_books() {
    check_demo_books(&["demo", "--json", "--pbx=freeswitch"]).await;
}

/// Runs the demo with `--json`, and checks that the books in the last line add up.
async fn check_demo_books(arguments: &[&str]) {
    let place = Place::new();
    let lines = place.lines(arguments).await;
    let last = lines.last().expect("a line");
    let books = last["books"].as_object().expect("books");
    let mut sum = 0;
    for name in "ready sending submitted journaled dead waiting discarded".split(' ') {
        sum += books[name].as_u64().expect("a number");
    }
    assert_eq!(books["finished"], sum);
    assert_eq!(
        ["journaled", "dead", "waiting", "internal"].map(|name| books[name].as_u64()),
        [Some(5), Some(1), Some(1), Some(1)]
    );
    for name in ["budget", "backlog", "sources", "token", "pause"] {
        assert!(last.get(name).is_some(), "{name} is missing in {last}");
    }
    assert!(lines.iter().all(Value::is_object));
}
