//! All benches that need the program's libraries, except `pace`, in one executable. Linking this
//! executable takes as long as linking one bench.
//!
//! `cargo bench --bench all` runs all benches. `-- day spool` runs the named benches. Each bench
//! runs in a separate process, because some benches measure the memory of their process.

#![allow(
    clippy::duplicate_mod,
    reason = "each bench is an executable of its own as well, with all it needs"
)]

mod day;
mod decode;
mod directory;
mod footprint;
mod hub;
mod intake;
mod lookup;
mod page;
mod postgres;
mod spool;
mod webhook;

use std::process::{Command, ExitCode};

/// The environment variable with the bench that a child process runs.
const CHOSEN: &str = "BENCH";

const BENCHES: [(&str, fn()); 11] = [
    ("decode", decode::main),
    ("day", day::main),
    ("intake", intake::main),
    ("spool", spool::main),
    ("postgres", postgres::main),
    ("directory", directory::main),
    ("lookup", lookup::main),
    ("webhook", webhook::main),
    ("hub", hub::main),
    ("page", page::main),
    ("footprint", footprint::main),
];

fn is_bench(word: &str) -> bool {
    BENCHES.iter().any(|(name, _)| *name == word)
}

fn main() -> ExitCode {
    if let Ok(chosen) = std::env::var(CHOSEN) {
        let named = BENCHES.iter().filter(|(name, _)| *name == chosen);
        named.for_each(|(_, run)| run());
        return ExitCode::SUCCESS;
    }
    // Cargo's own arguments begin with `--`.
    let words = std::env::args().skip(1);
    let words = words.filter(|word| !word.starts_with("--"));
    // Numbers are arguments of the chosen bench, such as a number of calls.
    let (numbers, wanted): (Vec<String>, Vec<String>) =
        words.partition(|word| word.parse::<usize>().is_ok());
    if let Some(unknown) = wanted.iter().find(|word| !is_bench(word)) {
        let names = BENCHES.map(|(name, _)| name).join(", ");
        eprintln!("there is no bench {unknown}; there are {names}");
        return ExitCode::FAILURE;
    }
    let mut code = ExitCode::SUCCESS;
    for (name, _) in BENCHES {
        if !wanted.is_empty() && !wanted.iter().any(|word| word == name) {
            continue;
        }
        println!("\n== {name}");
        let own = std::env::current_exe().expect("this executable");
        let ended = Command::new(own).env(CHOSEN, name).args(&numbers).status();
        if !ended.expect("it starts again").success() {
            eprintln!("the bench {name} failed");
            code = ExitCode::FAILURE;
        }
    }
    code
}
