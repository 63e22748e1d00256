//! Publishes notices of dead letters to a RabbitMQ queue. After a crash, a notice can be published
//! again under the same message id.
//!
//! ```text
//! message id   ID:ATTEMPT, and ID:ATTEMPT:STATE when it leaves
//! headers      state, reason, uuid, linkedid, trunk (those that exist)
//! body         a line of `dead list --json`, application/json, persistent
//! timestamp    when the dead letter was created, or left
//! ```
//! `state` is `dead` or `waiting` for a new dead letter. When a dead letter leaves this state,
//! `state` is `retried`, `released` (automatically), or `discarded`. `journaled` follows when the
//! call is in the CRM's journal.

use crate::drain::{Destination, Error, Outbox, keep_empty};
use callbridge_call::EventTime;
use callbridge_call::shell::quoted;
use callbridge_model::status::OutboxProblem;
use callbridge_source::amqp::{declare_command, publish::ConfirmedLine};
use callbridge_source::{Bounds, BrokerUrl, Secret, url::Broker};
use callbridge_spool::{Handle, Notice, Op, tables};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use std::time::Duration;
use tokio::sync::watch;

/// Maximum notices in one batch.
const BATCH: usize = 100;
/// The outbox is read at most once in this time, because commits are frequent.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// A queue for dead letters, and how to log in.
#[derive(Clone, Debug)]
pub struct Queue {
    to: Destination,
    /// The bounds of the waits between two tries.
    pub bounds: Bounds,
    problem: watch::Sender<Option<OutboxProblem>>,
}

impl Queue {
    /// Makes a publisher for the queue of `--dead-letter-queue`. It opens no connection.
    pub fn new(url: &BrokerUrl, secret: Secret) -> Self {
        let mut to = Destination::from_url(url, secret);
        to.login.variable = "CALLBRIDGE_DEAD_LETTER_SECRET";
        Self {
            to,
            bounds: Bounds::default(),
            problem: watch::Sender::new(None),
        }
    }

    /// Sets the time limit for the login, and for the confirms of a batch.
    pub fn with_time_limit(mut self, within: Duration) -> Self {
        self.to.login.within = within;
        self
    }

    /// Subscribes to the reason why notices wait. The reason is `None` while the queue takes
    /// notices.
    pub fn problem(&self) -> watch::Receiver<Option<OutboxProblem>> {
        self.problem.subscribe()
    }

    /// Logs in, and checks that the queue exists and that the login can publish.
    ///
    /// The check publishes a message to a queue that does not exist. If the login has the right to
    /// write, the broker returns the message, so no consumer receives it.
    ///
    /// # Errors
    /// The problem and its fix.
    pub async fn probe(&self) -> Result<(), Error> {
        let probed = self.probe_queue().await;
        probed.map_err(|error| error.redacted(&self.to.login))
    }

    async fn probe_queue(&self) -> Result<(), Error> {
        let line = ConfirmedLine::open(&self.to.login, 0).await?;
        let nowhere = format!("callbridge-check-{}", uuid::Uuid::new_v4().simple());
        let asked = line.last(async |line| {
            let found = line.find_queue(&self.to.queue).await;
            found.map_err(|error| self.return_error(error.to_string()))?;
            let written = line.may_write(&nowhere).await;
            written.map_err(|error| self.no_right(&error))
        });
        asked.await.map_err(Error::unanswered)?
    }

    fn no_right(&self, error: &lapin::Error) -> Error {
        let Broker { user, vhost, .. } = &self.to.login.broker;
        let user_word = quoted(user);
        let error = self.to.login.redact(&error.to_string());
        Error::NoRight(format!(
            "{error}; let {user} write to amq.default: rabbitmqctl list_user_permissions \
             {user_word} shows its rights, set_permissions -p {} {user_word} CONFIGURE WRITE \
             READ replaces them",
            quoted(vhost)
        ))
    }

    /// Publishes the spool's notices until `shutdown`, then the remaining ones for a few seconds at
    /// most.
    pub async fn run(self, spool: Handle, shutdown: impl Future<Output = ()>) {
        keep_empty(self, spool, shutdown).await;
    }
}

/// Adds the time as the timestamp of the properties, if it is after 1970.
fn add_timestamp(properties: BasicProperties, at: Option<EventTime>) -> BasicProperties {
    match at.and_then(|at| u64::try_from(at.floor_seconds().get()).ok()) {
        Some(at) => properties.with_timestamp(at),
        None => properties,
    }
}

impl Outbox for Queue {
    type Item = Notice;
    const WAITS: &str = "notices of dead letters cannot be published in RabbitMQ; they are kept";
    const GOES_ON: Option<&str> = Some("resumed publishing notices of dead letters");
    const LEFT: &str = "notices of dead letters are left for the next start";
    const FLUSH_WITHIN: Duration = Duration::from_secs(4);

    fn destination(&self) -> &Destination {
        &self.to
    }

    fn bounds(&self) -> Bounds {
        self.bounds
    }

    async fn wait(changed: &mut watch::Receiver<u64>) -> bool {
        let changed = changed.changed().await;
        tokio::time::sleep(CHECK_EVERY).await;
        changed.is_ok()
    }

    fn show(&self, error: Option<&Error>) {
        let problem = error.map(|error| OutboxProblem {
            reason: error.reason(),
            message: error.to_string(),
        });
        self.problem.send_if_modified(|shown| {
            let is_new = *shown != problem;
            *shown = problem;
            is_new
        });
    }

    async fn due(&mut self, spool: &Handle, _lost: bool) -> Result<Vec<Notice>, Error> {
        let notices = spool.read(|store| tables::outbox::notices(store, BATCH));
        Ok(notices.await?)
    }

    fn message(&self, notice: &Notice) -> (String, BasicProperties) {
        (notice.body.clone(), properties(notice))
    }

    fn confirmed(&self, notices: Vec<Notice>, _all: bool) -> Vec<Op> {
        notices
            .into_iter()
            .map(|notice| Op::NoticeSent(notice.notice))
            .collect()
    }

    fn return_error(&self, message: String) -> Error {
        let queue = &self.to.queue;
        let Broker { user, vhost, .. } = &self.to.login.broker;
        let declare = declare_command(vhost, queue);
        Error::NotTaken {
            what: format!("queue {queue} did not take a dead letter"),
            message,
            fix: format!(
                "make the queue ({declare}), or make room in it, and check that {user} may write \
                 to the default exchange"
            ),
        }
    }
}

fn properties(notice: &Notice) -> BasicProperties {
    let state = if notice.state.is_empty() {
        None
    } else {
        Some(notice.state.clone())
    };
    let mut headers = FieldTable::default();
    for (name, value) in [
        ("state", state),
        (
            "reason",
            notice.reason.map(|reason| reason.word().to_owned()),
        ),
        ("uuid", notice.uuid.map(|uuid| uuid.to_string())),
        ("linkedid", notice.linkedid.clone()),
        ("trunk", notice.trunk.clone()),
    ] {
        if let Some(value) = value {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
    }
    let properties = BasicProperties::default()
        .with_message_id(notice.message_id.as_str().into())
        .with_content_type("application/json".into())
        .with_delivery_mode(2)
        .with_app_id("callbridge".into())
        .with_headers(headers);
    add_timestamp(properties, notice.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::{CallUuid, Reason};

    #[test]
    fn notice_has_the_headers_that_consumers_filter_by() {
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
