//! Writes log lines to stderr, as text or JSON, with color only on a terminal. If stderr accepts
//! nothing, its lines are lost (see `writer`). At most ten lines of one kind are written per second
//! (see `limit`).

mod limit;
mod lines;
mod writer;

use callbridge_model::{Environment, safe_lines};
use limit::{LeftOut, LogLimit};
use lines::{JsonLine, TextFields};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal as _, Write as _};
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::{
    Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};
use writer::{LogWriter, Stderr};

/// The flags that set the log's level and format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logging {
    /// The most detailed level that is written (`--log`).
    pub level: Level,
    /// Lines are JSON objects (`--log-format json`).
    pub json: bool,
    /// Telephone numbers are written in full (`--log-phones`).
    pub phones: bool,
}

impl Default for Logging {
    fn default() -> Self {
        Self {
            level: Level::INFO,
            json: false,
            phones: false,
        }
    }
}

/// Verbose modules of other crates. Below `debug`, they only log warnings.
const QUIET: [&str; 4] = ["hyper", "reqwest", "rustls", "tungstenite"];

/// Crates whose lines at `trace` or `debug` contain passwords and tokens. They log nothing at any
/// level. Errors of a connection to a broker or database are returned to us and logged in our
/// messages.
const SILENT: [&str; 5] = [
    "lapin",
    "amq_protocol",
    "amq_protocol_tcp",
    "tcp_stream",
    "tokio_postgres",
];

/// The writer of this process, once its log is set up.
static LOG: OnceLock<LogWriter> = OnceLock::new();
/// The limit on lines of one kind, once the log is set up.
static LIMIT: OnceLock<LogLimit> = OnceLock::new();

/// Sets the log up for the whole process. A second call changes nothing.
pub fn set_up(logging: Logging, environment: &Environment) {
    let json = logging.json;
    let Ok(started) = LogWriter::start(Stderr, move |count| lines::lost_line(json, count)) else {
        say("cannot start a thread for the log: nothing is logged");
        return;
    };
    let log = LOG.get_or_init(|| started);
    let shared_limit = LIMIT.get_or_init(|| {
        let writer = log.clone();
        LogLimit::new(Arc::new(move |left_out: &LeftOut| {
            writer.say(lines::left_out_line(json, left_out).as_bytes());
        }))
    });
    let limit = shared_limit.clone();
    std::panic::set_hook(Box::new(log_panic));
    let layer = fmt::layer()
        .with_writer(log.clone())
        .log_internal_errors(false);
    let ansi = color(environment, std::io::stderr().is_terminal());
    let written = if json {
        layer.event_format(JsonLine).boxed()
    } else {
        let text = layer.with_target(false).with_ansi(ansi);
        text.fmt_fields(TextFields).boxed()
    };
    let all = tracing_subscriber::registry().with(written);
    // Fails if a log is already set up, by a test or a second call.
    let _ = all.with(filter(logging.level)).with(limit).try_init();
}

/// Writes a message to stderr for the person who started the program. Hostile characters are
/// escaped. If stderr does not accept the message, it is lost.
pub fn say(message: &str) {
    let line = format!("callbridge: {}\n", safe_lines(message));
    match LOG.get() {
        Some(log) => log.say(line.as_bytes()),
        None => {
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

/// Writes the remaining lines, unless the reader of stderr has stopped.
pub fn flush() {
    if let Some(limit) = LIMIT.get() {
        limit.flush();
    }
    if let Some(log) = LOG.get() {
        log.flush(writer::PATIENCE);
    }
}

/// Returns the number of log lines that were lost.
pub fn lost_lines() -> u64 {
    LOG.get().map_or(0, LogWriter::lost_lines)
}

/// Logs a panic. The standard library's hook is not used, because it would wait for a stopped
/// reader of stderr.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let captured = backtrace.status() == BacktraceStatus::Captured;
    let payload = panic.payload();
    let fixed = payload.downcast_ref::<&str>().copied();
    let message = fixed.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        at = panic.location().map(ToString::to_string),
        thread = std::thread::current().name(),
        reason = message,
        backtrace = captured.then(|| backtrace.to_string()),
        "a part of callbridge failed. This is a bug: please report it"
    );
}

/// Builds the filter of a level. Only our own code writes more than `debug`, because lines of other
/// crates at `trace` can contain anything.
fn filter(level: Level) -> Targets {
    let targets = Targets::new().with_targets(SILENT.map(|name| (name, LevelFilter::OFF)));
    if level < Level::DEBUG {
        let quiet = QUIET.map(|name| (name, Level::WARN.min(level)));
        targets.with_default(level).with_targets(quiet)
    } else {
        let own = targets.with_target("callbridge", level);
        own.with_default(Level::DEBUG)
    }
}

/// Returns whether to use color: on a terminal, unless `NO_COLOR` is set or the terminal is dumb.
pub fn color(environment: &Environment, terminal: bool) -> bool {
    terminal && environment.text("NO_COLOR").is_none() && environment.text("TERM") != Some("dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_level_covers_only_own_code_and_no_broker_crates() {
        for level in [Level::ERROR, Level::INFO, Level::DEBUG, Level::TRACE] {
            let filter = filter(level);
            for silent in [
                "lapin::channel",
                "amq_protocol::frame",
                "tcp_stream::sys",
                "tokio_postgres::query",
            ] {
                assert!(
                    !filter.would_enable(silent, &Level::ERROR),
                    "{silent} at {level}"
                );
            }
            for own in ["callbridge_sender", "callbridge_source::amqp"] {
                assert!(filter.would_enable(own, &level), "{own} at {level}");
            }
            assert!(
                !filter.would_enable("hyper::proto", &Level::TRACE),
                "at {level}"
            );
        }
        assert!(!filter(Level::INFO).would_enable("callbridge_sender", &Level::DEBUG));
        assert!(!filter(Level::INFO).would_enable("hyper::proto", &Level::INFO));
        assert!(filter(Level::INFO).would_enable("hyper::proto", &Level::WARN));
    }
}
