//! The flags about sources: URLs, formats, and secrets of `--source`, the PBX's record files of
//! `--catch-up`, and the id of each source's PBX.

use super::{Checking, SourceConfig};
use crate::config::Faults;
use crate::config::flags::SourceFlags;
use crate::values;
use callbridge_asterisk::CsvColumns;
use callbridge_mapping::trunk;
use callbridge_model::{SecretKind, SecretPlace};
use callbridge_source::{SourceUrl, Transport, url::Format};

/// Checks every `--source`, in the order of the flags. A hub (`collects`) needs no source.
pub(super) fn check(
    flags: &SourceFlags,
    collects: bool,
    checking: &mut Checking<'_>,
) -> Vec<SourceConfig> {
    if let Some(id) = flags.pbx_id.as_deref().filter(|id| !trunk::is_name(id)) {
        checking.faults.add("--pbx-id", format!("`{id}`: {NAMES}"));
    }
    let mut sources = Vec::new();
    for text in values::flag_values(&flags.source) {
        let url = checking.faults.take_all("--source", SourceUrl::parse(text));
        let Some(url) = url else { continue };
        let flag = format!("--source {url}");
        if let Some(pbx) = url.pbx.as_deref().filter(|pbx| !trunk::is_name(pbx)) {
            checking.faults.add(&flag, format!("pbx={pbx}: {NAMES}"));
        }
        let secret = secret_kind(&url.transport).and_then(|kind| {
            let file = url.secret_file.as_deref();
            let place = SecretPlace::find(kind, file, checking.environment);
            checking.require(&flag, place)
        });
        sources.push(SourceConfig {
            pbx: url.pbx.clone().or_else(|| flags.pbx_id.clone()),
            secret,
            catch_up: false,
            url,
        });
    }
    let needs = checking.needs;
    let faults = &mut checking.faults;
    if needs {
        require_pbx_id(&sources, faults);
    }
    two_unnamed(&sources, faults);
    let of_messages = sources.iter().any(SourceConfig::carries_whole_calls);
    let message = "cannot be used with format=call, because each message names its PBX: remove it \
                   (other sources take pbx=)";
    faults.add_if(flags.pbx_id.is_some() && of_messages, "--pbx-id", message);
    let message = "is missing: give the PBX, such as ami://USER@HOST or file:///PATH";
    let is_missing = needs && !collects && flags.source.is_empty();
    faults.add_if(is_missing, "--source", message);
    let files = catch_up(flags, &sources, faults);
    sources.extend(files);
    sources
}

/// Refuses a source if no flag names its PBX. Messages with `format=call` name their PBX.
fn require_pbx_id(sources: &[SourceConfig], faults: &mut Faults) {
    let unnamed = sources
        .iter()
        .find(|source| source.pbx.is_none() && !source.carries_whole_calls());
    if let Some(source) = unnamed {
        faults.add_text(format!(
            "--pbx-id is missing, and --source {} has no pbx=. Name this PBX once, for example \
             with --pbx-id office. The name is part of each call's id, so it must never change.",
            source.url
        ));
    }
}

/// Refuses two managers, or two gateways, without `pbx=`. If they belong to two PBXs, their calls
/// can have the same unique ids, and the second call would be taken for the first.
fn two_unnamed(sources: &[SourceConfig], faults: &mut Faults) {
    let mut unnamed: Vec<&SourceConfig> = Vec::new();
    for source in sources.iter().filter(|source| source.url.pbx.is_none()) {
        let transport = &source.url.transport;
        let other = unnamed
            .iter()
            .find(|other| can_share_ids(&other.url.transport, transport));
        if let Some(other) = other {
            let message = format!(
                "has no pbx=, and neither has {}. Calls of two PBXs can have the same ids: give \
                 each source its own pbx=NAME, or both the same name if they are one PBX",
                other.url
            );
            faults.add(&format!("--source {}", source.url), message);
        }
        unnamed.push(source);
    }
}

/// Returns `true` for two managers, or two gateways, at different endpoints. A FreeSWITCH gives
/// each channel a globally unique id.
fn can_share_ids(one: &Transport, other: &Transport) -> bool {
    use Transport::{Ami, WebSocket};
    match (one, other) {
        (
            Ami { endpoint: one, .. },
            Ami {
                endpoint: other, ..
            },
        )
        | (
            WebSocket { endpoint: one, .. },
            WebSocket {
                endpoint: other, ..
            },
        ) => one.to_string() != other.to_string(),
        _ => false,
    }
}

/// Reads the value of `--columns`; its error names the columns that are missing.
pub(super) fn columns(text: &str) -> Result<CsvColumns, String> {
    text.parse().map_err(|missing| {
        format!("{missing}; name every column of the file in order, `-` for one that is not needed")
    })
}

/// Returns the kind of secret that a source of this transport needs. `None` if the transport needs
/// no secret.
pub(crate) const fn secret_kind(transport: &Transport) -> Option<SecretKind> {
    match transport {
        Transport::Ami { .. } => Some(SecretKind::Ami),
        Transport::Esl { .. } => Some(SecretKind::Esl),
        Transport::Amqp(_) => Some(SecretKind::Amqp),
        Transport::WebSocket { .. } | Transport::File { .. } => None,
    }
}

const FLAG: &str = "--catch-up";

/// Checks every `--catch-up`, in the order of the flags. `sources` must report calls of the same
/// PBX.
pub(super) fn catch_up(
    flags: &SourceFlags,
    sources: &[SourceConfig],
    faults: &mut Faults,
) -> Vec<SourceConfig> {
    let mut files = Vec::new();
    for text in values::flag_values(&flags.catch_up) {
        let url = faults.take_all(FLAG, SourceUrl::parse(text));
        let Some(url) = url else { continue };
        let name = format!("{FLAG} {url}");
        if let Some(message) = catch_up_error(&url, sources) {
            faults.add(&name, message);
        }
        let pbx = url.pbx.clone().or_else(|| only_pbx(flags, sources));
        faults.take(&name, check_pbx(pbx.as_deref(), sources));
        files.push(SourceConfig {
            url,
            pbx,
            secret: None,
            catch_up: true,
        });
    }
    files
}

/// Returns why this URL cannot be a catch-up file. `None` if it can.
fn catch_up_error(url: &SourceUrl, sources: &[SourceConfig]) -> Option<String> {
    let Transport::File { path, format, .. } = &url.transport else {
        return Some("is not a file: give file:///PATH?format=cel-csv".to_owned());
    };
    let is_source = sources.iter().any(|source| match &source.url.transport {
        Transport::File { path: other, .. } => path == other,
        _ => false,
    });
    if is_source {
        return Some("is also a --source: give the file in only one of the two flags".to_owned());
    }
    let has_calls = [Format::CelCsv, Format::CdrCsv, Format::FreeswitchCdr].contains(format);
    if has_calls {
        return None;
    }
    Some("is not a CEL or CDR file: give format=cel-csv, cdr-csv or freeswitch-cdr".to_owned())
}

/// Returns the PBX of a catch-up file without `pbx=`: the PBX that all sources share, or else
/// `--pbx-id`.
fn only_pbx(flags: &SourceFlags, sources: &[SourceConfig]) -> Option<String> {
    let first = sources.first()?;
    let one = sources.iter().all(|source| source.pbx == first.pbx);
    let pbx = if one { &first.pbx } else { &flags.pbx_id };
    pbx.clone()
}

fn check_pbx(pbx: Option<&str>, sources: &[SourceConfig]) -> Result<(), String> {
    if let Some(pbx) = pbx.filter(|pbx| !trunk::is_name(pbx)) {
        return Err(format!("pbx={pbx}: {}", NAMES));
    }
    let has_source = sources.iter().any(|source| source.pbx.as_deref() == pbx);
    if sources.is_empty() || has_source {
        return Ok(());
    }
    let known: Vec<&str> = sources
        .iter()
        .filter_map(|source| source.pbx.as_deref())
        .collect();
    Err(format!(
        "no --source has its PBX: name the PBX with pbx=NAME, one of: {}",
        known.join(", ")
    ))
}

/// The rule for names of PBXs, for messages.
pub(super) const NAMES: &str = "use at most 64 letters, digits, `-`, `_` and `.`";
