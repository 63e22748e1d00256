//! Calls with several features, and calls that affect each other.

use super::{Scenario, scenario};
use crate::line::Line;
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 16] = [
    scenario!(
        chain_and_back_again,
        "101 talks 1 s, her phone refers to 102 (1 s), 102's to 103 (1 s), 103's to 101 \
         again, who talks 2 s."
    ),
    scenario!(
        two_customers_joined,
        "101 talks with customer 1 on one line and customer 2 on another and joins the two \
         (REFER with Replaces); they talk 2 s without her: two calls."
    ),
    scenario!(
        transfer_into_a_queue,
        "101 talks 1 s and transfers blindly into a queue; 102 answers there; talk 2 s."
    ),
    scenario!(
        transfer_to_a_busy_phone,
        "101 talks 1 s and transfers blindly to 102, who is busy; the PBX lets the customer go."
    ),
    scenario!(
        consult_is_declined,
        "101 talks 1 s and consults 102, who declines; 101 is back with the customer for 2 s."
    ),
    scenario!(
        member_forwards_to_mobile,
        "A ring group: 102 does not answer, 101's phone sends on to a mobile over gsm (302), \
         which answers; talk 2 s, no employee."
    ),
    scenario!(
        hairpin,
        "The PBX forwards out on the trunk that the customer came in by; the mobile answers; \
         talk 2 s, no employee."
    ),
    scenario!(
        no_such_number,
        "The customer calls a number that does not exist: missed, nobody's."
    ),
    scenario!(
        cancelled_at_once,
        "The customer gives up before any phone rings: missed."
    ),
    scenario!(
        same_customer_twice,
        "Customer 1 calls on two lines at once; 101 and 102 answer, each talks 2 s: two calls."
    ),
    scenario!(
        parked_twice,
        "101 talks 1 s and parks the customer; 102 takes him, talks 1 s and parks him again; \
         103 takes him, 2 s."
    ),
    scenario!(
        click_through_optimised_locals,
        "Originate of two Locals that optimise themselves away: 101, then customer 5 over \
         city; talk 3 s."
    ),
    scenario!(
        called_back,
        "Customer 2 gives up; 101 calls him back over gsm at once and talks 2 s: two calls."
    ),
    scenario!(
        outbound_handed_outside,
        "101 calls customer 3, talks 1 s, consults a partner over gsm on a second line and \
         joins the two; they talk 2 s without her: two calls, for two numbers were dialed \
         and both talked."
    ),
    scenario!(
        both_hang_up,
        "101 talks 2 s; both hang up in the same moment."
    ),
    scenario!(
        redirected_to_an_announcement,
        "101 talks 2 s; the PBX takes the customer away to an announcement (AMI Redirect), \
         lets 101 go, then rings 102, who talks 2 s."
    ),
];

async fn talk_for_one_second(stage: &mut Stage, customer: u32) -> Result<(Line, Line, Truth)> {
    let (customer, mut call) = stage.customer(customer, "7001").await?;
    let line = stage.answer("101").await?;
    call.begin_talk_with("101");
    customer.wait_until_up().await?;
    line.continue_for(seconds(1.0)).await?;
    Ok((customer, line, call))
}

/// Lets an employee talk for this time. Then the customer hangs up.
async fn answer_and_end(
    stage: &mut Stage,
    who: &str,
    customer: &Line,
    mut call: Truth,
) -> Result<Truth> {
    let line = stage.answer(who).await?;
    call.begin_talk_with(who);
    line.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(call)
}

async fn chain_and_back_again(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut line, mut call) = talk_for_one_second(stage, 1).await?;
    for next in ["102", "103"] {
        line.transfer_to(next).await?;
        call.end_talk();
        line = stage.answer(next).await?;
        call.begin_talk_with(next);
        line.continue_for(seconds(1.0)).await?;
    }
    line.transfer_to("101").await?;
    call.end_talk();
    Ok(vec![answer_and_end(stage, "101", &customer, call).await?])
}

async fn two_customers_joined(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, line, mut first) = talk_for_one_second(stage, 1).await?;
    let (two, mut second) = stage.customer_over("gsm", 2, "7001").await?;
    let other = stage.ring("101").await?;
    line.hold().await?;
    other.answer().await?;
    second.begin_talk_with("101");
    other.continue_for(seconds(1.0)).await?;
    other.transfer_to_call(&line).await?;
    // The two customers talk with each other now. Each hears a real person, though no employee.
    two.continue_for(seconds(2.0)).await?;
    one.hang_up().await?;
    first.end();
    second.end();
    two.wait_until_over().await?;
    Ok(vec![first, second])
}

async fn transfer_into_a_queue(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = talk_for_one_second(stage, 3).await?;
    line.transfer_to("610").await?;
    call.end_talk();
    stage
        .next_call("101")
        .await?
        .refuse("486 Busy Here")
        .await?;
    Ok(vec![answer_and_end(stage, "102", &customer, call).await?])
}

async fn transfer_to_a_busy_phone(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = talk_for_one_second(stage, 4).await?;
    line.transfer_to("102").await?;
    call.end_talk();
    stage
        .next_call("102")
        .await?
        .refuse("486 Busy Here")
        .await?;
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn consult_is_declined(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = talk_for_one_second(stage, 5).await?;
    stage.consult("101", "102").await?;
    let second = stage.ring("102").await?;
    call.end_talk();
    second.continue_for(seconds(1.0)).await?;
    second.refuse("603 Decline").await?;
    call.begin_talk_with("101");
    line.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn member_forwards_to_mobile(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7034").await?;
    let second = stage.ring("102").await?;
    stage
        .next_call("101")
        .await?
        .forward("8998935550000")
        .await?;
    let mobile = stage.answer("gsm").await?;
    call.begin_talk();
    second.wait_until_over().await?;
    mobile.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn hairpin(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7035").await?;
    let mobile = stage.answer("city").await?;
    call.begin_talk();
    mobile.continue_for(seconds(2.0)).await?;
    mobile.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn no_such_number(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7099").await?;
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn cancelled_at_once(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(4, "7001").await?;
    stage.next_call("101").await?;
    call.set_only_extension("101");
    customer.cancel().await?;
    call.end();
    Ok(vec![call])
}

async fn same_customer_twice(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, mut first) = stage.customer(1, "7001").await?;
    let (two, mut second) = stage.customer(1, "7025").await?;
    let line = stage.answer("101").await?;
    first.begin_talk_with("101");
    let other = stage.answer("102").await?;
    second.begin_talk_with("102");
    other.continue_for(seconds(2.0)).await?;
    line.hang_up().await?;
    first.end();
    one.wait_until_over().await?;
    other.continue_for(seconds(2.0)).await?;
    two.hang_up().await?;
    second.end();
    Ok(vec![first, second])
}

async fn parked_twice(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = talk_for_one_second(stage, 5).await?;
    line.transfer_to("700").await?;
    call.end_talk();
    line.wait_until_over().await?;
    let second = stage.fetch_parked_call("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(1.0)).await?;
    second.transfer_to("700").await?;
    call.end_talk();
    second.wait_until_over().await?;
    let third = stage.fetch_parked_call("103").await?;
    call.begin_talk_with("103");
    third.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn click_through_optimised_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(5, "city");
    let fields = [
        ("Context", "internal"),
        ("Exten", "9998901110005"),
        ("Priority", "1"),
        ("CallerID", "101"),
    ];
    stage.ami.originate("Local/101@internal", &fields).await?;
    let employee = stage.answer("101").await?;
    let customer = stage.answer("city").await?;
    call.begin_talk_with("101");
    customer.continue_for(seconds(3.0)).await?;
    employee.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn called_back(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut first) = stage.customer(2, "7001").await?;
    stage.ring("101").await?;
    first.set_only_extension("101");
    customer.wait_until_ringing().await?;
    customer.continue_for(seconds(1.0)).await?;
    customer.cancel().await?;
    first.end();
    let mut second = Truth::outbound(2, "gsm");
    let employee = stage.dial("101", "8998901110002").await?;
    let customer = stage.answer("gsm").await?;
    second.begin_talk_with("101");
    customer.continue_for(seconds(2.0)).await?;
    employee.hang_up().await?;
    second.end();
    Ok(vec![first, second])
}

async fn outbound_handed_outside(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(3, "city");
    let line = stage.dial("101", "9998901110003").await?;
    let customer = stage.answer("city").await?;
    call.begin_talk_with("101");
    line.wait_until_up().await?;
    line.continue_for(seconds(1.0)).await?;
    line.hold().await?;
    let mut other = Truth::outbound(9, "gsm").without_lead(Some("+998935550000"));
    let consult = stage.dial("101", "8998935550000").await?;
    let partner = stage.answer("gsm").await?;
    other.begin_talk_with("101");
    consult.wait_until_up().await?;
    partner.continue_for(seconds(1.0)).await?;
    line.transfer_to_call(&consult).await?;
    partner.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    other.end();
    Ok(vec![call, other])
}

async fn both_hang_up(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = talk_for_one_second(stage, 1).await?;
    line.continue_for(seconds(1.0)).await?;
    let (one, other) = tokio::join!(customer.hang_up(), line.hang_up());
    one.and(other)?;
    call.end();
    Ok(vec![call])
}

async fn redirected_to_an_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = talk_for_one_second(stage, 2).await?;
    line.continue_for(seconds(1.0)).await?;
    stage.redirect("city", "613").await?;
    line.wait_until_over().await?;
    call.end_talk();
    Ok(vec![answer_and_end(stage, "102", &customer, call).await?])
}
