//! What commands print on stdout, how wide its terminal is and whether it has colors; and what is
//! typed into stdin: lines, or a secret that is not shown.

use crate::{Failure, Result};
use callbridge_model::{Code, Environment};
use callbridge_ops::log;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::{io, io::IsTerminal as _, io::Write as _, os::fd::AsFd as _};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Interest};
use tokio::{net::unix::pipe, sync::mpsc};

/// The width of stdout's terminal; `None` without one.
pub(crate) fn width() -> Option<usize> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// What stdout shows may have colors.
pub(crate) fn has_color() -> bool {
    log::color(&Environment::of_process(), io::stdout().is_terminal())
}

/// Stdin's terminal without some of its modes, until this is dropped.
pub(crate) struct Keyboard(Termios);

impl Keyboard {
    /// `None` where stdin is no terminal.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn without(modes: LocalModes) -> io::Result<Option<Self>> {
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
        // Whoever closed the terminal does not need it.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Ends when stdout is a pipe that nobody reads any more: `calls --follow | head -1` need not wait
/// for one more call to notice.
pub(crate) async fn nobody_reads() {
    let out = io::stdout().as_fd().try_clone_to_owned();
    // Unchecked: made sure of, it would be set not to block, and what is printed could be refused.
    match out.and_then(pipe::Sender::from_owned_fd_unchecked) {
        Ok(out) => drop(out.ready(Interest::ERROR).await),
        // A file is never closed at its other end.
        Err(_) => std::future::pending().await,
    }
}

/// To stdout. Whoever closed it has read enough: `callbridge man | head` is no failure.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::of(Code::Failed, error))
        }
        _ => Ok(()),
    }
}

/// A line is no longer than this.
const LINE_MAX: u64 = 16 * 1024;

/// Lines of stdin, read by one reader for whoever asks.
#[derive(Debug)]
pub(crate) struct StdinLines {
    lines: mpsc::Receiver<String>,
    pub person: bool,
}

impl StdinLines {
    /// Reads stdin until it ends, or until this is dropped.
    pub(crate) fn listen() -> Self {
        let (typing, lines) = mpsc::channel(8);
        tokio::spawn(read_lines(typing));
        let person = io::stdin().is_terminal();
        Self { lines, person }
    }

    /// The next line; `None` once stdin has ended.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Drops the lines that a person typed before a question: none of them is an answer to it.
    pub(crate) fn forget(&mut self) {
        while self.person && self.lines.try_recv().is_ok() {}
    }

    /// Returns these lines, typed after [`StdinLines::forget`].
    #[cfg(test)]
    pub(super) fn scripted(person: bool, lines: &[&str]) -> Self {
        let (typing, hears) = mpsc::channel(8);
        let lines: Vec<String> = lines.iter().map(|it| (*it).to_owned()).collect();
        tokio::spawn(async move {
            for line in lines {
                typing.send(line).await.ok();
            }
        });
        Self {
            lines: hears,
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
