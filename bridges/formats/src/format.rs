//! The formats of all PBXs, with their names on the command line.

use callbridge_asterisk::AsteriskFormat;
use std::str::FromStr;

/// Formats of the bytes of a source.
///
/// | format | name | on a stream or in a file | carries channel variables | time |
/// |---|---|---|---|---|
/// | [`Ami`](Self::Ami) | `ami` | messages ended by an empty line | yes | `Timestamp`, or none |
/// | [`AmiJson`](Self::AmiJson) | `ami-json` | one frame per line | yes | `Timestamp`, or none |
/// | [`CelCsv`](Self::CelCsv) | `cel-csv` | CSV records | no | local, or epoch |
/// | [`CelAmqp`](Self::CelAmqp) | `asterisk-cel` | one JSON body per line | no | ISO 8601 |
/// | [`CdrAmqp`](Self::CdrAmqp) | `asterisk-cdr` | one JSON body per line | no | ISO 8601 |
/// | [`CdrCsv`](Self::CdrCsv) | `cdr-csv` | CSV records | no | local, or epoch |
/// | [`Wazo`](Self::Wazo) | `wazo` | one JSON body per line | yes | as of AMI |
/// | [`Freeswitch`](Self::Freeswitch) | `freeswitch` | frames, or one body per line | yes | epoch |
/// | [`FreeswitchCdr`](Self::FreeswitchCdr) | `freeswitch-cdr` | JSON line per leg | yes | epoch |
/// | [`Call`](Self::Call) | `call` | one JSON body per line | yes | epoch, or ISO 8601 |
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// AMI of Asterisk on TCP port 5038.
    Ami,
    /// AMI as JSON: in the envelope of amiws, or as one flat object per event.
    AmiJson,
    /// CSV rows of channel event logging, from `cel_custom` or the export of a database.
    CelCsv,
    /// Message bodies of asterisk-cel-amqp, which are JSON objects.
    #[strum(serialize = "asterisk-cel")]
    CelAmqp,
    /// Message bodies of asterisk-cdr-amqp, which are JSON objects.
    #[strum(serialize = "asterisk-cdr")]
    CdrAmqp,
    /// Rows of `cdr_csv`, of the sample of `cdr_custom`, or of a table with a header.
    CdrCsv,
    /// Message bodies of Wazo's bus. Each is an AMI event in an envelope.
    Wazo,
    /// FreeSWITCH's events from its event socket, and message bodies of mod_amqp.
    Freeswitch,
    /// FreeSWITCH's CDRs of `mod_json_cdr`: one file per leg in a folder, or one line per leg.
    FreeswitchCdr,
    /// Finished calls, one message per call (`docs/call-message.md`).
    Call,
}

/// Rule by which messages are separated on a stream or in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framing {
    /// A message ends at an empty line.
    EmptyLine,
    /// A message is a line.
    Line,
    /// A message is a CSV record: one line, or several if a quoted field contains line ends.
    CsvRecord,
    /// A message is an event of FreeSWITCH, in a frame of its event socket or on a line.
    Event,
}

impl Format {
    /// Every format, in the order of the table above.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the format's name, as used on the command line and in `format=`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the rule by which the format's messages are separated.
    pub const fn framing(self) -> Framing {
        match self {
            Self::Ami => Framing::EmptyLine,
            Self::CelCsv | Self::CdrCsv => Framing::CsvRecord,
            Self::Freeswitch => Framing::Event,
            _ => Framing::Line,
        }
    }

    /// Returns the same format of the Asterisk crate, or `None` for a format of another PBX.
    pub(crate) const fn asterisk_format(self) -> Option<AsteriskFormat> {
        Some(match self {
            Self::Ami => AsteriskFormat::Ami,
            Self::AmiJson => AsteriskFormat::AmiJson,
            Self::CelCsv => AsteriskFormat::CelCsv,
            Self::CelAmqp => AsteriskFormat::CelAmqp,
            Self::CdrAmqp => AsteriskFormat::CdrAmqp,
            Self::CdrCsv => AsteriskFormat::CdrCsv,
            Self::Wazo => AsteriskFormat::Wazo,
            Self::Freeswitch | Self::FreeswitchCdr | Self::Call => return None,
        })
    }

    /// Returns `true` if the format can contain channel variables, which `var:` lead rules need.
    pub const fn has_variables(self) -> bool {
        !self.is_cel() && !matches!(self, Self::CdrAmqp | Self::CdrCsv)
    }

    /// Returns `true` if the format is channel event logging (CEL). The PBX writes a CEL row for
    /// each event, even if callbridge is not connected.
    pub const fn is_cel(self) -> bool {
        matches!(self, Self::CelCsv | Self::CelAmqp)
    }

    /// Returns `true` if a source can be a folder that contains one file per record.
    pub const fn has_file_per_record(self) -> bool {
        matches!(self, Self::FreeswitchCdr)
    }

    /// Returns `true` if messages of the format come from a broker. Brokers redeliver messages, so
    /// the order of messages means nothing, not even in a file in which they were saved.
    pub const fn is_of_broker(self) -> bool {
        matches!(self, Self::CelAmqp | Self::CdrAmqp | Self::Wazo)
    }

    /// Returns `true` if the format reports calls only by CDRs.
    pub const fn only_cdrs(self) -> bool {
        matches!(self, Self::CdrAmqp | Self::CdrCsv | Self::FreeswitchCdr)
    }

    /// Returns `true` if each message is a finished call that names its PBX and its trunk.
    pub const fn carries_whole_calls(self) -> bool {
        matches!(self, Self::Call)
    }
}

/// The error of an unknown format name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no format {0:?}: give ami, ami-json, cel-csv, cdr-csv, asterisk-cel, asterisk-cdr, \
     wazo, freeswitch, freeswitch-cdr or call"
)]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.iter().find(|format| format.name() == name);
        found.copied().ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_read_back_from_its_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse().as_ref(), Ok(format));
        }
        assert!("AMI".parse::<Format>().is_err());
    }

    #[test]
    fn format_traits_match_the_table() {
        let table: Vec<String> = Format::ALL
            .iter()
            .map(|f| {
                let (variables, cdrs) = (f.has_variables(), f.only_cdrs());
                format!("{f} {:?} variables={variables} cdrs={cdrs}", f.framing())
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"), @r"
        ami EmptyLine variables=true cdrs=false
        ami-json Line variables=true cdrs=false
        cel-csv CsvRecord variables=false cdrs=false
        asterisk-cel Line variables=false cdrs=false
        asterisk-cdr Line variables=false cdrs=true
        cdr-csv CsvRecord variables=false cdrs=true
        wazo Line variables=true cdrs=false
        freeswitch Event variables=true cdrs=false
        freeswitch-cdr Line variables=true cdrs=true
        call Line variables=true cdrs=false
        ");
    }
}
