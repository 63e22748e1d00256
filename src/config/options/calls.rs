//! The flags of `calls`.

use clap::Args;

/// How it is used.
pub(crate) const EXAMPLES: &str = "\
Examples:
  callbridge calls --today
  callbridge calls --from 2026-11-18 --to 2026-11-20 --phone '90 111 00 01'
  callbridge calls --state parked --json
  callbridge calls --follow";

/// `calls`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CallsFlags {
    /// Those that began today, in the zone of the PBX
    #[arg(long)]
    pub today: bool,
    /// Those that began then or later: 2026-11-20, with a time and a zone if wanted
    #[arg(long, value_name = "D")]
    pub from: Option<String>,
    /// Those that began by then: a day is meant whole
    #[arg(long, value_name = "D")]
    pub to: Option<String>,
    /// Those with this number: in full, as it is dialled, or its last four digits or more
    #[arg(long, value_name = "P")]
    pub phone: Option<String>,
    /// Those on this trunk
    #[arg(long, value_name = "T")]
    pub trunk: Option<String>,
    /// Those in this state: ready, sending, submitted, journaled, dead, parked or discarded; or the
    /// daemon's state folder, as everywhere. May be repeated
    #[arg(long, value_name = "S|DIR")]
    pub state: Vec<String>,
    /// Those between extensions, which are not journaled: the last 1,000 of seven days
    #[arg(long)]
    pub internal: bool,
    /// Go on with new calls, and with each as its state changes, until interrupted
    #[arg(long)]
    pub follow: bool,
    /// One JSON object a call: explain's, with its state
    #[arg(long)]
    pub json: bool,
    /// The zone in which times are shown [default: that of the daemon's PBX, else this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
}
