//! Calls that the dialplan routes: menus, announcements, forwarding, and voicemail.

use super::{Need, Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 19] = [
    scenario!(
        menu_then_employee,
        "A menu: the customer presses 1; 101 answers; talk 2 s."
    ),
    scenario!(
        menu_only,
        "A menu: the customer presses nothing and is let go: missed."
    ),
    scenario!(
        early_announcement,
        "An announcement before anything is answered; then 101 answers; talk 2 s."
    ),
    scenario!(
        answered_announcement,
        "The PBX answers and announces; 101 rings 3 s in vain; it announces again: missed."
    ),
    scenario!(
        voicemail,
        "102 rings in vain; the customer speaks to her voicemail: missed.",
        Some(Need::Module("app_voicemail"))
    ),
    scenario!(
        queue_then_voicemail,
        "A queue whose only member does not answer, then her voicemail: missed.",
        Some(Need::Module("app_voicemail"))
    ),
    scenario!(
        forward_to_mobile,
        "The PBX forwards to a mobile over gsm; talk 2 s, no employee."
    ),
    scenario!(
        forward_by_phone,
        "101's phone sends on to a mobile over gsm (302); talk 2 s, no employee."
    ),
    scenario!(
        forward_by_phone_to_colleague,
        "101's phone sends on to 102 (302), who talks 2 s."
    ),
    scenario!(
        forward_by_dialplan,
        "A Local of the dialplan sends on to 102; talk 2 s."
    ),
    scenario!(
        pickup_of_a_forwarded_call,
        "A Local of the dialplan sends on to 102, whose phone rings; 103 picks it up; talk 2 s."
    ),
    scenario!(
        mobile_presses_its_key,
        "A mobile answers and presses 1 after 2 s; only then it is joined; talk 2 s."
    ),
    scenario!(
        mobile_presses_nothing,
        "A mobile's mailbox answers and presses nothing: missed."
    ),
    scenario!(
        follow_me_to_the_mobile,
        "Follow me: 101 does not answer, then her mobile does and takes the call with a key; \
         talk 2 s, no employee."
    ),
    scenario!(
        employee_screens_the_call,
        "101 answers, hears who it is, and sends him away with a key: missed."
    ),
    scenario!(
        survey_after_the_talk,
        "101 talks 2 s and hangs up; the dialplan goes on and asks the customer for a mark (3 s)."
    ),
    scenario!(
        recorded_with_another_caller_id,
        "The call is recorded and shows another name and number to 101; talk 2 s: the \
         customer's number is his own."
    ),
    scenario!(
        locals_in_a_chain,
        "Three Locals, one after the other, optimise themselves away; 101 talks 3 s."
    ),
    scenario!(
        two_mobiles_at_once,
        "Mobiles on both carriers ring at once; the one on gsm answers; talk 2 s, no employee."
    ),
];

/// Lets the employee answer and talk for two seconds. Then the customer hangs up.
async fn talk(
    stage: &mut Stage,
    customer: crate::line::Line,
    mut call: Truth,
    who: &str,
) -> Result<Vec<Truth>> {
    let employee = stage.answer(who).await?;
    call.begin_talk_with(who);
    employee.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn menu_then_employee(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, call) = stage.customer(1, "7013").await?;
    customer.wait_until_up().await?;
    customer.continue_for(seconds(1.0)).await?;
    customer.press("1").await?;
    talk(stage, customer, call, "101").await
}

async fn menu_only(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7013").await?;
    customer.wait_until_up().await?;
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn early_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, call) = stage.customer(3, "7017").await?;
    talk(stage, customer, call, "101").await
}

async fn answered_announcement(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(4, "7018").await?;
    customer.wait_until_up().await?;
    stage.ring("101").await?.wait_until_over().await?;
    call.set_only_extension("101");
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn voicemail(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(5, "7019").await?;
    stage.ring("102").await?.wait_until_over().await?;
    call.set_only_extension("102");
    customer.wait_until_up().await?;
    customer.continue_for(seconds(4.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn queue_then_voicemail(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7009").await?;
    stage.ring("102").await?.wait_until_over().await?;
    call.set_only_extension("102");
    customer.continue_for(seconds(5.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn forward_to_mobile(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7014").await?;
    let mobile = stage.answer("gsm").await?;
    call.begin_talk();
    mobile.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn forward_by_phone(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7001").await?;
    stage
        .next_call("101")
        .await?
        .forward("8998935550000")
        .await?;
    let mobile = stage.answer("gsm").await?;
    call.begin_talk();
    mobile.continue_for(seconds(2.0)).await?;
    mobile.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn forward_by_phone_to_colleague(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, call) = stage.customer(4, "7001").await?;
    stage.next_call("101").await?.forward("102").await?;
    talk(stage, customer, call, "102").await
}

async fn forward_by_dialplan(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, call) = stage.customer(5, "7029").await?;
    talk(stage, customer, call, "102").await
}

async fn pickup_of_a_forwarded_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7029").await?;
    let ringing = stage.ring("102").await?;
    ringing.continue_for(seconds(1.0)).await?;
    let third = stage.pick_up("103", "*8").await?;
    call.begin_talk_with("103");
    ringing.wait_until_over().await?;
    third.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn mobile_presses_its_key(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(2, "7015").await?;
    let mobile = stage.answer("gsm").await?;
    mobile.continue_for(seconds(2.0)).await?;
    mobile.press("1").await?;
    customer.wait_until_up().await?;
    call.begin_talk();
    mobile.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn mobile_presses_nothing(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7015").await?;
    stage.answer("gsm").await?.wait_until_over().await?;
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn follow_me_to_the_mobile(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(4, "7016").await?;
    stage.ring("101").await?.wait_until_over().await?;
    let mobile = stage.answer("gsm").await?;
    mobile.continue_for(seconds(2.0)).await?;
    mobile.press("1").await?;
    call.begin_talk();
    mobile.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn employee_screens_the_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(5, "7026").await?;
    let first = stage.answer("101").await?;
    first.continue_for(seconds(2.0)).await?;
    first.press("9").await?;
    first.wait_until_over().await?;
    call.set_only_extension("101");
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn survey_after_the_talk(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7021").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(2.0)).await?;
    first.hang_up().await?;
    call.end_talk();
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn recorded_with_another_caller_id(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, call) = stage.customer(2, "7022").await?;
    talk(stage, customer, call, "101").await
}

async fn locals_in_a_chain(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(3, "7027").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    customer.wait_until_up().await?;
    first.continue_for(seconds(3.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn two_mobiles_at_once(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(4, "7024").await?;
    let other = stage.ring("city").await?;
    let mobile = stage.answer("gsm").await?;
    call.begin_talk();
    other.wait_until_over().await?;
    mobile.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}
