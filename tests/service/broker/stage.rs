//! Runs an AMQP source and reads its output.

use callbridge_source::{
    Bounds, EventTime, Frame, Intake, Item, Limits, Outage, Secret, Settings, Source, SourceId,
    SourceUrl, Verdicts, ring, verdicts,
};
use callbridge_testbed::broker::{Broker, SECRET};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A wait that takes this long has failed.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Waits for `future`. Fails with `what` if it is not ready in time.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}

/// Waits until a queue holds `wanted` messages.
pub async fn wait_for_depth(broker: &Broker, queue: &str, wanted: u32) {
    let mut looks = interval(Duration::from_millis(20));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        while broker.depth(queue).await != wanted {
            looks.tick().await;
        }
    };
    soon(&format!("{wanted} messages in {queue}"), looking).await;
}

/// Returns settings with short waits between attempts, and defaults for the rest.
pub fn settings() -> Settings {
    Settings {
        backoff: Bounds {
            first: Duration::from_millis(50),
            most: Duration::from_millis(200),
            ..Bounds::default()
        },
        ..Settings::default()
    }
}

/// A running source.
pub struct Stage {
    pub intake: Intake,
    pub verdicts: Verdicts,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// The last item, for a test that expects no more.
    last: Option<Item>,
}

impl Stage {
    /// Consumes `queue` as the administrator.
    pub fn consume(broker: &Broker, queue: &str, settings: Settings) -> Self {
        let base = broker.url(callbridge_testbed::broker::ADMINISTRATOR);
        Self::start(
            &format!("{base}?queue={queue}&format=asterisk-cel"),
            settings,
        )
    }

    pub fn start(url: &str, settings: Settings) -> Self {
        let url = SourceUrl::parse(url).unwrap_or_else(|faults| panic!("{url}: {faults:?}"));
        let secret = match &url.secret_file {
            Some(file) => Secret::File(file.clone()),
            None => Secret::Value(SECRET.into()),
        };
        let source = Source::new(SourceId(0), url, secret, None, settings, || {
            EventTime::from_seconds(1_795_151_317)
        });
        let (ends, intake) = ring(Limits::default(), 1);
        let (verdicts, reader) = verdicts();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(source.run(ends.open(), reader, async {
            let _ = stopped.await;
        }));
        Self {
            intake,
            verdicts,
            stop: Some(stop),
            task,
            last: None,
        }
    }

    pub async fn next(&mut self) -> Item {
        let what = format!("an item after {:?}", self.last);
        let item = soon(&what, self.intake.next()).await.expect("a ring").1;
        self.last = Some(item.clone());
        item
    }

    pub async fn expect_up(&mut self) {
        assert_eq!(self.next().await, Item::Up);
    }

    /// Waits until the source consumes after a crash of another consumer. The broker can take a
    /// moment to notice that the other consumer has ended.
    pub async fn expect_up_after_consumer(&mut self) {
        loop {
            match self.next().await {
                Item::Up => break,
                Item::Down(Outage { why, .. }) => {
                    assert!(why.contains("another consumer"), "{why}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub async fn expect_frame(&mut self) -> Frame {
        match self.next().await {
            Item::Frame(frame) => frame,
            other => panic!("{other:?} instead of a frame"),
        }
    }

    pub async fn expect_texts(&mut self, many: usize) -> Vec<String> {
        let mut texts = Vec::new();
        for _ in 0..many {
            let frame = self.expect_frame().await;
            texts.push(String::from_utf8_lossy(&frame.bytes).into_owned());
        }
        texts
    }

    /// Waits for an outage, and returns its reason.
    pub async fn expect_down(&mut self) -> String {
        match self.next().await {
            Item::Down(Outage { why, .. }) => why,
            other => panic!("{other:?} instead of a reason"),
        }
    }

    /// Asks the source to stop.
    pub fn request_stop(&mut self) {
        self.stop = None;
    }

    /// Waits until the source has ended.
    pub async fn wait_until_ended(self) {
        soon("the end of the source", self.task)
            .await
            .expect("no panic");
    }

    /// Ends the source as a crash would: the socket closes without an AMQP close.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
