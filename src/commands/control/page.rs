//! `page`, which prints a link that opens the administrator's page, or a line for its password
//! file.

use super::conversation::{ask_daemon, show};
use crate::config::Asking;
use crate::terminal::Keyboard;
use crate::{Failure, OrFail as _, Result, print};
use callbridge_admin::{ControlRequest, PageRole};
use callbridge_model::{Code, ExposeSecret as _, Secret};
use callbridge_ops::log::say;
use callbridge_page::passwords::{UnfitPassword, hash_password};
use rustix::termios::LocalModes;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

/// Maximum number of bytes to read from a pipe for a password.
const PIPE_BYTES_MAX: u64 = 16 << 10;

/// Runs `page`, which prints a link that opens the page once.
///
/// # Errors
/// Fails with 69 if no daemon is running or the daemon has no page.
pub(crate) async fn link(ask: ControlRequest, at: &Asking) -> Result<()> {
    let no_daemon = format!(
        "no daemon runs on {0}: start `callbridge run --state {0} --page 127.0.0.1:9470`, or give \
         the daemon's state with --state",
        at.state
    );
    ask_daemon(at, ask, no_daemon, |item, _| {
        let url = item["url"].as_str().unwrap_or_default();
        show(at, item, || format!("open: {url}"))?;
        if !at.json && io::stderr().is_terminal() {
            say("valid for one minute and one session");
        }
        Ok(())
    })
    .await
}

/// Runs `page password`, which reads a password and prints the line for the password file.
///
/// # Errors
/// Fails with 64 for an invalid password or name, and with 65 if there's no password.
pub(crate) async fn password(name: &str, role: PageRole) -> Result<()> {
    let is_terminal = io::stdin().is_terminal();
    let read = if is_terminal {
        read_password_twice
    } else {
        read_piped
    };
    let password = tokio::task::spawn_blocking(read)
        .await
        .or_fail(Code::Failed)??;
    match hash_password(name, role, password.expose_secret()) {
        Ok(hashed) => print(format!("{hashed}\n")),
        Err(unfit) => {
            let code = match unfit {
                UnfitPassword::Library(_) => Code::Failed,
                UnfitPassword::Short | UnfitPassword::Long | UnfitPassword::Name => Code::Usage,
            };
            Err(Failure::new(code, unfit.to_string()))
        }
    }
}

fn read_piped() -> Result<Secret> {
    let text = io::read_to_string(io::stdin().lock().take(PIPE_BYTES_MAX))
        .or_fail_at(Code::Input, "the password")?;
    match text.lines().next() {
        Some(first) if !first.is_empty() => Ok(Secret::from(first.to_owned())),
        Some(_) | None => {
            let message = "no password on stdin: send it as one line";
            Err(Failure::new(Code::Input, message))
        }
    }
}

fn read_password_twice() -> Result<Secret> {
    let first = read_hidden_line("password: ")?;
    if first.expose_secret() != read_hidden_line("password again: ")?.expose_secret() {
        let message = "the two passwords differ: nothing was printed, try again";
        return Err(Failure::new(Code::Usage, message));
    }
    Ok(first)
}

/// Reads a line from the terminal without showing it.
fn read_hidden_line(prompt: &str) -> Result<Secret> {
    let code = Code::Failed;
    let what = "the terminal";
    let hidden = Keyboard::disable(LocalModes::ECHO).or_fail_at(code, what)?;
    let mut out = io::stderr();
    // If the prompt can't be shown, the answer can still be typed.
    let _ = write!(out, "{prompt}").and_then(|()| out.flush());
    let mut text = String::new();
    let read = io::stdin().lock().read_line(&mut text);
    drop(hidden);
    let _ = writeln!(out);
    read.or_fail_at(code, what)?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(Failure::new(Code::Usage, "no password was typed"));
    }
    Ok(Secret::from(text.to_owned()))
}
