//! The program under test: the real binary with its own folder.

use callbridge::{ControlReply, ControlRequest, socket};
use callbridge_model::Status;
use callbridge_model::status::Books;
use callbridge_spool::{ConnectionStore, StatePlace};
use callbridge_testbed::pbx::{self, FakePbx};
use callbridge_testbed::wait::{DEADLINE, soon, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The token that the sandbox accepts.
pub const TOKEN: &str = "svc_pat_of_the_tests";
/// `run` must end within this time after SIGTERM. Time in which the machine was overloaded does not
/// count.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

const BINARY: &str = env!("CARGO_BIN_EXE_callbridge");

/// A folder with the state, secrets, and lists of one callbridge.
pub struct Place {
    folder: TempDir,
    state: StatePlace,
    runs: AtomicU32,
}

impl Place {
    /// Creates a folder with a token file. `tests/run` keeps such folders in memory.
    pub fn new() -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder"))
    }

    /// Creates a folder on a disk, for tests of kills and of writes.
    pub fn on_disk() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        Self::in_folder(folder.expect("a folder"))
    }

    fn in_folder(folder: TempDir) -> Self {
        let state = StatePlace::Folder(folder.path().join("state"));
        Self::with_state(folder, state)
    }

    /// Creates a folder for a callbridge whose state is in this database.
    pub fn in_database(url: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StatePlace::in_database(url, folder.path()).expect("a URL");
        Self::with_state(folder, state)
    }

    fn with_state(folder: TempDir, state: StatePlace) -> Self {
        let runs = AtomicU32::new(0);
        let place = Self {
            folder,
            state,
            runs,
        };
        place.write("token", TOKEN);
        place
    }

    /// Returns the value of `--state`.
    pub fn state(&self) -> String {
        self.state.flag()
    }

    /// Returns the folder of the socket for commands.
    pub fn socket_folder(&self) -> PathBuf {
        self.state.socket_folder().to_path_buf()
    }

    /// Returns the store of the OAuth connection.
    pub fn connections(&self) -> ConnectionStore {
        self.state.connections()
    }

    /// Returns the variable that names the folder for sockets, if the state is in a database.
    fn runtime_directory(&self) -> Option<(&str, &Path)> {
        self.state.database()?;
        Some(("RUNTIME_DIRECTORY", self.folder.path()))
    }

    /// Returns the path of a file in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of a file as text, for a flag.
    pub fn path(&self, name: &str) -> String {
        self.at(name).to_str().expect("UTF-8").to_owned()
    }

    /// Replaces a file in one step, as an administrator's tool should. Returns its path.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let new = self.at(&format!("{name}.new"));
        fs::write(&new, text).expect("written");
        fs::rename(&new, self.at(name)).expect("renamed");
        self.path(name)
    }

    /// Appends to a file.
    pub fn append(&self, name: &str, bytes: &[u8]) {
        use std::io::Write as _;
        let mut how = fs::OpenOptions::new();
        let opened = how.create(true).append(true).open(self.at(name));
        let mut file = opened.expect("a file");
        file.write_all(bytes).expect("written");
    }

    /// Returns the flag `--source` for a file that is read from its start.
    pub fn file(&self, name: &str, format: &str) -> String {
        format!(
            "--source=file://{}?format={format}&from=start",
            self.path(name)
        )
    }

    /// Returns the flag `--source` for this manager. Its secret is in a file.
    pub fn ami(&self, pbx: &FakePbx) -> String {
        let secret = self.write("secret", pbx::SECRET);
        format!("--source=ami://bridge@{}?secret-file={secret}", pbx.addr())
    }

    /// Starts `callbridge run` against this CRM, with these flags in addition to the usual ones.
    pub fn run<S: AsRef<str>>(&self, crm: &str, flags: &[S]) -> Program {
        self.run_with(crm, flags, &[])
    }

    /// Starts `callbridge run` with additional environment variables.
    pub fn run_with<S: AsRef<str>>(
        &self,
        crm: &str,
        flags: &[S],
        variables: &[(&str, String)],
    ) -> Program {
        let variables: Vec<_> = variables.iter().map(|(k, v)| (*k, v.as_str())).collect();
        self.start(&self.arguments(crm, flags), &variables)
    }

    /// Returns the arguments of [`Place::run`].
    pub fn arguments<S: AsRef<str>>(&self, crm: &str, flags: &[S]) -> Vec<String> {
        let mut arguments = vec![
            "run".to_owned(),
            format!("--crm-url={crm}"),
            format!("--token-file={}", self.path("token")),
            format!("--state={}", self.state()),
            "--pbx-id=pbx1".to_owned(),
            "--employees=101:501;102:502;103:503;104:504;105-desk:505".to_owned(),
        ];
        arguments.extend(flags.iter().map(|flag| flag.as_ref().to_owned()));
        arguments
    }

    /// Starts the program with exactly these arguments and variables.
    pub fn start<S: AsRef<str>>(&self, arguments: &[S], variables: &[(&str, &str)]) -> Program {
        self.start_under(&[], arguments, variables)
    }

    /// Starts the program with a state of this name in its arguments.
    pub fn start_at<S: AsRef<str>>(
        &self,
        state: &str,
        arguments: &[S],
        variables: &[(&str, &str)],
    ) -> Program {
        let program = self.start(arguments, variables);
        Program {
            state: self.at(state),
            ..program
        }
    }

    /// Starts the program through a wrapper command, which must `exec` the program.
    pub fn start_under<S: AsRef<str>>(
        &self,
        wrapper: &[&str],
        arguments: &[S],
        variables: &[(&str, &str)],
    ) -> Program {
        let (log, file) = self.next_log();
        let words = wrapper.iter().copied().chain([BINARY]);
        let words = words.chain(arguments.iter().map(AsRef::as_ref));
        self.spawn(words, variables, file.into(), log)
    }

    /// Starts `callbridge run` as [`Place::run`] does, but with this stderr. The log file stays
    /// empty.
    pub fn run_with_stderr<S: AsRef<str>>(
        &self,
        crm: &str,
        flags: &[S],
        stderr: impl Into<Stdio>,
    ) -> Program {
        let arguments = self.arguments(crm, flags);
        let words = [BINARY].into_iter();
        let words = words.chain(arguments.iter().map(String::as_str));
        self.spawn(words, &[], stderr.into(), self.next_log().0)
    }

    fn next_log(&self) -> (PathBuf, fs::File) {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let log = self.at(&format!("log-{run}"));
        let file = fs::File::create(&log).expect("a file");
        (log, file)
    }

    fn spawn<'w>(
        &self,
        mut words: impl Iterator<Item = &'w str>,
        variables: &[(&str, &str)],
        stderr: Stdio,
        log: PathBuf,
    ) -> Program {
        let child = Command::new(words.next().expect("a program"))
            .env_clear()
            .envs(self.runtime_directory())
            .envs(variables.iter().copied())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        Program {
            child,
            state: self.state.socket_folder().to_path_buf(),
            log,
        }
    }

    /// Runs another command on the same state and waits until it exits.
    pub async fn command(&self, arguments: &[&str]) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_callbridge"))
            .env_clear()
            .env("CALLBRIDGE_STATE", self.state())
            .envs(self.runtime_directory())
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let words = format!("the end of {arguments:?}");
        soon(&words, output).await.expect("the program runs")
    }

    /// Returns the JSON lines of a command that must succeed.
    pub async fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.command(arguments).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Returns dead letters and waiting calls.
    pub async fn letters(&self) -> Vec<Value> {
        let mut letters = self.lines(&["dead", "list", "--json"]).await;
        letters.extend(self.lines(&["dead", "list", "--waiting", "--json"]).await);
        letters.sort_by_key(|letter| letter["id"].as_i64());
        letters
    }

    /// Returns the status of the daemon of this state. `None` if no daemon listens.
    pub async fn status(&self) -> Option<Status> {
        let status = status(self.state.socket_folder()).await?;
        serde_json::from_value(status).ok()
    }

    /// Returns the logs of all runs.
    pub fn logs(&self) -> String {
        let runs = self.runs.load(Ordering::Relaxed);
        (0..runs)
            .map(|run| read(&self.at(&format!("log-{run}"))))
            .collect()
    }
}

/// Asks the daemon of this state for its status, in the form of `status --json`. Returns `None` if
/// no daemon listens.
pub async fn status(state: &Path) -> Option<Value> {
    let answer = socket::ask(state, &ControlRequest::Status).await;
    match answer.ok()??.next().await.ok()?? {
        ControlReply::Item(status) => Some(status),
        ControlReply::Zone(_)
        | ControlReply::Ready
        | ControlReply::End { .. }
        | ControlReply::Error { .. } => None,
    }
}

/// Compiles a library for `LD_PRELOAD` that changes how the system behaves for the program. Returns
/// its path.
pub fn preload(place: &Place, source: &str) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/e2e")
        .join(source);
    let library = place.path(&format!("{source}.so"));
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o", &library]).arg(from);
    assert!(cc.status().expect("a C compiler").success());
    library
}

fn is_settled(books: &Books, finished: u64) -> bool {
    books.finished >= finished && books.settled()
}

/// Returns the number of finished calls plus the number of those that need no more requests. It
/// grows as long as the program works.
fn progress(books: &Books) -> u64 {
    books.finished + books.journaled + books.forwarded + books.dead + books.discarded
}

fn is_stopped(thread: std::io::Result<fs::DirEntry>) -> bool {
    let stat = thread.and_then(|thread| fs::read_to_string(thread.path().join("stat")));
    let stat = stat.unwrap_or_default();
    let after_name = stat.rsplit_once(") ");
    after_name.is_some_and(|(_, state)| state.starts_with('T'))
}

/// A running program.
pub struct Program {
    child: Child,
    state: PathBuf,
    log: PathBuf,
}

impl Program {
    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Returns the log of this run.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Returns the exit status, or `None` if the program still runs.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Returns the program's status, or `None` before the program listens.
    pub async fn status(&self) -> Option<Status> {
        let status = status(&self.state).await?;
        serde_json::from_value(status).ok()
    }

    /// Waits until the program's status meets a condition. `what` names the condition.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        let mut last = None;
        let log = self.log.clone();
        let look = until(what, async || {
            if let Some(ended) = self.has_ended() {
                panic!("it ended ({ended}) before {what}\n{}", read(&log));
            }
            last = self.status().await;
            last.as_ref().is_some_and(&holds)
        });
        let in_time = tokio::time::timeout(DEADLINE - Duration::from_secs(1), look).await;
        assert!(
            in_time.is_ok(),
            "{what} did not come; the last status was {last:#?}\n{}",
            read(&log)
        );
        last.expect("a status")
    }

    /// Waits until `finished` calls are finished and none is under way. A slow machine can need
    /// minutes for many calls, so the deadline begins again with each call that ends.
    pub async fn settled(&mut self, finished: u64) -> Status {
        let what = format!("the end of {finished} calls");
        let mut before = 0;
        loop {
            let status = self
                .until(&what, |status| {
                    is_settled(&status.books, finished) || progress(&status.books) > before
                })
                .await;
            if is_settled(&status.books, finished) {
                return status;
            }
            before = progress(&status.books);
        }
    }

    /// Kills the program with SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it is killed");
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("an id"), signal).expect("it hears");
    }

    /// Sends SIGSTOP and waits until each thread is stopped. Other threads continue to answer until
    /// the thread that handles the signal has run.
    pub async fn freeze(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.id());
        until("each thread stands still", async || {
            fs::read_dir(&threads).expect("threads").all(is_stopped)
        })
        .await;
    }

    /// Sends SIGTERM. Fails if the program does not exit with 0 in time.
    pub async fn terminate(self) {
        self.stop_with(Signal::TERM).await;
    }

    /// Sends a signal. Fails if the program does not exit with 0 in time.
    pub async fn stop_with(self, signal: Signal) {
        let (begun, stalled_before) = (Instant::now(), stalled_time());
        self.signal(signal);
        let log = self.log.clone();
        self.expect_success().await;
        let waited = stalled_time().saturating_sub(stalled_before);
        let took = begun.elapsed().saturating_sub(waited);
        assert!(
            took < STOPS_WITHIN,
            "it took {took:?}, and {waited:?} of waiting for the machine\n{}",
            read(&log)
        );
    }

    /// Sends the signal repeatedly until the program has ended. Returns the exit status.
    pub async fn insist(mut self, signal: Signal) -> ExitStatus {
        let mut ended = None;
        let insisting = until("its end", async || {
            self.signal(signal);
            ended = self.child.try_wait().expect("a child");
            ended.is_some()
        });
        insisting.await;
        ended.expect("an end")
    }

    /// Waits until the program ends, without a signal. Returns the exit status.
    pub async fn ended(mut self) -> ExitStatus {
        let ended = soon("the program's end", self.child.wait()).await;
        ended.expect("a child")
    }

    /// Waits until the program ends. Fails if its exit code is not 0.
    pub async fn expect_success(self) {
        let log = self.log.clone();
        let ended = self.ended().await;
        assert!(ended.success(), "{ended}\n{}", read(&log));
    }
}

/// Returns how long processes on this machine have waited for a core, the disk, or memory so far.
/// The program is not responsible for this time. Returns zero if the kernel does not count it.
fn stalled_time() -> Duration {
    let each = ["cpu", "io", "memory"].map(|of| {
        let text = fs::read_to_string(format!("/proc/pressure/{of}")).unwrap_or_default();
        let some = text.lines().find(|line| line.starts_with("some "));
        let total = some.and_then(|line| line.split_once("total=")?.1.parse().ok());
        Duration::from_micros(total.unwrap_or(0))
    });
    each.iter().sum()
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).expect("readable");
    String::from_utf8_lossy(&bytes).into_owned()
}
