//! A delivery's headers (§6.3). Unless each of them appears exactly once and in the CRM's form, the
//! request isn't a delivery.

use callbridge_model::webhook_signature::Signature;
use std::time::Duration;

/// The event's ID, which is also in the body.
pub const ID: &str = "x-webhook-id";
/// The ID of the installation, i.e., the connection that the delivery is for.
pub const INSTALLATION: &str = "x-webhook-installation-id";
/// When the CRM signed the delivery, in epoch seconds.
pub const TIMESTAMP: &str = "x-webhook-timestamp";
/// The signature of the timestamp and body, in the form `sha256=` and 64 hex digits.
pub const SIGNATURE: &str = "x-webhook-signature";

/// Maximum length of an event ID in bytes. A UUID has 36.
const ID_BYTES_MAX: usize = 128;
/// Maximum length in bytes of an installation's ID, which is a number.
const INSTALLATION_BYTES_MAX: usize = 64;
/// Maximum number of digits in epoch seconds.
const TIMESTAMP_BYTES_MAX: usize = 12;

/// The four headers of a delivery whose signature hasn't been verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The event's ID ([`ID`]), which is 1 to 128 bytes of visible ASCII.
    pub id: String,
    /// The installation's ID ([`INSTALLATION`]), which is 1 to 64 bytes of visible ASCII.
    pub installation: String,
    /// The value of [`TIMESTAMP`], unchanged because the signature covers it.
    pub timestamp: String,
    /// [`TIMESTAMP`] as a number of epoch seconds.
    pub signed_at: i64,
    /// The value of [`SIGNATURE`], which hasn't been verified yet.
    pub signature: Signature,
}

impl Headers {
    /// Reads a delivery's headers, given all headers of a request with their names in lowercase.
    ///
    /// # Errors
    /// Returns [`Refusal::NoHeaders`] if all four are missing, or [`Refusal::Malformed`] if one of
    /// them is missing, duplicated, or not in the CRM's form.
    pub fn read<'a>(all: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, Refusal> {
        let mut found = [None; 4];
        for (name, value) in all {
            let names = [ID, INSTALLATION, TIMESTAMP, SIGNATURE];
            let Some(place) = names.iter().position(|known| *known == name) else {
                continue;
            };
            if found[place].replace(value).is_some() {
                return Err(Refusal::Malformed);
            }
        }
        if found == [None; 4] {
            return Err(Refusal::NoHeaders);
        }
        Self::parse(found).ok_or(Refusal::Malformed)
    }

    fn parse(values: [Option<&[u8]>; 4]) -> Option<Self> {
        let [id, installation, timestamp, signature] = values;
        let timestamp = visible_ascii(timestamp?, TIMESTAMP_BYTES_MAX)?;
        if !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            id: visible_ascii(id?, ID_BYTES_MAX)?,
            installation: visible_ascii(installation?, INSTALLATION_BYTES_MAX)?,
            signed_at: timestamp.parse().ok()?,
            timestamp,
            signature: Signature::parse(signature?)?,
        })
    }
}

/// Returns the value as text if it consists of 1 to `most` bytes of visible ASCII.
fn visible_ascii(value: &[u8], most: usize) -> Option<String> {
    let good = (1..=most).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    good.then(|| String::from_utf8_lossy(value).into_owned())
}

/// Maximum difference between a signature's timestamp and our clock, in either direction (§6.4.8).
pub const FRESH: Duration = Duration::from_secs(300);

/// Why a delivery is rejected.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Refusal {
    /// The request has none of the four headers, so it isn't a delivery.
    NoHeaders,
    /// Some of the four headers are missing, duplicated, or not in the CRM's form.
    Malformed,
    /// The secret that could verify the delivery may not be configured here.
    NoSecret,
    /// No secret matches the signature, but the delivery may be the CRM's, since it's fresh, and
    /// either its installation has been verified before or no installation has. The right secret
    /// may still be added.
    Mismatch,
    /// No secret matches the signature, and the delivery isn't for us.
    Forged,
    /// The signature is correct, but its timestamp is off by more than [`FRESH`].
    Stale,
    /// Our own clock is wrong.
    Clock,
    /// The signature is correct, but the body isn't an event, for the reason given.
    Unreadable(String),
    /// The [`ID`] header identifies a different event than the body does.
    OtherId,
}

impl Refusal {
    pub fn word(&self) -> &'static str {
        self.into()
    }

    /// Returns the HTTP status of the response. The reasons are explained in [`super`].
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoHeaders | Self::Unreadable(_) => 400,
            Self::Malformed | Self::Forged | Self::OtherId => 401,
            Self::NoSecret | Self::Mismatch | Self::Stale | Self::Clock => 503,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature() -> String {
        format!("sha256={}", "0".repeat(64))
    }

    fn set() -> Vec<(&'static str, String)> {
        vec![
            (ID, "7d0c5bb4-5d3f-4a57-9f0b-3a1c2f1d8e10".into()),
            (INSTALLATION, "9001".into()),
            (TIMESTAMP, "1795151317".into()),
            (SIGNATURE, signature()),
        ]
    }

    fn read(set: &[(&'static str, String)]) -> Result<Headers, Refusal> {
        Headers::read(set.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    #[test]
    fn complete_header_set_is_read_among_other_headers() {
        let mut all = set();
        all.push(("content-type", "application/json".into()));
        let headers = read(&all).expect("a delivery");
        assert_eq!(headers.signed_at, 1_795_151_317);
        assert_eq!(headers.installation, "9001");
    }

    #[test]
    fn partial_headers_are_malformed_and_absent_ones_no_headers() {
        assert_eq!(read(&[]), Err(Refusal::NoHeaders));
        let json = ("content-type", "application/json".to_owned());
        assert_eq!(read(&[json]), Err(Refusal::NoHeaders));
        for some in 1..15_usize {
            let all = set().into_iter().enumerate();
            let half = all.filter(|(at, _)| some & (1 << at) != 0);
            let half: Vec<_> = half.map(|(_, header)| header).collect();
            assert_eq!(read(&half), Err(Refusal::Malformed), "{half:?}");
        }
    }

    #[test]
    fn doubled_headers_and_odd_values_are_refused() {
        for at in 0..4 {
            let mut doubled = set();
            doubled.push(doubled[at].clone());
            assert_eq!(read(&doubled), Err(Refusal::Malformed), "{doubled:?}");
        }
        for (at, value) in [
            (0, String::new()),
            (0, "a b".into()),
            (0, "x".repeat(ID_BYTES_MAX + 1)),
            (1, "й".into()),
            (1, "9".repeat(INSTALLATION_BYTES_MAX + 1)),
            (2, "-1".into()),
            (2, "+1795151317".into()),
            (2, "1795151317.5".into()),
            (2, "1795151317000000".into()),
            (2, "now".into()),
            (3, signature().replace("sha256", "sha1")),
            (3, "0".repeat(64)),
        ] {
            let mut odd = set();
            odd[at].1.clone_from(&value);
            assert_eq!(read(&odd), Err(Refusal::Malformed), "{at} {value}");
        }
    }
}
