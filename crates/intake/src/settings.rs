//! The settings of the assembler and of each source, from the flags.

use crate::{gap_log::GapLog, unmatched::UnmatchedLog};
use callbridge_call::{EventTime, trunk::Conflict};
use callbridge_formats::{DecoderSettings, Format};
use callbridge_mapping::Rules;
use callbridge_source::{SourceUrl, Transport};
use std::collections::BTreeMap;

/// Flags of the intake that apply to all sources.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--settle`, `--cdr-wait`, `--max-call`, `--max-open-calls`, without the trunks of a PBX.
    pub calls: callbridge_call::Settings,
    /// The value of `--pbx-timezone`, for times without an offset.
    pub zone: Option<jiff::tz::TimeZone>,
    /// The columns of a CSV file without a header (`--columns`).
    pub columns: Option<callbridge_asterisk::CsvColumns>,
    /// While our clock shows a time before this one, the clock is wrong, and calls are held.
    pub clock_right_from: EventTime,
    /// Trunks, and which of their calls are journaled.
    pub rules: Rules,
}

impl Settings {
    /// Returns the settings of the assembler for this PBX: the flags, with the endpoints of the
    /// PBX's trunks.
    ///
    /// # Errors
    /// If two equally long endpoints can match one channel.
    pub fn assembler(&self, pbx: &str) -> Result<callbridge_call::Settings, Conflict> {
        Ok(callbridge_call::Settings {
            endpoints: self.rules.trunks.endpoints(pbx)?,
            ..self.calls.clone()
        })
    }

    /// Returns the settings to decode messages: zone, columns, and variables of the lead rules.
    pub fn decoding(&self) -> DecoderSettings {
        DecoderSettings {
            zone: self.zone.clone(),
            columns: self.columns.clone(),
            variables: Some(self.rules.trunks.variables()),
        }
    }
}

/// Facts of one source that the intake needs.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Full URL of the source, and the key of its stored position and gaps.
    pub shown: String,
    /// URL without the file of the source's secret, for JSON.
    pub url: String,
    /// Label in logs, status and metrics: `office/ami`.
    pub label: String,
    pub pbx: String,
    pub format: Format,
    /// The source is a file, which has a current end.
    pub file: bool,
    /// The source reports each event only once (AMI, ESL, WebSocket). Events during an outage are
    /// lost.
    pub forgets: bool,
    /// `--catch-up`: a second account of the calls that another source reports.
    pub catch_up: bool,
}

impl SourceSettings {
    /// Makes a source of this URL. [`label_all`] makes its label unique.
    pub fn new(url: &SourceUrl, pbx: String, catch_up: bool) -> Self {
        Self {
            shown: url.to_string(),
            url: url.public(),
            label: if url.format().carries_whole_calls() {
                format!("calls/{}", url.scheme())
            } else {
                format!("{pbx}/{}", url.scheme())
            },
            pbx,
            format: url.format(),
            file: matches!(url.transport, Transport::File { .. }),
            forgets: url.transport.live_endpoint().is_some(),
            catch_up,
        }
    }
}

/// Appends a number to a label that another source has already: `office/ami`, `office/ami-2`.
pub fn label_all(sources: &mut [SourceSettings]) {
    let mut met: BTreeMap<String, u32> = BTreeMap::new();
    for source in sources {
        let count = met.entry(source.label.clone()).or_default();
        *count += 1;
        if *count > 1 {
            source.label = format!("{}-{count}", source.label);
        }
    }
}

/// The facts that an earlier run stored in the spool, in addition to its open calls.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The first `server_name` of each PBX.
    pub servers: BTreeMap<String, String>,
    /// Time up to which nothing of each source is missing, by [`SourceSettings::shown`].
    pub last_received: BTreeMap<String, EventTime>,
    /// Start of the first connection to each PBX. Earlier calls are not filled in from a catch-up
    /// file.
    pub since: BTreeMap<String, EventTime>,
    /// Newest gaps of all sources, up to 50.
    pub gaps: GapLog,
    /// Channels of no trunk that carried outside numbers.
    pub unmatched: UnmatchedLog,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_label_is_unique_and_has_pbx_and_scheme() {
        let given = [
            ("ami://a@127.0.0.1?secret-file=/s", "hq", false),
            ("ami://a@127.0.0.2?pbx=hq", "hq", false),
            ("ami://a@127.0.0.3?pbx=shop", "shop", false),
            ("file:///cel.csv?format=cel-csv", "hq", true),
            ("amqps://a@mq/v?queue=q&format=wazo", "hq", false),
        ];
        let mut sources: Vec<SourceSettings> = Vec::new();
        for (url, pbx, catch_up) in given {
            let url = SourceUrl::parse(url).expect("a source");
            sources.push(SourceSettings::new(&url, pbx.to_owned(), catch_up));
        }
        label_all(&mut sources);
        let labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
        let wants = ["hq/ami", "hq/ami-2", "shop/ami", "hq/file", "hq/amqps"];
        assert_eq!(labels, wants);
    }

    #[test]
    fn source_key_is_the_full_url_and_json_has_no_secret_file() {
        let full = "ami://a@127.0.0.1?secret-file=/s";
        let url = SourceUrl::parse(full).expect("a source");
        let source = SourceSettings::new(&url, "hq".to_owned(), false);
        assert_eq!(source.shown, full);
        assert_eq!(source.url, "ami://a@127.0.0.1");
    }
}
