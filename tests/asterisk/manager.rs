//! The scenario's own connection to the PBX: a manager account with all rights.

use crate::wait::{self, within};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A message. Of repeated keys, it has the first.
pub type Heard = BTreeMap<String, String>;

/// A logged-in account.
pub struct Manager {
    write: OwnedWriteHalf,
    log: Arc<Log>,
    asked: u32,
    reader: JoinHandle<()>,
}

/// All messages of the current scenario.
#[derive(Default)]
struct Log {
    heard: Mutex<Vec<Heard>>,
    count: watch::Sender<u64>,
}

impl Log {
    fn heard(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads one message. Returns `None` at the end of the connection.
async fn message(lines: &mut BufReader<OwnedReadHalf>) -> Option<Heard> {
    let mut heard = Heard::new();
    loop {
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line).await.ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() && !heard.is_empty() {
            return Some(heard);
        }
        if let Some((key, value)) = line.split_once(": ") {
            heard
                .entry(key.to_owned())
                .or_insert_with(|| value.to_owned());
        }
    }
}

impl Manager {
    /// Logs in.
    pub async fn login(port: u16, user: &str, secret: &str) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let (read, write) = stream.into_split();
        let log = Arc::new(Log::default());
        let ours = Arc::clone(&log);
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(read);
            while let Some(heard) = message(&mut lines).await {
                ours.heard().push(heard);
                ours.count.send_modify(|count| *count += 1);
            }
        });
        let mut manager = Self {
            write,
            log,
            asked: 0,
            reader,
        };
        let login = [("Username", user), ("Secret", secret)];
        manager.asks("Login", &login).await?;
        Ok(manager)
    }

    /// Waits for a message that matches.
    pub async fn hears(&self, what: &str, is: impl Fn(&Heard) -> bool) -> Result<Heard> {
        let mut count = self.log.count.subscribe();
        let waiting = async {
            loop {
                count.mark_unchanged();
                if let Some(found) = self.log.heard().iter().find(|heard| is(heard)) {
                    return Ok(found.clone());
                }
                count.changed().await.context("the PBX is gone")?;
            }
        };
        within(what, waiting).await?
    }

    /// Sends an action. Returns its answer, which must not be an error.
    pub async fn asks(&mut self, action: &str, fields: &[(&str, &str)]) -> Result<Heard> {
        self.asked += 1;
        let id = format!("scenario-{}", self.asked);
        let mut text = format!("Action: {action}\r\nActionID: {id}\r\n");
        for (key, value) in fields {
            text += &format!("{key}: {value}\r\n");
        }
        text += "\r\n";
        self.write.write_all(text.as_bytes()).await?;
        let answers =
            |heard: &Heard| heard.contains_key("Response") && heard.get("ActionID") == Some(&id);
        let answer = self.hears(action, answers).await?;
        if answer
            .get("Response")
            .is_some_and(|response| response == "Error")
        {
            bail!("{action} {fields:?}: {:?}", answer.get("Message"));
        }
        Ok(answer)
    }

    /// Returns the live channels.
    pub async fn channels(&mut self) -> Result<Vec<Heard>> {
        let id = self.asks("CoreShowChannels", &[]).await?;
        let id = id.get("ActionID").cloned();
        let is = |heard: &Heard, event: &str| {
            heard.get("ActionID") == id.as_ref()
                && heard.get("Event").is_some_and(|its| its == event)
        };
        let done = |heard: &Heard| is(heard, "CoreShowChannelsComplete");
        self.hears("CoreShowChannelsComplete", done).await?;
        let heard = self.log.heard();
        let found = heard.iter().filter(|heard| is(heard, "CoreShowChannel"));
        Ok(found.cloned().collect())
    }

    /// Waits for a live channel with this prefix, and returns its name.
    pub async fn channel(&mut self, begins: &str) -> Result<String> {
        let found = self.living(begins, None).await?;
        Ok(found.get("Channel").cloned().unwrap_or_default())
    }

    /// Waits for a live channel with this prefix and in this state (`Up`, `Ringing`).
    pub async fn living(&mut self, begins: &str, state: Option<&str>) -> Result<Heard> {
        wait::until(&format!("channel {begins} {state:?}"), async || {
            let channels = self.channels().await?;
            Ok(channels.into_iter().find(|channel| {
                let named = channel.get("Channel");
                let is = channel.get("ChannelStateDesc").map(String::as_str);
                named.is_some_and(|name| name.starts_with(begins))
                    && state.is_none_or(|state| is == Some(state))
            }))
        })
        .await
    }

    /// Calls `channel` and, once it has answered, runs the rest of the fields.
    pub async fn originates(&mut self, channel: &str, fields: &[(&str, &str)]) -> Result<()> {
        let mut all = vec![("Channel", channel), ("Async", "true")];
        all.extend_from_slice(fields);
        self.asks("Originate", &all).await.map(drop)
    }

    /// Waits until no channel is live.
    pub async fn is_quiet(&mut self) -> Result<()> {
        wait::until("silence", async || {
            Ok(self.channels().await?.is_empty().then_some(()))
        })
        .await
    }

    /// Hangs up all live channels.
    pub async fn clears(&mut self) -> Result<()> {
        for channel in self.channels().await? {
            let name = channel.get("Channel").cloned().unwrap_or_default();
            // It can have ended meanwhile.
            let _ = self.asks("Hangup", &[("Channel", &name)]).await;
        }
        self.is_quiet().await
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
