//! Data that leaves the daemon, which is calls to the CRM and notices to the broker, and where the
//! sender's token comes from.

use super::open::source_secret;
use super::tasks::Tasks;
use crate::build_time;
use crate::config::{BrokerTarget, Config, Crm, TokenFrom};
use callbridge_broker::notices::Queue;
use callbridge_call::shell::quoted;
use callbridge_crm::Client;
use callbridge_model::status::{OutboxProblem, Requests};
use callbridge_model::{ETC, Heartbeat, HeartbeatMonitor, SecretKind, SecretPlace, credstore};
use callbridge_oauth::{command, keeper};
use callbridge_ops::metrics::Durations;
use callbridge_sender::crm_proxy::{CrmProxy, question_channel};
use callbridge_sender::status::{SenderStatus, TokenPlace};
use callbridge_sender::{
    plan::Settings, run::Sender, token::TokenSource, token_update::TokenUpdate,
};
use callbridge_spool::Handle;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// Receivers and handles of the sender and its helpers.
#[derive(Clone, Debug)]
pub(crate) struct Outward {
    pub sender: watch::Receiver<SenderStatus>,
    /// Sends requests to the CRM through the sender. Without a CRM, there's never a response.
    pub asking: CrmProxy,
    /// Counts of token requests, which are only made for a connection by consent.
    pub token_requests: watch::Receiver<Requests>,
    /// Why dead letter notices are waiting, or `None` without a queue for them.
    pub dead_letter_queue: Option<watch::Receiver<Option<OutboxProblem>>>,
    /// Heartbeats of the loops that must keep running.
    pub vitals: Vec<HeartbeatMonitor>,
}

/// Starts the sender if there's a CRM.
pub(crate) fn start_sender(
    config: &Config,
    spool: &Handle,
    durations: &Durations,
    tasks: &mut Tasks,
    keeper: &mut Tasks,
) -> Outward {
    let (status, sender) = watch::channel(SenderStatus::default());
    let (asking, questions) = question_channel();
    let mut outward = Outward {
        sender,
        asking,
        token_requests: watch::channel(Requests::new()).1,
        dead_letter_queue: None,
        vitals: Vec::new(),
    };
    let Some(crm) = &config.crm else {
        return outward;
    };
    let (token, requests) = keep_token(config, crm, spool, &outward.sender, keeper);
    outward.token_requests = requests;

    let request = durations.request.clone();
    let pulse = Heartbeat::new("the sender");
    outward.vitals.push(pulse.vital());
    let sender = Sender {
        spool: spool.clone(),
        client: Arc::new(Client::new(crm.setup.clone())),
        token,
        settings: Settings {
            rate: crm.rate,
            fields: crm.fields.clone(),
            dry_run: config.dry_run,
            seed: uuid::Uuid::new_v4().as_u64_pair().0,
            clock_right_from: Some(build_time::right_from()),
            is_hub: config.collect.is_some(),
            by_proxy: crm.setup.proxy.is_some(),
            token_place: token_place(crm.token.as_ref(), directory_of),
        },
        request_times: Box::new(move |took| request.observe(took.as_secs_f64())),
        questions,
        pulse,
    };
    let stop = tasks.stop();
    tasks.start_fallible(async move { Ok(sender.run(status, stop).await?) });
    outward
}

/// Returns the queue for dead letters.
pub(crate) fn queue(dead_letters: &BrokerTarget) -> Queue {
    Queue::new(&dead_letters.url, source_secret(Some(&dead_letters.secret)))
}

/// Returns where the token comes from, along with the counts of the requests made by its keeper.
/// Starts the keeper if the token comes from a command or a connection.
pub(crate) fn keep_token(
    config: &Config,
    crm: &Crm,
    spool: &Handle,
    sender: &watch::Receiver<SenderStatus>,
    tasks: &mut Tasks,
) -> (TokenSource, watch::Receiver<Requests>) {
    let (requests, counted) = watch::channel(Requests::new());
    let (updates, received) = watch::channel(TokenUpdate::default());
    let sender = sender.clone();
    let stop = tasks.stop();
    let source = match &crm.token {
        None => TokenSource::Missing,
        Some(TokenFrom::Place(place)) => token_source(place),
        Some(TokenFrom::Command(command)) => {
            let command = command.clone();
            let keeper = command::Keeper { command, updates };
            tasks.start(keeper.run(sender, stop));
            TokenSource::Kept(received)
        }
        Some(TokenFrom::Connection) => {
            let keeper = keeper::Keeper {
                state: spool.clone(),
                place: config.state_place(),
                setup: crm.setup.clone(),
                auth: crm.auth.clone(),
                rebind: config.rebind,
                updates,
                requests,
            };
            tasks.start(keeper.run(sender, stop));
            TokenSource::Kept(received)
        }
    };
    (source, counted)
}

/// Returns the path that systemd passes in the environment variable `name`.
pub(crate) fn directory_of(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Returns where to put a new token. A systemd credential is a copy that the service received at
/// startup, so that's the file that was copied. `variable` reads an environment variable.
pub(crate) fn token_place(
    token: Option<&TokenFrom>,
    variable: impl Fn(&str) -> Option<PathBuf>,
) -> TokenPlace {
    let Some(TokenFrom::Place(place)) = token else {
        return TokenPlace::default();
    };
    let Some(path) = place.file() else {
        return TokenPlace {
            name: SecretKind::Token.variable(),
            then: Some("restart callbridge".to_owned()),
        };
    };
    let copied = variable("CREDENTIALS_DIRECTORY").is_some_and(|folder| path.starts_with(folder));
    let service = if copied {
        variable("STATE_DIRECTORY").and_then(|folder| service_of_state(&folder))
    } else {
        service_of_credential(path)
    };
    let file = match &service {
        Some(service) if copied => {
            credstore(Path::new(ETC)).join(format!("callbridge.{service}.token"))
        }
        Some(_) | None => path.to_path_buf(),
    };
    let then = match service {
        Some(service) => Some(format!(
            "`systemctl restart {}`",
            quoted(&format!("callbridge@{service}"))
        )),
        None if place.fixed().is_some() || copied => Some("restart callbridge".to_owned()),
        None => None,
    };
    let name = file.display().to_string();
    TokenPlace { name, then }
}

/// Returns a service's instance, based on the state directory that systemd created for it.
fn service_of_state(folder: &Path) -> Option<String> {
    Some(folder.file_name()?.to_str()?.to_owned())
}

/// Returns a service's instance, based on its credential's file, `callbridge.NAME.token`.
fn service_of_credential(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let instance = name.strip_prefix("callbridge.")?.strip_suffix(".token")?;
    Some(instance.to_owned())
}

/// Returns the source for a token that doesn't need a keeper.
pub(crate) fn token_source(place: &SecretPlace) -> TokenSource {
    match (place.fixed(), place.file()) {
        (Some(token), _) => TokenSource::Fixed(token),
        (None, Some(path)) => TokenSource::File(path.to_owned()),
        (None, None) => TokenSource::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::Secret;

    const CREDENTIALS: &str = "/run/credentials/callbridge@hq.service";

    /// Returns the value of an environment variable that systemd sets for a service.
    fn service_variable(name: &str) -> PathBuf {
        PathBuf::from(match name {
            "CREDENTIALS_DIRECTORY" => CREDENTIALS,
            _ => "/var/lib/callbridge/hq",
        })
    }

    fn file(path: &str) -> SecretPlace {
        SecretPlace::File(PathBuf::from(path))
    }

    #[test]
    fn token_place_names_source_and_needed_restart() {
        let stored = "/etc/credstore/callbridge.hq.token";
        let with_restart =
            "/etc/credstore/callbridge.hq.token, then `systemctl restart callbridge@hq`";
        for (place, in_service, expected) in [
            (
                file("/etc/t"),
                true,
                "/etc/t, it is read again automatically",
            ),
            (file(&format!("{CREDENTIALS}/token")), true, with_restart),
            (file(stored), false, with_restart),
            (
                SecretPlace::Variable(Secret::from("t".to_owned())),
                false,
                "CALLBRIDGE_TOKEN, then restart callbridge",
            ),
        ] {
            let token = Some(TokenFrom::Place(place));
            let found = token_place(token.as_ref(), |name| {
                in_service.then(|| service_variable(name))
            });
            assert_eq!(found.to_string(), expected);
        }
        let found = token_place(None, |name| Some(service_variable(name)));
        assert_eq!(found, TokenPlace::default());
    }
}
