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

async fn first_second(stage: &mut Stage, customer: u32) -> Result<(Line, Line, Truth)> {
    let (customer, mut call) = stage.customer(customer, "7001").await?;
    let line = stage.answers("101").await?;
    call.with("101");
    customer.is_up().await?;
    line.goes_on(seconds(1.0)).await?;
    Ok((customer, line, call))
}

/// Lets an employee talk for this time. Then the customer hangs up.
async fn ends_with(
    stage: &mut Stage,
    who: &str,
    customer: &Line,
    mut call: Truth,
) -> Result<Truth> {
    let line = stage.answers(who).await?;
    call.with(who);
    line.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(call)
}

async fn chain_and_back_again(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut line, mut call) = first_second(stage, 1).await?;
    for next in ["102", "103"] {
        line.refers(next).await?;
        call.silent();
        line = stage.answers(next).await?;
        call.with(next);
        line.goes_on(seconds(1.0)).await?;
    }
    line.refers("101").await?;
    call.silent();
    Ok(vec![ends_with(stage, "101", &customer, call).await?])
}

async fn two_customers_joined(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, line, mut first) = first_second(stage, 1).await?;
    let (two, mut second) = stage.customer_over("gsm", 2, "7001").await?;
    let other = stage.rings("101").await?;
    line.holds().await?;
    other.answers().await?;
    second.with("101");
    other.goes_on(seconds(1.0)).await?;
    other.refers_to(&line).await?;
    // Each talks with the other customer now: a real person, though no employee.
    two.goes_on(seconds(2.0)).await?;
    one.hangs_up().await?;
    first.over();
    second.over();
    two.is_over().await?;
    Ok(vec![first, second])
}

async fn transfer_into_a_queue(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = first_second(stage, 3).await?;
    line.refers("610").await?;
    call.silent();
    stage.called("101").await?.refuses("486 Busy Here").await?;
    Ok(vec![ends_with(stage, "102", &customer, call).await?])
}

async fn transfer_to_a_busy_phone(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = first_second(stage, 4).await?;
    line.refers("102").await?;
    call.silent();
    stage.called("102").await?.refuses("486 Busy Here").await?;
    customer.is_over().await?;
    call.over();
    Ok(vec![call])
}

async fn consult_is_declined(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = first_second(stage, 5).await?;
    stage.consults("101", "102").await?;
    let second = stage.rings("102").await?;
    call.silent();
    second.goes_on(seconds(1.0)).await?;
    second.refuses("603 Decline").await?;
    call.with("101");
    line.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn member_forwards_to_mobile(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7034").await?;
    let second = stage.rings("102").await?;
    stage.called("101").await?.forwards("8998935550000").await?;
    let mobile = stage.answers("gsm").await?;
    call.talks();
    second.is_over().await?;
    mobile.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn hairpin(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7035").await?;
    let mobile = stage.answers("city").await?;
    call.talks();
    mobile.goes_on(seconds(2.0)).await?;
    mobile.hangs_up().await?;
    call.over();
    customer.is_over().await?;
    Ok(vec![call])
}

async fn no_such_number(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7099").await?;
    customer.is_over().await?;
    call.over();
    Ok(vec![call])
}

async fn cancelled_at_once(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(4, "7001").await?;
    stage.called("101").await?;
    call.only("101");
    customer.gives_up().await?;
    call.over();
    Ok(vec![call])
}

async fn same_customer_twice(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, mut first) = stage.customer(1, "7001").await?;
    let (two, mut second) = stage.customer(1, "7025").await?;
    let line = stage.answers("101").await?;
    first.with("101");
    let other = stage.answers("102").await?;
    second.with("102");
    other.goes_on(seconds(2.0)).await?;
    line.hangs_up().await?;
    first.over();
    one.is_over().await?;
    other.goes_on(seconds(2.0)).await?;
    two.hangs_up().await?;
    second.over();
    Ok(vec![first, second])
}

async fn parked_twice(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = first_second(stage, 5).await?;
    line.refers("700").await?;
    call.silent();
    line.is_over().await?;
    let second = stage.fetches("102").await?;
    call.with("102");
    second.goes_on(seconds(1.0)).await?;
    second.refers("700").await?;
    call.silent();
    second.is_over().await?;
    let third = stage.fetches("103").await?;
    call.with("103");
    third.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
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
    stage.ami.originates("Local/101@internal", &fields).await?;
    let employee = stage.answers("101").await?;
    let customer = stage.answers("city").await?;
    call.with("101");
    customer.goes_on(seconds(3.0)).await?;
    employee.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn called_back(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut first) = stage.customer(2, "7001").await?;
    stage.rings("101").await?;
    first.only("101");
    customer.is_ringing().await?;
    customer.goes_on(seconds(1.0)).await?;
    customer.gives_up().await?;
    first.over();
    let mut second = Truth::outbound(2, "gsm");
    let employee = stage.dials("101", "8998901110002").await?;
    let customer = stage.answers("gsm").await?;
    second.with("101");
    customer.goes_on(seconds(2.0)).await?;
    employee.hangs_up().await?;
    second.over();
    Ok(vec![first, second])
}

async fn outbound_handed_outside(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(3, "city");
    let line = stage.dials("101", "9998901110003").await?;
    let customer = stage.answers("city").await?;
    call.with("101");
    line.is_up().await?;
    line.goes_on(seconds(1.0)).await?;
    line.holds().await?;
    let mut other = Truth::outbound(9, "gsm").without_lead(Some("+998935550000"));
    let consult = stage.dials("101", "8998935550000").await?;
    let partner = stage.answers("gsm").await?;
    other.with("101");
    consult.is_up().await?;
    partner.goes_on(seconds(1.0)).await?;
    line.refers_to(&consult).await?;
    partner.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    other.over();
    Ok(vec![call, other])
}

async fn both_hang_up(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = first_second(stage, 1).await?;
    line.goes_on(seconds(1.0)).await?;
    let (one, other) = tokio::join!(customer.hangs_up(), line.hangs_up());
    one.and(other)?;
    call.over();
    Ok(vec![call])
}

async fn redirected_to_an_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, line, mut call) = first_second(stage, 2).await?;
    line.goes_on(seconds(1.0)).await?;
    stage.redirects("city", "613").await?;
    line.is_over().await?;
    call.silent();
    Ok(vec![ends_with(stage, "102", &customer, call).await?])
}
