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
    call.expect_dead_letter("ambiguous_lead");
    let customer = stage.caller("city", "+998901119999", "7020").await?;
    stage.ring("101").await?;
    let second = stage.answer("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn callbridge_killed_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    stage.bridge.kill().await?;
    first.continue_for(seconds(1.0)).await?;
    stage.bridge.start().await?;
    first.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn line_cut_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(1.0)).await?;
    stage.cut().await?;
    first.continue_for(seconds(1.0)).await?;
    stage.mend().await?;
    first.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn line_cut_over_the_end(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    stage.cut().await?;
    customer.hang_up().await?;
    call.end();
    first.wait_until_over().await?;
    stage.mend().await?;
    Ok(vec![call])
}

async fn line_cut_over_the_beginning(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.cut().await?;
    let (customer, mut call) = stage.customer(4, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(1.0)).await?;
    stage.mend().await?;
    first.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn line_cut_over_a_whole_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.cut().await?;
    let (customer, mut call) = stage.customer(5, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    first.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    stage.mend().await?;
    Ok(vec![call])
}

/// Plays the second customer's call after the PBX is back.
async fn play_call_after_restart(stage: &mut Stage) -> Result<Truth> {
    stage.ami = stage.pbx.manager().await?;
    stage.bridge.wait_until_connected().await?;
    let (customer, mut call) = stage.customer_over("gsm", 2, "7025").await?;
    let second = stage.answer("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(call)
}

async fn asterisk_restarted_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (_customer, mut call) = stage.customer(1, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    let heard = async {
        first.wait_until_over().await?;
        call.end();
        anyhow::Ok(())
    };
    let (stopped, heard) = tokio::join!(stage.pbx.stop(), heard);
    stopped.and(heard)?;
    stage.pbx.boot().await?;
    Ok(vec![call, play_call_after_restart(stage).await?])
}

async fn asterisk_killed_in_mid_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (_customer, mut call) = stage.customer(3, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    stage.pbx.kill().await?;
    call.end();
    call.expect_incomplete();
    stage.pbx.boot().await?;
    Ok(vec![call, play_call_after_restart(stage).await?])
}
