//! Runs `--token-command`, a command that prints a token, using `/bin/sh -c`. It's meant for
//! vendors whose backend holds the client secret and issues access tokens.
//!
//! The command runs at startup, five minutes before the expiry reported by token/info (or halfway
//! through a short lifetime), and when the CRM rejects the token, but at most once a minute. Its
//! stderr is logged, except for anything that looks like a token.

use super::refresh::{Facts, RefreshOutcome, Refresher};
use callbridge_call::{EpochSeconds, redact::Redactor};
use callbridge_model::{
    ExposeSecret, Now, Secret, SecretKind, TokenFingerprint, clock, is_token, safe, shell,
    status::Pause,
};
use callbridge_sender::status::SenderStatus;
use callbridge_sender::token_update::{TokenUpdate, Tokens, print};
use std::process::Stdio;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// Timeout for running the command.
const WITHIN: Duration = Duration::from_secs(30);
/// Maximum number of bytes to read from the command's stdout. Anything longer isn't a token.
const OUT_MAX: u64 = 16 * 1024;
/// Maximum number of bytes to read from the command's stderr.
const WORDS_MAX: u64 = 4 * 1024;
/// Longest wait between two checks of the clock, since the wall clock may be set in the meantime.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Assumed lifetime in seconds of a token whose expiry isn't known yet, which is 10 years.
const LONG: i64 = 10 * 366 * 86_400;

const NOT_A_TOKEN: &str =
    "--token-command must print only the token: one line of visible ASCII on stdout";

/// Runs the command once and returns the token it prints. The command's environment doesn't contain
/// any of callbridge's secrets.
///
/// # Errors
/// Returns why there's no token, which may be that the command couldn't be run, failed, took too
/// long, or printed something else.
pub async fn run(command: &str) -> Result<Secret, String> {
    let mut how = shell::command(command);
    how.stdin(Stdio::null()).stdout(Stdio::piped());
    for &kind in SecretKind::ALL {
        how.env_remove(kind.variable());
    }
    let seconds = WITHIN.as_secs();
    let ran = shell::run(how, b"", (OUT_MAX + 1, WORDS_MAX), WITHIN)
        .await
        .map_err(|_| format!("--token-command did not end within {seconds} s and was killed"))?
        .map_err(|error| format!("--token-command cannot be run: {error}"))?;
    let stderr = redact(&ran.stderr, &ran.stdout);
    for line in stderr.lines().filter(|line| !line.trim().is_empty()) {
        info!(words = line, "--token-command wrote to stderr");
    }
    if !ran.status.success() {
        let status = ran.status;
        let reason = shell::reason(&stderr);
        return Err(format!("--token-command failed ({status}){reason}"));
    }
    let token = ran.stdout.trim_start_matches('\u{feff}').trim();
    if is_token(token) && token.len() as u64 <= OUT_MAX {
        Ok(Secret::from(token))
    } else {
        Err(NOT_A_TOKEN.to_owned())
    }
}

/// Returns the stderr `text` for the log, escaping control characters and replacing each word with
/// `[redacted]` that looks like a secret or contains the `printed` token.
fn redact(text: &str, printed: &str) -> String {
    let printed = printed.trim();
    let redacted = Redactor::new([printed]).redact(text);
    let lines: Vec<String> = redacted
        .lines()
        .map(|line| redact_line(line, printed))
        .collect();
    lines.join("\n")
}

fn redact_line(line: &str, printed: &str) -> String {
    let line = safe(line);
    let mut words: Vec<&str> = line.split_whitespace().collect();
    for word in &mut words {
        if is_suspect(word, printed) {
            *word = "[redacted]";
        }
    }
    words.join(" ")
}

/// Returns `true` if a word is, contains, or looks like a token or secret. `printed` is the token
/// printed by the command.
fn is_suspect(word: &str, printed: &str) -> bool {
    let is_printed =
        !printed.is_empty() && (word.contains(printed) || printed.contains(word) && word.len() > 7);
    let has_mark = ["svc_", "svcrt_", "eyJ", "Bearer"]
        .iter()
        .any(|mark| word.contains(mark));
    let is_opaque = word.len() >= 24
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte));
    is_printed || has_mark || is_opaque
}

/// Runs `--token-command` whenever a new token is due, and passes the token to the sender.
#[derive(Debug)]
pub struct Keeper {
    /// The value of `--token-command`, which is run by `/bin/sh -c`.
    pub command: String,
    /// Sends each new token, or why there is none, to the sender.
    pub updates: watch::Sender<TokenUpdate>,
}

struct Work {
    keeper: Keeper,
    core: Refresher,
    tokens: Option<Tokens>,
    /// When the current token expires, or `None` until token/info has reported it.
    end: Option<EpochSeconds>,
}

impl Keeper {
    /// Runs the command whenever a new token is due, until `shutdown`. `sender` reports whether the
    /// CRM accepted the token and when it expires.
    pub async fn run(
        self,
        mut sender: watch::Receiver<SenderStatus>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut core = Refresher::default();
        let now = clock::now();
        core.adopt(now, &facts(TokenFingerprint::none(), now, 0));
        let mut work = Work {
            keeper: self,
            core,
            tokens: None,
            end: None,
        };
        tokio::pin!(shutdown);
        loop {
            let wait = work.core.wait(clock::now(), CHECK_EVERY);
            let due = async {
                tokio::time::sleep(wait).await;
                if work.core.is_due(clock::now()) {
                    work.core.begin(clock::now());
                    return Some(run(&work.keeper.command).await);
                }
                None
            };
            // A change in the status would cancel a run and lose its token, so the run goes first.
            let printed = tokio::select! {
                biased;
                () = &mut shutdown => return,
                printed = due => printed,
            };
            if let Some(printed) = printed {
                work.on_printed(printed);
            }
            match sender.has_changed() {
                Ok(true) => work.on_sender_status(&sender.borrow_and_update().clone()),
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }
}

impl Work {
    fn on_sender_status(&mut self, status: &SenderStatus) {
        let Some(token) = &status.token_print else {
            return;
        };
        if let Some(taken) = status.token_taken {
            self.core.on_token_used(token, taken);
        }
        let current = self.tokens.as_ref().map(|tokens| print(&tokens.current));
        if let Some(at) = status.token.expires_at.map(EpochSeconds::new)
            && current.as_ref() == Some(token)
            && self.end.replace(at) != Some(at)
        {
            self.core.learn_end(clock::now(), token, at);
        }
    }

    fn on_printed(&mut self, printed: Result<Secret, String>) {
        let now = clock::now();
        let tokens = self.tokens.as_ref();
        let current = tokens.map(|tokens| tokens.current.expose_secret());
        let trouble = match printed {
            // The command doesn't have a newer token yet.
            Ok(token) if current == Some(token.expose_secret()) => {
                self.core.ended(now, RefreshOutcome::NotDone);
                None
            }
            Ok(token) => {
                let facts = facts(print(&token), now, LONG);
                let previous = match (self.tokens.take(), self.end.take()) {
                    (Some(tokens), Some(end)) if !self.core.is_refused() => {
                        Some((tokens.current, end))
                    }
                    (_, _) => None,
                };
                self.tokens = Some(Tokens {
                    previous,
                    ..Tokens::one(token)
                });
                self.core.ended(now, RefreshOutcome::Rotated(facts));
                None
            }
            Err(error) => {
                self.core.ended(now, RefreshOutcome::NotSent);
                warn!(%error, "no token");
                let fix = format!("{error}; it is run again automatically");
                Some(Pause::new("token_missing", fix))
            }
        };
        self.keeper.updates.send_replace(TokenUpdate {
            tokens: self.tokens.clone(),
            trouble,
            fix: "the CRM refuses the token that --token-command prints: it is run again once a \
                   minute; if that does not help, check whether the company is blocked"
                .to_owned(),
        });
    }
}

/// Returns the facts about the token `access`, which was printed at `now` and lives for `life`
/// seconds.
fn facts(access: TokenFingerprint, now: Now, life: i64) -> Facts {
    let issued_at = now.wall.floor_seconds();
    Facts {
        access,
        issued_at,
        expires_at: EpochSeconds::new(issued_at.get().saturating_add(life)),
        began: false,
        refused_at: None,
        over: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    const DEADLINE: Duration = Duration::from_secs(60);

    async fn run_and_expose(command: &str) -> Result<String, String> {
        run(command)
            .await
            .map(|token| token.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn output_other_than_one_token_on_one_line_is_refused() {
        assert_eq!(
            run_and_expose("echo svc_at_1").await,
            Ok("svc_at_1".to_owned())
        );
        assert_eq!(
            run_and_expose("printf ' svc_at_1\\r\\n\\n'").await,
            Ok("svc_at_1".to_owned())
        );
        for odd in [
            "true",
            "echo a b",
            "printf 'a\\nb'",
            "head -c 99999 /dev/zero",
            "printf 'é'",
        ] {
            assert_eq!(
                run_and_expose(odd).await,
                Err(NOT_A_TOKEN.to_owned()),
                "{odd}"
            );
        }
        let long = "head -c 20000 /dev/zero | tr '\\0' x";
        assert_eq!(run_and_expose(long).await, Err(NOT_A_TOKEN.to_owned()));
    }

    #[tokio::test]
    async fn failure_reports_the_command_output_without_secrets() {
        let failed = run_and_expose("echo no svc_sec_1 for you >&2; echo svc_at_1; exit 3").await;
        let error = failed.expect_err("failed").to_string();
        insta::assert_snapshot!(
            error,
            @"--token-command failed (exit status: 3): no [redacted] for you"
        );
        let secret = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            redact(&format!("key={secret} is\u{7} bad"), ""),
            r"[redacted] is\u{7} bad"
        );
        assert_eq!(redact("got ab12cd34", "ab12cd34"), "got [redacted]");
    }

    #[tokio::test]
    async fn child_processes_end_when_the_waiting_task_is_aborted() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        let command = format!("(echo; exec sleep 1000) > '{}' & wait", pipe.display());
        let waiting = tokio::spawn(async move { run(&command).await.map(drop) });
        // The thread is detached, so that a read that never ends fails the test instead of blocking
        // it.
        let (reads, mut read) = tokio::sync::mpsc::channel(2);
        std::thread::spawn(move || {
            let mut pipe = std::fs::File::open(pipe).expect("a pipe");
            while let Ok(bytes) = pipe.read(&mut [0])
                && reads.blocking_send(bytes).is_ok()
                && bytes > 0
            {}
        });
        let started = tokio::time::timeout(DEADLINE, read.recv()).await;
        assert_eq!(started, Ok(Some(1)), "it has started");
        waiting.abort();
        let ended = tokio::time::timeout(DEADLINE, read.recv()).await;
        assert_eq!(ended, Ok(Some(0)), "nobody who could write is left");
    }

    fn has_token(token: &'static str) -> impl Fn(&TokenUpdate) -> bool {
        move |updates: &TokenUpdate| {
            let tokens = updates.tokens.as_ref();
            tokens.is_some_and(|tokens| tokens.current.expose_secret() == token)
        }
    }

    #[tokio::test]
    async fn refused_token_reruns_command_and_publishes_next_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let count = folder.path().join("count");
        let command = format!("echo >> {0}; echo svc_at_$(wc -l < {0})", count.display());
        let (updates, mut hears) = watch::channel(TokenUpdate::default());
        let (sender, status) = watch::channel(SenderStatus::default());
        let keeper = Keeper { command, updates };
        let task = tokio::spawn(keeper.run(status, std::future::pending()));
        let first = hears.wait_for(has_token("svc_at_1"));
        tokio::time::timeout(DEADLINE, first)
            .await
            .expect("in time")
            .expect("reported");
        sender.send_modify(|status| {
            status.token_print = Some(TokenFingerprint::of("svc_at_1"));
            status.token_taken = Some(false);
        });
        let second = hears.wait_for(has_token("svc_at_2"));
        tokio::time::timeout(DEADLINE, second)
            .await
            .expect("in time")
            .expect("reported");
        drop(sender);
        tokio::time::timeout(DEADLINE, task)
            .await
            .expect("in time")
            .expect("well");
    }
}
