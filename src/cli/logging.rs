//! Where log lines go: stderr, as text or JSON; colour on a terminal alone.

use super::config::Logging;
use super::environment::Environment;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Parts of other crates that talk much; they keep to warnings below `debug`.
const QUIET: &str = "hyper=warn,reqwest=warn,rustls=warn,tungstenite=warn";

/// These write passwords into their lines at `trace`, as lists of numbers. What goes wrong on a
/// broker's line comes to us as an error and is told in our words: they say nothing at any level.
const SILENT: &str = "lapin=off,amq_protocol=off,amq_protocol_tcp=off,tcp_stream=off";

/// Sets the log up for the whole process. A second call changes nothing.
pub fn set_up(logging: Logging, environment: &Environment) {
    let filter = filter(logging.level);
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(EnvFilter::new(filter))
        .with_target(false);
    // Ends in an error where a log is set up already: a test's, or a second call's.
    let _ = if logging.json {
        builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init()
    } else {
        builder
            .with_ansi(colour(environment, std::io::stderr().is_terminal()))
            .try_init()
    };
}

/// What is told at a level. Only our own code tells more than `debug`: what others write at
/// `trace` is nobody's to vouch for.
fn filter(level: tracing::Level) -> String {
    let own = level.as_str().to_ascii_lowercase();
    if level < tracing::Level::DEBUG {
        format!("{own},{QUIET},{SILENT}")
    } else {
        format!("debug,callbridge={own},{SILENT}")
    }
}

/// Colour on a terminal, unless `NO_COLOR` or a dumb terminal asks for none.
pub fn colour(environment: &Environment, terminal: bool) -> bool {
    terminal && environment.text("NO_COLOR").is_none() && environment.text("TERM") != Some("dumb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn only_our_own_code_tells_more_than_debug_and_brokers_libraries_nothing() {
        for level in [Level::ERROR, Level::INFO, Level::DEBUG, Level::TRACE] {
            let words = filter(level);
            assert!(words.ends_with(SILENT), "{words}");
            assert!(EnvFilter::try_new(&words).is_ok(), "{words}");
            assert!(!words.starts_with("trace"), "{words}");
        }
        assert!(filter(Level::TRACE).contains(",callbridge=trace,"));
        assert!(filter(Level::INFO).starts_with("info,hyper=warn,"));
    }
}
