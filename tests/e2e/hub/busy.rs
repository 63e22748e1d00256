//! A collector whose PBX keeps ending calls, which shows how long the hub confirms none of them.

use super::pair::PATIENCE;
use super::stage::{message, start_collector_with};
use crate::support::program::{Place, Program};
use callbridge_model::clock;
use callbridge_testbed::wait::pass;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

/// Time between two calls of the PBX.
const CALL_EVERY: Duration = Duration::from_millis(500);
/// Time between two looks at the collector's counters.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running collector and the calls of its PBX, which has the same name as the branch.
pub struct BusyCollector {
    place: Place,
    program: Program,
    branch: String,
    /// Number of calls that the PBX has ended.
    pub written: u32,
    written_at: Instant,
    /// Number of calls that the hub has confirmed.
    pub confirmed: u32,
    /// When the last of them was confirmed.
    confirmed_at: Option<Instant>,
    /// Longest time between two confirmed calls.
    pub longest_pause: Duration,
}

impl BusyCollector {
    /// Starts a collector with the URLs of these hubs and a backlog of this many calls.
    pub fn start(hubs: &[SocketAddr], branch: &str, token: &str, backlog: u32) -> Self {
        let place = Place::new();
        place.write("calls.jsonl", "");
        let program = start_collector_with(&place, hubs, token);
        let mut collector = Self {
            place,
            program,
            branch: branch.to_owned(),
            written: 0,
            written_at: Instant::now(),
            confirmed: 0,
            confirmed_at: None,
            longest_pause: Duration::ZERO,
        };
        collector.write_calls(backlog);
        collector
    }

    /// Ends this many calls. They began in the last minute, so a hub sends them as soon as it can.
    pub fn write_calls(&mut self, calls: u32) {
        let started = clock::now().wall.floor_seconds().get() - 60;
        let mut lines = String::new();
        for n in self.written..self.written + calls {
            let mut call = message(&self.branch, n);
            call["startedAt"] = started.into();
            lines.push_str(&format!("{call}\n"));
        }
        self.place.append("calls.jsonl", lines.as_bytes());
        self.written += calls;
        self.written_at = Instant::now();
    }

    fn end_call_if_due(&mut self) {
        if self.written_at.elapsed() >= CALL_EVERY {
            self.write_calls(1);
        }
    }

    /// Notes which calls the hub has confirmed.
    async fn look(&mut self) {
        pass(LOOK_EVERY).await;
        let Some(status) = self.program.status().await else {
            return;
        };
        let confirmed = u32::try_from(status.books.forwarded).expect("few calls");
        if confirmed > self.confirmed {
            let last = self.confirmed_at.replace(Instant::now());
            let pause = last.map_or(Duration::ZERO, |last| last.elapsed());
            self.longest_pause = self.longest_pause.max(pause);
            self.confirmed = confirmed;
        }
    }

    /// Ends a call now and then until the work is done.
    pub async fn end_calls_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            self.end_call_if_due();
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = self.look() => {}
            }
        }
    }

    /// Ends a call now and then until the hub has confirmed one that ended after this moment.
    pub async fn wait_for_next_confirmed(&mut self) {
        let (before, begin) = (self.written, Instant::now());
        while self.confirmed <= before {
            assert!(begin.elapsed() < PATIENCE, "{}", self.program.log());
            self.end_call_if_due();
            self.look().await;
        }
    }

    /// Waits until the hub has confirmed every call.
    pub async fn wait_until_all_confirmed(&mut self) {
        let begin = Instant::now();
        while self.confirmed < self.written {
            assert!(begin.elapsed() < PATIENCE, "{}", self.program.log());
            self.look().await;
        }
    }

    pub async fn terminate(self) {
        self.program.terminate().await;
    }
}
