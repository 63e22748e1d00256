//! What leaves the daemon: calls to the CRM, notices to the broker; and whether this machine could
//! send, for whoever holds the lease and cannot gives it to one that could. Last: where the
//! sender's token comes from, and whoever keeps it.

use super::open::source_secret;
use super::tasks::{Tasks, has_stopped};
use crate::build_time;
use crate::config::{BrokerTarget, Config, Crm, SourceConfig, TokenFrom};
use callbridge_broker::{Forwarder, OutcomePublisher, notices::Queue};
use callbridge_call::shell::quoted;
use callbridge_crm::{Client, Setup};
use callbridge_fleet::lease::{LeaseKeeper, Terms};
use callbridge_fleet::{FleetReports, ReportStream, lease::handover::Patience};
use callbridge_model::status::fleet::FleetRole;
use callbridge_model::status::{Lease, OutboxProblem, Requests};
use callbridge_model::{
    ETC, Heartbeat, HeartbeatMonitor, Permit, SecretKind, SecretPlace, credstore,
};
use callbridge_oauth::{command, keeper};
use callbridge_ops::metrics::Durations;
use callbridge_sender::crm_proxy::{CrmProxy, asking};
use callbridge_sender::status::{SenderStatus, TokenPlace};
use callbridge_sender::{
    pacer::STRAGGLER, plan::Settings, run::Sender, token::TokenSource, token_update::TokenUpdate,
};
use callbridge_source::{amqp::Login, url::QueueSource};
use callbridge_spool::Handle;
use callbridge_webhook::event_stream::{EventPublisher, EventStream};
use std::path::{Path, PathBuf};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// The ways to the sender.
#[derive(Clone, Debug)]
pub(crate) struct Outward {
    pub sender: watch::Receiver<SenderStatus>,
    /// Asks something of the CRM; without a CRM nobody answers.
    pub asking: CrmProxy,
    /// Requests for tokens, where a connection is kept fresh.
    pub token_requests: watch::Receiver<Requests>,
    /// The reason for which outcomes of calls wait to be written to the stream; `None` while none
    /// do.
    pub untold_outcomes: watch::Receiver<Option<String>>,
    /// The reason for which notices of dead letters wait; not there without a queue for them.
    pub dead_letter_queue: Option<watch::Receiver<Option<OutboxProblem>>>,
    /// The loops that have to turn.
    pub vitals: Vec<HeartbeatMonitor>,
}

/// Starts the sender, where there is a CRM.
pub(crate) fn start_sender(
    config: &Config,
    spool: &Handle,
    durations: &Durations,
    tasks: &mut Tasks,
) -> Outward {
    let (status, sender) = watch::channel(SenderStatus::default());
    let (asking, questions) = asking();
    let mut outward = Outward {
        sender,
        asking,
        token_requests: watch::channel(Requests::new()).1,
        untold_outcomes: watch::channel(None).1,
        dead_letter_queue: None,
        vitals: Vec::new(),
    };
    let Some(crm) = &config.crm else {
        if let Some(forward) = &config.forward {
            let pulse = Heartbeat::new("the forwarder");
            outward.vitals.push(pulse.vital());
            let forwarder = Forwarder::new(&forward.url, source_secret(Some(&forward.secret)));
            tasks.start(forwarder.run(spool.clone(), status, pulse, tasks.stop()));
        }
        return outward;
    };
    let mut setup = crm.setup.clone();
    if config.standby.is_some() {
        setup.permit = Permit::withheld();
    }
    let (able, is_able) = watch::channel(false);
    let keeper = keeper(config, setup.permit.clone());
    let keeper = keeper.map(|it| it.able(is_able, Patience::default()));
    let (ended, sender_ended) = watch::channel(false);
    // It is kept until the sender has ended, so that whoever is next hears of its last request.
    let lease = keeper.map(|keeper| {
        let lease = keeper.shown();
        outward.vitals.push(keeper.pulse.vital());
        tasks.start(keeper.run(has_stopped(sender_ended)));
        let reach = keep_reach(setup.clone(), outward.sender.clone(), lease.clone(), able);
        tasks.start_until_stop(reach);
        lease
    });
    // Of several streams the first has the outcomes of all.
    if let Some(publisher) = config.sources.iter().find_map(outcomes) {
        outward.untold_outcomes = publisher.unreported();
        tasks.start(publisher.run(spool.clone(), tasks.stop()));
    }
    let (token, requests) = keep_token(config, crm, &outward.sender, tasks);
    outward.token_requests = requests;

    let request = durations.request.clone();
    let pulse = Heartbeat::new("the sender");
    outward.vitals.push(pulse.vital());
    let sender = Sender {
        spool: spool.clone(),
        client: Arc::new(Client::new(setup)),
        token,
        settings: Settings {
            rate: crm.rate,
            fields: crm.fields.clone(),
            dry_run: config.dry_run,
            seed: uuid::Uuid::new_v4().as_u64_pair().0,
            clock_right_from: Some(build_time::right_from()),
            token_place: token_place(crm.token.as_ref(), directory_of),
        },
        request_times: Box::new(move |took| request.observe(took.as_secs_f64())),
        questions,
        pulse,
        lease,
    };
    let stop = tasks.stop();
    tasks.start_fallible(async move {
        let ran = sender.run(status, stop).await;
        ended.send_replace(true);
        Ok(ran?)
    });
    outward
}

/// Returns the keeper of the lease, with `--standby`; leave to send goes to `permit`.
pub(crate) fn keeper(config: &Config, permit: Permit) -> Option<LeaseKeeper> {
    let (name, source, queue) = config.lease()?;
    let crm = config.crm.as_ref()?;
    let login = login(source, queue);
    let request = crm.setup.timeouts.total + STRAGGLER;
    let terms = Terms::new(request, crm.rate.longest_window());
    Some(LeaseKeeper::new(login, name, terms, permit))
}

fn login(source: &SourceConfig, queue: &QueueSource) -> Login {
    let secret = source_secret(source.secret.as_ref());
    Login::new(&queue.broker, secret, source.url.ca_file.as_ref())
}

/// The way of events into the stream that all machines of a `--standby` read.
pub(crate) fn event_stream(config: &Config) -> Option<(EventStream, EventPublisher)> {
    let (_, source, queue) = config.lease()?;
    let login = login(source, queue);
    Some(EventPublisher::new(login, queue.queue.clone()))
}

/// The way of calls' outcomes, where this source is a stream of calls.
pub(crate) fn outcomes(flag: &SourceConfig) -> Option<OutcomePublisher> {
    OutcomePublisher::of(&flag.url, || source_secret(flag.secret.as_ref()))
}

/// Returns the status reports that this process writes beside the stream of its calls; a trial
/// writes none.
pub(crate) fn words(config: &Config) -> FleetReports {
    let of_source =
        |it: &SourceConfig| ReportStream::of_source(&it.url, source_secret(it.secret.as_ref()));
    let (role, stream) = match &config.forward {
        Some(it) => {
            let stream = ReportStream::of(&it.url, source_secret(Some(&it.secret)));
            (FleetRole::Collector, Some(stream))
        }
        None => (FleetRole::Sender, config.sources.iter().find_map(of_source)),
    };
    let stream = stream.filter(|_| !config.dry_run);
    FleetReports::new(role, stream, [crate::VERSION, crate::COMMIT])
}

/// The queue for dead letters.
pub(crate) fn queue(dead_letters: &BrokerTarget) -> Queue {
    Queue::new(&dead_letters.url, source_secret(Some(&dead_letters.secret)))
}

/// Between two looks at the way to the CRM, on a machine that does not send.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// And at how the sender does, on the one that does.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Pauses in which nothing can be sent, whoever is to blame. The others are the calls' or a wish.
const UNABLE: [&str; 10] = [
    "outage",
    "token_missing",
    "token_refused",
    "reconnect",
    "client_refused",
    "no_grant",
    "wrong_company",
    "wrong_address",
    "disk",
    "clock",
];

/// Keeps `able` true to what is known: of the holder by what it sends, of another by a question
/// that counts against nobody.
pub(crate) async fn keep_reach(
    setup: Setup,
    shown: watch::Receiver<SenderStatus>,
    mut lease: watch::Receiver<Lease>,
    able: watch::Sender<bool>,
) -> anyhow::Result<()> {
    let mut held = false;
    loop {
        let holds = lease.borrow_and_update().is_held();
        if holds && !held {
            // Until its first request has failed or passed its sender says nothing.
            tokio::time::sleep(CHECK_EVERY).await;
        }
        held = holds;
        let pause = shown.borrow().pause.as_ref().map(|it| it.reason.clone());
        let pause = pause.filter(|reason| UNABLE.contains(&reason.as_str()));
        let (is_able, again) = match (holds, pause.as_deref()) {
            (true, pause) => (pause.is_none(), CHECK_EVERY),
            // An outage that it met while it held may be over.
            (false, None | Some("outage")) => {
                let reached = Client::reach(&setup).await;
                if let Err(why) = &reached {
                    tracing::debug!(reason = %why, "standing by, and the CRM is not reached");
                }
                (reached.is_ok(), ASK_EVERY)
            }
            (false, Some(_)) => (false, CHECK_EVERY),
        };
        able.send_replace(is_able);
        let turned = lease.wait_for(|it| it.is_held() != holds);
        let _ = timeout(again, turned).await;
    }
}

/// The source of the token, its keeper started where it has one; and the requests that one makes.
pub(crate) fn keep_token(
    config: &Config,
    crm: &Crm,
    sender: &watch::Receiver<SenderStatus>,
    tasks: &mut Tasks,
) -> (TokenSource, watch::Receiver<Requests>) {
    let (requests, counted) = watch::channel(Requests::new());
    let (updates, received) = watch::channel(TokenUpdate::default());
    let (sender, stop) = (sender.clone(), tasks.stop());
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
                dir: config.state.clone().unwrap_or_default(),
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

/// A path that systemd tells.
pub(crate) fn directory_of(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Returns the place where a person puts a new token. A credential of systemd's is a copy that the
/// service was given at its start; its file is the one of which that copy is made.
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
    let of_copy = || {
        let folder = variable("STATE_DIRECTORY")?;
        Some(folder.file_name()?.to_str()?.to_owned())
    };
    let stored = || {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_prefix("callbridge.")?.strip_suffix(".token")?;
        Some(name.to_owned())
    };
    let service = if copied { of_copy() } else { stored() };
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

/// The source of a token that nobody has to keep.
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

    #[test]
    fn a_new_token_goes_where_it_is_read_from_and_counts_after_a_restart_where_it_is_a_copy() {
        let secret = || Secret::from("t".to_owned());
        let credentials = "/run/credentials/callbridge@hq.service";
        let copied = |name: &str| match name {
            "CREDENTIALS_DIRECTORY" => Some(PathBuf::from(credentials)),
            _ => Some(PathBuf::from("/var/lib/callbridge/hq")),
        };
        let file = |path: &str| SecretPlace::File(PathBuf::from(path));
        let stored = "/etc/credstore/callbridge.hq.token";
        let restarted =
            "/etc/credstore/callbridge.hq.token, then `systemctl restart callbridge@hq`";
        for (place, in_service, wants) in [
            (file("/etc/t"), true, "/etc/t, it is read again by itself"),
            (file(&format!("{credentials}/token")), true, restarted),
            (file(stored), false, restarted),
            (
                SecretPlace::Held(PathBuf::from("/root/t"), secret()),
                false,
                "/root/t, then restart callbridge",
            ),
            (
                SecretPlace::Variable(secret()),
                false,
                "CALLBRIDGE_TOKEN, then restart callbridge",
            ),
        ] {
            let token = Some(TokenFrom::Place(place));
            let variable = |name: &str| in_service.then(|| copied(name)).flatten();
            assert_eq!(
                super::token_place(token.as_ref(), variable).to_string(),
                wants
            );
        }
        assert_eq!(super::token_place(None, copied), TokenPlace::default());
    }
}
