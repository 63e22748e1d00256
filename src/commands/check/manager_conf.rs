//! Reads the `manager.conf` of a PBX on this machine, if possible, to find out which events the
//! manager account may receive, and from which addresses it may log in. Secrets in the file are
//! skipped.

use callbridge_setup::local_conf;
use regex::Regex;
use std::net::{IpAddr, Ipv4Addr};
use std::{collections::BTreeSet, path::Path, path::PathBuf};

/// Paths where Asterisk may have the file.
const PLACES: [&str; 2] = [
    "/etc/asterisk/manager.conf",
    "/usr/local/etc/asterisk/manager.conf",
];
const DEPTH_MAX: usize = 8;
/// Larger files aren't read. Real ones are smaller.
const BYTES_MAX: u64 = 1 << 20;

/// An account's settings in `manager.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManagerConf {
    pub path: PathBuf,
    /// The event classes in `read`, in lowercase.
    pub read: BTreeSet<String>,
    /// The `eventfilter` lines, in order.
    pub filters: Vec<String>,
    /// Whether there are also filters in Asterisk 22's syntax, `eventfilter(name(…))`, which aren't
    /// parsed.
    pub has_other_filters: bool,
    /// The value of `timestampevents`, i.e., whether events have timestamps.
    pub timed: bool,
    /// The names in the last `channelvars` line.
    pub variables: BTreeSet<String>,
    /// The `deny` and `permit` lines, in order.
    address_rules: Vec<AddressRule>,
}

/// One network in a `permit` or `deny` line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AddressRule {
    permits: bool,
    network: String,
}

impl ManagerConf {
    /// Returns the settings of the PBX that listens on this port of this machine, or `None` if its
    /// file can't be read or doesn't contain the account.
    pub(crate) fn find(user: &str, port: u16) -> Option<Self> {
        let mut places = PLACES.iter().map(Path::new);
        places.find_map(|place| Self::read(place, user, port))
    }

    /// Reads the account's settings from this file.
    pub(crate) fn read(path: &Path, user: &str, port: u16) -> Option<Self> {
        let sections = local_conf::sections(&lines(path, DEPTH_MAX)?);
        let mut conf = Self {
            path: path.to_path_buf(),
            ..Self::default()
        };
        let mut its_port = 5038;
        for (section, its) in &sections {
            for (key, value) in &its.keys {
                match (section.as_str(), key.as_str()) {
                    ("general", "port") => its_port = value.parse().unwrap_or(its_port),
                    ("general", "timestampevents") => {
                        let value = value.to_ascii_lowercase();
                        conf.timed = ["yes", "true", "y", "t", "1", "on"].contains(&&*value);
                    }
                    // A later line replaces an earlier one, as in Asterisk.
                    ("general", "channelvars") => conf.variables = words(value),
                    (of, "read") if of == user => conf.read = words(&value.to_ascii_lowercase()),
                    (of, "eventfilter") if of == user => conf.filters.push(value.clone()),
                    (of, other) if of == user && other.starts_with("eventfilter(") => {
                        conf.has_other_filters = true;
                    }
                    (of, "permit" | "deny") if of == user => {
                        conf.add_address_rules(key == "permit", value);
                    }
                    _ => {}
                }
            }
        }
        let is_known = sections.iter().any(|(section, _)| section == user);
        if is_known && its_port == port {
            Some(conf)
        } else {
            None
        }
    }

    /// Adds the networks in one line. A `!` before a network reverses its meaning.
    fn add_address_rules(&mut self, permits: bool, line: &str) {
        for network in line.split(',').map(str::trim) {
            let (permits, network) = match network.strip_prefix('!') {
                Some(network) => (!permits, network),
                None => (permits, network),
            };
            let network = network.to_owned();
            self.address_rules.push(AddressRule { permits, network });
        }
    }

    /// Returns `true` if the account may log in from this address. As in Asterisk, the last network
    /// that contains the address decides, and an address that isn't in any network may log in.
    pub(crate) fn permits(&self, address: IpAddr) -> bool {
        let mut permitted = true;
        for rule in &self.address_rules {
            if contains(&rule.network, address) {
                permitted = rule.permits;
            }
        }
        permitted
    }

    /// Returns `true` if the filters, treated as basic regular expressions, don't let anything
    /// through, since those of the form `(A|B)` don't match anything then.
    pub(crate) fn is_deafened(&self) -> bool {
        let passing: Vec<&String> = self
            .filters
            .iter()
            .filter(|filter| !filter.starts_with('!'))
            .collect();
        !passing.is_empty() && passing.iter().all(|filter| filter.contains(['(', '|']))
    }

    /// Returns whether an event starting with this text would pass the filters, or `None` if a
    /// filter can't be parsed.
    ///
    /// Asterisk matches each filter against the entire text of an event. Filters with `!` drop any
    /// event they match, and if there are any without it, at least one of those has to match.
    pub(crate) fn passes(&self, event: &str) -> Option<bool> {
        let text = format!("{event}\r\nPrivilege: call,all\r\n");
        let mut is_named = self.filters.iter().all(|filter| filter.starts_with('!'));
        for filter in &self.filters {
            let dropped = filter.strip_prefix('!');
            let is_match = Regex::new(dropped.unwrap_or(filter)).ok()?.is_match(&text);
            if is_match && dropped.is_some() {
                return Some(false);
            }
            is_named |= is_match;
        }
        if self.has_other_filters {
            return None;
        }
        Some(is_named)
    }

    /// Returns `true` if the account receives events in this class.
    pub(crate) fn receives(&self, class: &str) -> bool {
        self.read.contains(class) || self.read.contains("all")
    }
}

/// Returns `true` if the network, such as `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, or `10.0.0.1`,
/// contains the address.
fn contains(network: &str, address: IpAddr) -> bool {
    let (base, mask) = network.split_once('/').unwrap_or((network, ""));
    let Ok(base) = base.trim().parse::<IpAddr>() else {
        return false;
    };
    match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => {
            let Some(mask) = mask_v4(mask) else {
                return false;
            };
            u32::from(base) & mask == u32::from(address) & mask
        }
        (IpAddr::V6(base), IpAddr::V6(address)) => {
            let bits = if mask.is_empty() {
                Ok(128)
            } else {
                mask.parse::<u32>()
            };
            let Ok(bits @ 0..=128) = bits else {
                return false;
            };
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            u128::from(base) & mask == u128::from(address) & mask
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Parses a mask such as `8` or `255.0.0.0` and returns its bits. An empty text means that all bits
/// are set.
fn mask_v4(mask: &str) -> Option<u32> {
    let mask = mask.trim();
    if mask.is_empty() {
        return Some(u32::MAX);
    }
    if mask.contains('.') {
        return mask.parse::<Ipv4Addr>().ok().map(u32::from);
    }
    match mask.parse::<u32>() {
        Ok(bits @ 0..=32) => Some(u32::MAX.checked_shl(32 - bits).unwrap_or(0)),
        Ok(_) | Err(_) => None,
    }
}

fn words(value: &str) -> BTreeSet<String> {
    value
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the lines in another of the PBX's files on this machine, such as `pjsip.conf`, or `None`
/// if it can't be read.
pub(crate) fn lines_of(file: &str) -> Option<Vec<String>> {
    let folders = PLACES.iter().filter_map(|place| Path::new(place).parent());
    let mut found = folders.filter_map(|folder| lines(&folder.join(file), DEPTH_MAX));
    found.next()
}

/// Returns the lines without comments, with included files inserted in place. `depth` limits nested
/// includes. Included files that can't be read are skipped.
fn lines(path: &Path, depth: usize) -> Option<Vec<String>> {
    let size = path.metadata().ok()?;
    if !size.is_file() || size.len() > BYTES_MAX {
        return None;
    }
    let text = String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned();
    let mut lines_of_all = Vec::new();
    let mut commented = false;
    for whole_line in text.lines().map(str::trim) {
        commented |= whole_line.starts_with(";--") && !whole_line.starts_with(";---");
        if commented {
            commented = !whole_line.ends_with("--;");
            continue;
        }
        let line = whole_line.split(';').next().unwrap_or_default().trim();
        let included = line
            .strip_prefix("#include")
            .or_else(|| line.strip_prefix("#tryinclude"));
        let Some(name) = included else {
            if !line.is_empty() {
                lines_of_all.push(line.to_owned());
            }
            continue;
        };
        if depth > 0 {
            let name = name.trim().trim_matches(['"', '<', '>']);
            let folder = path.parent().unwrap_or(Path::new("/"));
            for file in files(&folder.join(name)) {
                lines_of_all.extend(lines(&file, depth - 1).unwrap_or_default());
            }
        }
    }
    Some(lines_of_all)
}

/// Expands a pattern such as `manager.d/*.conf` to the files that match it. A name without `*` is
/// returned as is.
fn files(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(|name| name.to_str());
    let Some((before, after)) = name.and_then(|name| name.split_once('*')) else {
        return vec![pattern.to_path_buf()];
    };
    let folder = pattern.parent().unwrap_or(Path::new("/"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_match = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(before) && name.ends_with(after));
        if is_match {
            files.push(entry.path());
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(path: &Path, user: &str) -> ManagerConf {
        ManagerConf::read(path, user, 5038).expect("the account")
    }

    #[test]
    fn event_passes_filters_as_asterisk_matches_them() {
        for (filters, passes) in [
            (&[][..], Some(true)),
            (&["!Event: Bridge"], Some(false)),
            (&["!Event: RTCP", "!Event: VarSet"], Some(true)),
            (&["^Event: Newchannel[[:space:]]"], Some(false)),
            (&["Event: (Newchannel|BridgeEnter)[[:space:]]"], Some(true)),
            (&["Event: ", "!Event: BridgeEnter"], Some(false)),
            (&["Event: ("], None),
        ] {
            let conf = ManagerConf {
                filters: filters.iter().map(|filter| (*filter).to_owned()).collect(),
                ..ManagerConf::default()
            };
            assert_eq!(conf.passes("Event: BridgeEnter"), passes, "{filters:?}");
        }
    }

    #[test]
    fn manager_account_is_read_with_includes_and_templates() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("manager.d")).expect("made");
        let path = folder.path().join("manager.conf");
        std::fs::write(
            &path,
            "[general]\nenabled = yes\nport=5038\ntimestampevents = yes ; times\n\
             ;--\n[bridge]\nread = all\n--;\nchannelvars = LEAD_ID, CAMPAIGN\n\
             #include \"manager.d/*.conf\"\n#tryinclude nothing.conf\n",
        )
        .expect("written");
        std::fs::write(
            folder.path().join("manager.d/bridge.conf"),
            "[general](+)\nbindaddr=127.0.0.1\n[bridge]\nsecret = hunter2\nread => Call,cdr\n\
             write=\neventfilter = ^Event: (Newchannel|Hangup)[[:space:]]\n",
        )
        .expect("written");
        let conf = account(&path, "bridge");
        assert!(conf.receives("call") && !conf.receives("system"));
        assert!(conf.is_deafened() && !ManagerConf::default().is_deafened());
        assert!(conf.timed && conf.variables.contains("LEAD_ID"));
        assert!(!format!("{conf:?}").contains("hunter2"));
        let path_of_templates = folder.path().join("templates.conf");
        std::fs::write(
            &path_of_templates,
            "[readers](!)\nread = call,agent\neventfilter = ^Event: Newchannel\n\
             [bridge](readers)\nsecret = hunter2\n[second](readers)\nread = system\n",
        )
        .expect("written");
        let bridge = account(&path_of_templates, "bridge");
        let second = account(&path_of_templates, "second");
        assert!(bridge.receives("agent") && bridge.filters.len() == 1);
        assert!(
            second.receives("system") && !second.receives("agent"),
            "the read line of the account counts"
        );
        // A `permit` for another network prevents a login from this machine.
        let path_of_acl = folder.path().join("acl.conf");
        std::fs::write(
            &path_of_acl,
            "[bridge]\ndeny=0.0.0.0/0.0.0.0\npermit=10.0.0.0/255.0.0.0,192.168.1.0/24\n\
             [open]\nread = call\n[local]\ndeny=0.0.0.0/0\npermit=127.0.0.1/32,!10.1.0.0/16\n",
        )
        .expect("written");
        for (user, address, is_permitted) in [
            ("bridge", "127.0.0.1", false),
            ("bridge", "192.168.1.7", true),
            ("open", "127.0.0.1", true),
            ("open", "::1", true),
            ("local", "127.0.0.1", true),
            ("local", "10.1.2.3", false),
        ] {
            let found = account(&path_of_acl, user).permits(address.parse().expect("an address"));
            assert_eq!(found, is_permitted, "{user} {address}");
        }
        // These are another PBX on another port, and an unknown account.
        assert_eq!(ManagerConf::read(&path, "bridge", 5039), None);
        assert_eq!(ManagerConf::read(&path, "other", 5038), None);
        let nowhere = folder.path().join("no.conf");
        assert_eq!(ManagerConf::read(&nowhere, "bridge", 5038), None);
    }
}
