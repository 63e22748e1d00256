//! A state folder of another user, and a CRM. Tests run commands as root and as that user.

use crate::commands::sidecar::{PBX, Place, TRUNK, start_crm, wait_for};
use callbridge_oauth::Connection;
use callbridge_sandbox::Server;
use callbridge_sandbox::oauth::Application;
use callbridge_sandbox::token::TokenKey;
use callbridge_spool::StoredConnection;
use callbridge_testbed::calls::Call;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// The ids of the other user and group, which have no name.
pub const UID: u32 = 61_234;
pub const GID: u32 = 61_235;
/// The beginning of the command line that the error for root shows.
pub const SUDO: &str = "sudo -u '#61234'";
/// The application of the stored connection, and its secret.
const CLIENT: &str = "svc_app_1";
const SECRET: &str = "svc_sec_1";

/// Returns `true` if this process is root. Otherwise, prints that the test called `test` did not
/// run.
pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        report_not_run(test, "needs root");
    }
    root
}

/// Prints to stderr directly that a test did not run, because the test harness hides the output of
/// passing tests.
fn report_not_run(test: &str, why: &str) {
    let line = format!("\nnot run: {test} ({why})\n");
    let written = std::io::stderr().write_all(line.as_bytes());
    written.expect("stderr");
}

/// A place that the other user can enter, and a CRM.
pub struct Stage {
    pub place: Place,
    pub crm: Server,
}

impl Stage {
    /// Creates a stage with a call, and with secrets in files that only root can read.
    pub async fn new() -> Self {
        let crm = start_crm(|config| {
            let application = Application {
                secret: TokenKey::from_value(SECRET),
                redirect_uris: vec!["http://127.0.0.1:8700/".to_owned()],
                ..Application::new(CLIENT.to_owned())
            };
            config.settings.application = Some(application);
        });
        let stage = Self {
            crm: crm.await,
            place: Place::new(),
        };
        set_mode(&stage.place.path(""), 0o755);
        set_mode(&stage.place.path("token"), 0o600);
        let secret = stage.place.write("client.secret", SECRET);
        set_mode(&secret, 0o600);
        let calls = stage.place.write("calls.ami", Call::new(1, 4001).ami());
        set_mode(&calls, 0o644);
        stage
    }

    /// Creates an empty folder of the other user.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.place.path(name);
        std::fs::create_dir_all(&path).expect("made");
        set_mode(&path, 0o700);
        give_to_user(&path);
        path
    }

    /// Returns the flags of `run` for this folder, without a token.
    pub fn flags(&self, state: &Path) -> Vec<String> {
        vec![
            format!("--crm-url={}", self.crm.url()),
            format!("--auth-url={}", self.crm.auth_url()),
            format!("--state={}", state.display()),
            format!("--pbx-id={PBX}"),
            format!("--trunk={TRUNK}"),
            "--rate=1000/1s".to_owned(),
            self.place.source("calls.ami"),
        ]
    }

    /// Returns the flags of `run` for this folder, with the token that only root can read.
    pub fn token_flags(&self, state: &Path) -> Vec<String> {
        let mut flags = self.flags(state);
        let token = self.place.path("token");
        flags.push(format!("--token-file={}", token.display()));
        flags
    }

    /// Returns the arguments of a `connect` that does not wait for a person.
    pub fn connect_arguments(&self, state: &Path) -> Vec<String> {
        let secret = self.place.path("client.secret");
        vec![
            "connect".to_owned(),
            format!("--crm-url={}", self.crm.url()),
            format!("--auth-url={}", self.crm.auth_url()),
            format!("--consent-url={}/consent", self.crm.url()),
            format!("--client-id={CLIENT}"),
            format!("--client-secret-file={}", secret.display()),
            "--redirect-uri=https://elsewhere.example/back".to_owned(),
            format!("--state={}", state.display()),
        ]
    }

    /// Returns a stored connection of the application.
    pub fn connection(&self) -> StoredConnection {
        let golden = include_str!("../../golden/connection.json");
        let mut stored: serde_json::Value = serde_json::from_str(golden).expect("JSON");
        stored["crmUrl"] = format!("{}/", self.crm.url()).into();
        stored["authUrl"] = format!("{}/", self.crm.auth_url()).into();
        for gone in ["over", "caFile", "proxy", "refreshBeganAt", "refusedAt"] {
            stored.as_object_mut().expect("an object").remove(gone);
        }
        let stored = Connection::from_json(&stored.to_string());
        stored.expect("a connection").stored()
    }
}

/// Makes the other user the owner of a path. If the path is a link, changes the link and not its
/// target.
pub fn give_to_user(path: &Path) {
    lchown(path, Some(UID), Some(GID)).expect("given");
}

/// Makes the other user the owner of a file. If the path is a link, changes its target.
pub fn give_file_to_user(path: &Path) {
    chown(path, Some(UID), Some(GID)).expect("given");
}

pub fn set_mode(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("set");
}

/// Runs a copy of the program to its end as the other user.
pub async fn run_as_user(place: &Place, arguments: &[String]) -> Output {
    let program = place.path("callbridge");
    if !program.exists() {
        // Another process copies the program. If this process had the copy open, programs that
        // other tests start at the same time would keep the copy open too.
        let mut cp = std::process::Command::new("cp");
        cp.arg(env!("CARGO_BIN_EXE_callbridge")).arg(&program);
        assert!(cp.status().expect("cp").success());
        set_mode(&program, 0o755);
    }
    let running = tokio::process::Command::new(program)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .uid(UID)
        .gid(GID)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    wait_for("the end of the program", running)
        .await
        .expect("the program runs")
}

/// Asserts that the folder and everything in it belong to the other user.
pub fn assert_user_owns(folder: &Path) {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    for path in paths.chain([folder.to_path_buf()]) {
        let metadata = path.symlink_metadata().expect("there");
        assert_eq!(
            (metadata.uid(), metadata.gid()),
            (UID, GID),
            "{}",
            path.display()
        );
    }
}
