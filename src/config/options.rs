//! The flags as they are typed: texts alone, checked in [`crate::config::checked`] all at once.

pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod connect;
pub(crate) mod init;
pub(crate) mod leads;
pub(crate) mod lookup;
pub(crate) mod page;
pub(crate) mod state;

use clap::{Args, Parser, Subcommand};
use connect::{ConnectFlags, DisconnectFlags};
use leads::LeadVerb;
use serde::Serialize;

/// Puts every finished customer call of a PBX into a CRM's call journal, once.
#[derive(Debug, Parser)]
#[command(name = "callbridge", after_help = ABOUT)]
pub(crate) struct Options {
    /// What to do.
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

/// `fleet`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct FleetFlags {
    /// What to do instead.
    #[command(subcommand)]
    pub verb: Option<FleetVerb>,
    /// What to show.
    #[command(flatten)]
    pub options: callbridge_fleet::FleetOptions,
}

/// `fleet …`
#[derive(Debug, Subcommand)]
pub(crate) enum FleetVerb {
    /// Hand a PBX to another user of the broker, as when a branch's user was renamed or its
    /// collector replaced: its calls are taken from that user alone from now on
    Owner {
        /// The PBX, as its messages name it
        pbx: String,
        /// The broker's user that publishes for it
        user: String,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
}

/// The commands.
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
    Check(Box<CheckFlags>),
    /// Compare a file of the PBX with what became of its calls, and name each that is missing
    #[command(after_help = audit::EXAMPLES)]
    Audit(Box<audit::AuditFlags>),
    /// Show which collectors and senders of a stream report, and which are silent
    Fleet(Box<FleetFlags>),
    /// Show what is wrong and what to do about it, then books, sources, token and budget
    #[command(after_help = STATUS_EXIT)]
    Status {
        /// End with 0 when no problem is found, 1 when something waits for a person, 2 when
        /// nothing reaches the CRM or no source is up
        #[arg(long)]
        exit_code: bool,
        /// Update the display every second until q or Ctrl-C; with --json a line a second
        #[arg(long)]
        watch: bool,
        /// Print nothing and end with 0 where the daemon works, else with 69: for health checks
        /// of containers and supervisors
        #[arg(long)]
        healthy: bool,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
    /// List calls, a line each, newest last: of a day, a number, a trunk; or follow them
    #[command(after_help = calls::EXAMPLES)]
    Calls(calls::CallsFlags),
    /// Show calls that the CRM did not take, correct them, and send them again
    #[command(subcommand)]
    Dead(DeadVerb),
    /// Find numbers without a lead, and what a number maps to
    #[command(subcommand)]
    Lead(LeadVerb),
    /// List customers who called, reached nobody and still wait for a call back, longest first
    #[command(after_help = leads::MISSED_EXAMPLES)]
    Missed(leads::MissedFlags),
    /// Print a link that opens the administrator's page, or a line for its password file
    #[command(after_help = page::EXAMPLES)]
    Page(page::PageCommandFlags),
    /// Ask a company for its consent, and keep the tokens that it gives
    #[command(after_help = connect::EXAMPLE)]
    Connect(Box<ConnectFlags>),
    /// Revoke the tokens of a connection and remove it
    Disconnect(DisconnectFlags),
    /// Serve a test CRM that keeps every rule of the service's document
    Sandbox(Box<callbridge_sandbox::Options>),
    /// Set a service up: ask what cannot be detected, detect the rest, write its flags
    #[command(after_help = init::EXAMPLES)]
    Init(Box<init::InitFlags>),
    /// Export a state folder into one file, also while the daemon runs, and import it
    #[command(subcommand)]
    State(state::StateVerb),
    /// Print completions for a shell
    Completions {
        /// bash, elvish, fish, powershell or zsh
        shell: Option<String>,
    },
    /// Print the manual page
    Man,
    /// Print the libraries in this program, with their licences
    Licences,
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

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  callbridge explain --format ami \\
    --trunk city=PJSIP/city,country=UZ,lead=var:LEAD_ID ami.raw
  callbridge explain --format ami-json --json @/etc/callbridge/flags amiws.jsonl
  callbridge explain --call 1795151317.146 @/etc/callbridge/flags";

/// What `run`, `explain` and `check` share.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct Flags {
    /// Where calls come from.
    #[command(flatten)]
    pub sources: SourceFlags,
    /// Trunks and people.
    #[command(flatten)]
    pub trunks: TrunkFlags,
    /// The CRM.
    #[command(flatten)]
    pub crm: CrmFlags,
    /// Events from the CRM.
    #[command(flatten)]
    pub webhooks: WebhookFlags,
    /// The look-up.
    #[command(flatten)]
    pub lookup: lookup::LookupFlags,
    /// Calls.
    #[command(flatten)]
    pub calls: CallFlags,
    /// The page.
    #[command(flatten)]
    pub page: page::PageFlags,
    /// The rest.
    #[command(flatten)]
    pub operation: OperationFlags,
    /// Logging.
    #[command(flatten)]
    pub log: LogFlags,
}

/// The PBX.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "PBX")]
pub struct SourceFlags {
    /// ami(s)://USER@HOST, ws(s)://HOST, esl://HOST (FreeSWITCH),
    /// amqp(s)://USER@HOST[,…]/VHOST?queue=Q|stream=S&format=F or
    /// file:///PATH?format=F&from=end|start|DATE; each takes pbx=, secret-file=, ca-file=.
    /// Formats: those of explain, and call (messages of any PBX).
    /// May be repeated: the first source of a PBX is its primary
    #[arg(long, value_name = "URL")]
    pub source: Vec<String>,
    /// file:///PATH?format=cel-csv|cdr-csv or file:///FOLDER/?format=freeswitch-cdr: what the PBX
    /// itself writes of its calls. Fills the gaps of the sources; takes pbx=. May be repeated
    #[arg(long, value_name = "URL")]
    pub catch_up: Vec<String>,
    /// Where a stream (stream=S) is read from at first: first, an age like 30d, or a date. What was
    /// read is remembered [default: first]
    #[arg(long, value_name = "first|30d|DATE")]
    pub stream_from: Option<String>,
    /// A message of a stream that is passed over, as calls:1234: for one that stops the reading
    /// each time. May be repeated
    #[arg(long, value_name = "STREAM:OFFSET")]
    pub stream_skip: Vec<String>,
    /// Which user of the broker publishes for a PBX, as branch7=branch7-user: its calls are refused
    /// from other users. Without it the user of its first call, or `fleet owner`, decides. May be
    /// repeated
    #[arg(long, value_name = "PBX=LOGIN")]
    pub pbx_owner: Vec<String>,
    /// The PBX's name, part of every call's uuid: never change it. Without it one is made of this
    /// machine's id, the first source's host and port, and the trunks' endpoints
    #[arg(long, value_name = "NAME")]
    pub pbx_id: Option<String>,
    /// Zone of local times in CEL and CDR files, and of times as people read them, as
    /// Asia/Tashkent [default: this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
    /// Names of the columns of CEL files without a header, where they are not recognised, as in
    /// cel_custom.conf: eventtype,eventtime,channame,uniqueid,linkedid,…
    #[arg(long, value_name = "LIST")]
    pub columns: Option<String>,
}

/// The trunks.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Trunks and people")]
pub struct TrunkFlags {
    /// A line to the outside. ENDPOINT is what stands before the suffix in its channels' names,
    /// and may hold *; empty where only messages (format=call) name the trunk. Keys: pbx, country,
    /// strip, lead, employees, unanswered, journal=yes|no. May be repeated
    #[arg(long, value_name = "NAME=ENDPOINT[,key=value…]")]
    pub trunk: Vec<String>,
    /// Whose numbers have no country's code, by ISO 3166 [trunk default]
    #[arg(long, value_name = "UZ")]
    pub country: Option<String>,
    /// What extensions dial to get out [trunk default]
    #[arg(long, value_name = "PREFIX")]
    pub strip: Option<String>,
    /// Where a call's lead is found: var:NAME, userfield:REGEX, csv:FILE (phone,leadId), or
    /// directory (leads learned from webhooks and --lead-directory, looked up by phone); several
    /// separated by ; are asked in their order [trunk default]
    #[arg(long, value_name = "RULES")]
    pub lead: Option<String>,
    /// Read the CRM's leads for the rule directory, with requests that no call needs
    #[arg(long)]
    pub lead_directory: bool,
    /// 101:501;102:502, or a file (extension,employeeId) [trunk default]
    #[arg(long, value_name = "LIST|FILE")]
    pub employees: Option<String>,
    /// Journal calls that nobody answered [trunk default: yes]
    #[arg(long, value_name = "yes|no")]
    pub unanswered: Option<String>,
    /// Park calls whose extension has no employee
    #[arg(long)]
    pub require_employee: bool,
}

/// The CRM.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "CRM")]
pub struct CrmFlags {
    /// The API's address; http:// on this machine alone
    #[arg(long, value_name = "URL")]
    pub crm_url: Option<String>,
    /// amqp(s)://USER@HOST[,HOST…]/VHOST?stream=S: publish calls to this stream in place of a CRM,
    /// for a callbridge elsewhere to send. Takes exchange=E, declare=yes, secret-file=, ca-file=
    #[arg(long, value_name = "URL")]
    pub forward: Option<String>,
    /// The address of its OAuth endpoints [default: as `connect` was given it]
    #[arg(long, value_name = "URL")]
    pub auth_url: Option<String>,
    /// The token, in a file of its own (or the credential `token`, or CALLBRIDGE_TOKEN)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<String>,
    /// A command for /bin/sh that prints the token: run at the start, before the token ends, and
    /// when the CRM refuses it
    #[arg(long, value_name = "CMD")]
    pub token_command: Option<String>,
    /// One of several machines sends at a time: the queue NAME at the stream's broker decides
    /// which. Give the same NAME on each machine
    #[arg(long, value_name = "NAME")]
    pub standby: Option<String>,
    /// This process's share of the token's budget [default: 60/60s]
    #[arg(long, value_name = "N/TIME")]
    pub rate: Option<String>,
    /// Names of fields the service does not publish: talk=NAME [default: talkTimeSec], phone=NAME
    /// and extension=NAME [default: not sent]
    #[arg(long, value_name = "talk|phone|extension=NAME")]
    pub field: Vec<String>,
    /// Fields of a lead that show its calls: last_call=ID,last_missed=ID (times as
    /// 2026-11-20T17:58:31+05:00),last_employee=ID (the CRM's id),trunk=ID,did=ID (the number that
    /// the customer dialled),direction=ID,answered_by=ID,missed_count=ID; ID:number, ID:boolean or
    /// ID:date where the field takes no text [default: none]
    #[arg(long, value_name = "NAME=ID[:KIND],…")]
    pub lead_field: Option<String>,
    /// The key that holds the list of fields in requests, where the CRM wants one [default: the
    /// list alone]
    #[arg(long, value_name = "KEY")]
    pub field_list_wrapper: Option<String>,
    /// A call that FAILED though its lead exists: keep it as a dead letter, or send it once more
    /// without its employee [default: keep]
    #[arg(long, value_name = "keep|drop")]
    pub failed_employee: Option<String>,
    /// Certificates (PEM) that replace the system's roots
    #[arg(long, value_name = "FILE")]
    pub crm_ca_file: Option<String>,
    /// The only proxy that is used: those of the environment are ignored
    #[arg(long, value_name = "URL")]
    pub crm_proxy: Option<String>,
}

/// Events that the CRM sends to us.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Webhooks")]
pub struct WebhookFlags {
    /// Take the CRM's events here, at /webhooks: 127.0.0.1:8481 behind a proxy, or 0.0.0.0:8443
    /// with a certificate [default: off]
    #[arg(long, value_name = "ADDR")]
    pub webhook_listen: Option<String>,
    /// The certificate and its chain (PEM) for HTTPS of our own; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub webhook_cert: Option<String>,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    pub webhook_key: Option<String>,
    /// The application's signing secrets, a line each: current, previous (or the credential
    /// `webhook-secret`, or CALLBRIDGE_WEBHOOK_SECRET); read again when it changes
    #[arg(long, value_name = "FILE")]
    pub webhook_secret_file: Option<String>,
    /// The signing secrets of an installation, as those of the application. May be repeated; the
    /// one of `connect` is known by itself
    #[arg(long, value_name = "ID=FILE")]
    pub installation_secret: Vec<String>,
}

/// How calls are told apart.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Calls")]
pub struct CallFlags {
    /// Skip calls that began before (2026-11-20, with a time and zone if wanted)
    #[arg(long, value_name = "DATE")]
    pub not_before: Option<String>,
    /// A call is over when all parties hung up and no event came for this time [default: 500ms]
    #[arg(long, value_name = "TIME")]
    pub settle: Option<String>,
    /// How long to wait for a CDR whose user field names the lead [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub cdr_wait: Option<String>,
    /// A call without an end is closed as incomplete after this time [default: 12h]
    #[arg(long, value_name = "TIME")]
    pub max_call: Option<String>,
    /// Above this number of open calls, the one without events for longest is closed as incomplete
    /// [default: 10000]
    #[arg(long, value_name = "N")]
    pub max_open_calls: Option<String>,
}

/// Running it.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Operation")]
pub struct OperationFlags {
    /// Where calls are kept until they are journaled [default: $STATE_DIRECTORY, else
    /// ~/.local/state/callbridge]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
    /// Serve /healthz, /readyz and /metrics here, as 127.0.0.1:9469 [default: off]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Publish dead letters here, too: amqp(s)://USER@HOST/VHOST?queue=Q
    #[arg(long, value_name = "URL")]
    pub dead_letter_queue: Option<String>,
    /// Run by /bin/sh -c when a kind of problem begins and when it ends, with a line of JSON on
    /// stdin for each: kind, state (begins or ends), since, what, todo; 30 s at most
    #[arg(long, value_name = "CMD")]
    pub notify_command: Option<String>,
    /// Run it also when customers wait longer than this for a call back, as 30m; those who pass
    /// the limit together stand in one line, with their numbers [default: off]
    #[arg(long, value_name = "TIME")]
    pub notify_missed: Option<String>,
    /// Bind the state folder to another CRM address or company
    #[arg(long)]
    pub rebind: bool,
    /// End when every file is read, other sources are quiet for 5 s, and the books are settled
    #[arg(long)]
    pub until_idle: bool,
    /// Do everything except send
    #[arg(long)]
    pub dry_run: bool,
}

/// What is logged; to stderr.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Logs")]
pub struct LogFlags {
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Write phone numbers in full, not their last four digits
    #[arg(long)]
    pub log_phones: bool,
}

/// `explain`
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
    /// The flags of run.
    #[command(flatten)]
    pub flags: Flags,
}

/// `check`
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CheckFlags {
    /// One JSON object a check: name, ok, what, todo
    #[arg(long)]
    pub json: bool,
    /// The flags of run.
    #[command(flatten)]
    pub flags: Flags,
}

/// `demo`
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
    /// Logging.
    #[command(flatten)]
    pub log: LogFlags,
}

/// Commands that look at the state folder, or ask the daemon in it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StateFlags {
    /// The daemon's state folder [default: $STATE_DIRECTORY, else ~/.local/state/callbridge, or
    /// where no daemon runs on it, that of the only service that does]
    #[arg(long, value_name = "DIR")]
    pub state: Option<String>,
    /// JSON
    #[arg(long)]
    pub json: bool,
    /// The zone in which times are shown [default: that of the daemon's PBX, else this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
}

/// `dead …`
#[derive(Debug, Subcommand)]
pub(crate) enum DeadVerb {
    /// List dead letters and parked calls, oldest first
    List(LetterFlags),
    /// Show letters with every attempt, the answers of the CRM and what to do
    Show(LetterFlags),
    /// Send letters again, under their own uuids
    Retry {
        /// Which.
        #[command(flatten)]
        which: SelectFlags,
        /// Send them with this lead
        #[arg(long, value_name = "ID")]
        lead: Option<String>,
        /// Send them with this employee, or without one
        #[arg(long, value_name = "ID|none")]
        employee: Option<String>,
        /// Of letters `incomplete`: whether customer and company talked
        #[arg(long, value_name = "yes|no")]
        answered: Option<String>,
        /// Of letters `incomplete`: how long they talked, as 80 (seconds) or 1m20s
        #[arg(long, value_name = "SECONDS")]
        talk: Option<String>,
        /// Only say what would be sent
        #[arg(long)]
        dry_run: bool,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
    /// Discard letters: they are never sent, and stay in the books as discarded
    Discard(LetterFlags),
    /// Write letters as csv or jsonl
    Export {
        /// Which.
        #[command(flatten)]
        which: SelectFlags,
        /// csv or jsonl
        #[arg(long, value_name = "csv|jsonl")]
        format: Option<String>,
        /// Where.
        #[command(flatten)]
        state: StateFlags,
    },
    /// Show new letters as they arrive, until interrupted
    Watch(StateFlags),
}

/// Letters of a state.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LetterFlags {
    /// Which.
    #[command(flatten)]
    pub which: SelectFlags,
    /// Where.
    #[command(flatten)]
    pub state: StateFlags,
}

/// Which letters.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SelectFlags {
    /// By id
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// By reason, as no_lead
    #[arg(long, value_name = "R")]
    pub reason: Option<String>,
    /// All of them
    #[arg(long)]
    pub all: bool,
}
