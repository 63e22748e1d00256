//! Outside lines and their settings, in the form `NAME=ENDPOINT[,key=value…]`. All errors in a flag
//! are reported.

use crate::people::rule::{EmployeeRule, LeadRule, employee_rule, lead_rules};
use callbridge_call::trunk::Conflict;
pub use callbridge_call::units::is_name;
use callbridge_call::{Endpoints, FinishedCall, TrunkEndpoint};
use callbridge_model::Country;
use std::collections::BTreeSet;

/// A validated trunk (`--trunk NAME=ENDPOINT[,key=value…]`), including the defaults.
#[derive(Clone, Debug)]
pub struct Trunk {
    /// The administrator's name for it, such as `city`, which is unique within a PBX.
    pub name: String,
    /// The part before the suffix in the names of the trunk's channels (`PJSIP/city`), or something
    /// else that the PBX reports about them (`gateway/city`).
    ///
    /// It may contain `*`, and several endpoints are separated by `|`. It's empty for a trunk that
    /// has no channels and is only used in messages.
    pub endpoint: String,
    /// The ID of the trunk's PBX, or `None` if the trunk applies to every PBX.
    pub pbx: Option<String>,
    /// Country of numbers without a country code.
    pub country: Option<Country>,
    /// Prefix that extensions dial for an outside line, such as `9`. Consists of digits, `*`, `#`,
    /// or `+`, and is never empty.
    pub strip: Option<String>,
    /// Rules for a call's lead, in the order they're tried.
    pub leads: Vec<LeadRule>,
    /// Employees by extension, or `None` if no flag specifies any.
    pub employees: Option<EmployeeRule>,
    /// Whether unanswered calls are journaled.
    pub unanswered: bool,
    pub journal: bool,
}

impl Default for Trunk {
    /// Creates a trunk without any settings, for messages that don't specify one.
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            endpoint: String::new(),
            pbx: None,
            country: None,
            strip: None,
            leads: Vec::new(),
            employees: None,
            unanswered: true,
            journal: true,
        }
    }
}

/// All trunks, in the order of their flags. Names are unique within a PBX.
#[derive(Clone, Debug, Default)]
pub struct Trunks(Vec<Trunk>);

impl Trunks {
    /// Creates the list of trunks, checking that they don't conflict.
    ///
    /// # Errors
    ///
    /// Returns messages about duplicate names on a PBX and about endpoints with equal precedence.
    pub fn new(trunks: Vec<Trunk>) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        for (at, trunk) in trunks.iter().enumerate() {
            for other in trunks[..at].iter().filter(|other| trunk.shares_pbx(other)) {
                if other.name == trunk.name {
                    errors.push(format!("two trunks are called `{}`", trunk.name));
                }
                let both = other.trunk_endpoints().chain(trunk.trunk_endpoints());
                if let Err(conflict) = Endpoints::new(both.collect()) {
                    errors.push(conflict.to_string());
                }
            }
        }
        if errors.is_empty() {
            Ok(Self(trunks))
        } else {
            Err(errors)
        }
    }

    /// Returns the endpoints that the assembler of a PBX uses to find a channel's trunk.
    ///
    /// # Errors
    ///
    /// Never returns an error for trunks from [`Trunks::new`], which has checked all of them.
    pub fn endpoints(&self, pbx: &str) -> Result<Endpoints, Conflict> {
        Endpoints::new(self.of_pbx(pbx).flat_map(Trunk::trunk_endpoints).collect())
    }

    /// Returns `true` if channels with this name belong to one of the PBX's trunks.
    pub fn take_in(&self, pbx: &str, channel: &str) -> bool {
        self.of_pbx(pbx).any(|trunk| trunk.matches_channel(channel))
    }

    pub fn find(&self, pbx: &str, name: &str) -> Option<&Trunk> {
        let mut all = self.0.iter();
        all.find(|trunk| trunk.serves(pbx) && trunk.name == name)
    }

    pub fn of_pbx<'a>(&'a self, pbx: &'a str) -> impl Iterator<Item = &'a Trunk> {
        self.0.iter().filter(move |trunk| trunk.serves(pbx))
    }

    /// Returns the channel variables used in lead rules.
    pub fn variables(&self) -> BTreeSet<String> {
        let rules = self.0.iter().flat_map(|trunk| &trunk.leads);
        rules.filter_map(LeadRule::variable).cloned().collect()
    }

    /// Iterates over the trunks in the order of their flags.
    pub fn iter(&self) -> impl Iterator<Item = &Trunk> {
        self.0.iter()
    }

    /// Returns `true` if there are no trunks, in which case every call looks internal.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Trunk {
    /// Returns `true` if the trunk applies to the PBX with this ID. The trunk's `pbx=NAME` may be
    /// the whole ID or the `server_name` at its end.
    fn serves(&self, pbx: &str) -> bool {
        let server = pbx.rsplit_once('/').map(|(_, server)| server);
        (self.pbx.as_deref()).is_none_or(|own| pbx == own || server == Some(own))
    }

    /// Returns `true` if channels with this name belong to the trunk.
    pub fn matches_channel(&self, channel: &str) -> bool {
        self.trunk_endpoints()
            .any(|endpoint| endpoint.matches(channel))
    }

    /// Returns a phone that the trunk's pattern also matches, such as `PJSIP/101` for `PJSIP/*`.
    /// This only applies to technologies that phones use to register, because a card's lines may
    /// really be a single trunk.
    pub fn telephone_within(&self) -> Option<String> {
        if !self.endpoint.contains('*') {
            return None;
        }
        let mut extensions: Vec<String> = match &self.employees {
            Some(EmployeeRule::List(list)) => list.keys().map(ToString::to_string).collect(),
            Some(EmployeeRule::File(_)) | None => Vec::new(),
        };
        extensions.extend(["101", "201", "1001"].map(str::to_owned));
        for extension in extensions {
            for technology in ["PJSIP", "SIP", "IAX2", "SCCP", "Skinny"] {
                let telephone = format!("{technology}/{extension}");
                if self.matches_channel(&format!("{telephone}-0000004f")) {
                    return Some(telephone);
                }
            }
        }
        None
    }

    /// Returns `true` if channels can belong to the trunk. Otherwise, it's only used in messages.
    pub fn has_channels(&self) -> bool {
        self.endpoints().next().is_some()
    }

    /// Returns the trunk's endpoints, which are separated by `|` if there are several.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.endpoint
            .split('|')
            .filter(|endpoint| !endpoint.is_empty())
    }

    /// Returns the trunk's endpoints. Their calls wait for a CDR if the trunk reads the lead from
    /// its user field.
    fn trunk_endpoints(&self) -> impl Iterator<Item = TrunkEndpoint> {
        let mut rules = self.leads.iter();
        let awaits_cdr = rules.any(|rule| matches!(rule, LeadRule::UserField(_)));
        self.endpoints().map(move |pattern| TrunkEndpoint {
            awaits_cdr,
            ..TrunkEndpoint::new(&self.name, pattern)
        })
    }

    /// Returns `true` if the call wasn't answered and `unanswered=no` excludes such calls.
    pub(crate) fn keeps_out(&self, call: &FinishedCall) -> bool {
        !self.unanswered && !call.answered
    }

    /// Returns `true` if there can be a PBX that has both trunks.
    fn shares_pbx(&self, other: &Self) -> bool {
        self.pbx.is_none() || other.pbx.is_none() || self.pbx == other.pbx
    }
}

/// A trunk's keys, for messages.
const KEYS: &str = "pbx, country, strip, lead, employees, unanswered, journal";

/// Parses one `--trunk`, or returns messages about all of its errors. Missing keys are taken from
/// `defaults`, i.e., the flags `--country --strip --lead --employees --unanswered`.
pub fn parse(text: &str, defaults: &Trunk) -> Result<Trunk, Vec<String>> {
    let mut errors = Vec::new();
    let mut pieces = pieces(text).into_iter();
    let head = pieces.next().unwrap_or_default();
    let (name, endpoint) = head.split_once('=').unwrap_or((&head, ""));
    // `city=` is a trunk that's only used in messages and has no channels.
    let of_messages = head.strip_suffix('=').is_some_and(is_name);
    if name.is_empty() || (endpoint.is_empty() && !of_messages) {
        errors.push("must begin with NAME=ENDPOINT, as in `city=PJSIP/city`".to_owned());
    } else if !is_name(name) {
        let message =
            "is not a valid name: use letters, digits, `-`, `_` and `.`, at most 64 characters";
        errors.push(format!("`{name}` {message}"));
    } else if let Err(error) = endpoint.split('|').try_for_each(endpoint_form)
        && !of_messages
    {
        errors.push(error);
    }
    let mut trunk = Trunk {
        name: name.to_owned(),
        endpoint: endpoint.to_owned(),
        ..defaults.clone()
    };
    let mut given: Vec<String> = Vec::new();
    for piece in pieces {
        let Some((key, value)) = piece.split_once('=') else {
            errors.push(format!("`{piece}` is not key=value; keys are {KEYS}"));
            continue;
        };
        if given.iter().any(|other| other == key) {
            errors.push(format!("`{key}` is given twice"));
            continue;
        }
        given.push(key.to_owned());
        errors.extend(set(&mut trunk, key, value.trim()).err());
    }
    if errors.is_empty() {
        Ok(trunk)
    } else {
        Err(errors)
    }
}

fn set(trunk: &mut Trunk, key: &str, value: &str) -> Result<(), String> {
    let named = |error: String| format!("{key}: {error}");
    match key {
        "pbx" if is_name(value) => trunk.pbx = Some(value.to_owned()),
        "pbx" => return Err(format!("pbx: `{value}` is not a name of a PBX")),
        "country" => trunk.country = Some(country(value).map_err(named)?),
        "strip" if value.is_empty() => trunk.strip = None,
        "strip" => trunk.strip = Some(strip(value).map_err(named)?),
        "lead" => trunk.leads = lead_rules(value).map_err(named)?,
        "employees" => trunk.employees = Some(employee_rule(value).map_err(named)?),
        "unanswered" => trunk.unanswered = yes_or_no(value).map_err(named)?,
        "journal" => trunk.journal = yes_or_no(value).map_err(named)?,
        _ => return Err(format!("no key is called `{key}`; keys are {KEYS}")),
    }
    Ok(())
}

/// Splits at commas, but only in front of `word=`, since patterns and file names may contain other
/// commas.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for piece in text.split(',') {
        let begins = piece.split_once('=').is_some_and(|(key, _)| {
            !key.trim().is_empty() && key.trim().bytes().all(|b| b.is_ascii_lowercase())
        });
        match pieces.last_mut() {
            Some(last)
                if !begins && (last.starts_with("lead=") || last.starts_with("employees=")) =>
            {
                *last += &format!(",{piece}");
            }
            _ => pieces.push(piece.trim().to_owned()),
        }
    }
    pieces
}

/// Checks an endpoint, which has the form of a channel name (technology, slash, and the rest) or of
/// `gateway/NAME`.
fn endpoint_form(endpoint: &str) -> Result<(), String> {
    let good = endpoint.split_once('/').is_some_and(|(technology, rest)| {
        // A name may contain spaces, but after a space, another slash would start a second
        // endpoint.
        let mut words = rest.split(' ');
        let is_name = words.next().is_some_and(|word| !word.is_empty())
            && words.all(|word| !word.is_empty() && !word.contains('/'));
        is_name
            && !technology.is_empty()
            && !technology.contains(char::is_whitespace)
            && !rest.contains(|c: char| c.is_whitespace() && c != ' ')
    });
    if good {
        return Ok(());
    }
    Err(format!(
        "`{endpoint}` is not an endpoint: give the part of a channel's name before the suffix, \
         such as `PJSIP/city` of `PJSIP/city-0000004f`; for FreeSWITCH give gateway/NAME, \
         profile/NAME, context/NAME, address/IP[:PORT], or the beginning of a channel's name, such \
         as sofia/external; put | between several"
    ))
}

/// Parses a two-letter ISO 3166 country code, such as `UZ`.
pub fn country(text: &str) -> Result<Country, String> {
    Country::parse(text).ok_or_else(|| {
        format!("`{text}` is not a country code: give two letters of ISO 3166, such as `UZ`")
    })
}

/// Parses a dial prefix, such as `9`, which has up to 16 digits, `*`, `#`, or `+`.
pub fn strip(text: &str) -> Result<String, String> {
    if (1..=16).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'*' | b'#' | b'+'))
    {
        return Ok(text.to_owned());
    }
    Err(format!(
        "`{text}` is not a dial prefix: digits, such as `9`"
    ))
}

/// Parses `yes` or `no`, or returns an error message.
pub fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{text}` is neither `yes` nor `no`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::people::rule::LeadRule;

    #[test]
    fn trunk_keys_override_the_defaults() {
        let defaults = Trunk {
            country: Country::parse("KZ"),
            strip: Some("0".to_owned()),
            leads: lead_rules("var:LEAD").expect("good"),
            unanswered: false,
            ..Trunk::default()
        };
        let plain = parse("gsm=Dongle/MTS-*", &defaults).expect("good");
        assert_eq!(
            (plain.name.as_str(), plain.endpoint.as_str()),
            ("gsm", "Dongle/MTS-*")
        );
        assert_eq!(
            (plain.country, plain.strip.as_deref()),
            (Country::parse("KZ"), Some("0"))
        );
        assert!(!plain.unanswered && plain.journal && plain.leads.len() == 1);
        let text = "city=PJSIP/city,pbx=main,country=UZ,strip=9,lead=var:A;csv:/l.csv,\
                    employees=101:501;102:502,unanswered=yes,journal=no";
        let own = parse(text, &defaults).expect("good");
        assert_eq!(
            (own.country, own.strip.as_deref()),
            (Country::parse("UZ"), Some("9"))
        );
        assert_eq!((own.pbx.as_deref(), own.leads.len()), (Some("main"), 2));
        assert!(own.unanswered && !own.journal && own.employees.is_some());
    }

    #[test]
    fn trunk_can_have_several_endpoints() {
        let text = "city=gateway/city|address/203.0.113.5:5060|sofia/external,country=UZ";
        let trunk = parse(text, &Trunk::default()).expect("good");
        let wants = ["gateway/city", "address/203.0.113.5:5060", "sofia/external"];
        assert_eq!(trunk.endpoints().collect::<Vec<_>>(), wants);
        assert!(trunk.matches_channel("sofia/external/998901110001"));
        for wrong in [
            "city=gateway/city|",
            "city=gateway/city|x",
            "city=|profile/external",
        ] {
            assert!(parse(wrong, &Trunk::default()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn comma_inside_a_pattern_separates_no_keys() {
        let trunk = parse(
            r"a=SIP/a,lead=userfield:x=(\d{1,9}),strip=9",
            &Trunk::default(),
        );
        let trunk = trunk.expect("good");
        assert_eq!(trunk.strip.as_deref(), Some("9"));
        let LeadRule::UserField(pattern) = &trunk.leads[0] else {
            panic!("{trunk:?}")
        };
        assert_eq!(pattern.as_str(), r"x=(\d{1,9})");
    }

    #[test]
    fn endpoint_can_contain_blanks_but_not_a_second_endpoint() {
        for good in ["PJSIP/city line", "SIP/city line 2", "PJSIP/city"] {
            let trunk = parse(&format!("city={good}"), &Trunk::default()).expect(good);
            assert_eq!(trunk.endpoints().collect::<Vec<_>>(), [good]);
        }
        for bad in [
            "PJSIP/city PJSIP/gsm",
            "PJSIP/ city",
            "PJ SIP/city",
            "PJSIP/city\tline",
        ] {
            assert!(
                parse(&format!("city={bad}"), &Trunk::default()).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn trunk_errors_are_all_reported_at_once() {
        let text =
            "city=city,country=XX,strip=nine,contry=UZ,unanswered=maybe,lead=LEAD_ID,pbx=,UZ";
        let faults = parse(text, &Trunk::default())
            .expect_err("wrong")
            .join("\n");
        let wants = [
            "`city` is not an endpoint: give the part of a channel's name before the suffix, such \
             as `PJSIP/city` of `PJSIP/city-0000004f`; for FreeSWITCH give gateway/NAME, \
             profile/NAME, context/NAME, address/IP[:PORT], or the beginning of a channel's name, \
             such as sofia/external; put | between several",
            "country: `XX` is not a country code: give two letters of ISO 3166, such as `UZ`",
            "strip: `nine` is not a dial prefix: digits, such as `9`",
            "no key is called `contry`; keys are pbx, country, strip, lead, employees, \
             unanswered, journal",
            "unanswered: `maybe` is neither `yes` nor `no`",
            "lead: `LEAD_ID` is not a lead rule; the rules are var:NAME, userfield:REGEX, csv:FILE \
             and directory, separated by `;`",
            "pbx: `` is not a name of a PBX",
            "`UZ` is not key=value; keys are pbx, country, strip, lead, employees, unanswered, \
             journal",
        ];
        assert_eq!(faults, wants.join("\n"));
        let faults = parse("PJSIP/city", &Trunk::default())
            .expect_err("wrong")
            .join("\n");
        insta::assert_snapshot!(faults, @"must begin with NAME=ENDPOINT, as in `city=PJSIP/city`");
    }
}
