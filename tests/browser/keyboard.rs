//! Tests that a dead letter can be found, retried with another lead, and seen journaled with only
//! the keyboard.

use crate::stage::Stage;
use crate::webdriver::{Browser, Size};
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

/// WebDriver's codes of keys.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
/// More tab stops than any page has.
const STOPS_MAX: usize = 300;
const WITHIN: Duration = Duration::from_secs(60);

/// Presses Tab until the script `is` returns true for the focused element `it`. The focus must be
/// visible. `what` names the element.
async fn tab_to(browser: &Browser, what: &str, is: &str) -> Result<()> {
    for _ in 0..STOPS_MAX {
        browser.press(TAB).await?;
        let script = format!("const it = document.activeElement; return Boolean({is})");
        if browser.execute(&script).await?.as_bool() == Some(true) {
            let outline = browser
                .execute(
                    "const it = getComputedStyle(document.activeElement);
                     return it.outlineStyle !== 'none' || it.boxShadow !== 'none'",
                )
                .await?;
            ensure!(
                outline.as_bool() == Some(true),
                "{what}: its focus is not seen"
            );
            return Ok(());
        }
    }
    anyhow::bail!("{what} cannot be reached by Tab")
}

pub async fn wait_until(browser: &Browser, what: &str, is: &str) -> Result<()> {
    let mut looks = tokio::time::interval(Duration::from_millis(100));
    let seen = async {
        loop {
            looks.tick().await;
            let script = format!("return Boolean({is})");
            let result = browser.execute(&script).await;
            if result.is_ok_and(|value| value.as_bool() == Some(true)) {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(WITHIN, seen).await;
    waited.with_context(|| format!("{what} was not seen"))
}

pub async fn retry_letter(stage: &Stage) -> Result<()> {
    let browser = Browser::start("en").await?;
    let size = Size {
        name: "1024",
        width: 1024,
        height: 768,
    };
    browser.resize(size).await?;
    browser.go(&stage.link().await?).await?;
    tab_to(
        &browser,
        "the button that opens",
        "it.matches('main form button')",
    )
    .await?;
    browser.press(ENTER).await?;
    wait_until(&browser, "Today", "location.pathname === '/'").await?;
    tab_to(
        &browser,
        "the way to the letters",
        "it.matches('nav a[href^=\"/letters\"]')",
    )
    .await?;
    browser.press(ENTER).await?;
    wait_until(&browser, "the letters", "location.pathname === '/letters'").await?;
    let (id, uuid) = stage.failed_letter().await?;
    browser
        .go(&format!(
            "{}/letters/{id}",
            browser
                .execute("return location.origin")
                .await?
                .as_str()
                .context("an origin")?
        ))
        .await?;
    tab_to(&browser, "the lead", "it.matches('input[name=lead]')").await?;
    browser.press("4001").await?;
    tab_to(
        &browser,
        "the button that sends",
        "it.matches('button[value=retry]')",
    )
    .await?;
    browser.press(ENTER).await?;
    let mut looks = tokio::time::interval(Duration::from_millis(100));
    let journaled = async {
        loop {
            looks.tick().await;
            let journal = stage.crm.journal();
            if journal.iter().any(|record| record.call.uuid == uuid) {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(WITHIN, journaled).await;
    waited.context("the call did not come into the journal")?;
    let call = format!("location.href = '/calls/{uuid}'");
    browser.execute(&call).await?;
    wait_until(
        &browser,
        "the call as journaled",
        "document.body.innerText.toLowerCase().includes('journal')",
    )
    .await
}
