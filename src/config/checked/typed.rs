//! From flags as typed to a [`Config`], or all that is wrong with them.

use super::{CallRules, Config, DeadLetters, Forward};
use super::{crm, page, pbx, sources, standby, trunks, webhooks};
use crate::config::faults::Faults;
use crate::config::options::{CallFlags, CrmFlags, Flags, LogFlags, OperationFlags, SourceFlags};
use crate::config::variables;
use crate::config::variables::Unread;
use crate::values;
use callbridge_call::EventTime;
use callbridge_log::Logging;
use callbridge_mapping::journal::Rules;
use callbridge_model::environment::Environment;
use callbridge_model::secret_source as secrets;
use callbridge_model::secret_source::SecretPlace;
use callbridge_source::StreamReading;
use callbridge_source::url::{QueueUrl, StreamUrl};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;

/// What a command does with the flags, and so which must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Sources, trunks and, unless it is a dry run, a CRM and its token.
    Run,
    /// None: a recording is judged by what is known.
    Explain,
}

/// Flags with what else decides about them.
pub struct FlagContext<'a> {
    pub flags: Flags,
    /// What was wrong with them before their values were looked at.
    pub faults: Faults,
    pub environment: &'a Environment,
    pub purpose: Purpose,
}

impl TryFrom<FlagContext<'_>> for Config {
    type Error = Faults;

    fn try_from(typed: FlagContext<'_>) -> Result<Self, Faults> {
        let FlagContext {
            flags,
            mut faults,
            environment,
            purpose,
        } = typed;
        let needs = purpose == Purpose::Run;
        let OperationFlags {
            dry_run,
            rebind,
            until_idle,
            ..
        } = flags.operation;
        let sources = sources::check(&flags.sources, needs, environment, &mut faults);
        let pbx_timezone = pbx_timezone(flags.sources.pbx_timezone.as_deref(), &mut faults);
        let zone = pbx_timezone.clone().unwrap_or(TimeZone::UTC);
        let columns = flags.sources.columns.as_deref();
        let cel_columns = columns.and_then(|text| faults.take("--columns", sources::columns(text)));
        let not_before = date(flags.calls.not_before.as_deref(), &zone, &mut faults);
        let rules = trunks::rules(&flags, &sources, needs, &mut faults);
        let tokens = crm::Tokens {
            needed: needs && !dry_run,
            connected: needs && is_connected(&flags.operation, environment),
        };
        let crm = crm::check(&flags.crm, tokens, environment, &mut faults);
        let webhooks = webhooks::check(&flags.webhooks, environment, &mut faults);
        let page = page::check(&flags.page, environment, &mut faults);
        let calls = calls(&flags.calls, &mut faults);
        let (state, listen) = place(&flags.operation, needs, environment, &mut faults);
        let derived_pbx = pbx::derived(&flags.sources, needs, &sources, &rules.trunks, environment);
        pbx::check(derived_pbx.as_ref(), state.as_deref(), &mut faults);
        let dead_letters = dead_letters(&flags.operation, needs, environment, &mut faults);
        let forward = forward(&flags.crm, needs, environment, &mut faults);
        let standby = flags.crm.standby.as_deref();
        let beside = (crm.as_ref(), flags.crm.forward.is_some(), dry_run);
        let standby = standby::check(standby, &sources, beside, &mut faults);
        let streams = streams(&flags.sources, &zone, &mut faults);
        let pbx_owners = pbx_owners(&flags.sources, &mut faults);
        let log = logging(&flags.log, &mut faults);
        let unread_variables = unread_variables(environment, &mut faults);
        faults.or(Self {
            sources,
            pbx_id: flags.sources.pbx_id,
            derived_pbx,
            pbx_timezone,
            cel_columns,
            rules: Rules {
                not_before,
                ..rules
            },
            lead_directory: flags.trunks.lead_directory,
            crm,
            webhooks,
            page,
            calls,
            state,
            listen,
            notify_command: notify_command(flags.operation.notify_command),
            dead_letters,
            forward,
            standby,
            streams,
            pbx_owners,
            log,
            rebind,
            until_idle,
            dry_run,
            unread_variables,
        })
    }
}

fn pbx_timezone(text: Option<&str>, faults: &mut Faults) -> Option<TimeZone> {
    text.and_then(|text| faults.take("--pbx-timezone", values::zone(text)))
}

/// A variable that is nearly one of ours is a fault, as a flag that is: what it says would be left
/// out. One that is nothing like ours may be somebody else's.
fn unread_variables(environment: &Environment, faults: &mut Faults) -> Vec<String> {
    let mut others = Vec::new();
    for Unread { name, near } in variables::unread(environment) {
        match near {
            Some(near) => faults.add(&name, format!("no such variable; did you mean {near}?")),
            None => others.push(name),
        }
    }
    others
}

/// The state folder holds a connection. A recording is judged without a token, whatever lies there.
fn is_connected(flags: &OperationFlags, environment: &Environment) -> bool {
    let folder = state_folder(flags.state.as_deref(), environment);
    folder.is_ok_and(|folder| callbridge_oauth::store::exists(&folder))
}

/// An empty one, as from a variable, is none.
fn notify_command(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// `--state` and `--listen`
fn place(
    flags: &OperationFlags,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> (Option<PathBuf>, Option<SocketAddr>) {
    let state = match state_folder(flags.state.as_deref(), environment) {
        Err(words) if needs => faults.take("--state", Err(words)),
        found => found.ok(),
    };
    let listen = flags.listen.as_deref().and_then(|text| {
        let read = text.parse().map_err(|_| format!("`{text}` is no IP:PORT"));
        faults.take("--listen", read)
    });
    (state, listen)
}

fn calls(flags: &CallFlags, faults: &mut Faults) -> CallRules {
    let mut time = |flag: &str, text: Option<&str>, default: Duration| {
        text.and_then(|text| faults.take(flag, values::duration(text)))
            .unwrap_or(default)
    };
    let settle = time(
        "--settle",
        flags.settle.as_deref(),
        Duration::from_millis(500),
    );
    let cdr_wait = time(
        "--cdr-wait",
        flags.cdr_wait.as_deref(),
        Duration::from_secs(10),
    );
    let max_call = time(
        "--max-call",
        flags.max_call.as_deref(),
        Duration::from_secs(12 * 3600),
    );
    let most = flags.max_open_calls.as_deref();
    let most =
        most.and_then(|text| faults.take("--max-open-calls", values::number(text, 1..=1_000_000)));
    CallRules {
        settle,
        cdr_wait,
        max_call,
        max_open_calls: most.unwrap_or(10_000),
    }
}

fn date(text: Option<&str>, zone: &TimeZone, faults: &mut Faults) -> Option<EventTime> {
    faults.take("--not-before", callbridge_model::dates::date(text?, zone))
}

/// `--state`, else `$STATE_DIRECTORY`, else `~/.local/state/callbridge`.
pub(crate) fn state_folder(
    flag: Option<&str>,
    environment: &Environment,
) -> Result<PathBuf, String> {
    match flag {
        Some("") => return Err("is empty: give a folder".to_owned()),
        Some(flag) => return Ok(PathBuf::from(flag)),
        None => {}
    }
    // systemd names several folders with colons between them; ours is the first.
    if let Some(first) = environment
        .text("STATE_DIRECTORY")
        .and_then(|all| all.split(':').next())
    {
        return Ok(PathBuf::from(first));
    }
    let home = environment
        .path("HOME")
        .ok_or("is missing, and there is no $HOME to keep it in")?;
    Ok(home.join(".local/state/callbridge"))
}

/// `--dead-letter-queue`
fn dead_letters(
    flags: &OperationFlags,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<DeadLetters> {
    let url = match QueueUrl::parse(flags.dead_letter_queue.as_deref()?) {
        Ok(url) => url,
        Err(wrong) => {
            wrong
                .iter()
                .for_each(|fault| faults.add("--dead-letter-queue", fault));
            return None;
        }
    };
    let file = url.secret_file.as_deref();
    let secret = match SecretPlace::find(secrets::SecretKind::DeadLetter, file, environment) {
        Err(words) if needs => faults.take("--dead-letter-queue", Err(words)),
        found => found.ok(),
    }?;
    Some(DeadLetters { url, secret })
}

/// `--stream-from`, `--stream-skip`
fn streams(flags: &SourceFlags, zone: &TimeZone, faults: &mut Faults) -> StreamReading {
    let from = flags.stream_from.as_deref();
    let from = from.map(|text| values::stream_from(text, zone));
    let from = from.and_then(|read| faults.take("--stream-from", read));
    let skip = flags
        .stream_skip
        .iter()
        .map(|text| values::stream_skip(text));
    let skip = skip.filter_map(|read| faults.take("--stream-skip", read));
    StreamReading {
        skip: skip.collect(),
        from: from.unwrap_or_default(),
    }
}

/// `--pbx-owner`
fn pbx_owners(flags: &SourceFlags, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut owners = BTreeMap::new();
    for text in &flags.pbx_owner {
        let Some((pbx, user)) = faults.take("--pbx-owner", values::pbx_owner(text)) else {
            continue;
        };
        if let Some(before) = owners.insert(pbx.clone(), user.clone())
            && before != user
        {
            let words = format!("PBX {pbx} is given to {before} and to {user}: it has one owner");
            faults.take::<()>("--pbx-owner", Err(words));
        }
    }
    owners
}

/// `--forward`
fn forward(
    flags: &CrmFlags,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<Forward> {
    let read = StreamUrl::parse(flags.forward.as_deref()?);
    let read = read.map_err(|wrong| wrong.iter().for_each(|it| faults.add("--forward", it)));
    let url = read.ok()?;
    let file = url.secret_file.as_deref();
    let secret = match SecretPlace::find(secrets::SecretKind::Amqp, file, environment) {
        Err(words) if needs => faults.take("--forward", Err(words)),
        found => found.ok(),
    }?;
    Some(Forward { url, secret })
}

/// The flags about logs, checked.
pub(crate) fn logging(flags: &LogFlags, faults: &mut Faults) -> Logging {
    let level = flags
        .log
        .as_deref()
        .and_then(|text| faults.take("--log", values::level(text)));
    let formats = [("text", false), ("json", true)];
    let json = flags.log_format.as_deref();
    let json = json.and_then(|text| faults.take("--log-format", values::word(text, &formats)));
    Logging {
        level: level.unwrap_or(Level::INFO),
        json: json.unwrap_or(false),
        phones: flags.log_phones,
    }
}
