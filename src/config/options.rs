//! The commands and their flags as typed. They are only texts, which [`crate::config::checked`]
//! checks all at once. The flags of `run` are in [`super::flags`].

use super::checked::connect::ConnectFlags;
use super::checking::init;
use super::flags::{Flags, LogFlags, StateFlags};
use clap::{Args, Parser, Subcommand};

/// Puts every finished customer call of a PBX into a CRM's call journal, once.
#[derive(Debug, Parser)]
#[command(name = "callbridge", after_help = ABOUT)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub command: Option<Verb>,
}

const ABOUT: &str = "\
Try it without a PBX or a CRM:  callbridge demo
See what would be journaled:    callbridge explain --help
Set a service up:               callbridge init
Find out what is missing:       callbridge check @/etc/callbridge/flags
Let it run:                     callbridge run @/etc/callbridge/flags

@FILE reads one argument a line (# begins a comment; no quoting). Every flag
of run, explain and check has an environment variable: --crm-url is
CALLBRIDGE_CRM_URL; a flag that may be repeated takes one value a line.";

/// The commands with their flags, as typed; the texts are those of the help.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Watch the PBX and journal its calls: the sidecar
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<Flags>),
    /// Play recorded calls into a CRM of its own, on this machine alone, and show what happens
    Demo(DemoFlags),
    /// Say what would be journaled of a recording, and why; sends nothing
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainFlags>),
    /// Try each source, right, grant, folder and file, and say what to do about what is wrong
    Check {
        /// One JSON object a check: name, ok, message, fix
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Compare a file of the PBX with what became of its calls, and name each that is missing
    #[command(after_help = AUDIT_EXAMPLES)]
    Audit(Box<AuditFlags>),
    /// Show what is wrong and what to do about it, then books, sources, token and budget
    #[command(after_help = STATUS_EXIT)]
    Status(StatusFlags),
    /// List calls, a line each, newest last: of a day, a number, a trunk; or follow them
    #[command(after_help = CALLS_EXAMPLES)]
    Calls(CallsFlags),
    /// Show calls that the CRM did not take, correct them, and send them again
    #[command(subcommand)]
    Dead(DeadVerb),
    /// Find numbers without a lead, and what a number maps to
    #[command(subcommand)]
    Lead(LeadVerb),
    /// List customers who called, reached nobody and still wait for a call back, longest first
    #[command(after_help = MISSED_EXAMPLES)]
    Missed {
        /// Only those who tried in this time, as 24h
        #[arg(long, value_name = "T")]
        since: Option<String>,
        /// As CSV
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Add, list, and remove the branches whose calls this hub takes
    #[command(subcommand)]
    Branch(BranchVerb),
    /// Print a link that opens the administrator's page, or a line for its password file
    #[command(after_help = PAGE_EXAMPLES)]
    Page(PageCommandFlags),
    /// Ask a company for its consent, and keep the tokens that it gives
    #[command(after_help = super::checked::connect::EXAMPLE)]
    Connect(Box<ConnectFlags>),
    /// Revoke the tokens of a connection and remove it
    Disconnect {
        /// The state: a folder or a database (postgres://…) [default: $STATE_DIRECTORY, else
        /// ~/.local/state/callbridge]
        #[arg(long, value_name = "DIR")]
        state: Option<String>,
        /// Remove the connection even if its tokens cannot be revoked. They end when you disconnect
        /// the application in the CRM
        #[arg(long)]
        forget: bool,
    },
    /// Serve a test CRM that keeps every rule of the service's document
    Sandbox(Box<callbridge_sandbox::Options>),
    /// Set a service up: ask what cannot be detected, detect the rest, write its flags
    #[command(after_help = init::EXAMPLES)]
    Init(Box<init::InitFlags>),
    /// Export a state into a tar file, import it, or move it to another place
    #[command(subcommand)]
    State(StateVerb),
    /// Print completions for a shell
    Completions {
        /// bash, elvish, fish, powershell or zsh
        shell: Option<String>,
    },
    /// Print the manual page
    Man,
    /// Print the libraries in this program, with their licenses
    Licenses,
    /// Help or the version was asked for: its text, which clap has written.
    #[command(skip)]
    Show(String),
}

const RUN_EXAMPLES: &str = "\
Examples:
  callbridge run --pbx-id office \\
    --crm-url https://crm.example --token-file /etc/callbridge/token \\
    --source 'ami://callbridge@10.0.0.5?secret-file=/etc/callbridge/ami' \\
    --trunk city=PJSIP/city,country=UZ,strip=9,lead=csv:/etc/callbridge/leads
  callbridge run @/etc/callbridge/flags --dry-run";

const STATUS_EXIT: &str = "\
Exit: 0 shown, 69 no daemon and no state. With --exit-code: 0 no problem found, 1 something \
waits for a
person, 2 nothing reaches the CRM or no source is up, 69 as before. With --healthy: 0 a daemon
answers, 69 none does; what waits for a person does not count.";

/// The flags of `status`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StatusFlags {
    /// End with 0 when no problem is found, 1 when something waits for a person, 2 when
    /// nothing reaches the CRM or no source is up
    #[arg(long)]
    pub exit_code: bool,
    /// Update the display every second until q or Ctrl-C; with --json a line a second
    #[arg(long)]
    pub watch: bool,
    /// Print nothing and end with 0 where the daemon works, else with 69: for health checks
    /// of containers and supervisors
    #[arg(long)]
    pub healthy: bool,
    #[command(flatten)]
    pub state: StateFlags,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  callbridge explain --format ami \\
    --trunk city=PJSIP/city,country=UZ,lead=var:LEAD_ID ami.raw
  callbridge explain --format ami-json --json @/etc/callbridge/flags amiws.jsonl
  callbridge explain --call 1795151317.146 @/etc/callbridge/flags";

/// The flags of `explain`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ExplainFlags {
    /// The recording; of freeswitch-cdr a folder, too
    pub file: Option<String>,
    /// How it is written: ami, ami-json, cel-csv, cdr-csv, asterisk-cel, asterisk-cdr, wazo,
    /// freeswitch (events as JSON, or the bytes of an event socket), freeswitch-cdr or call
    #[arg(long, value_name = "F")]
    pub format: Option<String>,
    /// One JSON object a call
    #[arg(long)]
    pub json: bool,
    /// This call alone and what happened in it, by linkedid, a channel's unique id, or uuid (its
    /// beginning is enough), or the newest of a telephone number; without FILE, as the spool has it
    #[arg(long, value_name = "ID|PHONE")]
    pub call: Option<String>,
    /// Draw that call, or the recording's only one, as an SVG
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<String>,
    #[command(flatten)]
    pub flags: Flags,
}

/// The examples at the end of `audit --help`.
const AUDIT_EXAMPLES: &str = "\
Examples:
  callbridge audit --cdr /var/log/asterisk/cdr-csv/Master.csv @/etc/callbridge/flags
  callbridge audit --cel /var/log/asterisk/cel-custom/Master.csv --from 2026-11-20 \\
    --to 2026-11-20 --take-in @/etc/callbridge/flags
Exit: 0 each call of the file is explained, 1 some are not.";

/// The flags of `audit`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct AuditFlags {
    /// The PBX's file of call detail records, or FreeSWITCH's folder of them: a call is known by
    /// them, its times are estimates
    #[arg(long, value_name = "FILE")]
    pub cdr: Option<String>,
    /// The PBX's file of channel events (cel_custom)
    #[arg(long, value_name = "FILE")]
    pub cel: Option<String>,
    /// Calls that began then or later: 2026-11-20, with a time and a zone if wanted
    #[arg(long, value_name = "DATE")]
    pub from: Option<String>,
    /// Calls that began by then: a day is meant whole
    #[arg(long, value_name = "DATE")]
    pub to: Option<String>,
    /// Take in calls that are unexplained and that today's flags let through: they are journaled
    /// as any call
    #[arg(long)]
    pub take_in: bool,
    /// Do not read the CRM's journal: by default the daemon looks there for the calls that are
    /// journaled here, with a request for up to 100 of its records
    #[arg(long)]
    pub no_journal: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub flags: Flags,
}

/// The examples at the end of `calls --help`.
const CALLS_EXAMPLES: &str = "\
Examples:
  callbridge calls --today
  callbridge calls --from 2026-11-18 --to 2026-11-20 --phone '90 111 00 01'
  callbridge calls --state waiting --json
  callbridge calls --follow";

/// The flags of `calls`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CallsFlags {
    /// Those that began today, in the zone of the PBX
    #[arg(long)]
    pub today: bool,
    /// Those that began then or later: 2026-11-20, with a time and a zone if wanted
    #[arg(long, value_name = "D")]
    pub from: Option<String>,
    /// Those that began by then: a day is meant whole
    #[arg(long, value_name = "D")]
    pub to: Option<String>,
    /// Those with this number: in full, as it is dialed, or its last four digits or more
    #[arg(long, value_name = "P")]
    pub phone: Option<String>,
    /// Those on this trunk
    #[arg(long, value_name = "T")]
    pub trunk: Option<String>,
    /// Those in this state: ready, sending, submitted, journaled, dead, waiting or discarded; or
    /// the daemon's state folder, as everywhere. May be repeated
    #[arg(long, value_name = "S|DIR")]
    pub state: Vec<String>,
    /// Those between extensions, which are not journaled: the last 1,000 of seven days
    #[arg(long)]
    pub internal: bool,
    /// Go on with new calls, and with each as its state changes, until interrupted
    #[arg(long)]
    pub follow: bool,
    /// One JSON object a call: explain's, with its state
    #[arg(long)]
    pub json: bool,
    /// The zone in which times are shown [default: that of the daemon's PBX, else this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
}

/// The flags of `demo`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DemoFlags {
    /// Whose calls are played: asterisk, over a WebSocket, or freeswitch, over an event socket
    /// [default: asterisk]
    #[arg(long, value_name = "PBX")]
    pub pbx: Option<String>,
    /// Keep serving when all calls are journaled, until interrupted
    #[arg(long)]
    pub stay: bool,
    /// JSON lines; the last one has the books
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub log: LogFlags,
}

/// The commands below `dead`, as typed.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadVerb {
    /// List dead letters, or with --waiting the waiting calls, oldest first
    List(LetterFlags),
    /// Show dead letters with every attempt, the CRM's answers, and what to do
    Show(LetterFlags),
    /// Send dead letters again, under their own uuids
    Retry(RetryFlags),
    /// Discard dead letters: they are never sent, and are counted as discarded
    Discard(LetterFlags),
    /// Write dead letters as csv or jsonl
    Export {
        #[command(flatten)]
        which: SelectFlags,
        /// csv or jsonl
        #[arg(long, value_name = "csv|jsonl")]
        format: Option<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Show new dead letters as they arrive, until interrupted
    Watch(StateFlags),
}

/// The flags of `dead retry`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RetryFlags {
    #[command(flatten)]
    pub which: SelectFlags,
    /// Send them with this lead
    #[arg(long, value_name = "ID")]
    pub lead: Option<String>,
    /// Send them with this employee, or without one
    #[arg(long, value_name = "ID|none")]
    pub employee: Option<String>,
    /// Of dead letters `incomplete`: whether customer and company talked
    #[arg(long, value_name = "yes|no")]
    pub answered: Option<String>,
    /// Of dead letters `incomplete`: how long they talked, as 80 (seconds) or 1m20s
    #[arg(long, value_name = "SECONDS")]
    pub talk: Option<String>,
    /// Of dead letters whose direction is unknown: inbound if the customer called
    #[arg(long, value_name = "inbound|outbound")]
    pub direction: Option<String>,
    /// Only say what would be sent
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub state: StateFlags,
}

/// The letters of a state, for commands without other flags.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LetterFlags {
    #[command(flatten)]
    pub which: SelectFlags,
    #[command(flatten)]
    pub state: StateFlags,
}

/// The choice of letters, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SelectFlags {
    /// By id
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// By reason, as no_lead
    #[arg(long, value_name = "R")]
    pub reason: Option<String>,
    /// Calls that wait for a lead or employee, in place of dead letters
    #[arg(long)]
    pub waiting: bool,
    /// All of them
    #[arg(long)]
    pub all: bool,
}

const GIVE_EXAMPLES: &str = "\
The number is asked after what the dialplan says (var:, userfield:) and before csv: and
directory, on every trunk. It is kept in the state until `lead take`.

Examples:
  callbridge lead give +998901110001 4001
  callbridge lead give '90 111-00-01' 4001 --state /var/lib/callbridge

Exit: 0 given, 64 what was typed, 65 no number in full, 69 no daemon and no state.";

const SET_EXAMPLES: &str = "\
Examples:
  callbridge lead set 4001 11=VIP 12=null
  callbridge lead set 4001 '14=[gold, uz]' '11=\"null\"'
  callbridge lead set 4001 15:=5 16:=true 14:='[\"gold\", \"uz\"]'

Exit: 0 written, 64 what was typed, 65 refused or not a field of leads,
69 no daemon, paused or not settled in time, 77 token or grant.";

/// The examples at the end of `missed --help`.
pub(crate) const MISSED_EXAMPLES: &str = "\
A customer waits who made an unanswered call and with whom nobody has talked since, in either
direction; calls that unanswered=no keeps out of the journal count too. After 30 days without
another try they are forgotten.

Examples:
  callbridge missed
  callbridge missed --since 24h --csv > to-call.csv
  callbridge missed --json | jq -r .phone";

/// The commands below `lead`, as typed.
#[derive(Debug, Subcommand)]
pub(crate) enum LeadVerb {
    /// List numbers that called and have no lead, for the CRM's administrator
    Missing {
        /// As CSV
        #[arg(long)]
        csv: bool,
        #[command(flatten)]
        state: StateFlags,
    },
    /// List the numbers of the directory, and whose they are
    List(StateFlags),
    /// Give a number its lead by hand; its waiting calls are sent at once
    #[command(after_help = GIVE_EXAMPLES)]
    Give {
        /// The number, as people write it
        phone: Option<String>,
        /// The lead's id in the CRM
        lead: Option<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Take a lead that was given by hand from its number: later calls follow the rules alone
    Take {
        /// The number, as people write it
        phone: Option<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// List the leads that were given by hand, with when and by whom
    Given(StateFlags),
    /// Set fields of a lead through the running daemon, and show the result
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// The lead's id
        lead: Option<String>,
        /// A text; null clears; `[a,b]` for a multi-select field; "null" in quotes is the text
        #[arg(value_name = "ID=VALUE")]
        values: Vec<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Say what a number maps to on each trunk, and why
    Check {
        /// The number, as people write it
        phone: Option<String>,
        /// JSON
        #[arg(long)]
        json: bool,
        /// The flags of run, for when no daemon is running.
        #[command(flatten)]
        flags: Box<Flags>,
    },
}

const BRANCH_ADD_EXAMPLES: &str = "\
The token is printed once. Put it into a file on the collector's machine, and name the file with
--forward-token-file. If the branch exists, its PBXs are added, and its token stays.

Examples:
  callbridge branch add samarkand --pbx samarkand
  callbridge branch add bukhara --pbx bukhara-1 --pbx bukhara-2 --json
  callbridge branch add samarkand --pbx samarkand --token-file old.token

Exit: 0 added, 64 usage, 65 another branch has the PBX, 69 no daemon and no state.";

/// The commands below `branch`, as typed.
#[derive(Debug, Subcommand)]
pub(crate) enum BranchVerb {
    /// Add a branch, and print its token once
    #[command(after_help = BRANCH_ADD_EXAMPLES)]
    Add {
        /// Name of the branch: letters, digits, `-`, `_`, `.`
        name: Option<String>,
        /// Name of a PBX of the branch, as its collector has it in --pbx-id. May be repeated
        #[arg(long, value_name = "PBX")]
        pbx: Vec<String>,
        /// Accept the token in this file again, after the hub lost its state. No new token is
        /// printed
        #[arg(long, value_name = "FILE")]
        token_file: Option<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// List branches: which report, which are silent, their versions and backlogs
    List(StateFlags),
    /// Print a new token for a branch. The old one is valid for another hour
    Rotate {
        /// Name of the branch
        name: Option<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Remove a branch. Its requests are refused from then on. Calls that were taken stay
    Remove {
        /// Name of the branch
        name: Option<String>,
        #[command(flatten)]
        state: StateFlags,
    },
}

/// The commands below `state`, as typed.
#[derive(Debug, Subcommand)]
pub(crate) enum StateVerb {
    /// Export the state as it is at one moment into a new tar file (manifest.json, spool.db), also
    /// while the daemon runs
    Export {
        #[command(flatten)]
        flags: StateFileFlags,
        /// Include the tokens and secrets of an OAuth connection. Protect the file like a password.
        /// Without it, run `connect` after the import
        #[arg(long)]
        with_secrets: bool,
    },
    /// Import an exported state into an empty folder or database that no daemon uses
    Import(StateFileFlags),
    /// Move the state into a database, or from a database into a folder, with its tokens. Stop
    /// every callbridge that uses the state first. If the command is interrupted, run it again
    #[command(after_help = STATE_MOVE_EXAMPLES)]
    Move {
        /// The new place: an empty folder, or an empty schema of a database (postgres://…)
        #[arg(long, value_name = "PLACE")]
        to: Option<String>,
        /// The state: a folder or a database (postgres://…) [default: $STATE_DIRECTORY, else
        /// ~/.local/state/callbridge]
        #[arg(long, value_name = "PLACE")]
        state: Option<String>,
    },
}

const STATE_MOVE_EXAMPLES: &str = "\
Examples:
  callbridge state move --state /var/lib/callbridge/hub \\
    --to 'postgres://callbridge@db1,db2/callbridge?secret-file=/etc/callbridge/database.secret'
  callbridge state move --to /var/lib/callbridge/hub \\
    --state 'postgres://callbridge@db1,db2/callbridge?secret-file=/etc/callbridge/database.secret'

The old place keeps its rows, and callbridge refuses to use it from then on.

Exit: 0 moved, 64 wrong flags, 69 no state or no server, 75 a place is in use, 78 the new place is
not empty, or the state was moved before.";

/// The flags of `state export` and `state import`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StateFileFlags {
    /// The file
    pub file: Option<String>,
    /// The state: a folder or a database (postgres://…) [default: $STATE_DIRECTORY, else
    /// ~/.local/state/callbridge]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
}

/// The flags of `page`, as typed.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PageCommandFlags {
    /// In place of a link: a line for --page-password-file
    #[command(subcommand)]
    pub verb: Option<PageVerb>,
    /// What whoever opens the link may do: admin (view and change) or view
    #[arg(long, value_name = "ROLE", default_value = "admin")]
    pub role: String,
    #[command(flatten)]
    pub state: StateFlags,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PageVerb {
    /// Print a line for --page-password-file; the password is read twice from the terminal, or
    /// once from a pipe
    Password {
        /// The name to log in with, as it will stand beside what was done
        name: String,
        /// admin (view and change) or view
        role: String,
    },
}

/// The examples at the end of `page --help`.
pub(crate) const PAGE_EXAMPLES: &str = "\
Examples:
  callbridge page --state /var/lib/callbridge/office
  callbridge page --role view
  callbridge page password anna admin >>/etc/callbridge/office.page

The link is good for one minute and one session; who opens it is known as the user who asked
for it. From another machine come by a tunnel: ssh -L 9470:127.0.0.1:9470 HOST

Exit: 0 printed, 64 what was typed, 69 no daemon, or one without --page.";
