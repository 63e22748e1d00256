//! Where log lines go: stderr, as text or JSON; colour on a terminal alone.

use super::config::Logging;
use super::environment::Environment;
use super::log_lines::{JsonLine, TextFields};
use std::io::IsTerminal as _;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Parts of other crates that talk much; they keep to warnings below `debug`.
const QUIET: [&str; 4] = ["hyper", "reqwest", "rustls", "tungstenite"];

/// These write passwords into their lines at `trace`, as lists of numbers. What goes wrong on a
/// broker's line comes to us as an error and is told in our words: they say nothing at any level.
const SILENT: [&str; 4] = ["lapin", "amq_protocol", "amq_protocol_tcp", "tcp_stream"];

/// Sets the log up for the whole process. A second call changes nothing.
pub fn set_up(logging: Logging, environment: &Environment) {
    let filter = filter(logging.level);
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(logging.level)
        .with_target(false);
    // Ends in an error where a log is set up already: a test's, or a second call's.
    let _ = if logging.json {
        builder
            .event_format(JsonLine)
            .finish()
            .with(filter)
            .try_init()
    } else {
        builder
            .with_ansi(colour(environment, std::io::stderr().is_terminal()))
            .fmt_fields(TextFields)
            .finish()
            .with(filter)
            .try_init()
    };
}

/// What is told at a level. Only our own code tells more than `debug`: what others write at
/// `trace` is nobody's to vouch for.
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

/// Colour on a terminal, unless `NO_COLOR` or a dumb terminal asks for none.
pub fn colour(environment: &Environment, terminal: bool) -> bool {
    terminal && environment.text("NO_COLOR").is_none() && environment.text("TERM") != Some("dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_code_tells_more_than_debug_and_brokers_libraries_nothing() {
        for level in [Level::ERROR, Level::INFO, Level::DEBUG, Level::TRACE] {
            let filter = filter(level);
            for silent in ["lapin::channel", "amq_protocol::frame", "tcp_stream::sys"] {
                assert!(
                    !filter.would_enable(silent, &Level::ERROR),
                    "{silent} at {level}"
                );
            }
            for own in ["callbridge::sender", "callbridge_source::amqp"] {
                assert!(filter.would_enable(own, &level), "{own} at {level}");
            }
            assert!(
                !filter.would_enable("hyper::proto", &Level::TRACE),
                "at {level}"
            );
        }
        assert!(!filter(Level::INFO).would_enable("callbridge::sender", &Level::DEBUG));
        assert!(!filter(Level::INFO).would_enable("hyper::proto", &Level::INFO));
        assert!(filter(Level::INFO).would_enable("hyper::proto", &Level::WARN));
    }
}
