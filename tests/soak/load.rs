//! The load, the kills, and the restarts of the broker.

use crate::gauge::Windows;
use crate::side::Side;
use crate::support::judge::fault::Dice;
use crate::support::recordings;
use callbridge_testbed::broker::Broker;
use callbridge_testbed::calls::{self, Call};
use callbridge_testbed::wait::pass;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Time between two calls of one source.
const CALL_EVERY: Duration = Duration::from_millis(1_500);
/// Time between two samples of the processes.
const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// Shortest and longest time between two kills, in seconds.
const KILL_EVERY: (u64, u64) = (20, 60);
/// Shortest and longest time between two restarts of the broker, in seconds.
const RESTART_EVERY: (u64, u64) = (120, 300);
/// Seconds between two consecutive calls in the queue.
const APART: i64 = 10;

/// A running soak test.
pub struct Soak {
    broker: Broker,
    sides: [Side; 2],
    windows: Windows,
}

impl Soak {
    /// Starts everything.
    pub async fn begin(windows: Windows) -> Self {
        let broker = tokio::task::spawn_blocking(Broker::start).await;
        let broker = broker.expect("a broker");
        let steady = Side::prepare("steady", &broker, true, 1).await;
        let beaten = Side::prepare("beaten", &broker, false, 2).await;
        let sides = [steady, beaten];
        for side in &sides {
            side.start().await;
        }
        if let Some(pbx) = &sides[0].pbx {
            pbx.logged_in(1).await;
        }
        // When the AMQP library first loses a broker, it creates a permanent runtime: a thread and
        // four files. Do it now, so it does not count as growth.
        tokio::task::block_in_place(|| {
            broker.stop();
            broker.start_again();
        });
        Self {
            broker,
            sides,
            windows,
        }
    }

    /// Runs load and faults for this time.
    pub async fn work(&self, time: Duration) {
        let end = Instant::now() + time;
        tokio::join!(
            self.send_calls(end),
            self.publish_calls(end),
            self.kill_repeatedly(end),
            self.sample_repeatedly(end)
        );
    }

    /// Sends a call on each connection at intervals.
    async fn send_calls(&self, end: Instant) {
        let mut n = 0;
        let mut ticks = interval(CALL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Instant::now() < end {
            ticks.tick().await;
            n += 1;
            for side in &self.sides {
                let mut call = Call::new(n, 4001 + i64::from(n % 9));
                call.begins = calls::now() - 4;
                side.send_call(&call).await;
            }
        }
    }

    /// Sends calls through the broker, which is stopped or killed between them.
    async fn publish_calls(&self, end: Instant) {
        let mut dice = Dice::new(3);
        let mut begins = calls::now() - 86_400;
        let mut restart = Instant::now() + random_time(&mut dice, RESTART_EVERY);
        let mut restarts = 0;
        let mut ticks = interval(CALL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Instant::now() < end {
            ticks.tick().await;
            begins += APART;
            let call = recordings::one("inbound_answered").moved_to(begins);
            for side in &self.sides {
                side.publish(&self.broker, &call).await;
            }
            if Instant::now() >= restart {
                restarts += 1;
                tokio::task::block_in_place(|| {
                    if restarts % 2 == 0 {
                        self.broker.kill();
                    } else {
                        self.broker.stop();
                    }
                    self.broker.start_again();
                });
                restart = Instant::now() + random_time(&mut dice, RESTART_EVERY);
            }
        }
        println!("RabbitMQ was restarted {restarts} times");
    }

    async fn kill_repeatedly(&self, end: Instant) {
        let mut dice = Dice::new(4);
        loop {
            let wait = random_time(&mut dice, KILL_EVERY);
            if Instant::now() + wait >= end {
                return;
            }
            pass(wait).await;
            self.sides[1].kill().await;
        }
    }

    /// Takes samples, and prints a line each minute.
    async fn sample_repeatedly(&self, end: Instant) {
        let begun = Instant::now();
        let mut last_minute = 0;
        let mut ticks = interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Instant::now() < end {
            ticks.tick().await;
            for side in &self.sides {
                side.sample().await;
            }
            let minutes = begun.elapsed().as_secs() / 60;
            if minutes > last_minute {
                last_minute = minutes;
                for side in &self.sides {
                    println!("{minutes:>4} min  {}", side.progress());
                }
            }
        }
    }

    /// Waits until the books are settled, and prints the table. Returns `true` if there was no
    /// error.
    pub async fn end(self) -> bool {
        let [steady, beaten] = &self.sides;
        let settled = tokio::join!(steady.settle(), beaten.settle());
        let mut wrong = Vec::new();
        println!(
            "\n{:<30} {:>9} {:>9} {:>9} {:>9}",
            "", "first", "last", "change", "peak"
        );
        for side in &self.sides {
            let (table, more) = side.verdict(self.windows).await;
            print!("{table}");
            wrong.extend(more);
        }
        let flat = wrong.is_empty() && settled == (true, true);
        wrong.iter().for_each(|words| println!("WRONG  {words}"));
        println!("{}", if flat { "flat" } else { "not flat" });
        flat
    }
}

fn random_time(dice: &mut Dice, (least, most): (u64, u64)) -> Duration {
    Duration::from_secs(least + dice.below(most - least + 1))
}
