//! The sources of a command line: formats that this release reads, names, secrets.

use super::{Source, catch_up};
use crate::cli::environment::Environment;
use crate::cli::faults::Faults;
use crate::cli::options::SourceFlags;
use crate::cli::secrets::{self, Place};
use crate::cli::values;
use crate::trunk;
use callbridge_asterisk::Columns;
use callbridge_source::url::{SourceUrl, Transport};

/// What the name of a PBX is made of, for messages.
pub(super) const NAMES: &str =
    "a name has letters, digits, `-`, `_` and `.`, and at most 64 of them";

/// Every `--source`, in the order of the flags.
pub(super) fn check(
    flags: &SourceFlags,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Vec<Source> {
    if let Some(id) = flags
        .pbx_id
        .as_deref()
        .filter(|id| !trunk::flag::is_name(id))
    {
        faults.add("--pbx-id", format!("`{id}`: {NAMES}"));
    }
    let mut sources = Vec::new();
    for text in values::given(&flags.source) {
        match SourceUrl::parse(text) {
            Err(wrong) => wrong.iter().for_each(|fault| faults.add("--source", fault)),
            Ok(url) => {
                if let Some(pbx) = url.pbx.as_deref().filter(|pbx| !trunk::flag::is_name(pbx)) {
                    faults.add(&format!("--source {url}"), format!("pbx={pbx}: {NAMES}"));
                }
                let pbx = url.pbx.clone().or_else(|| flags.pbx_id.clone());
                let secret = source_secret(&url, needs, environment, faults);
                sources.push(Source {
                    url,
                    pbx,
                    secret,
                    catch_up: false,
                });
            }
        }
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

/// `--columns`
pub(super) fn columns(text: &str) -> Result<Columns, String> {
    text.parse().map_err(|missing| {
        format!("{missing}; name every column of the file in its order, `-` for what has no name")
    })
}

fn source_secret(
    url: &SourceUrl,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<Place> {
    let kind = match &url.transport {
        Transport::Ami { .. } => secrets::Kind::Ami,
        Transport::Amqp(_) => secrets::Kind::Amqp,
        Transport::WebSocket { .. } | Transport::File { .. } => return None,
    };
    match Place::find(kind, url.secret_file.as_deref(), environment) {
        Err(words) if needs => faults.take(&format!("--source {url}"), Err(words)),
        found => found.ok(),
    }
}
