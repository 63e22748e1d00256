//! The process: arguments, runtime, signals, exit code.

use crate::commands::dispatch;
use crate::config::command::read;
use crate::privilege::step_down;
use crate::{OrFail as _, Result};
use callbridge_model::{Code, Environment};
use callbridge_ops::log::{flush, say};
use std::{pin::Pin, process::ExitCode, time::Duration, time::Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Runs the program: does what the arguments ask, and prints the failure, if any.
pub fn start() -> ExitCode {
    let code = match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let words = failure.to_string();
            if !words.is_empty() {
                say(&words);
            }
            failure.exit_code()
        }
    };
    flush();
    code
}

/// Checks the arguments, leaves root's rights where the state folder is another's, starts the
/// runtime, does what was asked until done or told to stop.
fn run() -> Result<()> {
    let environment = Environment::of_process();
    let mut command = read(std::env::args_os(), &environment)?;
    // Before a thread: the kernel knows users by thread.
    let needs = command.needs();
    let stops_in_order = needs.stops_in_order;
    step_down(needs)?;
    // One TLS implementation for reqwest, lapin and tungstenite. Set already only in tests.
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
            // The signal itself ends it, as it ends any other program.
            Box::pin(std::future::pending())
        };
        dispatch(command, &environment, shutdown).await
    });
    // What hangs in a thread, as a name looked up at a DNS that does not answer, holds nobody up.
    runtime.shutdown_background();
    ended
}

/// A signal so soon after the first is the same order again: `timeout` and terminals tell both the
/// process and its group.
const SAME_ORDER: Duration = Duration::from_millis(500);

/// Ends at SIGTERM or SIGINT. A second one ends the process at once: what is committed is safe.
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
            // As a shell says of a program that a signal has ended.
            std::process::exit(128 + again.as_raw_value());
        });
    })
}
