//! Runs a source for a test, and takes the items of the source.

use callbridge_source::{
    Bounds, Counts, EventTime, FilePosition, Frame, Intake, Item, Limits, Outage, Secret, Settings,
    Source, SourceId, SourceUrl, Verdicts, ring, verdicts,
};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Time limit for every wait in these tests.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for `future`. Panics with `what` if the future takes longer than [`DEADLINE`].
pub async fn within_deadline<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {DEADLINE:?}"),
    }
}

/// Waits until `holds` returns `true`. Panics with `what` if this takes longer than [`DEADLINE`].
pub async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut ticks = interval(Duration::from_millis(5));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let polling = async {
        while !holds() {
            ticks.tick().await;
        }
    };
    within_deadline(what, polling).await;
}

/// Returns settings with short waits between tries, and the other defaults.
pub fn settings() -> Settings {
    Settings {
        backoff: Bounds {
            first: Duration::from_millis(20),
            most: Duration::from_millis(100),
            ..Bounds::default()
        },
        poll_every: Duration::from_millis(5),
        idle_after: Duration::ZERO,
        ..Settings::default()
    }
}

/// Returns settings with which a dead connection is noticed within half a second.
pub fn impatient_settings() -> Settings {
    Settings {
        ping_every: Duration::from_millis(100),
        silent_after: Duration::from_millis(400),
        ..settings()
    }
}

pub fn is_pong(item: &Item) -> bool {
    matches!(item, Item::Pong { .. })
}

/// A running source.
pub struct Stage {
    pub intake: Intake,
    pub verdicts: Verdicts,
    pub counts: Counts,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn clock() -> EventTime {
    EventTime::from_seconds(1_795_151_317)
}

impl Stage {
    pub fn start(url: &str, settings: Settings) -> Self {
        Self::start_at(url, settings, Limits::default(), None)
    }

    pub fn start_at(
        url: &str,
        settings: Settings,
        limits: Limits,
        start: Option<FilePosition>,
    ) -> Self {
        let url = SourceUrl::parse(url).unwrap_or_else(|faults| panic!("{url}: {faults:?}"));
        let secret = match &url.secret_file {
            Some(file) => Secret::File(file.clone()),
            None => Secret::Value("bridgesecret".into()),
        };
        let source = Source::new(SourceId(7), url, secret, start, settings, clock);
        let (ends, intake) = ring(limits, 1);
        let (verdicts, reader) = verdicts();
        let (stop, stopped) = oneshot::channel::<()>();
        let counts = source.counts();
        let task = tokio::spawn(source.run(ends.open(), reader, async {
            // A dropped stage stops its source as well.
            let _ = stopped.await;
        }));
        Self {
            intake,
            verdicts,
            counts,
            stop,
            task,
        }
    }

    /// Takes the next item, but skips responses to pings, which come at any time.
    pub async fn next(&mut self) -> Item {
        loop {
            let item = self.next_or_pong().await;
            if !is_pong(&item) {
                return item;
            }
        }
    }

    pub async fn next_or_pong(&mut self) -> Item {
        let (source, item) = within_deadline("an item", self.intake.next())
            .await
            .expect("a ring");
        assert_eq!(source, SourceId(7));
        item
    }

    pub async fn frame(&mut self) -> Frame {
        match self.next().await {
            Item::Frame(frame) => frame,
            other => panic!("{other:?} instead of a frame"),
        }
    }

    pub async fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.frame().await.bytes).into_owned()
    }

    /// Takes the next item, which must be `Up`.
    pub async fn expect_up(&mut self) {
        assert_eq!(self.next().await, Item::Up);
    }

    /// Takes the next item, which must be an outage, and returns the reason.
    pub async fn next_outage_reason(&mut self) -> String {
        match self.next().await {
            Item::Down(Outage { why, .. }) => why,
            other => panic!("{other:?} instead of a reason"),
        }
    }

    /// Takes the next item, which must be a gap, and returns the reason.
    pub async fn next_gap_reason(&mut self) -> String {
        match self.next().await {
            Item::Gap { why } => why,
            other => panic!("{other:?} instead of a gap"),
        }
    }

    /// Stops the source. Returns the items that the source has reported and no one has taken,
    /// without responses to pings.
    pub async fn stop(self) -> Vec<Item> {
        let mut items = self.stop_with_pongs().await;
        items.retain(|item| !is_pong(item));
        items
    }

    pub async fn stop_with_pongs(mut self) -> Vec<Item> {
        let _ = self.stop.send(());
        within_deadline("the end of the source", self.task)
            .await
            .expect("no panic");
        let mut items = Vec::new();
        while let Some((_, item)) = self.intake.try_next() {
            items.push(item);
        }
        assert_eq!(items.pop(), Some(Item::Done));
        items
    }
}
