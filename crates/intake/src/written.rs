//! Compares a source's format with the configured one, and returns messages for `run` and `check`.

use callbridge_formats::{
    Decoded, Decoder, DecoderSettings, Format, FormatFit, Frame, Frames, Likeness, is_header,
};
use callbridge_model::safe;
use callbridge_source::{SourceId, SourceUrl, Transport};
use std::collections::BTreeMap;
use tokio::task::JoinSet;

/// How many times to check a file without readable messages.
const LOOKS_MAX: u8 = 3;

/// Describes why nothing from a source can be read, or returns `None` if something can be or the
/// source has no messages yet.
pub fn describe_mismatch(format: Format, fit: &FormatFit, bytes: &[u8]) -> Option<String> {
    match fit {
        FormatFit::Empty | FormatFit::Reads { .. } | FormatFit::Quiet => None,
        FormatFit::Other(like) => Some(mismatch_message(format, like)),
        FormatFit::Unknown => Some(unknown_message(format, bytes)),
    }
}

/// Describes the format of a message that isn't in the configured `format`, or returns `None` if it
/// is or its format isn't recognized.
pub(super) fn message(format: Format, bytes: &[u8]) -> Option<String> {
    let like = Likeness::recognize(bytes).filter(|like| like.format != Some(format))?;
    Some(mismatch_message(format, &like))
}

fn mismatch_message(format: Format, like: &Likeness) -> String {
    let like = like.with_advice("format=");
    format!("it has nothing in the format {format}, but looks like {like}")
}

/// Checks a file's format, returning `None` if it's the configured one or can't be determined.
fn check_file(url: &SourceUrl, settings: DecoderSettings) -> Option<String> {
    let Transport::File { path, format, from } = &url.transport else {
        return None;
    };
    // A file that can't be opened is reported by the source itself.
    let bytes = callbridge_source::sample(path, *format, from).ok()?;
    describe_mismatch(
        *format,
        &FormatFit::check(*format, settings, &bytes),
        &bytes,
    )
}

/// The file sources. A file's format is checked if nothing in it can be read. Checks run in the
/// background, because the disk might hang.
#[derive(Debug, Default)]
pub struct Files {
    /// Each file's URL and the number of checks left, by source.
    all: BTreeMap<u16, (SourceUrl, u8)>,
    looks: JoinSet<(SourceId, Option<String>)>,
}

impl Files {
    /// Selects the files among these sources.
    pub fn from_sources<'a>(sources: impl Iterator<Item = &'a SourceUrl>) -> Self {
        let all = (0..)
            .zip(sources)
            .filter(|(_, url)| matches!(url.transport, Transport::File { .. }))
            .map(|(at, url)| (at, (url.clone(), LOOKS_MAX)))
            .collect();
        Self {
            all,
            looks: JoinSet::new(),
        }
    }

    /// Starts a background check of the file's format, unless there have already been three.
    pub fn check_format(&mut self, source: SourceId, settings: DecoderSettings) {
        let Some((url, looks)) = self.all.get_mut(&source.0) else {
            return;
        };
        if *looks == 0 {
            return;
        }
        *looks -= 1;
        let url = url.clone();
        self.looks
            .spawn_blocking(move || (source, check_file(&url, settings)));
    }

    /// Takes the results of the checks that have finished, and returns the files in a different
    /// format, each with a message about it.
    pub fn formats_found(&mut self) -> Vec<(SourceId, String)> {
        let looks = std::iter::from_fn(|| self.looks.try_join_next()).flatten();
        let found = looks.filter_map(|(source, message)| Some((source, message?)));
        found.collect()
    }
}

/// Explains what to do with a file in an unknown format that starts with these bytes.
pub fn unknown_message(format: Format, beginning: &[u8]) -> String {
    columns_seen(format, beginning)
        .or_else(|| first_reason(format, beginning))
        .unwrap_or_else(|| {
            format!(
                "it has nothing in the format {format} or in another format that callbridge reads"
            )
        })
}

/// Returns why the first row below a header can't be read, or `None` if there's no header or the
/// row can be read.
fn first_reason(format: Format, beginning: &[u8]) -> Option<String> {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut has_header = false;
    for frame in Frames::new(format, beginning) {
        let Frame::Message(row) = frame else {
            continue;
        };
        match decoder.decode(row) {
            Decoded::Skipped => has_header = true,
            Decoded::Unreadable(reason) if has_header => {
                return Some(format!("no row under its header can be read: {reason}"));
            }
            _ => return None,
        }
    }
    None
}

/// Shows the columns of a CSV file without a header and how to name them, or returns `None` for
/// other files.
fn columns_seen(format: Format, beginning: &[u8]) -> Option<String> {
    const SHOWN_CHARS_MAX: usize = 24;
    const FIELDS_MIN: usize = 3;
    let names = match format {
        Format::CelCsv => {
            "eventtype,eventtime,cid_num,exten,context,channame,appname,appdata,uniqueid,linkedid,\
             userfield,extra (needed: eventtype, eventtime, channame, uniqueid, linkedid)"
        }
        Format::CdrCsv => {
            "calldate,clid,src,dst,dcontext,channel,dstchannel,lastapp,lastdata,duration,billsec,\
             disposition,uniqueid,userfield,did,linkedid (needed: calldate, channel, dstchannel, \
             disposition, duration or end, billsec or answer)"
        }
        _ => return None,
    };
    let Frame::Message(row) = Frames::new(format, beginning).next()? else {
        return None;
    };
    let fields = callbridge_asterisk::fields(row);
    if fields.len() < FIELDS_MIN || is_header(format, row) {
        return None;
    }
    let mut shown = String::new();
    for (column, field) in fields.iter().enumerate() {
        let beginning: String = field.chars().take(SHOWN_CHARS_MAX).collect();
        let more = if beginning.len() < field.len() {
            "…"
        } else {
            ""
        };
        shown += &format!("  {:2}  {}{more}\n", column + 1, safe(&beginning));
    }
    Some(format!(
        "the file has no header, and the order of its columns is not known. Its first row:\n\
         {shown}Put the table's header line in front of the rows, or name all columns in their \
         order, `-` for one that is not listed here: --columns {names}"
    ))
}
