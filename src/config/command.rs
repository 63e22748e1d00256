//! Every command, checked: what its flags say is right, and nothing was opened yet.

use super::arguments::{self, ParsedArguments};
use super::options::Flags;
use crate::config::checked::{Checking, Config};
use crate::failure::Failure;
use callbridge_call::EventTime;
use callbridge_control::protocol::CallsQuery;
use callbridge_dead_letter::retry::Employee;
use callbridge_dead_letter::select::Selection;
use callbridge_formats::Format;
use callbridge_leads::lead_field::Item;
use callbridge_log::Logging;
use callbridge_model::environment::Environment;
use callbridge_model::exit::Code;
use callbridge_model::{LeadId, Said};
use callbridge_page::role::PageRole;
use clap_complete::Shell;
use jiff::tz::TimeZone;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    /// `fleet owner`
    FleetOwner {
        pbx: String,
        user: String,
        at: Asking,
    },
    /// `status`
    Status { mode: StatusMode, at: Asking },
    /// `calls`
    Calls(ListCalls, Asking),
    /// `dead …`
    Dead(Dead, Asking),
    /// `lead missing`
    LeadMissing {
        /// `--csv`
        csv: bool,
        at: Asking,
    },
    /// `lead list`
    LeadList(Asking),
    /// `missed`
    Missed {
        /// `--since`, in seconds.
        within_sec: Option<u64>,
        /// `--csv`
        csv: bool,
        at: Asking,
    },
    /// `lead give`, `lead take`, `lead given`
    LeadGiven(GivenLeads, Asking),
    /// `lead check`
    LeadCheck(Box<LeadCheck>),
    /// `page`
    Page {
        /// `--role`
        role: PageRole,
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
    /// `lead set`
    LeadSet {
        lead: LeadId,
        items: Vec<Item>,
        at: Asking,
    },
    /// `sandbox`
    Sandbox(Box<callbridge_sandbox::Options>),
    /// `init`
    Init(Box<Init>),
    /// `state …`
    State(StateMove),
    /// `state forward-again`
    ForwardAgain { since: EventTime, at: Asking },
    /// `completions`
    Completions(Shell),
    /// `man`
    Man,
    /// `licences`
    Licences,
}

impl Command {
    /// A signal is an order to stop in order, and not the end at once.
    pub fn stops_in_order(&self) -> bool {
        match self {
            Self::Run(_) | Self::Demo(_) | Self::Sandbox(_) | Self::Init(_) | Self::Fleet(_) => {
                true
            }
            Self::Calls(calls, _) => calls.follow,
            Self::Dead(dead, _) => matches!(dead, Dead::Watch),
            Self::Status { mode, .. } => *mode == StatusMode::Watch,
            Self::Explain(_)
            | Self::Check(_)
            | Self::Audit(_)
            | Self::LeadMissing { .. }
            | Self::LeadList(_)
            | Self::Missed { .. }
            | Self::LeadGiven(..)
            | Self::FleetOwner { .. }
            | Self::ForwardAgain { .. }
            | Self::LeadCheck(_)
            | Self::Connect(_)
            | Self::Disconnect(_)
            | Self::LeadSet { .. }
            | Self::State(_)
            | Self::Page { .. }
            | Self::PagePassword { .. }
            | Self::Completions(_)
            | Self::Man
            | Self::Licences => false,
        }
    }

    /// The state folder that it works in; `None` for commands without one.
    pub fn state(&self) -> Option<&Path> {
        match self {
            Self::Run(config) => config.state.as_deref(),
            Self::Check(check) => check.config.state.as_deref(),
            Self::Audit(audit) => audit.config.state.as_deref(),
            Self::LeadCheck(check) => check.config.state.as_deref(),
            Self::Explain(explain) if explain.file.is_none() => explain.config.state.as_deref(),
            Self::Status { at, .. }
            | Self::Calls(_, at)
            | Self::Dead(_, at)
            | Self::LeadMissing { at, .. }
            | Self::LeadList(at)
            | Self::Missed { at, .. }
            | Self::LeadGiven(_, at)
            | Self::FleetOwner { at, .. }
            | Self::ForwardAgain { at, .. }
            | Self::Page { at, .. }
            | Self::LeadSet { at, .. } => Some(&at.state),
            Self::Connect(connect) => Some(&connect.state),
            Self::Disconnect(state) => Some(state),
            Self::Explain(_)
            | Self::Demo(_)
            | Self::Fleet(_)
            | Self::Sandbox(_)
            | Self::Init(_)
            | Self::PagePassword { .. }
            | Self::Completions(_)
            | Self::Man
            | Self::Licences => None,
            Self::State(state) => Some(&state.state),
        }
    }

    /// It works in this folder, where it works in one.
    pub fn move_state(&mut self, to: PathBuf) {
        match self {
            Self::Run(config) => config.state = Some(to),
            Self::Check(check) => check.config.state = Some(to),
            Self::Audit(audit) => audit.config.state = Some(to),
            Self::LeadCheck(check) => check.config.state = Some(to),
            Self::Explain(explain) => explain.config.state = Some(to),
            Self::Status { at, .. }
            | Self::Calls(_, at)
            | Self::Dead(_, at)
            | Self::LeadMissing { at, .. }
            | Self::LeadList(at)
            | Self::Missed { at, .. }
            | Self::LeadGiven(_, at)
            | Self::FleetOwner { at, .. }
            | Self::ForwardAgain { at, .. }
            | Self::Page { at, .. }
            | Self::LeadSet { at, .. } => at.state = to,
            Self::Connect(connect) => connect.state = to,
            Self::Disconnect(state) => *state = to,
            Self::State(moved) => moved.state = to,
            Self::Demo(_)
            | Self::Fleet(_)
            | Self::Sandbox(_)
            | Self::Init(_)
            | Self::PagePassword { .. }
            | Self::Completions(_)
            | Self::Man
            | Self::Licences => {}
        }
    }

    /// It reads secrets of the PBX or the CRM.
    pub const fn holds_secrets(&self) -> bool {
        match self {
            Self::Run(_)
            | Self::Check(_)
            | Self::Connect(_)
            | Self::Disconnect(_)
            | Self::Init(_)
            | Self::Fleet(_)
            | Self::PagePassword { .. }
            | Self::State(_) => true,
            Self::Demo(_)
            | Self::Sandbox(_)
            | Self::Calls(..)
            | Self::Dead(..)
            | Self::Explain(_)
            | Self::Audit(_)
            | Self::Status { .. }
            | Self::LeadMissing { .. }
            | Self::LeadList(_)
            | Self::Missed { .. }
            | Self::LeadGiven(..)
            | Self::FleetOwner { .. }
            | Self::ForwardAgain { .. }
            | Self::LeadCheck(_)
            | Self::LeadSet { .. }
            | Self::Page { .. }
            | Self::Completions(_)
            | Self::Man
            | Self::Licences => false,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMove {
    /// From the file into the folder.
    pub import: bool,
    pub file: PathBuf,
    /// `--state`
    pub state: PathBuf,
}

/// Where the daemon, or its spool, is asked; and how the answer is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// `--state`
    pub state: PathBuf,
    /// `--json`
    pub json: bool,
    /// `--pbx-timezone`: the zone in which people read times, in place of the daemon's.
    pub zone: Option<TimeZone>,
}

/// `calls`
#[derive(Clone, Debug, PartialEq)]
pub struct ListCalls {
    pub which: CallsQuery,
    /// `--follow`
    pub follow: bool,
}

/// Leads that people give to numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenLeads {
    /// `lead give`
    Give {
        /// As a person writes it.
        phone: String,
        lead: LeadId,
    },
    /// `lead take`, of a number as a person writes it.
    Take(String),
    /// `lead given`
    List,
}

/// `dead …`
#[derive(Clone, Debug, PartialEq)]
pub enum Dead {
    /// `dead list`
    List(Selection),
    /// `dead show`
    Show(Selection),
    /// `dead retry`
    Retry {
        which: Selection,
        /// `--lead`
        lead: Option<LeadId>,
        /// `--employee`
        employee: Option<Employee>,
        /// `--answered`, `--talk`
        said: Option<Said>,
        /// `--dry-run`
        dry_run: bool,
    },
    /// `dead discard`
    Discard(Selection),
    /// `dead export`
    Export {
        which: Selection,
        /// CSV, or else JSON lines.
        csv: bool,
    },
    /// `dead watch`
    Watch,
}

/// `lead check`
#[derive(Debug)]
pub struct LeadCheck {
    /// As a person writes it.
    pub phone: String,
    /// `--json`
    pub json: bool,
    /// The flags of `run`: the trunks, for when no daemon runs.
    pub config: Config,
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
    let (options, faults) = match arguments::read(arguments) {
        ParsedArguments::Command(options, faults) => (options, faults),
        ParsedArguments::Show(text) => return Ok(CommandLine::Show(text)),
        ParsedArguments::Refused(code, words) => return Err(Failure::new(code, words)),
    };
    let Some(verb) = options.command else {
        let help = arguments::command().render_help().to_string();
        return Err(Failure::new(
            Code::Usage,
            format!("no command is given\n\n{}", help.trim()),
        ));
    };
    let command = Checking::new(environment, faults).check(verb)?;
    Ok(CommandLine::Command(Box::new(command)))
}
