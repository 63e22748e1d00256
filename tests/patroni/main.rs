//! `tests/run hub --patroni`: tests hubs whose database loses its primary. Needs root, and is not
//! part of the default run.
//!
//! ```text
//!                             ┌── db1
//!  collectors ─▶ hub 1, hub 2 ┼── db2     etcd, Patroni, and PostgreSQL each
//!                   │         └── db3
//!                   └─▶ CRM
//! ```
//! The cluster has the files of `deploy/hub/patroni`.

mod fault;
mod judge;
mod plain;
mod stage;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod support;

use self::fault::Fault;
use std::process::ExitCode;

const HELP: &str = "tests/run hub --patroni [--list] [--database] [--rounds N] [NAME…]
  NAME        faults to try, all by default
  --list      their names
  --database  tries the database alone, with sessions of psql
  --rounds    each fault is tried this often, 3 times by default";

struct Options {
    faults: Vec<Fault>,
    database: bool,
    rounds: u32,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        faults: Vec::new(),
        database: false,
        rounds: 3,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--database" => options.database = true,
            "--rounds" => {
                let number = words.next().and_then(|number| number.parse().ok());
                options.rounds = number.filter(|rounds| *rounds > 0).ok_or(HELP)?;
            }
            name => match Fault::ALL.into_iter().find(|fault| fault.name() == name) {
                Some(fault) => options.faults.push(fault),
                None => return Err(format!("{name} is no fault\n{HELP}")),
            },
        }
    }
    if options.faults.is_empty() {
        options.faults = Fault::ALL.to_vec();
    }
    if options.database {
        options.faults.retain(|fault| !fault.has_leader());
    }
    Ok(options)
}

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--list") {
        for fault in Fault::ALL {
            println!("{:14} {}", fault.name(), fault.story());
        }
        return ExitCode::SUCCESS;
    }
    let options = match options() {
        Ok(options) => options,
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
    let held = runtime.block_on(async {
        if options.database {
            plain::measure(&options.faults).await;
            return true;
        }
        judge::judge(&options.faults, options.rounds).await
    });
    if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
