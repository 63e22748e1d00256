//! A command in its own terminal. Its output is one text, and keys are typed into it.

use crate::commands::sidecar::{Place, soon};
use std::process::Stdio;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Ctrl-C, as the keyboard sends it.
pub const CTRL_C: &str = "\x03";

/// A command that runs in a terminal.
pub struct Terminal {
    child: Child,
    keys: ChildStdin,
    shows: ChildStdout,
    shown: String,
}

impl Terminal {
    /// Starts the program with these arguments. `script` provides the terminal.
    pub fn start<S: AsRef<str>>(place: &Place, arguments: &[S]) -> Self {
        Self::of_kind("xterm", place, arguments)
    }

    /// Starts the program in a terminal of this kind.
    pub fn of_kind<S: AsRef<str>>(kind: &str, place: &Place, arguments: &[S]) -> Self {
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
        let (keys, shows) = (child.stdin.take(), child.stdout.take());
        Self {
            child,
            keys: keys.expect("a keyboard"),
            shows: shows.expect("a screen"),
            shown: String::new(),
        }
    }

    /// Waits until it has shown `text` since the last call. Returns the output up to and including
    /// it.
    pub async fn shows(&mut self, text: &str) -> String {
        let what = format!("{text:?} on the terminal");
        let reading = async {
            loop {
                if let Some(at) = self.shown.find(text) {
                    let rest = self.shown.split_off(at + text.len());
                    return std::mem::replace(&mut self.shown, rest);
                }
                let mut bytes = [0; 4096];
                let count = self.shows.read(&mut bytes).await.expect("a terminal");
                assert!(count > 0, "it ended before {text:?}: {}", self.shown);
                self.shown
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        };
        soon(&what, reading).await
    }

    /// Types these keys.
    pub async fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.expect("typed");
        self.keys.flush().await.expect("typed");
    }

    /// Accepts the default answer to this question.
    pub async fn takes_default(&mut self, question: &str) {
        self.shows(question).await;
        self.types("\n").await;
    }

    /// Waits until it ends. Returns its exit code and the output since the last call.
    pub async fn ends(mut self) -> (i32, String) {
        let mut rest = Vec::new();
        let reading = self.shows.read_to_end(&mut rest);
        soon("the end of what it shows", reading)
            .await
            .expect("read");
        let status = soon("its end", self.child.wait()).await.expect("a status");
        self.shown.push_str(&String::from_utf8_lossy(&rest));
        (status.code().unwrap_or(-1), self.shown)
    }
}
