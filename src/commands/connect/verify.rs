//! Finds out who owns a new connection. If a daemon is running, it asks the CRM, because every
//! request has to go through its sender. Without a daemon, this module sends one request, using a
//! slot in the state's budget.
//!
//! Before a state is bound to its first company, the user must confirm the company, because the
//! browser may have been logged in to a different one on the consent page.

use crate::Result;
use crate::commands::check::service::judge;
use crate::config::checked::connect::{Connect, Wanted};
use crate::terminal::StdinLines;
use callbridge_admin::state_access::{Access, ask_or_open, close, open_here, status};
use callbridge_crm::{Address, ApiError, ApiReply, ApiResult, TokenInfo};
use callbridge_model::Status;
use callbridge_oauth::connection::Connection;
use callbridge_ops::log::say;
use callbridge_sender::status::TokenPlace;
use callbridge_sender::{new_state, token_probe, token_probe::Unasked, token_update};
use callbridge_spool::{self as spool, Binding, Fit, Guard, Handle, Op, StatePlace};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Timeout for the daemon's response, since its budget may be used up for a minute.
const DAEMON_WITHIN: Duration = Duration::from_secs(100);
/// Interval between reads of the daemon's status.
const CHECK_EVERY: Duration = Duration::from_millis(250);
const REFUSED: &str = "the CRM refuses the new token (401)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenOwner {
    /// The state's company, or the first company for an unbound state. Contains the company's
    /// description and, if known, the grants as a scope.
    Ours(String, Option<String>),
    /// A company or application other than the state's or the one in `--company`, for the reason
    /// given.
    Another(String),
    /// The owner couldn't be determined, for the reason given.
    Unknown(String),
}

/// Checks that the state can be used and belongs to this CRM, before the user is asked for consent.
///
/// # Errors
/// Fails with 73, 75, or 78, which is the status that `run` would exit with.
pub(super) async fn prepare(place: &StatePlace, crm: &Address) -> Result<()> {
    if let Some(folder) = place.folder() {
        spool::refuse_shared(folder)?;
    }
    if let Some((spool, guard)) = open(place).await? {
        let bind = Op::BindAddress {
            address: crm.as_str().to_owned(),
            rebind: false,
        };
        let bound = spool.write(vec![bind]).await;
        close(spool, guard).await;
        bound?;
    }
    // A connection that can't be read can't be replaced.
    place.connections().read()?;
    Ok(())
}

/// Determines the connection's owner. If the state isn't bound to a company yet, binds it to the
/// owner after a confirmation. In the meantime, the state's lock prevents a daemon from starting
/// and binding the state.
///
/// # Errors
/// Returns an error if the state can't be used.
pub(super) async fn find_owner(
    connect: &Connect,
    new: &Connection,
    typed: &mut StdinLines,
) -> Result<TokenOwner> {
    let Some((spool, guard)) = open(&connect.state).await? else {
        return Ok(wait_for_daemon(&connect.state, new).await);
    };
    let setup = &connect.setup;
    let until = Instant::now() + DAEMON_WITHIN;
    let found = loop {
        match token_probe::token_info(setup.clone(), None, &spool, &new.access_token).await {
            Ok((Ok(ApiReply::TokenInfo(info)), binding)) => {
                break bind_company(&spool, &info, &binding, (&connect.wanted, typed)).await;
            }
            Ok((answer, binding)) => break Ok(unknown_owner(&setup.address, answer, &binding)),
            Err(Unasked::Full(wait)) if Instant::now() + wait < until => {
                tokio::time::sleep(wait + CHECK_EVERY).await;
            }
            Err(why) => break Ok(TokenOwner::Unknown(why.to_string())),
        }
    };
    close(spool, guard).await;
    found
}

/// Opens the spool of a state without a daemon, or returns `None` if a daemon has the state,
/// possibly on another machine.
pub(super) async fn open(place: &StatePlace) -> Result<Option<(Handle, Guard)>> {
    // If a daemon doesn't respond, it still has the lock, which is reported when the spool is
    // opened.
    let folder = place.socket_folder();
    let access = ask_or_open(
        async || Ok::<_, spool::Error>(status(folder).await.ok().flatten()),
        || open_here(place, spool::Settings::default(), false),
    )
    .await;
    match access {
        Ok(Access::Daemon(_)) | Err(spool::Error::NotLeader(..)) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(Access::Spool(spool, guard)) => {
            new_state::take_slots(&spool).await?;
            Ok(Some((spool, guard)))
        }
    }
}

fn unknown_owner(address: &Address, answer: ApiResult, binding: &Binding) -> TokenOwner {
    if matches!(answer, Err(ApiError::TokenRefused { .. })) {
        return TokenOwner::Unknown(REFUSED.to_owned());
    }
    let fault = judge(address, answer, binding, &TokenPlace::default())
        .into_iter()
        .find(|finding| finding.fault.is_some());
    TokenOwner::Unknown(fault.map(|fault| fault.message).unwrap_or_default())
}

/// Compares the token's company with the state's. An unbound state is bound to it after a
/// confirmation.
async fn bind_company(
    spool: &Handle,
    info: &TokenInfo,
    binding: &Binding,
    (wanted, typed): (&Wanted, &mut StdinLines),
) -> Result<TokenOwner> {
    let company = info.company.to_string();
    let owner = company_text(info);
    let application = info
        .application
        .map(|id| id.to_string())
        .or_else(|| binding.application.clone())
        .unwrap_or_default();
    let fit = binding.fits_company(&company, &application);
    let agreed = match fit {
        Fit::Unbound => wanted.confirm_binding(typed, info, &owner).await,
        Fit::Same => wanted.check_company(info, &owner),
        Fit::Other => Err(format!(
            "the consent is from {owner}, but this state is bound to company {}, application {}",
            binding.company.as_deref().unwrap_or("none"),
            binding.application.as_deref().unwrap_or("none"),
        )),
    };
    if let Err(why) = agreed {
        return Ok(TokenOwner::Another(why));
    }
    if fit == Fit::Unbound {
        let bind = Op::BindCompany {
            company,
            application,
        };
        spool.write(vec![bind]).await?;
    }
    let grants = info.grants.as_ref().map(|all| all.join(" "));
    Ok(TokenOwner::Ours(owner, grants))
}

fn company_text(info: &TokenInfo) -> String {
    let mut text = format!(
        "company {} ({}), application {}",
        info.company_name, info.company, info.application_name
    );
    if let Some(id) = info.application {
        text.push_str(&format!(" ({id})"));
    }
    text
}

/// Waits until the daemon has used the new token, and returns the owner that it reports.
async fn wait_for_daemon(place: &StatePlace, new: &Connection) -> TokenOwner {
    let print = Some(token_update::print(&new.access_token).to_string());
    let until = Instant::now() + DAEMON_WITHIN;
    while Instant::now() < until {
        if let Ok(Some(status)) = status(place.socket_folder()).await
            && status.token.print == print
            && let Some(found) = owner_from_status(&status)
        {
            return found;
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
    TokenOwner::Unknown("the daemon has not asked the CRM yet".to_owned())
}

/// Returns the owner according to the daemon's status, or `None` if the daemon doesn't know it yet.
fn owner_from_status(status: &Status) -> Option<TokenOwner> {
    let token = &status.token;
    match token.state.as_str() {
        "ok" | "no_grant" => {
            let company = token.company.as_deref().unwrap_or("unknown");
            let application = token.application.as_deref().unwrap_or("unknown");
            let grants = (!token.grants.is_empty()).then(|| token.grants.join(" "));
            let owner = format!("company {company}, application {application}");
            Some(TokenOwner::Ours(owner, grants))
        }
        "wrong_company" => {
            let fix = status.pause.as_ref().map(|pause| pause.fix.clone());
            Some(TokenOwner::Another(fix.unwrap_or_default()))
        }
        "refused" => Some(TokenOwner::Unknown(REFUSED.to_owned())),
        _ => None,
    }
}

impl Wanted {
    /// Checks that the token's company is the one in `--company`, if that flag is given.
    ///
    /// # Errors
    /// Returns an error if it's a different company. The message contains `owner`, which describes
    /// the token's company.
    fn check_company(&self, info: &TokenInfo, owner: &str) -> Result<(), String> {
        match self.company {
            Some(wanted) if wanted != info.company => Err(format!(
                "the consent is from {owner}, but --company is {wanted}"
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Asks whether to bind the state to its first company. If stdin isn't a terminal, agrees
    /// without asking and prints a message.
    ///
    /// # Errors
    /// Returns an error if the user doesn't confirm.
    async fn confirm_binding(
        &self,
        typed: &mut StdinLines,
        info: &TokenInfo,
        owner: &str,
    ) -> Result<(), String> {
        self.check_company(info, owner)?;
        if self.yes || self.company.is_some() {
            return Ok(());
        }
        if !typed.person {
            say(&format!(
                "this state is now bound to {owner}: stdin is not a terminal, so no question was \
                 asked. Next time, give --company {} to make sure of the company",
                info.company
            ));
            return Ok(());
        }
        typed.forget();
        say(&format!(
            "bind this state to {owner}? From now on, its calls go only to this company. [y/N]"
        ));
        let until = Instant::now() + self.within;
        let answer = match timeout_at(until, typed.line()).await {
            Ok(Some(line)) => line,
            Ok(None) | Err(_) => String::new(),
        };
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(format!(
                "the consent is from {owner}, which was not confirmed"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_info(company: i64) -> TokenInfo {
        TokenInfo {
            company,
            company_name: "Uy".to_owned(),
            application: Some(7),
            application_name: String::new(),
            kind: "ACCESS".to_owned(),
            expires_at: None,
            expires_in_days: None,
            grants: None,
        }
    }

    /// Returns `true` if binding to company 12 is confirmed. `person` is `true` if someone is
    /// typing the answers in `lines`. `company` and `yes` are the values of the flags.
    async fn is_confirmed(person: bool, lines: &[&str], company: Option<i64>, yes: bool) -> bool {
        let mut typed = StdinLines::scripted(person, lines);
        let within = Duration::from_secs(60);
        let wanted = Wanted {
            company,
            yes,
            within,
        };
        let (info, owner) = (token_info(12), "company Uy (12)");
        wanted
            .confirm_binding(&mut typed, &info, owner)
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn binding_asks_only_on_terminal_and_flags_override() {
        for (line, yes) in [("y", true), (" YES ", true), ("n", false), ("", false)] {
            assert_eq!(
                is_confirmed(true, &[line], None, false).await,
                yes,
                "{line}"
            );
        }
        assert!(
            !is_confirmed(true, &[], None, false).await,
            "stdin has ended"
        );
        assert!(is_confirmed(true, &[], None, true).await, "--yes");
        assert!(
            is_confirmed(false, &[], None, false).await,
            "no person can answer"
        );
        for person in [true, false] {
            assert!(
                is_confirmed(person, &[], Some(12), false).await,
                "--company"
            );
            assert!(
                !is_confirmed(person, &["y"], Some(13), true).await,
                "another company"
            );
        }
    }
}
