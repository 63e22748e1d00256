//! What comes in: sources, trunks, lists; and the queue and stream that are published to.

use super::finding::CheckFinding;
use crate::config::checked::{Config, SourceConfig as SourceFlag};
use crate::daemon::open::{source_of, source_secret};
use crate::daemon::outward::{self, keeper, queue};
use callbridge_asterisk::survey::Account;
use callbridge_dead_letter::queue;
use callbridge_forward::Forwarder;
use callbridge_mapping::people::rule::LeadRule;
use callbridge_mapping::trunk::Trunk;
use callbridge_model::exit::Code;
use callbridge_model::permit::Permit;
use callbridge_source::Fix;
use callbridge_source::StreamReading;
use callbridge_source::url::Transport;
use std::io::ErrorKind;
use std::path::Path;

/// Opens the source once, as far as it goes without taking anything from it.
///
/// Of a manager account: what it may do and hear.
pub(crate) async fn source(flag: &SourceFlag) -> (CheckFinding, Option<Account>) {
    let name = format!("source {}", flag.url.public());
    match source_of(0, flag, None, &StreamReading::default())
        .probe()
        .await
    {
        Ok(account) => (CheckFinding::well(name, "can be read"), account),
        Err(error) => {
            let (what, todo) = split(&error.to_string());
            let code = code(&error, &flag.url.transport);
            (CheckFinding::fault(code, name, what, todo), None)
        }
    }
}

/// The queue for dead letters: whether the broker lets us in and the queue is there.
pub(crate) async fn dead_letters(config: &Config) -> Option<CheckFinding> {
    let flag = config.dead_letters.as_ref()?;
    let name = format!("dead letters {}", flag.url.public());
    Some(match queue(flag).probe().await {
        Ok(()) => CheckFinding::well(name, "the queue is there"),
        Err(error) => {
            let code = match &error {
                queue::Error::Broker(error) => by(error.fix()),
                queue::Error::NoRight { .. } => Code::NoPermission,
                queue::Error::Lost(_) | queue::Error::NotTaken { .. } | queue::Error::Spool(_) => {
                    Code::Unreachable
                }
            };
            let (what, todo) = split(&error.to_string());
            CheckFinding::fault(code, name, what, todo)
        }
    })
}

/// The stream that calls are forwarded to: whether the broker lets us in and the stream is there.
pub(crate) async fn forward(config: &Config) -> Option<CheckFinding> {
    let flag = config.forward.as_ref()?;
    let name = format!("forward {}", flag.url.public());
    let forwarder = Forwarder::new(&flag.url, source_secret(&flag.secret));
    Some(match forwarder.probe().await {
        Ok(()) => CheckFinding::well(name, "the stream is there"),
        Err(error) => {
            let code = error.fix().map_or(Code::Unreachable, by);
            let (what, todo) = split(&error.to_string());
            CheckFinding::fault(code, name, what, todo)
        }
    })
}

/// The lease of `--standby`: whether its queue can be declared, written to and read.
pub(crate) async fn lease(config: &Config) -> Option<CheckFinding> {
    let keeper = keeper(config, Permit::withheld())?;
    let name = format!("standby {}", config.standby.as_deref().unwrap_or_default());
    Some(match keeper.probe().await {
        Ok(()) => CheckFinding::well(name, "the lease can be held and taken over"),
        Err(error) => {
            let code = error.fix().map_or(Code::Unreachable, by);
            let (what, todo) = split(&error.to_string());
            CheckFinding::fault(code, name, what, todo)
        }
    })
}

/// Whether a sender may tell the stream what became of its calls.
pub(crate) async fn outcomes(flag: &SourceFlag) -> Option<CheckFinding> {
    let name = format!("outcomes {}", flag.url.public());
    Some(match outward::outcomes(flag)?.probe().await {
        Ok(()) => CheckFinding::well(name, "may be written to the stream"),
        Err(error) => {
            let (what, todo) = split(&error.to_string());
            CheckFinding::advice(name, what, todo)
        }
    })
}

/// Whether the broker of a stream refuses what is longer than is read. Where that cannot be tried,
/// `outcomes` says why.
pub(crate) async fn lengths(flag: &SourceFlag) -> Option<CheckFinding> {
    let name = format!("messages {}", flag.url.public());
    match outward::outcomes(flag)?.probe_length().await {
        Ok(true) => Some(CheckFinding::well(
            name,
            "the broker refuses those that are too long to be read",
        )),
        Ok(false) => {
            let what = "the broker takes messages that are too long to be read (above 1 MiB)";
            let todo = "put max_message_size = 1048576 into its rabbitmq.conf, as \
                        deploy/rabbitmq/rabbitmq.conf has it";
            Some(CheckFinding::advice(name, what, todo))
        }
        Err(_) => None,
    }
}

/// With `--standby`, whether events of the CRM get into the stream that every machine reads.
pub(crate) async fn event_stream(config: &Config) -> Option<CheckFinding> {
    config.webhooks.as_ref()?;
    let (_, source, queue) = config.lease()?;
    let name = format!("webhooks {}", source.url.public());
    Some(match outward::outcomes(source)?.probe().await {
        Ok(()) => CheckFinding::well(name, "go into the stream, for every machine"),
        Err(callbridge_forward::Error::NotTaken { words, .. }) => {
            let todo = format!(
                "let {} write to amq.default; until then every event is answered 503, and given \
                 up by the CRM after 36 minutes",
                queue.broker.user
            );
            let what = format!("they cannot be put into stream {}: {words}", queue.queue);
            CheckFinding::fault(Code::NoPermission, name, what, todo)
        }
        Err(error) => {
            let code = error.fix().map_or(Code::Unreachable, by);
            let (what, todo) = split(&error.to_string());
            CheckFinding::fault(code, name, what, todo)
        }
    })
}

/// The stream of last words: what it lacks touches no call.
pub(crate) async fn words(config: &Config) -> Option<CheckFinding> {
    let (stream, found) = outward::words(config).probe().await?;
    let name = format!("last words {stream}");
    Some(match found {
        Ok(()) => CheckFinding::well(name, "the stream takes them"),
        Err(error) => {
            let (what, todo) = split(&error.to_string());
            CheckFinding::advice(name, what, todo)
        }
    })
}

/// A file that is not there is the only source with a code of its own.
fn code(error: &callbridge_source::Error, transport: &Transport) -> Code {
    match transport {
        Transport::File { path, .. } if is_missing(path) => Code::NoInput,
        Transport::File { .. }
        | Transport::Ami { .. }
        | Transport::Esl { .. }
        | Transport::WebSocket { .. }
        | Transport::Amqp(_) => by(error.fix()),
    }
}

/// A file behind a folder that we may not enter is there for all we know.
fn is_missing(path: &Path) -> bool {
    let looked = path.metadata();
    looked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn by(fix: Fix) -> Code {
    match fix {
        Fix::Remote => Code::Unreachable,
        Fix::Secret => Code::NoPermission,
        Fix::Settings => Code::Configuration,
    }
}

/// The words of an error up to its advice, and the advice.
fn split(words: &str) -> (String, String) {
    match words.split_once("; ") {
        Some((what, todo)) => (what.to_owned(), todo.to_owned()),
        None => (
            words.to_owned(),
            "mend it there; callbridge tries again by itself".to_owned(),
        ),
    }
}

/// The directory of leads may know some from before, and learns of none.
fn learns_nothing(config: &Config, trunk: &Trunk) -> bool {
    let asks = trunk
        .leads
        .iter()
        .any(|rule| matches!(rule, LeadRule::Directory));
    asks && config.webhooks.is_none() && !config.lead_directory
}

/// Lead rules that can never give a lead with these sources.
pub(crate) fn trunks(config: &Config) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    for trunk in config.rules.trunks.iter() {
        let name = format!("trunk {}", trunk.name);
        let by_variable = trunk.leads.iter().find_map(|rule| match rule {
            LeadRule::Variable(variable) => Some(variable),
            LeadRule::UserField(_) | LeadRule::Csv(_) | LeadRule::Directory => None,
        });
        let mut of_pbx = config.sources.iter().filter(|source| {
            trunk.pbx.is_none() || source.pbx.is_none() || trunk.pbx == source.pbx
        });
        let carries = |source: &SourceFlag| source.url.format().has_variables();
        match by_variable {
            Some(variable) if trunk.leads.len() == 1 && !of_pbx.any(carries) => {
                found.push(CheckFinding::fault(
                    Code::Configuration,
                    name,
                    format!("lead=var:{variable}, and CEL carries no channel variables"),
                    "give lead=csv:FILE or lead=userfield:REGEX, or an ami source",
                ));
            }
            _ if learns_nothing(config, trunk) => found.push(CheckFinding::fault(
                Code::Configuration,
                name,
                "lead=directory, and nothing teaches the directory",
                "give --webhook-listen, or --lead-directory, or both",
            )),
            // A message may bring its lead, and who forwards leaves it to the sender.
            _ if !trunk.has_channels() => {
                found.push(CheckFinding::well(name, "calls whose message names it"));
            }
            _ if trunk.leads.is_empty() && trunk.journal && !config.rules.forwards => {
                found.push(CheckFinding::fault(
                    Code::Configuration,
                    name,
                    "no lead rule: every call would be parked",
                    "give lead=var:NAME, lead=userfield:REGEX, lead=csv:FILE or lead=directory",
                ))
            }
            _ => found.push(CheckFinding::well(
                name,
                format!("channels of {}", trunk.endpoint),
            )),
        }
    }
    found
}
