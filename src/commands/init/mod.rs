//! `init`, which detects settings, asks for those that it can't detect, and writes a service's
//! flags and secrets. All files are written at the end.
//!
//! | module | contents |
//! |---|---|
//! | [`pbx`] | the PBX: tests the login, reads the endpoints; [`trunks`]: which ones are trunks |
//! | [`hub`] | the hub, if calls go to one |
//! | [`service`] | the CRM: tests the URL and the token |
//! | [`notify`] | who's notified of problems: a chat, a mailbox, or no one |
//! | [`files`] | the files, how they compare with existing ones, and writing them |
//!
//! [`Answers`] come from the user at the terminal. Without a terminal, nothing is asked.

pub(crate) mod files;
pub(crate) mod hub;
pub(crate) mod notify;
pub(crate) mod pbx;
pub(crate) mod service;
pub(crate) mod trunks;

use crate::config::flags::Flags;
use crate::config::{
    Checking, Config, Faults, INSTANCE, InitFlags, STATES, TokenFrom, secret_kind,
};
use crate::state_owner::{other_owner, owner_name, sudo_user};
use crate::terminal::{Keyboard, StdinLines};
use crate::{Failure, Result, print};
use callbridge_call::shell::quoted;
use callbridge_mapping::LeadRule;
use callbridge_model::{Code, ETC, Environment, Secret, SecretPlace, clock, safe_lines};
use callbridge_setup::question::{SetupQuestion, is_event_socket};
use callbridge_setup::{flags_file::WrittenFlag, pbx_id, zone};
use files::Planned;
use jiff::tz::TimeZone;
use rustix::termios::LocalModes;
use serde_json::{Map, Value};
use std::{path::Path, path::PathBuf, process::Stdio};

const UNSHOWN: &str = "\nThese lines could not be confirmed in the PBX's manager.conf. Add those \
                       that are missing, then run `manager reload`:";
const PBX_ID: &str = "Name of this PBX. It is part of each call's id, so it must be unique in the \
                      company and must never change";
const LOOKUP: &str = "Let the PBX look up the caller while a call rings (the lead's name, and the \
                      extension to ring first)?";
const LOOKUP_AT: &str = "127.0.0.1:4573";
const DIALPLAN: &str = "a dialplan for the lookup: caller.conf in deploy/asterisk, or in \
                        /usr/share/doc/callbridge/examples if the package is installed";
const DIRECTORY: &str = "--lead-directory is added, because lead=directory finds no lead until the \
                         CRM's leads are read. The token needs the grant \
                         PERMISSION_OPEN_API_LEAD:READ.";
const EMPLOYEES: &str = "Employees, as 101:501;102:502 (extension and the employee's id in the \
                         CRM) or a FILE; empty for none: ";

/// The answers so far, which are flags and typed secrets, along with the user who types them, if
/// any.
pub(crate) struct Answers {
    pub init: InitFlags,
    pub environment: Environment,
    /// The PBX account's secret, if it was typed rather than read from a file or an environment
    /// variable.
    pub ami_secret: Option<Secret>,
    pub token: Option<Secret>,
    /// The branch's token at the hub, as typed.
    pub hub_token: Option<Secret>,
    /// The messenger for problem notifications, as typed.
    pub messenger: Option<notify::Messenger>,
    /// The typed lines, or `None` if there's nobody to ask.
    lines: Option<StdinLines>,
}

impl Answers {
    /// Returns the settings so far, which are the flags and the typed secrets. Only given values
    /// are checked.
    pub(crate) fn config(&self) -> Result<Config, Faults> {
        let checking = Checking::new(&self.environment, Faults::default());
        let mut config = checking.config(self.init.flags.clone())?;
        for source in &mut config.sources {
            let wants = secret_kind(&source.url.transport).is_some();
            if let (true, None, Some(secret)) = (wants, &source.secret, &self.ami_secret) {
                source.secret = Some(SecretPlace::Variable(secret.clone()));
            }
        }
        if let (Some(crm), Some(token)) = (&mut config.crm, &self.token) {
            crm.token = Some(TokenFrom::Place(SecretPlace::Variable(token.clone())));
        }
        if let (Some(forward), Some(token)) = (&mut config.forward, &self.hub_token) {
            forward.token = Some(SecretPlace::Variable(token.clone()));
        }
        Ok(config)
    }

    /// Returns `true` if the flags are written to the package's directory, where they're read by
    /// the systemd unit.
    pub(crate) fn is_of_service(&self) -> bool {
        self.init.etc == ETC
    }

    /// Adds an answer to the flags. If this makes the flags invalid, prints the errors, removes the
    /// answer, and returns `false`.
    pub(crate) fn take(&mut self, answer: impl FnOnce(&mut Flags)) -> Result<bool> {
        let before = self.init.flags.clone();
        answer(&mut self.init.flags);
        let Err(errors) = self.config() else {
            return Ok(true);
        };
        self.init.flags = before;
        say(&errors.to_string())?;
        Ok(false)
    }

    /// Returns `true` if this question hasn't been answered yet.
    pub(crate) fn lacks(&self, question: SetupQuestion) -> bool {
        let typed = match question {
            SetupQuestion::AccountSecret => self.ami_secret.is_some(),
            SetupQuestion::Token => self.token.is_some(),
            SetupQuestion::HubToken => self.hub_token.is_some(),
            _ => false,
        };
        let missing = crate::config::missing_answers(&self.init.flags, &self.environment);
        !typed && missing.contains(&question)
    }

    /// Asks a question. An empty line selects the question's default.
    pub(crate) async fn ask(&mut self, question: SetupQuestion) -> Result<String> {
        let default = question.default(self.is_freeswitch());
        let mut prompt = question.text().to_owned();
        if let Some(default) = default {
            prompt.push_str(&format!(" [{default}]"));
        }
        prompt.push_str(": ");
        loop {
            let typed = if question.is_secret() {
                self.secret(&prompt).await?
            } else {
                self.line(&prompt).await?
            };
            if !typed.is_empty() {
                return Ok(typed);
            }
            if let Some(default) = default {
                return Ok(default.to_owned());
            }
            // Without a token, the company connects by OAuth consent.
            if question == SetupQuestion::Token {
                return Ok(typed);
            }
        }
    }

    /// Returns `true` if the first source is FreeSWITCH.
    fn is_freeswitch(&self) -> bool {
        let source = self.init.flags.sources.source.first();
        source.is_some_and(|url| is_event_socket(url) || url.contains("format=freeswitch"))
    }

    /// Asks a yes-or-no question. An empty line means `default`.
    pub(crate) async fn agrees(&mut self, message: &str, default: bool) -> Result<bool> {
        let choice = if default { "[Y/n]" } else { "[y/N]" };
        loop {
            let typed = self.line(&format!("{message} {choice} ")).await?;
            match typed.to_ascii_lowercase().as_str() {
                "" => return Ok(default),
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }

    /// Reads a line that isn't shown as it's typed.
    pub(crate) async fn secret(&mut self, prompt: &str) -> Result<String> {
        let unseen = Keyboard::disable(LocalModes::ECHO);
        let typed = self.line(prompt).await?;
        drop(unseen);
        print(b"\n")?;
        Ok(typed)
    }

    /// Reads a line, without any whitespace around it.
    pub(crate) async fn line(&mut self, prompt: &str) -> Result<String> {
        print(prompt)?;
        let lines = self.lines.as_mut().ok_or_else(cancellation)?;
        let typed = lines.line().await.ok_or_else(cancellation)?;
        Ok(typed.trim().to_owned())
    }
}

/// Prints lines for the user, escaping control characters, since the PBX's and the CRM's texts may
/// contain them.
pub(crate) fn say(message: &str) -> Result<()> {
    print(format!("{}\n", safe_lines(message)))
}

/// Sets up a service. `shutdown` is Ctrl-C.
///
/// # Errors
/// Fails with 130 if the user canceled, with 77 if the PBX or the CRM rejects the login, with 69 if
/// it can't be reached, with 73 if the files can't be written, and with 78 if no trunk was
/// recognized, all without having written any file. After that, fails with the exit status of
/// `check`.
pub(crate) async fn run(
    init: InitFlags,
    environment: &Environment,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    let etc = Path::new(&init.etc);
    files::must_be_writable(etc)?;
    let file = etc.join(format!("{}.flags", init.name));
    let mut answers = Answers {
        lines: init.asks.then(StdinLines::listen),
        environment: environment.clone().with_service(&file),
        init,
        ami_secret: None,
        token: None,
        hub_token: None,
        messenger: None,
    };
    let planned = tokio::select! {
        planned = prepare(&mut answers, &file) => planned?,
        () = &mut shutdown => return Err(cancellation()),
    };
    planned.write()?;
    tokio::select! {
        ended = check_and_start(&planned, &file, &mut answers) => ended,
        // The files have been written. The remaining steps can be done manually.
        () = shutdown => Ok(()),
    }
}

/// Returns the failure for a user who canceled (130).
pub(crate) fn cancellation() -> Failure {
    Failure::new(Code::Left, "canceled before the end: nothing was written")
}

async fn prepare(answers: &mut Answers, file: &Path) -> Result<Planned> {
    let shown = pbx::find(answers).await?;
    trunks::find(answers, &shown).await?;
    pbx_id(answers).await?;
    if !hub::find(answers).await? {
        service::find(answers).await?;
    }
    rules(answers).await?;
    fill_directory(answers)?;
    employees(answers).await?;
    lookup(answers).await?;
    notify::find(answers).await?;
    place(answers, &shown);
    let snippet = pbx::snippet(answers, &shown);
    if !snippet.is_empty() {
        say(UNSHOWN)?;
        say(&snippet)?;
    }
    let planned = files::plan(answers, &shown, file)?;
    planned.agree(answers).await?;
    Ok(planned)
}

/// Asks for the lead rule and the country until both answers are valid.
async fn rules(answers: &mut Answers) -> Result<()> {
    for question in [SetupQuestion::LeadRule, SetupQuestion::Country] {
        while answers.lacks(question) {
            let typed = answers.ask(question).await?;
            if question == SetupQuestion::Country {
                answers.take(|flags| flags.trunks.country = Some(typed.to_ascii_uppercase()))?;
            } else if let Some(problem) = lead_file_problem(&typed) {
                say(&problem)?;
            } else {
                answers.take(|flags| flags.trunks.lead = Some(typed))?;
            }
        }
    }
    Ok(())
}

/// Returns why a `csv:FILE` lead rule can't be used.
fn lead_file_problem(rules: &str) -> Option<String> {
    let files = rules
        .split(';')
        .filter_map(|rule| rule.trim().strip_prefix("csv:"));
    let missing = files.into_iter().find(|file| !Path::new(file).is_file())?;
    Some(format!(
        "{missing} is not a file: create it first, with the columns phone,leadId"
    ))
}

/// Enables reading the CRM's leads if a trunk uses the lead directory but no flag fills it, since
/// `check` and `run` would reject that.
fn fill_directory(answers: &mut Answers) -> Result<()> {
    let Ok(config) = answers.config() else {
        return Ok(());
    };
    let mut rules = config.rules.every_trunk().flat_map(|trunk| &trunk.leads);
    let uses_directory = rules.any(|rule| matches!(rule, LeadRule::Directory));
    if !uses_directory || config.lead_directory || config.webhooks.is_some() {
        return Ok(());
    }
    answers.init.flags.trunks.lead_directory = true;
    say(DIRECTORY)
}

/// Asks for the employees of the extensions, unless they're given by flags. An empty answer means
/// that there are no employees.
async fn employees(answers: &mut Answers) -> Result<()> {
    let flags = &answers.init.flags.trunks;
    let is_known = flags.employees.is_some()
        || flags
            .trunk
            .iter()
            .any(|trunk| trunk.contains(",employees="));
    while answers.init.asks && !is_known {
        let typed = answers.line(EMPLOYEES).await?;
        if typed.is_empty() {
            return say("No call will name an employee until you give --employees.");
        }
        // A text without `:` is a file's name.
        if !typed.contains(':') && !Path::new(&typed).is_file() {
            say(&format!(
                "{typed} is neither a list, as 101:501;102:502, nor a file with the columns \
                 extension,employeeId"
            ))?;
            continue;
        }
        if answers.take(|flags| flags.trunks.employees = Some(typed))? {
            return Ok(());
        }
    }
    Ok(())
}

/// Asks whether dialplans may look up callers. The question is skipped unless a rule finds leads by
/// the caller's number.
async fn lookup(answers: &mut Answers) -> Result<()> {
    let Ok(config) = answers.config() else {
        return Ok(());
    };
    let rules = config.rules.every_trunk().flat_map(|trunk| &trunk.leads);
    let by_number = rules.into_iter().any(LeadRule::is_by_number);
    let open = by_number && answers.init.flags.lookup.lookup.is_none();
    if answers.init.asks && open && answers.agrees(LOOKUP, false).await? {
        answers.init.flags.lookup.lookup = Some(LOOKUP_AT.to_owned());
        say(DIALPLAN)?;
    }
    Ok(())
}

/// Suggests `--pbx-id` if no flag identifies the PBX. The user can enter a different ID.
async fn pbx_id(answers: &mut Answers) -> Result<()> {
    let sources = &answers.init.flags.sources;
    let is_named = sources.source.iter().any(|url| url.contains("pbx="));
    if sources.pbx_id.is_some() || is_named {
        return Ok(());
    }
    let proposed = if answers.init.name == INSTANCE {
        let host = rustix::system::uname();
        pbx_id::from_host_name(&host.nodename().to_string_lossy(), INSTANCE)
    } else {
        answers.init.name.clone()
    };
    if !answers.init.asks || answers.init.yes {
        say(&format!("PBX id: {proposed} (--pbx-id sets another)"))?;
        answers.init.flags.sources.pbx_id = Some(proposed);
        return Ok(());
    }
    let question = format!("{PBX_ID} [{proposed}]: ");
    loop {
        let typed = answers.line(&question).await?;
        let id = if typed.is_empty() {
            proposed.clone()
        } else {
            typed
        };
        if answers.take(|flags| flags.sources.pbx_id = Some(id))? {
            return Ok(());
        }
    }
}

/// Sets the PBX's time zone and the state if they aren't given by flags.
fn place(answers: &mut Answers, shown: &pbx::ShownPbx) {
    let flags = &mut answers.init.flags;
    if flags.sources.pbx_timezone.is_none() {
        let here = TimeZone::system();
        let country = flags.trunks.country.as_deref();
        let (zone, why) = zone::propose(here.iana_name(), shown.local, country);
        let message = format!("zone: {zone} ({why}; --pbx-timezone sets another)\n");
        let _ = print(message);
        flags.sources.pbx_timezone = Some(zone);
    }
    if flags.operation.state.is_none() && answers.init.etc == ETC {
        flags.operation.state = Some(format!("{STATES}/{}", answers.init.name));
    }
    if let Some(account) = shown.accounts.first() {
        let theirs = account.clock.map(|at| at.floor_seconds().get());
        let ours = clock::now().wall.floor_seconds().get();
        let _ = print(format!("clock: {}\n", zone::clock(theirs, ours)));
    }
}

/// Runs `check` on the written files, unless the state belongs to another user, and then offers to
/// send a test notification and to start the service.
///
/// # Errors
/// Fails with the exit status of `check`, if that failed. The files have been written anyway.
async fn check_and_start(planned: &Planned, file: &Path, answers: &mut Answers) -> Result<()> {
    say(&format!("\nwritten: {}", planned.path_list()))?;
    let flags_file = format!("@{}", file.display());
    let mut failed = None;
    let state = answers.init.flags.operation.state.clone();
    let owner = state
        .as_deref()
        .and_then(|state| other_owner(Path::new(state)));
    if let Some(connect) = &planned.connect {
        say(&format!(
            "\nNext, connect the company by consent:\n  {connect}"
        ))?;
    } else if let (Some(state), Some(uid)) = (&state, owner) {
        let state = quoted(state);
        say(&format!(
            "\ncheck did not run: {state} belongs to {}. After the restart, run:\n  sudo -u {} \
             callbridge status --state {state}",
            owner_name(uid),
            sudo_user(uid)
        ))?;
    } else {
        say(&format!("\ncallbridge check {flags_file}"))?;
        failed = check_failure(&flags_file).await;
    }
    if let Some(messenger) = answers.messenger.take() {
        messenger.offer_trial(answers).await?;
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    let service = format!("callbridge@{}", answers.init.name);
    let here = answers.is_of_service() && Path::new("/run/systemd/system").is_dir();
    let asks = here && planned.connect.is_none() && answers.init.asks;
    let question = format!("Enable and start {service} now?");
    if asks && answers.agrees(&question, true).await? {
        let mut enable = tokio::process::Command::new("systemctl");
        let ended = enable.args(["enable", "--now", &service]).status().await;
        if ended.is_ok_and(|status| status.success()) {
            return say(&format!("{service} is running"));
        }
    }
    let next = if answers.is_of_service() {
        format!("systemctl enable --now {}", quoted(&service))
    } else {
        format!("callbridge run {flags_file}")
    };
    say(&format!("\nTo start it, run:\n  {next}"))
}

/// Runs `check` with the flags file, returning its failure, or `None` if it was successful.
async fn check_failure(flags_file: &str) -> Option<Failure> {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("callbridge"));
    let mut check = tokio::process::Command::new(program);
    let status = check
        .args(["check", flags_file])
        .stdin(Stdio::null())
        .status()
        .await;
    let code = match status {
        Ok(status) if status.success() => return None,
        Ok(status) => {
            let number = status.code().and_then(|code| u8::try_from(code).ok());
            number.map_or(Code::Failed, Code::of_number)
        }
        Err(_) => Code::Failed,
    };
    let message = format!(
        "the files are written, but check found problems; correct them, then run: callbridge check \
         {flags_file}"
    );
    Some(Failure::new(code, message))
}

/// Returns the flags for `run` as lines of a file.
pub(crate) fn flag_lines(flags: &Flags) -> Vec<WrittenFlag> {
    let mut all = Vec::new();
    let json = serde_json::to_value(flags).unwrap_or_default();
    let groups = json.as_object().into_iter().flat_map(Map::values);
    for (name, value) in groups.filter_map(Value::as_object).flatten() {
        let long = name.replace('_', "-");
        match value {
            Value::Bool(true) => all.push(WrittenFlag { long, value: None }),
            Value::String(text) if !text.is_empty() => all.push(WrittenFlag {
                long,
                value: Some(text.clone()),
            }),
            Value::Array(texts) => {
                for text in texts.iter().filter_map(Value::as_str) {
                    all.push(WrittenFlag {
                        long: long.clone(),
                        value: Some(text.to_owned()),
                    });
                }
            }
            _ => {}
        }
    }
    all
}
