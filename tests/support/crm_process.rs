//! The CRM: `callbridge sandbox` as a separate process that can be stopped and restarted.

use crate::support::judge::wire::ask;
use callbridge_testbed::wait::soon;
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running CRM. With the flag `--state`, it keeps its records when it restarts.
pub struct Crm {
    folder: TempDir,
    flags: Vec<String>,
    running: Mutex<Option<(Child, SocketAddr)>>,
}

impl Crm {
    /// Starts the CRM with this token and these flags.
    pub async fn start(token: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("token"), token).expect("written");
        let crm = Self {
            folder,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            running: Mutex::new(None),
        };
        crm.restart().await;
        crm
    }

    /// Starts the CRM again, on another port.
    pub async fn restart(&self) {
        let token = self.folder.path().join("token");
        let mut child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
            .env_clear()
            .args(["sandbox", "--listen=127.0.0.1:0", "--leads=4001-4009"])
            .arg(format!("--token-file={}", token.display()))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let out = child.stdout.take().expect("piped");
        let mut lines = BufReader::new(out).lines();
        let line = soon("the CRM's address", lines.next_line()).await;
        let line = line.expect("a line").expect("a line");
        let addr = line.split_once("http://").expect("an address").1;
        let addr = addr.parse().expect("an address");
        *self.running() = Some((child, addr));
    }

    /// Kills the CRM.
    pub async fn kill(&self) {
        let (mut child, _) = self.running().take().expect("it runs");
        child.kill().await.expect("it is killed");
    }

    fn running(&self) -> MutexGuard<'_, Option<(Child, SocketAddr)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn addr(&self) -> SocketAddr {
        self.running().as_ref().expect("it runs").1
    }

    /// Returns the JSON under `/sandbox/{path}`.
    pub async fn look(&self, path: &str) -> Value {
        let answer = ask(self.addr(), "GET", &format!("/sandbox/{path}"), "").await;
        let answer = answer.expect("an answer");
        serde_json::from_slice(&answer.body).expect("JSON")
    }

    /// Makes a change that a person could make in the CRM.
    pub async fn admin(&self, act: &str, body: &str) {
        let path = format!("/sandbox/admin/{act}");
        let answer = ask(self.addr(), "POST", &path, body).await;
        let answer = answer.expect("an answer");
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, 200, "{act}: {text}");
    }

    /// Sets the call grants of the first company's connection to these scopes.
    pub async fn grant(&self, scopes: &[&str]) {
        let grants: Vec<String> = scopes
            .iter()
            .map(|scope| format!("\"PERMISSION_OPEN_API_CALL:{scope}\""))
            .collect();
        let body = format!("{{\"grants\": [{}]}}", grants.join(", "));
        self.admin("grants", &body).await;
    }

    /// Issues a token, which makes the previous token of the same company invalid (§5.3).
    pub async fn issue(&self, token: &str, company: i64) {
        let body = format!("{{\"issue\": \"{token}\", \"company\": {company}}}");
        self.admin("token", &body).await;
    }
}
