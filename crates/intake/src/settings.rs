//! The settings of the assembler and each source, from the flags.

use crate::{gap_log::GapLog, unmatched::UnmatchedLog};
use callbridge_call::{EventTime, trunk::Conflict};
use callbridge_formats::{DecoderSettings, Format};
use callbridge_mapping::Rules;
use callbridge_source::{SourceUrl, Transport};
use std::collections::BTreeMap;

/// The intake's flags that apply to all sources.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--settle`, `--cdr-wait`, `--max-call`, and `--max-open-calls`, without any PBX's trunks.
    pub calls: callbridge_call::Settings,
    /// The value of `--pbx-timezone`, for times without an offset.
    pub zone: Option<jiff::tz::TimeZone>,
    /// The columns of a CSV file without a header (`--columns`).
    pub columns: Option<callbridge_asterisk::CsvColumns>,
    /// If our clock shows an earlier time than this, it's wrong, and calls are held.
    pub clock_right_from: EventTime,
    /// The trunks, and which of their calls are journaled.
    pub rules: Rules,
}

impl Settings {
    /// Returns the assembler settings for this PBX, which are the flags along with the endpoints of
    /// the PBX's trunks.
    ///
    /// # Errors
    ///
    /// Returns an error if two equally long endpoints can match the same channel.
    pub fn assembler(&self, pbx: &str) -> Result<callbridge_call::Settings, Conflict> {
        Ok(callbridge_call::Settings {
            endpoints: self.rules.trunks.endpoints(pbx)?,
            ..self.calls.clone()
        })
    }

    /// Returns the settings for decoding messages: time zone, columns, and variables used in lead
    /// rules.
    pub fn decoding(&self) -> DecoderSettings {
        DecoderSettings {
            zone: self.zone.clone(),
            columns: self.columns.clone(),
            variables: Some(self.rules.trunks.variables()),
        }
    }
}

/// What the intake needs to know about a source.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// The source's full URL, which is also the key for its stored position and gaps.
    pub shown: String,
    /// The URL without the source's secret file, for JSON.
    pub url: String,
    /// Label in logs, status, and metrics, such as `office/ami`.
    pub label: String,
    pub pbx: String,
    pub format: Format,
    /// Whether the source is a file, which has a current end.
    pub file: bool,
    /// Whether the source reports each event only once (AMI, ESL, WebSocket), so that events are
    /// lost during an outage.
    pub forgets: bool,
    /// Whether this is a second record of calls that another source reports (`--catch-up`).
    pub catch_up: bool,
}

impl SourceSettings {
    /// Creates a source for this URL. [`label_all`] makes its label unique.
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

/// Appends a number to labels that are already in use, as in `office/ami` and `office/ami-2`.
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

/// What an earlier run stored in the spool besides its open calls.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The first `server_name` of each PBX.
    pub servers: BTreeMap<String, String>,
    /// Time up to which nothing from each source is missing, by [`SourceSettings::shown`].
    pub last_received: BTreeMap<String, EventTime>,
    /// When we first connected to each PBX. Earlier calls aren't filled in from a catch-up file.
    pub since: BTreeMap<String, EventTime>,
    /// The most recent gaps of all sources, up to 50.
    pub gaps: GapLog,
    /// Channels that carried outside numbers but don't match any trunk.
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
