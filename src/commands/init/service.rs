//! Asks for the CRM's URL and token, and tests them with one request (`token/info`).

use super::{Answers, pbx, say};
use crate::commands::ScratchFolder;
use crate::commands::check::{CheckFinding, place, service};
use crate::config::{STATES, TokenFrom};
use crate::{OrFail as _, Result};
use callbridge_model::{Code, Secret, is_token};
use callbridge_setup::question::SetupQuestion;
use callbridge_spool::folder;
use std::path::{Path, PathBuf};

/// Asks for missing data about the CRM and tests it, until the CRM accepts the token.
///
/// # Errors
/// Returns an error with the problem and its fix if the test fails and there's nobody to ask again.
pub(crate) async fn find(answers: &mut Answers) -> Result<()> {
    let asked = answers.lacks(SetupQuestion::CrmAddress) || answers.lacks(SetupQuestion::Token);
    let given = answers.init.flags.crm.clone();
    loop {
        while !ask(answers).await? {}
        let found = check_token(answers).await?;
        for finding in &found {
            say(&finding.to_text(false))?;
        }
        let fault = found.into_iter().find(|finding| finding.fault.is_some());
        let Some(fault) = fault else {
            return Ok(());
        };
        if !asked {
            return Err(pbx::failure(&fault));
        }
        let message = "Type s to enter only the token, or press Enter to enter the address and the \
                     token again (Ctrl-C cancels): ";
        answers.token = None;
        if answers.line(message).await? != "s" {
            answers.init.flags.crm.clone_from(&given);
        }
    }
}

/// Asks for the URL and the token, unless they're given by flags. Returns `false` if an answer is
/// wrong.
async fn ask(answers: &mut Answers) -> Result<bool> {
    if answers.lacks(SetupQuestion::CrmAddress) {
        let address = answers.ask(SetupQuestion::CrmAddress).await?;
        if !answers.take(|flags| flags.crm.crm_url = Some(address))? {
            return Ok(false);
        }
    }
    if answers.lacks(SetupQuestion::Token) {
        let token = answers.ask(SetupQuestion::Token).await?;
        if token.is_empty() {
            say("no token: connect the company by consent after init")?;
        } else if is_token(&token) {
            answers.token = Some(Secret::from(token));
        } else {
            say("that is not a token: one word is expected, without spaces or line ends")?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tests the token. There are no findings if there's no token or the state is in use by a service.
async fn check_token(answers: &Answers) -> Result<Vec<CheckFinding>> {
    let mut config = answers.config()?;
    let token = config.crm.as_ref().and_then(|crm| crm.token.as_ref());
    if matches!(token, None | Some(TokenFrom::Connection)) {
        return Ok(Vec::new());
    }
    let state = match &answers.init.flags.operation.state {
        Some(state) => PathBuf::from(state),
        None => Path::new(STATES).join(&answers.init.name),
    };
    // The state's daemon has the request budget. `check` will ask the daemon later.
    if state.join(folder::FILE).exists() {
        say(&format!(
            "{} already exists, so the token is not tested now: `check` tests it later",
            state.display()
        ))?;
        return Ok(Vec::new());
    }
    say("\nasking the CRM …")?;
    let name = format!("callbridge-init-{}", uuid::Uuid::new_v4().simple());
    let folder = std::env::temp_dir().join(name);
    let what = format_args!("{}: cannot be created", folder.display());
    let _scratch = ScratchFolder::make(folder.clone()).or_fail_at(Code::CannotWrite, what)?;
    config.state = Some(folder.into());
    // `check` will test the fields later. Together, `init` and `check` send at most three requests.
    if let Some(crm) = &mut config.crm {
        crm.lead_fields.clear();
    }
    let (found, state) = place::state(&config).await;
    let mut all: Vec<CheckFinding> = found
        .into_iter()
        .filter(|finding| finding.fault.is_some())
        .collect();
    all.extend(service::check(&config, state).await);
    Ok(all)
}
