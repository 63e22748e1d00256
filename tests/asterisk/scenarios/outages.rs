//! Failures in the middle of a call: of the PBX, the connection, or callbridge.

use super::{Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 8] = [
    scenario!(
        two_leads,
        "Two paths of a call name two leads; 102 talks 2 s: a dead letter, for nobody guesses."
    ),
    scenario!(
        callbridge_killed_in_mid_call,
        "101 talks; callbridge is killed (-9) and started again 1 s later; talk goes on 2 s."
    ),
    scenario!(
        line_cut_in_mid_call,
        "101 talks; the AMI line is cut for 1 s while nothing happens; talk goes on 2 s."
    ),
    scenario!(
        line_cut_over_the_end,
        "101 talks; the AMI line is cut, the customer hangs up, the line is mended: the CEL \
         file tells when it ended."
    ),
    scenario!(
        line_cut_over_the_beginning,
        "The AMI line is cut; the customer is answered by 101; the line is mended; talk goes \
         on 2 s."
    ),
    scenario!(
        line_cut_over_a_whole_call,
        "The AMI line is cut; 101 talks 2 s and hangs up; the line is mended: the CEL file \
         tells it."
    ),
    scenario!(
        asterisk_restarted_in_mid_call,
        "101 talks 2 s; Asterisk is stopped, which ends the call, and started again; then \
         another customer talks 2 s with 102."
    ),
    scenario!(
        asterisk_killed_in_mid_call,
        "101 talks 2 s; Asterisk is killed (-9), so nothing tells when the call ended; then \
         another customer talks 2 s with 102."
    ),
];

async fn two_leads(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::inbound(9, "city", "7020").without_lead(Some("+998901119999"));
    call.letter("ambiguous_lead");
    let customer = stage.caller("city", "+998901119999", "7020").await?;
    stage.rings("101").await?;
    let second = stage.answers("102").await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn callbridge_killed_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7001").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    stage.bridge.dies().await?;
    first.goes_on(seconds(1.0)).await?;
    stage.bridge.starts().await?;
    first.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn line_cut_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7001").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(1.0)).await?;
    stage.cut().await?;
    first.goes_on(seconds(1.0)).await?;
    stage.mend().await?;
    first.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn line_cut_over_the_end(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7001").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    stage.cut().await?;
    customer.hangs_up().await?;
    call.over();
    first.is_over().await?;
    stage.mend().await?;
    Ok(vec![call])
}

async fn line_cut_over_the_beginning(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.cut().await?;
    let (customer, mut call) = stage.customer(4, "7001").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(1.0)).await?;
    stage.mend().await?;
    first.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn line_cut_over_a_whole_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.cut().await?;
    let (customer, mut call) = stage.customer(5, "7001").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    first.hangs_up().await?;
    call.over();
    customer.is_over().await?;
    stage.mend().await?;
    Ok(vec![call])
}

/// Plays the second customer's call after the PBX is back.
async fn another_after(stage: &mut Stage) -> Result<Truth> {
    stage.ami = stage.pbx.manager().await?;
    stage.bridge.hears().await?;
    let (customer, mut call) = stage.customer_over("gsm", 2, "7025").await?;
    let second = stage.answers("102").await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(call)
}

async fn asterisk_restarted_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (_customer, mut call) = stage.customer(1, "7001").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    let heard = async {
        first.is_over().await?;
        call.over();
        anyhow::Ok(())
    };
    let (stopped, heard) = tokio::join!(stage.pbx.stops(), heard);
    stopped.and(heard)?;
    stage.pbx.starts().await?;
    Ok(vec![call, another_after(stage).await?])
}

async fn asterisk_killed_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (_customer, mut call) = stage.customer(3, "7001").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    stage.pbx.dies().await?;
    call.over();
    call.incomplete();
    stage.pbx.starts().await?;
    Ok(vec![call, another_after(stage).await?])
}
