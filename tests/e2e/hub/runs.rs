//! How long a run is, and what it prints.

use std::io::Write as _;
use std::time::Duration;

/// Returns `true` in `tests/run hub --points`.
pub fn is_full_run() -> bool {
    is_run("points")
}

/// Returns `true` in `tests/run hub`.
pub fn is_long_run() -> bool {
    is_run("long")
}

fn is_run(name: &str) -> bool {
    std::env::var("CALLBRIDGE_HUB").as_deref() == Ok(name)
}

/// Prints a line directly to stderr, because the test harness hides the output of successful tests.
pub fn report(line: &str) {
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr");
}

/// Returns a time as text, or `-` if there's none.
pub fn seconds(time: Option<&Duration>) -> String {
    let Some(time) = time else {
        return "-".to_owned();
    };
    format!("{:.1} s", time.as_secs_f64())
}
