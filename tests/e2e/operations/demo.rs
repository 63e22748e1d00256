//! Tests that the demo ends automatically with balanced books, and prints without colors if
//! `NO_COLOR` is set.

use crate::support::program::Place;
use callbridge_testbed::wait::soon;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::process::Stdio;
use tokio::process::Command;

/// Runs the demo on a new terminal with these environment variables. Returns the output.
async fn run_demo_on_terminal(variables: &[(&str, &str)]) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&controller).expect("granted");
    unlockpt(&controller).expect("unlocked");
    let name = ptsname(&controller, Vec::new()).expect("the name of the terminal");
    let name = name.to_str().expect("UTF-8");
    let terminal = OpenOptions::new().read(true).write(true).open(name);
    let terminal = terminal.expect("the terminal opens");
    let mut child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .env_clear()
        .env("TERM", "xterm-256color")
        .envs(variables.iter().copied())
        .arg("demo")
        .stdin(Stdio::null())
        .stdout(terminal.try_clone().expect("a copy"))
        .stderr(terminal)
        .kill_on_drop(true)
        .spawn()
        .expect("the demo starts");
    let mut controller = File::from(controller);
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        // On Linux, reading ends with an error when the other side of the terminal is closed.
        let _ = controller.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let exit_status = soon("the demo's end", child.wait()).await.expect("a child");
    drop(child);
    let text = soon("the output of the demo", reading).await.expect("text");
    assert!(exit_status.success(), "{exit_status}\n{text}");
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

/// Runs the demo with `--json`, and checks that the books of the last line add up.
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
