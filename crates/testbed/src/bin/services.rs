//! Starts the services that all tests of a run share, runs a command, and ends the services.
//!
//! ```text
//! services cargo nextest run --workspace
//! ```
//! RabbitMQ is one node. Each test process makes a virtual host on it (`Broker::shared`).

use callbridge_testbed::broker::{Broker, SHARED};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: services COMMAND [ARGUMENT...]");
        return ExitCode::from(64);
    };
    let broker = Broker::start_managed();
    let place = serde_json::to_string(broker.place()).expect("a place is JSON");
    let ended = Command::new(&program)
        .args(arguments)
        .env(SHARED, place)
        .status();
    drop(broker);
    match ended {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code.clamp(1, 255) as u8)),
        Err(error) => {
            eprintln!("services: cannot run {}: {error}", program.display());
            ExitCode::from(127)
        }
    }
}
