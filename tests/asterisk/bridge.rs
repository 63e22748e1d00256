//! The program under test: the real binary, which listens over AMI and writes to the sandbox CRM.

use crate::pbx::SECRET;
use crate::system::Driver;
use crate::truth::number;
use crate::wait;
use anyhow::{Context, Error, Result, bail, ensure};
use callbridge_model::Status;
use callbridge_model::status::SourceState;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::lead::administer;
use callbridge_sandbox::token::{Grant, IdSet};
use callbridge_sandbox::{Record, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const TOKEN: &str = "svc_pat_live";
/// Both carriers, and the digit dialed for an outside line.
const TRUNKS: [(&str, char); 2] = [("city", '9'), ("gsm", '8')];
/// All employees with a phone.
const FLAGS: [&str; 4] = [
    "--employees=101:501;102:502;103:503;104:504;105-desk:505",
    "--lead-directory",
    "--field=phone=clientPhone",
    // These tests do not depend on the rate.
    "--rate=1000/1s",
];

/// Customers whose leads have a name and a responsible employee: 101.
const LEADS: [(u32, &str); 2] = [(1, "Anna, \"VIP\" ${SHELL(id)}"), (2, "Olim")];

/// Returns the state of the AMI connection. The catch-up file is another source.
pub fn line(status: &Status) -> Option<SourceState> {
    let mut sources = status.sources.iter();
    let ami = sources.find(|source| source.url.starts_with("ami:"));
    ami.map(|source| source.state)
}

/// callbridge with its CRM, its state, and its log.
pub struct Bridge {
    folder: TempDir,
    crm: Server,
    flags: Vec<String>,
    lookup: u16,
    child: Option<Child>,
}

impl Bridge {
    /// Prepares callbridge for [`start`](Self::start), with these flags in addition to the usual
    /// ones. Dialplans look up callers on port `lookup`.
    pub async fn new(driver: Driver, flags: &[String], lookup: u16) -> Result<Self> {
        // An error means that another test has already installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("token"), TOKEN)?;
        let mut config = sandbox::Config {
            token: TOKEN.into(),
            ..sandbox::Config::default()
        };
        config.settings.persist_after = Duration::ZERO;
        config.settings.persist_jitter = Duration::ZERO;
        config.settings.rate.requests = 100_000;
        config.settings.company.leads = IdSet::parse("4001-4009").map_err(Error::msg)?;
        let read = Grant::parse("PERMISSION_OPEN_API_LEAD:READ");
        config.settings.company.grants.extend(read);
        let crm = sandbox::start(config).await?;
        for (n, name) in LEADS {
            let lead = json!({
                "id": 4000 + n, "name": name, "responsibleId": 501,
                "contacts": [{"name": name, "phones": [number(n)]}],
            });
            let lead = lead.to_string();
            crm.admin(|core, _| administer(core, "lead/update", lead.as_bytes()))
                .map_err(Error::msg)?;
        }
        let mut all = vec!["run".to_owned(), format!("--crm-url={}", crm.url())];
        for (flag, name) in [("token-file", "token"), ("state", "state")] {
            all.push(format!("--{flag}={}", folder.path().join(name).display()));
        }
        all.push("--pbx-id=live".to_owned());
        // A catch-up file has no variables.
        let leads = (1..=6).map(|n| format!("+99890111000{n},400{n}\n"));
        let leads = format!("phone,leadId\n{}", leads.collect::<String>());
        fs::write(folder.path().join("leads.csv"), leads)?;
        let leads = folder.path().join("leads.csv");
        all.push(format!("--lead=var:LEAD_ID;csv:{}", leads.display()));
        all.extend(TRUNKS.map(|(trunk, strip)| {
            let device = driver.device(trunk);
            format!("--trunk={trunk}={device},country=UZ,strip={strip}")
        }));
        all.extend(FLAGS.map(str::to_owned));
        all.push(format!("--lookup=127.0.0.1:{lookup}"));
        all.extend_from_slice(flags);
        Ok(Self {
            folder,
            crm,
            flags: all,
            lookup,
            child: None,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callbridge"));
        command
            .env_clear()
            .env("CALLBRIDGE_AMI_SECRET", SECRET)
            .env("CALLBRIDGE_STATE", self.path("state"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts callbridge. Returns when callbridge is connected to the PBX.
    pub async fn start(&mut self) -> Result<()> {
        let mut log = fs::OpenOptions::new();
        let log = log.append(true).create(true).open(self.path("log"))?;
        let mut command = self.command();
        command.args(&self.flags).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn()?);
        self.wait_until_connected().await
    }

    /// Waits until callbridge is connected to the PBX.
    pub async fn wait_until_connected(&mut self) -> Result<()> {
        // Before the first call, callbridge does not know whether events arrive.
        let heard = self.wait_until("callbridge hearing the PBX", |status| {
            line(status).is_some_and(SourceState::is_up)
        });
        heard.await.map(drop)
    }

    /// Kills callbridge, as a power failure would.
    pub async fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("it does not run")?;
        child.kill().await?;
        Ok(())
    }

    /// Waits until a lookup returns this customer and the responsible employee.
    pub async fn wait_until_caller_is_known(&self, customer: u32) -> Result<()> {
        let (phone, at) = (number(customer).replace('+', "%2B"), self.lookup);
        let request =
            format!("GET /caller?trunk=city&phone={phone} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n");
        let known = wait::repeat_until("the caller to be known", async || {
            let mut line = TcpStream::connect(("127.0.0.1", at)).await?;
            line.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            line.read_to_string(&mut answer).await?;
            Ok(answer.contains("\"extension\":\"101\"").then_some(()))
        });
        known.await.with_context(|| self.log())
    }

    /// Stops callbridge with SIGSTOP, as a machine without free memory would.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets callbridge continue after [`freeze`](Self::freeze).
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("it does not run")?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).context("an id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Returns `true` if callbridge was killed or stopped.
    pub fn is_down(&self) -> bool {
        self.child.is_none()
    }

    /// Stops callbridge as an administrator would.
    pub async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let mut child = self.child.take().context("it does not run")?;
        let ended = wait::finish_in_time("its end", child.wait()).await??;
        ensure!(ended.success(), "{ended}: {}", self.log());
        Ok(())
    }

    async fn lines(&self, words: &[&str]) -> Result<Vec<Value>> {
        let output = self.command().args(words).output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {stderr}");
        let text = String::from_utf8(output.stdout)?;
        text.lines()
            .map(|line| serde_json::from_str(line).context("JSON"))
            .collect()
    }

    /// Returns the status from `status --json`.
    pub async fn status(&self) -> Result<Status> {
        let mut lines = self.lines(&["status", "--json"]).await?;
        let status = lines.pop().context("no status")?;
        Ok(serde_json::from_value(status)?)
    }

    /// Waits until the status meets a condition. `what` names the condition.
    pub async fn wait_until(
        &mut self,
        what: &str,
        holds: impl Fn(&Status) -> bool,
    ) -> Result<Status> {
        let reached = wait::repeat_until(what, async || {
            if let Some(child) = &mut self.child
                && let Some(ended) = child.try_wait()?
            {
                bail!("callbridge ended: {ended}");
            }
            let output = self.command().args(["status", "--json"]).output().await?;
            let status: Option<Status> = serde_json::from_slice(&output.stdout).ok();
            Ok(status.filter(&holds))
        });
        let reached = reached.await;
        reached.with_context(|| self.log())
    }

    /// Returns the CRM's journal.
    pub fn journal(&self) -> Vec<Record> {
        self.crm.journal()
    }

    /// Returns callbridge's violations of the CRM's document.
    pub fn violations(&self) -> Vec<String> {
        let breaches = self.crm.violations();
        let words = breaches.iter();
        words
            .map(|breach| format!("{:?}: {}", breach.kind, breach.words))
            .collect()
    }

    /// Returns dead letters and waiting calls.
    pub async fn letters(&self) -> Result<Vec<Value>> {
        let mut letters = self.lines(&["dead", "list", "--json"]).await?;
        letters.extend(self.lines(&["dead", "list", "--waiting", "--json"]).await?);
        letters.sort_by_key(|letter| letter["id"].as_i64());
        Ok(letters)
    }

    /// Returns callbridge's log.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.path("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
