//! Runs `check` from the page, in a separate process with the arguments of `run`.

use callbridge_admin::Refusal;
use callbridge_model::Code;
use callbridge_page::backend::CheckFinding;
use std::{ffi::OsString, process::Stdio, time::Duration};
use tokio::process::Command;

/// Timeout for a run of `check`.
const WITHIN: Duration = Duration::from_secs(90);
/// Flags of `run` that aren't passed to `check`, because they would end it or change the state.
const NOT_TRIED: [&str; 2] = ["--until-idle", "--rebind"];

fn unavailable(message: impl Into<String>) -> Refusal {
    Refusal::new(Code::Unreachable.number(), message)
}

pub(super) async fn run_check() -> Result<Vec<CheckFinding>, Refusal> {
    let program = std::env::current_exe().map_err(|error| {
        unavailable(format!(
            "check cannot be run: this program's file is not found: {error}"
        ))
    })?;
    let mut command = Command::new(program);
    command
        .arg("check")
        .arg("--json")
        .args(check_arguments(std::env::args_os().skip(1)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(WITHIN, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(unavailable(format!("check cannot be run: {error}"))),
        Err(_) => {
            let message = "check took longer than 90 s: run it in a terminal to see where it waits";
            return Err(unavailable(message));
        }
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let findings: Vec<CheckFinding> = stdout
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if findings.is_empty() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let message: String = stderr.trim().chars().take(2_000).collect();
        return Err(unavailable(format!("check printed no result: {message}")));
    }
    Ok(findings)
}

/// Returns the arguments after `run`, without the flags that aren't passed to `check`.
fn check_arguments(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let behind = arguments.skip_while(|argument| argument != "run").skip(1);
    behind.filter(|argument| !NOT_TRIED.iter().any(|flag| argument == flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result_of(ok: bool, fix: &str) -> &'static str {
        let line = serde_json::json!({"name": "token", "ok": ok, "message": "w", "fix": fix});
        let read = serde_json::from_str::<CheckFinding>(&line.to_string());
        read.expect("a finding").result()
    }

    #[test]
    fn finding_result_is_ok_doubt_or_failed() {
        assert_eq!(result_of(true, ""), "ok");
        assert_eq!(result_of(true, "look"), "doubt");
        assert_eq!(result_of(false, "mend"), "failed");
    }

    #[test]
    fn trial_flags_leave_out_until_idle_and_rebind() {
        let given = ["run", "--until-idle", "--state=/s", "--rebind"].map(OsString::from);
        let tried: Vec<OsString> = check_arguments(given.into_iter()).collect();
        assert_eq!(tried, ["--state=/s"]);
    }
}
