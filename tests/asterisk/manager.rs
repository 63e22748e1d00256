//! The scenario's own connection to the PBX: a manager account with all rights.

use crate::wait::{self, finish_in_time};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A message. If a key is repeated, the message has the first value.
pub type AmiMessage = BTreeMap<String, String>;

pub fn is_event(message: &AmiMessage, event: &str) -> bool {
    message.get("Event").is_some_and(|name| name == event)
}

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
    messages: Mutex<Vec<AmiMessage>>,
    count: watch::Sender<u64>,
}

impl Log {
    fn messages(&self) -> MutexGuard<'_, Vec<AmiMessage>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads one message. Returns `None` at the end of the connection.
async fn read_message(lines: &mut BufReader<OwnedReadHalf>) -> Option<AmiMessage> {
    let mut message = AmiMessage::new();
    loop {
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line).await.ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() && !message.is_empty() {
            return Some(message);
        }
        if let Some((key, value)) = line.split_once(": ") {
            message
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
            while let Some(message) = read_message(&mut lines).await {
                ours.messages().push(message);
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
        manager.send_action("Login", &login).await?;
        Ok(manager)
    }

    /// Waits for a message that matches `is`. `what` names the message.
    pub async fn wait_for(
        &self,
        what: &str,
        is: impl Fn(&AmiMessage) -> bool,
    ) -> Result<AmiMessage> {
        let mut count = self.log.count.subscribe();
        let waiting = async {
            loop {
                count.mark_unchanged();
                if let Some(found) = self.log.messages().iter().find(|message| is(message)) {
                    return Ok(found.clone());
                }
                count.changed().await.context("the PBX is gone")?;
            }
        };
        finish_in_time(what, waiting).await?
    }

    /// Sends an action. Returns its answer, which must not be an error.
    pub async fn send_action(
        &mut self,
        action: &str,
        fields: &[(&str, &str)],
    ) -> Result<AmiMessage> {
        self.asked += 1;
        let id = format!("scenario-{}", self.asked);
        let mut text = format!("Action: {action}\r\nActionID: {id}\r\n");
        for (key, value) in fields {
            text += &format!("{key}: {value}\r\n");
        }
        text += "\r\n";
        self.write.write_all(text.as_bytes()).await?;
        let answered = self.wait_for(action, |message| {
            message.contains_key("Response") && message.get("ActionID") == Some(&id)
        });
        let answer = answered.await?;
        if answer
            .get("Response")
            .is_some_and(|response| response == "Error")
        {
            bail!("{action} {fields:?}: {:?}", answer.get("Message"));
        }
        Ok(answer)
    }

    /// Returns the live channels.
    pub async fn channels(&mut self) -> Result<Vec<AmiMessage>> {
        let answer = self.send_action("CoreShowChannels", &[]).await?;
        let id = answer.get("ActionID");
        let done = self.wait_for("CoreShowChannelsComplete", |message| {
            message.get("ActionID") == id && is_event(message, "CoreShowChannelsComplete")
        });
        done.await?;
        let messages = self.log.messages();
        let found = messages.iter().filter(|message| {
            message.get("ActionID") == id && is_event(message, "CoreShowChannel")
        });
        Ok(found.cloned().collect())
    }

    /// Waits for a live channel with this prefix, and returns its name.
    pub async fn channel(&mut self, begins: &str) -> Result<String> {
        let found = self.live_channel(begins, None).await?;
        Ok(found.get("Channel").cloned().unwrap_or_default())
    }

    /// Waits for a live channel with this prefix and in this state (`Up`, `Ringing`).
    pub async fn live_channel(&mut self, begins: &str, state: Option<&str>) -> Result<AmiMessage> {
        wait::repeat_until(&format!("channel {begins} {state:?}"), async || {
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

    /// Calls `channel`. After the channel has answered, Asterisk runs what `fields` name: an
    /// extension or an application.
    pub async fn originate(&mut self, channel: &str, fields: &[(&str, &str)]) -> Result<()> {
        let mut all = vec![("Channel", channel), ("Async", "true")];
        all.extend_from_slice(fields);
        self.send_action("Originate", &all).await.map(drop)
    }

    /// Waits until no channel is live.
    pub async fn wait_until_quiet(&mut self) -> Result<()> {
        wait::repeat_until("silence", async || {
            Ok(self.channels().await?.is_empty().then_some(()))
        })
        .await
    }

    /// Hangs up all live channels.
    pub async fn hang_up_all(&mut self) -> Result<()> {
        for channel in self.channels().await? {
            let name = channel.get("Channel").cloned().unwrap_or_default();
            // The channel can have ended meanwhile.
            let _ = self.send_action("Hangup", &[("Channel", &name)]).await;
        }
        self.wait_until_quiet().await
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
