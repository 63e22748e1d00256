//! Tests that compare the assembler with a model. Random stories take place on a simulated
//! switchboard. The model derives the true calls from what happened, in a slow and simple way, and
//! the assembler must derive the same calls from the events that a PBX would report.
//!
//! | module | what it does |
//! |---|---|
//! | `switch` | simulates a switchboard and records what really happens |
//! | `plot`, `moves` | play random call plots on it |
//! | `truth` | the model, which works out who can hear whom at each instant and derives the calls |
//! | `telling` | reports the story as channel events, as CEL, or as both |
//! | `links` | reports the story as two-channel links and rooms |
//! | `compare` | compares the assembler's calls with the true ones |
//! | `matrix` | fixed stories, told in the format of every source, make the docs' table |
//!
//! `PROPTEST_CASES=10000 cargo test -p callbridge-call --test model -- --nocapture` runs more cases
//! and prints how many of them had each trait.

mod compare;
mod dialed;
mod links;
mod matrix;
mod moves;
mod plot;
mod story;
mod switch;
mod telling;
mod truth;

use plot::TRAITS;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;

#[test]
fn assembler_output_matches_every_generated_story() {
    let config = Config {
        // Failing seeds aren't committed. Instead, each failure becomes a separate named test.
        failure_persistence: None,
        ..Config::default()
    };
    let cases = match std::env::var("PROPTEST_CASES") {
        Ok(_) => config.cases,
        Err(_) => 2_000,
    };
    let met: RefCell<BTreeMap<&str, u32>> = RefCell::default();
    let (calls, received, failed) = (RefCell::new(0), RefCell::new(0), RefCell::new(None));
    let mut runner = TestRunner::new(Config { cases, ..config });
    let result = runner.run(&story::stories(), |story| {
        *received.borrow_mut() += 1;
        for &what in &story.traits {
            *met.borrow_mut().entry(what).or_default() += 1;
        }
        let count = compare::differences(&story).map_err(|message| {
            failed.borrow_mut().get_or_insert(*received.borrow());
            TestCaseError::fail(message)
        })?;
        *calls.borrow_mut() += count;
        Ok(())
    });
    let met = met.into_inner();
    println!("{cases} stories, {} calls", calls.into_inner());
    for what in TRAITS {
        println!("{:>7} {what}", met.get(what).copied().unwrap_or(0));
    }
    if let Err(failure) = result {
        let story = failed.into_inner().unwrap_or(0);
        panic!("failed at story {story}: {failure}");
    }
    let missing: Vec<&str> = TRAITS
        .into_iter()
        .filter(|t| !met.contains_key(t))
        .collect();
    assert!(missing.is_empty() || cases < 500, "never met: {missing:?}");
}
