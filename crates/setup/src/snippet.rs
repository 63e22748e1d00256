//! The lines of `manager.conf` that a PBX lacks, or was not seen to have.

use callbridge_asterisk::survey::{Account, CallProof};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The account's rights to receive events, as in `deploy/asterisk/manager.conf`.
pub const READ: &str = "read = call,cdr,system,agent,user";
/// The account's rights to send actions.
pub const WRITE: &str = "write = reporting,user";

/// Returns all lines of the account, for a PBX that does not have it. `from` is the address from
/// which callbridge connects. `variables` are the channel variables that lead rules read.
pub fn whole_account(user: &str, from: &str, variables: &BTreeSet<String>) -> String {
    let mut text = general(true, variables);
    let _ = write!(
        text,
        "[{user}]\nsecret = THE-SECRET      ; the same as was given here\n\
         deny = 0.0.0.0/0.0.0.0\npermit = {from}/255.255.255.255\n{READ}\n{WRITE}\n\
         writetimeout = 1000\n"
    );
    text
}

/// Returns the lines that our account lacks, or an empty text if nothing is missing. `variables`
/// are the channel variables that lead rules read.
pub fn missing_lines(user: &str, account: &Account, variables: &BTreeSet<String>) -> String {
    let lacking = match &account.variables {
        Some(shown) => variables.difference(shown).cloned().collect(),
        None => BTreeSet::new(),
    };
    let mut text = general(account.timed == Some(false), &lacking);
    let deaf = matches!(account.calls, CallProof::Unheard(_))
        || account.echoed == Some(false)
        || (!account.booted && !account.is_old());
    let asks = can_send(account, "CoreShowChannels")
        && can_send(account, "DeviceStateList")
        && can_send(account, "UserEvent");
    if deaf || !(asks || account.is_old()) {
        let _ = write!(text, "[{user}](+)\n{READ}\n{WRITE}\n");
    }
    text
}

/// Returns `true` if the account can send the action, or if its actions are not known.
fn can_send(account: &Account, action: &str) -> bool {
    let actions = account.actions.as_ref();
    actions.is_none_or(|actions| actions.contains(&action.to_ascii_lowercase()))
}

fn general(timed: bool, variables: &BTreeSet<String>) -> String {
    let mut text = String::new();
    if timed {
        text.push_str("timestampevents = yes\n");
    }
    if !variables.is_empty() {
        let names = variables.iter().cloned().collect::<Vec<_>>().join(",");
        text += &format!("channelvars = {names}   ; in addition to those that are there\n");
    }
    if text.is_empty() {
        text
    } else {
        format!("[general](+)\n{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippet_contains_only_missing_settings() {
        let wanted = BTreeSet::from(["LEAD_ID".to_owned()]);
        let actions = ["coreshowchannels", "devicestatelist", "userevent"];
        let well = Account {
            version: "11.0.0".to_owned(),
            actions: Some(actions.map(str::to_owned).into()),
            booted: true,
            echoed: Some(true),
            timed: Some(true),
            variables: Some(wanted.clone()),
            ..Account::default()
        };
        assert_eq!(missing_lines("callbridge", &well, &wanted), "");
        let bare = Account {
            actions: Some(BTreeSet::new()),
            timed: Some(false),
            variables: Some(BTreeSet::new()),
            ..well
        };
        insta::assert_snapshot!(missing_lines("callbridge", &bare, &wanted), @"
        [general](+)
        timestampevents = yes
        channelvars = LEAD_ID   ; in addition to those that are there
        [callbridge](+)
        read = call,cdr,system,agent,user
        write = reporting,user
        ");
        insta::assert_snapshot!(whole_account("callbridge", "127.0.0.1", &wanted), @"
        [general](+)
        timestampevents = yes
        channelvars = LEAD_ID   ; in addition to those that are there
        [callbridge]
        secret = THE-SECRET      ; the same as was given here
        deny = 0.0.0.0/0.0.0.0
        permit = 127.0.0.1/255.255.255.255
        read = call,cdr,system,agent,user
        write = reporting,user
        writetimeout = 1000
        ");
    }
}
