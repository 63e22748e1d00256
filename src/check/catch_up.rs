//! A catch-up file: whether what stands at its end are rows of calls, and of when.

use super::finding::Finding;
use crate::cli::config::{Config, Source};
use crate::cli::exit::Code;
use callbridge_asterisk::{Decoded, Decoder, DecoderSettings, Frame, Frames, Likeness};
use callbridge_call::{EventTime, Told};
use callbridge_source::url::Transport;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// So many bytes of its end are looked at.
const LOOKED_AT: u64 = 256 << 10;

/// Looks at the end of the file, which can be read.
pub fn file(config: &Config, flag: &Source) -> Finding {
    let name = format!("catch-up {}", flag.url);
    let Transport::File { path, format, .. } = &flag.url.transport else {
        return Finding::well(name, "can be read");
    };
    let bytes = match end_of(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let todo = "let the user that callbridge runs as read it";
            return Finding::fault(Code::Input, name, error.to_string(), todo);
        }
    };
    let settings = DecoderSettings {
        zone: config.pbx_timezone.clone(),
        cel_columns: config.cel_columns.clone(),
    };
    let mut decoder = Decoder::new(*format, settings);
    let (mut rows, mut last) = (0_u64, None);
    for frame in Frames::new(*format, &bytes) {
        let Frame::Message(message) = frame else {
            continue;
        };
        if let Decoded::Event { heard, .. } = decoder.decode(message) {
            rows += 1;
            last = last.max(time_of(&heard.told));
        }
    }
    match (rows, last) {
        (0, _) if bytes.is_empty() => {
            Finding::well(name, "is empty: the PBX has written no call yet")
        }
        (0, _) => {
            let like = Likeness::of(&bytes).map(|like| like.with_advice("format="));
            let like = like.unwrap_or_else(|| "nothing known here".to_owned());
            Finding::fault(
                Code::Input,
                name,
                format!("no row at its end is {format}; this looks like {like}"),
                "give the format the file is written in, or the path of another file",
            )
        }
        (_, last) => Finding::well(name, format!("its last row is of {}", shown(last))),
    }
}

fn end_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOOKED_AT)))?;
    let mut bytes = Vec::new();
    file.take(LOOKED_AT).read_to_end(&mut bytes)?;
    if length > LOOKED_AT {
        // The first row is likely to be cut.
        let begin = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..begin.map_or(0, |at| at + 1));
    }
    Ok(bytes)
}

fn time_of(told: &Told<'_>) -> Option<EventTime> {
    match told {
        Told::Channel(event) => event.at,
        Told::Cdr(cdr) => cdr.ended_at.or(cdr.at),
        Told::Mark(_) => None,
    }
}

fn shown(at: Option<EventTime>) -> String {
    let at = at.and_then(|at| jiff::Timestamp::from_second(at.floor_seconds().get()).ok());
    at.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string())
}
