//! `init`: asks what cannot be found out, finds out the rest, and writes the flags and secrets of a
//! service; nothing before the end.
//!
//! | module | what lives there |
//! |---|---|
//! | [`pbx`] | the PBX: lets us in, shows its endpoints; [`trunks`]: which are trunks |
//! | [`service`] | the CRM: whether the address and the token are right |
//! | [`notify`] | who is told of troubles: a chat, a mailbox, or nobody |
//! | [`files`] | the files, what is there already, and the writing |
//!
//! [`Person`] is whoever sits at the terminal; without one nothing is asked.

pub(crate) mod files;
pub(crate) mod notify;
pub(crate) mod pbx;
pub(crate) mod service;
pub(crate) mod trunks;

use crate::config::flags::Flags;
use crate::config::{Checking, Config, Faults, Init, STATES};
use crate::terminal::{Keyboard, StdinLines};
use crate::{Failure, Result, print};
use callbridge_call::EventTime;
use callbridge_mapping::LeadRule;
use callbridge_model::{Code, ETC, Environment, Secret, clock, safe_lines};
use callbridge_setup::{flags_file::WrittenFlag, question::SetupQuestion, zone};
use files::Planned;
use jiff::tz::TimeZone;
use rustix::termios::LocalModes;
use serde_json::{Map, Value};
use std::{path::Path, path::PathBuf, process::Stdio};

const UNSHOWN: &str = "\nThe PBX has not shown that it has these lines (manager.conf, then \
                       `manager reload`):";
const LOOKUP: &str =
    "Tell the PBX who calls while it rings: the lead's name, whose desk rings first?";
const LOOKUP_AT: &str = "127.0.0.1:4573";
const DIALPLAN: &str = "the dialplan for it: caller.conf in deploy/asterisk, or with the package \
                        in /usr/share/doc/callbridge/examples";
const EMPLOYEES: &str = "Employees, as 101:501;102:502 (extension and the employee's id in the \
                         CRM) or a FILE; empty for none: ";

/// The answers so far: flags, and secrets that were typed.
pub(crate) struct Answers<'a> {
    pub init: Init,
    pub environment: &'a Environment,
    /// Typed, not given by a file or a variable.
    pub ami_secret: Option<Secret>,
    pub token: Option<Secret>,
    /// The messenger for notices of problems, as typed.
    pub messenger: Option<notify::Messenger>,
}

impl Answers<'_> {
    /// The flags as they are by now, checked as far as they go.
    pub(crate) fn config(&self) -> Result<Config, Faults> {
        let checking = Checking::new(self.environment, Faults::default());
        checking.config(self.init.flags.clone())
    }

    /// Puts an answer into the flags. One that is wrong is told, and taken out again.
    pub(crate) fn take(
        &mut self,
        person: &Person,
        answer: impl FnOnce(&mut Flags),
    ) -> Result<bool> {
        let before = self.init.flags.clone();
        answer(&mut self.init.flags);
        let Err(faults) = self.config() else {
            return Ok(true);
        };
        self.init.flags = before;
        person.say(&faults.to_string())?;
        Ok(false)
    }

    /// Nothing answers this question yet.
    pub(crate) fn lacks(&self, question: SetupQuestion) -> bool {
        let typed = match question {
            SetupQuestion::AccountSecret => self.ami_secret.is_some(),
            SetupQuestion::Token => self.token.is_some(),
            _ => false,
        };
        let missing = crate::config::missing_answers(&self.init.flags, self.environment);
        !typed && missing.contains(&question)
    }
}

/// Sets a service up. `shutdown` is Ctrl-C.
///
/// # Errors
/// 130 when it was left, 77 when PBX or CRM refuse, 69 when one is not there, 73 when the files
/// cannot be written, 78 when no trunk is clear; then nothing was written.
pub(crate) async fn run(
    init: Init,
    environment: &Environment,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    files::must_be_writable(&init.etc)?;
    let mut person = Person::new(init.asks);
    let file = init.etc.join(format!("{}.flags", init.name));
    let environment = &environment.clone().beside(&file);
    let prepared = tokio::select! {
        prepared = prepare(init, environment, &mut person) => prepared,
        () = &mut shutdown => Err(left()),
    };
    let (planned, messenger) = prepared?;
    planned.write()?;
    tokio::select! {
        ended = afterwards(&planned, messenger.as_ref(), &mut person) => ended,
        // The files stand; what follows can be done by hand.
        () = shutdown => Ok(()),
    }
}

/// Returns the failure of a person who has left (130).
pub(crate) fn left() -> Failure {
    Failure::new(Code::Left, "left before the end: nothing was written")
}

async fn prepare(
    init: Init,
    environment: &Environment,
    person: &mut Person,
) -> Result<(Planned, Option<notify::Messenger>)> {
    let mut answers = Answers {
        init,
        environment,
        ami_secret: None,
        token: None,
        messenger: None,
    };
    let shown = pbx::find(&mut answers, person).await?;
    trunks::find(&mut answers, person, &shown).await?;
    service::find(&mut answers, person).await?;
    rules(&mut answers, person).await?;
    employees(&mut answers, person).await?;
    lookup(&mut answers, person).await?;
    notify::find(&mut answers, person).await?;
    place(&mut answers, &shown);
    let snippet = pbx::snippet(&answers, &shown);
    if !snippet.is_empty() {
        person.say(UNSHOWN)?;
        person.say(&snippet)?;
    }
    let planned = files::plan(&answers, &shown)?;
    planned.agree(person, answers.init.yes).await?;
    Ok((planned, answers.messenger))
}

/// The lead rule and the country: asked until they are right.
async fn rules(answers: &mut Answers<'_>, person: &mut Person) -> Result<()> {
    for question in [SetupQuestion::LeadRule, SetupQuestion::Country] {
        while answers.lacks(question) {
            let typed = person.ask(question).await?;
            answers.take(person, |flags| match question {
                SetupQuestion::Country => flags.trunks.country = Some(typed.to_ascii_uppercase()),
                _ => flags.trunks.lead = Some(typed),
            })?;
        }
    }
    Ok(())
}

/// Asks for the employees at the extensions. None is an answer, and repeated to the person; flags
/// that name them already are not asked for again.
async fn employees(answers: &mut Answers<'_>, person: &mut Person) -> Result<()> {
    let flags = &answers.init.flags.trunks;
    let named = flags.trunk.iter().any(|it| it.contains(",employees="));
    let known = flags.employees.is_some() || named;
    while person.asks() && !known {
        let typed = person.line(EMPLOYEES).await?;
        if typed.is_empty() {
            return person.say("no call will name an employee until --employees is given");
        }
        if answers.take(person, |flags| flags.trunks.employees = Some(typed))? {
            return Ok(());
        }
    }
    Ok(())
}

/// Asks whether the dialplan may look callers up; only where leads are found by the caller's
/// number.
async fn lookup(answers: &mut Answers<'_>, person: &mut Person) -> Result<()> {
    let Ok(config) = answers.config() else {
        return Ok(());
    };
    let rules = config.rules.every_trunk().flat_map(|trunk| &trunk.leads);
    let by_number = rules.into_iter().any(LeadRule::is_by_number);
    let open = by_number && answers.init.flags.lookup.lookup.is_none();
    if person.asks() && open && person.agrees(LOOKUP, false).await? {
        answers.init.flags.lookup.lookup = Some(LOOKUP_AT.to_owned());
        person.say(DIALPLAN)?;
    }
    Ok(())
}

/// The PBX's name, zone and state, where no flag gives them.
fn place(answers: &mut Answers<'_>, shown: &pbx::ShownPbx) {
    let (name, flags) = (&answers.init.name, &mut answers.init.flags);
    let named = flags.sources.source.iter().any(|url| url.contains("pbx="));
    if flags.sources.pbx_id.is_none() && !named {
        flags.sources.pbx_id = Some(name.clone());
    }
    if flags.sources.pbx_timezone.is_none() {
        let here = TimeZone::system();
        let country = flags.trunks.country.as_deref();
        let (zone, why) = zone::propose(here.iana_name(), shown.local, country);
        let _ = print(format!(
            "zone: {zone} ({why}; --pbx-timezone gives another)\n"
        ));
        flags.sources.pbx_timezone = Some(zone);
    }
    if flags.operation.state.is_none() && answers.init.etc == Path::new(ETC) {
        flags.operation.state = Some(format!("{STATES}/{name}"));
    }
    if let Some(account) = shown.accounts.first() {
        let seconds = |at: EventTime| at.floor_seconds().get();
        let (theirs, ours) = (account.clock.map(seconds), seconds(clock::now().wall));
        let _ = print(format!("clock: {}\n", zone::clock(theirs, ours)));
    }
}

/// `check` with what was written, as another process: it becomes the owner of the state.
async fn afterwards(
    planned: &Planned,
    messenger: Option<&notify::Messenger>,
    person: &mut Person,
) -> Result<()> {
    person.say(&format!("\nwritten: {}", planned.listed()))?;
    let at = format!("@{}", planned.flags.display());
    if let Some(connect) = &planned.connect {
        person.say(&format!("\nNext, the company's consent:\n  {connect}"))?;
    } else {
        person.say(&format!("\ncallbridge check {at}"))?;
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("callbridge"));
        let mut check = tokio::process::Command::new(program);
        let check = check.args(["check", &at]).stdin(Stdio::null());
        if !check.status().await.is_ok_and(|status| status.success()) {
            person.say("the faults found there remain to be corrected; the files are written")?;
        }
    }
    if let Some(messenger) = messenger {
        messenger.offer_trial(person).await?;
    }
    let service = format!("callbridge@{}", planned.name);
    let here = planned.is_of_service() && Path::new("/run/systemd/system").is_dir();
    let asks = here && planned.connect.is_none() && person.asks();
    let question = format!("Enable and start {service} now?");
    if asks && person.agrees(&question, true).await? {
        let mut enable = tokio::process::Command::new("systemctl");
        let ended = enable.args(["enable", "--now", &service]).status().await;
        if ended.is_ok_and(|status| status.success()) {
            return person.say(&format!("{service} runs"));
        }
    }
    let next = match planned.is_of_service() {
        true => format!("systemctl enable --now {service}"),
        false => format!("callbridge run {at}"),
    };
    person.say(&format!("\nLet it run:\n  {next}"))
}

/// The flags of `run` as lines of a file.
pub(crate) fn written(flags: &Flags) -> Vec<WrittenFlag> {
    let mut all = Vec::new();
    let groups = serde_json::to_value(flags).unwrap_or_default();
    let groups = groups.as_object().into_iter().flat_map(Map::values);
    for (name, value) in groups.filter_map(Value::as_object).flatten() {
        let mut add = |value: Option<&str>| {
            let (long, value) = (name.replace('_', "-"), value.map(str::to_owned));
            all.push(WrittenFlag { long, value });
        };
        match value {
            Value::Bool(true) => add(None),
            Value::String(text) if !text.is_empty() => add(Some(text)),
            Value::Array(texts) => {
                let texts = texts.iter().filter_map(Value::as_str);
                texts.for_each(|text| add(Some(text)));
            }
            _ => {}
        }
    }
    all
}

/// The person at the terminal, if any, who answers.
pub(crate) struct Person {
    lines: Option<StdinLines>,
}

impl Person {
    pub(crate) fn new(asks: bool) -> Self {
        let lines = asks.then(StdinLines::listen);
        Self { lines }
    }

    /// Returns `true` where somebody can be asked.
    pub(crate) const fn asks(&self) -> bool {
        self.lines.is_some()
    }

    /// A line, or several; with whatever came from outside in them.
    pub(crate) fn say(&self, words: &str) -> Result<()> {
        print(format!("{}\n", safe_lines(words)))
    }

    /// The answer to a question; its default for an empty line.
    pub(crate) async fn ask(&mut self, question: SetupQuestion) -> Result<String> {
        loop {
            let default = question.default();
            let shown = default.map_or_else(String::new, |it| format!(" [{it}]"));
            let prompt = format!("{}{shown}: ", question.words());
            let typed = match question.is_secret() {
                true => self.secret(&prompt).await?,
                false => self.line(&prompt).await?,
            };
            match (typed.as_str(), default) {
                ("", Some(default)) => return Ok(default.to_owned()),
                // No token is an answer: by consent.
                ("", None) if question != SetupQuestion::Token => {}
                _ => return Ok(typed),
            }
        }
    }

    /// Yes or no; an empty line is `default`.
    pub(crate) async fn agrees(&mut self, words: &str, default: bool) -> Result<bool> {
        let choice = if default { "[Y/n]" } else { "[y/N]" };
        loop {
            let typed = self.line(&format!("{words} {choice} ")).await?;
            match typed.to_ascii_lowercase().as_str() {
                "" => return Ok(default),
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }

    /// One line that was typed and not shown.
    pub(crate) async fn secret(&mut self, prompt: &str) -> Result<String> {
        let unseen = Keyboard::without(LocalModes::ECHO);
        let typed = self.line(prompt).await?;
        drop(unseen);
        print(b"\n")?;
        Ok(typed)
    }

    /// One line that was typed, without white space around it.
    pub(crate) async fn line(&mut self, prompt: &str) -> Result<String> {
        print(prompt)?;
        let Some(lines) = &mut self.lines else {
            return Err(left());
        };
        let typed = lines.line().await.ok_or_else(left)?;
        Ok(typed.trim().to_owned())
    }
}
