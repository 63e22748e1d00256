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
    let first = stage.answers("101").await?;
    call.with("101");
    customer.is_up().await?;
    first.goes_on(seconds(2.0)).await?;
    Ok((customer, first, call))
}

async fn attended_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    call.silent();
    stage.consults("101", "102").await?;
    let second = stage.answers("102").await?;
    second.goes_on(seconds(2.0)).await?;
    first.hangs_up().await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn attended_transfer_by_phone(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    // The phone holds the call. Both stay in the bridge, which counts as talk.
    first.holds().await?;
    let consult = stage.dials("101", "102").await?;
    let second = stage.answers("102").await?;
    consult.is_up().await?;
    second.goes_on(seconds(2.0)).await?;
    first.refers_to(&consult).await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    second.hangs_up().await?;
    call.over();
    customer.is_over().await?;
    Ok(vec![call])
}

async fn attended_transfer_by_code(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.presses("*2").await?;
    first.goes_on(seconds(0.5)).await?;
    // Until the number is complete, both share the bridge, as on hold.
    first.presses("102").await?;
    call.silent();
    let second = stage.answers("102").await?;
    second.goes_on(seconds(2.0)).await?;
    first.hangs_up().await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn blonde_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    call.silent();
    stage.consults("101", "102").await?;
    let second = stage.rings("102").await?;
    second.goes_on(seconds(1.0)).await?;
    first.hangs_up().await?;
    second.goes_on(seconds(1.0)).await?;
    second.answers().await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn blind_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.refers("102").await?;
    call.silent();
    let second = stage.answers("102").await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn blind_transfer_by_code(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.presses("#1").await?;
    first.goes_on(seconds(0.5)).await?;
    first.presses("102").await?;
    call.silent();
    let second = stage.answers("102").await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn transfer_chain(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, _first, mut call) = talk_with_101(stage).await?;
    stage.transfers("101", "102").await?;
    call.silent();
    let second = stage.answers("102").await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    call.silent();
    stage.consults("102", "103").await?;
    let third = stage.answers("103").await?;
    third.goes_on(seconds(1.0)).await?;
    second.hangs_up().await?;
    call.with("103");
    third.goes_on(seconds(2.0)).await?;
    third.hangs_up().await?;
    call.over();
    customer.is_over().await?;
    Ok(vec![call])
}

async fn transfer_back(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    call.silent();
    stage.consults("101", "102").await?;
    let second = stage.answers("102").await?;
    second.goes_on(seconds(1.5)).await?;
    second.hangs_up().await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn transfer_to_outside(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    stage.consults("101", "8998935550000").await?;
    // The number is complete after 3 s without a further digit. Until then, both share a bridge.
    let partner = stage.rings("gsm").await?;
    call.silent();
    partner.goes_on(seconds(1.0)).await?;
    partner.answers().await?;
    partner.goes_on(seconds(2.0)).await?;
    first.hangs_up().await?;
    call.talks();
    partner.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn pickup_group(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7001").await?;
    let ringing = stage.rings("101").await?;
    ringing.goes_on(seconds(1.0)).await?;
    let second = stage.picks_up("102", "*8").await?;
    call.with("102");
    ringing.is_over().await?;
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn pickup_directed(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7001").await?;
    let ringing = stage.rings("101").await?;
    ringing.goes_on(seconds(1.0)).await?;
    let third = stage.picks_up("103", "*8101").await?;
    call.with("103");
    third.goes_on(seconds(2.0)).await?;
    third.hangs_up().await?;
    call.over();
    customer.is_over().await?;
    Ok(vec![call])
}

async fn pickup_then_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7001").await?;
    let ringing = stage.rings("101").await?;
    ringing.goes_on(seconds(1.0)).await?;
    let second = stage.picks_up("102", "*8").await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    second.refers("103").await?;
    call.silent();
    let third = stage.answers("103").await?;
    call.with("103");
    third.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn park(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.presses("#72").await?;
    call.silent();
    first.is_over().await?;
    customer.goes_on(seconds(2.0)).await?;
    let second = stage.fetches("102").await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn park_comes_back(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.refers("700").await?;
    call.silent();
    let again = stage.answers("101").await?;
    call.with("101");
    again.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn hold_to_the_end(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, first, mut call) = talk_with_101(stage).await?;
    first.holds().await?;
    first.goes_on(seconds(2.0)).await?;
    first.resumes().await?;
    first.goes_on(seconds(1.0)).await?;
    first.holds().await?;
    first.goes_on(seconds(1.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}
