//! `audit`, checked.

use crate::config::options::audit::AuditFlags;
use crate::config::{Audit, Checking, Command, Faults, Purpose};
use crate::values;
use callbridge_formats::Format;
use callbridge_model::{Zone, dates};
use std::path::PathBuf;

pub(super) fn check(mut checking: Checking<'_>, flags: AuditFlags) -> Result<Command, Faults> {
    let file = match (flags.cdr, flags.cel) {
        (Some(file), None) => Some((PathBuf::from(file), Format::CdrCsv)),
        (None, Some(file)) => Some((PathBuf::from(file), Format::CelCsv)),
        (None, None) => {
            let words = "which file of the PBX? Give --cdr FILE or --cel FILE";
            checking.faults.add("audit", words);
            None
        }
        (Some(_), Some(_)) => {
            checking
                .faults
                .add("--cdr", "cannot be used with --cel; keep one");
            None
        }
    };
    // One that cannot be read is told with the other flags.
    let zone = flags.flags.sources.pbx_timezone.as_deref();
    let zone = Zone::of(zone.and_then(|text| values::zone(text).ok()).as_ref());
    let zone = zone.as_time_zone();
    let date = |text: &str| dates::date(text, zone);
    let from = checking.faults.read("--from", &flags.from, date);
    let end = |text: &str| dates::date_end(text, zone);
    let until = checking.faults.read("--to", &flags.to, end);
    let config = checking.config(flags.flags, Purpose::Explain)?;
    let (file, format) = file.ok_or_else(Faults::default)?;
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
