//! Runs commands that the operator gives in a flag, with `/bin/sh -c` in its own process group. All
//! processes that a command has started end with it when its time is over, or when its caller no
//! longer waits.

use crate::safe;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// The status and the first output of a command. It does not implement `Debug`, because the output
/// can be a token.
pub struct ShellOutput {
    /// Empty if stdout is not a pipe.
    pub stdout: String,
    /// The beginning of stderr, up to the limit of [`run`].
    pub stderr: String,
    pub status: ExitStatus,
}

/// The process group of a running command. Dropping this value kills all processes of the group,
/// unless the command has ended.
struct CommandGroup(Option<Pid>);

impl Drop for CommandGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

/// Prepares `/bin/sh -c` with this text. stdin and stderr are pipes, and stdout is discarded.
pub fn command(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", text])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Runs the command with the input `stdin`. Waits until the command has ended and all processes
/// have closed its output. Keeps at most `stdout_max` and `stderr_max` bytes of the output.
///
/// # Errors
/// [`Elapsed`] if it takes longer than `within`. The inner error if it cannot be run.
pub async fn run(
    mut command: Command,
    stdin: &[u8],
    (stdout_max, stderr_max): (u64, u64),
    within: Duration,
) -> Result<io::Result<ShellOutput>, Elapsed> {
    let running = async {
        let mut child = command.spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let mut group = CommandGroup(id.and_then(Pid::from_raw));
        let input = child.stdin.take();
        let write = async {
            if let Some(mut input) = input {
                // A command that does not read its stdin can still succeed.
                input.write_all(stdin).await.ok();
            }
        };
        let read_stdout = read(child.stdout.take(), stdout_max);
        let read_stderr = read(child.stderr.take(), stderr_max);
        let ((), stdout, stderr, status) =
            tokio::join!(write, read_stdout, read_stderr, child.wait());
        let output = ShellOutput {
            stdout: stdout?,
            stderr: stderr?,
            status: status?,
        };
        group.0 = None;
        Ok(output)
    };
    timeout(within, running).await
}

/// Returns the first `most` bytes. Reads and drops all further bytes, so that no writer blocks.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<String> {
    let Some(mut from) = from else {
        return Ok(String::new());
    };
    let mut bytes = Vec::new();
    (&mut from).take(most).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a colon and the last line of a command's output, for messages. Empty without output.
pub fn reason(output: &str) -> String {
    match output.trim().lines().last() {
        Some(last) => format!(": {}", safe(last)),
        None => String::new(),
    }
}
