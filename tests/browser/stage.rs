//! The daemon that the page shows. It has five hundred calls, 51 dead letters of six leads that the
//! CRM does not have, 28 numbers without a lead, a customer who waits and was called back in vain,
//! a call whose end was not received, a call that is still open, and hostile names. It is also a
//! hub with one branch that reports, one with problems, and one that never reported.

use anyhow::{Context as _, Result, bail};
use callbridge_sandbox as sandbox;
use callbridge_testbed::calls::{Call, moved_to, now, recording};
use callbridge_testbed::port::free_port;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The trunk of the calls, and a trunk without calls.
const TRUNKS: [&str; 2] = [
    "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
    "--trunk=spare=PJSIP/spare,country=UZ,lead=var:LEAD_ID",
];
const WITHIN: Duration = Duration::from_secs(120);
/// Number of calls, and the seconds from one to the next.
const CALLS: u32 = 500;
const STEP: i64 = 100;
/// The first calls fail: the sandbox does not have the six leads from this one on.
pub const FAILED: u32 = 51;
pub const UNKNOWN_LEAD: i64 = 9_001;
pub const UNKNOWN_LEADS: i64 = 6;
/// This many calls after them have no lead.
pub const NUMBERS: u32 = 28;
/// Additional calls: a missed one, the call back in vain, and one whose end was not received.
const BESIDE: u32 = 3;
/// A call is over after at most twelve hours. This one began before that.
const LONG_AGO: i64 = 13 * 3600;
const MISSED: &str = include_str!("../recordings/inbound_no_answer/ami.raw");
const IN_VAIN: &str = include_str!("../recordings/outbound_no_answer/ami.raw");

/// The running daemon and its CRM.
pub struct Stage {
    folder: tempfile::TempDir,
    pub crm: sandbox::Server,
    /// The page's port, which stays the same over a restart.
    port: u16,
    /// The port of `--collect`.
    collect: u16,
    daemon: Option<Child>,
}

impl Stage {
    pub async fn prepare() -> Result<Self> {
        let mut config = sandbox::Config::default();
        config.settings.persist_after = Duration::ZERO;
        config.settings.persist_jitter = Duration::ZERO;
        config.settings.rate.requests = 100_000;
        let crm = sandbox::start(config).await.context("a sandbox")?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("token"), "svc_pat_sandbox")?;
        std::fs::write(folder.path().join("calls.ami"), recorded_calls())?;
        let mut stage = Self {
            folder,
            crm,
            port: free_port(),
            collect: free_port(),
            daemon: None,
        };
        stage.start().await?;
        stage.add_branches().await?;
        Ok(stage)
    }

    /// Adds the branches, and reports as their collectors do.
    async fn add_branches(&self) -> Result<()> {
        self.add_branch("bukhara", None).await?;
        self.add_branch("samarkand", Some(&[])).await?;
        let problems = [
            "source ami://pbx.khiva: no connection for 12 min: connection refused; start the PBX",
            "2 dead letters `incomplete`; see callbridge dead list",
        ];
        let long = "the-branch-in-khiva-with-a-name-that-needs-two-lines";
        self.add_branch(long, Some(&problems)).await
    }

    async fn add_branch(&self, name: &str, problems: Option<&[&str]>) -> Result<()> {
        let pbx = format!("pbx-{name}");
        let words = ["branch", "add", name, "--pbx", &pbx, "--json"];
        let added: Value = serde_json::from_str(&self.ask(&words).await?)?;
        let token = added["token"].as_str().context("a token")?;
        let Some(problems) = problems else {
            return Ok(());
        };
        let verdict = if problems.is_empty() {
            "ok"
        } else {
            "attention"
        };
        let report = json!({
            "version": "0.1.0", "at": now(), "verdict": verdict, "backlog": problems.len() * 40,
            "oldestCallAt": now() - 300, "waiting": 3, "dead": problems.len(), "forwarded": 812,
            "problems": problems,
        });
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy();
        let request = (client.build()?)
            .post(format!("http://127.0.0.1:{}/v1/report", self.collect))
            .bearer_auth(token)
            .body(report.to_string());
        request.send().await?.error_for_status()?;
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts the daemon, and waits until it has sent all calls.
    pub async fn start(&mut self) -> Result<()> {
        let daemon = Command::new(env!("CARGO_BIN_EXE_callbridge"))
            .env_remove("CALLBRIDGE_AXE")
            .arg("run")
            .arg(format!("--crm-url={}", self.crm.url()))
            .arg(format!("--token-file={}", self.path("token")))
            .arg(format!("--state={}", self.path("state")))
            .args(["--pbx-id=hq", "--rate=1000/1s"])
            .arg(format!("--page=127.0.0.1:{}", self.port))
            .arg(format!("--collect=127.0.0.1:{}", self.collect))
            .arg("--employees=101:501;102:502")
            .arg("--pbx-timezone=Asia/Tashkent")
            .args(TRUNKS)
            .arg(format!(
                "--source=file://{}?format=ami&from=start",
                self.path("calls.ami")
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.path("log"))?)
            .kill_on_drop(true)
            .spawn()?;
        self.daemon = Some(daemon);
        self.wait_until_settled().await
    }

    /// Kills the daemon with SIGKILL.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().await?;
        }
        Ok(())
    }

    /// Runs a command for this state, and returns its output.
    pub async fn ask(&self, words: &[&str]) -> Result<String> {
        ask(&self.folder.path().join("state"), words).await
    }

    async fn wait_until_settled(&self) -> Result<()> {
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
                let counts = ["journaled", "dead", "waiting"].map(|name| books[name].as_u64());
                let over: u64 = counts.into_iter().flatten().sum();
                if over == u64::from(CALLS + BESIDE) {
                    return;
                }
            }
        };
        let waited = tokio::time::timeout(WITHIN, settled).await;
        let log = self.folder.path().join("log");
        waited.with_context(|| std::fs::read_to_string(log).unwrap_or_default())
    }

    /// Returns a link to the page.
    pub async fn link(&self) -> Result<String> {
        link(&self.folder.path().join("state")).await
    }

    /// Returns the id and the uuid of a dead letter with the reason `failed`.
    pub async fn failed_letter(&self) -> Result<(u64, String)> {
        let output = self
            .ask(&["dead", "list", "--json", "--reason=failed"])
            .await?;
        let first = output.lines().next().context("a letter")?;
        let letter: Value = serde_json::from_str(first)?;
        let id = letter["id"].as_u64().context("an id")?;
        let uuid = letter["uuid"].as_str().context("a uuid")?;
        Ok((id, uuid.to_owned()))
    }
}

/// Runs a command for the daemon of this state, and returns its output.
pub async fn ask(state: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args(words)
        .arg(format!("--state={}", state.display()))
        .stdin(Stdio::null())
        .output()
        .await?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{words}");
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the link that `callbridge page` prints.
pub async fn link(state: &Path) -> Result<String> {
    let output = ask(state, &["page"]).await?;
    let url = output.trim().strip_prefix("open: ").context("a link")?;
    Ok(url.to_owned())
}

/// Returns the first number without a lead.
pub fn first_number() -> String {
    Call::without_lead(FAILED + 1).phone()
}

/// Returns the recording. Its last call is still open.
fn recorded_calls() -> String {
    let now = now();
    let calls: Vec<Call> = (1..=CALLS).map(|n| numbered_call(n, now)).collect();
    let hostile = "<script>alert(1)</script>\u{202e}gnp.exe";
    let half = events_until(CALLS + 2, now - LONG_AGO, "Event: BridgeEnter");
    let missed = moved_to(MISSED, now - 700).replace("LEAD_ID=\r\n", "LEAD_ID=4002\r\n");
    let in_vain = moved_to(IN_VAIN, now - 500);
    let begun = events_until(CALLS + 1, now, "Event: Hangup");
    let text = recording(&calls).replace("CallerIDName: ", &format!("CallerIDName: {hostile} "));
    format!("{half}{text}{}{}{begun}", events(&missed), events(&in_vain))
}

/// Returns the n-th call. The last call begins ten steps before `now`.
fn numbered_call(n: u32, now: i64) -> Call {
    let base = match n {
        1..=FAILED => Call::new(n, UNKNOWN_LEAD + i64::from(n) % UNKNOWN_LEADS),
        n if n <= FAILED + NUMBERS => Call::without_lead(n),
        _ => Call::new(n, 4_002),
    };
    let begins = now - STEP * i64::from(CALLS + 10 - n);
    Call { begins, ..base }
}

/// Returns the events of a call before the first event that begins with `event`.
fn events_until(n: u32, begins: i64, event: &str) -> String {
    let call = Call {
        begins,
        ..Call::new(n, 4_002)
    };
    let text = call.ami();
    let end = text.find(event).unwrap_or(text.len());
    text[..end].to_owned()
}

/// Returns the events without the greeting of a new connection.
fn events(recorded: &str) -> &str {
    let after = recorded.split_once("Fully Booted\r\n\r\n");
    after.map_or(recorded, |(_, events)| events)
}
