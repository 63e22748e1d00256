//! `audit`: its flags, checked.

use crate::config::flags::Flags;
use crate::config::{Audit, Checking, Command, Faults};
use crate::values;
use callbridge_formats::Format;
use callbridge_model::{Zone, dates};
use clap::Args;
use std::path::PathBuf;

pub(super) fn check(mut checking: Checking<'_>, flags: AuditFlags) -> Result<Command, Faults> {
    let (is_cdr, is_cel) = (flags.cdr.is_some(), flags.cel.is_some());
    let words = "which file of the PBX? Give --cdr FILE or --cel FILE";
    checking.faults.add_if(!is_cdr && !is_cel, "audit", words);
    let words = "cannot be used with --cel; keep one";
    checking.faults.add_if(is_cdr && is_cel, "--cdr", words);
    let format = match is_cdr {
        true => Format::CdrCsv,
        false => Format::CelCsv,
    };
    let file = flags.cdr.or(flags.cel).map(PathBuf::from);
    // One that cannot be read is told with the other flags.
    let zone = flags.flags.sources.pbx_timezone.as_deref();
    let zone = Zone::of(zone.and_then(|text| values::zone(text).ok()).as_ref());
    let zone = zone.as_time_zone();
    let date = |text: &str| dates::date(text, zone);
    let from = checking.faults.read("--from", &flags.from, date);
    let end = |text: &str| dates::date_end(text, zone);
    let until = checking.faults.read("--to", &flags.to, end);
    let config = checking.config(flags.flags)?;
    let file = file.ok_or_else(Faults::default)?;
    Ok(Command::Audit(Box::new(Audit {
        file,
        format,
        from,
        until,
        take_in: flags.take_in,
        journal: !flags.no_journal,
        json: flags.json,
        config,
    })))
}

/// The examples at the end of `audit --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  callbridge audit --cdr /var/log/asterisk/cdr-csv/Master.csv @/etc/callbridge/flags
  callbridge audit --cel /var/log/asterisk/cel-custom/Master.csv --from 2026-11-20 \\
    --to 2026-11-20 --take-in @/etc/callbridge/flags
Exit: 0 each call of the file is explained, 1 some are not.";

/// The flags of `audit`, as typed.
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
    #[command(flatten)]
    pub flags: Flags,
}
