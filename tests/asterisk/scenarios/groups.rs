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
    let _first = stage.ring("101").await?;
    let second = stage.ring("102").await?;
    stage
        .next_call("103")
        .await?
        .refuse("486 Busy Here")
        .await?;
    second.continue_for(seconds(1.0)).await?;
    second.answer().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

/// Lets both phones ring and one of them answer.
async fn answer_one_of_two(
    stage: &mut Stage,
    customer: u32,
    number: &str,
    who: &str,
) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(customer, number).await?;
    let first = stage.ring("101").await?;
    let second = stage.ring("102").await?;
    let (taken, left) = if who == "101" {
        (first, second)
    } else {
        (second, first)
    };
    taken.continue_for(seconds(1.0)).await?;
    taken.answer().await?;
    call.begin_talk_with(who);
    left.wait_until_over().await?;
    taken.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn ring_group_of_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    answer_one_of_two(stage, 2, "7011", "102").await
}

async fn ring_group_of_optimised_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    answer_one_of_two(stage, 3, "7012", "101").await
}

async fn queue_of_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    answer_one_of_two(stage, 4, "7006", "101").await
}

async fn queue_of_optimised_locals(stage: &mut Stage) -> Result<Vec<Truth>> {
    answer_one_of_two(stage, 5, "7007", "102").await
}

async fn queue_second_member(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(5, "7005").await?;
    stage.next_call("102").await?.refuse("603 Decline").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    first.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn queue_with_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7008").await?;
    let first = stage.ring("101").await?;
    first.continue_for(seconds(5.0)).await?;
    first.answer().await?;
    // Before the two are joined, she hears the name of the queue for about 2 s.
    stage
        .ami
        .wait_for("the two joined", |heard| {
            heard
                .get("Event")
                .is_some_and(|event| event == "AgentConnect")
        })
        .await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn queue_left_during_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7008").await?;
    let first = stage.ring("101").await?;
    call.set_only_extension("101");
    customer.wait_until_up().await?;
    first.continue_for(seconds(4.0)).await?;
    customer.hang_up().await?;
    call.end();
    first.wait_until_over().await?;
    Ok(vec![call])
}

/// A customer calls the agents' queue, and 101 talks with him for two seconds.
async fn talk_with_agent(stage: &mut Stage, n: u32) -> Result<Truth> {
    // A new connection, so that the event of the previous customer is not found.
    stage.ami = stage.pbx.manager().await?;
    let (customer, mut call) = stage.customer(n, "7010").await?;
    stage
        .ami
        .wait_for("the two joined", |heard| {
            heard
                .get("Event")
                .is_some_and(|event| event == "AgentConnect")
        })
        .await?;
    call.begin_talk_with("101");
    customer.wait_until_up().await?;
    customer.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(call)
}

async fn queue_agent_logged_in(stage: &mut Stage) -> Result<Vec<Truth>> {
    let agent = stage.dial("101", "620").await?;
    agent.wait_until_up().await?;
    agent.continue_for(seconds(2.0)).await?;
    let call = talk_with_agent(stage, 3).await?;
    agent.continue_for(seconds(1.0)).await?;
    agent.hang_up().await?;
    Ok(vec![call])
}

async fn queue_agent_two_customers(stage: &mut Stage) -> Result<Vec<Truth>> {
    let agent = stage.dial("101", "620").await?;
    agent.wait_until_up().await?;
    agent.continue_for(seconds(1.0)).await?;
    let first = talk_with_agent(stage, 1).await?;
    agent.continue_for(seconds(2.0)).await?;
    let second = talk_with_agent(stage, 2).await?;
    agent.continue_for(seconds(1.0)).await?;
    agent.hang_up().await?;
    Ok(vec![first, second])
}
