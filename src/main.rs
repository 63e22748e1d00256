//! The command line: one binary, `callbridge`.

use callbridge::cli::command::{Asked, read};
use callbridge::cli::dispatch::{dispatch, print};
use callbridge::cli::{Code, Environment, Failure};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("callbridge: {failure}");
            failure.exit_code()
        }
    }
}

/// Checks the arguments, starts the runtime, does what was asked until done or told to stop.
fn start() -> Result<(), Failure> {
    let environment = Environment::of_process();
    let command = match read(std::env::args_os(), &environment)? {
        Asked::Command(command) => *command,
        Asked::Show(text) => return print(text.as_bytes()),
    };
    // One TLS implementation for reqwest, lapin and tungstenite. Set already only in tests.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::of(Code::Failed, error))?;
    runtime.block_on(async {
        let shutdown = told_to_stop()?;
        dispatch(command, &environment, shutdown).await
    })
}

/// Ends at SIGTERM or SIGINT.
fn told_to_stop() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::of(Code::Failed, error));
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
