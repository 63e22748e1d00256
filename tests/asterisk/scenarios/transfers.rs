//! Calls in which the customer is passed on: transfers, pickup, parking, and hold.

use super::{Need, Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 15] = [
    scenario!(
        attended_transfer,
        "101 talks 2 s, consults 102 for 2 s, hands the customer over; 102 talks 2 s."
    ),
    scenario!(
        attended_transfer_by_phone,
        "101 talks 2 s, holds, consults 102 on a second line of her phone (2 s), and her \
         phone joins the two (REFER with Replaces); 102 talks 2 s."
    ),
    scenario!(
        attended_transfer_by_code,
        "101 talks 1 s, dials *2 102, consults 2 s, hangs up; 102 talks 2 s."
    ),
    scenario!(
        blonde_transfer,
        "101 talks 2 s, calls 102 for a transfer and hangs up while 102 rings; 102 talks 2 s."
    ),
    scenario!(
        blind_transfer,
        "101 talks 2 s and transfers blindly to 102 (REFER by the phone), who talks 2 s."
    ),
    scenario!(
        blind_transfer_by_code,
        "101 talks 1 s and dials #1 102; 102 talks 2 s."
    ),
    scenario!(
        transfer_chain,
        "101 talks 2 s, transfers blindly to 102, she talks 2 s, consults 103 and hands the \
         customer over; 103 talks 2 s.",
        // The action BlindTransfer.
        Some(Need::Release(12))
    ),
    scenario!(
        transfer_back,
        "101 talks 2 s, consults 102, who sends him back: 101 talks 2 s more."
    ),
    scenario!(
        transfer_to_outside,
        "101 talks 2 s, consults the mobile of a partner over gsm and joins him with the \
         customer; the two talk 2 s: no employee any more, yet a talk."
    ),
    scenario!(
        pickup_group,
        "101 rings; 102 takes the call from her own phone (*8); talk 2 s."
    ),
    scenario!(
        pickup_directed,
        "101 rings; 103 takes this very call (*8 and the extension); talk 2 s."
    ),
    scenario!(
        pickup_then_transfer,
        "102 picks up what rings at 101, talks 2 s and transfers blindly to 103: 2 s."
    ),
    scenario!(
        park,
        "101 talks 2 s and parks the customer with the phone's code; 102 takes him after 2 s \
         of music; talk 2 s."
    ),
    scenario!(
        park_comes_back,
        "101 talks 2 s and parks the customer; nobody takes him, after 9 s he rings at 101 \
         again; talk 2 s."
    ),
    scenario!(
        hold_to_the_end,
        "101 talks 2 s, holds for 2 s, takes him back for 1 s, holds again, and the customer \
         hangs up while he hears music."
    ),
];

/// Customer 1 and employee 101 talk for two seconds.
async fn talk_with_101(stage: &mut Stage) -> Result<(crate::line::Line, crate::line::Line, Truth)> {
    let (customer, mut call) = stage.customer(1, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    customer.wait_until_up().await?;
    first.continue_for(seconds(2.0)).await?;
    Ok((customer, first, call))
}

async fn attended_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    call.end_talk();
    stage.consult("101", "102").await?;
    let second = stage.answer("102").await?;
    second.continue_for(seconds(2.0)).await?;
    first.hang_up().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn attended_transfer_by_phone(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    // The phone holds the call. Both stay in the bridge, which counts as talk.
    first.hold().await?;
    let consult = stage.dial("101", "102").await?;
    let second = stage.answer("102").await?;
    consult.wait_until_up().await?;
    second.continue_for(seconds(2.0)).await?;
    first.transfer_to_call(&consult).await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    second.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn attended_transfer_by_code(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.press("*2").await?;
    first.continue_for(seconds(0.5)).await?;
    // Until the number is complete, both share the bridge, as on hold.
    first.press("102").await?;
    call.end_talk();
    let second = stage.answer("102").await?;
    second.continue_for(seconds(2.0)).await?;
    first.hang_up().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn blonde_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    call.end_talk();
    stage.consult("101", "102").await?;
    let second = stage.ring("102").await?;
    second.continue_for(seconds(1.0)).await?;
    first.hang_up().await?;
    second.continue_for(seconds(1.0)).await?;
    second.answer().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn blind_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.transfer_to("102").await?;
    call.end_talk();
    let second = stage.answer("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn blind_transfer_by_code(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.press("#1").await?;
    first.continue_for(seconds(0.5)).await?;
    first.press("102").await?;
    call.end_talk();
    let second = stage.answer("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn transfer_chain(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, _first, mut call) = talk_with_101(stage).await?;
    stage.transfer("101", "102").await?;
    call.end_talk();
    let second = stage.answer("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    call.end_talk();
    stage.consult("102", "103").await?;
    let third = stage.answer("103").await?;
    third.continue_for(seconds(1.0)).await?;
    second.hang_up().await?;
    call.begin_talk_with("103");
    third.continue_for(seconds(2.0)).await?;
    third.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn transfer_back(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    call.end_talk();
    stage.consult("101", "102").await?;
    let second = stage.answer("102").await?;
    second.continue_for(seconds(1.5)).await?;
    second.hang_up().await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn transfer_to_outside(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    stage.consult("101", "8998935550000").await?;
    // The number is complete after 3 s without a further digit. Until then, both share a bridge.
    let partner = stage.ring("gsm").await?;
    call.end_talk();
    partner.continue_for(seconds(1.0)).await?;
    partner.answer().await?;
    partner.continue_for(seconds(2.0)).await?;
    first.hang_up().await?;
    call.begin_talk();
    partner.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn pickup_group(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7001").await?;
    let ringing = stage.ring("101").await?;
    ringing.continue_for(seconds(1.0)).await?;
    let second = stage.pick_up("102", "*8").await?;
    call.begin_talk_with("102");
    ringing.wait_until_over().await?;
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn pickup_directed(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7001").await?;
    let ringing = stage.ring("101").await?;
    ringing.continue_for(seconds(1.0)).await?;
    let third = stage.pick_up("103", "*8101").await?;
    call.begin_talk_with("103");
    third.continue_for(seconds(2.0)).await?;
    third.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn pickup_then_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7001").await?;
    let ringing = stage.ring("101").await?;
    ringing.continue_for(seconds(1.0)).await?;
    let second = stage.pick_up("102", "*8").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    second.transfer_to("103").await?;
    call.end_talk();
    let third = stage.answer("103").await?;
    call.begin_talk_with("103");
    third.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn park(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.press("#72").await?;
    call.end_talk();
    first.wait_until_over().await?;
    customer.continue_for(seconds(2.0)).await?;
    let second = stage.fetch_parked_call("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn park_comes_back(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.transfer_to("700").await?;
    call.end_talk();
    let again = stage.answer("101").await?;
    call.begin_talk_with("101");
    again.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn hold_to_the_end(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.hold().await?;
    first.continue_for(seconds(2.0)).await?;
    first.resume().await?;
    first.continue_for(seconds(1.0)).await?;
    first.hold().await?;
    first.continue_for(seconds(1.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}
