//! A terminal's other screen, drawn anew in place; the first one is as it was afterwards.

use crate::terminal::Keyboard;
use crate::{Failure, OrFail as _, print};
use callbridge_model::Code;
use rustix::termios::{LocalModes, tcgetwinsize};
use std::fmt::Write as _;
use std::io;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;

/// The other screen, no cursor, long lines cut at the edge.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Without a size of its own.
const ROWS: usize = 24;
/// What ends it, beside Ctrl-C: Ctrl-D, too, as people try it.
const KEYS_THAT_END: [u8; 3] = [b'q', b'Q', 4];

/// Given back when it is dropped.
pub(super) struct Screen {
    _keyboard: Option<Keyboard>,
    left: watch::Receiver<bool>,
}

impl Screen {
    /// Takes stdout's terminal; keys come at once and are not shown.
    pub(super) fn open() -> Result<Self, Failure> {
        let keyboard =
            Keyboard::without(LocalModes::ICANON | LocalModes::ECHO).or_fail(Code::Failed)?;
        let (leave, left) = watch::channel(false);
        if keyboard.is_some() {
            tokio::spawn(read_keys(leave));
        }
        let screen = Self {
            _keyboard: keyboard,
            left,
        };
        print(OPEN.as_bytes())?;
        Ok(screen)
    }

    /// This text in place of the last one, as much of it as there is room for.
    pub(super) fn draw(&mut self, text: &str) -> Result<(), Failure> {
        let size = tcgetwinsize(io::stdout()).ok();
        let rows = size.map(|size| usize::from(size.ws_row));
        let rows = rows.filter(|rows| *rows > 0).unwrap_or(ROWS);
        print(drawn(text, rows).as_bytes())
    }

    /// Ends when a key was pressed that ends it.
    pub(super) async fn left(&mut self) {
        if self.left.wait_for(|left| *left).await.is_err() {
            // No keyboard: a signal ends it.
            std::future::pending().await
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Whoever closed the terminal does not need it.
        let _ = print(CLOSE.as_bytes());
    }
}

/// The lines from the upper left on, each cleared to its end, and nothing below them.
fn drawn(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut drawn = "\x1b[H".to_owned();
    let shown = match lines.len() < rows {
        true => lines.len(),
        // The last row says that there is more.
        false => rows.saturating_sub(1),
    };
    for line in &lines[..shown] {
        let _ = write!(drawn, "{line}\x1b[K\r\n");
    }
    drawn.push_str(match lines.len() < rows {
        true => "\x1b[K",
        false => "… (the terminal is too low for the rest)\x1b[K",
    });
    drawn + "\x1b[J"
}

async fn read_keys(leave: watch::Sender<bool>) {
    let mut stdin = tokio::io::stdin();
    let mut keys = [0; 16];
    while let Ok(count @ 1..) = stdin.read(&mut keys).await {
        if keys[..count].iter().any(|key| KEYS_THAT_END.contains(key)) {
            leave.send_replace(true);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_replaces_the_one_before_and_what_has_no_room_is_said() {
        let all = drawn("one\ntwo\n", 24);
        assert_eq!(all, "\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[K\x1b[J");
        let some = drawn("one\ntwo\nthree\n", 3);
        assert!(
            some.starts_with("\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n…"),
            "{some:?}"
        );
        assert!(!some.contains("three"));
    }
}
