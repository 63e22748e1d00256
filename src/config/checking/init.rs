//! The flags of `init`. Given flags must be valid. Without a terminal, no needed flag can be
//! missing.

use crate::config::checked::place::state_place;
use crate::config::checked::sources;
use crate::config::flags::Flags;
use crate::config::{Checking, Command, Faults};
use crate::state_owner::other_owner;
use callbridge_mapping::trunk::is_name;
use callbridge_model::{ETC, Environment, SecretKind, SecretPlace};
use callbridge_setup::question::SetupQuestion;
use callbridge_source::{SourceUrl, Transport};
use clap::Args;
use std::{io::IsTerminal as _, path::Path};

/// Checks the flags of `init`, and the given flags of `run`.
pub(super) fn check(mut checking: Checking<'_>, mut init: InitFlags) -> Result<Command, Faults> {
    let name = &init.name;
    let message = "use at most 64 letters, digits, `-`, `_` and `.`, because it names a service";
    let message = format!("`{name}`: {message}");
    checking.faults.add_if(!is_name(name), "--name", message);
    let etc = Path::new(&init.etc);
    let message = "is not an absolute path: the service does not start in this folder";
    checking.faults.add_if(!etc.is_absolute(), "--etc", message);
    let file = etc.join(format!("{name}.flags"));
    let environment = checking.environment.clone().with_service(&file);
    init.asks = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !init.asks {
        for question in missing_answers(&init.flags, &environment) {
            let (flag, message) = question.flag();
            checking.faults.add(flag, message);
        }
    }
    // The values are checked as they will be written. A missing flag is no error here.
    Checking::new(&environment, checking.faults).config(init.flags.clone())?;
    Ok(Command::Init(Box::new(init)))
}

/// Returns the questions that no flag, variable, or credential answers.
pub(crate) fn missing_answers(flags: &Flags, environment: &Environment) -> Vec<SetupQuestion> {
    let source_flag = flags.sources.source.first();
    let source = source_flag.map(|url| SourceUrl::parse(url));
    // A given source has an account or needs no account. A source with an error is reported
    // elsewhere.
    let no_source = source.is_none();
    let secret = match &source {
        Some(Ok(url)) => secret_kind(&url.transport),
        Some(Err(_)) => None,
        None => Some(SecretKind::Ami),
    };
    let file = source.and_then(|url| url.ok()?.secret_file);
    let no_secret = secret.is_some_and(|kind| !has_secret(kind, file.as_deref(), environment));
    // A token is given, or the given state has a connection by consent.
    let file = flags.crm.token_file.as_deref().map(Path::new);
    let has_token = has_secret(SecretKind::Token, file, environment);
    let given = has_token || flags.crm.token_command.is_some();
    let state_flag = flags.operation.state.as_deref();
    let state = state_flag.and_then(|text| state_place(Some(text), environment).ok());
    // Root does not open another user's state.
    let connected = state.is_some_and(|state| {
        let is_ours = other_owner(state.socket_folder()).is_none();
        is_ours && callbridge_oauth::store::exists(&state) == Some(true)
    });
    let trunks = &flags.trunks.trunk;
    let no_lead = flags.trunks.lead.is_none() && !is_in_all(trunks, ",lead=");
    let no_country = flags.trunks.country.is_none() && !is_in_all(trunks, ",country=");
    let forwards = flags.hub.forwards();
    let file = flags.hub.forward_token_file.as_deref().map(Path::new);
    let no_hub_token = forwards && !has_secret(SecretKind::Forward, file, environment);
    let questions = [
        (no_source, SetupQuestion::PbxAddress),
        (no_source, SetupQuestion::Account),
        (no_secret, SetupQuestion::AccountSecret),
        (
            !forwards && flags.crm.crm_url.is_none(),
            SetupQuestion::CrmAddress,
        ),
        (!forwards && !given && !connected, SetupQuestion::Token),
        (no_hub_token, SetupQuestion::HubToken),
        (!forwards && no_lead, SetupQuestion::LeadRule),
        (no_country, SetupQuestion::Country),
    ];
    let missing = questions.into_iter().filter(|(is_missing, _)| *is_missing);
    missing.map(|(_, question)| question).collect()
}

fn has_secret(kind: SecretKind, file: Option<&Path>, environment: &Environment) -> bool {
    SecretPlace::find(kind, file, environment).is_ok()
}

/// Returns `true` if there are trunks, and each trunk has the key.
fn is_in_all(trunks: &[String], key: &str) -> bool {
    !trunks.is_empty() && trunks.iter().all(|trunk| trunk.contains(key))
}

/// Returns the kind of secret for a direct connection to a PBX. `None` if the source is no direct
/// connection, or needs no secret.
pub(crate) fn secret_kind(transport: &Transport) -> Option<SecretKind> {
    sources::secret_kind(transport).filter(|kind| *kind != SecretKind::Amqp)
}

/// The examples at the end of `init --help`.
pub(crate) const EXAMPLES: &str = "\
On a terminal, init asks questions. Without a terminal, give every answer as a flag:
  callbridge init
  CALLBRIDGE_AMI_SECRET=… callbridge init --name pbx1 --source ami://callbridge@127.0.0.1 \\
    --crm-url https://crm.example --token-file token.txt --lead var:LEAD_ID --country UZ

It writes DIR/NAME.flags, and the secrets as credentials of the service callbridge@NAME (in
/etc/credstore; in DIR/credstore for another DIR). Nothing is written before the end.

Exit: 0 written, 64 answers missing or wrong, 69 PBX or CRM unreachable, 73 cannot write,
77 refused by PBX or CRM, 78 trunks unclear or CRM address wrong, 130 interrupted (Ctrl-C).";

/// The service's instance if `--name` is not given.
pub(crate) const INSTANCE: &str = "pbx1";

/// The flags of `init`: checked as far as they are given.
#[derive(Args, Clone, Debug)]
pub struct InitFlags {
    /// Name of the service instance; also the suggested --pbx-id, instead of the host name
    /// [default: pbx1]
    #[arg(long, value_name = "NAME")]
    #[arg(default_value = INSTANCE, hide_default_value = true)]
    pub name: String,
    /// Folder for the file of flags [default: /etc/callbridge]
    #[arg(long, value_name = "DIR")]
    #[arg(default_value = ETC, hide_default_value = true)]
    pub etc: String,
    /// Accept what is suggested, and overwrite existing files
    #[arg(long)]
    pub yes: bool,
    /// `true` if a person at a terminal answers the questions.
    #[arg(skip)]
    pub asks: bool,
    #[command(flatten)]
    pub flags: Flags,
}
