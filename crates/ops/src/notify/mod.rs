//! `--notify-command`: a command for companies without monitoring. It runs when a kind of problem
//! begins or ends, and when customers have waited too long for a callback. `/bin/sh -c` runs it. It
//! reads lines of JSON from stdin, has a time limit, and receives none of our secrets.
//!
//! | module | what it contains |
//! |---|---|
//! | [`history`] | converts findings and the time to messages; pure |
//! | [`pending`] | messages that the command has not accepted, and the time of the next try; pure |
//! | [`waiting`] | converts customers who wait for a callback to messages; pure |

pub mod history;
pub mod pending;
pub mod waiting;

use callbridge_model::shell;
use history::Notification;
use std::time::Duration;

/// Maximum time of one run.
pub const WITHIN: Duration = Duration::from_secs(30);
/// Bytes of the command's stderr that are read.
const WORDS_MAX: u64 = 1024;
/// Prefixes of environment variables that the command does not get: callbridge's, which can contain
/// secrets or paths to secrets, and those that systemd sets for callbridge.
const OURS: [&str; 5] = [
    "CALLBRIDGE_",
    "CREDENTIALS_DIRECTORY",
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "LISTEN_",
];

/// The values of `--notify-command` and `--notify-missed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The command line, run by `/bin/sh -c`.
    pub command: String,
    /// Time of waiting for a callback after which a customer is reported. `None` reports no one.
    pub missed: Option<Duration>,
}

/// Runs the command once with all these messages on its stdin, for at most `within`. If this future
/// is dropped, the command ends.
///
/// # Errors
/// The reason why the messages may not have been delivered.
pub async fn run(command: &str, all: &[Notification], within: Duration) -> Result<(), String> {
    let mut process = shell::command(command);
    for (name, _) in std::env::vars_os() {
        let is_kept = name.to_str().is_some_and(|name| !is_own_variable(name));
        if !is_kept {
            process.env_remove(name);
        }
    }
    let mut lines = Vec::new();
    for notification in all {
        let written = serde_json::to_writer(&mut lines, notification);
        written.map_err(|error| not_run(&error.into()))?;
        lines.push(b'\n');
    }
    let output = match shell::run(process, &lines, (0, WORDS_MAX), within).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(not_run(&error)),
        Err(_) => {
            let seconds = within.as_secs();
            return Err(format!(
                "it did not end within {seconds} s, and was killed with all processes that it had \
                 started"
            ));
        }
    };
    if output.status.success() {
        return Ok(());
    }
    let reason = shell::reason(&output.stderr);
    Err(format!("it failed ({}){reason}", output.status))
}

fn is_own_variable(variable: &str) -> bool {
    OURS.iter().any(|prefix| variable.starts_with(prefix))
}

fn not_run(error: &std::io::Error) -> String {
    format!("it cannot be run: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::status::FindingKind;
    use history::Turn;

    fn notifications() -> [Notification; 1] {
        [Notification {
            kind: FindingKind::DeadLetters.word(),
            state: Turn::Begins,
            since: 1_795_151_317,
            message: "2 dead letters: it's `hostile`; $(rm)".to_owned(),
            command: "callbridge dead list".to_owned(),
        }]
    }

    #[tokio::test]
    async fn notifications_reach_the_command_as_json_lines_on_stdin() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("told");
        let command = format!("cat > '{}'", file.display());
        let [it] = notifications();
        let line = serde_json::to_string(&it).expect("JSON") + "\n";
        let two = [it.clone(), it];
        run(&command, &two, WITHIN).await.expect("well");
        let text = std::fs::read_to_string(&file).expect("written");
        assert_eq!(text, line.repeat(2));
    }

    #[tokio::test]
    async fn command_that_ignores_stdin_is_ok_and_failure_is_reported() {
        assert_eq!(run("exit 0", &notifications(), WITHIN).await, Ok(()));
        let failed = run("echo no mail >&2; exit 3", &notifications(), WITHIN).await;
        let message = failed.expect_err("failed");
        assert_eq!(message, "it failed (exit status: 3): no mail");
        let failed = run("/no/such/program", &notifications(), WITHIN).await;
        let message = failed.expect_err("failed");
        assert!(message.starts_with("it failed ("), "{message}");
    }

    #[tokio::test]
    async fn timed_out_command_is_ended_with_its_child_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let command = format!(
            "mkfifo '{0}'; (echo; exec sleep 1000) > '{0}' & sleep 1000",
            pipe.display()
        );
        let made = format!("mkfifo '{}'", pipe.display());
        assert_eq!(run(&made, &notifications(), WITHIN).await, Ok(()));
        let command = command.split_once("; ").expect("two").1.to_owned();
        // The other end of the pipe. It ends when all writers are closed.
        let received = tokio::task::spawn_blocking(move || std::fs::read(pipe));
        let within = Duration::from_secs(1);
        let slow = run(&command, &notifications(), within).await;
        let message =
            "it did not end within 1 s, and was killed with all processes that it had started";
        assert_eq!(slow, Err(message.to_owned()));
        assert_eq!(received.await.expect("a thread").expect("a pipe"), b"\n");
    }
}
