//! Facts of endpoints from the PBX's own files, for a PBX on this machine whose account has no
//! right to query them. The files are `pjsip.conf`, `sip.conf`, and `extensions.conf`, as lines
//! without comments and with includes expanded. Secrets in them are skipped.

use callbridge_asterisk::survey::{EndpointFact, EndpointList, extension_of, host_of};
use std::collections::{BTreeMap, BTreeSet};

/// A section of `pjsip.conf` or `sip.conf`. It can contain secrets, so it cannot be printed.
#[derive(Clone, Default)]
pub struct Section {
    /// The section's keys in lower case with their values, in the order of the file.
    pub keys: Vec<(String, String)>,
    is_template: bool,
}

impl Section {
    /// Returns the last value of a key, which is the one that Asterisk uses.
    fn get(&self, key: &str) -> Option<&str> {
        let mut same = self.keys.iter().rev().filter(|(name, _)| name == key);
        let last = same.next().map(|(_, value)| &**value);
        last.filter(|value| !value.is_empty())
    }

    fn has(&self, key: &str, value: &str) -> bool {
        let last = self.get(key);
        last.is_some_and(|last| last.eq_ignore_ascii_case(value))
    }

    /// Returns `true` if the section has each of these pairs, such as
    /// `type=endpoint&context=from-trunk`. Parts that are not pairs are ignored.
    fn has_all(&self, pairs: &str) -> bool {
        let mut pairs = pairs.split('&').filter_map(|pair| pair.split_once('='));
        pairs.all(|(key, value)| self.has(key.trim(), value.trim()))
    }
}

/// Reads sections `[name](template,…)`, with the keys of their templates and the keys that
/// `[name](+)` or `[name](+type=endpoint)` adds later. Sections of one name stay separate, because
/// in `pjsip.conf` an endpoint, its login, and its address often have the same name.
pub fn sections(lines: &[String]) -> Vec<(String, Section)> {
    let mut all: Vec<(String, Section)> = Vec::new();
    let mut current = 0;
    for line in lines {
        if let Some(head) = line.strip_prefix('[') {
            let (name, rest) = head.split_once(']').unwrap_or((head, ""));
            let marks = rest.trim().trim_matches(['(', ')']);
            current = all.len();
            if let Some(filter) = marks.strip_prefix('+') {
                let added_to = all
                    .iter()
                    .position(|(other, section)| other == name && section.has_all(filter));
                // If there is no such section, Asterisk refuses the file.
                current = added_to.unwrap_or(current);
                continue;
            }
            let mut section = Section::default();
            for mark in marks.split(',').map(str::trim) {
                if mark.is_empty() {
                    continue;
                }
                section.is_template |= mark == "!";
                if let Some((_, template)) = all.iter().rev().find(|(name, _)| name == mark) {
                    section.keys.extend(template.keys.clone());
                }
            }
            all.push((name.to_owned(), section));
        } else if let (Some((key, value)), Some((_, section))) =
            (line.split_once('='), all.get_mut(current))
        {
            let value = value.trim_start_matches('>').trim().to_owned();
            section.keys.push((key.trim().to_ascii_lowercase(), value));
        }
    }
    all.retain(|(_, section)| !section.is_template);
    all
}

/// Collects the endpoints of `pjsip.conf` with the facts that the file holds about each.
pub fn pjsip(lines: &[String], found: &mut EndpointList) {
    let all = sections(lines);
    let mut aors: BTreeMap<&str, &Section> = BTreeMap::new();
    for (name, aor) in sections_of_type(&all, "aor") {
        aors.insert(name, aor);
    }
    let mut hosts: BTreeSet<String> = BTreeSet::new();
    for (_, registration) in sections_of_type(&all, "registration") {
        hosts.extend(registration_host(registration));
    }
    for (name, endpoint) in sections_of_type(&all, "endpoint") {
        let full = format!("PJSIP/{name}");
        let login = match (endpoint.get("auth"), endpoint.get("outbound_auth")) {
            (Some(_), _) => EndpointFact::LogsInHere,
            (None, Some(_)) => EndpointFact::LogsInThere,
            (None, None) => EndpointFact::NoLogin,
        };
        found.add(&full, Some(login));
        if let Some(mailbox) = endpoint.get("mailboxes") {
            found.add(&full, Some(EndpointFact::Mailbox(mailbox.to_owned())));
        }
        let named = endpoint.get("aors").unwrap_or_default().split(',');
        for aor in named.filter_map(|name| aors.get(name.trim())) {
            let contact = aor.get("contact");
            if let Some(extension) = contact.and_then(extension_of) {
                found.add(&full, Some(EndpointFact::CalledAs(extension)));
            }
            let address = match contact.and_then(host_of) {
                Some(host) if hosts.contains(&host) => EndpointFact::Registers(host),
                Some(host) => EndpointFact::Fixed(host),
                None => EndpointFact::Dynamic,
            };
            found.add(&full, Some(address));
        }
    }
    for (_, registration) in sections_of_type(&all, "registration") {
        if let Some(endpoint) = registration.get("endpoint")
            && let Some(host) = registration_host(registration)
        {
            let fact = EndpointFact::Registers(host);
            found.add(&format!("PJSIP/{endpoint}"), Some(fact));
        }
    }
    for (_, identify) in sections_of_type(&all, "identify") {
        if let (Some(endpoint), Some(by)) = (identify.get("endpoint"), identify.get("match")) {
            let fact = EndpointFact::Identified(by.to_owned());
            found.add(&format!("PJSIP/{endpoint}"), Some(fact));
        }
    }
}

fn sections_of_type<'a>(
    sections: &'a [(String, Section)],
    kind: &'static str,
) -> impl Iterator<Item = &'a (String, Section)> {
    let all = sections.iter();
    all.filter(move |(_, section)| section.has("type", kind))
}

fn registration_host(registration: &Section) -> Option<String> {
    registration.get("server_uri").and_then(host_of)
}

/// Collects the peers of `sip.conf` (chan_sip) with their facts.
pub fn sip(lines: &[String], found: &mut EndpointList) {
    let all = sections(lines);
    let general = all.iter().filter(|(name, _)| name == "general");
    let mut hosts: BTreeSet<String> = BTreeSet::new();
    for (key, value) in general.flat_map(|(_, section)| &section.keys) {
        // register => user:secret@host:port/extension; only the host is read.
        if key == "register" {
            hosts.extend(host_of(value.rsplit('@').next().unwrap_or_default()));
        }
    }
    for (name, peer) in all.iter().filter(|(name, _)| name != "general") {
        if !["peer", "friend"].iter().any(|kind| peer.has("type", kind)) {
            continue;
        }
        let full = format!("SIP/{name}");
        let host = peer.get("host").map(|host| match host {
            "dynamic" => EndpointFact::Dynamic,
            host if hosts.contains(&host.to_ascii_lowercase()) => {
                EndpointFact::Registers(host.to_owned())
            }
            host => EndpointFact::Fixed(host.to_owned()),
        });
        found.add(&full, host);
        if let Some(mailbox) = peer.get("mailbox") {
            found.add(&full, Some(EndpointFact::Mailbox(mailbox.to_owned())));
        }
    }
}

/// Collects the hints of `extensions.conf`, such as `exten => 101,hint,PJSIP/101`.
pub fn hints(lines: &[String], found: &mut EndpointList) {
    for line in lines {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let mut parts = value.trim_start_matches('>').splitn(3, ',').map(str::trim);
        let exten = parts.next().unwrap_or_default();
        let priority = parts.next();
        if key.trim() != "exten" || priority != Some("hint") {
            continue;
        }
        let rest = parts.next().unwrap_or_default();
        let devices = rest.split(',').next().unwrap_or_default();
        for device in devices.split('&') {
            if device.contains('/') && !device.contains('$') {
                found.add(device.trim(), Some(EndpointFact::Hint(exten.to_owned())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::{EndpointKind, classify};

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn kinds(found: &EndpointList) -> Vec<(&str, EndpointKind)> {
        let all = found.facts.iter();
        all.map(|(name, facts)| (&**name, classify(facts).0))
            .collect()
    }

    #[test]
    fn pjsip_endpoint_kind_follows_settings_not_name() {
        let text = "[phone](!)\ntype=endpoint\ncontext=from-internal\n\
            [trunk-9](phone)\nauth=trunk-9\naors=trunk-9\n\
            [trunk-9]\ntype=auth\npassword=hunter2\n[trunk-9]\ntype=aor\nmax_contacts=1\n\
            [x7]\ntype=endpoint\noutbound_auth=x7\naors=x7\n\
            [x7]\ntype=aor\ncontact=sip:sip.provider.uz:5060\n\
            [x7]\ntype=registration\nserver_uri=sip:sip.provider.uz\n\
            [101]\ntype=endpoint\naors=101\n[101]\ntype=identify\nendpoint=101\nmatch=203.0.113.9\n\
            [gate]\ntype=endpoint\naors=gate\n[gate]\ntype=aor\ncontact=sip:10.0.0.9\n";
        let mut found = EndpointList::default();
        pjsip(&lines(text), &mut found);
        assert_eq!(
            kinds(&found),
            [
                ("PJSIP/101", EndpointKind::Trunk),
                ("PJSIP/gate", EndpointKind::Trunk),
                ("PJSIP/trunk-9", EndpointKind::Telephone),
                ("PJSIP/x7", EndpointKind::Trunk),
            ]
        );
        assert!(!format!("{found:?}").contains("hunter2"));
        assert_eq!(
            classify(&found.facts["PJSIP/x7"]).1,
            "the PBX registers with it at sip.provider.uz"
        );
    }

    #[test]
    fn section_with_plus_extends_the_section_it_names() {
        let text = "[x7]\ntype=aor\n[x7]\ntype=endpoint\n[101]\ntype=endpoint\nauth=101\n\
            [x7](+type=endpoint)\noutbound_auth=x7\naors=x7\n\
            [x7](+)\ncontact=sip:sip.provider.uz\n\
            [102](+)\nauth=102\n[103]\ntype=endpoint\nauth=103\n";
        let mut found = EndpointList::default();
        pjsip(&lines(text), &mut found);
        assert_eq!(
            kinds(&found),
            [
                ("PJSIP/101", EndpointKind::Telephone),
                ("PJSIP/103", EndpointKind::Telephone),
                ("PJSIP/x7", EndpointKind::Trunk),
            ]
        );
        let of_its_aor = EndpointFact::Fixed("sip.provider.uz".to_owned());
        assert!(found.facts["PJSIP/x7"].contains(&of_its_aor));
    }

    #[test]
    fn chan_sip_peers_and_hints_are_read_without_secrets() {
        let text = "[general]\nregister => user:hunter2@sip.provider.uz/100\n\
            [x7]\ntype=peer\nhost=sip.provider.uz\nsecret=hunter2\n\
            [trunk-9]\ntype=friend\nhost=dynamic\nmailbox=109@default\n\
            [far]\ntype=peer\nhost=203.0.113.9\n[guest]\ntype=user\n";
        let mut found = EndpointList::default();
        sip(&lines(text), &mut found);
        let dialplan = "exten => 110,hint,SIP/far&Custom:x\nexten => 1,1,Dial(SIP/far)";
        hints(&lines(dialplan), &mut found);
        assert_eq!(
            kinds(&found),
            [
                ("SIP/far", EndpointKind::Telephone),
                ("SIP/trunk-9", EndpointKind::Telephone),
                ("SIP/x7", EndpointKind::Trunk),
            ]
        );
        assert!(!format!("{found:?}").contains("hunter2"));
    }
}
