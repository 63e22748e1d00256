//! `check`: tries each part that `run` would use, and says what is wrong and what to do.
//!
//! | module | what lives there |
//! |---|---|
//! | [`finding`] | one line of the answer, and the exit code of all |
//! | [`place`] | state folder, clock, listener; [`trial`]: a state for the time of the check |
//! | [`file`] | whether a file is written in its format, and of when |
//! | [`inward`] | sources, trunks, the queue for dead letters; [`lists`]: leads and employees |
//! | [`service`] | the CRM: address, token, grant, company; [`token`]: where the token comes from |
//! | [`fields`] | the fields of `--lead-field` against those of the CRM |
//! | [`webhooks`] | the receiver of its events: address, certificate, secrets |

pub mod fields;
pub mod file;
pub mod finding;
pub mod inward;
pub mod lists;
pub mod place;
pub mod service;
pub mod token;
pub mod trial;
pub mod webhooks;

use crate::cli;
use crate::cli::command::Check;
use crate::cli::config::Config;
use crate::cli::dispatch::print;
use crate::cli::exit::Failure;
use finding::{Finding, worst};
use std::io::IsTerminal;

/// Looks at everything and prints a line each.
///
/// # Errors
/// The code of the worst fault.
pub async fn run(check: &Check) -> Result<(), Failure> {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut findings = Vec::new();
    let show = |found: Vec<Finding>, findings: &mut Vec<Finding>| -> Result<(), Failure> {
        for finding in found {
            let line = if check.json {
                finding.to_json()
            } else {
                finding.to_text(colour)
            };
            print(format!("{line}\n").as_bytes())?;
            findings.push(finding);
        }
        Ok(())
    };
    let config = &check.config;
    show(
        vec![place::clock(
            crate::clock::now().wall,
            crate::journal::figures::built_at(),
        )],
        &mut findings,
    )?;
    let (found, state) = place::state(config).await;
    show(found, &mut findings)?;
    if let Some(addr) = config.listen {
        show(
            vec![place::listener(addr, state.is_daemon()).await],
            &mut findings,
        )?;
    }
    show(doubts(config), &mut findings)?;
    show(inward::trunks(config), &mut findings)?;
    show(lists::look(config), &mut findings)?;
    for source in &config.sources {
        let mut found = inward::source(source).await;
        if found.fault.is_none() {
            found = file::look(config, source).unwrap_or(found);
        }
        show(vec![found], &mut findings)?;
    }
    let queue = inward::dead_letters(config).await;
    show(queue.into_iter().collect(), &mut findings)?;
    show(
        webhooks::look(config, state.is_daemon()).await,
        &mut findings,
    )?;
    show(service::look(config, state).await, &mut findings)?;
    match worst(&findings) {
        None => Ok(()),
        Some(code) => {
            let faults = findings
                .iter()
                .filter(|finding| finding.fault.is_some())
                .count();
            let words = format!("{faults} of {} checks found a fault", findings.len());
            Err(Failure::new(code, words))
        }
    }
}

/// What is likely to be a mistake.
fn doubts(config: &Config) -> Vec<Finding> {
    let doubts = cli::doubts::of(config).into_iter();
    doubts
        .map(|it| Finding::advice(it.what, "likely a mistake", it.words))
        .collect()
}
