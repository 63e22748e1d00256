//! Tests `status` for operators on SSH and for supervisors.

use crate::commands::sidecar::{Place, start_crm};
use crate::commands::terminal::{CTRL_C, Terminal};
use rustix::process::Signal;

#[tokio::test]
async fn status_healthy_is_silent_with_daemon_and_exits_69_without() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let output = place.run_on_state("status --healthy").await;
    assert_eq!((output.code, output.out.as_str()), (69, ""), "{output:?}");
    assert!(output.err.contains("no daemon runs on"), "{output:?}");
    place.write("calls.ami", "");
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let output = place.run_on_state("status --healthy").await;
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!((output.out.as_str(), output.err.as_str()), ("", ""));
    // A state without a daemon is not healthy, though `status` can read it.
    assert_eq!(daemon.end(Signal::KILL).await, -1);
    assert_eq!(place.run_on_state("status").await.code, 0);
    assert_eq!(place.run_on_state("status --healthy").await.code, 69);
}

#[tokio::test]
async fn status_watch_redraws_in_place_and_follows_daemon_restart() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", "");
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let daemon = place.start_daemon(&flags).await;
    let state = format!("--state={}", place.path("state").display());
    for (key, code) in [("q", 0), (CTRL_C, 0)] {
        let mut terminal = Terminal::start(&place, &["status", "--watch", &state]);
        terminal.wait_for_text("\x1b[?1049h").await;
        // The screen is drawn twice, each time from the upper left corner.
        terminal.wait_for_text("\x1b[H").await;
        terminal.wait_for_text("\x1b[H").await;
        terminal.type_keys(key).await;
        let restored = terminal.wait_for_text("\x1b[?1049l").await;
        assert!(
            restored.contains("\x1b[?25h"),
            "the cursor is visible again: {restored:?}"
        );
        let (ended, last) = terminal.wait_for_end().await;
        assert_eq!(ended, code, "{last}");
        assert!(last.contains("version  0."), "{last}");
    }
    let mut terminal = Terminal::start(&place, &["status", "--watch", &state]);
    terminal.wait_for_text("\x1b[H").await;
    daemon.stop().await;
    terminal.wait_for_text("no daemon runs").await;
    let daemon = place.start_daemon(&flags).await;
    terminal.wait_for_text("no problem found").await;
    terminal.type_keys("q").await;
    assert_eq!(terminal.wait_for_end().await.0, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn status_watch_without_terminal_exits_64_unless_json() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", "");
    let daemon = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let output = place.run_on_state("status --watch").await;
    assert_eq!((output.code, output.out.as_str()), (64, ""), "{output:?}");
    assert!(
        output.err.contains("is not a terminal: give --json"),
        "{output:?}"
    );
    let output = place.run_on_state("status --watch --exit-code").await;
    assert!(output.err.contains("only one of"), "{output:?}");
    let state = format!("--state={}", place.path("state").display());
    let mut watching = place.start_piped(&["status", "--watch", "--json", &state]);
    let mut out = tokio::io::BufReader::new(watching.stdout.take().expect("a pipe"));
    for _ in 0..2 {
        let mut line = String::new();
        let read = tokio::io::AsyncBufReadExt::read_line(&mut out, &mut line);
        crate::commands::sidecar::wait_for("a line", read)
            .await
            .expect("read");
        let status: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert!(status["books"]["finished"].is_u64(), "{line}");
    }
    drop(out);
    let ended = crate::commands::sidecar::wait_for("its end", watching.wait()).await;
    assert_eq!(ended.expect("a status").code(), Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn dumb_terminal_receives_no_escape_sequences() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", "");
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let check = [vec!["check".to_owned()], flags].concat();
    let daemon = place.start_daemon(&check[1..]).await;
    let state = format!("--state={}", place.path("state").display());
    for arguments in [&check[..], &["status".to_owned(), state.clone()]] {
        for (kind, has_color) in [("xterm", true), ("dumb", false)] {
            let (_, shown) = Terminal::start_with_kind(kind, &place, arguments)
                .wait_for_end()
                .await;
            assert_eq!(shown.contains("\x1b["), has_color, "{arguments:?}: {shown}");
        }
    }
    assert_eq!(daemon.end(Signal::TERM).await, 0);
}
