//! The flags of `audit`.

use super::Flags;
use clap::Args;

/// How it is used.
pub(crate) const EXAMPLES: &str = "\
Examples:
  callbridge audit --cdr /var/log/asterisk/cdr-csv/Master.csv @/etc/callbridge/flags
  callbridge audit --cel /var/log/asterisk/cel-custom/Master.csv --from 2026-11-20 \\
    --to 2026-11-20 --take-in @/etc/callbridge/flags
Exit: 0 each call of the file is explained, 1 some are not.";

/// `audit`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AuditFlags {
    /// The PBX's file of call detail records, or FreeSWITCH's folder of them: a call is known by
    /// them, its times are estimates
    #[arg(long, value_name = "FILE")]
    pub cdr: Option<String>,
    /// The PBX's file of channel events (cel_custom)
    #[arg(long, value_name = "FILE")]
    pub cel: Option<String>,
    /// Calls that began then or later: 2026-11-20, with a time and a zone if wanted
    #[arg(long, value_name = "DATE")]
    pub from: Option<String>,
    /// Calls that began by then: a day is meant whole
    #[arg(long, value_name = "DATE")]
    pub to: Option<String>,
    /// Take in calls that are unexplained and that today's flags let through: they are journaled
    /// as any call
    #[arg(long)]
    pub take_in: bool,
    /// Do not read the CRM's journal: by default the daemon looks there for the calls that are
    /// journaled here, with a request for up to 100 of its records
    #[arg(long)]
    pub no_journal: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// Those of run.
    #[command(flatten)]
    pub flags: Flags,
}
