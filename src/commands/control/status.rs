//! `status`, which prints the status once, exits with the corresponding status, checks the health,
//! or keeps redrawing on the terminal's alternate screen.

use super::conversation::{converse, json_line, parse_item};
use crate::config::{Asking, StatusMode};
use crate::terminal::{Keyboard, has_color};
use crate::{Failure, OrFail as _, Result, print, wait_for_closed_stdout};
use callbridge_admin::{ControlRequest, state_access};
use callbridge_model::{Code, Status, status::OverallState, status::text::TextStyle};
use rustix::termios::{LocalModes, tcgetwinsize};
use serde_json::Value;
use std::{fmt::Write as _, io, io::IsTerminal as _, time::Duration};
use tokio::{io::AsyncReadExt as _, sync::watch};

/// Interval between updates of `--watch`.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// A daemon that takes longer than this to respond isn't healthy.
const HEALTHY_WITHIN: Duration = Duration::from_secs(10);

/// Runs `status` in one of its modes. `shutdown` ends `--watch`.
///
/// # Errors
/// Fails with 69 if there's neither a daemon nor a state. With `--exit-code`, fails with 1 for the
/// verdict `attention` and with 2 for `down`. Fails with 64 for `--watch` if stdout can't be
/// redrawn.
pub(crate) async fn run(
    at: &Asking,
    mode: StatusMode,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    match mode {
        StatusMode::Once => print_once(at).await.map(|_| ()),
        StatusMode::ExitCode => match print_once(at).await? {
            OverallState::Ok => Ok(()),
            OverallState::Attention => Err(Failure::silent(Code::Failed)),
            OverallState::Down => Err(Failure::silent(Code::Down)),
        },
        StatusMode::Healthy => check_health(at).await,
        StatusMode::Watch if at.json => tokio::select! {
            ended = lines(at) => ended,
            () = shutdown => Ok(()),
            () = wait_for_closed_stdout() => Ok(()),
        },
        StatusMode::Watch => watch_on_screen(at, shutdown).await,
    }
}

async fn ask(at: &Asking) -> Result<(Value, String, OverallState)> {
    let color = has_color();
    let mut answer = None;
    converse(at, ControlRequest::Status, |item, zone| {
        let mut status: Status = parse_item(item)?;
        if status.version.is_empty() {
            // An older daemon doesn't send a verdict.
            status = status.judged();
        }
        let zone = zone.clone();
        let text = status.to_text(&TextStyle { color, zone });
        answer = Some((item.clone(), text, status.verdict));
        Ok(())
    })
    .await?;
    answer.ok_or_else(|| {
        let message = "the daemon sent no status; run the command again";
        Failure::new(Code::Unreachable, message)
    })
}

async fn print_once(at: &Asking) -> Result<OverallState> {
    let (item, text, verdict) = ask(at).await?;
    if at.json {
        json_line(&item)?;
    } else {
        print(text)?;
    }
    Ok(verdict)
}

/// Succeeds silently if a daemon responds, regardless of any problems that need attention, because
/// a restart by a supervisor wouldn't fix those.
async fn check_health(at: &Asking) -> Result<()> {
    let dir = &at.state;
    let asking = state_access::status(at.state.socket_folder());
    let asked = tokio::time::timeout(HEALTHY_WITHIN, asking).await;
    let message = match asked {
        Ok(Ok(Some(_))) => return Ok(()),
        Ok(Ok(None)) => {
            format!("no daemon runs on {dir}: start `callbridge run`, or give the right --state")
        }
        Ok(Err(error)) => format!("the daemon of {dir} does not answer: {error}"),
        Err(_) => {
            let seconds = HEALTHY_WITHIN.as_secs();
            format!("the daemon of {dir} does not answer within {seconds} s")
        }
    };
    Err(Failure::new(Code::Unreachable, message))
}

/// Prints a line of JSON every second, for programs that read from a pipe.
async fn lines(at: &Asking) -> Result<()> {
    loop {
        json_line(&ask(at).await?.0)?;
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Redraws until `q`, Ctrl-C, or SIGTERM. The last status remains on the terminal.
async fn watch_on_screen(at: &Asking, shutdown: impl Future<Output = ()>) -> Result<()> {
    if !std::io::stdout().is_terminal() {
        let message = "--watch needs a terminal, and stdout is not a terminal: give --json for one \
                     line per second, or remove --watch";
        return Err(Failure::new(Code::Usage, message));
    }
    let mut shutdown = std::pin::pin!(shutdown);
    let mut last = tokio::select! {
        answer = ask(at) => answer?.1,
        () = &mut shutdown => return Ok(()),
    };
    let mut screen = Screen::open()?;
    loop {
        screen.draw(&last)?;
        tokio::select! {
            () = &mut shutdown => break,
            () = screen.wait_for_key() => break,
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
        last = match ask(at).await {
            Ok((_, text, _)) => text,
            // The error may be temporary, e.g., because the daemon is being restarted or its
            // directory is being moved.
            Err(failure) => format!("{failure}\n"),
        };
    }
    drop(screen);
    print(last)
}

/// Escape codes that open the alternate screen, hide the cursor, and cut off long lines at the
/// edge.
const OPEN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const CLOSE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Number of rows to assume if the terminal doesn't report its size.
const ROWS: usize = 24;
/// Keys that end `--watch`, in addition to Ctrl-C, which are `q`, `Q`, and Ctrl-D (4).
const KEYS_THAT_END: [u8; 3] = [b'q', b'Q', 4];

/// The terminal while `--watch` is drawing on it. Dropping this restores the terminal.
pub(super) struct Screen {
    _keyboard: Option<Keyboard>,
    left: watch::Receiver<bool>,
}

impl Screen {
    /// Takes over stdout's terminal. Keys arrive immediately and aren't echoed.
    pub(super) fn open() -> Result<Self> {
        let keyboard = Keyboard::disable(LocalModes::ICANON | LocalModes::ECHO);
        let _keyboard = keyboard.or_fail(Code::Failed)?;
        let (leave, left) = watch::channel(false);
        if _keyboard.is_some() {
            tokio::spawn(read_keys(leave));
        }
        let screen = Self { _keyboard, left };
        print(OPEN)?;
        Ok(screen)
    }

    /// Replaces the drawn text. Lines that don't fit on the terminal are omitted.
    pub(super) fn draw(&mut self, text: &str) -> Result<()> {
        let rows = match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 => usize::from(size.ws_row),
            Ok(_) | Err(_) => ROWS,
        };
        print(screen_text(text, rows))
    }

    /// Resolves when a key that ends `--watch` has been pressed.
    pub(super) async fn wait_for_key(&mut self) {
        if self.left.wait_for(|left| *left).await.is_err() {
            // Without a keyboard, only a signal ends `--watch`.
            std::future::pending().await
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // This only fails if the terminal is closed.
        let _ = print(CLOSE);
    }
}

/// Returns the text with escape codes that draw it starting in the upper left corner and clear the
/// previous text. Lines that don't fit into `rows` are omitted.
fn screen_text(text: &str, rows: usize) -> String {
    let mut drawn = "\x1b[H".to_owned();
    for line in text.lines().take(rows.saturating_sub(1)) {
        let _ = write!(drawn, "{line}\x1b[K\r\n");
    }
    // The last row shows that there's more.
    if text.lines().count() >= rows {
        drawn.push_str("… (the terminal is too small for the rest)");
    }
    drawn + "\x1b[K\x1b[J"
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
    fn watch_screen_overwrites_lines_and_reports_cut_rows() {
        let all = screen_text("one\ntwo\n", 24);
        assert_eq!(all, "\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n\x1b[K\x1b[J");
        let some = screen_text("one\ntwo\nthree\n", 3);
        assert!(
            some.starts_with("\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\n…"),
            "{some:?}"
        );
        assert!(!some.contains("three"));
    }
}
