//! The PBX, whose account's login is tested and whose endpoints are read.

use super::{Answers, say};
use crate::commands::check::{CheckFinding, account, inward, manager_conf};
use crate::config::Config;
use crate::daemon::open::source_of;
use crate::{Failure, Result};
use callbridge_asterisk::survey::{Account, EndpointList};
use callbridge_model::{Code, Secret};
use callbridge_setup::proposal::{ProposedEndpoint, propose_switch};
use callbridge_setup::question::{SetupQuestion, is_event_socket, source_url};
use callbridge_setup::{local_conf, snippet};
use callbridge_source::Transport;

/// Facts about the PBX, from its manager accounts and its configuration files.
#[derive(Default)]
pub(crate) struct ShownPbx {
    /// Each manager account's permissions and endpoints, or empty without a manager account.
    pub accounts: Vec<Account>,
    /// The first account's name.
    pub user: String,
    /// Whether the PBX is running on this machine.
    pub local: bool,
    /// Endpoints reported by FreeSWITCH, as proposals.
    pub switch: Vec<ProposedEndpoint>,
    /// The endpoints from the manager accounts and, on this machine, from the PBX's files.
    pub endpoints: EndpointList,
}

/// A function that reads one of a PBX's files on this machine.
type ReadConf = fn(&[String], &mut EndpointList);
const FILES: [(&str, ReadConf); 3] = [
    ("pjsip.conf", local_conf::pjsip),
    ("sip.conf", local_conf::sip),
    ("extensions.conf", local_conf::hints),
];

/// Asks for missing data about the PBX and tests it, until the login is successful.
///
/// # Errors
/// Returns an error with the problem and its fix if the login fails and there's nobody to ask
/// again.
pub(crate) async fn find(answers: &mut Answers) -> Result<ShownPbx> {
    let given = answers.init.flags.sources.source.clone();
    let asked =
        answers.lacks(SetupQuestion::PbxAddress) || answers.lacks(SetupQuestion::AccountSecret);
    loop {
        while !ask(answers).await? {}
        let config = answers.config()?;
        say("\nasking the PBX …")?;
        let (shown, failed) = try_sources(&config).await?;
        let Some(fault) = failed.into_iter().next() else {
            return Ok(shown);
        };
        if !asked {
            return Err(failure(&fault));
        }
        if fault.fault == Some(Code::NoPermission) && !shown.user.is_empty() {
            say("The account needs these lines in manager.conf of the PBX:")?;
            let variables = config.rules.trunks.variables();
            say(&snippet::whole_account(
                &shown.user,
                "127.0.0.1",
                &variables,
            ))?;
        }
        let message = "Correct the problem; type s to enter only the secret, or press Enter to try \
                     again (Ctrl-C cancels): ";
        answers.ami_secret = None;
        if answers.line(message).await? != "s" {
            answers.init.flags.sources.source.clone_from(&given);
        }
    }
}

/// Asks for the PBX's address, the account, and its secret, unless they're given by flags. Returns
/// `false` if an answer is wrong.
async fn ask(answers: &mut Answers) -> Result<bool> {
    if answers.lacks(SetupQuestion::PbxAddress) {
        let address = answers.ask(SetupQuestion::PbxAddress).await?;
        let user = if is_event_socket(&address) {
            String::new()
        } else {
            answers.ask(SetupQuestion::Account).await?
        };
        match source_url(&address, &user) {
            Ok(url) => answers.init.flags.sources.source = vec![url],
            Err(message) => {
                say(&message)?;
                return Ok(false);
            }
        }
    }
    if answers.lacks(SetupQuestion::AccountSecret) {
        let secret = answers.ask(SetupQuestion::AccountSecret).await?;
        answers.ami_secret = Some(Secret::from(secret));
    }
    Ok(true)
}

/// Tests each source, and returns the facts that the sources report along with any errors.
async fn try_sources(config: &Config) -> Result<(ShownPbx, Vec<CheckFinding>)> {
    let mut shown = ShownPbx::default();
    let mut failed = Vec::new();
    for flag in &config.sources {
        let (found, account) = inward::source(flag).await;
        let mut all = vec![found];
        if let Transport::Ami { endpoint, user } = &flag.url.transport {
            shown.local |= endpoint.is_loopback();
            if shown.user.is_empty() {
                shown.user.clone_from(user);
            }
        }
        let source = source_of(0, flag, None);
        if let Ok(Some(facts)) = source.survey_switch().await {
            shown.switch.extend(propose_switch(&facts));
        }
        if let Some(account) = account {
            all.extend(account::judge(config, flag, &account));
            merge(&mut shown.endpoints, &account.endpoints);
            shown.accounts.push(account);
        }
        for finding in all {
            if finding.fault.is_some() || finding.name.starts_with("source") {
                say(&finding.to_text(false))?;
            }
            if finding.fault.is_some() {
                failed.push(finding);
            }
        }
    }
    if shown.local {
        for (file, read) in FILES {
            if let Some(lines) = manager_conf::lines_of(file) {
                read(&lines, &mut shown.endpoints);
            }
        }
    }
    Ok((shown, failed))
}

fn merge(into: &mut EndpointList, from: &EndpointList) {
    for (name, facts) in &from.facts {
        into.add(name, None);
        for fact in facts {
            into.add(name, Some(fact.clone()));
        }
    }
}

/// Asks the manager accounts again, and adds the endpoints they report to `shown`.
pub(crate) async fn refresh_endpoints(answers: &Answers, shown: &mut EndpointList) {
    let Ok(config) = answers.config() else {
        return;
    };
    for flag in &config.sources {
        if matches!(flag.url.transport, Transport::Ami { .. })
            && let (_, Some(account)) = inward::source(flag).await
        {
            merge(shown, &account.endpoints);
        }
    }
}

/// Returns the lines missing from the PBX's manager.conf for the chosen lead rules.
pub(crate) fn snippet(answers: &Answers, shown: &ShownPbx) -> String {
    let Some(account) = shown.accounts.first() else {
        return String::new();
    };
    let variables = answers
        .config()
        .map(|config| config.rules.trunks.variables())
        .unwrap_or_default();
    snippet::missing_lines(&shown.user, account, &variables)
}

/// Turns a finding into a failure with its name, problem, and fix.
pub(crate) fn failure(fault: &CheckFinding) -> Failure {
    let message = format!(
        "{}: {}\n  fix: {}\nnothing was written",
        fault.name, fault.message, fault.fix
    );
    Failure::new(fault.fault.unwrap_or(Code::Failed), message)
}
