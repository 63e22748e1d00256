//! A PBX's release, the settings it needs, and what each source reports about a call in that
//! release. `check` shows the part of this table that applies to the PBX it asked. The whole table
//! is in `deploy/asterisk/README.md`, and a test compares the two.

use super::manager_conf::ManagerConf;
use super::{CheckFinding, Extra, advice, well};
use crate::config::{Config, SourceConfig};
use callbridge_asterisk::survey::Account;
use callbridge_formats::Format;
use callbridge_setup::snippet::{READ, WRITE};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

/// A line in one of the PBX's configuration files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Setting {
    file: &'static str,
    line: String,
    /// What's lost without the line.
    reason: &'static str,
}

/// Returns the finding about the release, along with one about queues that don't report enough.
/// `variables` lists the channel variables that contain leads.
pub(crate) fn judge(
    config: &Config,
    flag: &SourceConfig,
    account: &Account,
    conf: Option<&ManagerConf>,
    variables: &[&str],
) -> Vec<CheckFinding> {
    let name = format!("version of {}", short_url(flag));
    let Some(generation) = Generation::from_manager(&account.version) else {
        let message = format!(
            "not known: the manager reports version {:?}",
            account.version
        );
        return vec![well(name, message)];
    };
    let release = release_name(account);
    // A catch-up file counts too.
    let has_cel = config.sources.iter().any(|source| {
        source.pbx == flag.pbx && matches!(source.url.format(), Format::CelCsv | Format::CelAmqp)
    });
    let settings = settings(generation, has_cel, variables);
    let mut version = well(name, format!("Asterisk {release}"));
    version.extra = Some(Box::new(extra(&release, generation, &settings)));
    let mut found = vec![version];
    found.extend(queues(flag, account, generation, conf));
    found
}

/// Returns the release reported by the PBX or, failing that, the one implied by the manager's
/// version.
fn release_name(account: &Account) -> String {
    let release = account.release.as_deref().map(str::trim);
    if let Some(release) = release.filter(|release| !release.is_empty()) {
        return release.to_owned();
    }
    let mut numbers = account
        .version
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or_default());
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    let release = match (major, minor) {
        (1, 0) => "1.4".to_owned(),
        (1, 1) => "1.6 or 1.8".to_owned(),
        (1, 2) => "10".to_owned(),
        (..=1, _) => "11".to_owned(),
        (2, _) => "12 or 13".to_owned(),
        (major, _) => major.saturating_add(11).to_string(),
    };
    format!("{release}, according to its manager {}", account.version)
}

fn settings(generation: Generation, has_cel: bool, variables: &[&str]) -> Vec<Setting> {
    let mut all = vec![
        setting("manager.conf", READ, "all events of AMI"),
        setting("manager.conf", WRITE, "the list of channels"),
        setting("manager.conf", "timestampevents = yes", "exact times"),
    ];
    if !variables.is_empty() {
        let line = format!("channelvars = {}", variables.join(","));
        all.push(setting("manager.conf", &line, "the lead by `var:`"));
    }
    let reason = if has_cel {
        "needed for the talk time from CEL"
    } else {
        "needed for the talk time, if you use CEL as a source or with --catch-up"
    };
    // Since Asterisk 12, a single unknown name in the list disables CEL.
    all.push(setting("cel.conf", "events = ALL", reason));
    if generation.has_quiet_queues() {
        let reason = "which phones a queue rings, according to AMI; in each queue";
        all.push(setting("queues.conf", "eventwhencalled = yes", reason));
    }
    all
}

fn setting(file: &'static str, line: &str, reason: &'static str) -> Setting {
    Setting {
        file,
        line: line.to_owned(),
        reason,
    }
}

fn extra(release: &str, generation: Generation, settings: &[Setting]) -> Extra {
    let mut text = generation.to_text();
    for Setting { file, line, reason } in settings {
        text.push_str(&format!("\n{file}: {line}  ({reason})"));
    }
    let json = Map::from_iter([
        ("version".to_owned(), release.into()),
        ("tells".to_owned(), generation.to_json()),
        ("settings".to_owned(), json!(settings)),
    ]);
    Extra { json, text }
}

/// Reports queues that only report which phones they ring if a setting enables it.
fn queues(
    flag: &SourceConfig,
    account: &Account,
    generation: Generation,
    conf: Option<&ManagerConf>,
) -> Option<CheckFinding> {
    let queues = account.queues?;
    if queues == 0 || !generation.has_quiet_queues() {
        return None;
    }
    let name = format!("queues of {}", short_url(flag));
    let it_has = match queues {
        1 => "the PBX has a queue".to_owned(),
        queues => format!("the PBX has {queues} queues"),
    };
    let deaf = conf.filter(|conf| !conf.receives("agent"));
    let message = match deaf {
        Some(conf) => format!(
            "{it_has}, but {} gives the account no read = agent, so callbridge cannot see which \
             telephones ring",
            conf.path.display()
        ),
        None => format!(
            "{it_has}; callbridge sees which telephones ring there only with eventwhencalled = yes \
             and read = agent"
        ),
    };
    let fix = format!(
        "make sure that each queue in queues.conf has eventwhencalled = yes (then `module reload \
         app_queue.so`), and that the account has {READ} in manager.conf (then `manager reload`)"
    );
    Some(advice(name, message, fix))
}

/// Returns the source's URL without its query.
pub(crate) fn short_url(flag: &SourceConfig) -> String {
    let url = flag.url.to_string();
    url.split('?').next().unwrap_or_default().to_owned()
}

/// A group of Asterisk releases that report the same facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Asterisk 1.8 to 10.
    UpToTen,
    /// Only Asterisk 11, with manager version 1.3 or later.
    Eleven,
    /// Asterisk 12 and later, with manager version 2 or later.
    Twelve,
}

/// The facts about a call in the order in which they're shown, which are the customer's talk time,
/// whether the call was answered, who talked and in which order, who rang, the number, events in a
/// queue, conversations between three or more, transfers with pickup and parking, and the lead that
/// the PBX knows.
const VALUES: [&str; 9] = [
    "talk",
    "answered",
    "employee",
    "rang",
    "number",
    "queue",
    "conference",
    "transfer",
    "lead",
];

/// The source reports the fact exactly.
const EXACT: &str = "exact";
/// The fact is exact, apart from a given exception.
const PARTLY: &str = "partly";
/// The fact is close to the real value, and is marked as an estimate.
const ESTIMATE: &str = "estimate";
/// The source doesn't report the fact, and calls that need it are `incomplete`.
const NOT_GIVEN: &str = "no";

/// A fact, how well a source reports it, and the exception.
type But = (&'static str, &'static str, &'static str);

const fn partly(value: &'static str, but: &'static str) -> But {
    (value, PARTLY, but)
}

const fn estimate(value: &'static str, but: &'static str) -> But {
    (value, ESTIMATE, but)
}

const ANSWERED: But = partly("answered", "`incomplete` if no dial event shows it");
const QUEUE: But = partly(
    "queue",
    "which telephones rang is reported only with `eventwhencalled = yes` in queues.conf and \
     `agent` in `read`",
);
const CALLED_FIRST: But = partly(
    "number",
    "for a customer whom the PBX called first, only if a lead has the number",
);
const LISTED: But = partly("lead", "by `csv:` or `userfield:`, not by `var:`");
/// In an attended transfer by REFER, the masquerade also moves the records' fields.
const MOVED: But = partly(
    "lead",
    "`userfield:` can be another call's after an attended transfer by REFER",
);
const MOVED_LISTED: But = partly(
    "lead",
    "by `csv:` or `userfield:`, not by `var:`; the user field can be another call's after an \
     attended transfer by REFER",
);
const CONFBRIDGE: But = (
    "conference",
    NOT_GIVEN,
    "calls in `ConfBridge` are `incomplete`",
);
const BLONDE: But = partly(
    "transfer",
    "`incomplete` by feature code while the other telephone rings",
);
const BILLED: But = estimate("talk", "the billed seconds");
const WAITED: But = estimate("talk", "ringing in a queue counts as talk");
const FIRST_TWO: But = estimate("conference", "only its first two participants");
const LINKED: But = estimate("transfer", "one call if the linkedid is logged");
const UNLINKED: But = estimate(
    "transfer",
    "no linkedid: a parked call that is fetched after more than a minute is logged as two calls",
);

impl Generation {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 3] = [Self::Twelve, Self::Eleven, Self::UpToTen];

    /// Returns the generation for a manager version, or `None` if the version isn't a number.
    pub(crate) fn from_manager(manager: &str) -> Option<Self> {
        let mut numbers = manager.split('.').map(str::parse::<u32>);
        match (numbers.next()?.ok()?, numbers.next()?.ok()?) {
            (0, _) => None,
            (1, 0..=2) => Some(Self::UpToTen),
            (1, _) => Some(Self::Eleven),
            (2.., _) => Some(Self::Twelve),
        }
    }

    /// Returns the generation's releases the way they're usually written.
    #[cfg(test)]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::UpToTen => "1.8 (and up to 10)",
            Self::Eleven => "11",
            Self::Twelve => "12 and later",
        }
    }

    /// Returns `true` if queues only report which phones they ring if a setting enables it.
    pub(crate) const fn has_quiet_queues(self) -> bool {
        !matches!(self, Self::Twelve)
    }

    /// Returns the sources, most exact first. For each of them, this says how well it reports every
    /// fact, along with a text (which may be empty) about the exception or how the estimate is
    /// made.
    pub(crate) fn sources(self) -> [(&'static str, [But; VALUES.len()]); 3] {
        let (ami, cel, cdr): (&[But], &[But], &[But]) = match self {
            Self::Twelve => (&[], &[CALLED_FIRST, LISTED], &[BILLED, LINKED, LISTED]),
            Self::Eleven => (
                &[ANSWERED, CALLED_FIRST, QUEUE, MOVED],
                &[CALLED_FIRST, CONFBRIDGE, BLONDE, MOVED_LISTED],
                &[WAITED, FIRST_TWO, LINKED, MOVED_LISTED],
            ),
            Self::UpToTen => (
                &[ANSWERED, CALLED_FIRST, QUEUE, CONFBRIDGE, MOVED],
                &[CALLED_FIRST, CONFBRIDGE, BLONDE, MOVED_LISTED],
                &[WAITED, FIRST_TWO, UNLINKED, MOVED_LISTED],
            ),
        };
        let sources = [
            ("AMI", EXACT, ami),
            ("CEL", EXACT, cel),
            ("CDR", ESTIMATE, cdr),
        ];
        sources.map(|(source, how, listed)| {
            let cell = |value| {
                let listed = listed.iter().find(|(of, ..)| *of == value);
                *listed.unwrap_or(&(value, how, ""))
            };
            (source, VALUES.map(cell))
        })
    }

    /// Formats the table as `{"ami":{"talk":{"how":"exact"},…},…}`. Facts with an exception have
    /// `but`.
    pub(crate) fn to_json(self) -> Json {
        let sources = self.sources().map(|(source, cells)| {
            let cells = cells.map(|(value, how, but)| {
                let cell = match but {
                    "" => json!({"how": how}),
                    but => json!({"how": how, "but": but}),
                };
                (value.to_owned(), cell)
            });
            (source.to_lowercase(), Map::from_iter(cells).into())
        });
        Map::from_iter(sources).into()
    }

    /// Formats the table as text, with one line per source, and one for each exception.
    pub(crate) fn to_text(self) -> String {
        let line = |head: &str, cells: [&str; VALUES.len()]| {
            let cells = cells.map(|cell| format!("  {cell:10}")).concat();
            format!("{head:6}{cells}").trim_end().to_owned()
        };
        let mut lines = vec![line("source", VALUES)];
        let sources = self.sources();
        lines.extend(sources.map(|(source, cells)| line(source, cells.map(|(_, how, _)| how))));
        for (source, cells) in sources {
            let listed = cells.iter().filter(|(.., but)| !but.is_empty());
            lines.extend(listed.map(|(value, _, but)| format!("{source} {value}: {but}")));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(version: &str, release: Option<&str>) -> Account {
        Account {
            version: version.to_owned(),
            release: release.map(str::to_owned),
            ..Account::default()
        }
    }

    #[test]
    fn release_name_comes_from_the_pbx_or_its_manager_version() {
        for (version, release, name) in [
            ("1.3", Some("11.25.3"), "11.25.3"),
            ("1.1", None, "1.6 or 1.8, according to its manager 1.1"),
            ("1.3", None, "11, according to its manager 1.3"),
            (
                "2.10.6",
                Some(" "),
                "12 or 13, according to its manager 2.10.6",
            ),
            ("5.0.4", None, "16, according to its manager 5.0.4"),
            ("11.0.0", None, "22, according to its manager 11.0.0"),
        ] {
            assert_eq!(release_name(&account(version, release)), name);
        }
    }

    /// Returns the settings as `FILE: LINE`, one per line.
    fn setting_lines(generation: Generation, variables: &[&str]) -> String {
        let all = settings(generation, true, variables);
        let lines = all
            .iter()
            .map(|setting| format!("{}: {}", setting.file, setting.line));
        lines.collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn wanted_settings_match_the_asterisk_release() {
        let old = setting_lines(Generation::Eleven, &["LEAD_ID"]);
        let new = setting_lines(Generation::Twelve, &[]);
        assert!(old.contains("queues.conf: eventwhencalled = yes"), "{old}");
        assert!(old.contains("cel.conf: events = ALL"), "{old}");
        assert!(old.contains("channelvars = LEAD_ID"), "{old}");
        assert!(
            !new.contains("queues.conf") && !new.contains("channelvars"),
            "{new}"
        );
        assert!(new.contains("cel.conf: events = ALL"), "{new}");
    }

    /// Returns the facts that have this quality in a row of the table, separated by commas.
    fn facts_with_quality(cells: &[But], quality: &str) -> String {
        let matching = cells.iter().filter(|(_, how, _)| *how == quality);
        let facts: Vec<&str> = matching.map(|(fact, ..)| *fact).collect();
        facts.join(", ")
    }

    /// Builds the table for the documentation, with one row per release and source.
    fn documentation_table() -> String {
        let mut text = String::from(
            "| Asterisk | source | exact | an estimate | in part, or not reported |\n\
             |---|---|---|---|---|\n",
        );
        for generation in Generation::ALL {
            for (source, cells) in generation.sources() {
                let buts = cells.iter().filter(|(.., but)| !but.is_empty());
                let buts = buts.map(|(value, _, but)| format!("{value}: {but}"));
                let buts: Vec<String> = buts.collect();
                let release = generation.word();
                let exact = facts_with_quality(&cells, EXACT);
                let estimate = facts_with_quality(&cells, ESTIMATE);
                let row = [release, source, &exact, &estimate, &buts.join("; ")];
                let row = row.map(|cell| match cell {
                    "" => " ".to_owned(),
                    cell => format!(" {cell} "),
                });
                text.push_str(&format!("|{}|\n", row.join("|")));
            }
        }
        text
    }

    #[test]
    fn asterisk_readme_contains_the_generated_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/asterisk/README.md");
        let readme = std::fs::read_to_string(path).expect("the page");
        assert!(
            readme.contains(&documentation_table()),
            "the page must have this table:\n{}",
            documentation_table()
        );
    }

    #[test]
    fn partial_or_missing_values_have_an_explanation() {
        for generation in Generation::ALL {
            for (source, cells) in generation.sources() {
                for (value, how, but) in cells {
                    let plain = matches!(how, EXACT | ESTIMATE);
                    assert!(plain || !but.is_empty(), "{source} {value}");
                }
            }
        }
    }

    #[test]
    fn manager_version_determines_the_generation() {
        for (manager, generation) in [
            ("1.0", Some(Generation::UpToTen)),
            ("1.1", Some(Generation::UpToTen)),
            ("1.3", Some(Generation::Eleven)),
            ("2.10.6", Some(Generation::Twelve)),
            ("11.0.0", Some(Generation::Twelve)),
            ("", None),
            ("0.9", None),
            ("1", None),
        ] {
            assert_eq!(Generation::from_manager(manager), generation, "{manager}");
        }
    }
}
