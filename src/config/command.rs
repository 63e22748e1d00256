//! Every command, checked: what its flags say is right, and nothing was opened yet.

use super::arguments;
use super::checking::init::InitFlags;
use crate::Result;
use crate::config::{Checking, Config};
use callbridge_admin::{ControlRequest, PageRole};
use callbridge_call::EventTime;
use callbridge_formats::Format;
use callbridge_mapping::Rules;
use callbridge_model::Environment;
use callbridge_ops::log::Logging;
use callbridge_spool::StatePlace;
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
    /// `disconnect`, with its state folder. `forget`: also where tokens cannot be revoked.
    Disconnect {
        state: StatePlace,
        forget: bool,
    },
    Sandbox(Box<callbridge_sandbox::Options>),
    Init(Box<InitFlags>),
    /// The commands `state export`, `state import`, and `state move`.
    State(StateCommand),
    /// The commands that only print a text; help and the version, too.
    Print(Vec<u8>),
}

impl Command {
    /// The state that the command uses; `None` if it uses none.
    pub(crate) fn state(&self) -> Option<&StatePlace> {
        match self {
            Self::Run(config) => config.state.as_ref(),
            Self::Check(check) => check.config.state.as_ref(),
            Self::Audit(audit) => audit.config.state.as_ref(),
            Self::Explain(explain) if explain.file.is_some() => None,
            Self::Explain(explain) => explain.config.state.as_ref(),
            Self::Connect(connect) => Some(&connect.state),
            Self::Disconnect { state, .. } => Some(state),
            Self::State(state) => Some(&state.state),
            Self::Status(_, at) | Self::Ask { at, .. } => Some(&at.state),
            Self::Demo(_) | Self::Sandbox(_) | Self::Init(_) => None,
            Self::PagePassword { .. } | Self::Print(_) => None,
        }
    }

    /// Returns `true` if the command reads secrets of the PBX or the CRM. Other processes must not
    /// be able to read its memory then.
    pub(crate) const fn holds_secrets(&self) -> bool {
        match self {
            Self::Run(_) | Self::Check(_) | Self::Connect(_) | Self::Disconnect { .. } => true,
            Self::State(_) | Self::Init(_) | Self::PagePassword { .. } => true,
            Self::Explain(_) | Self::Audit(_) | Self::Status(..) | Self::Ask { .. } => false,
            Self::Demo(_) | Self::Sandbox(_) | Self::Print(_) => false,
        }
    }

    /// Returns `true` if a signal stops the command in order. Otherwise a signal ends it at once.
    pub(crate) const fn stops_in_order(&self) -> bool {
        match self {
            Self::Run(_) | Self::Init(_) | Self::Demo(_) | Self::Sandbox(_) => true,
            Self::Status(mode, _) => matches!(mode, StatusMode::Watch),
            Self::Ask { request, .. } => matches!(
                request,
                ControlRequest::Calls { follow: true, .. } | ControlRequest::Watch
            ),
            Self::Check(_) | Self::Connect(_) | Self::Disconnect { .. } | Self::State(_) => false,
            Self::Explain(_) | Self::Audit(_) | Self::PagePassword { .. } | Self::Print(_) => false,
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

/// What is done with a whole state.
#[derive(Clone, Debug)]
pub enum StateAction {
    /// It is written into a file.
    Export {
        file: PathBuf,
        /// With the secrets of an OAuth connection.
        with_secrets: bool,
    },
    /// It is read from a file.
    Import { file: PathBuf },
    /// It moves to another place.
    Move { to: StatePlace },
}

/// The flags of `state export`, `state import`, and `state move`, checked.
#[derive(Debug)]
pub struct StateCommand {
    pub action: StateAction,
    pub state: StatePlace,
}

/// The state folder whose daemon or spool is asked, and the form of the answer.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The state of `--state`, or of the only daemon that runs.
    pub state: StatePlace,
    pub json: bool,
    /// `--pbx-timezone`: the zone in which people read times, in place of the daemon's.
    pub zone: Option<TimeZone>,
    /// The trunks of the flags of `run`, for where no daemon runs.
    pub rules: Rules,
}

impl Asking {
    /// As the flags of `run` say it.
    pub(crate) fn from_config(config: &Config, json: bool) -> Self {
        Self {
            state: config.state_place(),
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
    let beside = file.map(|file| environment.clone().with_service(&file));
    let (verb, faults) = arguments::read(arguments)?;
    let checking = Checking::new(beside.as_ref().unwrap_or(environment), faults);
    Ok(checking.check(verb)?)
}
