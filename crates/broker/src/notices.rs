//! The outbox in the spool to a RabbitMQ queue. A notice leaves the outbox after the broker's
//! confirm and on no other path, so an outage of the broker loses none. One may be published
//! again after a crash, under the same message id.
//!
//! ```text
//! message id   ID:ATTEMPT, and ID:ATTEMPT:STATE when it leaves
//! headers      state, reason, uuid, linkedid, trunk (those that there are)
//! body         a line of `dead list --json`, application/json, persistent
//! timestamp    when it came to be, or left
//! ```
//! `state` is `dead` or `parked` while it waits, and closes it as `retried`, `released` (by itself)
//! or `discarded`; `journaled` follows when the journal holds the call.

use callbridge_source::amqp::publish::{ConfirmedLine, refusal};
use callbridge_source::amqp::{Login, declare_command};
use callbridge_source::url::QueueUrl;
use callbridge_source::{Backoff, Bounds, Secret, chance};
use callbridge_spool::{Handle, Notice, Op, tables};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Notices under way at once.
const BATCH: usize = 100;
/// Commits come often; the outbox is looked at no oftener than this.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// At the end, for what is in the outbox still. What remains is sent at the next start.
const FLUSH_WITHIN: Duration = Duration::from_secs(4);

/// Why notices wait.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker cannot be reached or does not let us in.
    #[error(transparent)]
    Broker(#[from] callbridge_source::Error),
    /// The line was lost, or the broker did not confirm in time.
    #[error("the line to the broker was lost ({0})")]
    Lost(String),
    /// There is no such queue, or it is full.
    #[error("{words}; {cure}")]
    NotTaken {
        /// The broker's words.
        words: String,
        /// What to do.
        cure: String,
    },
    /// The user may not write there.
    #[error("{words}; {cure}")]
    NoRight {
        /// The broker's words.
        words: String,
        /// What to do.
        cure: String,
    },
    /// The spool.
    #[error(transparent)]
    Spool(#[from] callbridge_spool::Error),
}

/// A queue for dead letters, and how to log in.
#[derive(Clone, Debug)]
pub struct Queue {
    login: Login,
    name: String,
    bounds: Bounds,
}

impl Queue {
    /// The queue of `--dead-letter-queue`.
    pub fn new(url: &QueueUrl, secret: Secret) -> Self {
        Self {
            login: Login {
                broker: url.broker.clone(),
                secret,
                variable: "CALLBRIDGE_DEAD_LETTER_SECRET",
                ca_file: url.ca_file.clone(),
                within: callbridge_source::Settings::default().connect_within,
            },
            name: url.queue.clone(),
            bounds: Bounds::default(),
        }
    }

    /// With other waits between tries.
    #[must_use]
    pub fn with_backoff(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// Logs in, looks whether the queue is there, and leaves.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe(&self) -> Result<(), Error> {
        let line = ConfirmedLine::open(&self.login).await?;
        let found = line.finds(&self.name);
        let found = timeout(self.login.within, found).await;
        let found = match found {
            Ok(Ok(())) => self.may_write(&line).await,
            Ok(Err(error)) => Err(self.not_taken(&error.to_string())),
            Err(_) => Err(Error::Lost("no answer".to_owned())),
        };
        line.close().await;
        found
    }

    /// Publishes to a queue that cannot be there: where the right to write is had, the broker
    /// gives the message back, and nobody has got it.
    async fn may_write(&self, line: &ConfirmedLine) -> Result<(), Error> {
        let nowhere = format!("callbridge-check-{}", uuid::Uuid::new_v4().simple());
        let published = async {
            let sent = line.publish(&nowhere, b"", BasicProperties::default());
            sent.await?.await
        };
        match timeout(self.login.within, published).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.no_right(&error)),
            Err(_) => Err(Error::Lost("no answer".to_owned())),
        }
    }

    fn no_right(&self, error: &lapin::Error) -> Error {
        let broker = &self.login.broker;
        Error::NoRight {
            words: error.to_string(),
            cure: format!(
                "let {0} write to amq.default: rabbitmqctl list_user_permissions {0} shows its \
                 rights, set_permissions -p {1} {0} CONFIGURE WRITE READ replaces them",
                broker.user, broker.vhost
            ),
        }
    }

    /// Publishes the spool's notices until `shutdown`, then those that are left, if that can be
    /// had within some seconds.
    pub async fn run(self, spool: Handle, shutdown: impl Future<Output = ()>) {
        let mut outbox = Outbox {
            queue: self,
            spool,
            line: None,
            told: None,
        };
        let (stop, stopping) = watch::channel(false);
        let is_empty = {
            let mut work = std::pin::pin!(outbox.keep_empty(stopping));
            tokio::select! {
                is_empty = &mut work => is_empty,
                () = shutdown => {
                    stop.send_replace(true);
                    timeout(FLUSH_WITHIN, work).await.unwrap_or(false)
                }
            }
        };
        if !is_empty {
            tracing::debug!("notices of letters are left for the next start");
        }
        if let Some(line) = outbox.line.take() {
            line.close().await;
        }
    }

    fn not_taken(&self, words: &str) -> Error {
        let vhost = &self.login.broker.vhost;
        let cure = format!(
            "make the queue ({}), or make room in it, and check that {} may write to the default \
             exchange",
            declare_command(vhost, &self.name),
            self.login.broker.user
        );
        Error::NotTaken {
            words: format!("queue {} did not take a dead letter: {words}", self.name),
            cure,
        }
    }
}

fn lost(error: &lapin::Error) -> Error {
    Error::Lost(error.to_string())
}

struct Outbox {
    queue: Queue,
    spool: Handle,
    line: Option<ConfirmedLine>,
    /// Why notices wait, as last told.
    told: Option<String>,
}

impl Outbox {
    /// Publishes whatever comes into the outbox, until the spool has ended, or `stopping` and it
    /// was tried once more; whether it is empty. What waits for its confirm is never left for that:
    /// it would be published twice.
    async fn keep_empty(&mut self, mut stopping: watch::Receiver<bool>) -> bool {
        let mut changed = self.spool.changed();
        let mut backoff = Backoff::new(self.queue.bounds);
        loop {
            changed.mark_unchanged();
            let last = *stopping.borrow();
            let ended = self.empty().await;
            if last {
                return ended.is_ok();
            }
            let again = match ended {
                Ok(()) => {
                    backoff.reset();
                    self.told = None;
                    None
                }
                Err(Error::Spool(callbridge_spool::Error::Closed)) => return false,
                Err(error) => {
                    let line = self.line.take();
                    let up = line.map_or(Duration::ZERO, |line| line.up_for());
                    self.tell(&error);
                    Some(backoff.wait(up, chance()))
                }
            };
            let next = async {
                let Some(again) = again else {
                    let changed = changed.changed().await;
                    tokio::time::sleep(LOOK_EVERY).await;
                    return changed.is_ok();
                };
                tokio::time::sleep(again).await;
                true
            };
            let goes_on = tokio::select! {
                goes_on = next => goes_on,
                _ = stopping.wait_for(|stopping| *stopping) => true,
            };
            if !goes_on {
                return false;
            }
        }
    }

    fn tell(&mut self, error: &Error) {
        let reason = error.to_string();
        if self.told.as_ref() != Some(&reason) {
            tracing::warn!(%reason, "letters cannot be told of in RabbitMQ; notices are kept");
            self.told = Some(reason);
        }
    }

    /// Publishes until the outbox is empty.
    async fn empty(&mut self) -> Result<(), Error> {
        loop {
            let notices = self
                .spool
                .read(|store| tables::outbox::notices(store, BATCH))
                .await?;
            if notices.is_empty() {
                return Ok(());
            }
            let line = match self.line.take() {
                Some(line) => line,
                None => ConfirmedLine::open(&self.queue.login).await?,
            };
            let mut confirmed = Vec::with_capacity(notices.len());
            let published = self.publish(&line, &notices, &mut confirmed);
            let ended = match timeout(self.queue.login.within, published).await {
                Ok(ended) => ended,
                // Those without a confirm are published again; a slow broker gets on all the same.
                Err(_) => Err(Error::Lost("no confirm".to_owned())),
            };
            if !confirmed.is_empty() {
                self.spool.write(confirmed).await?;
            }
            self.line = Some(line);
            ended?;
        }
    }

    /// Publishes all, then waits for all confirms: `confirmed` gains those that were taken; the
    /// error is what stopped the others.
    async fn publish(
        &self,
        line: &ConfirmedLine,
        notices: &[Notice],
        confirmed: &mut Vec<Op>,
    ) -> Result<(), Error> {
        let mut ended = Ok(());
        let mut under_way = Vec::with_capacity(notices.len());
        for notice in notices {
            let (queue, body) = (&self.queue.name, notice.body.as_bytes());
            match line.publish(queue, body, properties(notice)).await {
                Ok(confirm) => under_way.push((notice.notice, confirm)),
                Err(error) => {
                    ended = Err(lost(&error));
                    break;
                }
            }
        }
        for (notice, confirm) in under_way {
            match confirm.await {
                Ok(confirmation) => match refusal(&confirmation) {
                    None => confirmed.push(Op::NoticeSent { notice }),
                    Some(words) => ended = Err(self.queue.not_taken(&words)),
                },
                Err(error) => ended = Err(lost(&error)),
            }
        }
        ended
    }
}

fn properties(notice: &Notice) -> BasicProperties {
    let mut headers = FieldTable::default();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
    };
    put(
        "state",
        Some(notice.state.clone()).filter(|it| !it.is_empty()),
    );
    put("reason", notice.reason.map(|it| it.word().to_owned()));
    put("uuid", notice.uuid.map(|uuid| uuid.to_string()));
    put("linkedid", notice.linkedid.clone());
    put("trunk", notice.trunk.clone());
    let at = notice.at.map(|at| at.floor_seconds().get());
    let properties = match at.and_then(|at| u64::try_from(at).ok()) {
        Some(at) => BasicProperties::default().with_timestamp(at),
        None => BasicProperties::default(),
    };
    properties
        .with_message_id(notice.message_id.as_str().into())
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_app_id("callbridge".into())
        .with_headers(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::{CallUuid, Reason};

    #[test]
    fn a_notice_carries_what_its_readers_choose_by() {
        let notice = Notice {
            notice: 1,
            message_id: "7:2".to_owned(),
            body: "{}".to_owned(),
            reason: Some(Reason::Failed),
            state: "dead".to_owned(),
            at: Some(callbridge_call::EventTime::from_seconds(1_795_151_317)),
            uuid: Some(CallUuid(uuid::Uuid::nil())),
            linkedid: Some("1795151317.146".to_owned()),
            trunk: None,
        };
        let properties = properties(&notice);
        assert_eq!(
            properties.message_id().as_ref().map(|id| id.as_str()),
            Some("7:2")
        );
        assert_eq!(*properties.delivery_mode(), Some(2));
        let headers = properties.headers().as_ref().expect("headers").inner();
        let names: Vec<_> = headers.keys().map(|name| name.as_str()).collect();
        assert_eq!(names, ["linkedid", "reason", "state", "uuid"]);
        assert_eq!(*properties.timestamp(), Some(1_795_151_317));
    }
}
