//! The commands and their flags as typed. They are only texts, which [`crate::config::checked`]
//! checks all at once. The flags of `run` are in [`super::flags`].

use super::checked::connect::ConnectFlags;
use super::checking::init;
use super::flags::{Flags, LogFlags, StateFlags};
use clap::{Args, Parser, Subcommand};

/// Logs every finished customer call of a PBX in a CRM's call journal, exactly once.
#[derive(Debug, Parser)]
#[command(name = "callbridge", after_help = ABOUT)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub command: Option<Verb>,
}

const ABOUT: &str = "\
Try it without a PBX or a CRM:  callbridge demo
See what would be journaled:    callbridge explain --help
Set up a service:               callbridge init
Find problems:                  callbridge check @/etc/callbridge/flags
Run the daemon:                 callbridge run @/etc/callbridge/flags

@FILE reads one argument per line (# begins a comment; no quoting). Every flag
of run, explain and check has an environment variable: --crm-url is
CALLBRIDGE_CRM_URL. A flag that can be repeated takes one value per line.";

/// The commands with their flags, as typed; the texts are those of the help.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the daemon: watch the PBX and log its calls in the CRM
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<Flags>),
    /// Play recorded calls into a test CRM on this machine, and show what happens
    Demo(DemoFlags),
    /// Show what would be journaled from a recording, and why; sends nothing
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainFlags>),
    /// Test each source, permission, folder and file, and show how to fix problems
    Check {
        /// Print one JSON object per check: name, ok, message, fix
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// Compare a file of the PBX with the logged calls, and list each missing call
    #[command(after_help = AUDIT_EXAMPLES)]
    Audit(Box<AuditFlags>),
    /// Show problems and their fixes, then books, sources, token and budget
    #[command(after_help = STATUS_EXIT)]
    Status(StatusFlags),
    /// List calls, one per line, newest last: of a day, a number or a trunk; or follow them
    #[command(after_help = CALLS_EXAMPLES)]
    Calls(CallsFlags),
    /// Show calls that the CRM did not accept, correct them, and send them again
    #[command(subcommand)]
    Dead(DeadVerb),
    /// Find numbers without a lead, assign leads, and show what a number maps to
    #[command(subcommand)]
    Lead(LeadVerb),
    /// List customers who called, reached no one, and still wait for a callback, longest wait first
    #[command(after_help = MISSED_EXAMPLES)]
    Missed {
        /// Only customers who called within this time, such as 24h
        #[arg(long, value_name = "T")]
        since: Option<String>,
        /// Print CSV
        #[arg(long, conflicts_with = "json")]
        csv: bool,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Add, list, and remove the branches whose calls this hub takes
    #[command(subcommand)]
    Branch(BranchVerb),
    /// Send again after two hubs used different databases
    #[command(subcommand)]
    Sending(SendingVerb),
    /// Print a link that opens the administrator's page, or a line for its password file
    #[command(after_help = PAGE_EXAMPLES)]
    Page(PageCommandFlags),
    /// Ask a company for its consent, and store the tokens
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
    /// Serve a test CRM that enforces every rule of the CRM's document
    Sandbox(Box<callbridge_sandbox::Options>),
    /// Set up a service: detect what is possible, ask for the rest, and write its flags
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
Exit: 0 shown, 69 no daemon and no state. With --exit-code: 0 no problem found, 1 a problem needs
attention, 2 nothing reaches the CRM or no source is up, 69 as before. With --healthy: 0 a daemon
answers, 69 no daemon answers; problems that need attention do not count.";

/// The flags of `status`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StatusFlags {
    /// Exit with 0 if no problem is found, 1 if a problem needs attention, 2 if nothing reaches the
    /// CRM or no source is up
    #[arg(long)]
    pub exit_code: bool,
    /// Update the display every second until q or Ctrl-C; with --json, print one line per second
    #[arg(long)]
    pub watch: bool,
    /// Print nothing, and exit with 0 if the daemon works, or else with 69: for health checks of
    /// containers and supervisors
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
    /// The recording; for freeswitch-cdr, also a folder
    pub file: Option<String>,
    /// Format of the recording: ami, ami-json, cel-csv, cdr-csv, asterisk-cel, asterisk-cdr, wazo,
    /// freeswitch (events as JSON, or the bytes of an event socket), freeswitch-cdr or call
    #[arg(long, value_name = "F")]
    pub format: Option<String>,
    /// Print one JSON object per call
    #[arg(long)]
    pub json: bool,
    /// Show only this call, with its events: by linkedid, a channel's unique id, uuid (its
    /// beginning is enough), or phone number (the newest call). Without FILE, show a stored call
    #[arg(long, value_name = "ID|PHONE")]
    pub call: Option<String>,
    /// Draw that call, or the recording's only call, as an SVG
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
    /// The PBX's file of call detail records, or FreeSWITCH's folder of them. They show each call,
    /// but its times are estimates
    #[arg(long, value_name = "FILE")]
    pub cdr: Option<String>,
    /// The PBX's file of channel events (cel_custom)
    #[arg(long, value_name = "FILE")]
    pub cel: Option<String>,
    /// Only calls that began at this time or later: 2026-11-20, optionally with a time and zone
    #[arg(long, value_name = "DATE")]
    pub from: Option<String>,
    /// Only calls that began by this time; a date includes the whole day
    #[arg(long, value_name = "DATE")]
    pub to: Option<String>,
    /// Take in unexplained calls that the current flags let through: they are journaled like any
    /// other call. With --cel, also correct the `incomplete` dead letters of calls in the file
    #[arg(long)]
    pub take_in: bool,
    /// Do not read the CRM's journal. By default, the daemon searches it for the calls that are
    /// journaled here, with one request for up to 100 records
    #[arg(long)]
    pub no_journal: bool,
    /// Print one JSON object
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
    /// Only calls that began today, in the time zone of the PBX
    #[arg(long)]
    pub today: bool,
    /// Only calls that began at this time or later: 2026-11-20, optionally with a time and zone
    #[arg(long, value_name = "D")]
    pub from: Option<String>,
    /// Only calls that began by this time; a date includes the whole day
    #[arg(long, value_name = "D")]
    pub to: Option<String>,
    /// Only calls with this number: the full number as dialed, or at least its last four digits
    #[arg(long, value_name = "P")]
    pub phone: Option<String>,
    /// Only calls on this trunk
    #[arg(long, value_name = "T")]
    pub trunk: Option<String>,
    /// Only calls in this state: ready, sending, submitted, journaled, dead, waiting or discarded;
    /// or the daemon's state folder, as for other commands. Can be repeated
    #[arg(long, value_name = "S|DIR")]
    pub state: Vec<String>,
    /// Only calls between extensions, which are not journaled: the last 1,000 of seven days
    #[arg(long)]
    pub internal: bool,
    /// Continue with new calls, and with each call whose state changes, until interrupted
    #[arg(long)]
    pub follow: bool,
    /// Print one JSON object per call, like explain, with its state
    #[arg(long)]
    pub json: bool,
    /// Time zone of displayed times [default: that of the daemon's PBX, else this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
}

/// The flags of `demo`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DemoFlags {
    /// PBX whose calls are played: asterisk, over a WebSocket, or freeswitch, over an event socket
    /// [default: asterisk]
    #[arg(long, value_name = "PBX")]
    pub pbx: Option<String>,
    /// Keep serving when all calls are journaled, until interrupted
    #[arg(long)]
    pub stay: bool,
    /// Print JSON lines; the last one has the books
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
    /// Send dead letters again, with the same uuids
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
    /// For dead letters `incomplete`: whether customer and company talked
    #[arg(long, value_name = "yes|no")]
    pub answered: Option<String>,
    /// For dead letters `incomplete`: how long they talked, such as 80 (seconds) or 1m20s
    #[arg(long, value_name = "SECONDS")]
    pub talk: Option<String>,
    /// For dead letters whose direction is unknown: inbound if the customer called
    #[arg(long, value_name = "inbound|outbound")]
    pub direction: Option<String>,
    /// Allow --lead even if the selected calls have different numbers
    #[arg(long)]
    pub yes: bool,
    /// Only show what would be sent
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
    /// Those with these ids
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Those with this reason, such as no_lead
    #[arg(long, value_name = "R")]
    pub reason: Option<String>,
    /// Calls that wait for a lead or employee, instead of dead letters
    #[arg(long)]
    pub waiting: bool,
    /// All of them
    #[arg(long)]
    pub all: bool,
}

const GIVE_EXAMPLES: &str = "\
On every trunk, the assigned lead comes after those of the dialplan (var:, userfield:) and before
csv: and directory. It stays in the state until `lead take`.

Examples:
  callbridge lead give +998901110001 4001
  callbridge lead give '90 111-00-01' 4001 --state /var/lib/callbridge

Exit: 0 assigned, 64 wrong arguments, 65 incomplete number, 69 no daemon and no state.";

const SET_EXAMPLES: &str = "\
Examples:
  callbridge lead set 4001 11=VIP 12=null
  callbridge lead set 4001 '14=[gold, uz]' '11=\"null\"'
  callbridge lead set 4001 15:=5 16:=true 14:='[\"gold\", \"uz\"]'

Exit: 0 written, 64 wrong arguments, 65 refused or not a field of leads,
69 no daemon, paused or no result in time, 77 no valid token or grant.";

/// The examples at the end of `missed --help`.
pub(crate) const MISSED_EXAMPLES: &str = "\
A customer waits after an unanswered call until someone has talked with the customer, in either
direction. Calls that unanswered=no keeps out of the journal count too. After 30 days without
another call, the customer is removed from the list.

Examples:
  callbridge missed
  callbridge missed --since 24h --csv > to-call.csv
  callbridge missed --json | jq -r .phone";

/// The commands below `lead`, as typed.
#[derive(Debug, Subcommand)]
pub(crate) enum LeadVerb {
    /// List numbers that called and have no lead, for the CRM's administrator
    Missing {
        /// Print CSV
        #[arg(long)]
        csv: bool,
        #[command(flatten)]
        state: StateFlags,
    },
    /// List the numbers of the directory with their leads
    List(StateFlags),
    /// Assign a lead to a number; its waiting calls are sent at once
    #[command(after_help = GIVE_EXAMPLES)]
    Give {
        /// The number, as people write it
        phone: Option<String>,
        /// The lead's id in the CRM
        lead: Option<String>,
        /// Assign it even if it isn't among the leads that --lead-directory has read
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Unassign the lead of a number; later calls follow only the rules
    Take {
        /// The number, as people write it
        phone: Option<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// List assigned leads, with when and by whom they were assigned
    Given(StateFlags),
    /// Set fields of a lead through the running daemon, and show the result
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// The lead's id
        lead: Option<String>,
        /// Value of a field: a text; null clears the field; `[a,b]` for a multi-select field;
        /// "null" in quotes is the text
        #[arg(value_name = "ID=VALUE")]
        values: Vec<String>,
        #[command(flatten)]
        state: StateFlags,
    },
    /// Show what a number maps to on each trunk, and why
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
        /// Name of a PBX of the branch, as its collector has it in --pbx-id. Can be repeated
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
        /// End the old token at once, such as after a theft
        #[arg(long)]
        now: bool,
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

/// The commands below `sending`, as typed.
#[derive(Debug, Subcommand)]
pub(crate) enum SendingVerb {
    /// Send calls again after `status` reported `split_database`. Stop the hub with the other
    /// database first
    Resume(StateFlags),
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
    /// The tar file
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
    /// Role of the person who opens the link: admin (view and change) or view
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
        /// The name to log in with. It is shown with each action
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

The link is valid for one minute and one session. Actions in that session are recorded under your
user name. From another machine, use a tunnel: ssh -L 9470:127.0.0.1:9470 HOST

Exit: 0 printed, 64 wrong arguments, 69 no daemon, or one without --page.";
