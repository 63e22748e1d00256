//! Calls to customers: by hand, by click, by campaign, and over one carrier or two.

use super::{Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;
use std::fs;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 12] = [
    scenario!(
        carrier_failover,
        "101 dials customer 3; city refuses (503), gsm takes it; talk 2 s: one call, by gsm."
    ),
    scenario!(
        two_carriers_at_once,
        "101 dials customer 4 over both carriers at once; gsm answers; talk 2 s."
    ),
    scenario!(outbound_busy, "101 dials customer 5, who is busy."),
    scenario!(
        outbound_given_up,
        "101 dials customer 1 and gives up after 2 s of ringing."
    ),
    scenario!(
        outbound_attended_transfer,
        "101 calls customer 2, talks 2 s, consults 102 and hands him over; 102 talks 2 s."
    ),
    scenario!(
        outbound_held_at_the_end,
        "101 calls customer 3, talks 1 s, holds him; he hangs up after 2 s of music."
    ),
    scenario!(
        click_to_call,
        "Originate rings 101, then dials customer 5; talk 2 s."
    ),
    scenario!(
        click_to_call_customer_first,
        "Originate dials customer 4 first, then rings 102; talk 2 s."
    ),
    scenario!(
        click_to_call_in_vain,
        "Originate rings 101, who does not answer: no call with a customer at all."
    ),
    scenario!(
        call_file,
        "A file in the outgoing spool dials customer 3 and joins 102; talk 2 s."
    ),
    scenario!(internal_call, "101 calls 102: no customer, no record."),
    scenario!(
        outbound_from_a_phone_with_a_dash,
        "105-desk calls customer 1; talk 2 s."
    ),
];

async fn carrier_failover(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(3, "gsm");
    let employee = stage.dial("101", "77998901110003").await?;
    stage
        .next_call("city")
        .await?
        .refuse("503 Service Unavailable")
        .await?;
    let customer = stage.answer("gsm").await?;
    call.begin_talk_with("101");
    customer.continue_for(seconds(2.0)).await?;
    employee.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn two_carriers_at_once(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(4, "gsm");
    let employee = stage.dial("101", "78998901110004").await?;
    let other = stage.ring("city").await?;
    let customer = stage.answer("gsm").await?;
    call.begin_talk_with("101");
    other.wait_until_over().await?;
    customer.continue_for(seconds(2.0)).await?;
    employee.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn outbound_busy(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(5, "city");
    call.set_only_extension("101");
    let employee = stage.dial("101", "9998901110005").await?;
    stage
        .next_call("city")
        .await?
        .refuse("486 Busy Here")
        .await?;
    employee.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn outbound_given_up(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(1, "city");
    call.set_only_extension("101");
    let employee = stage.dial("101", "9998901110001").await?;
    stage.ring("city").await?;
    employee.wait_until_ringing().await?;
    employee.continue_for(seconds(2.0)).await?;
    employee.cancel().await?;
    call.end();
    Ok(vec![call])
}

async fn outbound_attended_transfer(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(2, "city");
    let employee = stage.dial("101", "9998901110002").await?;
    let customer = stage.answer("city").await?;
    call.begin_talk_with("101");
    customer.continue_for(seconds(2.0)).await?;
    call.end_talk();
    stage.consult("101", "102").await?;
    let second = stage.answer("102").await?;
    second.continue_for(seconds(2.0)).await?;
    employee.hang_up().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    second.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn outbound_held_at_the_end(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(3, "city");
    let employee = stage.dial("101", "9998901110003").await?;
    let customer = stage.answer("city").await?;
    call.begin_talk_with("101");
    employee.wait_until_up().await?;
    employee.continue_for(seconds(1.0)).await?;
    employee.hold().await?;
    employee.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn click_to_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(5, "city");
    let fields = [
        ("Context", "internal"),
        ("Exten", "9998901110005"),
        ("Priority", "1"),
        ("CallerID", "101"),
        ("Variable", "LEAD_ID=4005"),
    ];
    let phone = stage.driver().device("101");
    stage.ami.originate(&phone, &fields).await?;
    let employee = stage.answer("101").await?;
    let customer = stage.answer("city").await?;
    call.begin_talk_with("101");
    customer.continue_for(seconds(2.0)).await?;
    employee.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn click_to_call_customer_first(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(4, "city");
    let fields = [
        ("Context", "internal"),
        ("Exten", "611"),
        ("Priority", "1"),
        ("CallerID", "712000000"),
        ("Variable", "LEAD_ID=4004"),
    ];
    let outside = stage.driver().outside("city", "998901110004");
    stage.ami.originate(&outside, &fields).await?;
    let customer = stage.answer("city").await?;
    let employee = stage.answer("102").await?;
    call.begin_talk_with("102");
    employee.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn click_to_call_in_vain(stage: &mut Stage) -> Result<Vec<Truth>> {
    let fields = [
        ("Context", "internal"),
        ("Exten", "9998901110005"),
        ("Priority", "1"),
        ("CallerID", "101"),
        ("Timeout", "2000"),
        ("Variable", "LEAD_ID=4005"),
    ];
    let phone = stage.driver().device("101");
    stage.ami.originate(&phone, &fields).await?;
    stage.ring("101").await?.wait_until_over().await?;
    Ok(Vec::new())
}

async fn call_file(stage: &mut Stage) -> Result<Vec<Truth>> {
    let outside = stage.driver().outside("city", "998901110003");
    let text = format!(
        "Channel: {outside}\nCallerID: 712000000\nContext: internal\n\
         Extension: 611\nPriority: 1\nSetvar: LEAD_ID=4003\nWaitTime: 20\n"
    );
    // Written elsewhere and moved, because Asterisk reads the file as soon as it appears.
    let (draft, file) = (
        stage.pbx.file("spool/call"),
        stage.pbx.file("spool/outgoing/call"),
    );
    fs::write(&draft, text)?;
    fs::rename(&draft, &file)?;
    let customer = stage.ring("city").await?;
    let mut call = Truth::outbound(3, "city");
    customer.continue_for(seconds(1.0)).await?;
    customer.answer().await?;
    let employee = stage.answer("102").await?;
    call.begin_talk_with("102");
    employee.continue_for(seconds(2.0)).await?;
    employee.hang_up().await?;
    call.end();
    customer.wait_until_over().await?;
    Ok(vec![call])
}

async fn internal_call(stage: &mut Stage) -> Result<Vec<Truth>> {
    let first = stage.dial("101", "102").await?;
    let second = stage.answer("102").await?;
    second.continue_for(seconds(1.0)).await?;
    first.hang_up().await?;
    Ok(Vec::new())
}

async fn outbound_from_a_phone_with_a_dash(stage: &mut Stage) -> Result<Vec<Truth>> {
    let mut call = Truth::outbound(1, "city");
    let employee = stage.dial("105-desk", "9998901110001").await?;
    let customer = stage.answer("city").await?;
    call.begin_talk_with("105-desk");
    customer.continue_for(seconds(2.0)).await?;
    employee.hang_up().await?;
    call.end();
    Ok(vec![call])
}
