//! The way of events into the stream of calls, where several machines follow it (`--standby`): the
//! machine that an event reaches publishes it, and all of them, itself too, read it there.
//!
//! One task has the line. What is asked while a line is being opened waits for it; what is asked
//! between two tries is refused at once, for the service sends it again (§6.9).

use callbridge_formats::message::MessageKind;
use callbridge_source::amqp::Login;
use callbridge_source::amqp::publish::{ConfirmedLine, own_properties};
use callbridge_source::{Backoff, Bounds, chance};
use callbridge_spool::Delivery;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lapin::BasicProperties;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval, timeout, timeout_at};

/// Time for the broker's confirm, after which an event is answered with 503. A majority of the
/// brokers may have it all the same; then it is known when it comes again.
pub const CONFIRM_WITHIN: Duration = Duration::from_secs(3);
/// Events that wait to be published, and that wait for their confirms.
const EVENTS_MAX: usize = 256;
/// Between two looks whether a quiet line is still there.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// An event that comes again after 30 s is to find a line.
const BOUNDS: Bounds = Bounds {
    first: Duration::from_millis(500),
    most: Duration::from_secs(5),
    healthy: Duration::from_secs(60),
};
const LOST: &str = "the connection to the broker was lost";

/// An event that is to be published, and who waits for that.
#[derive(Debug)]
struct Publishing {
    body: String,
    taken: oneshot::Sender<Result<(), String>>,
}

/// Puts events into the stream.
#[derive(Clone, Debug)]
pub struct EventStream(mpsc::Sender<Publishing>);

impl EventStream {
    /// One whose broker answers each event as `answer` says of its message.
    #[cfg(test)]
    pub(crate) fn answered_by(
        answer: impl Fn(&str) -> Result<(), String> + Send + 'static,
    ) -> Self {
        let (ask, mut asked) = mpsc::channel::<Publishing>(EVENTS_MAX);
        tokio::spawn(async move {
            while let Some(Publishing { body, taken }) = asked.recv().await {
                taken.send(answer(&body)).expect("somebody waits");
            }
        });
        Self(ask)
    }

    /// Puts an event into the stream; it is there when this is well.
    ///
    /// # Errors
    /// In words, where no majority of the brokers has confirmed it in time.
    pub async fn publish(&self, delivery: &Delivery) -> Result<(), String> {
        let (taken, answer) = oneshot::channel();
        let body = delivery.message().write();
        let asked = async {
            let asked = self.0.send(Publishing { body, taken }).await;
            asked.map_err(|_| LOST.to_owned())?;
            answer.await.unwrap_or_else(|_| Err(LOST.to_owned()))
        };
        let late = || Err("the broker has not confirmed it in time".to_owned());
        let answer = timeout(CONFIRM_WITHIN, asked).await;
        answer.unwrap_or_else(|_| late())
    }
}

/// Has the line that events go out on.
#[derive(Debug)]
pub struct EventPublisher {
    login: Login,
    stream: String,
    asked: mpsc::Receiver<Publishing>,
}

impl EventPublisher {
    /// Of the stream of this name.
    pub fn new(login: Login, stream: String) -> (EventStream, Self) {
        let (ask, asked) = mpsc::channel(EVENTS_MAX);
        let publisher = Self {
            login,
            stream,
            asked,
        };
        (EventStream(ask), publisher)
    }

    /// Publishes the events that it is given until `shutdown`, and closes the line.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut line = None;
        tokio::select! {
            () = self.keep_publishing(&mut line) => {}
            () = shutdown => {}
        }
        if let Some(line) = line {
            line.close().await;
        }
    }

    async fn keep_publishing(&mut self, line: &mut Option<ConfirmedLine>) {
        let mut backoff = Backoff::new(BOUNDS);
        for turn in 0.. {
            let (why, up) = match ConfirmedLine::open(&self.login, turn).await {
                Ok(opened) => {
                    let opened = line.insert(opened);
                    let Some(why) = self.serve(opened).await else {
                        return;
                    };
                    let up = opened.up_for();
                    if let Some(lost) = line.take() {
                        lost.close().await;
                    }
                    (why, up)
                }
                Err(error) => (error.to_string(), Duration::ZERO),
            };
            let again = Instant::now() + backoff.wait(up, chance());
            while let Ok(asked) = timeout_at(again, self.asked.recv()).await {
                let Some(asked) = asked else {
                    return;
                };
                // Whoever asked may have given up meanwhile.
                let _ = asked.taken.send(Err(why.clone()));
            }
        }
    }

    /// Publishes on this line until it is of no more use, and says why; nothing where nobody asks
    /// any more. Those whose confirms it owes get the error that it was lost.
    async fn serve(&mut self, line: &ConfirmedLine) -> Option<String> {
        let mut under_way = FuturesUnordered::new();
        let mut ticks = interval(CHECK_EVERY);
        let (stream, user) = (&self.stream, &self.login.broker.user);
        loop {
            tokio::select! {
                asked = self.asked.recv(), if under_way.len() < EVENTS_MAX => {
                    under_way.push(put(line, stream, user, asked?));
                }
                Some(ended) = under_way.next() => {
                    if let Err(words) = ended {
                        return Some(words);
                    }
                }
                _ = ticks.tick() => {}
            }
            if !line.is_open() {
                return Some(LOST.to_owned());
            }
        }
    }
}

/// Publishes one event and reports the result to its sender. Fails if the line is lost. A blocked
/// line is kept: its messages are taken when the broker's alarm ends.
async fn put(
    line: &ConfirmedLine,
    stream: &str,
    user: &str,
    asked: Publishing,
) -> Result<(), String> {
    let Publishing { body, taken } = asked;
    let blocked = line.blocked().borrow().clone();
    if let Some(reason) = blocked {
        let _ = taken.send(Err(format!("the broker blocks the connection: {reason}")));
        return Ok(());
    }
    let published = line.publish_confirmed(stream, body.as_bytes(), properties(user));
    let Ok(published) = timeout(CONFIRM_WITHIN, published).await else {
        if line.is_blocked() {
            return Ok(());
        }
        return Err("the broker confirms nothing".to_owned());
    };
    let published = published.map_err(|words| {
        format!("{words}; see that stream {stream} is there and that {user} may write to it")
    });
    // Whoever asked may have given up meanwhile.
    let _ = taken.send(published);
    Ok(())
}

/// Properties of a message of events; the broker compares `user` with the login.
fn properties(user: &str) -> BasicProperties {
    own_properties(user, MessageKind::Webhook.content_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_goes_out_as_its_kind_and_as_the_login_that_it_is_believed_of() {
        let properties = properties("sender");
        let text = |it: &Option<lapin::types::ShortString>| it.as_ref().map(ToString::to_string);
        let kind = "application/vnd.callbridge.webhook+json; version=1";
        assert_eq!(text(properties.content_type()).as_deref(), Some(kind));
        assert_eq!(text(properties.user_id()).as_deref(), Some("sender"));
        assert_eq!(*properties.delivery_mode(), Some(2), "persistent");
    }
}
