//! Calls that ring several phones: ring groups and queues.

use super::{Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 10] = [
    scenario!(
        ring_group,
        "101 and 102 ring, 103 is busy; 102 answers; talk 2 s."
    ),
    scenario!(
        ring_group_of_locals,
        "Locals that stay (/n) ring 101 and 102; 102 answers; talk 2 s."
    ),
    scenario!(
        ring_group_of_optimised_locals,
        "Locals that optimise themselves away ring 101 and 102; 101 answers; talk 2 s."
    ),
    scenario!(
        queue_second_member,
        "A queue: 102 declines, then 101 answers; talk 2 s."
    ),
    scenario!(
        queue_of_locals,
        "A queue whose members are Locals that stay; 101 answers; talk 2 s."
    ),
    scenario!(
        queue_of_optimised_locals,
        "A queue whose members are Locals that optimise themselves away; 102 answers; talk 2 s."
    ),
    scenario!(
        queue_with_announcement,
        "A queue tells the customer where he stands and the employee what it is; 101 rings \
         for some seconds, answers, talk 2 s."
    ),
    scenario!(
        queue_left_during_announcement,
        "The customer hangs up while the queue talks to him and 101 rings: missed."
    ),
    scenario!(
        queue_agent_logged_in,
        "101 has logged in as an agent and hears music; the queue joins her with the \
         customer; talk 2 s; she stays logged in after it, and ends 1 s later."
    ),
    scenario!(
        queue_agent_two_customers,
        "101 has logged in as an agent; the queue joins her with customer 1, who hangs up \
         after 2 s, then with customer 2, 2 s: two calls."
    ),
];

async fn ring_group(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7004").await?;
    let _first = stage.rings("101").await?;
    let second = stage.rings("102").await?;
    stage.called("103").await?.refuses("486 Busy Here").await?;
    second.goes_on(seconds(1.0)).await?;
    second.answers().await?;
    call.with("102");
    second.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

/// Lets both phones ring and one of them answer.
async fn one_of_two(
    stage: &mut Stage,
    customer: u32,
    number: &str,
    who: &str,
) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(customer, number).await?;
    let first = stage.rings("101").await?;
    let second = stage.rings("102").await?;
    let (taken, left) = if who == "101" {
        (first, second)
    } else {
        (second, first)
    };
    taken.goes_on(seconds(1.0)).await?;
    taken.answers().await?;
    call.with(who);
    left.is_over().await?;
    taken.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn ring_group_of_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    one_of_two(stage, 2, "7011", "102").await
}

async fn ring_group_of_optimised_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    one_of_two(stage, 3, "7012", "101").await
}

async fn queue_of_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    one_of_two(stage, 4, "7006", "101").await
}

async fn queue_of_optimised_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    one_of_two(stage, 5, "7007", "102").await
}

async fn queue_second_member(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(5, "7005").await?;
    stage.called("102").await?.refuses("603 Decline").await?;
    let first = stage.answers("101").await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    first.hangs_up().await?;
    call.over();
    customer.is_over().await?;
    Ok(vec![call])
}

async fn queue_with_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7008").await?;
    let first = stage.rings("101").await?;
    first.goes_on(seconds(5.0)).await?;
    first.answers().await?;
    // Before the two are joined, she hears the name of the queue for about 2 s.
    stage
        .ami
        .hears("the two joined", |heard| {
            heard
                .get("Event")
                .is_some_and(|event| event == "AgentConnect")
        })
        .await?;
    call.with("101");
    first.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(vec![call])
}

async fn queue_left_during_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7008").await?;
    let first = stage.rings("101").await?;
    call.only("101");
    customer.is_up().await?;
    first.goes_on(seconds(4.0)).await?;
    customer.hangs_up().await?;
    call.over();
    first.is_over().await?;
    Ok(vec![call])
}

/// A customer calls the agents' queue, and 101 talks with him for two seconds.
async fn with_the_agent(stage: &mut Stage, n: u32) -> Result<Truth> {
    // A new connection, so that the event of the previous customer is not found.
    stage.ami = stage.pbx.manager().await?;
    let (customer, mut call) = stage.customer(n, "7010").await?;
    stage
        .ami
        .hears("the two joined", |heard| {
            heard
                .get("Event")
                .is_some_and(|event| event == "AgentConnect")
        })
        .await?;
    call.with("101");
    customer.is_up().await?;
    customer.goes_on(seconds(2.0)).await?;
    customer.hangs_up().await?;
    call.over();
    Ok(call)
}

async fn queue_agent_logged_in(stage: &mut Stage) -> Result<Vec<Truth>> {
    let agent = stage.dials("101", "620").await?;
    agent.is_up().await?;
    agent.goes_on(seconds(2.0)).await?;
    let call = with_the_agent(stage, 3).await?;
    agent.goes_on(seconds(1.0)).await?;
    agent.hangs_up().await?;
    Ok(vec![call])
}

async fn queue_agent_two_customers(stage: &mut Stage) -> Result<Vec<Truth>> {
    let agent = stage.dials("101", "620").await?;
    agent.is_up().await?;
    agent.goes_on(seconds(1.0)).await?;
    let first = with_the_agent(stage, 1).await?;
    agent.goes_on(seconds(2.0)).await?;
    let second = with_the_agent(stage, 2).await?;
    agent.goes_on(seconds(1.0)).await?;
    agent.hangs_up().await?;
    Ok(vec![first, second])
}
