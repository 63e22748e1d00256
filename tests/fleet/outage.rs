//! Long outages under load: no broker for minutes, no CRM for an hour. What was given meanwhile
//! waits where it is, and all of it leaves afterwards.

use crate::cluster::NODES;
use crate::fault::{FaultOutcome, FleetFault, flows};
use crate::line::Cable;
use crate::stage::FleetStage;
use crate::table::FaultTable;
use crate::wait::pass;
use std::time::{Duration, Instant};

/// Of the whole time: ten minutes of eighty.
const CLUSTER_AWAY: f64 = 10.0 / 80.0;
/// An hour of eighty minutes.
const CRM_AWAY: f64 = 60.0 / 80.0;
/// Before each, all is well for so long.
const BETWEEN: f64 = 2.0 / 80.0;

/// Both, one after the other.
pub async fn outages(stage: &FleetStage, time: Duration, table: &FaultTable) {
    pass(time.mul_f64(BETWEEN)).await;
    (0..NODES).for_each(|node| stage.cluster.kill(node));
    say("the cluster", "is away", time.mul_f64(CLUSTER_AWAY));
    pass(time.mul_f64(CLUSTER_AWAY)).await;
    let in_hand = stage.in_hand();
    (0..NODES).for_each(|node| stage.cluster.start_again(node));
    over(stage, FleetFault::ClusterAway, in_hand, table).await;

    pass(time.mul_f64(BETWEEN)).await;
    crm(stage, Cable::Closed);
    say("each CRM", "is away", time.mul_f64(CRM_AWAY));
    pass(time.mul_f64(CRM_AWAY)).await;
    let in_hand = stage.in_hand();
    crm(stage, Cable::Whole);
    over(stage, FleetFault::CrmAway, in_hand, table).await;
}

fn crm(stage: &FleetStage, cable: Cable) {
    let senders = stage.companies.iter().flat_map(|it| &it.senders);
    senders.for_each(|it| it.crm.set(cable));
}

fn say(who: &str, how: &str, time: Duration) {
    println!("       {who} {how} for {} s …", time.as_secs());
}

/// It is back: calls have to go their way again.
async fn over(stage: &FleetStage, outage: FleetFault, in_hand: u64, table: &FaultTable) {
    let ended = Instant::now();
    for node in 0..NODES {
        stage.cluster.answers(node).await;
    }
    flows(stage).await;
    let recovered = ended.elapsed();
    println!(
        "       {}: {in_hand} calls in hand, recovered after {:.1} s",
        outage.words(),
        recovered.as_secs_f64()
    );
    table.add(outage, FaultOutcome { in_hand, recovered });
}
