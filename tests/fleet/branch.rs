//! A branch: a collector, and the file in which its PBX tells of its calls.

use crate::broker::{self, VHOST};
use crate::calls::{self, Call};
use crate::cluster::COLLECTOR;
use crate::company::LEADS;
use crate::ledger::{GivenCall, Ledger};
use crate::line::Cabling;
use crate::program::Place;
use crate::unit::FleetUnit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// See the module.
pub struct Branch {
    pub unit: FleetUnit,
    pub company: usize,
    pbx: String,
    planned: u32,
    within: Duration,
    told: AtomicU32,
    hurried: AtomicU32,
    paused: AtomicBool,
    ledger: Arc<Ledger>,
}

impl Branch {
    /// Branch `n` with a collector that is not started, whose PBX places so many calls `within`
    /// this time.
    pub fn set(
        n: usize,
        (company, stream): (usize, &str),
        (planned, within): (u32, Duration),
        lines: &Cabling,
        ledger: &Arc<Ledger>,
    ) -> Self {
        let place = Place::new();
        let secret = place.write("secret", broker::SECRET);
        place.append("recorded", b"");
        let pbx = format!("branch-{n}");
        let arguments = vec![
            "run".to_owned(),
            format!(
                "--forward=amqp://{COLLECTOR}@{}/{VHOST}?stream={stream}&secret-file={secret}",
                lines.hosts(n)
            ),
            place.file("recorded", "ami"),
            format!("--state={}", place.path("state")),
            format!("--pbx-id={pbx}"),
            TRUNK.to_owned(),
        ];
        Self {
            unit: FleetUnit::new(format!("collector {n}"), place, arguments),
            company,
            pbx,
            planned,
            within,
            told: AtomicU32::new(0),
            hurried: AtomicU32::new(0),
            paused: AtomicBool::new(false),
            ledger: Arc::clone(ledger),
        }
    }

    /// Calls that its PBX has told of.
    pub fn told(&self) -> u32 {
        self.told.load(Ordering::Relaxed)
    }

    /// So many more calls at once, beside the plan.
    pub fn hurry(&self, calls: u32) {
        self.hurried.fetch_add(calls, Ordering::Relaxed);
        if !self.paused.load(Ordering::Relaxed) {
            (0..calls).for_each(|_| self.tell());
        }
    }

    /// Tells of no more calls, whatever is due, or tells again.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Its PBX has told of all calls that there will be.
    pub fn is_done(&self) -> bool {
        self.told() >= self.planned + self.hurried.load(Ordering::Relaxed)
    }

    /// Tells of calls until it is dropped.
    pub async fn run(&self) {
        let begun = Instant::now();
        let mut looks = interval(CHECK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let share = begun.elapsed().as_secs_f64() / self.within.as_secs_f64();
            let due = (f64::from(self.planned) * share.min(1.0)) as u32;
            let due = due + self.hurried.load(Ordering::Relaxed);
            while self.told() < due && !self.paused.load(Ordering::Relaxed) {
                self.tell();
            }
        }
    }

    /// The events of a call that was over just now.
    fn tell(&self) {
        let n = self.told.fetch_add(1, Ordering::Relaxed) + 1;
        let lead = 4_001 + i64::from(n) % LEADS;
        let mut call = Call::new(n, lead);
        call.begins = calls::now() - 6;
        let given = GivenCall {
            company: self.company,
            lead,
            started_at: call.begins,
            answered: true,
            duration: 5,
            talk: 4,
        };
        self.ledger.give(call.uuid(&self.pbx), given);
        self.unit.place.append("recorded", call.ami().as_bytes());
    }
}
