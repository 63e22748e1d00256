//! The flags of `run`, `explain` and `check`, checked: all their faults are told at once, and
//! nothing is opened before.

use super::environment::Environment;
use super::faults::Faults;
use super::options::{CallFlags, CrmFlags, Flags, LogFlags, OperationFlags, SourceFlags};
use super::secrets::{self, Place};
use super::values;
use crate::crm::{Address, FieldNames};
use crate::journal::Rules;
use crate::sender::rate::Rate;
use crate::trunk;
use callbridge_call::EventTime;
use callbridge_source::url::{Format, QueueUrl, SourceUrl, Transport};
use jiff::tz::TimeZone;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;
use url::Url;

/// What the name of a PBX is made of, for messages.
const NAMES: &str = "a name has letters, digits, `-`, `_` and `.`, and at most 64 of them";

/// What a command does with the flags, and so which must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Sources, trunks and, unless it is a dry run, a CRM and its token.
    Run,
    /// None: a recording is judged by what is known.
    Explain,
}

/// Checked flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// In the order of their flags: the first of a PBX is its primary.
    pub sources: Vec<Source>,
    /// `--pbx-id`
    pub pbx_id: Option<String>,
    /// `--pbx-timezone`
    pub pbx_timezone: Option<TimeZone>,
    /// Trunks, `--not-before`, `--require-employee`.
    pub rules: Rules,
    /// Where calls are journaled; `None` in `explain` and dry runs without `--crm-url`.
    pub crm: Option<Crm>,
    /// How calls are told apart.
    pub calls: Calls,
    /// The state folder; `None` only where it was not asked for and has no default.
    pub state: Option<PathBuf>,
    /// Where health and metrics are served.
    pub listen: Option<SocketAddr>,
    /// Where dead letters are published.
    pub dead_letters: Option<DeadLetters>,
    /// What is logged.
    pub log: Logging,
    /// `--rebind`
    pub rebind: bool,
    /// `--until-idle`
    pub until_idle: bool,
    /// `--dry-run`
    pub dry_run: bool,
}

/// A source and its secret.
#[derive(Clone, Debug)]
pub struct Source {
    /// `--source`
    pub url: SourceUrl,
    /// `pbx=`, else `--pbx-id`; `None` for the id that is made once and stored.
    pub pbx: Option<String>,
    /// Where its secret is; `None` where it needs none.
    pub secret: Option<Place>,
}

/// The CRM.
#[derive(Clone, Debug)]
pub struct Crm {
    /// `--crm-url`
    pub address: Address,
    /// `--auth-url`
    pub auth: Option<Address>,
    /// Where the token is; `None` only in a dry run.
    pub token: Option<Place>,
    /// `--rate`
    pub rate: Rate,
    /// `--field`
    pub fields: FieldNames,
    /// `--crm-ca-file`
    pub ca_file: Option<PathBuf>,
    /// `--crm-proxy`
    pub proxy: Option<Url>,
}

/// How calls are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// `--settle`
    pub settle: Duration,
    /// `--cdr-wait`
    pub cdr_wait: Duration,
    /// `--max-call`
    pub max_call: Duration,
    /// `--max-open-calls`
    pub max_open_calls: usize,
}

/// A queue for dead letters, and its secret.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    /// `--dead-letter-queue`
    pub url: QueueUrl,
    /// Where its secret is.
    pub secret: Place,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logging {
    /// `--log`
    pub level: Level,
    /// `--log-format json`
    pub json: bool,
    /// `--log-phones`
    pub phones: bool,
}

impl Default for Logging {
    fn default() -> Self {
        Self {
            level: Level::INFO,
            json: false,
            phones: false,
        }
    }
}

/// Flags with what else decides about them.
pub struct Typed<'a> {
    /// As typed.
    pub flags: Flags,
    /// What was wrong with them before their values were looked at.
    pub faults: Faults,
    /// The environment.
    pub environment: &'a Environment,
    /// What for.
    pub purpose: Purpose,
}

impl TryFrom<Typed<'_>> for Config {
    type Error = Faults;

    fn try_from(typed: Typed<'_>) -> Result<Self, Faults> {
        let Typed {
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
        let sources = sources(&flags.sources, needs, environment, &mut faults);
        let pbx_timezone = flags.sources.pbx_timezone.as_deref();
        let pbx_timezone =
            pbx_timezone.and_then(|text| faults.take("--pbx-timezone", values::zone(text)));
        let zone = pbx_timezone.clone().unwrap_or(TimeZone::UTC);
        let not_before = date(flags.calls.not_before.as_deref(), &zone, &mut faults);
        let trunks = super::trunks::check(&flags.trunks, needs, &mut faults);
        super::trunks::known_pbxs(
            &trunks,
            &sources,
            flags.sources.pbx_id.as_deref(),
            &mut faults,
        );
        let token_needed = needs && !dry_run;
        let crm = crm(&flags.crm, token_needed, environment, &mut faults);
        let calls = calls(&flags.calls, &mut faults);
        let state = flags.operation.state.as_deref();
        let state = match state_folder(state, environment) {
            Err(words) if needs => faults.take("--state", Err(words)),
            found => found.ok(),
        };
        let listen = flags.operation.listen.as_deref().and_then(|text| {
            let read = text.parse().map_err(|_| format!("`{text}` is no IP:PORT"));
            faults.take("--listen", read)
        });
        let queue = flags.operation.dead_letter_queue.as_deref();
        let dead_letters = queue.and_then(|url| dead_letters(url, needs, environment, &mut faults));
        let log = logging(&flags.log, &mut faults);
        let require_employee = flags.trunks.require_employee;
        faults.or(Self {
            sources,
            pbx_id: flags.sources.pbx_id,
            pbx_timezone,
            rules: Rules {
                trunks,
                not_before,
                require_employee,
                ..Rules::default()
            },
            crm,
            calls,
            state,
            listen,
            dead_letters,
            log,
            rebind,
            until_idle,
            dry_run,
        })
    }
}

fn sources(
    flags: &SourceFlags,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Vec<Source> {
    if let Some(id) = flags
        .pbx_id
        .as_deref()
        .filter(|id| !trunk::flag::is_name(id))
    {
        faults.add("--pbx-id", format!("`{id}`: {NAMES}"));
    }
    let mut sources = Vec::new();
    let given = flags
        .source
        .iter()
        .map(|text| text.trim())
        .filter(|text| !text.is_empty());
    for text in given {
        match SourceUrl::parse(text) {
            Err(wrong) => wrong.iter().for_each(|fault| faults.add("--source", fault)),
            Ok(url) => {
                if let Some(words) = not_yet(url.format()) {
                    faults.add(&format!("--source {url}"), words);
                }
                if let Some(pbx) = url.pbx.as_deref().filter(|pbx| !trunk::flag::is_name(pbx)) {
                    faults.add(&format!("--source {url}"), format!("pbx={pbx}: {NAMES}"));
                }
                let pbx = url.pbx.clone().or_else(|| flags.pbx_id.clone());
                let secret = source_secret(&url, needs, environment, faults);
                sources.push(Source { url, pbx, secret });
            }
        }
    }
    if needs && flags.source.is_empty() {
        faults.add(
            "--source",
            "is missing: give the PBX, as ami://USER@HOST or file:///PATH",
        );
    }
    no_cdrs_alone(&sources, faults);
    sources
}

fn source_secret(
    url: &SourceUrl,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<Place> {
    let kind = match &url.transport {
        Transport::Ami { .. } => secrets::Kind::Ami,
        Transport::Amqp(_) => secrets::Kind::Amqp,
        Transport::WebSocket { .. } | Transport::File { .. } => return None,
    };
    match Place::find(kind, url.secret_file.as_deref(), environment) {
        Err(words) if needs => faults.take(&format!("--source {url}"), Err(words)),
        found => found.ok(),
    }
}

/// Formats that the sources' URLs know and this release does not read.
fn not_yet(format: Format) -> Option<&'static str> {
    match format {
        Format::CdrCsv => Some("CDRs in files are not read by this release: give cel-csv or ami"),
        Format::Wazo => Some("Wazo's bus is not read by this release: give the Asterisk's own AMI"),
        Format::Ami
        | Format::AmiJson
        | Format::CelCsv
        | Format::AsteriskCel
        | Format::AsteriskCdr => None,
    }
}

fn only_cdrs(format: Format) -> bool {
    match format {
        Format::AsteriskCdr | Format::CdrCsv => true,
        Format::Ami | Format::AmiJson | Format::CelCsv | Format::AsteriskCel | Format::Wazo => {
            false
        }
    }
}

/// CDRs tell paths, not calls.
fn no_cdrs_alone(sources: &[Source], faults: &mut Faults) {
    for (at, source) in sources.iter().enumerate() {
        let same = |other: &&Source| other.pbx == source.pbx;
        let first = sources[..at].iter().find(same).is_none();
        if first
            && sources
                .iter()
                .filter(same)
                .all(|other| only_cdrs(other.url.format()))
        {
            let whose = source
                .pbx
                .as_deref()
                .map(|pbx| format!(" of {pbx}"))
                .unwrap_or_default();
            faults.add(
                &format!("--source {}", source.url),
                format!(
                    "the only source{whose} tells CDRs, and those are paths, not calls: a missed \
                     call is two of them, an announcement counts as answered. Give asterisk-cel \
                     or ami beside it; the CDR then adds its user field"
                ),
            );
        }
    }
}

fn crm(
    flags: &CrmFlags,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<Crm> {
    let address = |text: &str, flag: &str, faults: &mut Faults| match Address::parse(text) {
        Ok(address) => Some(address),
        Err(error) => {
            faults.say(error.to_string().replacen("--crm-url", flag, 1));
            None
        }
    };
    let url = flags.crm_url.as_deref();
    if needs && url.is_none() {
        faults.add(
            "--crm-url",
            "is missing: give the CRM's address, or --dry-run",
        );
    }
    let own = url.and_then(|text| address(text, "--crm-url", faults));
    let auth = flags
        .auth_url
        .as_deref()
        .and_then(|text| address(text, "--auth-url", faults));
    let rate = rate(flags.rate.as_deref(), own.as_ref(), faults);
    let fields = fields(&flags.field, faults);
    let proxy = flags
        .crm_proxy
        .as_deref()
        .and_then(|text| faults.take("--crm-proxy", proxy(text)));
    let token_file = path("--token-file", flags.token_file.as_deref(), faults);
    let token = match Place::find(secrets::Kind::Token, token_file.as_deref(), environment) {
        Err(words) if needs => {
            faults.add("--token-file", words.replacen("no secret", "no token", 1));
            None
        }
        found => found.ok(),
    };
    let ca_file = path("--crm-ca-file", flags.crm_ca_file.as_deref(), faults);
    Some(Crm {
        address: own?,
        auth,
        token,
        rate,
        fields,
        ca_file,
        proxy,
    })
}

fn path(flag: &str, text: Option<&str>, faults: &mut Faults) -> Option<PathBuf> {
    let read = if text?.is_empty() {
        Err("is empty: give a path")
    } else {
        Ok(())
    };
    faults.take(flag, read)?;
    text.map(PathBuf::from)
}

fn rate(text: Option<&str>, address: Option<&Address>, faults: &mut Faults) -> Rate {
    let Some(text) = text else {
        return Rate::default();
    };
    let rate = match text.parse::<Rate>() {
        Ok(rate) => rate,
        Err(error) => {
            faults.say(error.to_string());
            return Rate::default();
        }
    };
    // As many windows of this rate can begin within one of the service's.
    let service = Rate::SERVICE;
    let windows = service
        .window()
        .as_millis()
        .div_ceil(rate.window().as_millis().max(1));
    let most = windows * u128::from(rate.limit());
    let loopback = address.is_some_and(Address::is_loopback);
    if most > u128::from(service.limit()) && !loopback {
        faults.add(
            &format!("--rate {text}"),
            format!(
                "up to {most} requests in 60 s, and the service allows {service} to a token; \
                 more is for a CRM on this machine alone"
            ),
        );
    }
    rate
}

fn fields(flags: &[String], faults: &mut Faults) -> FieldNames {
    const TAKEN: [&str; 8] = [
        "leadId",
        "employeeId",
        "uuid",
        "startedAt",
        "durationSec",
        "answered",
        "direction",
        "provider",
    ];
    let mut names = FieldNames::default();
    for text in flags
        .iter()
        .map(|text| text.trim())
        .filter(|text| !text.is_empty())
    {
        let flag = format!("--field {text}");
        let Some((what, name)) = text.split_once('=') else {
            faults.add(&flag, "is not talk=NAME or phone=NAME");
            continue;
        };
        let Some(name) = faults.take(&flag, values::field_name(name)) else {
            continue;
        };
        if TAKEN.contains(&name.as_str()) {
            faults.add(&flag, format!("`{name}` is another field of the service"));
        }
        match what {
            "talk" => names.talk = name,
            "phone" => names.phone = Some(name),
            _ => faults.add(&flag, "only talk and phone have names that can be set"),
        }
    }
    if names.phone.as_ref() == Some(&names.talk) {
        faults.add(
            "--field",
            format!("talk and phone are both called `{}`", names.talk),
        );
    }
    names
}

fn proxy(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("not a URL ({error})"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user or password in it could be read by everybody on this machine".into());
    }
    match url.scheme() {
        "http" | "https" if url.host().is_some() => Ok(url),
        _ => Err(format!("`{text}` is no proxy: give it as http://HOST:PORT")),
    }
}

fn calls(flags: &CallFlags, faults: &mut Faults) -> Calls {
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
    Calls {
        settle,
        cdr_wait,
        max_call,
        max_open_calls: most.unwrap_or(10_000),
    }
}

fn date(text: Option<&str>, zone: &TimeZone, faults: &mut Faults) -> Option<EventTime> {
    faults.take("--not-before", values::date(text?, zone))
}

/// `--state`, else `$STATE_DIRECTORY`, else `~/.local/state/callbridge`.
pub fn state_folder(flag: Option<&str>, environment: &Environment) -> Result<PathBuf, String> {
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

fn dead_letters(
    text: &str,
    needs: bool,
    environment: &Environment,
    faults: &mut Faults,
) -> Option<DeadLetters> {
    let url = match QueueUrl::parse(text) {
        Ok(url) => url,
        Err(wrong) => {
            wrong
                .iter()
                .for_each(|fault| faults.add("--dead-letter-queue", fault));
            return None;
        }
    };
    let file = url.secret_file.as_deref();
    let secret = match Place::find(secrets::Kind::DeadLetter, file, environment) {
        Err(words) if needs => faults.take("--dead-letter-queue", Err(words)),
        found => found.ok(),
    }?;
    Some(DeadLetters { url, secret })
}

/// The flags about logs, checked.
pub fn logging(flags: &LogFlags, faults: &mut Faults) -> Logging {
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
