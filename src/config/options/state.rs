//! The flags of `state …`.

use super::StateFlags;
use clap::{Args, Subcommand};

/// `state …`
#[derive(Debug, Subcommand)]
pub(crate) enum StateVerb {
    /// Write the state into a new file: whole at one moment, also while the daemon runs. With a
    /// connection by consent it holds its tokens: keep it as you would a password
    Export(StateMoveFlags),
    /// Put an exported state into an empty folder; the daemon must not run on it
    Import(StateMoveFlags),
    /// Publish again what a collector has forwarded since then (run --forward): for a stream that
    /// has lost messages, as when the power of all its nodes was cut
    ForwardAgain {
        /// A date, or an age like 2h or 1d
        #[arg(long, value_name = "DATE|2h")]
        since: Option<String>,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
}

/// `state export`, `state import`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StateMoveFlags {
    /// The file
    pub file: Option<String>,
    /// The state folder [default: $STATE_DIRECTORY, else ~/.local/state/callbridge]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
}
