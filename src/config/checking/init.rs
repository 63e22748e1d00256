//! `init`: its flags. What was given is right as far as it goes, and without a terminal nothing is
//! missing.

use crate::config::flags::Flags;
use crate::config::{Checking, Command, Faults, Init};
use callbridge_mapping::trunk::is_name;
use callbridge_model::{ETC, Environment, SecretKind, SecretPlace};
use callbridge_setup::question::SetupQuestion;
use callbridge_source::{SourceUrl, Transport};
use clap::Args;
use std::{io::IsTerminal as _, path::Path, path::PathBuf};

/// The usual name of a service, without `--name`.
const NAME: &str = "pbx1";

/// Checks the flags of `init`; those of `run` only as far as they are given.
pub(super) fn check(mut checking: Checking<'_>, flags: InitFlags) -> Result<Command, Faults> {
    let name = flags.name.unwrap_or_else(|| NAME.to_owned());
    if !is_name(&name) {
        let words = "letters, digits, `-`, `_` and `.`, at most 64: it names a service";
        checking.faults.add("--name", format!("`{name}`: {words}"));
    }
    let etc = PathBuf::from(flags.etc.unwrap_or_else(|| ETC.to_owned()));
    if !etc.is_absolute() {
        let words = "is not an absolute path: the service does not start in this folder";
        checking.faults.add("--etc", words);
    }
    let file = etc.join(format!("{name}.flags"));
    let environment = checking.environment.clone().beside(&file);
    let asks = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !asks {
        for question in missing(&flags.flags, &environment) {
            let (flag, words) = question.flag();
            checking.faults.add(flag, words);
        }
    }
    // Their values are looked at as they will be, and what is not given yet is no fault.
    Checking::new(&environment, checking.faults).config(flags.flags.clone())?;
    Ok(Command::Init(Box::new(Init {
        name,
        etc,
        yes: flags.yes,
        asks,
        flags: flags.flags,
    })))
}

/// The questions that no flag, variable or credential answers.
pub(crate) fn missing(flags: &Flags, environment: &Environment) -> Vec<SetupQuestion> {
    let mut missing = Vec::new();
    let source = flags
        .sources
        .source
        .first()
        .map(|url| SourceUrl::parse(url));
    // One that is given has an account, or needs none, or is a fault of its own.
    if source.is_none() {
        missing.extend([SetupQuestion::PbxAddress, SetupQuestion::Account]);
    }
    let secret = match &source {
        Some(Ok(url)) => secret_kind(&url.transport),
        Some(Err(_)) => None,
        None => Some(SecretKind::Ami),
    };
    let file = source.and_then(|url| url.ok()?.secret_file);
    if secret.is_some_and(|kind| SecretPlace::find(kind, file.as_deref(), environment).is_err()) {
        missing.push(SetupQuestion::AccountSecret);
    }
    if flags.crm.crm_url.is_none() {
        missing.push(SetupQuestion::CrmAddress);
    }
    // A token is given, or the state that was named has a connection by consent.
    let file = flags.crm.token_file.as_deref().map(Path::new);
    let given = SecretPlace::find(SecretKind::Token, file, environment).is_ok();
    let state = flags.operation.state.as_deref().map(Path::new);
    let connected = state.is_some_and(callbridge_oauth::store::exists);
    if !given && flags.crm.token_command.is_none() && !connected {
        missing.push(SetupQuestion::Token);
    }
    let every_trunk = |key: &str| {
        let trunks = &flags.trunks.trunk;
        !trunks.is_empty() && trunks.iter().all(|trunk| trunk.contains(key))
    };
    if flags.trunks.lead.is_none() && !every_trunk(",lead=") {
        missing.push(SetupQuestion::LeadRule);
    }
    if flags.trunks.country.is_none() && !every_trunk(",country=") {
        missing.push(SetupQuestion::Country);
    }
    missing
}

/// The secret of a PBX's own line; `None` where a source is none.
pub(crate) const fn secret_kind(transport: &Transport) -> Option<SecretKind> {
    match transport {
        Transport::Ami { .. } => Some(SecretKind::Ami),
        Transport::Esl { .. } => Some(SecretKind::Esl),
        _ => None,
    }
}

/// The examples at the end of `init --help`.
pub(crate) const EXAMPLES: &str = "\
On a terminal it asks; without one every answer is a flag, and those that are missing are named:
  callbridge init
  CALLBRIDGE_AMI_SECRET=… callbridge init --name pbx1 --source ami://callbridge@127.0.0.1 \\
    --crm-url https://crm.example --token-file token.txt --lead var:LEAD_ID --country UZ

It writes DIR/NAME.flags, and the secrets as credentials of the service callbridge@NAME (in
/etc/credstore; in DIR/credstore for another DIR). Nothing is written before the end.

Exit: 0 written, 64 answers missing or wrong, 69 PBX or CRM not there, 73 not to be written,
77 refused by PBX or CRM, 78 trunks not clear or the CRM's address wrong, 130 left (Ctrl-C).";

/// The flags of `init`, as typed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct InitFlags {
    /// The name of the service's instance and, without --pbx-id, of the PBX [default: pbx1]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The folder of the flags [default: /etc/callbridge]
    #[arg(long, value_name = "DIR")]
    pub etc: Option<String>,
    /// Take what is proposed, and write over files that are there
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub flags: Flags,
}
