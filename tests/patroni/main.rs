//! `tests/run hub --patroni`: what happens to hubs when their database loses its primary. Root only,
//! and no part of the default run.
//!
//! ```text
//!  collectors ─▶ hub 1 ─┐                    ┌─▶ db1
//!       (or) ──▶ hub 2 ─┴── primary ─────────┼─▶ db2     etcd, Patroni, PostgreSQL each
//!                                            └─▶ db3
//! ```
//! The cluster has the files of `deploy/hub/patroni`.

mod fault;
mod plain;

use self::fault::Fault;
use std::process::ExitCode;

const HELP: &str = "tests/run hub --patroni [--list] [NAME…]
  NAME     faults to try, all by default
  --list   their names";

fn chosen() -> Result<Vec<Fault>, String> {
    let mut chosen = Vec::new();
    for word in std::env::args().skip(1) {
        match Fault::ALL.into_iter().find(|fault| fault.name() == word) {
            Some(fault) => chosen.push(fault),
            None => return Err(format!("{word} is no fault\n{HELP}")),
        }
    }
    if chosen.is_empty() {
        chosen = Fault::ALL.to_vec();
    }
    Ok(chosen)
}

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--list") {
        for fault in Fault::ALL {
            println!("{:16} {}", fault.name(), fault.story());
        }
        return ExitCode::SUCCESS;
    }
    let chosen = match chosen() {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(64);
        }
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("network namespaces need root: run tests/run hub --patroni as root");
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(plain::measure(&chosen));
    ExitCode::SUCCESS
}
