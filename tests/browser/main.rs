//! `tests/run page`: tests the administrator's page in a real Chromium, in three languages and at
//! four sizes, light and dark, with scripts and without. Writes screenshots to target/screenshots.
//!
//! | module | contents |
//! |---|---|
//! | `webdriver` | the browser |
//! | `stage` | the daemon of the tests |
//! | `views` | every page, and the requirements for each |
//! | `live` | parts that update automatically, also over a kill of the daemon |
//! | `keyboard` | a dead letter that is retried without a mouse |
//! | `person` | the work of a person on one morning |

mod keyboard;
mod live;
mod person;
mod stage;
mod views;
mod webdriver;

use anyhow::{Context as _, Result};
use stage::Stage;
use std::path::Path;
use std::process::ExitCode;

/// The folder for screenshots.
const SCREENSHOTS: &str = "target/screenshots";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    // An error means that another test has already installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut passed, mut failed) = (0, 0);
    match runtime
        .context("a runtime")
        .map(|runtime| runtime.block_on(run()))
    {
        Ok(Ok(results)) => {
            for (name, result) in results {
                match result {
                    Ok(()) => passed += 1,
                    Err(error) => {
                        failed += 1;
                        println!("FAILED {name}: {error:#}");
                    }
                }
            }
        }
        Ok(Err(error)) | Err(error) => {
            failed += 1;
            println!("FAILED: {error:#}");
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; 0 ignored;");
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns `true` if the part is named, or if no part is named.
fn is_wanted(named: &[String], part: &str) -> bool {
    named.is_empty() || named.iter().any(|name| name == part)
}

/// The name of each check, and its result.
pub type Results = Vec<(String, Result<()>)>;

async fn run() -> Result<Results> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCREENSHOTS);
    std::fs::create_dir_all(&folder)?;
    let axe = std::env::var("CALLBRIDGE_AXE").context(
        "CALLBRIDGE_AXE is not set: the path of axe-core's axe.min.js (tests/run page fetches it)",
    )?;
    let axe = std::fs::read_to_string(&axe).with_context(|| axe.clone())?;
    let mut stage = Stage::prepare().await?;
    let mut results = Results::new();
    // Only the parts that are named, such as `person`, or all.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    for language in ["en", "ru", "uz"] {
        if !is_wanted(&named, language) {
            continue;
        }
        println!("== {language}");
        results.extend(views::check_all(&stage, language, &axe, &folder).await?);
    }
    if is_wanted(&named, "keyboard") {
        println!("== keyboard");
        let by_keyboard = keyboard::retry_letter(&stage).await;
        results.push(("a letter retried by keyboard".to_owned(), by_keyboard));
    }
    if is_wanted(&named, "live") {
        println!("== live");
        let live = live::check_live_parts(&mut stage).await;
        results.push(("live parts".to_owned(), live));
    }
    if is_wanted(&named, "person") {
        println!("== person");
        results.extend(person::morning(&stage).await?);
    }
    Ok(results)
}
