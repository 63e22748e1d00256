//! The lines that are typed into `connect`, or pasted: addresses first, an answer later.

use std::io::IsTerminal as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::sync::mpsc;

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
        let (lines, hears) = mpsc::channel(8);
        tokio::spawn(read(lines));
        Self {
            lines: hears,
            person: std::io::stdin().is_terminal(),
        }
    }

    /// The next line; `None` once stdin has ended.
    pub(crate) async fn line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// What was typed before a question is no answer to it.
    pub(crate) fn forget(&mut self) {
        if self.person {
            while self.lines.try_recv().is_ok() {}
        }
    }

    /// These lines, typed after [`StdinLines::forget`].
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

async fn read(lines: mpsc::Sender<String>) {
    let mut stdin = BufReader::new(tokio::io::stdin());
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut stdin).take(LINE_MAX);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if lines.send(line).await.is_err() {
            return;
        }
    }
}
