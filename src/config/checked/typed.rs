//! Turns flags as typed into a [`Config`], or returns all errors in them.

use super::place::state_place;
use super::{
    BrokerTarget, Config, SourceConfig, crm, hub, lookup, page, sources, trunks, webhooks,
};
use crate::config::flags::{CallFlags, Flags, LogFlags, OperationFlags};
use crate::config::{Faults, arguments};
use crate::state_owner::other_owner;
use crate::values;
use callbridge_mapping::Rules;
use callbridge_model::{Environment, SecretKind, SecretPlace};
use callbridge_ops::log::Logging;
use callbridge_source::{BrokerUrl, Transport, url::UrlFault};
use callbridge_spool::StatePlace;
use jiff::tz::TimeZone;
use std::time::Duration;
use tracing::Level;

/// Context of a check of flags: the environment, which can hold secrets, and the errors so far.
pub(crate) struct Checking<'a> {
    pub environment: &'a Environment,
    pub faults: Faults,
    /// Whether to check that everything `run` needs is given: sources, trunks, and, unless it is a
    /// dry run, a CRM and its token. `explain` judges a recording without these.
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

    /// Makes the check also report values that `run` needs and that are missing.
    pub(crate) fn for_run(mut self) -> Self {
        self.needs = true;
        self
    }

    /// Returns the value found for this flag. Its absence is an error only if `run` needs it.
    pub(super) fn require<T>(&mut self, flag: &str, found: Result<T, String>) -> Option<T> {
        match found {
            Err(message) if self.needs => self.faults.take(flag, Err(message)),
            found => found.ok(),
        }
    }

    /// Reads the URL of a broker that is no source, with its secret.
    fn broker(
        &mut self,
        flag: &str,
        kind: SecretKind,
        url: Option<Result<BrokerUrl, Vec<UrlFault>>>,
    ) -> Option<BrokerTarget> {
        let url = self.faults.take_all(flag, url?)?;
        let secret = SecretPlace::find(kind, url.secret_file.as_deref(), self.environment);
        let secret = self.require(flag, secret)?;
        Some(BrokerTarget { url, secret })
    }

    /// Checks the flags. Returns the configuration, or all errors at once.
    pub(crate) fn config(mut self, flags: Flags) -> Result<Config, Faults> {
        let operation = &flags.operation;
        let collects = flags.hub.collects();
        let sources = sources::check(&flags.sources, collects, &mut self);
        let zone_flag = &flags.sources.pbx_timezone;
        let pbx_timezone = self.faults.read("--pbx-timezone", zone_flag, values::zone);
        let zone = pbx_timezone.clone().unwrap_or(TimeZone::UTC);
        let column_flag = &flags.sources.columns;
        let columns = self.faults.read("--columns", column_flag, sources::columns);
        let begins = &flags.calls.not_before;
        let not_before = self.faults.read("--not-before", begins, |text| {
            callbridge_model::dates::date(text, &zone)
        });
        let rules = Rules {
            not_before,
            ..trunks::rules(&flags, &sources, &mut self)
        };
        let place = state_place(operation.state.as_deref(), self.environment);
        // Root does not look for a connection in another user's folder. The command is refused
        // later.
        let is_others = place
            .as_ref()
            .is_ok_and(|place| other_owner(place.socket_folder()).is_some());
        // A recording is judged without a token, even if the state has a connection.
        let connected = match &place {
            Ok(place) if self.needs && !is_others => callbridge_oauth::store::exists(place),
            Ok(_) | Err(_) => Some(false),
        };
        let forwards = flags.hub.forwards();
        let needs_no_crm = operation.dry_run || is_others || forwards;
        let crm = crm::check(&flags.crm, (needs_no_crm, connected), &mut self);
        let webhooks = webhooks::check(&flags.webhooks, &mut self);
        let collect = hub::collect(&flags.hub, &mut self);
        let forward = hub::forward(&flags.hub, &mut self);
        if forwards {
            refuse_in_collector(&flags, &mut self.faults);
        }
        let page = page::check(&flags.page, &mut self);
        let lookup = lookup::check(&flags.lookup, &mut self);
        let calls = calls(&flags.calls, &mut self.faults);
        let state = self.require("--state", place);
        let instance = instance(operation, state.as_ref(), &mut self.faults);
        let of_database = state.as_ref().and_then(StatePlace::database);
        if self.needs && of_database.is_some() {
            refuse_sources_without_history(&sources, &mut self.faults);
        }
        let listen = self.faults.read("--listen", &operation.listen, |text| {
            values::address(text, "")
        });
        refuse_unknown_variables(self.environment, &mut self.faults);
        // The flags from here on are read last, so that their errors come last.
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
            dead_letters: self.broker("--dead-letter-queue", SecretKind::DeadLetter, letters),
            notify: notify(operation, &mut self.faults),
            log: logging(&flags.log, &mut self.faults),
            sources,
            crm,
            rebind: operation.rebind,
            until_idle: operation.until_idle,
            dry_run: operation.dry_run,
        };
        self.faults.into_result(config)
    }
}

/// Refuses flags that only the hub can use.
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

/// Adds an error for unknown variables, as for unknown flags. Otherwise, they would be ignored
/// silently.
fn refuse_unknown_variables(environment: &Environment, faults: &mut Faults) {
    let unknown = arguments::unknown_variables(environment);
    if unknown.is_empty() {
        return;
    }
    let known: Vec<String> = arguments::known_variables().into_iter().collect();
    let message = format!("no such variable. The known ones are {}", known.join(", "));
    faults.add(&unknown.join(", "), message);
}

/// Reads `--notify-command` and `--notify-missed`. An empty command counts as not given, because
/// environment variables can be empty.
fn notify(flags: &OperationFlags, faults: &mut Faults) -> Option<callbridge_ops::notify::Settings> {
    let missed = faults.read("--notify-missed", &flags.notify_missed, values::duration);
    let given = flags.notify_command.clone();
    let command = given.filter(|text| !text.trim().is_empty());
    let message = "has no effect without --notify-command";
    let is_alone = missed.is_some() && command.is_none();
    faults.add_if(is_alone, "--notify-missed", message);
    Some(callbridge_ops::notify::Settings {
        command: command?,
        missed,
    })
}

/// Reads `--settle`, `--cdr-wait`, `--max-call` and `--max-open-calls`.
fn calls(flags: &CallFlags, faults: &mut Faults) -> callbridge_call::Settings {
    const CDR_WAIT: Duration = Duration::from_secs(10);
    let usual = callbridge_call::Settings::new(Default::default());
    let settle = faults.read("--settle", &flags.settle, values::duration);
    let cdr_wait = faults.read("--cdr-wait", &flags.cdr_wait, values::duration);
    let max_call = faults.read("--max-call", &flags.max_call, values::duration);
    let most = faults.read("--max-open-calls", &flags.max_open_calls, |text| {
        values::number(text, 1..=1_000_000)
    });
    callbridge_call::Settings {
        settle: settle.unwrap_or(usual.settle),
        cdr_wait: cdr_wait.or(Some(CDR_WAIT)),
        max_call: max_call.unwrap_or(usual.max_call),
        max_open_calls: most.unwrap_or(usual.max_open_calls),
        ..usual
    }
}

/// Returns the value of `--instance`: the name of this process among the processes that share a
/// database. `None` means that the host's name is used.
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

/// Refuses sources without history, for a state in a database. After a takeover, the new leader
/// must find the calls that ended meanwhile.
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

/// Maximum bytes of `--instance`. The server shows the name together with the version, within 63
/// bytes.
const INSTANCE_BYTES_MAX: usize = 40;

/// Reads the flags about logs.
pub(crate) fn logging(flags: &LogFlags, faults: &mut Faults) -> Logging {
    let level = faults.read("--log", &flags.log, values::level);
    let json = faults.read("--log-format", &flags.log_format, |text| {
        values::word(text, &[("text", false), ("json", true)])
    });
    Logging {
        level: level.unwrap_or(Level::INFO),
        json: json.unwrap_or(false),
        phones: flags.log_phones,
    }
}
