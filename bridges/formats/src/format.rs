//! The formats of all PBXs, with their names on the command line.

use callbridge_asterisk::AsteriskFormat;
use std::str::FromStr;

/// The formats that a source's bytes can be in.
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
    /// Asterisk's AMI on TCP port 5038.
    Ami,
    /// AMI as JSON, either in amiws's envelope or as one flat object per event.
    AmiJson,
    /// CSV rows of channel event logging, from `cel_custom` or a database export.
    CelCsv,
    /// asterisk-cel-amqp messages, which are JSON objects.
    #[strum(serialize = "asterisk-cel")]
    CelAmqp,
    /// asterisk-cdr-amqp messages, which are JSON objects.
    #[strum(serialize = "asterisk-cdr")]
    CdrAmqp,
    /// Rows from `cdr_csv`, from `cdr_custom`'s sample, or from a table with a header.
    CdrCsv,
    /// Messages from Wazo's bus, each of which is an AMI event in an envelope.
    Wazo,
    /// FreeSWITCH events from its event socket or from mod_amqp.
    Freeswitch,
    /// FreeSWITCH CDRs from `mod_json_cdr`, as one file per leg in a directory or one line per leg.
    FreeswitchCdr,
    /// Finished calls, with one message per call (`docs/call-message.md`).
    Call,
}

/// How messages are separated on a stream or in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framing {
    /// A message ends with an empty line.
    EmptyLine,
    /// A message is a line.
    Line,
    /// A message is a CSV record, which is one line, or several if a quoted field contains
    /// newlines.
    CsvRecord,
    /// A message is a FreeSWITCH event, either in a frame from its event socket or on a line of its
    /// own.
    Event,
}

impl Format {
    /// All formats, in the same order as in the table above.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the format's name, as used on the command line and in `format=`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns how the format's messages are separated.
    pub const fn framing(self) -> Framing {
        match self {
            Self::Ami => Framing::EmptyLine,
            Self::CelCsv | Self::CdrCsv => Framing::CsvRecord,
            Self::Freeswitch => Framing::Event,
            _ => Framing::Line,
        }
    }

    /// Returns the corresponding format in the Asterisk crate, or `None` if it's another PBX's
    /// format.
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

    /// Returns `true` if the format is channel event logging (CEL), where the PBX writes a row for
    /// each event even if callbridge isn't connected.
    pub const fn is_cel(self) -> bool {
        matches!(self, Self::CelCsv | Self::CelAmqp)
    }

    /// Returns `true` if a source can be a directory with one file per record.
    pub const fn has_file_per_record(self) -> bool {
        matches!(self, Self::FreeswitchCdr)
    }

    /// Returns `true` if the format's messages come from a broker. Since brokers redeliver
    /// messages, their order means nothing, even in a file they were saved to.
    pub const fn is_of_broker(self) -> bool {
        matches!(self, Self::CelAmqp | Self::CdrAmqp | Self::Wazo)
    }

    /// Returns `true` if the format reports calls only through CDRs.
    pub const fn only_cdrs(self) -> bool {
        matches!(self, Self::CdrAmqp | Self::CdrCsv | Self::FreeswitchCdr)
    }

    /// Returns `true` if each message is a finished call that identifies its PBX and trunk.
    pub const fn carries_whole_calls(self) -> bool {
        matches!(self, Self::Call)
    }
}

/// An error indicating an unknown format name.
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
