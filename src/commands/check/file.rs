//! A file that is a source, or a catch-up: whether what stands where `run` would begin to read is
//! written in its format, and of when it is.

use super::finding::{CheckFinding, advice, fault, well};
use crate::config::{Config, SourceConfig};
use callbridge_call::EventTime;
use callbridge_formats::{DecoderSettings, FormatFit};
use callbridge_intake::written;
use callbridge_model::Code;
use callbridge_source::url::Transport;

/// Looks into the file, which can be read; `None` where the source is none.
pub(crate) fn look(config: &Config, flag: &SourceConfig) -> Option<CheckFinding> {
    let Transport::File { path, format, from } = &flag.url.transport else {
        return None;
    };
    let kind = if flag.catch_up { "catch-up" } else { "source" };
    let name = format!("{kind} {}", flag.url.public());
    let bytes = match callbridge_source::sample(path, from) {
        Ok(bytes) => bytes,
        Err(error) => {
            let todo = "let the user that callbridge runs as read it";
            return Some(fault(Code::Input, name, error.to_string(), todo));
        }
    };
    let settings = DecoderSettings {
        zone: config.pbx_timezone.clone(),
        cel_columns: config.cel_columns.clone(),
        variables: None,
    };
    let fit = FormatFit::of(*format, settings, &bytes);
    Some(match (&fit, written::otherwise(*format, &fit, &bytes)) {
        (_, Some(words)) => fault(
            Code::Input,
            name,
            words,
            "give the format the file is written in, or the path of another file",
        ),
        (
            FormatFit::Reads {
                last,
                unbridged: true,
                ..
            },
            None,
        ) => advice(
            name,
            format!(
                "can be read, up to {}; calls are answered in it without events of bridges, so \
                 it is not known who talked: such calls become dead letters `incomplete`",
                shown(*last)
            ),
            "set events = ALL in cel.conf, or add BRIDGE_ENTER,BRIDGE_EXIT (Asterisk 12 and later) \
             or BRIDGE_START,BRIDGE_END,BRIDGE_UPDATE (1.8 to 11), then `module reload cel`",
        ),
        (FormatFit::Reads { last, .. }, None) => {
            let of = if flag.catch_up { "row" } else { "event" };
            well(
                name,
                format!("can be read; its last {of} is of {}", shown(*last)),
            )
        }
        (FormatFit::Empty, None) => well(name, "is empty: the PBX has written no call yet"),
        (FormatFit::Quiet | FormatFit::Other(_) | FormatFit::Unknown, None) => {
            well(name, "can be read; it has no call where reading begins")
        }
    })
}

fn shown(at: Option<EventTime>) -> String {
    let at = at.and_then(|at| jiff::Timestamp::from_second(at.floor_seconds().get()).ok());
    at.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string())
}
