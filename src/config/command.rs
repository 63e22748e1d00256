//! Every command, checked: what its flags say is right, and nothing was opened yet.

use super::arguments;
use super::checking::init::InitFlags;
use crate::Result;
use crate::config::{Checking, Config};
use crate::privilege::{Held, Needs, OwnFile};
use callbridge_admin::{ControlRequest, PageRole};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_mapping::Rules;
use callbridge_model::Environment;
use callbridge_ops::log::Logging;
use jiff::tz::TimeZone;
use std::{ffi::OsString, path::PathBuf};

/// A command with its checked flags.
#[derive(Debug)]
pub enum Command {
    Run(Box<Config>),
    Demo(Demo),
    Explain(Box<Explain>),
    Check(Box<Check>),
    Audit(Box<Audit>),
    Status(StatusMode, Asking),
    /// The commands that ask the daemon of a state folder, or its spool, and print the answer.
    Ask {
        request: ControlRequest,
        /// The flag `--csv`, or `--format csv` of `dead export`.
        csv: bool,
        at: Asking,
    },
    PagePassword {
        name: String,
        role: PageRole,
    },
    Connect(Box<crate::config::checked::connect::Connect>),
    /// `disconnect`, with its state folder.
    Disconnect(PathBuf),
    Sandbox(Box<callbridge_sandbox::Options>),
    Init(Box<InitFlags>),
    /// The commands `state export` and `state import`.
    State(StateMove),
    /// The commands that only print a text; help and the version, too.
    Print(Vec<u8>),
}

impl Command {
    /// Returns the folder, secrets, addresses and file of the command; a new command is added here.
    pub(crate) fn needs(&mut self) -> Needs<'_> {
        let of = |state, holds_secrets, stops_in_order| Needs {
            state,
            holds_secrets,
            stops_in_order,
            ..Needs::default()
        };
        match self {
            Self::Run(config) => config.needs(true),
            Self::Check(check) => check.config.needs(false),
            Self::Connect(connect) => Needs {
                secrets: vec![&mut connect.secret],
                listen: connect.redirect.listen().unwrap_or_default(),
                held: Some(&mut connect.held),
                ..of(Some(&mut connect.state), true, false)
            },
            Self::Explain(explain) if explain.file.is_some() => of(None, false, false),
            Self::Explain(explain) => Needs {
                file: explain.picture.as_deref().map(OwnFile::Picture),
                held: Some(&mut explain.config.held),
                ..of(explain.config.state.as_mut(), false, false)
            },
            Self::State(state) => Needs {
                file: Some(match state.import {
                    true => OwnFile::Import(&state.file),
                    false => OwnFile::Export(&state.file),
                }),
                held: Some(&mut state.held),
                ..of(Some(&mut state.state), true, false)
            },
            Self::Audit(audit) => of(audit.config.state.as_mut(), false, false),
            Self::Status(mode, at) => of(Some(&mut at.state), false, *mode == StatusMode::Watch),
            Self::Ask { request, at, .. } => {
                let follows = matches!(request, ControlRequest::Calls { follow: true, .. });
                let watches = matches!(request, ControlRequest::Watch);
                of(Some(&mut at.state), false, follows || watches)
            }
            Self::Disconnect(state) => of(Some(state), true, false),
            Self::Init(_) => of(None, true, true),
            Self::PagePassword { .. } => of(None, true, false),
            Self::Demo(_) | Self::Sandbox(_) => of(None, false, true),
            Self::Print(_) => of(None, false, false),
        }
    }
}

/// The way in which `status` shows the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusMode {
    /// The status is shown, and the command ends with 0.
    Once,
    /// `--exit-code`: the verdict is how the command ends.
    ExitCode,
    /// The status is drawn anew each second: `--watch`.
    Watch,
    /// `--healthy`: nothing but how the command ends.
    Healthy,
}

/// The PBX whose calls `demo` plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoPbx {
    /// AMI as JSON, over a WebSocket.
    Asterisk,
    /// Events as JSON, over an event socket.
    Freeswitch,
}

/// The flags of `demo`, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demo {
    pub pbx: DemoPbx,
    /// The demo serves on when all calls are settled.
    pub stay: bool,
    pub json: bool,
    pub log: Logging,
}

/// The flags of `explain`, checked.
#[derive(Debug)]
pub struct Explain {
    /// FILE and its `--format`; `None` asks the spool for `call`.
    pub file: Option<(PathBuf, Format)>,
    /// The id or number of `--call`: that call alone is shown.
    pub call: Option<String>,
    /// The file of `--picture`, an SVG.
    pub picture: Option<PathBuf>,
    pub json: bool,
    pub config: Config,
}

/// The flags of `audit`, checked.
#[derive(Debug)]
pub struct Audit {
    /// The path of `--cdr` or `--cel`.
    pub file: PathBuf,
    pub format: Format,
    /// The moment of `--from`: calls that began earlier are left out.
    pub from: Option<EventTime>,
    /// The moment behind `--to`: calls that began at it or later are left out.
    pub until: Option<EventTime>,
    /// The flag `--take-in`: calls that nothing explains are stored.
    pub take_in: bool,
    /// The CRM's journal is searched, too: `--no-journal` was not given.
    pub journal: bool,
    pub json: bool,
    pub config: Config,
}

/// The flags of `check`, checked.
#[derive(Debug)]
pub struct Check {
    pub json: bool,
    pub config: Config,
}

/// The flags of `state export` and `state import`, checked.
#[derive(Debug)]
pub struct StateMove {
    /// From the file into the folder.
    pub import: bool,
    pub file: PathBuf,
    pub state: PathBuf,
    pub(crate) held: Held,
}

/// The state folder whose daemon or spool is asked, and the form of the answer.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The state folder of `--state`, or of the only daemon that runs.
    pub state: PathBuf,
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

/// Reads and checks the arguments, the program's name first.
pub fn read(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Command> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let file = arguments::flags_file(&arguments);
    let beside = file.map(|file| environment.clone().beside(&file));
    let (verb, faults) = arguments::read(arguments)?;
    let checking = Checking::new(beside.as_ref().unwrap_or(environment), faults);
    Ok(checking.check(verb)?)
}
