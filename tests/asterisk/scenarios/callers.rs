//! Caller lookups by the dialplan of `deploy/asterisk/caller.conf` while the phone rings.

use super::{Need, Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 4] = [
    scenario!(
        responsible_is_rung_first,
        "A known lead calls: her name stands on the display, 101, who is responsible for her, \
         is rung alone, and talks 2 s.",
        NEEDS
    ),
    scenario!(
        responsible_does_not_answer,
        "101, who is responsible, lets it ring 4 s; then the queue rings, and 102 talks 2 s.",
        NEEDS
    ),
    scenario!(
        caller_while_callbridge_is_dead,
        "callbridge is killed (-9): the queue rings within a second; 102 talks 2 s; callbridge \
         comes back meanwhile.",
        NEEDS
    ),
    scenario!(
        caller_while_callbridge_hangs,
        "callbridge is stopped (SIGSTOP): the queue rings within a second; 102 talks 2 s; \
         callbridge goes on meanwhile.",
        NEEDS
    ),
];

/// A module that can be in a separate package.
const NEEDS: Option<Need> = Some(Need::Module("func_curl"));
/// The company's number that looks up the caller, rings the responsible employee for 4 s, and then
/// the queue.
const NUMBER: &str = "7036";
/// A lookup must not delay a call for longer than this.
const HELD_UP_MAX: Duration = Duration::from_secs(1);

async fn responsible_is_rung_first(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.bridge.wait_until_caller_is_known(1).await?;
    let (customer, mut call) = stage.customer(1, NUMBER).await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    let shown = first.caller();
    ensure!(
        shown.contains("\"Anna VIP SHELL id\""),
        "the display: {shown}"
    );
    first.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn responsible_does_not_answer(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.bridge.wait_until_caller_is_known(2).await?;
    let (customer, mut call) = stage.customer(2, NUMBER).await?;
    stage.ring("101").await?.wait_until_over().await?;
    talk_from_queue(stage, &mut call).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn talk_from_queue(stage: &mut Stage, call: &mut Truth) -> Result<()> {
    let second = stage.answer("102").await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await
}

async fn caller_while_callbridge_is_dead(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.bridge.kill().await?;
    let begun = Instant::now();
    let (customer, mut call) = stage.customer(3, NUMBER).await?;
    let second = stage.ring("102").await?;
    check_ring_delay(begun)?;
    stage.bridge.start().await?;
    second.answer().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn caller_while_callbridge_hangs(stage: &mut Stage) -> Result<Vec<Truth>> {
    stage.bridge.freeze()?;
    let begun = Instant::now();
    let (customer, mut call) = stage.customer(4, NUMBER).await?;
    let second = stage.ring("102").await;
    let in_time = check_ring_delay(begun);
    stage.bridge.resume()?;
    let (second, ()) = (second?, in_time?);
    second.answer().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

fn check_ring_delay(begun: Instant) -> Result<()> {
    let took = begun.elapsed();
    println!("  it rang after {} ms", took.as_millis());
    ensure!(took < HELD_UP_MAX, "it rang after {took:?}");
    Ok(())
}
