//! Asks whether calls go to the CRM or to a hub, and tests the hub's URL and token with one
//! request.

use super::{Answers, pbx, say};
use crate::Result;
use crate::commands::check::{CheckFinding, hub};
use callbridge_model::{Secret, is_token};
use callbridge_setup::question::SetupQuestion;

/// Finds out whether calls go to a hub, and tests the hub. Returns `false` if calls go to the CRM.
///
/// # Errors
/// Returns an error if the hub rejects the answers and there's nobody to correct them.
pub(crate) async fn find(answers: &mut Answers) -> Result<bool> {
    let is_open = answers.init.asks && answers.lacks(SetupQuestion::CrmAddress);
    if is_open && !wants_hub(answers).await? {
        return Ok(false);
    }
    if !is_open && !answers.init.flags.hub.forwards() {
        return Ok(false);
    }
    let asked = is_open || answers.lacks(SetupQuestion::HubToken);
    loop {
        while !ask(answers).await? {}
        say("\nasking the hub …")?;
        let found = hub::forward(&answers.config()?).await;
        for finding in &found {
            say(&finding.to_text(false))?;
        }
        let Some(fault) = found.into_iter().find(has_failed) else {
            return Ok(true);
        };
        if !asked {
            return Err(pbx::failure(&fault));
        }
        say("Enter the hub's address and the token again, or press Ctrl-C to cancel.")?;
        answers.init.flags.hub.forward = None;
        answers.hub_token = None;
    }
}

fn has_failed(finding: &CheckFinding) -> bool {
    finding.fault.is_some()
}

async fn wants_hub(answers: &mut Answers) -> Result<bool> {
    loop {
        let typed = answers.ask(SetupQuestion::Destination).await?;
        match typed.to_ascii_lowercase().as_str() {
            "crm" => return Ok(false),
            "hub" => return Ok(true),
            _ => say("Type crm or hub.")?,
        }
    }
}

/// Asks for the hub's URL and token, if they aren't given by flags. Returns `false` if an answer is
/// wrong.
async fn ask(answers: &mut Answers) -> Result<bool> {
    if !answers.init.flags.hub.forwards() {
        let address = answers.ask(SetupQuestion::HubAddress).await?;
        if !answers.take(|flags| flags.hub.forward = Some(address))? {
            return Ok(false);
        }
    }
    if answers.lacks(SetupQuestion::HubToken) {
        let token = answers.ask(SetupQuestion::HubToken).await?;
        if !is_token(&token) {
            say("That is not a token: give the word that `callbridge branch add` printed.")?;
            return Ok(false);
        }
        answers.hub_token = Some(Secret::from(token));
    }
    Ok(true)
}
