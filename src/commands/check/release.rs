//! Which release a PBX is, what each source tells of its calls, and the settings that it wants for
//! that.

use super::coverage::Generation;
use super::finding::{CheckFinding, Extra, advice, well};
use super::manager_conf::ManagerConf;
use crate::config::{Config, SourceConfig};
use callbridge_asterisk::survey::Account;
use callbridge_formats::Format;
use serde::Serialize;
use serde_json::{Map, json};

/// The classes that an account should hear, and what it should be allowed to do.
const READ: &str = "call,cdr,system,agent,user";
const WRITE: &str = "reporting,user";

/// A line of a file of the PBX.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Setting {
    file: &'static str,
    line: String,
    /// What is lost without it.
    why: &'static str,
}

/// The release with all that is to be known of it, and its queues where they tell too little.
pub(crate) fn judge(
    config: &Config,
    flag: &SourceConfig,
    account: &Account,
    conf: Option<&ManagerConf>,
    variables: &[&str],
) -> Vec<CheckFinding> {
    let name = format!("version of {}", short(flag));
    let Some(generation) = Generation::of(&account.version) else {
        let what = format!("not known: the manager says it is {:?}", account.version);
        return vec![well(name, what)];
    };
    let release = named(account);
    let settings = settings(generation, reads_cel(config, flag), variables);
    let mut found = well(name, format!("Asterisk {release}"));
    found.extra = Some(Box::new(extra(&release, generation, &settings)));
    let mut found = vec![found];
    found.extend(queues(flag, account, generation, conf));
    found
}

/// As the PBX calls itself, else as its manager shows.
fn named(account: &Account) -> String {
    let said = account.release.as_deref().map(str::trim);
    if let Some(said) = said.filter(|said| !said.is_empty()) {
        return said.to_owned();
    }
    let mut numbers = account.version.split('.').map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or_default();
    let release = match (next(), next()) {
        (1, 0) => "1.4".to_owned(),
        (1, 1) => "1.6 or 1.8".to_owned(),
        (1, 2) => "10".to_owned(),
        (..=1, _) => "11".to_owned(),
        (2, _) => "12 or 13".to_owned(),
        (major, _) => major.saturating_add(11).to_string(),
    };
    format!("{release}, by its manager {}", account.version)
}

/// Some source or catch-up of the same PBX is written by CEL.
fn reads_cel(config: &Config, flag: &SourceConfig) -> bool {
    let mut same = config.sources.iter().filter(|it| it.pbx == flag.pbx);
    same.any(|it| match it.url.format() {
        Format::CelCsv | Format::CelAmqp => true,
        Format::Ami
        | Format::AmiJson
        | Format::CdrAmqp
        | Format::CdrCsv
        | Format::Wazo
        | Format::Freeswitch
        | Format::FreeswitchCdr
        | Format::Call => false,
    })
}

fn settings(generation: Generation, cel: bool, variables: &[&str]) -> Vec<Setting> {
    let setting = |file, line: &str, why| Setting {
        file,
        line: line.to_owned(),
        why,
    };
    let mut all = vec![
        setting(
            "manager.conf",
            &format!("read = {READ}"),
            "all that AMI reports",
        ),
        setting(
            "manager.conf",
            &format!("write = {WRITE}"),
            "which channels live",
        ),
        setting("manager.conf", "timestampevents = yes", "exact times"),
    ];
    if !variables.is_empty() {
        let line = format!("channelvars = {}", variables.join(","));
        all.push(setting("manager.conf", &line, "the lead by `var:`"));
    }
    let why = match cel {
        true => "talk by CEL",
        false => "talk by CEL, once it is a source or --catch-up",
    };
    // A list with one name that the release does not know turns CEL off, from Asterisk 12 on.
    all.push(setting("cel.conf", "events = ALL", why));
    if generation.has_quiet_queues() {
        let line = "eventwhencalled = yes";
        let why = "which telephones a queue rings, by AMI; in each queue";
        all.push(setting("queues.conf", line, why));
    }
    all
}

fn extra(release: &str, generation: Generation, settings: &[Setting]) -> Extra {
    let mut text = generation.to_text();
    for Setting { file, line, why } in settings {
        text.push_str(&format!("\n{file}: {line}  ({why})"));
    }
    let json = [
        ("version".to_owned(), release.into()),
        ("tells".to_owned(), generation.to_json()),
        ("settings".to_owned(), json!(settings)),
    ];
    Extra {
        json: Map::from_iter(json),
        text,
    }
}

/// Of a PBX whose queues tell of their telephones only where they are told to.
fn queues(
    flag: &SourceConfig,
    account: &Account,
    generation: Generation,
    conf: Option<&ManagerConf>,
) -> Option<CheckFinding> {
    let queues = account.queues.filter(|queues| *queues > 0)?;
    if !generation.has_quiet_queues() {
        return None;
    }
    let name = format!("queues of {}", short(flag));
    let it_has = match queues {
        1 => "it has a queue".to_owned(),
        queues => format!("it has {queues} queues"),
    };
    let deaf = conf.filter(|conf| !conf.hears("agent"));
    let what = match deaf {
        Some(conf) => format!(
            "{it_has}, and {} gives the account no read = agent: which telephones ring in it is \
             not received",
            conf.path.display()
        ),
        None => format!(
            "{it_has}; which telephones ring there is received only with eventwhencalled = yes and \
             read = agent"
        ),
    };
    let todo = format!(
        "see that each queue of queues.conf has eventwhencalled = yes (then `module reload \
         app_queue.so`), and that the account has read = {READ} in manager.conf (then `manager \
         reload`)"
    );
    Some(advice(name, what, todo))
}

/// The source without all that its URL takes behind a question mark.
pub(crate) fn short(flag: &SourceConfig) -> String {
    let url = flag.url.to_string();
    url.split('?').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: &str, release: Option<&str>) -> Account {
        Account {
            version: version.to_owned(),
            release: release.map(str::to_owned),
            ..Account::default()
        }
    }

    #[test]
    fn a_release_is_named_by_itself_or_by_its_manager() {
        for (version, release, said) in [
            ("1.3", Some("11.25.3"), "11.25.3"),
            ("1.1", None, "1.6 or 1.8, by its manager 1.1"),
            ("1.3", None, "11, by its manager 1.3"),
            ("2.10.6", Some(" "), "12 or 13, by its manager 2.10.6"),
            ("5.0.4", None, "16, by its manager 5.0.4"),
            ("11.0.0", None, "22, by its manager 11.0.0"),
        ] {
            assert_eq!(named(&of(version, release)), said);
        }
    }

    #[test]
    fn the_settings_wanted_are_those_of_the_release() {
        let files = |generation, variables: &[&str]| {
            let all = settings(generation, true, variables);
            let lines = all.iter().map(|it| format!("{}: {}", it.file, it.line));
            lines.collect::<Vec<String>>().join("\n")
        };
        let old = files(Generation::Eleven, &["LEAD_ID"]);
        let new = files(Generation::Twelve, &[]);
        assert!(old.contains("queues.conf: eventwhencalled = yes"), "{old}");
        assert!(old.contains("cel.conf: events = ALL"), "{old}");
        assert!(old.contains("channelvars = LEAD_ID"), "{old}");
        assert!(
            !new.contains("queues.conf") && !new.contains("channelvars"),
            "{new}"
        );
        assert!(new.contains("cel.conf: events = ALL"), "{new}");
    }
}
