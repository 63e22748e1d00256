//! Output on stdout and input from stdin. Finds the width of the terminal and whether it has
//! colors, and reads typed lines and hidden secrets.

use crate::{Failure, Result};
use callbridge_model::{Code, Environment};
use callbridge_ops::log;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::{io, io::IsTerminal as _, io::Write as _, os::fd::AsFd as _};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Interest};
use tokio::{net::unix::pipe, sync::mpsc};

/// Returns the width of stdout's terminal. `None` if stdout is no terminal.
pub(crate) fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Returns `true` if output on stdout can have colors.
pub(crate) fn has_color() -> bool {
    log::color(&Environment::of_process(), io::stdout().is_terminal())
}

/// Stdin's terminal with some of its modes turned off. Dropping it restores them.
pub(crate) struct Keyboard(Termios);

impl Keyboard {
    /// Turns `modes` of stdin's terminal off. Returns `None` if stdin is no terminal.
    ///
    /// # Errors
    /// If the terminal's modes cannot be set.
    pub(crate) fn disable(modes: LocalModes) -> io::Result<Option<Self>> {
        let Ok(before) = tcgetattr(io::stdin()) else {
            return Ok(None);
        };
        let mut now = before.clone();
        now.local_modes.remove(modes);
        tcsetattr(io::stdin(), OptionalActions::Now, &now)?;
        Ok(Some(Self(before)))
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // This fails only if the terminal is closed. Its modes do not matter then.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Resolves when stdout is a pipe whose reader has closed it. Without this, `calls --follow | head
/// -1` would notice only at the next call.
pub(crate) async fn wait_for_closed_stdout() {
    let out = io::stdout().as_fd().try_clone_to_owned();
    // Unchecked, because the checked constructor makes the pipe nonblocking, and prints could fail
    // then.
    match out.and_then(pipe::Sender::from_owned_fd_unchecked) {
        Ok(out) => drop(out.ready(Interest::ERROR).await),
        // A file has no reader that can close it.
        Err(_) => std::future::pending().await,
    }
}

/// Writes to stdout. A closed pipe is not an error: `callbridge man | head` succeeds.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::wrap(Code::Failed, error))
        }
        _ => Ok(()),
    }
}

/// Maximum bytes of one line of stdin. The remaining bytes of a longer line are read as the next
/// line.
const LINE_MAX: u64 = 16 * 1024;

/// Lines of stdin, read by one task and passed to one receiver.
#[derive(Debug)]
pub(crate) struct StdinLines {
    lines: mpsc::Receiver<String>,
    pub person: bool,
}

impl StdinLines {
    /// Reads stdin until it ends, or until the returned value is dropped.
    pub(crate) fn listen() -> Self {
        let (typing, lines) = mpsc::channel(8);
        tokio::spawn(read_lines(typing));
        let person = io::stdin().is_terminal();
        Self { lines, person }
    }

    /// Returns the next line. `None` once stdin has ended.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Drops lines that a person typed before a question, because they cannot be answers to it.
    pub(crate) fn forget(&mut self) {
        while self.person && self.lines.try_recv().is_ok() {}
    }

    /// Returns an input for tests that yields `lines`, as if a person typed them after a call of
    /// [`StdinLines::forget`].
    #[cfg(test)]
    pub(super) fn scripted(person: bool, lines: &[&str]) -> Self {
        let (typing, typed_lines) = mpsc::channel(8);
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        tokio::spawn(async move {
            for line in lines {
                typing.send(line).await.ok();
            }
        });
        Self {
            lines: typed_lines,
            person,
        }
    }
}

async fn read_lines(lines: mpsc::Sender<String>) {
    let mut stdin = BufReader::new(tokio::io::stdin());
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut stdin).take(LINE_MAX);
        let read = limited.read_until(b'\n', &mut line).await;
        let line = String::from_utf8_lossy(&line).into_owned();
        if matches!(read, Ok(0) | Err(_)) || lines.send(line).await.is_err() {
            return;
        }
    }
}
