//! Where log lines go: stderr, as text or JSON; colour on a terminal alone.

use super::config::Logging;
use super::environment::Environment;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Parts of other crates that talk much; they keep to warnings below `debug`. What goes wrong on
/// a broker's line comes to us as an error and is told in our words: lapin says nothing.
const QUIET: &str = "lapin=off,hyper=warn,reqwest=warn,rustls=warn,tungstenite=warn";

/// Sets the log up for the whole process. A second call changes nothing.
pub fn set_up(logging: Logging, environment: &Environment) {
    let level = logging.level.as_str().to_ascii_lowercase();
    let quiet = logging.level < tracing::Level::DEBUG;
    let filter = if quiet {
        format!("{level},{QUIET}")
    } else {
        level
    };
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

/// Colour on a terminal, unless `NO_COLOR` or a dumb terminal asks for none.
pub fn colour(environment: &Environment, terminal: bool) -> bool {
    terminal && environment.text("NO_COLOR").is_none() && environment.text("TERM") != Some("dumb")
}
