//! Calls in which no employee talked with the customer, for every possible reason.

use super::{Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 9] = [
    scenario!(missed_no_answer, "102 rings 4 s; the PBX gives up."),
    scenario!(missed_busy, "103 is busy; busy tone."),
    scenario!(missed_declined, "101 declines."),
    scenario!(
        missed_cancelled,
        "101 rings; the customer gives up after 2 s."
    ),
    scenario!(
        missed_by_a_hair,
        "101 answers at the very moment in which the customer gives up: at most an instant of \
         talk."
    ),
    scenario!(
        missed_by_a_group,
        "101 and 102 ring; the customer gives up: nobody's call."
    ),
    scenario!(
        missed_phone_switched_off,
        "104 is not there at all; the customer gives up."
    ),
    scenario!(
        missed_while_waiting,
        "The customer gives up in the waiting room, by the PBX's music answered."
    ),
    scenario!(
        unknown_caller,
        "A caller without a lead, 998901119999, talks 2 s with 101: parked until he has one."
    ),
];

async fn missed_no_answer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7002").await?;
    stage.ring("102").await?.wait_until_over().await?;
    call.set_only_extension("102");
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn missed_busy(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7003").await?;
    stage
        .next_call("103")
        .await?
        .refuse("486 Busy Here")
        .await?;
    call.set_only_extension("103");
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn missed_declined(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7001").await?;
    let line = stage.ring("101").await?;
    line.continue_for(seconds(1.0)).await?;
    line.refuse("603 Decline").await?;
    call.set_only_extension("101");
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn missed_cancelled(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(4, "7001").await?;
    let line = stage.ring("101").await?;
    call.set_only_extension("101");
    customer.wait_until_ringing().await?;
    customer.continue_for(seconds(2.0)).await?;
    customer.cancel().await?;
    call.end();
    line.wait_until_over().await?;
    Ok(vec![call])
}

async fn missed_by_a_hair(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(5, "7001").await?;
    let line = stage.ring("101").await?;
    call.set_only_extension("101");
    customer.wait_until_ringing().await?;
    customer.continue_for(seconds(2.0)).await?;
    // Whichever Asterisk handles first, no one talks.
    let (_answered, given_up) = tokio::join!(line.answer(), customer.cancel_or_hang_up());
    given_up?;
    call.end();
    line.wait_until_over().await?;
    Ok(vec![call])
}

async fn missed_by_a_group(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7004").await?;
    let first = stage.ring("101").await?;
    stage.ring("102").await?;
    stage.ring("103").await?;
    customer.wait_until_ringing().await?;
    customer.continue_for(seconds(2.0)).await?;
    customer.cancel().await?;
    call.end();
    first.wait_until_over().await?;
    Ok(vec![call])
}

async fn missed_phone_switched_off(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7033").await?;
    call.set_only_extension("104");
    customer.continue_for(seconds(3.0)).await?;
    customer.cancel().await?;
    call.end();
    Ok(vec![call])
}

async fn missed_while_waiting(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7023").await?;
    customer.wait_until_up().await?;
    customer.continue_for(seconds(3.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn unknown_caller(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::inbound(9, "city", "7001").without_lead(Some("+998901119999"));
    let customer = stage.caller("city", "+998901119999", "7001").await?;
    let line = stage.answer("101").await?;
    call.begin_talk_with("101");
    line.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}
