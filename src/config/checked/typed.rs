//! From flags as typed to a [`Config`], or all that is wrong with them.

use super::{
    BrokerTarget, Config, SourceConfig, crm, hub, lookup, page, sources, trunks, webhooks,
};
use crate::config::flags::{CallFlags, Flags, LogFlags, OperationFlags};
use crate::config::{Faults, arguments};
use crate::state_owner::other_owner;
use crate::values;
use callbridge_admin::socket;
use callbridge_mapping::Rules;
use callbridge_model::{Environment, SecretKind, SecretPlace};
use callbridge_ops::log::Logging;
use callbridge_source::{BrokerUrl, Transport, url::UrlFault};
use callbridge_spool::{PostgresUrl, StatePlace};
use jiff::tz::TimeZone;
use std::{
    os::unix::fs::FileTypeExt as _, os::unix::fs::MetadataExt as _, os::unix::net::UnixStream,
    path::Path, path::PathBuf, time::Duration,
};
use tracing::Level;

/// The surroundings of a check of flags: the environment in which secrets may stand, and the faults
/// so far.
pub(crate) struct Checking<'a> {
    pub environment: &'a Environment,
    pub faults: Faults,
    /// The needs of `run` are checked, too: sources, trunks and, unless it is a dry run, a CRM and
    /// its token. A recording is judged by what is known.
    pub needs: bool,
}

impl<'a> Checking<'a> {
    pub(crate) fn new(environment: &'a Environment, faults: Faults) -> Self {
        Self {
            environment,
            faults,
            needs: false,
        }
    }

    /// The same for a command that works as `run` does.
    pub(crate) fn for_run(mut self) -> Self {
        self.needs = true;
        self
    }

    /// Takes the value found for this flag; its absence is a fault where it is needed.
    pub(super) fn needed<T>(&mut self, flag: &str, found: Result<T, String>) -> Option<T> {
        match found {
            Err(words) if self.needs => self.faults.take(flag, Err(words)),
            found => found.ok(),
        }
    }

    /// A line to a broker besides the sources, with its secret.
    fn broker(
        &mut self,
        flag: &str,
        kind: SecretKind,
        url: Option<Result<BrokerUrl, Vec<UrlFault>>>,
    ) -> Option<BrokerTarget> {
        let url = self.faults.take_all(flag, url?)?;
        let secret = SecretPlace::find(kind, url.secret_file.as_deref(), self.environment);
        let secret = self.needed(flag, secret)?;
        Some(BrokerTarget { url, secret })
    }

    /// Checks the flags as typed; returns the configuration, or all faults at once.
    pub(crate) fn config(mut self, flags: Flags) -> Result<Config, Faults> {
        let (it, operation) = (&mut self, &flags.operation);
        let collects = flags.hub.collects();
        let sources = sources::check(&flags.sources, collects, it);
        let zone_flag = &flags.sources.pbx_timezone;
        let pbx_timezone = it.faults.read("--pbx-timezone", zone_flag, values::zone);
        let zone = pbx_timezone.clone().unwrap_or(TimeZone::UTC);
        let columns = &flags.sources.columns;
        let columns = it.faults.read("--columns", columns, sources::columns);
        let date = |text: &str| callbridge_model::dates::date(text, &zone);
        let begins = &flags.calls.not_before;
        let not_before = it.faults.read("--not-before", begins, date);
        let rules = trunks::rules(&flags, &sources, it);
        let rules = Rules {
            not_before,
            ..rules
        };
        let place = state_place(operation.state.as_deref(), it.environment);
        // Root does not look for a connection in another user's folder. The command is refused.
        let is_others = place
            .as_ref()
            .is_ok_and(|place| other_owner(place.socket_folder()).is_some());
        // A recording is judged without a token, whatever lies there.
        let connected = match &place {
            Ok(place) if it.needs && !is_others => callbridge_oauth::store::exists(place),
            Ok(_) | Err(_) => Some(false),
        };
        let forwards = flags.hub.forwards();
        let needs_no_crm = operation.dry_run || is_others || forwards;
        let crm = crm::check(&flags.crm, (needs_no_crm, connected), it);
        let webhooks = webhooks::check(&flags.webhooks, it);
        let collect = hub::collect(&flags.hub, it);
        let forward = hub::forward(&flags.hub, it);
        if forwards {
            refuse_in_collector(&flags, &mut it.faults);
        }
        let page = page::check(&flags.page, it);
        let lookup = lookup::check(&flags.lookup, it);
        let calls = calls(&flags.calls, &mut it.faults);
        let state = it.needed("--state", place);
        let instance = instance(operation, state.as_ref(), &mut it.faults);
        let of_database = state.as_ref().and_then(StatePlace::database);
        if it.needs && of_database.is_some() {
            refuse_sources_without_history(&sources, &mut it.faults);
        }
        let address = |text: &str| values::address(text, "");
        let listen = it.faults.read("--listen", &operation.listen, address);
        refuse_unknown_variables(it.environment, &mut it.faults);
        // The faults of these are told in their order here.
        let letters = operation.dead_letter_queue.as_deref().map(BrokerUrl::queue);
        let config = Config {
            pbx_id: flags.sources.pbx_id.clone(),
            pbx_timezone,
            columns,
            rules,
            lead_directory: flags.trunks.lead_directory,
            collect,
            forward,
            webhooks,
            page,
            lookup,
            calls,
            state,
            instance,
            listen,
            dead_letters: it.broker("--dead-letter-queue", SecretKind::DeadLetter, letters),
            notify: notify(operation, &mut it.faults),
            log: logging(&flags.log, &mut it.faults),
            sources,
            crm,
            rebind: operation.rebind,
            until_idle: operation.until_idle,
            dry_run: operation.dry_run,
        };
        self.faults.or(config)
    }
}

/// Flags that only the hub can use.
fn refuse_in_collector(flags: &Flags, faults: &mut Faults) {
    let given = [
        ("--crm-url", flags.crm.crm_url.is_some()),
        ("--token-file", flags.crm.token_file.is_some()),
        ("--token-command", flags.crm.token_command.is_some()),
        ("--rate", flags.crm.rate.is_some()),
        ("--lead-field", flags.crm.lead_field.is_some()),
        ("--lead-directory", flags.trunks.lead_directory),
        ("--require-employee", flags.trunks.require_employee),
        ("--webhook-listen", flags.webhooks.webhook_listen.is_some()),
        ("--dry-run", flags.operation.dry_run),
        ("--rebind", flags.operation.rebind),
    ];
    hub::refuse_crm_flags(&given, faults);
}

/// An unknown variable is a fault, as an unknown flag is: otherwise it would be ignored.
fn refuse_unknown_variables(environment: &Environment, faults: &mut Faults) {
    let unknown = arguments::unknown_variables(environment);
    if unknown.is_empty() {
        return;
    }
    let known: Vec<String> = arguments::known_variables().into_iter().collect();
    let words = format!("no such variable. The known ones are {}", known.join(", "));
    faults.add(&unknown.join(", "), words);
}

/// `--notify-command`, `--notify-missed`. An empty command, as from a variable, is none.
fn notify(flags: &OperationFlags, faults: &mut Faults) -> Option<callbridge_ops::notify::Settings> {
    let missed = faults.read("--notify-missed", &flags.notify_missed, values::duration);
    let command = flags.notify_command.clone();
    let command = command.filter(|text| !text.trim().is_empty());
    let words = "has no effect without --notify-command";
    let is_alone = missed.is_some() && command.is_none();
    faults.add_if(is_alone, "--notify-missed", words);
    Some(callbridge_ops::notify::Settings {
        command: command?,
        missed,
    })
}

/// Reads `--settle`, `--cdr-wait`, `--max-call` and `--max-open-calls`.
fn calls(flags: &CallFlags, faults: &mut Faults) -> callbridge_call::Settings {
    const CDR_WAIT: Duration = Duration::from_secs(10);
    let usual = callbridge_call::Settings::new(Default::default());
    let mut time = |flag, text| faults.read(flag, text, values::duration);
    let settle = time("--settle", &flags.settle);
    let cdr_wait = time("--cdr-wait", &flags.cdr_wait);
    let max_call = time("--max-call", &flags.max_call);
    let number = |text: &str| values::number(text, 1..=1_000_000);
    let most = faults.read("--max-open-calls", &flags.max_open_calls, number);
    callbridge_call::Settings {
        settle: settle.unwrap_or(usual.settle),
        cdr_wait: cdr_wait.or(Some(CDR_WAIT)),
        max_call: max_call.unwrap_or(usual.max_call),
        max_open_calls: most.unwrap_or(usual.max_open_calls),
        ..usual
    }
}

/// Name of this process among those of a database: `--instance`, or else the host's name.
fn instance(
    flags: &OperationFlags,
    state: Option<&StatePlace>,
    faults: &mut Faults,
) -> Option<String> {
    let name = faults.read("--instance", &flags.instance, |text| {
        if text.is_empty() || text.len() > INSTANCE_BYTES_MAX || text.contains(char::is_control) {
            return Err(format!("give a name of 1 to {INSTANCE_BYTES_MAX} bytes"));
        }
        Ok(text.to_owned())
    });
    let in_folder = state.is_some_and(|state| state.folder().is_some());
    let message = "has no effect without --state postgres://…";
    faults.add_if(name.is_some() && in_folder, "--instance", message);
    name
}

/// Another machine continues after a takeover. It must find the calls that ended meanwhile.
fn refuse_sources_without_history(sources: &[SourceConfig], faults: &mut Faults) {
    for source in sources {
        let has_history = match source.url.transport {
            Transport::File { .. } | Transport::Amqp(_) => true,
            Transport::Ami { .. } | Transport::Esl { .. } | Transport::WebSocket { .. } => false,
        };
        let is_filled = sources
            .iter()
            .any(|other| other.catch_up && other.pbx == source.pbx);
        if !has_history && !is_filled {
            let message = format!(
                "{} has no history, so calls during a takeover would be lost: add --catch-up with \
                 the PBX's CDR file, or run a collector next to the PBX (--forward)",
                source.url.public()
            );
            faults.add("--source", message);
        }
    }
}

/// The folder for sockets of services whose state is in a database.
const SOCKETS: &str = "/run/callbridge";
/// The server shows the name next to the version, within 63 bytes.
const INSTANCE_BYTES_MAX: usize = 40;

/// The folder in which services keep their states, a folder each.
pub(crate) const STATES: &str = "/var/lib/callbridge";

/// The folder of whoever is asked: where no daemon runs on the usual one, that of the only service
/// of this machine that does.
pub(crate) fn state_of_daemon(usual: PathBuf, services: &Path) -> PathBuf {
    let listens = |dir: &Path| {
        let socket = dir.join(socket::NAME);
        let found = socket.symlink_metadata();
        if !found.is_ok_and(|metadata| metadata.file_type().is_socket()) {
            return false;
        }
        // Another user's socket is not connected to. The command refuses that folder afterward.
        other_owner(dir).is_some() || UnixStream::connect(socket).is_ok()
    };
    if listens(&usual) {
        return usual;
    }
    let folders = services.read_dir().into_iter().flatten().flatten();
    let folders = folders.filter(|it| it.file_type().is_ok_and(|it| it.is_dir()));
    let mut running = folders.map(|it| it.path()).filter(|it| listens(it));
    match (running.next(), running.next()) {
        (Some(only), None) => only,
        (Some(_) | None, _) => usual,
    }
}

/// The state of `--state`: a folder or a database. Without the flag, it is the folder
/// `$STATE_DIRECTORY`, or else `~/.local/state/callbridge`.
pub(crate) fn state_place(
    flag: Option<&str>,
    environment: &Environment,
) -> Result<StatePlace, String> {
    match flag {
        Some("") => Err("is empty: give a folder or a database".to_owned()),
        Some(flag) if PostgresUrl::is_url(flag) => {
            StatePlace::in_database(flag, &socket_base(environment)?)
        }
        Some(flag) => Ok(StatePlace::Folder(PathBuf::from(flag))),
        None => Ok(StatePlace::Folder(state_folder(environment)?)),
    }
}

/// The folder with sockets of daemons whose state is in a database: that of systemd, or else
/// `/run/callbridge`, this user's own runtime folder, or a folder below `/tmp`.
fn socket_base(environment: &Environment) -> Result<PathBuf, String> {
    let all = environment.text("RUNTIME_DIRECTORY");
    if let Some(first) = all.and_then(|all| all.split(':').next()) {
        return Ok(PathBuf::from(first));
    }
    let user = rustix::process::geteuid();
    let of_service = Path::new(SOCKETS);
    let found = of_service.metadata();
    if found.is_ok_and(|found| user.is_root() || found.uid() == user.as_raw()) {
        return Ok(of_service.to_path_buf());
    }
    if let Some(own) = environment.path("XDG_RUNTIME_DIR") {
        return Ok(own.join("callbridge"));
    }
    let shared = PathBuf::from(format!("/tmp/callbridge-{}", user.as_raw()));
    let found = shared.symlink_metadata();
    if found.is_ok_and(|found| found.uid() != user.as_raw() || !found.is_dir()) {
        let message = format!("{} belongs to another user: remove it", shared.display());
        return Err(message);
    }
    Ok(shared)
}

fn state_folder(environment: &Environment) -> Result<PathBuf, String> {
    // systemd names several folders with colons between them; ours is the first.
    let all = environment.text("STATE_DIRECTORY");
    if let Some(first) = all.and_then(|all| all.split(':').next()) {
        return Ok(PathBuf::from(first));
    }
    let home = environment.path("HOME");
    let home = home.ok_or("is missing, and there is no $HOME to keep it in")?;
    Ok(home.join(".local/state/callbridge"))
}

/// The flags about logs, checked.
pub(crate) fn logging(flags: &LogFlags, faults: &mut Faults) -> Logging {
    let level = faults.read("--log", &flags.log, values::level);
    let json = |text: &str| values::word(text, &[("text", false), ("json", true)]);
    let json = faults.read("--log-format", &flags.log_format, json);
    Logging {
        level: level.unwrap_or(Level::INFO),
        json: json.unwrap_or(false),
        phones: flags.log_phones,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_only_service_that_runs_is_asked_and_of_several_none() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = |name: &str| {
            let folder = place.path().join(name);
            std::fs::create_dir_all(&folder).expect("made");
            folder
        };
        let listen = |at: &Path| UnixListener::bind(at.join(socket::NAME)).expect("listens");
        let services = folder("lib");
        let asked = || state_of_daemon(place.path().join("own"), &services);
        let own = place.path().join("own");
        assert_eq!(asked(), own, "nothing runs");
        let (first, second) = (folder("lib/hq"), folder("lib/branch"));
        std::fs::write(second.join(socket::NAME), "").expect("written");
        let _hq = listen(&first);
        assert_eq!(asked(), first);
        std::fs::remove_file(second.join(socket::NAME)).expect("removed");
        let branch = listen(&second);
        assert_eq!(asked(), own, "which of the two?");
        // One that was killed leaves its socket behind.
        drop(branch);
        assert_eq!(asked(), first);
        let _own = listen(&folder("own"));
        assert_eq!(asked(), own, "the usual one runs");
    }

    #[test]
    fn socket_of_another_user_is_found_without_connecting() {
        if !rustix::process::geteuid().is_root() {
            let line = b"\nnot run: the socket of another user (needs root)\n";
            let said = std::io::Write::write_all(&mut std::io::stderr(), line);
            return said.expect("stderr");
        }
        let place = tempfile::tempdir().expect("a folder");
        let service = place.path().join("hq");
        std::fs::create_dir(&service).expect("made");
        let socket = UnixListener::bind(service.join(socket::NAME)).expect("listens");
        socket.set_nonblocking(true).expect("set");
        std::os::unix::fs::chown(&service, Some(61_234), Some(61_234)).expect("given");
        let found = state_of_daemon(place.path().join("own"), place.path());
        assert_eq!(found, service);
        let error = socket.accept().expect_err("no connection");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
}
