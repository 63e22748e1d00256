//! What befalls the fleet, each in turn and then at random.

use crate::branch::Branch;
use crate::cluster::{self, COLLECTOR, NODES};
use crate::company::{Company, SendingUnit};
use crate::line::{Cable, Cabling};
use crate::random::SeededRandom;
use crate::stage::FleetStage;
use crate::wait::{pass, until_within};
use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A fault that is over is mended within this, takeovers with their silence included.
const RECOVERS_WITHIN: Duration = Duration::from_secs(600);
/// Calls that are given just before a fault, so that it finds some in hand.
const HURRIED: u64 = 40;
/// Messages of a flood.
const FLOOD: u32 = 400;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetFault {
    CollectorKilled,
    CollectorFrozen,
    SenderKilled,
    SenderFrozen,
    SenderStopped,
    SenderStateLost,
    SenderDiskFull,
    CrmSilent,
    HolderWithoutCrm,
    StreamMadeAnew,
    CollectorFloods,
    NodeKilled,
    NodeFrozen,
    NodeCutOff,
    NodesCutApart,
    NodeDiskFull,
    ClusterRestarted,
    LinesClosed,
    LinesSilent,
    ClusterAway,
    CrmAway,
}

impl FleetFault {
    /// Those of processes.
    pub const OF_PROCESSES: [Self; 11] = [
        Self::SenderKilled,
        Self::HolderWithoutCrm,
        Self::CollectorKilled,
        Self::SenderFrozen,
        Self::CollectorFloods,
        Self::SenderStateLost,
        Self::CollectorFrozen,
        Self::SenderDiskFull,
        Self::CrmSilent,
        Self::SenderStopped,
        Self::StreamMadeAnew,
    ];
    /// Those of brokers and of the lines to them.
    pub const OF_BROKERS: [Self; 8] = [
        Self::NodeKilled,
        Self::NodeCutOff,
        Self::LinesClosed,
        Self::NodesCutApart,
        Self::NodeFrozen,
        Self::LinesSilent,
        Self::ClusterRestarted,
        Self::NodeDiskFull,
    ];

    /// Long ones, which come alone.
    pub const OUTAGES: [Self; 2] = [Self::ClusterAway, Self::CrmAway];

    /// As the table has it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::CollectorKilled => "collector: kill -9",
            Self::CollectorFrozen => "collector: frozen",
            Self::SenderKilled => "sender: kill -9",
            Self::SenderFrozen => "sender: frozen",
            Self::SenderStopped => "sender: stopped, started",
            Self::SenderStateLost => "sender: kill -9, state deleted",
            Self::SenderDiskFull => "sender: disk full",
            Self::CrmSilent => "CRM: does not answer",
            Self::HolderWithoutCrm => "holder: no way to the CRM",
            Self::StreamMadeAnew => "stream: deleted, made anew",
            Self::CollectorFloods => "collector: floods a stream",
            Self::NodeKilled => "node: kill -9",
            Self::NodeFrozen => "node: frozen",
            Self::NodeCutOff => "node: cut from the others",
            Self::NodesCutApart => "nodes: each cut from each",
            Self::NodeDiskFull => "node: disk full",
            Self::ClusterRestarted => "cluster: kill -9, started",
            Self::LinesClosed => "lines to brokers: closed",
            Self::LinesSilent => "lines to brokers: silent",
            Self::ClusterAway => "cluster: away",
            Self::CrmAway => "CRM: away",
        }
    }
}

/// How one fault went.
#[derive(Clone, Copy, Debug)]
pub struct FaultOutcome {
    /// Calls that it found in hand.
    pub in_hand: u64,
    /// From its end until calls went their way again.
    pub recovered: Duration,
}

/// Lets it happen, and waits until the fleet has recovered.
pub async fn strike(
    stage: &FleetStage,
    fault: FleetFault,
    random: &mut SeededRandom,
) -> FaultOutcome {
    match fault {
        FleetFault::CollectorKilled | FleetFault::CollectorFrozen => {
            let branch = &stage.branches[random.index(stage.branches.len())];
            of_collector(branch, fault, random).await
        }
        FleetFault::SenderKilled
        | FleetFault::SenderFrozen
        | FleetFault::SenderStopped
        | FleetFault::SenderStateLost
        | FleetFault::SenderDiskFull
        | FleetFault::CrmSilent
        | FleetFault::HolderWithoutCrm => {
            let company = &stage.companies[random.index(stage.companies.len())];
            of_sender(stage, company, fault, random).await
        }
        FleetFault::StreamMadeAnew | FleetFault::CollectorFloods => {
            let company = &stage.companies[random.index(stage.companies.len())];
            of_stream(stage, company, fault, random).await
        }
        FleetFault::NodeKilled
        | FleetFault::NodeFrozen
        | FleetFault::NodeCutOff
        | FleetFault::NodesCutApart
        | FleetFault::NodeDiskFull
        | FleetFault::ClusterRestarted
        | FleetFault::LinesClosed
        | FleetFault::LinesSilent => of_brokers(stage, fault, random).await,
        FleetFault::ClusterAway | FleetFault::CrmAway => {
            unreachable!("outages come alone, by a plan of their own")
        }
    }
}

async fn of_collector(
    branch: &Branch,
    fault: FleetFault,
    random: &mut SeededRandom,
) -> FaultOutcome {
    let unit = &branch.unit;
    branch.hurry(20);
    let forwarded = match fault {
        FleetFault::CollectorFrozen => {
            let books = unit.books().await;
            unit.signal(Signal::STOP).await;
            pass(random.seconds(8, 20)).await;
            unit.signal(Signal::CONT).await;
            books
        }
        _ => {
            unit.kill().await;
            let books = unit.books_left().await;
            pass(random.seconds(1, 6)).await;
            unit.start().await;
            books
        }
    };
    let (ended, told) = (Instant::now(), u64::from(branch.told()));
    let forwarded = forwarded.map_or(0, |books| books.forwarded);
    let what = format!("all of {} is forwarded", unit.name);
    until_within(RECOVERS_WITHIN, &what, async || {
        unit.books().await.is_some_and(|it| it.forwarded >= told)
    })
    .await;
    FaultOutcome {
        in_hand: told.saturating_sub(forwarded),
        recovered: ended.elapsed(),
    }
}

async fn of_sender(
    stage: &FleetStage,
    company: &Company,
    fault: FleetFault,
    random: &mut SeededRandom,
) -> FaultOutcome {
    stage.drivers[company.number].hurry(HURRIED);
    // Mostly who sends just now; at times who stands by.
    let holder = company.holder().await;
    let mut all = company.senders.iter();
    let other = all.find(|it| !std::ptr::eq(*it, holder));
    let sender = match other {
        Some(other) if fault != FleetFault::HolderWithoutCrm && random.below(5) == 0 => other,
        _ => holder,
    };
    let unit = &sender.unit;
    let books = match fault {
        FleetFault::HolderWithoutCrm => no_way(company, sender, random).await,
        _ => befall(stage, sender, fault, random).await,
    };
    let (ended, accepted) = (Instant::now(), company.accepted());
    // There may be nothing left to send.
    stage.drivers[company.number].hurry(1);
    let what = format!("something of company {} is sent", company.number);
    until_within(RECOVERS_WITHIN, &what, async || {
        company.accepted() > accepted
    })
    .await;
    let in_hand = books.map_or(0, |it| it.ready + it.sending + it.submitted);
    println!("       {} had {in_hand} calls in hand", unit.name);
    FaultOutcome {
        in_hand,
        recovered: ended.elapsed(),
    }
}

/// The holder alone does not reach the CRM: who stands by for it sends, the first time.
async fn no_way(
    company: &Company,
    holder: &SendingUnit,
    random: &mut SeededRandom,
) -> Option<callbridge_model::status::Books> {
    let books = holder.unit.books().await;
    holder.crm.set(Cable::Closed);
    let accepted = company.accepted();
    if company.senders.len() > 1 && !company.handed_over.swap(true, Ordering::Relaxed) {
        let what = format!("the lease of company {} is handed over", company.number);
        until_within(RECOVERS_WITHIN, &what, async || {
            company.accepted() > accepted
        })
        .await;
    } else {
        pass(random.seconds(100, 200)).await;
    }
    holder.crm.set(Cable::Whole);
    books
}

/// A stream is another one, or full of what nobody can read.
async fn of_stream(
    stage: &FleetStage,
    company: &Company,
    fault: FleetFault,
    random: &mut SeededRandom,
) -> FaultOutcome {
    let driver = &stage.drivers[company.number];
    let in_hand = if fault == FleetFault::CollectorFloods {
        driver.hurry(HURRIED);
        company.flooded.store(true, Ordering::Relaxed);
        flood(
            stage.driver_lines.addr(random.index(NODES)),
            &company.stream,
            random,
        )
        .await;
        HURRIED
    } else {
        // With a stream goes what nobody has read of it: nothing may be in it then.
        stage.pause(company, true);
        let what = format!("all of company {} is journaled", company.number);
        until_within(RECOVERS_WITHIN, &what, async || {
            stage.in_hand_of(company) == 0
        })
        .await;
        stage.cluster.delete_stream(&company.stream).await;
        stage.pause(company, false);
        driver.hurry(HURRIED);
        pass(random.seconds(1, 8)).await;
        let in_hand = stage.in_hand_of(company);
        stage.cluster.make_stream(&company.stream).await;
        in_hand
    };
    let (ended, accepted) = (Instant::now(), company.accepted());
    driver.hurry(1);
    let what = format!("something of company {} is sent", company.number);
    until_within(RECOVERS_WITHIN, &what, async || {
        company.accepted() > accepted
    })
    .await;
    FaultOutcome {
        in_hand,
        recovered: ended.elapsed(),
    }
}

/// Many small messages and some as large as brokers take, of a user with the right to publish.
async fn flood(node: SocketAddr, stream: &str, random: &mut SeededRandom) {
    let Ok((_connection, channel)) = cluster::connect(node, COLLECTOR).await else {
        return;
    };
    for n in 0..FLOOD {
        let size = if n % 50 == 0 { 900_000 } else { 40 };
        let body = format!("{{\"pbx\": \"nobody-{}\"", random.below(1_000));
        let body = body + &" ".repeat(size);
        let properties = BasicProperties::default()
            .with_content_type("application/vnd.callbridge.call+json; version=1".into())
            .with_user_id(COLLECTOR.into());
        let options = BasicPublishOptions::default();
        let sent = channel
            .basic_publish(
                "".into(),
                stream.into(),
                options,
                body.as_bytes(),
                properties,
            )
            .await;
        // Nodes die meanwhile.
        let Ok(confirm) = sent else { return };
        if confirm.await.is_err() {
            return;
        }
    }
}

/// The fault itself; the books as it found them.
async fn befall(
    stage: &FleetStage,
    sender: &SendingUnit,
    fault: FleetFault,
    random: &mut SeededRandom,
) -> Option<callbridge_model::status::Books> {
    let unit = &sender.unit;
    let state = unit.place.path("state");
    match fault {
        FleetFault::SenderFrozen => {
            let books = unit.books().await;
            unit.signal(Signal::STOP).await;
            pass(random.seconds(12, 40)).await;
            unit.signal(Signal::CONT).await;
            books
        }
        FleetFault::SenderStopped => {
            let books = unit.books().await;
            unit.stop().await;
            pass(random.seconds(1, 4)).await;
            unit.start().await;
            books
        }
        FleetFault::SenderDiskFull => {
            let books = unit.books().await;
            stage.cluster.tell(&format!("fill {state}"));
            pass(random.seconds(10, 25)).await;
            stage.cluster.tell(&format!("empty {state}"));
            books
        }
        FleetFault::CrmSilent => {
            let books = unit.books().await;
            sender.crm.set(Cable::Silent);
            pass(random.seconds(10, 45)).await;
            sender.crm.set(Cable::Whole);
            books
        }
        _ => {
            unit.kill().await;
            let books = unit.books_left().await;
            pass(random.seconds(1, 8)).await;
            if fault == FleetFault::SenderStateLost {
                unit.lose_state();
            }
            unit.start().await;
            books
        }
    }
}

async fn of_brokers(
    stage: &FleetStage,
    fault: FleetFault,
    random: &mut SeededRandom,
) -> FaultOutcome {
    for driver in &stage.drivers {
        driver.hurry(HURRIED);
    }
    for branch in &stage.branches {
        branch.hurry(1);
    }
    let (cluster, node) = (&stage.cluster, random.index(NODES));
    let in_hand = stage.in_hand();
    match fault {
        FleetFault::NodeFrozen => {
            cluster.freeze(node);
            pass(random.seconds(10, 45)).await;
            cluster.thaw(node);
        }
        FleetFault::NodeCutOff => {
            (1..NODES).for_each(|n| cluster.cut(node, (node + n) % NODES));
            pass(random.seconds(15, 90)).await;
            cluster.heal();
        }
        FleetFault::NodesCutApart => {
            (0..NODES).for_each(|node| cluster.cut(node, (node + 1) % NODES));
            pass(random.seconds(15, 40)).await;
            cluster.heal();
        }
        FleetFault::NodeDiskFull => {
            let disk = cluster.disk(node).display().to_string();
            cluster.tell(&format!("fill {disk}"));
            pass(random.seconds(15, 30)).await;
            cluster.tell(&format!("empty {disk}"));
            // Whether a node survives that is RabbitMQ's affair; an administrator starts it again.
            cluster.kill(node);
            cluster.start_again(node);
        }
        FleetFault::LinesClosed => cut_lines(stage, Cable::Closed, random).await,
        FleetFault::LinesSilent => cut_lines(stage, Cable::Silent, random).await,
        FleetFault::ClusterRestarted => {
            (0..NODES).for_each(|node| cluster.kill(node));
            pass(random.seconds(1, 15)).await;
            (0..NODES).for_each(|node| cluster.start_again(node));
        }
        _ => {
            cluster.kill(node);
            pass(random.seconds(1, 20)).await;
            cluster.start_again(node);
        }
    }
    let ended = Instant::now();
    for node in 0..NODES {
        cluster.answers(node).await;
    }
    flows(stage).await;
    FaultOutcome {
        in_hand,
        recovered: ended.elapsed(),
    }
}

/// Lines of a kind of clients to all brokers.
async fn cut_lines(stage: &FleetStage, cable: Cable, random: &mut SeededRandom) {
    let all_senders = stage.companies.iter().flat_map(|it| &it.senders);
    let cut: Vec<&Cabling> = match random.below(4) {
        0 => vec![&stage.branch_lines],
        1 => vec![&stage.driver_lines],
        2 => all_senders.map(|it| &it.brokers).collect(),
        _ => {
            let company = &stage.companies[random.index(stage.companies.len())];
            vec![&company.senders[random.index(company.senders.len())].brokers]
        }
    };
    cut.iter().for_each(|lines| lines.set(cable));
    pass(random.seconds(5, 40)).await;
    cut.iter().for_each(|lines| lines.set(Cable::Whole));
}

/// Waits until calls that are given now are confirmed by brokers, and each company sends again.
pub async fn flows(stage: &FleetStage) {
    let accepted: Vec<u64> = stage.companies.iter().map(Company::accepted).collect();
    let mut made = Vec::new();
    for driver in &stage.drivers {
        driver.hurry(1);
        made.push(driver.made() + 1);
    }
    until_within(RECOVERS_WITHIN, "calls flow again", async || {
        let mut confirmed = stage.drivers.iter().zip(&made);
        let mut sent = stage.companies.iter().zip(&accepted);
        confirmed.all(|(it, made)| it.confirmed() >= *made)
            && sent.all(|(it, before)| it.accepted() > *before)
    })
    .await;
}
