//! The flags of `run`, which others take too, as they are typed: texts alone, checked in
//! [`crate::config::checked`] all at once.

use super::checked::lookup::LookupFlags;
use super::checked::page::PageFlags;
use clap::Args;
use serde::Serialize;

/// The flags that `run`, `explain` and `check` share, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct Flags {
    #[command(flatten)]
    pub sources: SourceFlags,
    #[command(flatten)]
    pub trunks: TrunkFlags,
    #[command(flatten)]
    pub crm: CrmFlags,
    #[command(flatten)]
    pub hub: HubFlags,
    #[command(flatten)]
    pub webhooks: WebhookFlags,
    #[command(flatten)]
    pub lookup: LookupFlags,
    #[command(flatten)]
    pub calls: CallFlags,
    #[command(flatten)]
    pub page: PageFlags,
    #[command(flatten)]
    pub operation: OperationFlags,
    #[command(flatten)]
    pub log: LogFlags,
}

/// The flags of sources, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "PBX")]
pub struct SourceFlags {
    /// Where calls are read from: ami(s)://USER@HOST, ws(s)://HOST, esl://HOST (FreeSWITCH),
    /// amqp(s)://USER@HOST[,…]/VHOST?queue=Q&format=F or file:///PATH?format=F&from=end|start|DATE;
    /// each takes pbx=, secret-file=, ca-file=. Formats: those of explain, and call (messages of
    /// any PBX). Can be repeated: the first source of a PBX is its primary
    #[arg(long, value_name = "URL")]
    pub source: Vec<String>,
    /// The PBX's own record of its calls, which fills gaps of the sources:
    /// file:///PATH?format=cel-csv|cdr-csv or file:///FOLDER/?format=freeswitch-cdr; takes pbx=.
    /// Can be repeated
    #[arg(long, value_name = "URL")]
    pub catch_up: Vec<String>,
    /// Name of the PBX, such as office. It is part of each call's id, so it must never change.
    /// Required, unless each source has pbx= or format=call
    #[arg(long, value_name = "NAME")]
    pub pbx_id: Option<String>,
    /// Time zone of local times in CEL and CDR files, and of displayed times, such as Asia/Tashkent
    /// [default: this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
    /// Names of all columns of a CEL or CDR file without a header, in order, if they are not
    /// recognized: eventtype,eventtime,channame,uniqueid,linkedid,… or calldate,clid,src,dst,…
    /// (`-` for a column that is not needed)
    #[arg(long, value_name = "LIST")]
    pub columns: Option<String>,
}

/// The flags of trunks, leads and employees, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Trunks and people")]
pub struct TrunkFlags {
    /// An outside line. ENDPOINT is the part of its channel names before the suffix, and can
    /// contain *. Leave it empty if only messages (format=call) name the trunk. Keys: pbx, country,
    /// strip, lead, employees, unanswered, journal=yes|no. Can be repeated
    #[arg(long, value_name = "NAME=ENDPOINT[,key=value…]")]
    pub trunk: Vec<String>,
    /// Country of numbers without a country code, by ISO 3166 [trunk default]
    #[arg(long, value_name = "UZ")]
    pub country: Option<String>,
    /// Prefix that extensions dial for an outside line [trunk default]
    #[arg(long, value_name = "PREFIX")]
    pub strip: Option<String>,
    /// Where a call's lead is found: var:NAME, userfield:REGEX, csv:FILE (phone,leadId), or
    /// directory (leads learned from webhooks and --lead-directory, looked up by phone); several
    /// rules, separated by ;, are tried in order [trunk default]
    #[arg(long, value_name = "RULES")]
    pub lead: Option<String>,
    /// Read the CRM's leads for the rule `directory`, with requests that no call needs
    #[arg(long)]
    pub lead_directory: bool,
    /// Employees of extensions: 101:501;102:502, or a file (extension,employeeId) [trunk default]
    #[arg(long, value_name = "LIST|FILE")]
    pub employees: Option<String>,
    /// Journal calls that no one answered [trunk default: yes]
    #[arg(long, value_name = "yes|no")]
    pub unanswered: Option<String>,
    /// Let calls wait until their extension has an employee
    #[arg(long)]
    pub require_employee: bool,
}

/// The flags of the CRM, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "CRM")]
pub struct CrmFlags {
    /// Address of the CRM's API; http:// only on this machine
    #[arg(long, value_name = "URL")]
    pub crm_url: Option<String>,
    /// Address of the CRM's OAuth endpoints [default: that of `connect`]
    #[arg(long, value_name = "URL")]
    pub auth_url: Option<String>,
    /// File with only the token (or use the credential `token`, or CALLBRIDGE_TOKEN)
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<String>,
    /// A command for /bin/sh that prints the token: run at the start, before the token expires, and
    /// when the CRM refuses it
    #[arg(long, value_name = "CMD")]
    pub token_command: Option<String>,
    /// This process's share of the token's budget [default: 60/60s]
    #[arg(long, value_name = "N/TIME")]
    pub rate: Option<String>,
    /// Names of fields that the CRM does not document: talk=NAME [default: talkTimeSec], phone=NAME
    /// and extension=NAME [default: not sent]
    #[arg(long, value_name = "talk|phone|extension=NAME")]
    pub field: Vec<String>,
    /// Fields of a lead that show its calls: last_call=ID,last_missed=ID (times such as
    /// 2026-11-20T17:58:31+05:00),last_employee=ID (the CRM's id),trunk=ID,did=ID (the number that
    /// the customer dialed),direction=ID,answered_by=ID,missed_count=ID; use ID:number, ID:boolean
    /// or ID:date if the field does not accept text [default: none]
    #[arg(long, value_name = "NAME=ID[:KIND],…")]
    pub lead_field: Option<String>,
    /// The key that contains the list of fields in requests, if the CRM needs one [default: only
    /// the list]
    #[arg(long, value_name = "KEY")]
    pub field_list_wrapper: Option<String>,
    /// A call that FAILED although its lead exists: keep it as a dead letter, or drop its employee
    /// and send it again [default: keep]
    #[arg(long, value_name = "keep|drop")]
    pub failed_employee: Option<String>,
    /// Certificates (PEM) that replace the system's roots
    #[arg(long, value_name = "FILE")]
    pub crm_ca_file: Option<String>,
    /// Proxy for the CRM; proxies of the environment are ignored
    #[arg(long, value_name = "URL")]
    pub crm_proxy: Option<String>,
}

/// The flags of a hub and of a collector, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Hub")]
pub struct HubFlags {
    /// Take calls of branches here, at /v1/calls: 0.0.0.0:8443 with --tls-cert and --tls-key, or
    /// 127.0.0.1:8443 behind a proxy. Add branches with `callbridge branch add` [default: off]
    #[arg(long, value_name = "ADDR")]
    pub collect: Option<String>,
    /// Certificate and chain (PEM) for --collect; read again when the file changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<String>,
    /// Private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<String>,
    /// Send calls to a hub instead of a CRM, such as `https://hub.example.com`. Several addresses
    /// of the same hub, separated by commas, are tried in turn. Replaces --crm-url
    #[arg(long, value_name = "URL[,URL]")]
    pub forward: Option<String>,
    /// The branch's token, from `callbridge branch add` at the hub (or the credential
    /// `forward-token`, or CALLBRIDGE_FORWARD_TOKEN); read again for each request
    #[arg(long, value_name = "FILE")]
    pub forward_token_file: Option<String>,
    /// Certificates (PEM) that replace the system's roots for --forward
    #[arg(long, value_name = "FILE")]
    pub forward_ca_file: Option<String>,
}

impl HubFlags {
    /// Calls go to a hub.
    pub(crate) fn forwards(&self) -> bool {
        self.forward.as_deref().is_some_and(|text| !text.is_empty())
    }

    /// Calls come from branches.
    pub(crate) fn collects(&self) -> bool {
        self.collect.as_deref().is_some_and(|text| !text.is_empty())
    }
}

/// Events that the CRM sends to us.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Webhooks")]
pub struct WebhookFlags {
    /// Receive the CRM's webhooks here, at /webhooks: 127.0.0.1:8481 behind a proxy, or
    /// 0.0.0.0:8443 with a certificate [default: off]
    #[arg(long, value_name = "ADDR")]
    pub webhook_listen: Option<String>,
    /// Certificate and chain (PEM) for --webhook-listen; read again when the file changes
    #[arg(long, value_name = "FILE")]
    pub webhook_cert: Option<String>,
    /// Private key (PEM) of --webhook-cert
    #[arg(long, value_name = "FILE")]
    pub webhook_key: Option<String>,
    /// The application's signing secrets, one per line: current, previous (or the credential
    /// `webhook-secret`, or CALLBRIDGE_WEBHOOK_SECRET); read again when the file changes
    #[arg(long, value_name = "FILE")]
    pub webhook_secret_file: Option<String>,
    /// File with the signing secrets of an installation, in the same format. Not needed for the
    /// installation of `connect`. Can be repeated
    #[arg(long, value_name = "ID=FILE")]
    pub installation_secret: Vec<String>,
}

/// The flags of the assembler, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Calls")]
pub struct CallFlags {
    /// Skip calls that began before this date (2026-11-20, optionally with a time and zone)
    #[arg(long, value_name = "DATE")]
    pub not_before: Option<String>,
    /// A call is over when all parties have hung up and no event has arrived for this time
    /// [default: 500ms]
    #[arg(long, value_name = "TIME")]
    pub settle: Option<String>,
    /// How long to wait for a CDR whose user field names the lead [default: 10s]
    #[arg(long, value_name = "TIME")]
    pub cdr_wait: Option<String>,
    /// A call without an end is closed as incomplete after this time [default: 12h]
    #[arg(long, value_name = "TIME")]
    pub max_call: Option<String>,
    /// Maximum open calls. Above it, the call that has been without events the longest is closed as
    /// incomplete [default: 10000]
    #[arg(long, value_name = "N")]
    pub max_open_calls: Option<String>,
}

/// The flags of the daemon itself, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Operation")]
pub struct OperationFlags {
    /// Where calls are kept until they are journaled: a folder, or a PostgreSQL database that
    /// several hubs share: postgres://USER@HOST/DATABASE?secret-file=FILE (also HOST1,HOST2,
    /// ca-file=FILE, and schema=NAME) [default: $STATE_DIRECTORY, else ~/.local/state/callbridge]
    #[arg(long, value_name = "PLACE")]
    pub state: Option<String>,
    /// The name of this process, if several share a database [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    /// Serve /healthz, /readyz and /metrics here, such as 127.0.0.1:9469 [default: off]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Also publish dead letters here: amqp(s)://USER@HOST/VHOST?queue=Q; with &waiting=yes, also
    /// calls that wait for a lead or employee
    #[arg(long, value_name = "URL")]
    pub dead_letter_queue: Option<String>,
    /// A command for /bin/sh, run when a kind of problem begins and when it ends. It receives one
    /// line of JSON for each on stdin: kind, state (begins or ends), since, message, command. It
    /// can run for 30 s. If it fails, it is run again
    #[arg(long, value_name = "CMD")]
    pub notify_command: Option<String>,
    /// Also run --notify-command when customers have waited longer than this for a callback, such
    /// as 30m. Customers who pass the limit together are in one line, with their numbers [default:
    /// off]
    #[arg(long, value_name = "TIME")]
    pub notify_missed: Option<String>,
    /// Bind the state to another CRM address or company
    #[arg(long)]
    pub rebind: bool,
    /// Exit when every file is read, other sources have been quiet for 5 s, and all calls are
    /// settled
    #[arg(long)]
    pub until_idle: bool,
    /// Do everything except send
    #[arg(long)]
    pub dry_run: bool,
}

/// The flags of the log on stderr, as typed.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Logs")]
pub struct LogFlags {
    /// error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// text or json [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Log full phone numbers instead of their last four digits
    #[arg(long)]
    pub log_phones: bool,
}

/// Commands that look at the state folder, or ask the daemon in it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StateFlags {
    /// The daemon's state: a folder or a database (postgres://…) [default: $STATE_DIRECTORY, else
    /// ~/.local/state/callbridge, or if no daemon runs there, the state of the only running
    /// service]
    #[arg(long, value_name = "PLACE")]
    pub state: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Time zone of displayed times [default: that of the daemon's PBX, else this machine's]
    #[arg(long, value_name = "ZONE")]
    pub pbx_timezone: Option<String>,
}
