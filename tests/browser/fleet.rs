//! A sender with a standby's lease, around whose stream others speak, are silent or were stopped:
//! what Today and Fleet look like then.

use crate::stage::{ask, link};
use anyhow::{Context as _, Result};
use callbridge_sandbox as sandbox;
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, SECRET};
use callbridge_testbed::calls::now;
use callbridge_testbed::port::free_port;
use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

const WITHIN: Duration = Duration::from_secs(120);
const WORDS: &str = "application/vnd.callbridge.words+json; version=1";
const CALLS: &str = "application/vnd.callbridge.call+json; version=1";
/// A name that nobody should have chosen, as long as one may be.
const HOSTILE: &str = "<b>филиал</b>\u{202e}gnp.exe-and-a-machine-with-a-name-that-does-not-end";

/// The sender, at work.
pub struct Fleet {
    folder: tempfile::TempDir,
    _node: Broker,
    _crm: sandbox::Server,
    _sender: Child,
}

impl Fleet {
    /// Starts it, and waits until it holds the lease and has read the words.
    pub async fn set() -> Result<Self> {
        let node = tokio::task::spawn_blocking(Broker::start).await?;
        node.declare_stream("calls").await;
        node.declare_stream("calls.words").await;
        publish(&node, "calls.words", WORDS, &words(now())).await?;
        publish(&node, "calls", CALLS, &calls(now())).await?;
        let crm = sandbox::start(sandbox::Config::default()).await;
        let crm = crm.context("a sandbox")?;
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("token"), "svc_pat_sandbox")?;
        std::fs::write(path("secret"), SECRET)?;
        let sender = Command::new(env!("CARGO_BIN_EXE_callbridge"))
            .arg("run")
            .arg(format!("--crm-url={}", crm.url()))
            .arg(format!("--token-file={}", path("token")))
            .arg(format!("--state={}", path("state")))
            .args(["--rate=60/6s", "--standby=crm-lease"])
            .arg(format!("--page=127.0.0.1:{}", free_port()))
            .args(["--trunk=city=,country=UZ", "--pbx-timezone=Asia/Tashkent"])
            .arg(format!(
                "--source={}?stream=calls&format=call&secret-file={}",
                node.url(ADMINISTRATOR),
                path("secret")
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(path("log"))?)
            .kill_on_drop(true)
            .spawn()?;
        let fleet = Self {
            folder,
            _node: node,
            _crm: crm,
            _sender: sender,
        };
        fleet.until_held().await?;
        Ok(fleet)
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A link to its page.
    pub async fn link(&self) -> Result<String> {
        link(&self.state()).await
    }

    async fn until_held(&self) -> Result<()> {
        let mut looks = tokio::time::interval(Duration::from_millis(200));
        let held = async {
            loop {
                looks.tick().await;
                let Ok(said) = ask(&self.state(), &["status", "--json"]).await else {
                    continue;
                };
                let status: Value = serde_json::from_str(&said).unwrap_or_default();
                let todo = status["todo"].as_array().cloned().unwrap_or_default();
                let silent = todo.iter().any(|it| it["kind"] == "silent_collector");
                if status["lease"]["state"] == "holding" && silent {
                    return;
                }
            }
        };
        let waited = tokio::time::timeout(WITHIN, held).await;
        let log = self.folder.path().join("log");
        waited.with_context(|| std::fs::read_to_string(log).unwrap_or_default())
    }
}

async fn publish(node: &Broker, stream: &str, kind: &str, bodies: &[Value]) -> Result<()> {
    let (_connection, channel) = node.channel().await;
    for body in bodies {
        let properties = BasicProperties::default()
            .with_content_type(kind.into())
            .with_user_id(ADMINISTRATOR.into());
        let options = BasicPublishOptions::default();
        let (exchange, body) = ("".into(), body.to_string());
        let sent = channel.basic_publish(
            exchange,
            stream.into(),
            options,
            body.as_bytes(),
            properties,
        );
        sent.await?.await?;
    }
    Ok(())
}

fn calls(now: i64) -> Vec<Value> {
    let call = |n: i64| {
        json!({
            "pbx": "branch1", "id": format!("{now}.{n}"), "direction": "INBOUND", "trunk": "city",
            "phone": format!("+9989011100{n:02}"), "startedAt": now - 3600 + n, "durationSec": 31,
            "answered": true, "talkSec": 24.5, "extension": "101", "leadId": 4001,
        })
    };
    (0..12).map(call).collect()
}

/// What the others have said: of those who spoke long ago the word is their last.
fn words(now: i64) -> Vec<Value> {
    let books = |finished: u64, forwarded: u64, journaled: u64| {
        let ready = finished - forwarded - journaled;
        json!({
            "finished": finished, "ready": ready, "sending": 0, "submitted": 0,
            "journaled": journaled, "forwarded": forwarded, "dead": 0, "parked": 0,
            "discarded": 0, "internal": 310, "skipped": 25, "unreadable": 0,
        })
    };
    let collector = |pbx: &str, hostname: &str, ago: i64, ends: bool| {
        json!({
            "role": "collector", "instance": pbx, "pbx": [pbx], "hostname": hostname,
            "version": "0.1.0", "commit": "abc", "books": books(12_540, 12_500, 0),
            "sources": [
                {"name": format!("{pbx}/ami"), "state": "up", "lastEventAt": now - ago},
                {"name": format!("{pbx}/file"), "state": "down", "lastEventAt": null},
            ],
            "gaps": {"count": 3, "newest": now - 7200}, "backlog": {"calls": 40, "drainSec": 2},
            "letters": 7, "startedAt": now - 90_000, "at": now - ago, "ends": ends,
        })
    };
    let sender = |hostname: &str, print: &str, pause: Option<&str>| {
        json!({
            "role": "sender", "instance": "Навоий Транс", "hostname": hostname, "state": "/s",
            "version": "0.1.0", "books": books(900, 0, 120), "gaps": {"count": 0, "newest": null},
            "sources": [{"name": "calls/stream", "state": "up", "lastEventAt": now}],
            "backlog": {"calls": 780, "drainSec": 3600}, "letters": 12,
            "rate": {"limit": 60, "windowSec": 60}, "lease": {"name": "navoiy", "held": false},
            "token": {"print": print, "company": "Навоий Транс"}, "pause": pause,
            "startedAt": now - 900, "at": now - 5,
        })
    };
    let mut all = vec![
        collector("branch-samarkand-registon", "gw1", 4_000, false),
        collector("branch-nukus", HOSTILE, 3_000, false),
        collector("branch-termez", "gw3", 600, true),
        sender(
            "crm-a.example.com",
            "0123456789abcdef",
            Some("token_refused"),
        ),
        sender("crm-b.example.com", "0123456789abcdef", None),
    ];
    let others = (1..=12).map(|n| collector(&format!("branch{n}"), &format!("gw1{n}"), 5, false));
    all.extend(others);
    all
}
