//! Tests that every page exists, fits every size, logs nothing to the console, and is accessible.

use crate::Results;
use crate::stage::Stage;
use crate::webdriver::{Browser, Size};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;

const SIZES: [Size; 4] = [
    Size {
        name: "360",
        width: 360,
        height: 740,
    },
    Size {
        name: "1024",
        width: 1024,
        height: 768,
    },
    Size {
        name: "1280",
        width: 1280,
        height: 900,
    },
    Size {
        name: "1920",
        width: 1920,
        height: 1080,
    },
];

/// The pages without a parameter in their path.
const PATHS: [(&str, &str); 10] = [
    ("today", "/"),
    ("calls", "/calls"),
    ("letters", "/letters"),
    ("numbers", "/numbers"),
    ("missed", "/missed"),
    ("employees", "/employees"),
    ("pbx", "/pbx"),
    ("branches", "/branches"),
    ("check", "/check"),
    ("login", "/login"),
];

/// A script that finds elements that extend beyond the window, or that their container hides. Only
/// the picture of a call may be wider, because it can be scrolled.
const CUT: &str = r#"
    const cut = [];
    for (const it of document.querySelectorAll('body *')) {
        const style = getComputedStyle(it), box = it.getBoundingClientRect();
        if (!it.checkVisibility({visibilityProperty: true}) || !box.width || !box.height) continue;
        if (it.closest('.hear, .skip, .picture, svg svg, svg *')) continue;
        const what = `<${it.tagName.toLowerCase()} class="${it.getAttribute('class') ?? ''}"> ` +
            it.textContent.trim().slice(0, 60);
        if (box.left < -1 || box.right > innerWidth + 1) cut.push(what);
        const inner = getComputedStyle(it.parentElement);
        const room = it.parentElement.clientWidth - parseFloat(inner.paddingLeft) -
            parseFloat(inner.paddingRight);
        if (it.tagName === 'TABLE' && box.width > room + 1) cut.push('wider: ' + what);
        const hides = style.overflowX !== 'visible' && !it.matches('input, textarea, select');
        const picture = it.querySelector(':scope > .picture');
        if (hides && !picture && it.scrollWidth > it.clientWidth + 1) cut.push('in ' + what);
        if (!it.matches('thead th, .pill, h1, h2, h3, button, dt')) continue;
        const words = text => [...text.nodeValue?.matchAll(/\S+/g) ?? []].map(word => [text, word]);
        for (const [text, word] of [...it.childNodes].flatMap(words)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map(it => Math.round(it.top)));
            if (lines.size > 1 && !/[-\/]/.test(word[0])) cut.push(`broken ${word[0]}: ` + what);
        }
    }
    return cut.slice(0, 10);"#;

/// Checks every page in one language.
pub async fn check_all(stage: &Stage, language: &str, axe: &str, to: &Path) -> Result<Results> {
    let browser = Browser::start(language).await?;
    let link = stage.link().await?;
    browser.go(&link).await?;
    let mut results = Results::new();
    let looked = check_page(&browser, axe, &format!("{language}-open"), to).await;
    results.push((format!("{language} open"), looked));
    browser
        .execute("document.querySelector('main form button').click()")
        .await?;
    let (id, uuid) = stage.failed_letter().await?;
    let mut paths: Vec<(String, String)> = PATHS
        .iter()
        .map(|(name, path)| ((*name).to_owned(), (*path).to_owned()))
        .collect();
    let cause = "/letters?reason=failed&cause=lead%3A9002";
    paths.push(("letters-cause".to_owned(), cause.to_owned()));
    paths.push(("letter".to_owned(), format!("/letters/{id}")));
    paths.push(("call".to_owned(), format!("/calls/{uuid}")));
    for (name, path) in &paths {
        let url = format!("{}{path}", origin(&link)?);
        let result = check_page_at(&browser, axe, (language, name), &url, to);
        results.push((format!("{language} {name}"), result.await));
    }
    Ok(results)
}

fn origin(link: &str) -> Result<&str> {
    link.split("/open/").next().context("an origin")
}

/// Checks one page, with scripts and without. Its screenshots are named after the language and the
/// page.
async fn check_page_at(
    browser: &Browser,
    axe: &str,
    (language, name): (&str, &str),
    url: &str,
    to: &Path,
) -> Result<()> {
    browser.go(url).await?;
    check_page(browser, axe, &format!("{language}-{name}"), to).await?;
    check_without_scripts(browser, url, language).await
}

/// Checks the current page.
async fn check_page(browser: &Browser, axe: &str, name: &str, to: &Path) -> Result<()> {
    for size in SIZES {
        browser.resize(size).await?;
        for scheme in ["light", "dark"] {
            browser.prefer(scheme).await?;
            let png = browser.screenshot().await?;
            let file = to.join(format!("{name}-{}-{scheme}.png", size.name));
            std::fs::write(&file, png)?;
            check_accessibility(browser, axe)
                .await
                .with_context(|| format!("{} {scheme}", size.name))?;
        }
        let wide = browser
            .execute("return document.documentElement.scrollWidth - window.innerWidth")
            .await?;
        let wide = wide.as_i64().context("a width")?;
        ensure!(wide <= 0, "{} px: {wide} px too wide", size.name);
        let cut = browser.execute(CUT).await?;
        let cut: Vec<&str> = cut
            .as_array()
            .context("a list")?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        ensure!(
            cut.is_empty(),
            "{} px: cut off: {}",
            size.name,
            cut.join("\n")
        );
    }
    let console = browser.console().await?;
    ensure!(console.is_empty(), "the console was told: {console:?}");
    Ok(())
}

/// Fails if axe-core finds serious or critical problems.
async fn check_accessibility(browser: &Browser, axe: &str) -> Result<()> {
    let script = format!(
        "const done = arguments[arguments.length - 1];
         if (!window.axe) {{ {axe} }}
         axe.run(document, {{resultTypes: ['violations']}}).then(
             found => done(found.violations
                 .filter(it => it.impact === 'serious' || it.impact === 'critical')
                 .map(it => it.id + ': ' + it.nodes.map(node => node.html).join(' | '))),
             error => done(['axe: ' + error]));"
    );
    let found = browser.execute_later(&script).await?;
    let found: Vec<&str> = found
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Checks that the page without scripts has a heading, this language, and no inline script or
/// style.
async fn check_without_scripts(browser: &Browser, url: &str, language: &str) -> Result<()> {
    browser.scripts_off(true).await?;
    let went = browser.go(url).await;
    browser.scripts_off(false).await?;
    went?;
    let facts = browser
        .execute(
            "const inline = 'script:not([src]), style, [style], [onclick]';
             return [document.documentElement.lang,
                     document.querySelector('h1')?.innerText ?? '',
                     document.querySelectorAll(inline).length]",
        )
        .await?;
    let (lang, heading) = (facts[0].as_str(), facts[1].as_str().unwrap_or_default());
    ensure!(lang == Some(language), "its language is {lang:?}");
    ensure!(!heading.trim().is_empty(), "it has no heading");
    let inline = facts[2].as_u64();
    if inline != Some(0) {
        bail!("{inline:?} scripts or styles stand in the page itself");
    }
    Ok(())
}
