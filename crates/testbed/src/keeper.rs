//! A shell that runs other programs for a test. It ends them and removes their folder when its pipe
//! closes: at a drop, after a panic, and after a `kill -9` of the test. A static is never dropped,
//! so a destructor would not be enough.
//!
//! ```text
//! test ──pipe──▶ sh ──▶ programs
//! ```
//! The shell has its own session, so a signal to the group of the test does not reach it.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Calls `act` with the words of each line, and answers whether it succeeded. Calls `end` last.
const LOOP: &str = r#"
while read -r line; do
    if act $line >/dev/null 2>&1; then echo done; else echo fail; fi
done
end >/dev/null 2>&1
rm -rf "$FOLDER"
"#;

/// The script of one program. The function `run` becomes it (`exec`), and `processes` lists its
/// processes. `end` and `signal` reach `main`, the process itself, or `all`.
const ONE_PROGRAM: &str = r#"
main=
reached() { if [ "$1" = main ]; then echo "$main"; else processes; fi; }
act() {
    case $1 in
    start) run >>"$FOLDER/log" 2>&1 </dev/null & main=$! ;;
    # A process that has just ended gets none.
    signal) kill -s "$3" -- $(reached "$2") 2>/dev/null; [ -n "$main" ] ;;
    end)
        [ -n "$main" ] || return 0
        kill -s "$3" -- $(reached "$2"); wait "$main"
        main= ;;
    # A process that was not waited for is a zombie.
    alive) [ -n "$main" ] && kill -0 "$main" && ! grep -q ') Z' "/proc/$main/stat" ;;
    *) false ;;
    esac
}
end_main() { [ -z "$main" ] || kill -s CONT -- $(processes); act end all KILL; }
"#;

/// Which processes of a program get a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The process that was started.
    Main,
    /// All processes of the program.
    All,
}

impl Reach {
    const fn word(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::All => "all",
        }
    }
}

/// A running shell.
pub(crate) struct Keeper {
    shell: Mutex<Shell>,
}

struct Shell {
    words: Option<ChildStdin>,
    answers: ChildStdout,
    process: Child,
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.words.take());
        // If the shell cannot be waited for, it has ended.
        self.process.wait().ok();
    }
}

impl Keeper {
    /// Starts a shell for one program. `script` defines `run` and `processes`, and can define
    /// `end`, which calls `end_main`. `FOLDER` has its log.
    pub(crate) fn of_program<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        script: &str,
        folder: &Path,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let script = format!("{ONE_PROGRAM}\nend() {{ end_main; }}\n{script}");
        Self::start(&script, folder, variables)
    }

    /// Starts a shell whose script defines the functions `act`, which receives the words of each
    /// line, and `end`.
    pub(crate) fn start<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        script: &str,
        folder: &Path,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut process = Command::new("setsid")
            .args(["sh", "-c", &format!("{script}\n{LOOP}")])
            .env("FOLDER", folder)
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let shell = Shell {
            words: process.stdin.take(),
            answers: process.stdout.take().expect("piped"),
            process,
        };
        Self {
            shell: Mutex::new(shell),
        }
    }

    /// Runs a command in the shell, and returns whether it succeeded.
    pub(crate) fn ask(&self, words: impl Display) -> bool {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = shell.words.as_mut().expect("it is open until the drop");
        writeln!(pipe, "{words}").expect("the shell reads");
        let mut answer = [0; 5];
        let read = shell.answers.read_exact(&mut answer);
        read.expect("the shell answers");
        answer == *b"done\n"
    }

    /// Runs a command in the shell, and fails if the command does not succeed.
    pub(crate) fn tell(&self, words: impl Display) {
        let succeeded = self.ask(&words);
        assert!(succeeded, "the shell cannot {words}");
    }

    pub(crate) fn start_program(&self) {
        self.tell("start");
    }

    /// Returns `true` if the program's process runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.ask("alive")
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, reach: Reach, signal: &str) {
        self.tell(format_args!("signal {} {signal}", reach.word()));
    }

    /// Sends a signal, and waits for the end of the program, if it runs.
    pub(crate) fn end(&self, reach: Reach, signal: &str) {
        self.tell(format_args!("end {} {signal}", reach.word()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::DEADLINE;
    use std::time::{Duration, Instant};

    fn folder() -> std::path::PathBuf {
        tempfile::tempdir().expect("a folder").keep()
    }

    #[test]
    fn dropped_keeper_leaves_no_process_and_no_folder() {
        let folder = folder();
        let script = "run() { exec sleep 600; }\nprocesses() { echo \"$main\"; }\n\
                      end() { echo \"$main\" >\"$LAST\"; end_main; }";
        let last = tempfile::NamedTempFile::new().expect("a file");
        let keeper = Keeper::of_program(script, &folder, [("LAST", last.path())]);
        assert!(!keeper.is_alive());
        keeper.start_program();
        assert!(keeper.is_alive());
        keeper.signal(Reach::All, "STOP");
        drop(keeper);
        assert!(!folder.exists());
        let id = std::fs::read_to_string(last.path()).expect("readable");
        let process = std::path::PathBuf::from(format!("/proc/{}", id.trim()));
        let begun = Instant::now();
        while process.exists() {
            assert!(begun.elapsed() < DEADLINE, "{} runs", process.display());
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    #[test]
    fn failed_action_and_unknown_command_are_reported() {
        let folder = folder();
        let script = "run() { exec true; }\nprocesses() { echo \"$main\"; }";
        let keeper = Keeper::of_program(script, &folder, [("X", "")]);
        assert!(!keeper.ask("dance"));
        assert!(!keeper.ask("signal all STOP"), "nothing runs");
        keeper.end(Reach::All, "KILL");
        assert!(keeper.ask("start"), "it acts after a failure");
    }
}
