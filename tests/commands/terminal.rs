//! A command in a pseudo-terminal. Tests type keys, and read all output as one text.

use crate::commands::sidecar::{Place, wait_for};
use std::process::Stdio;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Ctrl-C, as the keyboard sends it.
pub const CTRL_C: &str = "\x03";

/// A command that runs in a terminal.
pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    /// The output since the last call that returned output.
    unread: String,
}

impl Terminal {
    /// Starts the program with these arguments. `script` provides the terminal.
    pub fn start<S: AsRef<str>>(place: &Place, arguments: &[S]) -> Self {
        Self::start_with_kind("xterm", place, arguments)
    }

    /// Starts the program in a terminal of this kind, as in the variable `TERM`.
    pub fn start_with_kind<S: AsRef<str>>(kind: &str, place: &Place, arguments: &[S]) -> Self {
        let words = arguments.iter().map(|word| format!(" '{}'", word.as_ref()));
        let typed = format!(
            "exec '{}'{}",
            env!("CARGO_BIN_EXE_callbridge"),
            words.collect::<String>()
        );
        let mut command = Command::new("script");
        let child = command
            .args(["-qefc", &typed, "/dev/null"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .env("TERM", kind)
            .env("HOME", place.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.expect("script (util-linux) runs");
        let (keys, screen) = (child.stdin.take(), child.stdout.take());
        Self {
            child,
            keys: keys.expect("a keyboard"),
            screen: screen.expect("a screen"),
            unread: String::new(),
        }
    }

    /// Waits until the command has written `text` since the last call. Returns the output since the
    /// last call, up to and including `text`.
    pub async fn wait_for_text(&mut self, text: &str) -> String {
        let what = format!("{text:?} on the terminal");
        let reading = async {
            loop {
                if let Some(at) = self.unread.find(text) {
                    let rest = self.unread.split_off(at + text.len());
                    return std::mem::replace(&mut self.unread, rest);
                }
                let mut bytes = [0; 4096];
                let count = self.screen.read(&mut bytes).await.expect("a terminal");
                assert!(
                    count > 0,
                    "the command ended before {text:?}: {}",
                    self.unread
                );
                self.unread
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        };
        wait_for(&what, reading).await
    }

    pub async fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.expect("typed");
        self.keys.flush().await.expect("typed");
    }

    /// Waits for a question, and accepts its default answer with the enter key.
    pub async fn accept_default(&mut self, question: &str) {
        self.wait_for_text(question).await;
        self.type_keys("\n").await;
    }

    /// Waits until the command ends. Returns the exit code and the output since the last call.
    pub async fn wait_for_end(mut self) -> (i32, String) {
        let mut rest = Vec::new();
        let reading = self.screen.read_to_end(&mut rest);
        wait_for("the end of the output", reading)
            .await
            .expect("read");
        let status = wait_for("the end of the command", self.child.wait())
            .await
            .expect("a status");
        self.unread.push_str(&String::from_utf8_lossy(&rest));
        (status.code().unwrap_or(-1), self.unread)
    }
}
