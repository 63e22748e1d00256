//! Reads the token the way `run` would, from its file, its command, or the stored connection. A
//! stored connection isn't refreshed here, because a refresh replaces the pair of tokens, which
//! only the daemon may do.

use super::{CheckFinding, advice, fault, well};
use crate::config::{Crm, TokenFrom};
use crate::daemon::outward;
use callbridge_model::{Code, ExitCode as _, Secret, clock};
use callbridge_oauth::{command, scope, store};
use callbridge_spool::StatePlace;
use std::fmt::Display;

/// Reads the token. Returns the findings about where it comes from, and the token itself if it can
/// be used.
pub(crate) async fn check(crm: &Crm, place: &StatePlace) -> (Vec<CheckFinding>, Option<Secret>) {
    let fix = "give --token-file, the credential `token` or CALLBRIDGE_TOKEN, or run `callbridge \
                connect`";
    match &crm.token {
        None => no_token(&"there is none", fix),
        Some(TokenFrom::Connection) => connection(place),
        Some(TokenFrom::Command(text)) => match command::run(text).await {
            Ok(token) => (Vec::new(), Some(token)),
            Err(error) => {
                let fix = "run the command by hand, as callbridge's user, and correct it";
                no_token(&error, fix)
            }
        },
        Some(TokenFrom::Place(place)) => match outward::token_source(place).read() {
            Ok(Some(tokens)) => (Vec::new(), Some(tokens.current)),
            Ok(None) => no_token(&"there is none", fix),
            Err(error) => no_token(&error, "put the token into its file, on its own line"),
        },
    }
}

fn no_token(message: &dyn Display, fix: &str) -> (Vec<CheckFinding>, Option<Secret>) {
    let finding = fault(Code::NoPermission, "token", message, fix);
    (vec![finding], None)
}

fn connection(place: &StatePlace) -> (Vec<CheckFinding>, Option<Secret>) {
    let name = "connection";
    let stored = match store::read_in(place) {
        Ok(Some(stored)) => stored,
        Ok(None) => {
            let message = format!("the state in {place} no longer has a connection");
            let fix = "run `callbridge connect`";
            return (vec![fault(Code::NoPermission, name, message, fix)], None);
        }
        Err(error) => {
            let text = error.to_string();
            let parts = text.split_once("; ");
            let (message, fix) = parts.unwrap_or((&text, ""));
            return (vec![fault(error.exit_code(), name, message, fix)], None);
        }
    };
    let mut found = Vec::new();
    if let Some(over) = &stored.over {
        let fix = format!("run: {}", stored.command(&place.flag()));
        found.push(fault(Code::NoPermission, name, over, fix));
        return (found, None);
    }
    let lacks = scope::compare(&stored.asked_scope, &stored.scope).lacks;
    let message = format!(
        "client {}, {}",
        stored.client.client_id, stored.client.auth_url
    );
    found.push(advice(name, message, lacks.join("; ")));
    if stored.expires_at <= clock::now().wall.floor_seconds() {
        let message = "its access token has expired; `run` refreshes it when it starts";
        found.push(well("token", message));
        return (found, None);
    }
    (found, Some(stored.access_token))
}
