//! `tests/run page`: the administrator's page in a real Chromium, in three languages and at four
//! sizes, light and dark, with scripts and without. Screenshots come to target/screenshots.
//!
//! | module | what lives there |
//! |---|---|
//! | `webdriver` | the browser |
//! | `stage` | the daemon that is looked at |
//! | `views` | every page, and what must hold on each |
//! | `live` | what moves by itself, and over a kill of the daemon |
//! | `keyboard` | a letter retried without a mouse |
//! | `person` | what a person does there in a morning |

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

/// Where the pictures come to lie.
const SCREENSHOTS: &str = "target/screenshots";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    // Whoever comes second finds it installed, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut passed, mut failed) = (0, 0);
    match runtime.context("a runtime").map(|it| it.block_on(run())) {
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

/// The name of what was looked at, and how it went.
pub type Results = Vec<(String, Result<()>)>;

async fn run() -> Result<Results> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCREENSHOTS);
    std::fs::create_dir_all(&folder)?;
    let axe = std::env::var("CALLBRIDGE_AXE").context(
        "CALLBRIDGE_AXE is not set: the path of axe-core's axe.min.js (tests/run page fetches it)",
    )?;
    let axe = std::fs::read_to_string(&axe).with_context(|| axe.clone())?;
    let mut stage = Stage::set().await?;
    let mut results = Results::new();
    // Named ones alone, as `person`, or all.
    let named: Vec<String> = std::env::args()
        .skip(1)
        .filter(|it| !it.starts_with('-'))
        .collect();
    let wanted = |part: &str| named.is_empty() || named.iter().any(|it| it == part);
    for language in ["en", "ru", "uz"].into_iter().filter(|it| wanted(it)) {
        println!("== {language}");
        results.extend(views::all(&stage, language, &axe, &folder).await?);
    }
    if wanted("keyboard") {
        println!("== keyboard");
        let by_keyboard = keyboard::a_letter_is_retried(&stage).await;
        results.push(("a letter retried by keyboard".to_owned(), by_keyboard));
    }
    if wanted("live") {
        println!("== live");
        let live = live::parts_move_and_come_back(&mut stage).await;
        results.push(("live parts".to_owned(), live));
    }
    if wanted("person") {
        println!("== person");
        results.extend(person::morning(&stage).await?);
    }
    Ok(results)
}
