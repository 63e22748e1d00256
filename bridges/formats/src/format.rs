//! The formats of all PBXs, under the names the command line gives them.

use callbridge_asterisk::AsteriskFormat;
use std::str::FromStr;

/// Formats of the bytes that a source gives.
///
/// | format | name | on a stream or in a file | carries channel variables | time |
/// |---|---|---|---|---|
/// | [`Ami`](Self::Ami) | `ami` | messages ended by an empty line | yes | `Timestamp`, or none |
/// | [`AmiJson`](Self::AmiJson) | `ami-json` | one frame a line | yes | `Timestamp`, or none |
/// | [`CelCsv`](Self::CelCsv) | `cel-csv` | CSV records | no | local, or epoch |
/// | [`CelAmqp`](Self::CelAmqp) | `asterisk-cel` | one JSON body a line | no | ISO 8601 |
/// | [`CdrAmqp`](Self::CdrAmqp) | `asterisk-cdr` | one JSON body a line | no | ISO 8601 |
/// | [`CdrCsv`](Self::CdrCsv) | `cdr-csv` | CSV records | no | local, or epoch |
/// | [`Wazo`](Self::Wazo) | `wazo` | one JSON body a line | yes | as of AMI |
/// | [`Freeswitch`](Self::Freeswitch) | `freeswitch` | frames, or a body a line | yes | epoch |
/// | [`FreeswitchCdr`](Self::FreeswitchCdr) | `freeswitch-cdr` | a JSON line a leg | yes | epoch |
/// | [`Call`](Self::Call) | `call` | one JSON body a line | yes | epoch, or ISO 8601 |
#[derive(strum::Display, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// AMI as Asterisk speaks it on TCP port 5038.
    Ami,
    /// AMI as JSON: amiws's envelope, or an event as one flat object.
    AmiJson,
    /// CSV rows of channel event logging, as `cel_custom` or a database's export writes them.
    CelCsv,
    /// Message bodies of asterisk-cel-amqp, JSON objects.
    #[strum(serialize = "asterisk-cel")]
    CelAmqp,
    /// Message bodies of asterisk-cdr-amqp, JSON objects.
    #[strum(serialize = "asterisk-cdr")]
    CdrAmqp,
    /// Rows of `cdr_csv`, of `cdr_custom`'s sample, or of a table with a header.
    CdrCsv,
    /// Message bodies of Wazo's bus: an AMI event each, in an envelope.
    Wazo,
    /// FreeSWITCH's events: what its event socket says, and message bodies of mod_amqp.
    Freeswitch,
    /// FreeSWITCH's CDRs, as `mod_json_cdr` writes them: a file a leg in a folder; or a line each.
    FreeswitchCdr,
    /// Finished calls, each a message of its own (`docs/call-message.md`).
    Call,
}

/// Rule by which messages are separated on a stream or in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framing {
    /// A message ends at an empty line.
    EmptyLine,
    /// A message is a line.
    Line,
    /// A message is a CSV record: a line, or several where a quoted field holds line ends.
    CsvRecord,
    /// A message is an event of FreeSWITCH: in a frame of its event socket, or on a line.
    Event,
}

impl Format {
    /// Every format, in the order of the table above.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name on the command line and in `format=`.
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

    /// Returns the format of the crate that reads Asterisk's; `None` for those of others.
    pub(crate) const fn of_asterisk(self) -> Option<AsteriskFormat> {
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

    /// Returns `true` when the format can carry channel variables, so that a `var:` lead rule can
    /// be met.
    pub const fn has_variables(self) -> bool {
        !self.is_cel() && !matches!(self, Self::CdrAmqp | Self::CdrCsv)
    }

    /// Rows of channel event logging: the PBX writes each of its calls, heard or not.
    pub const fn is_cel(self) -> bool {
        matches!(self, Self::CelCsv | Self::CelAmqp)
    }

    /// Returns `true` when the format's records may come as a folder of files, each of them whole.
    pub const fn is_a_file_each(self) -> bool {
        matches!(self, Self::FreeswitchCdr)
    }

    /// Returns `true` when a broker carries the format. Brokers redeliver, so the order of such
    /// messages shows nothing, not even in a file that they were saved in.
    pub const fn is_of_broker(self) -> bool {
        matches!(self, Self::CelAmqp | Self::CdrAmqp | Self::Wazo)
    }

    /// Returns `true` when the format reports calls by CDRs alone.
    pub const fn only_cdrs(self) -> bool {
        matches!(self, Self::CdrAmqp | Self::CdrCsv | Self::FreeswitchCdr)
    }

    /// Each message is a finished call, and names its PBX and its trunk.
    pub const fn carries_whole_calls(self) -> bool {
        matches!(self, Self::Call)
    }
}

/// A format's name that is none.
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
    fn the_traits_of_the_formats_are_those_of_the_table() {
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
