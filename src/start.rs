//! The process: arguments, runtime, signals, exit code.

use crate::commands::dispatch;
use crate::config::command::read;
use crate::state_owner::refuse_other_users_state;
use crate::{OrFail as _, Result};
use callbridge_model::{Code, Environment};
use callbridge_ops::log::{flush, say};
use std::{pin::Pin, process::ExitCode, time::Duration, time::Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Runs the command that the process's arguments name, and prints its error, if any.
pub fn start() -> ExitCode {
    let code = match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let message = failure.to_string();
            if !message.is_empty() {
                say(&message);
            }
            failure.exit_code()
        }
    };
    callbridge_ops::systemd::flush();
    flush();
    code
}

/// Checks the arguments and the owner of the state folder, starts the runtime, and runs the command
/// until it ends or a signal stops it.
fn run() -> Result<()> {
    let environment = Environment::of_process();
    let command = read(std::env::args_os(), &environment)?;
    if let Some(state) = command.state() {
        refuse_other_users_state(state.socket_folder(), std::env::args_os())?;
    }
    let stops_in_order = command.stops_in_order();
    // All TLS clients (reqwest, lapin, tungstenite) use this implementation. This fails only in
    // tests, if another test has set it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .or_fail(Code::Failed)?;
    let ended = runtime.block_on(async {
        let shutdown: Pin<Box<dyn Future<Output = ()> + Send>> = if stops_in_order {
            Box::pin(stop_requested()?)
        } else {
            // The signal ends the process, as it ends any other program.
            Box::pin(std::future::pending())
        };
        dispatch(command, &environment, shutdown).await
    });
    // A thread that hangs, for example in a DNS lookup without an answer, does not delay the exit.
    runtime.shutdown_background();
    ended
}

/// A second signal within this time counts as the same request, because `timeout` and terminals
/// signal both the process and its group.
const SAME_ORDER: Duration = Duration::from_millis(500);

/// Resolves at SIGTERM or SIGINT. A second signal ends the process at once, which is safe because
/// committed data stays in the state.
fn stop_requested() -> Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate()).or_fail(Code::Failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).or_fail(Code::Failed)?;
    let mut signalled = async move || {
        tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        }
    };
    Ok(async move {
        signalled().await;
        tokio::spawn(async move {
            let first = Instant::now();
            let mut again = signalled().await;
            while first.elapsed() < SAME_ORDER {
                again = signalled().await;
            }
            say("asked to stop a second time: ended at once");
            // A shell reports this code for a program that a signal has ended.
            std::process::exit(128 + again.as_raw_value());
        });
    })
}
