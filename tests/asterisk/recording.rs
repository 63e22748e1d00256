//! Writes a scenario as a recording, in the form of `tests/recordings`.

use crate::pbx::{CDRS, CELS, Pbx, SECRET};
use crate::truth::Truth;
use crate::wait::{self, finish_in_time};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Receives the same events as callbridge, over another connection of the same account.
pub struct Recorder {
    heard: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    cdrs: Tail,
    cels: Tail,
}

/// The part of a file that is written during this scenario.
struct Tail {
    file: PathBuf,
    from: usize,
}

impl Tail {
    fn new(file: PathBuf) -> Self {
        let from = fs::read(&file).map_or(0, |all| all.len());
        Self { file, from }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut all = fs::read(&self.file).unwrap_or_default();
        all.drain(..self.from.min(all.len()));
        all
    }
}

/// Returns the first value of a key in a message.
fn value<'a>(message: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = message.split("\r\n");
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
}

impl Recorder {
    /// Starts to receive events.
    pub async fn start(pbx: &Pbx) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", pbx.ami())).await?;
        let login = format!("Action: Login\r\nUsername: callbridge\r\nSecret: {SECRET}\r\n\r\n");
        stream.write_all(login.as_bytes()).await?;
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ours = Arc::clone(&heard);
        let reader = tokio::spawn(async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                let mut all = ours.lock().unwrap_or_else(PoisonError::into_inner);
                all.extend_from_slice(&buffer[..read]);
            }
        });
        let recorder = Self {
            cdrs: Tail::new(pbx.file(CDRS)),
            cels: Tail::new(pbx.file(CELS)),
            heard,
            reader,
        };
        recorder.wait_for("FullyBooted").await?;
        Ok(recorder)
    }

    fn bytes(&self) -> Vec<u8> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }

    async fn wait_for(&self, text: &str) -> Result<()> {
        wait::repeat_until(text, async || {
            let heard = self.bytes();
            let found = memchr::memmem::find(&heard, text.as_bytes());
            Ok(found.map(drop))
        })
        .await
    }

    /// Writes `ami.raw`, `cel.csv`, `cdr.csv` and `expected.json`.
    pub async fn write(self, folder: &Path, story: &str, truths: &[Truth]) -> Result<()> {
        // The last CDR comes a moment after the last hangup.
        let mut before = usize::MAX;
        finish_in_time("silence", async {
            while before != self.bytes().len() {
                before = self.bytes().len();
                let more = self.wait_for("\u{0}");
                let _ = wait::wait_at_most(crate::stage::seconds(1.5), more).await;
            }
        })
        .await?;
        self.reader.abort();
        let bytes = self.bytes();
        fs::create_dir_all(folder)?;
        fs::write(folder.join("ami.raw"), &bytes)?;
        fs::write(folder.join("cdr.csv"), self.cdrs.bytes())?;
        fs::write(folder.join("cel.csv"), self.cels.bytes())?;
        let text = String::from_utf8_lossy(&bytes);
        let mut taken = Vec::new();
        let mut calls = Vec::new();
        for truth in truths {
            calls.push(expected(&text, truth, &mut taken)?);
        }
        let expected = json!({ "story": story, "calls": calls });
        fs::write(
            folder.join("expected.json"),
            serde_json::to_string_pretty(&expected)? + "\n",
        )?;
        Ok(())
    }
}

fn timestamp(message: &str) -> Option<f64> {
    value(message, "Timestamp")?.parse().ok()
}

/// Returns the call with its ids in Asterisk: those of the first leg of its trunk that began after
/// the script had placed the call and that belongs to no other call. It begins in the second in
/// which its linkedid first appears.
fn expected<'a>(text: &'a str, truth: &Truth, taken: &mut Vec<&'a str>) -> Result<Value> {
    let messages: Vec<&'a str> = text.split("\r\n\r\n").collect();
    let born = messages.iter().find(|message| {
        value(message, "Event") == Some("Newchannel")
            && value(message, "Channel")
                .is_some_and(|name| truth.is_leg(name) && !taken.contains(&name))
            && timestamp(message).is_some_and(|at| at > truth.started() - 0.2)
    });
    let born = born.with_context(|| format!("no leg of {}", truth.words()))?;
    taken.extend(value(born, "Channel"));
    let unique = value(born, "Uniqueid").context("no id")?;
    // Channel events have the linkedid only since 13.2. CEL, which a recording has over AMI, always
    // has it.
    let linkedid = value(born, "Linkedid").or_else(|| {
        let mut messages = messages.iter();
        let cel = messages.find(|message| value(message, "UniqueID") == Some(unique));
        value(cel?, "LinkedID")
    });
    let linkedid = linkedid.with_context(|| format!("no linkedid of {unique}"))?;
    let first = messages.iter().find(|message| {
        let ids = ["Linkedid", "LinkedID"].map(|key| value(message, key));
        ids.contains(&Some(linkedid))
    });
    let started = first
        .and_then(|message| timestamp(message))
        .context("no time")?;
    Ok(truth.expected(linkedid, started.floor() as i64))
}
