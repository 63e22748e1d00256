//! The whole fleet: brokers, companies, branches, the driver; how it is begun, watched and ended.

use crate::branch::Branch;
use crate::cluster::{BrokerCluster, NODES};
use crate::company::Company;
use crate::driver::StreamDriver;
use crate::ledger::{Ledger, Verdicts, conduct};
use crate::line::{Cable, Cabling};
use crate::unit::FleetUnit;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Companies, each with a token.
const COMPANIES: usize = 3;
/// Real collectors.
const BRANCHES: usize = 20;
/// PBXs that the driver publishes as.
const PBXS: u64 = 1_000;
/// Of the calls so many are told to collectors; the driver publishes the others.
const TOLD_PERCENT: u64 = 10;
/// Room of a sender's disk.
const DISK: &str = "96m";
/// After the last trouble something has to come into a journal within this, until all is there.
const PROGRESS_WITHIN: Duration = Duration::from_secs(240);
const CHECK_EVERY: Duration = Duration::from_secs(5);
const SAY_EVERY: u64 = 6;

/// What a run is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    pub minutes: f64,
    pub calls: u64,
    pub seed: u64,
    /// Senders of a token.
    pub senders: usize,
    /// Long outages in place of everything that may die.
    pub outages: bool,
}

impl Wishes {
    /// How long calls are given and troubles come.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }
}

/// See the module.
pub struct FleetStage {
    pub cluster: BrokerCluster,
    pub companies: Vec<Company>,
    pub branches: Vec<Branch>,
    pub drivers: Vec<StreamDriver>,
    /// Of the driver, and of all branches.
    pub driver_lines: Arc<Cabling>,
    pub branch_lines: Cabling,
    ledger: Arc<Ledger>,
}

impl FleetStage {
    /// Everything is there, and nothing started but the brokers.
    pub async fn set(wishes: &Wishes) -> Self {
        let cluster = BrokerCluster::start().await;
        let brokers: Vec<SocketAddr> = (0..NODES).map(|node| cluster.addr(node)).collect();
        let (ledger, time) = (Arc::new(Ledger::default()), wishes.time());
        let mut companies = Vec::new();
        for number in 0..COMPANIES {
            let company = Company::set(number, &brokers, wishes.senders).await;
            for stream in [company.stream.clone(), format!("{}.words", company.stream)] {
                cluster.make_stream(&stream).await;
            }
            for sender in &company.senders {
                cluster.tell(&format!("disk {} {DISK}", sender.unit.place.path("state")));
            }
            companies.push(company);
        }
        let (driver_lines, branch_lines) = (
            Arc::new(Cabling::to(&brokers).await),
            Cabling::to(&brokers).await,
        );
        let told = wishes.calls * TOLD_PERCENT / 100 / BRANCHES as u64;
        let plan = (u32::try_from(told).expect("few"), time);
        let branch = |n: usize| {
            let company: &Company = &companies[n % COMPANIES];
            let of = (company.number, company.stream.as_str());
            Branch::set(n, of, plan, &branch_lines, &ledger)
        };
        let branches = (0..BRANCHES).map(branch).collect();
        let published = (wishes.calls - told * BRANCHES as u64) / COMPANIES as u64;
        let plan = (PBXS / COMPANIES as u64, published);
        let driver = |company: &Company| {
            let (lines, ledger) = (Arc::clone(&driver_lines), Arc::clone(&ledger));
            StreamDriver::new(
                (company.number, company.stream.clone()),
                plan,
                time,
                lines,
                ledger,
            )
        };
        let drivers = companies.iter().map(driver).collect();
        Self {
            cluster,
            companies,
            branches,
            drivers,
            driver_lines,
            branch_lines,
            ledger,
        }
    }

    /// All processes.
    pub fn units(&self) -> impl Iterator<Item = &FleetUnit> {
        let senders = self.companies.iter().flat_map(|it| &it.senders);
        let senders = senders.map(|it| &it.unit);
        senders.chain(self.branches.iter().map(|it| &it.unit))
    }

    /// Starts every process.
    pub async fn start(&self) {
        for unit in self.units() {
            unit.start().await;
        }
    }

    /// Calls are given and processes are looked after, until the work is over.
    pub async fn run(&self, seed: u64, work: impl Future<Output = ()>) {
        let drivers = self
            .drivers
            .iter()
            .zip(seed..)
            .map(|(it, seed)| it.run(seed));
        let drivers = futures_util::future::join_all(drivers);
        let branches = futures_util::future::join_all(self.branches.iter().map(Branch::run));
        tokio::select! {
            () = work => {}
            _ = drivers => {}
            _ = branches => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&self) {
        let begun = Instant::now();
        let mut looks = interval(CHECK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for look in 0_u64.. {
            looks.tick().await;
            for unit in self.units() {
                unit.look_after().await;
            }
            if look % SAY_EVERY == 0 {
                println!("{:>5} s  {}", begun.elapsed().as_secs(), self.progress());
            }
        }
    }

    /// Given, journaled, and the fullest window, of each company.
    fn progress(&self) -> String {
        let each = self.companies.iter().map(|company| {
            let given = self.ledger.given(company.number);
            let fullest = company.crm.admin(|core, _| core.fullest().in_a_window);
            format!("{}/{given} (≤ {fullest})", company.journaled())
        });
        each.collect::<Vec<_>>().join("  ")
    }

    /// Whatever was done to anything is over.
    pub async fn mend(&self) {
        self.cluster.heal();
        self.driver_lines.set(Cable::Whole);
        self.branch_lines.set(Cable::Whole);
        for company in &self.companies {
            for sender in &company.senders {
                sender.brokers.set(Cable::Whole);
                sender.crm.set(Cable::Whole);
            }
        }
        for unit in self.units() {
            unit.signal(Signal::CONT).await;
            unit.start().await;
        }
    }

    /// Waits until every call is in its journal, or nothing moves any more; whether all are.
    pub async fn drained(&self) -> bool {
        let mut looks = interval(CHECK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            looks.tick().await;
            let given: usize = (0..COMPANIES).map(|n| self.ledger.given(n)).sum();
            let journaled: usize = self.companies.iter().map(Company::journaled).sum();
            let told = self.drivers.iter().all(StreamDriver::is_done)
                && self.branches.iter().all(Branch::is_done);
            if told && journaled >= given {
                return true;
            }
            if journaled > last {
                (last, moved) = (journaled, Instant::now());
            }
            if moved.elapsed() > PROGRESS_WITHIN {
                return false;
            }
        }
    }

    /// What is wrong at the end: in journals, windows, books and processes.
    pub async fn judge(&self) -> (Verdicts, Vec<String>) {
        let (found, mut wrong) = self.ledger.judge(&self.companies);
        let few = wrong.len().saturating_sub(20);
        wrong.truncate(20);
        if few > 0 {
            wrong.push(format!("… and {few} more"));
        }
        for company in &self.companies {
            let (conduct, repeats) = conduct(company);
            wrong.extend(conduct);
            println!("company {}: {repeats} submissions repeated", company.number);
        }
        for unit in self.units() {
            let ended = unit.faults.load(Ordering::Relaxed);
            if ended > 0 {
                wrong.push(format!("{} ended by itself {ended} times", unit.name));
            }
            match unit.books().await {
                None => wrong.push(format!("{} does not answer", unit.name)),
                Some(books) => {
                    let mut letters = books.dead + books.parked;
                    if !self.is_flooded(unit) {
                        letters += books.unreadable;
                    }
                    if !books.balance() || letters > 0 {
                        wrong.push(format!("{}: {books:?}", unit.name));
                    }
                }
            }
        }
        (found, wrong)
    }

    /// It reads a stream in which lies what nobody can read.
    fn is_flooded(&self, unit: &FleetUnit) -> bool {
        let flooded = self.companies.iter();
        let flooded = flooded.filter(|it| it.flooded.load(Ordering::Relaxed));
        let mut readers = flooded.flat_map(|it| &it.senders);
        readers.any(|it| std::ptr::eq(&raw const it.unit, unit))
    }

    /// No more calls of this company are given, or again.
    pub fn pause(&self, company: &Company, paused: bool) {
        self.drivers[company.number].pause(paused);
        let branches = self.branches.iter();
        let branches = branches.filter(|it| it.company == company.number);
        branches.for_each(|it| it.pause(paused));
    }

    /// Ends all processes.
    pub async fn end(&self) {
        for unit in self.units() {
            unit.kill().await;
        }
    }

    /// The fullest window of any token.
    pub fn fullest(&self) -> u32 {
        let each = self.companies.iter();
        let each = each.map(|it| it.crm.admin(|core, _| core.fullest().in_a_window));
        each.max().unwrap_or(0)
    }

    /// Calls that were given and are in no journal yet.
    pub fn in_hand(&self) -> u64 {
        self.companies.iter().map(|it| self.in_hand_of(it)).sum()
    }

    /// As [`FleetStage::in_hand`], of one company.
    pub fn in_hand_of(&self, company: &Company) -> u64 {
        let given = self.ledger.given(company.number);
        u64::try_from(given.saturating_sub(company.journaled())).unwrap_or(0)
    }
}
