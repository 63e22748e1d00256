//! The flags of `lead …` and `missed`.

use super::{Flags, StateFlags};
use clap::{Args, Subcommand};

const GIVE_EXAMPLES: &str = "\
The number is asked after what the dialplan says (var:, userfield:) and before csv: and
directory, on every trunk. It is kept in the state until `lead take`.

Examples:
  callbridge lead give +998901110001 4001
  callbridge lead give '90 111-00-01' 4001 --state /var/lib/callbridge

Exit: 0 given, 64 what was typed, 65 no number in full, 69 no daemon and no state.";

const SET_EXAMPLES: &str = "\
Examples:
  callbridge lead set 4001 11=VIP 12=null
  callbridge lead set 4001 '14=[gold, uz]' '11=\"null\"'
  callbridge lead set 4001 15:=5 16:=true 14:='[\"gold\", \"uz\"]'

Exit: 0 written, 64 what was typed, 65 refused or not a field of leads,
69 no daemon, paused or not settled in time, 77 token or grant.";

/// How `missed` is used.
pub(crate) const MISSED_EXAMPLES: &str = "\
A customer waits who made an unanswered call and with whom nobody has talked since, in either
direction; calls that unanswered=no keeps out of the journal count too. After 30 days without
another try they are forgotten.

Examples:
  callbridge missed
  callbridge missed --since 24h --csv > to-call.csv
  callbridge missed --json | jq -r .phone";

/// `missed`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct MissedFlags {
    /// Only those who tried in this time, as 24h
    #[arg(long, value_name = "T")]
    pub since: Option<String>,
    /// As CSV
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Where.
    #[command(flatten)]
    pub state: StateFlags,
}

/// `lead …`
#[derive(Debug, Subcommand)]
pub(crate) enum LeadVerb {
    /// List numbers that called and have no lead, for the CRM's administrator
    Missing {
        /// As CSV
        #[arg(long)]
        csv: bool,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
    /// List the numbers of the directory, and whose they are
    List(StateFlags),
    /// Give a number its lead by hand; its parked calls are sent at once
    #[command(after_help = GIVE_EXAMPLES)]
    Give {
        /// The number, as people write it
        phone: Option<String>,
        /// The lead's id in the CRM
        lead: Option<String>,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
    /// Take a lead that was given by hand from its number: later calls follow the rules alone
    Take {
        /// The number, as people write it
        phone: Option<String>,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
    /// List the leads that were given by hand, with when and by whom
    Given(StateFlags),
    /// Set fields of a lead through the running daemon, and show the result
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// The lead's id
        lead: Option<String>,
        /// A text; null clears; `[a,b]` for a multi-select field; "null" in quotes is the text
        #[arg(value_name = "ID=VALUE")]
        values: Vec<String>,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
    /// Say what a number maps to on each trunk, and why
    Check {
        /// The number, as people write it
        phone: Option<String>,
        /// JSON
        #[arg(long)]
        json: bool,
        /// The flags of run, for when no daemon is running.
        #[command(flatten)]
        flags: Box<Flags>,
    },
}
