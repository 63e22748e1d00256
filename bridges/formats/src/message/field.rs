//! The fields of a message.

/// A field of a message, in the order of the documents.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "camelCase")]
pub enum MessageField {
    /// The PBX that the call was made at.
    Pbx,
    /// The call's id at that PBX.
    Id,
    /// Direction of the call: `INBOUND`, `OUTBOUND` or `INTERNAL`.
    Direction,
    /// The name of a `--trunk`.
    Trunk,
    /// The customer's number; `null` where it is hidden.
    Phone,
    /// The number that the customer dialled.
    Did,
    /// Beginning of the call: epoch seconds, or ISO 8601 with a zone.
    StartedAt,
    /// Seconds from the beginning of the call to its end, a week at most.
    DurationSec,
    /// The customer and somebody of the company talked.
    Answered,
    /// Seconds for which they talked; 0 where they did not.
    TalkSec,
    /// The extension that the call is put down to.
    Extension,
    /// Each extension that talked with the customer, in that order.
    Extensions,
    /// The CRM's number of the lead.
    LeadId,
    /// The CRM's number of the employee.
    EmployeeId,
    /// Channel variables, for lead rules.
    Variables,
    /// User fields, for lead rules.
    UserFields,
    /// Facts of the call are missing.
    Incomplete,
    /// The figures are an estimate.
    Estimate,
    /// Version of the message, 1 where left out.
    Version,
}

impl MessageField {
    /// Every field, in the order of the documents.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the field's name in the JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the values that the field may have, in words that go on after "it may be".
    pub const fn may_be(self) -> &'static str {
        match self {
            Self::Pbx => {
                "a name of at most 64 letters, digits, `-`, `_` and `.` (after a `/` the name of a \
                 server of that PBX)"
            }
            Self::Id => "a text of 1 to 256 bytes that no other call of this PBX has",
            Self::Direction => "\"INBOUND\", \"OUTBOUND\" or \"INTERNAL\"",
            Self::StartedAt => {
                "epoch seconds (1795151317.52), or ISO 8601 with a zone \
                 (\"2026-11-20T08:28:37+05:00\")"
            }
            Self::DurationSec => "seconds from 0 to 604800 (a week), whole or fractional",
            Self::Answered => "true or false",
            Self::TalkSec => {
                "seconds from 0 to 604800, at most durationSec; more than 0 where the call was \
                 answered, 0 where not"
            }
            Self::Phone => {
                "the customer's number in E.164 (\"+998901110001\") or as it is dialled in the \
                 trunk's country; null where it is hidden"
            }
            Self::Did => {
                "the company's number that the customer dialled: 2 to 24 digits, with a plus or \
                 without (\"998712001122\"), or null"
            }
            Self::Trunk => "the name of a --trunk, or null",
            Self::Extension => "a text of 1 to 80 bytes (\"101\"), or null",
            Self::Extensions => "a list of at most 256 texts of 1 to 80 bytes ([\"101\",\"102\"])",
            Self::LeadId => "a whole number above 0 (4001), or null",
            Self::EmployeeId => "a whole number above 0 (501), or null",
            Self::Variables => {
                "an object of at most 64 texts ({\"LEAD_ID\":\"4001\"}): names of 1 to 80 bytes, \
                 values of at most 1024"
            }
            Self::UserFields => "a list of at most 16 texts of at most 1024 bytes",
            Self::Incomplete | Self::Estimate => "true or false",
            Self::Version => "1, or left out",
        }
    }
}
