//! Calls with more than two parties: conferences, listeners, and second calls.

use super::{Need, Scenario, scenario};
use crate::stage::{Stage, seconds};
use crate::truth::Truth;
use anyhow::Result;

/// All scenarios of this file.
pub const SCENARIOS: [Scenario; 8] = [
    scenario!(
        conference_of_two_customers,
        "Customer 1 talks with 101, customer 2 (gsm) with 102; 101 moves herself and her \
         customer into a conference, 102 puts hers there and leaves; 103 joins; customer 2 \
         leaves, then customer 1: two calls."
    ),
    scenario!(
        second_customer_dialled_in,
        "101 talks with customer 1 in a conference and dials customer 2 out into it; all talk \
         2 s; customer 1 leaves, then customer 2: one inbound call, for only one customer \
         came in."
    ),
    scenario!(
        customer_thrown_out,
        "101, 102 and the customer are in a conference; the customer is thrown out (kick), \
         the colleagues stay 1 s.",
        // ConfbridgeKick.
        Some(Need::Release(10))
    ),
    scenario!(
        listener,
        "101 talks 4 s; meanwhile 103 listens in (ChanSpy) for 2 s: no party to it."
    ),
    scenario!(
        recorder_snoops,
        "An announcement of 6 s answers; a recorder snoops on it by ARI for 2 s: missed.",
        Some(Need::Release(12))
    ),
    scenario!(
        page_all,
        "The customer speaks through the loudspeakers of 101 and 102 for 2 s (Page, both ways).",
        // Before this release, Page uses MeetMe, which needs hardware.
        Some(Need::Release(11))
    ),
    scenario!(
        second_call_waits,
        "101 talks with customer 1; customer 2 calls, 101 holds the first, talks 2 s with the \
         second and goes back to the first for 2 s: two calls."
    ),
    scenario!(
        two_wait_side_by_side,
        "Customers 1 and 2 wait in one waiting room (a holding bridge) for 2 s; 102 fetches \
         the first, 2 s of talk; the second gives up: two calls, strangers to each other."
    ),
];

/// Moves a carrier's leg and the phone at the other end into the conference at the same time.
async fn move_into_conference(stage: &mut Stage, carrier: &str, phone: &str) -> Result<()> {
    let leg = stage.channel(carrier).await?;
    let other = stage.channel(phone).await?;
    let fields = [
        ("Channel", leg.as_str()),
        ("Context", "internal"),
        ("Exten", "601"),
        ("Priority", "1"),
        ("ExtraChannel", other.as_str()),
        ("ExtraContext", "internal"),
        ("ExtraExten", "601"),
        ("ExtraPriority", "1"),
    ];
    stage.ami.send_action("Redirect", &fields).await.map(drop)
}

async fn conference_of_two_customers(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, mut first) = stage.customer(1, "7001").await?;
    let aziza = stage.answer("101").await?;
    first.begin_talk_with("101");
    let (two, mut second) = stage.customer_over("gsm", 2, "7025").await?;
    let bekzod = stage.answer("102").await?;
    second.begin_talk_with("102");
    bekzod.continue_for(seconds(1.0)).await?;
    move_into_conference(stage, "city", "101").await?;
    aziza.continue_for(seconds(1.0)).await?;
    stage.redirect("gsm", "601").await?;
    bekzod.wait_until_over().await?;
    second.begin_talk_with("101");
    two.continue_for(seconds(1.0)).await?;
    let dilnoza = stage.dial("103", "601").await?;
    dilnoza.wait_until_up().await?;
    first.begin_talk_with("103");
    second.begin_talk_with("103");
    dilnoza.continue_for(seconds(2.0)).await?;
    two.hang_up().await?;
    second.end();
    one.continue_for(seconds(1.0)).await?;
    one.hang_up().await?;
    first.end();
    aziza.hang_up().await?;
    dilnoza.hang_up().await?;
    Ok(vec![first, second])
}

async fn second_customer_dialled_in(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, mut first) = stage.customer(1, "7001").await?;
    let aziza = stage.answer("101").await?;
    first.begin_talk_with("101");
    aziza.continue_for(seconds(1.0)).await?;
    move_into_conference(stage, "city", "101").await?;
    let dial = [("Context", "internal"), ("Exten", "601"), ("Priority", "1")];
    let lead = [("Variable", "LEAD_ID=4002"), ("CallerID", "712000000")];
    let fields: Vec<_> = dial.into_iter().chain(lead).collect();
    let outside = stage.driver().outside("gsm", "998901110002");
    stage.ami.originate(&outside, &fields).await?;
    let two = stage.answer("gsm").await?;
    two.continue_for(seconds(2.0)).await?;
    one.hang_up().await?;
    first.end();
    two.continue_for(seconds(1.0)).await?;
    two.hang_up().await?;
    aziza.hang_up().await?;
    Ok(vec![first])
}

async fn customer_thrown_out(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, mut call) = stage.customer(3, "7001").await?;
    let aziza = stage.answer("101").await?;
    call.begin_talk_with("101");
    aziza.continue_for(seconds(1.0)).await?;
    move_into_conference(stage, "city", "101").await?;
    let bekzod = stage.dial("102", "601").await?;
    bekzod.wait_until_up().await?;
    bekzod.continue_for(seconds(2.0)).await?;
    call.begin_talk_with("102");
    let city = stage.channel("city").await?;
    let kick = [("Conference", "601"), ("Channel", city.as_str())];
    stage.ami.send_action("ConfbridgeKick", &kick).await?;
    one.wait_until_over().await?;
    call.end();
    bekzod.continue_for(seconds(1.0)).await?;
    bekzod.hang_up().await?;
    aziza.hang_up().await?;
    Ok(vec![call])
}

async fn listener(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(4, "7001").await?;
    let first = stage.answer("101").await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(1.0)).await?;
    let spy = stage.dial("103", "*9101").await?;
    spy.wait_until_up().await?;
    spy.continue_for(seconds(2.0)).await?;
    spy.hang_up().await?;
    first.continue_for(seconds(1.0)).await?;
    customer.hang_up().await?;
    call.end();
    Ok(vec![call])
}

async fn recorder_snoops(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(5, "7032").await?;
    customer.wait_until_up().await?;
    let begins = stage.driver().device("city-");
    let leg = stage.ami.live_channel(&begins, Some("Up")).await?;
    let id = leg.get("Uniqueid").cloned().unwrap_or_default();
    let ari = stage.pbx.ari();
    // An application must listen before it can be given a channel.
    let _app = ari.listen().await?;
    let snoop = format!("channels/{id}/snoop/recorder?app=live&spy=both");
    ari.send_request("POST", &snoop).await?;
    ari.send_request("POST", "bridges/recording?type=mixing")
        .await?;
    let join = "bridges/recording/addChannel?channel=recorder";
    ari.send_request("POST", join).await?;
    customer.continue_for(seconds(2.0)).await?;
    ari.send_request("DELETE", "channels/recorder").await?;
    ari.send_request("DELETE", "bridges/recording").await?;
    customer.wait_until_over().await?;
    call.end();
    Ok(vec![call])
}

async fn page_all(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (customer, mut call) = stage.customer(1, "7028").await?;
    let first = stage.ring("101").await?;
    let second = stage.ring("102").await?;
    first.answer().await?;
    call.begin_talk_with("101");
    first.continue_for(seconds(0.5)).await?;
    second.answer().await?;
    call.begin_talk_with("102");
    second.continue_for(seconds(2.0)).await?;
    customer.hang_up().await?;
    call.end();
    first.wait_until_over().await?;
    Ok(vec![call])
}

async fn second_call_waits(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, mut first) = stage.customer(1, "7001").await?;
    let line = stage.answer("101").await?;
    first.begin_talk_with("101");
    line.continue_for(seconds(1.0)).await?;
    let (two, mut second) = stage.customer_over("gsm", 2, "7001").await?;
    let other = stage.ring("101").await?;
    other.continue_for(seconds(1.0)).await?;
    line.hold().await?;
    other.answer().await?;
    second.begin_talk_with("101");
    other.continue_for(seconds(2.0)).await?;
    two.hang_up().await?;
    second.end();
    line.resume().await?;
    line.continue_for(seconds(2.0)).await?;
    one.hang_up().await?;
    first.end();
    Ok(vec![first, second])
}

async fn two_wait_side_by_side(stage: &mut Stage) -> Result<Vec<Truth>> {
    let (one, mut first) = stage.customer(1, "7023").await?;
    one.wait_until_up().await?;
    let (two, mut second) = stage.customer_over("gsm", 2, "7023").await?;
    two.wait_until_up().await?;
    two.continue_for(seconds(2.0)).await?;
    stage.redirect("city", "102").await?;
    let bekzod = stage.answer("102").await?;
    first.begin_talk_with("102");
    bekzod.continue_for(seconds(2.0)).await?;
    one.hang_up().await?;
    first.end();
    two.hang_up().await?;
    second.end();
    Ok(vec![first, second])
}
