//! What the page is looked at with: a daemon that has journaled calls, letters of several reasons,
//! numbers without a lead, a call that goes on, and names that nobody should have chosen.

use anyhow::{Context as _, Result, bail};
use callbridge_sandbox as sandbox;
use callbridge_testbed::calls::{Call, recording};
use callbridge_testbed::port::free_port;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The trunk of the calls, and one that no call comes over.
const TRUNKS: [&str; 2] = [
    "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
    "--trunk=spare=PJSIP/spare,country=UZ,lead=var:LEAD_ID",
];
const WITHIN: Duration = Duration::from_secs(120);
/// Calls of the stage.
const CALLS: u32 = 60;
/// A lead that the sandbox does not have.
const UNKNOWN_LEAD: i64 = 9_001;

/// Everything, at work.
pub struct Stage {
    folder: tempfile::TempDir,
    pub crm: sandbox::Server,
    /// Of the page: the same over a restart.
    port: u16,
    daemon: Option<Child>,
}

impl Stage {
    pub async fn set() -> Result<Self> {
        let mut config = sandbox::Config::default();
        config.settings.persist_after = Duration::ZERO;
        config.settings.persist_jitter = Duration::ZERO;
        config.settings.rate.requests = 100_000;
        let crm = sandbox::start(config).await.context("a sandbox")?;
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("token"), "svc_pat_sandbox")?;
        std::fs::write(path("calls.ami"), told())?;
        let mut stage = Self {
            folder,
            crm,
            port: free_port(),
            daemon: None,
        };
        stage.start().await?;
        Ok(stage)
    }

    /// Starts the daemon, and waits until all is settled.
    pub async fn start(&mut self) -> Result<()> {
        let shown = |name: &str| self.folder.path().join(name).display().to_string();
        let daemon = Command::new(env!("CARGO_BIN_EXE_callbridge"))
            .arg("run")
            .arg(format!("--crm-url={}", self.crm.url()))
            .arg(format!("--token-file={}", shown("token")))
            .arg(format!("--state={}", shown("state")))
            .args(["--pbx-id=hq", "--rate=1000/1s"])
            .arg(format!("--page=127.0.0.1:{}", self.port))
            .arg("--employees=101:501;102:502")
            .arg("--pbx-timezone=Asia/Tashkent")
            .args(TRUNKS)
            .arg(format!(
                "--source=file://{}?format=ami&from=start",
                shown("calls.ami")
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(shown("log"))?)
            .kill_on_drop(true)
            .spawn()?;
        self.daemon = Some(daemon);
        self.until_settled().await
    }

    /// As `kill -9`.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().await?;
        }
        Ok(())
    }

    /// What a command says as JSON.
    pub async fn ask(&self, words: &[&str]) -> Result<String> {
        ask(&self.folder.path().join("state"), words).await
    }

    async fn until_settled(&self) -> Result<()> {
        let mut looks = tokio::time::interval(Duration::from_millis(100));
        let settled = async {
            loop {
                looks.tick().await;
                let Ok(said) = self.ask(&["status", "--json"]).await else {
                    continue;
                };
                let Ok(status) = serde_json::from_str::<Value>(&said) else {
                    continue;
                };
                let books = &status["books"];
                let count = |name: &str| books[name].as_u64().unwrap_or(0);
                let over = count("journaled") + count("dead") + count("parked");
                if over == u64::from(CALLS) {
                    return;
                }
            }
        };
        let waited = tokio::time::timeout(WITHIN, settled).await;
        let log = self.folder.path().join("log");
        waited.with_context(|| std::fs::read_to_string(log).unwrap_or_default())
    }

    /// A link to the page.
    pub async fn link(&self) -> Result<String> {
        link(&self.folder.path().join("state")).await
    }

    /// The id and the uuid of a letter that FAILED.
    pub async fn failed_letter(&self) -> Result<(u64, String)> {
        let said = self
            .ask(&["dead", "list", "--json", "--reason=failed"])
            .await?;
        let first = said.lines().next().context("a letter")?;
        let letter: Value = serde_json::from_str(first)?;
        let id = letter["id"].as_u64().context("an id")?;
        let uuid = letter["uuid"].as_str().context("a uuid")?;
        Ok((id, uuid.to_owned()))
    }
}

/// What a command says of the daemon of this state.
pub async fn ask(state: &Path, words: &[&str]) -> Result<String> {
    let said = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args(words)
        .arg(format!("--state={}", state.display()))
        .stdin(Stdio::null())
        .output()
        .await?;
    let words = String::from_utf8_lossy(&said.stderr).into_owned();
    if !said.status.success() {
        bail!("{words}");
    }
    Ok(String::from_utf8(said.stdout)?)
}

/// The link that `callbridge page` prints.
pub async fn link(state: &Path) -> Result<String> {
    let said = ask(state, &["page"]).await?;
    let url = said.trim().strip_prefix("open: ").context("a link")?;
    Ok(url.to_owned())
}

/// The recording: of each four calls one has an unknown lead and one has none; the last goes on.
fn told() -> String {
    let call = |n: u32| match n % 4 {
        0 => Call::without_lead(n),
        1 => Call::new(n, UNKNOWN_LEAD),
        _ => Call::new(n, 4_002),
    };
    let calls: Vec<Call> = (1..=CALLS).map(call).collect();
    let hostile = "<script>alert(1)</script>\u{202e}gnp.exe";
    let begun = Call {
        begins: callbridge_testbed::calls::now(),
        ..Call::new(CALLS + 1, 4_002)
    };
    let begun = begun.ami();
    let end = begun.find("Event: Hangup").unwrap_or(begun.len());
    let text = recording(&calls).replace("CallerIDName: ", &format!("CallerIDName: {hostile} "));
    format!("{text}{}", &begun[..end])
}
