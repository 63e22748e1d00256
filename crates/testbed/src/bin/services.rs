//! Starts the services that all tests of a run share, runs a command, and ends the services.
//!
//! ```text
//! services cargo nextest run --workspace
//! ```
//! RabbitMQ is one node. Each test process makes a virtual host on it (`Broker::shared`).
//! PostgreSQL is one server, and each test makes its schema there (`Postgres::shared`).

use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::postgres::{self, Durability, Postgres};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: services COMMAND [ARGUMENT...]");
        return ExitCode::from(64);
    };
    let broker = Broker::start_managed();
    let server = Postgres::start(Durability::None, "");
    let node = serde_json::to_string(broker.place()).expect("a place is JSON");
    let database = serde_json::to_string(server.place()).expect("a place is JSON");
    let ended = Command::new(&program)
        .args(arguments)
        .env(broker::SHARED, node)
        .env(postgres::SHARED, database)
        .status();
    drop((broker, server));
    match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code.clamp(1, 255) as u8)),
        Err(error) => {
            eprintln!("services: cannot run {}: {error}", program.display());
            ExitCode::from(127)
        }
    }
}
