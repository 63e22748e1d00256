//! The trunks of a command line, checked against each other and against the sources.

use super::{Checking, SourceConfig};
use crate::config::Faults;
use crate::config::flags::{Flags, TrunkFlags};
use crate::values;
use callbridge_mapping::people::rule::{employee_rule, lead_rules};
use callbridge_mapping::{Rules, Trunk, Trunks, trunk};
use callbridge_model::Country;
use callbridge_source::url::Format;

/// Returns the rules by which all calls are judged, without `--not-before`: each `--trunk` with the
/// defaults, and the defaults for calls whose message names no trunk.
pub(super) fn rules(flags: &Flags, sources: &[SourceConfig], checking: &mut Checking<'_>) -> Rules {
    // The recording of `explain` can contain messages, whatever the given sources are.
    let of_messages = sources
        .iter()
        .filter(|source| source.carries_whole_calls())
        .count();
    let collects = flags.hub.collects();
    let no_messages = checking.needs && of_messages == 0 && !collects;
    let has_messages = of_messages > 0 || collects;
    let all_messages = has_messages && of_messages == sources.len();
    let of_trunks = &flags.trunks;
    let faults = &mut checking.faults;
    let defaults = defaults(of_trunks, faults);
    let mut trunks = Vec::new();
    for text in values::flag_values(&of_trunks.trunk) {
        match trunk::parse(text, &defaults) {
            Ok(trunk) if no_messages && !trunk.has_channels() => faults.add(
                &format!("--trunk {}", trunk.name),
                "has no endpoint: begin with NAME=ENDPOINT, such as `city=PJSIP/city`; only a \
                 trunk of messages (format=call) needs no endpoint",
            ),
            Ok(trunk) => trunks.push(trunk),
            Err(wrong) => {
                let shown = text.split(',').next().unwrap_or_default();
                faults.take_all::<()>(&format!("--trunk {shown}"), Err(wrong));
            }
        }
    }
    let lacks = checking.needs && of_trunks.trunk.is_empty() && !all_messages;
    let message = "is missing: without a trunk, every call looks internal";
    faults.add_if(lacks, "--trunk", message);
    let checked = faults.take_all("--trunk", Trunks::new(trunks));
    let trunks = checked.unwrap_or_default();
    if !collects {
        known_pbxs(&trunks, sources, flags.sources.pbx_id.as_deref(), faults);
    }
    Rules {
        country: country(of_trunks, &trunks),
        trunks,
        without_trunk: if no_messages { None } else { Some(defaults) },
        require_employee: of_trunks.require_employee,
        forwards: flags.hub.forwards(),
        ..Rules::default()
    }
}

/// Returns the country of the CRM's numbers without a country code: `--country`, or else the
/// country that all trunks share.
fn country(flags: &TrunkFlags, trunks: &Trunks) -> Option<Country> {
    if let Some(country) = flags.country.as_deref().and_then(Country::parse) {
        return Some(country);
    }
    let mut countries = trunks.iter().filter_map(|trunk| trunk.country);
    let first = countries.next()?;
    if countries.all(|other| other == first) {
        Some(first)
    } else {
        None
    }
}

fn defaults(flags: &TrunkFlags, faults: &mut Faults) -> Trunk {
    Trunk {
        country: faults.read("--country", &non_empty(&flags.country), trunk::country),
        strip: faults.read("--strip", &non_empty(&flags.strip), trunk::strip),
        leads: faults
            .read("--lead", &non_empty(&flags.lead), lead_rules)
            .unwrap_or_default(),
        employees: faults.read("--employees", &non_empty(&flags.employees), employee_rule),
        unanswered: faults
            .read("--unanswered", &flags.unanswered, trunk::yes_or_no)
            .unwrap_or(true),
        ..Trunk::default()
    }
}

/// Returns the text. `None` if it is empty, because environment variables can be empty.
fn non_empty(text: &Option<String>) -> Option<String> {
    text.clone().filter(|text| !text.is_empty())
}

/// Checks that each trunk's `pbx=` is the PBX of some source.
fn known_pbxs(
    trunks: &Trunks,
    sources: &[SourceConfig],
    pbx_id: Option<&str>,
    faults: &mut Faults,
) {
    // The stream of a gateway (`server_name`) and messages can contain PBXs that no flag names.
    let names_others = sources
        .iter()
        .any(|source| source.url.format() == Format::AmiJson || source.carries_whole_calls());
    if sources.is_empty() || names_others {
        return;
    }
    let of_sources = sources.iter().filter_map(|source| source.pbx.as_deref());
    let known: Vec<&str> = of_sources.chain(pbx_id).collect();
    for trunk in trunks.iter() {
        let Some(pbx) = trunk.pbx.as_deref() else {
            continue;
        };
        let message = format!("no source has pbx={pbx}: add it to a --source, or as --pbx-id");
        let flag = format!("--trunk {}", trunk.name);
        faults.add_if(!known.contains(&pbx), &flag, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the country of the CRM with this `--country` flag and these `--trunk` flags.
    fn country_for(all: Option<&str>, texts: &[&str]) -> Option<Country> {
        let trunks = texts
            .iter()
            .map(|text| trunk::parse(text, &Trunk::default()).expect("a trunk"));
        let trunks = Trunks::new(trunks.collect()).expect("no conflict");
        let flags = TrunkFlags {
            country: all.map(str::to_owned),
            ..TrunkFlags::default()
        };
        country(&flags, &trunks)
    }

    #[test]
    fn crm_country_is_flag_or_only_country_of_trunks() {
        let uz = Country::parse("UZ");
        assert!(uz.is_some());
        assert_eq!(country_for(None, &["a=SIP/a,country=UZ", "b=SIP/b"]), uz);
        assert_eq!(
            country_for(None, &["a=SIP/a,country=UZ", "b=SIP/b,country=KZ"]),
            None
        );
        assert_eq!(
            country_for(Some("UZ"), &["a=SIP/a", "b=SIP/b,country=KZ"]),
            uz
        );
        assert_eq!(country_for(None, &["a=SIP/a"]), None);
    }
}
