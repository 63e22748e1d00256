//! The systemd side of a hub's notification socket, which measures the time between two pings.

use crate::support::program::Place;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixDatagram;

/// How late a ping can be on a busy machine.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// A socket that receives a hub's messages for systemd.
pub struct Watchdog {
    path: String,
    time: Duration,
    microseconds: String,
    pings: Arc<Mutex<Pings>>,
}

#[derive(Default)]
struct Pings {
    count: u32,
    last: Option<Instant>,
    longest_pause: Duration,
}

impl Pings {
    fn note(&mut self) {
        let pause = self.last.map_or(Duration::ZERO, |last| last.elapsed());
        self.longest_pause = self.longest_pause.max(pause);
        self.last = Some(Instant::now());
        self.count += 1;
    }
}

impl Watchdog {
    /// Opens a socket in this folder for a watchdog with this time (`WatchdogSec=`).
    pub fn start(place: &Place, time: Duration) -> Self {
        let path = place.path("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let pings = Arc::<Mutex<Pings>>::default();
        let noted = Arc::clone(&pings);
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            loop {
                let length = socket.recv(&mut buffer).await.expect("a message");
                let text = String::from_utf8_lossy(&buffer[..length]);
                if text.lines().any(|line| line == "WATCHDOG=1") {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).note();
                }
            }
        });
        Self {
            path,
            time,
            microseconds: time.as_micros().to_string(),
            pings,
        }
    }

    /// Returns the environment variables that systemd sets.
    pub fn variables(&self) -> [(&str, &str); 2] {
        [
            ("NOTIFY_SOCKET", &self.path),
            ("WATCHDOG_USEC", &self.microseconds),
        ]
    }

    fn pings(&self) -> MutexGuard<'_, Pings> {
        self.pings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of pings so far.
    pub fn count(&self) -> u32 {
        self.pings().count
    }

    /// Returns the longest time without a ping since the first one. Fails if it exceeds half of the
    /// watchdog's time.
    pub fn check(&self) -> Duration {
        let mut pings = self.pings();
        pings.note();
        let longest = pings.longest_pause;
        assert!(
            longest <= self.time / 2 + DELAY_MAX,
            "no ping for {longest:?}"
        );
        longest
    }
}
