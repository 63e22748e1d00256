//! Starts the program under test as a process, and a CRM in this process.

use crate::support::program;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::token::Grant;
use callbridge_sandbox::{Config, Server};
use callbridge_testbed::wait::pause_after;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// A test waits at most this long for one result, and then fails.
pub const DEADLINE: Duration = Duration::from_secs(180);
/// The token of the sandbox.
pub const TOKEN: &str = "svc_pat_sandbox";
/// The id of every PBX in these tests.
pub const PBX: &str = "test";
/// The trunk of every recording.
pub const TRUNK: &str = "city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";

/// Waits for `future`, and returns its output. After `DEADLINE`, panics with the name `what`.
pub async fn wait_for<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}

/// Calls `look` until it returns a value, and returns that value. After `DEADLINE`, panics with the
/// name `what`.
pub async fn poll_until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(pause_after(start.elapsed())).await;
        }
    };
    wait_for(what, looking).await
}

/// Starts a CRM on a free port in this process, with settings that `change` can adjust. Calls are
/// journaled at once.
pub async fn start_crm(change: impl FnOnce(&mut Config)) -> Server {
    // An error means that another test has already installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::default();
    config.settings.persist_after = Duration::ZERO;
    config.settings.persist_jitter = Duration::ZERO;
    // Most tests do not depend on the rate. Tests that do set a rate.
    config.settings.rate.requests = 100_000;
    change(&mut config);
    sandbox::start(config).await.expect("a sandbox")
}

/// Lets the sandbox's token also read leads.
pub fn grant_leads(crm: &Server) {
    let words = [
        "PERMISSION_OPEN_API_CALL:SAVE",
        "PERMISSION_OPEN_API_LEAD:READ",
    ];
    let grants = words.map(|word| Grant::parse(word).expect("a grant"));
    crm.admin(|core, now| core.set_grants(now, grants.to_vec()));
}

/// The output of a command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit code, or -1 after a signal.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// Returns the text on stdout. Panics if the exit code is not 0.
    pub fn expect_success(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Returns the JSON lines on stdout. Panics if the exit code is not 0.
    pub fn lines(self) -> Vec<Value> {
        json_lines(&self.expect_success())
    }
}

/// Parses one JSON value per line.
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

/// The folder of one test, with the state, the token, and recordings.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// Creates a folder with the sandbox's token in a file.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Self { folder };
        place.write("token", TOKEN);
        place
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Returns the flags that all `run` and `check` commands share, for a CRM at the URL `crm`.
    /// Tests add sources and other flags.
    pub fn flags(&self, crm: &str) -> Vec<String> {
        vec![
            format!("--crm-url={crm}"),
            format!("--token-file={}", self.path("token").display()),
            format!("--state={}", self.path("state").display()),
            format!("--pbx-id={PBX}"),
            format!("--trunk={TRUNK}"),
            "--rate=1000/1s".to_owned(),
        ]
    }

    /// Returns the shared flags with the recording in `name` as the source.
    pub fn flags_of_file(&self, crm: &str, name: &str) -> Vec<String> {
        let mut flags = self.flags(crm);
        flags.push(self.source(name));
        flags
    }

    /// Returns the `--source` flag for the recording in `name`, read from its start.
    pub fn source(&self, name: &str) -> String {
        let path = self.path(name);
        format!("--source=file://{}?format=ami&from=start", path.display())
    }

    fn command<S: AsRef<str>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callbridge"));
        command
            .args(arguments.iter().map(AsRef::as_ref))
            .env_clear()
            .env("HOME", self.folder.path())
            .env("CALLBRIDGE_AMI_SECRET", "secret of the manager")
            .env("CALLBRIDGE_AMQP_SECRET", "broker secret")
            .env("CALLBRIDGE_DEAD_LETTER_SECRET", "broker secret")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a command until it ends.
    pub async fn run_command<S: AsRef<str>>(&self, arguments: &[S]) -> CommandOutput {
        let shown: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let running = self.command(arguments).output();
        let output = wait_for(&format!("the end of {shown:?}"), running).await;
        let output = output.expect("it runs");
        CommandOutput {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// Runs a command, such as `dead list`, on the state of this place until it ends.
    pub async fn run_on_state(&self, words: &str) -> CommandOutput {
        let state = format!("--state={}", self.path("state").display());
        let mut arguments: Vec<&str> = words.split_whitespace().collect();
        arguments.push(&state);
        self.run_command(&arguments).await
    }

    /// Returns the dead letters and the waiting calls in the order of their ids, as
    /// `dead list --json` shows them. `more` has other flags of the command.
    pub async fn dead_letters(&self, more: &str) -> Vec<Value> {
        let mut letters = self
            .run_on_state(&format!("dead list --json {more}"))
            .await
            .lines();
        let waiting = format!("dead list --waiting --json {more}");
        letters.extend(self.run_on_state(&waiting).await.lines());
        letters.sort_by_key(|letter| letter["id"].as_i64());
        letters
    }

    /// Returns the output of `status --json`, or `None` if there is no daemon and no state, or if a
    /// starting daemon does not answer yet.
    pub async fn status(&self) -> Option<Value> {
        if let Some(status) = program::status(&self.path("state")).await {
            return Some(status);
        }
        let output = self.run_on_state("status --json").await;
        match output.code {
            0 => Some(json_lines(&output.out).remove(0)),
            69 | 75 => None,
            other => panic!("{other}: {}", output.err),
        }
    }

    /// Returns the number at a JSON pointer into the status, such as `/books/dead`.
    pub async fn number(&self, pointer: &str) -> Option<u64> {
        self.status().await?.pointer(pointer)?.as_u64()
    }

    /// Waits until the number at a JSON pointer into the status is `wanted`.
    pub async fn wait_for_number(&self, pointer: &str, wanted: u64) {
        let what = format!("{pointer} of {wanted} in {}", self.path("state").display());
        poll_until(&what, async || {
            (self.number(pointer).await == Some(wanted)).then_some(())
        })
        .await;
    }

    /// Starts a command that keeps running. Its stderr goes to the file `NAME.log`, and its stdout
    /// to `NAME.out`, both in the folder of the test.
    pub fn start_as<S: AsRef<str>>(&self, name: &str, arguments: &[S]) -> RunningCommand {
        let [log, out] = ["log", "out"].map(|end| self.path(&format!("{name}.{end}")));
        let mut command = self.command(arguments);
        let child = command
            .stdout(open_for_append(&out))
            .stderr(open_for_append(&log))
            .spawn();
        let child = child.expect("it starts");
        RunningCommand { child, log, out }
    }

    /// Starts a command whose stdout is a pipe.
    pub fn start_piped<S: AsRef<str>>(&self, arguments: &[S]) -> Child {
        let mut command = self.command(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        child.expect("it starts")
    }

    /// Starts `run` with these flags, and waits until the daemon answers a status request.
    pub async fn start_daemon(&self, flags: &[String]) -> RunningCommand {
        let mut arguments = vec!["run".to_owned()];
        arguments.extend_from_slice(flags);
        let mut daemon = self.start_as("run", &arguments);
        poll_until("a daemon that answers", async || {
            daemon.assert_running();
            program::status(&self.path("state")).await
        })
        .await;
        daemon
    }

    /// Runs `run --until-idle` with these flags. Panics if the exit code is not 0.
    pub async fn run_until_idle(&self, flags: &[String]) -> CommandOutput {
        let mut arguments = vec!["run".to_owned(), "--until-idle".to_owned()];
        arguments.extend_from_slice(flags);
        let output = self.run_command(&arguments).await;
        assert_eq!(output.code, 0, "{}", output.err);
        output
    }
}

/// Opens a file to which a command appends its output.
fn open_for_append(path: &Path) -> Stdio {
    let mut options = std::fs::OpenOptions::new();
    let file = options.append(true).create(true).open(path);
    Stdio::from(file.expect("a file"))
}

/// A running command, which is killed when this value is dropped.
pub struct RunningCommand {
    child: Child,
    log: PathBuf,
    out: PathBuf,
}

impl RunningCommand {
    fn assert_running(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            panic!("the command ended with {status}: {}", self.log());
        }
    }

    /// Returns the stderr of the command so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Returns the stdout of the command so far.
    pub fn out(&self) -> String {
        read(&self.out)
    }

    /// Returns the highest memory use of the command, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let id = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        kib.and_then(|number| number.parse().ok())
            .expect("a number")
    }

    /// Sends a signal and waits until the command ends. Returns the exit code, or -1 if the signal
    /// killed the command.
    pub async fn end(mut self, signal: Signal) -> i32 {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).expect("it runs");
        kill_process(pid, signal).expect("a signal");
        let status = wait_for("the end of the command", self.child.wait()).await;
        status.expect("a status").code().unwrap_or(-1)
    }

    /// Stops the command as an administrator would, with SIGTERM. Panics if the exit code is not 0.
    pub async fn stop(self) {
        let log = self.log.clone();
        let code = self.end(Signal::TERM).await;
        assert_eq!(code, 0, "{}", read(&log));
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).expect("a file")).into_owned()
}
