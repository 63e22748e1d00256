//! The run of one seed: its calls, faults, and actions of people.

use crate::simulation::disk::Health;
use crate::simulation::paths::Hardship;
use crate::simulation::strikes::{Blow, Moment, Trap};
use crate::simulation::way::Network;
use crate::simulation::weather;
use crate::simulation::world::World;
use crate::support::simulated_calls::{Dice, call, epoch};
use callbridge_call::EventTime;
use callbridge_model::{Outcome, Reason};
use callbridge_sandbox as sandbox;
use callbridge_sender::Settings;
use callbridge_spool::Finished;
use std::collections::BTreeMap;
use std::time::Duration;

/// A lead that does not exist. Its writes end with FAILED until a person changes the lead.
pub const UNKNOWN_LEAD: i64 = 9999;

/// The length of a run, and its number of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Hours of faults.
    pub hours: u64,
    /// Calls per hour.
    pub calls_an_hour: u64,
}

impl Default for Length {
    /// Returns an hour of 600 calls.
    fn default() -> Self {
        Self {
            hours: 1,
            calls_an_hour: 600,
        }
    }
}

/// A fault that must be undone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mend {
    Token,
    Grants,
    Block,
    Disk,
    Clock,
    Network,
    Restore(usize, usize),
}

/// The run of one seed.
pub struct Run {
    pub world: World,
    pub(crate) dice: Dice,
    pub(crate) length: Length,
    /// The finished calls, by uuid.
    pub calls: BTreeMap<String, Finished>,
    /// Uuids in the order in which the calls finished.
    order: Vec<String>,
    pub(crate) mends: BTreeMap<(EventTime, u64), Mend>,
    pub(crate) planned: u64,
    pub(crate) rates: &'static [&'static str],
    /// The company's grants when none is revoked.
    pub(crate) grants: Vec<sandbox::token::Grant>,
    /// The valid token.
    pub(crate) right: String,
    /// The life of access tokens, and when the next one is due. `None` with a PAT.
    pub(crate) refresh: Option<(Duration, EventTime)>,
}

/// The CRM's rate, and rates of callbridge that stay within it.
const RATES: [&[&str]; 4] = [
    &["60/60s", "60/60s", "60/60s", "30/60s", "10/60s", "5/5s"],
    &["60/6s", "60/6s", "30/6s", "10/1s"],
    &["60/60s"],
    &["20/60s", "20/60s", "10/30s"],
];

impl Run {
    /// Creates the world of a seed.
    pub fn new(seed: u64, length: Length) -> Self {
        let mut dice = Dice::new(seed ^ 0x5eed);
        let saturated = length.calls_an_hour > 600;
        let rates = if saturated {
            RATES[2]
        } else {
            *dice.pick(&RATES)
        };
        let mut settings = Settings {
            rate: dice.pick(rates).parse().expect("a rate"),
            seed,
            clock_right_from: Some(epoch().minus(Duration::from_secs(86_400))),
            ..Settings::default()
        };
        if dice.chance(30) {
            settings.fields.phone = Some("clientPhone".to_owned());
        }
        let crm = weather::sandbox(seed, rates[0], &mut dice);
        let grants = crm.company.grants.clone();
        let mut world = World::new(seed, settings, crm);
        world.witness.strict = true;
        if dice.chance(10) {
            world.disk.history = Some(Vec::new());
        }
        // Separate random numbers, so that the rest of the seed's run does not change.
        let mut more = Dice::new(seed ^ 0x400c);
        if more.chance(40) {
            world.hook();
        }
        let life = Duration::from_secs(*more.pick(&[120, 600, 3600]));
        let refresh = more.chance(30).then_some((life, world.truth));
        Self {
            right: world.token.clone(),
            refresh,
            world,
            dice,
            length,
            calls: BTreeMap::new(),
            order: Vec::new(),
            mends: BTreeMap::new(),
            planned: 0,
            rates,
            grants,
        }
    }

    /// Runs the hours of faults.
    pub fn faults(&mut self) {
        let length = Duration::from_secs(self.length.hours * 3600);
        let all = self.length.hours * self.length.calls_an_hour;
        let night = self.dice.chance(5).then(|| self.dice.below(3600));
        let mut slept = Duration::ZERO;
        loop {
            let passed = self.world.truth.since(epoch()).saturating_sub(slept);
            let early = if self.dice.chance(2) { 60 } else { 0 };
            let share = all * passed.as_secs() / length.as_secs().max(1);
            while self.order.len() < usize::try_from(all.min(share + early)).expect("few") {
                self.call();
            }
            if passed >= length {
                break;
            }
            self.mend_due();
            self.refresh();
            self.weather();
            self.strike();
            self.people();
            if slept.is_zero() && night.is_some_and(|at| passed.as_secs() >= at) {
                slept = self.night();
            }
            let pause = Duration::from_millis(1 + self.dice.below(20_000));
            self.world.run_for(pause);
        }
    }

    /// Finishes a call. The CRM refuses some calls, and some are reported twice.
    fn call(&mut self) {
        let n = u32::try_from(self.order.len()).expect("few");
        let lead = if self.dice.chance(5) {
            UNKNOWN_LEAD
        } else {
            4001 + i64::try_from(self.dice.below(900)).expect("few")
        };
        let live = self.dice.chance(70);
        let mut call = call(n, self.world.truth, lead, live);
        if self.dice.chance(3) {
            let reason = *self
                .dice
                .pick(&[Reason::NoLead, Reason::NoLead, Reason::Incomplete]);
            call.judged.outcome = Outcome::DeadLetter;
            call.judged.reason = Some(reason);
            if reason == Reason::NoLead {
                call.judged.record.lead_id = None;
            }
        }
        let uuid = call.judged.record.uuid.expect("a uuid").to_string();
        self.calls.insert(uuid.clone(), call.clone());
        self.order.push(uuid);
        if self.dice.chance(2) {
            self.world.finish(call.clone());
        }
        self.world.finish(call);
    }

    /// Starts a fault of the program or its machine.
    fn strike(&mut self) {
        if self.dice.chance(2) {
            let down = Duration::from_millis(self.dice.below(20_000));
            if self.dice.chance(25) {
                self.change_rate();
            }
            match self.dice.below(5) {
                0 => self.world.kill(down, true),
                1 => self.world.stop(down),
                _ => self.world.kill(down, false),
            }
        }
        if self.dice.chance(4) {
            let time = Duration::from_millis(1 + self.dice.below(20_000));
            let at = *self.dice.pick(&Moment::ALL);
            let blow = match self.dice.below(8) {
                0 => Blow::Reboot(time),
                1 | 2 => Blow::Stall(time * 12),
                3 | 4 => Blow::KillInDoubt(time),
                _ => Blow::Kill(time),
            };
            self.world.trap = Some(Trap { at, blow });
        }
        if self.dice.chance(1) && self.dice.chance(50) {
            self.disk_trouble();
        }
        if self.dice.chance(1) && self.dice.chance(40) {
            self.clock_trouble();
        }
        if self.world.disk.history.is_some() && self.dice.chance(1) {
            // Calls that the full disk keeps out are not in the snapshot either.
            let calls = self.order.len().saturating_sub(self.world.untold.len());
            let writes = self.world.snapshot();
            let wait = Duration::from_secs(self.dice.below(900));
            self.plan_mend(wait, Mend::Restore(writes, calls));
        }
    }

    fn change_rate(&mut self) {
        let rate = self.dice.pick(self.rates).parse().expect("a rate");
        if self.world.settings.rate != rate {
            self.world.settings.rate = rate;
            self.world.met.count_hardship(Hardship::RateChanged);
        }
    }

    fn disk_trouble(&mut self) {
        let (health, hardship) = if self.dice.chance(50) {
            (Health::Full, Hardship::DiskFull)
        } else {
            (Health::Failing, Hardship::DiskFailing)
        };
        self.world.disk.health = health;
        self.world.met.count_hardship(hardship);
        let most = if self.dice.chance(20) { 600 } else { 20 };
        let wait = Duration::from_secs(1 + self.dice.below(most));
        self.plan_mend(wait, Mend::Disk);
    }

    fn clock_trouble(&mut self) {
        let day = 86_400;
        let most = *self
            .dice
            .pick(&[10, 300, 3600, 2 * day, 400 * day, 20_000 * day]);
        let ahead = i64::try_from(1 + self.dice.below(most)).expect("few");
        let ahead = if self.dice.chance(50) { ahead } else { -ahead };
        // No machine's clock shows a time before its epoch.
        let now = self.world.truth.micros() / 1_000_000;
        self.world.set_clock(ahead.max(-now));
        let wait = Duration::from_secs(1 + self.dice.below(1200));
        self.plan_mend(wait, Mend::Clock);
    }

    /// Blocks the network for most of a day. Calls that were accepted before wait.
    fn night(&mut self) -> Duration {
        let began = self.world.truth;
        self.world.met.count_hardship(Hardship::LongNight);
        self.world.sandbox.set_faults(Vec::new());
        self.world.network = Network {
            silent: true,
            ..Network::default()
        };
        let seconds = 80_000 + self.dice.below(8_000);
        self.world.run_for(Duration::from_secs(seconds));
        self.world.network.silent = false;
        self.world.truth.since(began)
    }

    /// Plans to undo a fault after this time.
    pub(crate) fn plan_mend(&mut self, wait: Duration, mend: Mend) {
        self.planned += 1;
        let at = self.world.truth.plus(wait);
        self.mends.insert((at, self.planned), mend);
    }

    /// Undoes the faults that are due.
    pub(crate) fn mend_due(&mut self) {
        while let Some(entry) = self.mends.first_entry() {
            if entry.key().0 > self.world.truth {
                break;
            }
            let mend = entry.remove();
            self.mend(mend);
        }
    }

    pub(crate) fn mend(&mut self, mend: Mend) {
        match mend {
            Mend::Token => {
                let right = self.right.clone();
                self.world.put_token(&right);
            }
            Mend::Grants => {
                let (at, grants) = (self.world.truth, self.grants.clone());
                self.world.sandbox.set_grants(at, grants);
            }
            Mend::Block => {
                let at = self.world.truth;
                self.world
                    .sandbox
                    .company(at, |company| company.blocked = false);
            }
            Mend::Disk => self.world.disk.health = Health::Sound,
            Mend::Clock => self.world.set_clock(0),
            Mend::Network => {
                self.world.network = Network {
                    delay: Duration::from_millis(30),
                    ..Network::default()
                };
            }
            Mend::Restore(writes, calls) => self.restore(writes, calls),
        }
    }

    /// Restores the disk of that moment. The sources report again the calls since then.
    fn restore(&mut self, writes: usize, calls: usize) {
        if self.world.disk.history.is_none() {
            return;
        }
        self.world.restore(writes);
        // One restore per run is enough.
        self.world.disk.history = None;
        for uuid in self.order.split_off(calls) {
            let call = self.calls[&uuid].clone();
            self.order.push(uuid);
            self.world.finish(call);
        }
    }
}
