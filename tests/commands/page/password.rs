//! Tests that `page password` prints a line that the page accepts and that does not contain the
//! password.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn run_page_password(arguments: &[&str], typed: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .env_clear()
        .args(["page", "password"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that refuses its arguments does not read its input.
    let _ = stdin.write_all(typed.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

/// Returns the message of a `page password` that is refused with this exit code.
fn refusal_message(arguments: &[&str], typed: &str, code: i32) -> String {
    let output = run_page_password(arguments, typed);
    let words = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{words}");
    assert!(output.stdout.is_empty(), "{words}");
    words
}

#[test]
fn page_password_prints_hash_line_without_password() {
    let typed = "correct horse battery\n";
    let output = run_page_password(&["anna", "admin"], typed);
    let line = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{line}");
    assert!(line.starts_with("anna:admin:$argon2id$"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(!line.contains("horse") && output.stderr.is_empty());
    let second_output = run_page_password(&["anna", "admin"], typed);
    assert_ne!(
        line.as_bytes(),
        second_output.stdout,
        "each line has a different salt"
    );
}

#[test]
fn invalid_name_role_or_password_is_refused() {
    let words = refusal_message(&["anna", "admin"], "short\n", 64);
    assert!(words.contains("at least 10 characters"), "{words}");
    let words = refusal_message(&["anna", "admin"], "", 65);
    assert!(words.contains("send it as one line"), "{words}");
    let words = refusal_message(&["anna:x", "admin"], "correct horse battery\n", 64);
    assert!(words.contains("a name"), "{words}");
    let words = refusal_message(&["anna", "root"], "correct horse battery\n", 64);
    assert!(
        words.contains("`root`") && words.contains("view"),
        "{words}"
    );
}
