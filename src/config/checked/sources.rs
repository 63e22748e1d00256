//! The sources of a command line: formats that this release reads, names, secrets.

use super::catch_up::NAMES;
use super::{Checking, SourceConfig, catch_up};
use crate::config::Faults;
use crate::config::options::SourceFlags;
use crate::values;
use callbridge_asterisk::Columns;
use callbridge_mapping::trunk;
use callbridge_model::SecretKind;
use callbridge_source::url::{SourceUrl, Transport};

/// Every `--source`, in the order of the flags.
pub(super) fn check(flags: &SourceFlags, checking: &mut Checking<'_>) -> Vec<SourceConfig> {
    let unfit = |id: &&str| !trunk::flag::is_name(id);
    if let Some(id) = flags.pbx_id.as_deref().filter(unfit) {
        checking.faults.add("--pbx-id", format!("`{id}`: {NAMES}"));
    }
    let mut sources = Vec::new();
    for text in values::given(&flags.source) {
        let url = SourceUrl::parse(text);
        let Some(url) = checking.faults.take_all("--source", url) else {
            continue;
        };
        let flag = format!("--source {url}");
        if let Some(pbx) = url.pbx.as_deref().filter(unfit) {
            checking.faults.add(&flag, format!("pbx={pbx}: {NAMES}"));
        }
        let kind = secret_kind(&url.transport);
        let file = url.secret_file.as_deref();
        sources.push(SourceConfig {
            pbx: url.pbx.clone().or_else(|| flags.pbx_id.clone()),
            secret: kind.and_then(|kind| checking.secret(&flag, kind, file)),
            catch_up: false,
            url,
        });
    }
    let (needs, faults) = (checking.needs, &mut checking.faults);
    two_unnamed(&sources, faults);
    if flags.pbx_id.is_some() && sources.iter().any(SourceConfig::tells_whole_calls) {
        faults.add(
            "--pbx-id",
            "cannot be used with format=call, whose messages each name their own PBX: remove it \
             (other sources take pbx=)",
        );
    }
    if needs && flags.source.is_empty() {
        faults.add(
            "--source",
            "is missing: give the PBX, as ami://USER@HOST or file:///PATH",
        );
    }
    let files = catch_up::check(flags, &sources, faults);
    sources.extend(files);
    sources
}

/// Two managers, or two gateways, that no `pbx=` names: if they are of two PBXs, a unique id of the
/// one may be one of the other, and the second call would be taken for the first.
fn two_unnamed(sources: &[SourceConfig], faults: &mut Faults) {
    let unnamed = || sources.iter().filter(|source| source.url.pbx.is_none());
    let place = |source: &SourceConfig| match &source.url.transport {
        Transport::Ami { endpoint, .. } => Some((true, endpoint.to_string())),
        Transport::WebSocket { endpoint, .. } => Some((false, endpoint.to_string())),
        // A switch gives each channel an id that no other has.
        Transport::Esl { .. } | Transport::Amqp(_) | Transport::File { .. } => None,
    };
    for (at, source) in unnamed().enumerate() {
        let Some((manager, own)) = place(source) else {
            continue;
        };
        let other = unnamed().take(at).find(|other| {
            place(other).is_some_and(|(kind, theirs)| kind == manager && theirs != own)
        });
        if let Some(other) = other {
            faults.add(
                &format!("--source {}", source.url),
                format!(
                    "is it another PBX than {}? Calls of two PBXs may have the same ids: give each \
                     pbx=NAME of its own, or both the same name if they are one PBX",
                    other.url
                ),
            );
        }
    }
}

/// `--columns`
pub(super) fn columns(text: &str) -> Result<Columns, String> {
    text.parse().map_err(|missing| {
        format!("{missing}; name every column of the file in its order, `-` for what has no name")
    })
}

/// What a source of this kind is asked for; `None` where it needs no secret.
const fn secret_kind(transport: &Transport) -> Option<SecretKind> {
    match transport {
        Transport::Ami { .. } => Some(SecretKind::Ami),
        Transport::Esl { .. } => Some(SecretKind::Esl),
        Transport::Amqp(_) => Some(SecretKind::Amqp),
        Transport::WebSocket { .. } | Transport::File { .. } => None,
    }
}
