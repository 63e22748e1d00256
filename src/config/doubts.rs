//! Settings that are valid but probably mistakes. `check` and the log of `run` report them.

use crate::config::Config;
use callbridge_source::{Transport, url::Broker, url::TcpEndpoint};
use callbridge_spool::{StatePlace, folder::FILE};
use std::io::ErrorKind;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The flag or variable that is probably a mistake.
    pub what: String,
    /// The kind of doubt: `likely a mistake`, or that secrets cross the network.
    pub kind: &'static str,
    /// The problem and its fix. It never contains a secret.
    pub message: String,
}

impl Doubt {
    fn new(what: impl Into<String>, kind: &'static str, message: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            kind,
            message: message.into(),
        }
    }
}

const MISTAKE: &str = "likely a mistake";
const CLEAR: &str = "can be read on the network";
const CALLS_AND_SECRET: &str = "the user's secret and all calls";
const LETTERS_AND_SECRET: &str = "the user's secret and all dead letters";

/// Returns all doubts. Reads the secret files. A file that cannot be read is reported elsewhere.
pub(crate) fn find(config: &Config) -> Vec<Doubt> {
    let message = "the secret is in quotes, which are used as a part of it: remove them if they do \
                 not belong to it";
    let mut doubts = Vec::new();
    for (owner, place) in config.places() {
        if place.is_quoted() {
            doubts.push(Doubt::new(format!("secret of {owner}"), MISTAKE, message));
        }
    }
    doubts.extend(wide_trunks(config));
    doubts.extend(unencrypted_connections(config));
    doubts.extend(new_state(config));
    doubts
}

/// Reports a state folder that contains no state, because its path can be mistyped. Names the
/// states in the same parent folder.
fn new_state(config: &Config) -> Option<Doubt> {
    let dir = config.state.as_ref().and_then(StatePlace::folder)?;
    let error = dir.join(FILE).symlink_metadata().err()?;
    if error.kind() != ErrorKind::NotFound {
        return None;
    }
    let entries = dir.parent().and_then(|parent| parent.read_dir().ok());
    let mut others = Vec::new();
    for entry in entries.into_iter().flatten().flatten() {
        // A hidden folder can be the scratch folder of a running `check`.
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let folder = entry.path();
        if !is_hidden && folder.join(FILE).is_file() {
            others.push(folder.display().to_string());
        }
    }
    others.sort_unstable();
    let hint = if others.is_empty() {
        String::new()
    } else {
        format!("; the same folder contains {}", others.join(", "))
    };
    let message = format!(
        "{} contains no state, so calls that were sent before are not known: correct --state if \
         you meant another place{hint}",
        dir.display()
    );
    Some(Doubt::new("--state", "a new state begins", message))
}

/// Reports connections to other machines without encryption.
fn unencrypted_connections(config: &Config) -> impl Iterator<Item = Doubt> {
    let sources = config.sources.iter().filter_map(|source| {
        // A broker receives the password itself. A manager's password is only used to answer a
        // challenge.
        let (is_clear, crosses, scheme) = match &source.url.transport {
            Transport::Amqp(queue) => (is_clear(&queue.broker), CALLS_AND_SECRET, "amqps"),
            Transport::WebSocket { endpoint, .. } => (endpoint.is_clear(), "all calls", "wss"),
            Transport::Ami { endpoint, .. } => (endpoint.is_clear(), "all calls", "amis"),
            // The flag of this source contains `clear=yes`, so it is intended.
            Transport::Esl { .. } | Transport::File { .. } => return None,
        };
        is_clear.then(|| crossing(&source.url.public(), crosses, scheme))
    });
    let target = config.dead_letters.as_ref();
    let published = target.filter(|target| is_clear(&target.url.broker));
    sources
        .chain(published.map(|target| crossing(&target.url.public(), LETTERS_AND_SECRET, "amqps")))
}

/// Returns `true` if data to any node of the broker is sent unencrypted.
fn is_clear(broker: &Broker) -> bool {
    let mut nodes = std::iter::once(&broker.endpoint).chain(&broker.others);
    nodes.any(TcpEndpoint::is_clear)
}

fn crossing(line: &str, crosses: &str, scheme: &str) -> Doubt {
    let message = format!(
        "{crosses} cross the network unencrypted: use {scheme}:// (with ca-file= for your own \
         certificate), or a tunnel that begins on this machine"
    );
    Doubt::new(format!("line {line}"), CLEAR, message)
}

/// Reports trunks whose pattern also matches phones.
fn wide_trunks(config: &Config) -> impl Iterator<Item = Doubt> {
    config.rules.trunks.iter().filter_map(|trunk| {
        let telephone = trunk.telephone_within()?;
        let message = format!(
            "{} also matches phones, such as {telephone}, so calls between phones would be taken \
             for customers' calls: name only the outside lines, each with its own --trunk",
            trunk.endpoint
        );
        let what = format!("endpoint of trunk {}", trunk.name);
        Some(Doubt::new(what, MISTAKE, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::command::{Command, read};
    use callbridge_model::Environment;
    use std::ffi::OsString;

    fn doubts_of_run(flags: &[&str]) -> Vec<Doubt> {
        let environment = Environment::from_pairs([
            ("CALLBRIDGE_AMI_SECRET", "hidden"),
            ("CALLBRIDGE_AMQP_SECRET", "hidden"),
            ("CALLBRIDGE_DEAD_LETTER_SECRET", "hidden"),
        ]);
        let own = ["callbridge", "run", "--dry-run", "--pbx-id=pbx1"];
        let trunk = "--trunk=city=PJSIP/city,country=UZ,lead=var:LEAD_ID";
        let mut own = own.to_vec();
        if !flags.iter().any(|flag| flag.starts_with("--state")) {
            own.push("--state=/nowhere");
        }
        let all = own.iter().chain([&trunk]).chain(flags).map(OsString::from);
        match read(all, &environment).expect("good flags") {
            Command::Run(config) => find(&config),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn connections_without_tls_are_reported_only_if_remote() {
        let found = doubts_of_run(&[
            "--source=ami://a@127.0.0.1?secret-file=/run/hidden",
            "--source=ami://a@pbx.example?secret-file=/run/hidden&pbx=b",
            "--source=amis://a@pbx.example?pbx=c",
            "--source=ws://gateway.example:8000/?pbx=d",
            "--source=ws://[::1]:8000/?pbx=e",
            "--source=wss://gateway.example/?pbx=f",
            "--source=amqp://a@mq.example/v?queue=q&format=asterisk-cel&pbx=g",
            "--source=amqp://a@localhost/v?queue=q&format=asterisk-cel&pbx=h",
            "--source=amqps://a@mq.example/v?queue=q&format=asterisk-cel&pbx=i",
            "--source=amqp://a@localhost,mq.example/v?queue=q&format=asterisk-cel&pbx=j",
            "--dead-letter-queue=amqp://a@mq.example/v?queue=d&secret-file=/run/hidden",
        ]);
        let found = found.iter().filter(|doubt| doubt.kind == CLEAR);
        let found: Vec<String> = found
            .map(|doubt| format!("{}\n  {}", doubt.what, doubt.message))
            .collect();
        let found = found.join("\n");
        assert!(!found.contains("hidden"), "{found}");
        let fix =
            "(with ca-file= for your own certificate), or a tunnel that begins on this machine";
        insta::assert_snapshot!(found.replace(fix, "…"), @r"
        line ami://a@pbx.example?pbx=b
          all calls cross the network unencrypted: use amis:// …
        line ws://gateway.example:8000/?pbx=d
          all calls cross the network unencrypted: use wss:// …
        line amqp://a@mq.example/v?queue=q&format=asterisk-cel&pbx=g
          the user's secret and all calls cross the network unencrypted: use amqps:// …
        line amqp://a@localhost,mq.example/v?queue=q&format=asterisk-cel&pbx=j
          the user's secret and all calls cross the network unencrypted: use amqps:// …
        line amqp://a@mq.example/v?queue=d
          the user's secret and all dead letters cross the network unencrypted: use amqps:// …
        ");
    }

    /// Returns the messages about the `--state` flag of a run with this state.
    fn state_doubts(state: &std::path::Path) -> Vec<String> {
        let state = format!("--state={}", state.display());
        let found = doubts_of_run(&["--source=ami://a@127.0.0.1", &state]);
        let found = found.into_iter().filter(|doubt| doubt.what == "--state");
        found.map(|doubt| doubt.message).collect()
    }

    #[test]
    fn new_state_is_reported_with_the_states_in_the_same_folder() {
        let place = tempfile::tempdir().expect("a folder");
        let (typed, meant) = (place.path().join("ofice"), place.path().join("office"));
        for state in [&meant, &place.path().join(".callbridge-check-7")] {
            std::fs::create_dir(state).expect("made");
            std::fs::write(state.join(FILE), "").expect("written");
        }
        assert_eq!(state_doubts(&meant), [] as [String; 0]);
        let message = format!(
            "{} contains no state, so calls that were sent before are not known: correct --state \
             if you meant another place; the same folder contains {}",
            typed.display(),
            meant.display()
        );
        assert_eq!(state_doubts(&typed), [message]);
    }

    #[test]
    fn quoted_secret_is_reported_wherever_it_is_set() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("quoted");
        std::fs::write(&file, "\"hidden\"\n").expect("written");
        let file = file.display();
        let found = doubts_of_run(&[
            &format!("--source=ami://a@127.0.0.1?secret-file={file}"),
            &format!("--dead-letter-queue=amqp://a@127.0.0.1/v?queue=d&secret-file={file}"),
            "--webhook-listen=127.0.0.1:8481",
            &format!("--installation-secret=9001={file}"),
        ]);
        let named = found
            .iter()
            .filter(|doubt| doubt.message.contains("in quotes"));
        let named: Vec<&str> = named.map(|doubt| doubt.what.as_str()).collect();
        let expected = [
            "secret of ami://a@127.0.0.1",
            "secret of webhooks",
            "secret of amqp://a@127.0.0.1/v?queue=d",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn local_dead_letter_queue_without_tls_is_not_reported() {
        let queue = "--dead-letter-queue=amqp://a@127.0.0.1/v?queue=d";
        let found = doubts_of_run(&["--source=ami://a@127.0.0.1", queue]);
        assert!(!found.iter().any(|doubt| doubt.kind == CLEAR), "{found:?}");
    }
}
