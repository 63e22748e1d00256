//! `--catch-up`: files in which the PBX itself writes down its calls.

use super::SourceConfig;
use crate::config::Faults;
use crate::config::options::SourceFlags;
use crate::values;
use callbridge_mapping::trunk;
use callbridge_source::url::{Format, SourceUrl, Transport};

const FLAG: &str = "--catch-up";

/// Every `--catch-up`, in the order of the flags, for PBXs that these sources tell of.
pub(super) fn check(
    flags: &SourceFlags,
    sources: &[SourceConfig],
    faults: &mut Faults,
) -> Vec<SourceConfig> {
    let mut files = Vec::new();
    for text in values::given(&flags.catch_up) {
        let Some(url) = faults.take_all(FLAG, SourceUrl::parse(text)) else {
            continue;
        };
        let name = format!("{FLAG} {url}");
        if let Some(words) = unfit(&url, sources) {
            faults.add(&name, words);
        }
        let pbx = url.pbx.clone().or_else(|| only(flags, sources));
        faults.take(&name, whose(pbx.as_deref(), sources));
        files.push(SourceConfig {
            url,
            pbx,
            secret: None,
            catch_up: true,
        });
    }
    files
}

/// Why this is no file of calls.
fn unfit(url: &SourceUrl, sources: &[SourceConfig]) -> Option<String> {
    let Transport::File { path, format, .. } = &url.transport else {
        return Some("is not a file: give file:///PATH?format=cel-csv".to_owned());
    };
    let same = |source: &&SourceConfig| match &source.url.transport {
        Transport::File { path: other, .. } => path == other,
        Transport::Ami { .. }
        | Transport::Esl { .. }
        | Transport::WebSocket { .. }
        | Transport::Amqp(_) => false,
    };
    if sources.iter().any(|source| same(&source)) {
        return Some("is a --source, too: a file is read in one of both ways".to_owned());
    }
    match format {
        Format::CelCsv | Format::CdrCsv | Format::FreeswitchCdr => None,
        Format::Ami
        | Format::AmiJson
        | Format::CelAmqp
        | Format::CdrAmqp
        | Format::Wazo
        | Format::Freeswitch
        | Format::Call => Some(
            "is not a file of CEL or CDRs: give format=cel-csv, cdr-csv or freeswitch-cdr"
                .to_owned(),
        ),
    }
}

/// The PBX that a file without `pbx=` is of.
fn only(flags: &SourceFlags, sources: &[SourceConfig]) -> Option<String> {
    let first = sources.first()?;
    let one = sources.iter().all(|source| source.pbx == first.pbx);
    if one {
        first.pbx.clone()
    } else {
        flags.pbx_id.clone()
    }
}

fn whose(pbx: Option<&str>, sources: &[SourceConfig]) -> Result<(), String> {
    if let Some(pbx) = pbx.filter(|pbx| !trunk::flag::is_name(pbx)) {
        return Err(format!("pbx={pbx}: {}", NAMES));
    }
    let of_pbx = |source: &SourceConfig| source.pbx.as_deref() == pbx;
    if sources.is_empty() || sources.iter().any(of_pbx) {
        return Ok(());
    }
    let known: Vec<&str> = sources.iter().filter_map(|it| it.pbx.as_deref()).collect();
    Err(format!(
        "no --source is of its PBX: say which it is with pbx=NAME ({})",
        known.join(", ")
    ))
}

/// What the name of a PBX is made of, for messages.
pub(super) const NAMES: &str =
    "a name has letters, digits, `-`, `_` and `.`, and at most 64 of them";
