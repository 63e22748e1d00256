//! A standby, which is a process waiting to become the leader. Until then, its response is that
//! another process is leading.
//!
//! A standby doesn't open any sources, doesn't send anything, and uses a read-only session to read
//! the database. All its listeners respond with 503 and the leader's name, except for `/healthz`,
//! which makes a load balancer or a collector use the leader.

use super::inputs::{self, COMPARE_EVERY, InputFiles};
use super::leadership;
use super::open::zone_name;
use super::tasks::{Tasks, has_stopped};
use crate::config::Config;
use crate::{Failure, OrFail as _};
use callbridge_admin::socket::{self, AnswerRequest};
use callbridge_admin::state_access::close;
use callbridge_admin::{CommandHandler, ControlReply, ControlRequest};
use callbridge_listener::serve::{Limits, Open, serve};
use callbridge_listener::site::{HostRule, SiteRules};
use callbridge_listener::unavailable::Unavailable;
use callbridge_mapping::people::files::Watched;
use callbridge_model::status::{LeaderStatus, LeadershipStatus, Role, Status};
use callbridge_model::{Code, clock};
use callbridge_ops::http::{self, Watch};
use callbridge_ops::metrics::Observed;
use callbridge_ops::systemd;
use callbridge_spool::{
    Error, Fit, Guard, Handle, Leadership, PostgresUrl, Settings, read_postgres, tables,
};
use callbridge_webhook::tls;
use futures_util::FutureExt as _;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Interval between checks of who's leading.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// A running standby.
pub(crate) struct Standby {
    stop: watch::Sender<bool>,
    tasks: Tasks,
    reader: Handle,
    guard: Guard,
}

impl Standby {
    /// Opens the listeners.
    ///
    /// # Errors
    /// Returns an error if a listener can't be opened or the state belongs to another CRM.
    pub(crate) async fn start(
        config: &Config,
        url: &PostgresUrl,
        spool: &Handle,
    ) -> Result<Self, Failure> {
        let (reader, guard) = read_postgres(url, Settings::default())?;
        let (stop, stopped) = watch::channel(false);
        let mut tasks = Tasks::new(&stopped);
        let view = Arc::new(StandbyView {
            state: config.state_place().flag(),
            spool: spool.clone(),
            reader: reader.clone(),
            leadership: spool.leadership(),
            shown: watch::Sender::default(),
            address: config
                .crm
                .as_ref()
                .map(|crm| crm.setup.address.as_str().to_owned()),
            rebind: config.rebind,
            files: InputFiles::from_config(config),
            difference: watch::Sender::default(),
        });
        tasks.start_until_stop(Arc::clone(&view).ping());
        view.read().await?;
        listen(config, &view, &mut tasks).await?;
        tasks.start_until_stop(Arc::clone(&view).keep());
        Ok(Self {
            stop,
            tasks,
            reader,
            guard,
        })
    }

    /// Resolves when any component has failed.
    pub(crate) async fn wait_for_failure(&mut self) -> anyhow::Error {
        loop {
            match self.tasks.next_ended().await {
                Some(Ok(())) => {}
                Some(Err(error)) => return error,
                None => return anyhow::anyhow!("every part has ended"),
            }
        }
    }

    /// Closes the listeners, so that this process can reopen them as the leader.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        self.tasks.join_all().await;
        close(self.reader, self.guard).await;
    }
}

/// Opens the listeners given by the flags.
async fn listen(
    config: &Config,
    view: &Arc<StandbyView>,
    tasks: &mut Tasks,
) -> Result<(), Failure> {
    let mut listeners = Vec::new();
    if let Some(collect) = &config.collect {
        let tls = collect.tls.clone().map(|files| tls::keep("hub", files));
        listeners.push(("--collect", collect.listen, tls));
    }
    if let Some(webhooks) = &config.webhooks {
        let tls = webhooks
            .tls
            .clone()
            .map(|files| tls::keep("webhooks", files));
        listeners.push(("--webhook-listen", webhooks.listen, tls));
    }
    if let Some(page) = &config.page {
        let tls = page.tls.clone().map(|files| tls::keep("page", files));
        listeners.push(("--page", page.listen, tls));
    }
    if let Some(lookup) = &config.lookup {
        listeners.push(("--lookup", lookup.listen, None));
    }
    for (flag, address, kept_tls) in listeners {
        let tls = kept_tls
            .transpose()
            .or_fail_at(Code::Configuration, format_args!("{flag}: certificate"))?;
        let (current, keeping) = tls.unzip();
        if let Some(keeping) = keeping {
            tasks.start_until_stop(keeping.map(Ok));
        }
        let (listener, _) = super::listen_at(flag, address).await?;
        let open = Open {
            name: flag,
            listener,
            tls: current.map(|kept| kept.server),
            limits: Limits::FEW,
            site: SiteRules {
                hosts: HostRule::Any,
                ..SiteRules::STRICT
            },
        };
        let asked = Arc::clone(view);
        let unavailable = Unavailable(Box::new(move || asked.reason()));
        tasks.start(serve(open, Arc::new(unavailable), tasks.stop()));
    }
    if let Some(address) = config.listen {
        let (listener, _) = super::listen_at("--listen", address).await?;
        tasks.start(http::serve(listener, Arc::clone(view), tasks.stop()));
    }
    let place = config.state_place();
    let asked = Arc::clone(view);
    // Problems with the lists are logged once this process is leading.
    let mut lists = Watched::for_trunks(config.rules.every_trunk());
    lists.reload(clock::now().wall);
    let handler = CommandHandler {
        spool: view.reader.clone(),
        rules: config.rules.clone(),
        people: Arc::new(RwLock::new(Arc::new(lists.people().clone()))),
        asking: None,
        zone: zone_name(config),
        field_list_wrapper: None,
        page: None,
        branches: None,
        files_again: BTreeMap::new(),
        status: Box::new(move || {
            let view = Arc::clone(&asked);
            Box::pin(async move { Ok(view.status().await) })
        }),
    };
    let handler = Arc::new(StandbyCommands {
        handler,
        view: Arc::clone(view),
    });
    let folder = place.socket_folder().to_path_buf();
    let what = format_args!("cannot listen for commands in {}", folder.display());
    let listener = socket::listen(&folder).or_fail_at(Code::CannotWrite, what)?;
    tasks.start(socket::keep(folder, listener, handler, tasks.stop()));
    Ok(())
}

/// What a standby shows about itself and the leader.
struct StandbyView {
    state: String,
    /// The spool's thread, which waits for the lock.
    spool: Handle,
    reader: Handle,
    leadership: watch::Receiver<Leadership>,
    /// Who's leading, as of the last read.
    shown: watch::Sender<LeadershipStatus>,
    /// The value of `--crm-url`.
    address: Option<String>,
    rebind: bool,
    files: InputFiles,
    /// Why this process couldn't continue the leader's work.
    difference: watch::Sender<Option<String>>,
}

impl StandbyView {
    /// Feeds systemd's watchdog until the standby ends. It's a separate task, since a read of a
    /// frozen database takes seconds to fail.
    async fn ping(self: Arc<Self>) -> anyhow::Result<()> {
        let mut tick = tokio::time::interval(systemd::interval());
        loop {
            tick.tick().await;
            systemd::alive_as_standby(&self.sentence());
        }
    }

    /// Keeps checking who's leading and comparing the inputs, until the standby ends.
    async fn keep(self: Arc<Self>) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        let mut comparisons = tokio::time::interval(COMPARE_EVERY);
        let mut leader = String::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => self.read().await?,
                _ = comparisons.tick() => self.compare().await,
            }
            let sentence = self.sentence();
            if sentence != leader {
                tracing::info!(leader = sentence, "standby");
                leader = sentence;
            }
        }
    }

    /// Reads which process is leading. Returns an error if this process mustn't lead because the
    /// state is bound to a different CRM URL.
    async fn read(&self) -> Result<(), Error> {
        let address = self.address.clone();
        let rebind = self.rebind;
        let read = self.reader.read(move |store| {
            let binding = tables::meta::binding(store)?;
            if let Some(address) = address
                && !rebind
                && binding.fits_address(&address) == Fit::Other
            {
                let bound = binding.address.unwrap_or_default();
                return Ok(Err(Error::OtherAddress(bound, address)));
            }
            Ok(Ok(leadership::read(store, Role::Standby)?))
        });
        let mut shown = match read.await {
            Ok(Err(error)) => return Err(error),
            Ok(Ok(read)) => read.unwrap_or_default(),
            // The database can't be reached, or doesn't have any tables yet.
            Err(_) => LeadershipStatus::default(),
        };
        leadership::add_health(&mut shown, &self.spool.health());
        shown.problem = shown.problem.or_else(|| self.difference.borrow().clone());
        if let Leadership::Standby {
            leader,
            problem: Some(problem),
        } = &*self.leadership.borrow()
        {
            shown.problem = Some(problem.to_string());
            let known = leader.as_ref().map(|leader| LeaderStatus {
                name: leader.name.clone(),
                version: leader.version.clone(),
                since: leader.since.floor_seconds().get(),
            });
            shown.leader = shown.leader.or(known);
        }
        self.shown.send_replace(shown);
        Ok(())
    }

    /// Compares the token and the lists with the leader's.
    async fn compare(&self) {
        let difference = inputs::difference(&self.files, &self.reader).await;
        if let Some(problem) = &difference
            && *self.difference.borrow() != difference
        {
            tracing::warn!(problem, "this standby could not take over");
        }
        self.difference.send_replace(difference);
    }

    fn sentence(&self) -> String {
        self.shown.borrow().sentence()
    }

    /// Returns why this process isn't responding.
    fn reason(&self) -> String {
        format!("{}; this process is a standby", self.sentence())
    }

    /// Returns the stored part of the status, and which process is leading.
    async fn status(&self) -> Status {
        let at = clock::now().wall.floor_seconds().get();
        let state = self.state.clone();
        let read = self.reader.read(move |store| {
            callbridge_ops::kept::stored_status(store, at, &state, crate::RELEASE)
        });
        let mut status = read.await.unwrap_or_else(|_| Status {
            at,
            state: self.state.clone(),
            version: crate::RELEASE.to_string(),
            ..Status::default()
        });
        let books = &status.books;
        status.backlog.calls = books.ready + books.sending + books.submitted;
        status.token.state = "unknown".to_owned();
        status.leadership = Some(self.shown.borrow().clone());
        status.judged()
    }
}

impl Watch for StandbyView {
    async fn observe(&self) -> Result<Observed, String> {
        // The calls are shown by the leader. If a standby showed them too, totals across all
        // processes would be wrong.
        let status = Status {
            leadership: Some(self.shown.borrow().clone()),
            ..Status::default()
        };
        Ok(Observed {
            status,
            log_lines_lost: callbridge_ops::log::lost_lines(),
            release: crate::RELEASE,
            ..Observed::default()
        })
    }

    fn not_ready(&self) -> Vec<String> {
        vec![self.reason()]
    }
}

/// Responds to commands that only read from the database. All others need the leader.
struct StandbyCommands {
    handler: CommandHandler,
    view: Arc<StandbyView>,
}

impl AnswerRequest for StandbyCommands {
    async fn answer(&self, ask: ControlRequest, who: &str, to: mpsc::Sender<ControlReply>) {
        if ask.only_reads() && !ask.follows() {
            return self.handler.answer(ask, who, to).await;
        }
        let sentence = self.view.sentence();
        let message = format!(
            "{sentence}, and this machine's callbridge is a standby: run the command on the \
             leader's machine"
        );
        let code = Code::Unreachable.number();
        // The client may have disconnected.
        to.send(ControlReply::Error { code, message }).await.ok();
    }
}

/// Resolves when this process is leading.
pub(crate) async fn leads(spool: &Handle) {
    let mut leadership = spool.leadership();
    let leads = leadership.wait_for(Leadership::is_leading);
    if leads.await.is_err() {
        // The thread has ended.
        has_stopped(watch::channel(true).1).await;
    }
}
