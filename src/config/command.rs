//! Every command, checked: what its flags say is right, and nothing was opened yet.

use super::arguments::{self, ParsedArguments};
use super::flags::Flags;
use crate::Failure;
use crate::config::{Checking, Config};
use crate::privilege::{Held, Needs, OwnFile};
use callbridge_admin::{ControlRequest, PageRole};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_mapping::Rules;
use callbridge_model::{Code, Environment};
use callbridge_ops::log::Logging;
use clap_complete::Shell;
use jiff::tz::TimeZone;
use std::ffi::OsString;
use std::path::PathBuf;

/// A command with its checked flags.
#[derive(Debug)]
pub enum Command {
    /// `run`
    Run(Box<Config>),
    /// `demo`
    Demo(Demo),
    /// `explain`
    Explain(Box<Explain>),
    /// `check`
    Check(Box<Check>),
    /// `audit`
    Audit(Box<Audit>),
    /// `fleet`
    Fleet(Box<callbridge_fleet::FleetOptions>),
    /// `status`
    Status(StatusMode, Asking),
    /// What else the daemon in a state folder is asked, or its spool.
    Ask {
        request: ControlRequest,
        /// `--csv`, `--format csv`
        csv: bool,
        at: Asking,
    },
    /// `page password`
    PagePassword {
        /// NAME
        name: String,
        /// ROLE
        role: PageRole,
    },
    /// `connect`
    Connect(Box<crate::config::checked::connect::Connect>),
    /// `disconnect`, with its state folder.
    Disconnect(PathBuf),
    /// `sandbox`
    Sandbox(Box<callbridge_sandbox::Options>),
    /// `init`
    Init(Box<Init>),
    /// `state …`
    State(StateMove),
    /// `completions`
    Completions(Shell),
    /// `man`
    Man,
    /// `licences`
    Licences,
}

impl Command {
    /// What it works with: a command that is new is asked for it here.
    pub(crate) fn needs(&mut self) -> Needs<'_> {
        let none = Needs::default();
        let folder = |state| Needs {
            state,
            ..Needs::default()
        };
        match self {
            Self::Run(config) => Needs {
                stops_in_order: true,
                ..config.needs()
            },
            Self::Check(check) => Needs {
                judges_folder: true,
                ..check.config.needs()
            },
            Self::Connect(connect) => Needs {
                state: Some(&mut connect.state),
                holds_secrets: true,
                secrets: vec![&mut connect.secret],
                listen: connect.redirect.listen().unwrap_or_default(),
                held: Some(&mut connect.held),
                ..none
            },
            Self::Explain(explain) if explain.file.is_some() => none,
            Self::Explain(explain) => Needs {
                state: explain.config.state.as_mut(),
                file: explain.picture.as_deref().map(OwnFile::Picture),
                held: Some(&mut explain.config.held),
                ..none
            },
            Self::State(state) => Needs {
                state: Some(&mut state.state),
                holds_secrets: true,
                file: Some(match state.import {
                    true => OwnFile::Import(&state.file),
                    false => OwnFile::Export(&state.file),
                }),
                held: Some(&mut state.held),
                ..none
            },
            Self::Audit(audit) => folder(audit.config.state.as_mut()),
            Self::Status(mode, at) => Needs {
                stops_in_order: *mode == StatusMode::Watch,
                ..folder(Some(&mut at.state))
            },
            Self::Ask { request, at, .. } => Needs {
                stops_in_order: matches!(
                    request,
                    ControlRequest::Watch | ControlRequest::Calls { follow: true, .. }
                ),
                ..folder(Some(&mut at.state))
            },
            Self::Disconnect(state) => Needs {
                holds_secrets: true,
                ..folder(Some(state))
            },
            Self::Init(_) | Self::Fleet(_) => Needs {
                holds_secrets: true,
                stops_in_order: true,
                ..none
            },
            Self::PagePassword { .. } => Needs {
                holds_secrets: true,
                ..none
            },
            Self::Demo(_) | Self::Sandbox(_) => Needs {
                stops_in_order: true,
                ..none
            },
            Self::Completions(_) | Self::Man | Self::Licences => none,
        }
    }
}

/// What `status` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMode {
    /// How all stands, once.
    Once,
    /// `--exit-code`: the verdict is how the command ends.
    ExitCode,
    /// `--watch`
    Watch,
    /// `--healthy`: nothing but how the command ends.
    Healthy,
}

/// The PBX whose calls `demo` plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoPbx {
    /// AMI as JSON, over a WebSocket.
    Asterisk,
    /// An event socket.
    Freeswitch,
}

/// `demo`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demo {
    /// `--pbx`
    pub pbx: DemoPbx,
    /// `--stay`
    pub stay: bool,
    /// `--json`
    pub json: bool,
    pub log: Logging,
}

/// `explain`
#[derive(Debug)]
pub struct Explain {
    /// FILE and its `--format`; `None` asks the spool for `call`.
    pub file: Option<(PathBuf, Format)>,
    /// `--call`
    pub call: Option<String>,
    /// `--picture`
    pub picture: Option<PathBuf>,
    /// `--json`
    pub json: bool,
    /// The flags of `run`.
    pub config: Config,
}

impl Explain {
    /// One call is shown rather than all.
    pub fn chooses(&self) -> bool {
        self.call.is_some() || self.picture.is_some()
    }
}

/// `audit`
#[derive(Debug)]
pub struct Audit {
    /// `--cdr` or `--cel`
    pub file: PathBuf,
    pub format: Format,
    /// `--from`
    pub from: Option<EventTime>,
    /// `--to`: before this moment.
    pub until: Option<EventTime>,
    /// `--take-in`
    pub take_in: bool,
    /// Without `--no-journal`.
    pub journal: bool,
    /// `--json`
    pub json: bool,
    /// The flags of `run`.
    pub config: Config,
}

/// `check`
#[derive(Debug)]
pub struct Check {
    /// `--json`
    pub json: bool,
    /// The flags of `run`.
    pub config: Config,
}

/// `init`
#[derive(Debug)]
pub struct Init {
    /// `--name`
    pub name: String,
    /// `--etc`
    pub etc: PathBuf,
    /// `--yes`
    pub yes: bool,
    /// A person answers at a terminal.
    pub asks: bool,
    /// The flags of `run`, as they were typed; right as far as they go.
    pub flags: Flags,
}

/// `state export`, `state import`
#[derive(Debug)]
pub struct StateMove {
    /// From the file into the folder.
    pub import: bool,
    pub file: PathBuf,
    /// `--state`
    pub state: PathBuf,
    pub(crate) held: Held,
}

/// Where the daemon, or its spool, is asked; and how the answer is printed.
#[derive(Clone, Debug)]
pub struct Asking {
    /// `--state`
    pub state: PathBuf,
    /// `--json`
    pub json: bool,
    /// `--pbx-timezone`: the zone in which people read times, in place of the daemon's.
    pub zone: Option<TimeZone>,
    /// The trunks of the flags of `run`, for where no daemon runs.
    pub rules: Rules,
}

impl Asking {
    /// As the flags of `run` say it.
    pub(crate) fn of(config: &Config, json: bool) -> Self {
        Self {
            state: config.state.clone().unwrap_or_default(),
            json,
            zone: config.pbx_timezone.clone(),
            rules: config.rules.clone(),
        }
    }
}

/// What the arguments ask for.
#[derive(Debug)]
pub enum CommandLine {
    Command(Box<Command>),
    /// Help or the version, for stdout.
    Show(String),
}

/// Reads and checks the arguments, the program's name first.
pub fn read(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<CommandLine, Failure> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let file = arguments::flags_file(&arguments);
    let beside = file.map(|file| environment.clone().beside(&file));
    let environment = beside.as_ref().unwrap_or(environment);
    let (options, faults) = match arguments::read(arguments)? {
        ParsedArguments::Command(options, faults) => (options, faults),
        ParsedArguments::Show(text) => return Ok(CommandLine::Show(text)),
    };
    let Some(verb) = options.command else {
        let help = arguments::command().render_help().to_string();
        let words = format!("no command is given\n\n{}", help.trim());
        return Err(Failure::new(Code::Usage, words));
    };
    let command = Checking::new(environment, faults).check(verb)?;
    Ok(CommandLine::Command(Box::new(command)))
}
