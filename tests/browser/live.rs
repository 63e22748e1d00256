//! Tests live parts of the page: they update automatically, and show when the daemon stops and when
//! it is back.

use crate::keyboard::wait_until;
use crate::stage::{Stage, first_number};
use crate::webdriver::Browser;
use anyhow::{Context as _, Result};

pub async fn check_live_parts(stage: &mut Stage) -> Result<()> {
    let browser = Browser::start("en").await?;
    let link = stage.link().await?;
    let origin = link.split("/open/").next().context("an origin")?;
    browser.go(&link).await?;
    browser
        .execute("document.querySelector('main form button').click()")
        .await?;
    wait_until(&browser, "Today", "location.pathname === '/'").await?;
    browser.go(&format!("{origin}/")).await?;
    let there = "document.querySelector('main').innerText.includes('28 calls wait for a lead')";
    wait_until(&browser, "calls that wait for a lead", there).await?;
    let phone = first_number();
    stage.ask(&["lead", "give", &phone, "4001"]).await?;
    let moved = "document.querySelector('main').innerText.includes('27 calls wait for a lead')";
    wait_until(&browser, "one call less, by itself", moved).await?;
    stage.kill().await?;
    let lost = "!document.getElementById('lost').hidden";
    wait_until(&browser, "that nobody answers", lost).await?;
    stage.start().await?;
    let back = "document.getElementById('lost').hidden";
    wait_until(&browser, "that it is back", back).await
}
