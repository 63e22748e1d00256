//! The lines of `manager.conf` that a PBX lacks, or was not seen to have.

use callbridge_asterisk::survey::{Account, CallProof};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The account's rights to receive events, as in `deploy/asterisk/manager.conf`.
pub const READ: &str = "read = call,cdr,system,agent,user";
/// The account's rights to send actions.
pub const WRITE: &str = "write = reporting,user";

/// Returns the whole account, for a PBX that does not know it. `from` is the address that it
/// connects from.
pub fn whole(user: &str, from: &str, variables: &BTreeSet<String>) -> String {
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
/// are those that lead rules read.
pub fn missing(user: &str, account: &Account, variables: &BTreeSet<String>) -> String {
    let shown = account.variables.as_ref();
    let lacks = |name: &&String| shown.is_some_and(|shown| !shown.contains(*name));
    let lacking: BTreeSet<String> = variables.iter().filter(lacks).cloned().collect();
    let mut text = general(account.timed == Some(false), &lacking);
    let actions = account.actions.as_ref();
    let may = |it: &str| actions.is_none_or(|all| all.contains(&it.to_ascii_lowercase()));
    let deaf = matches!(account.calls, CallProof::Unheard(_))
        || account.echoed == Some(false)
        || (!account.booted && !account.is_old());
    let asks = may("CoreShowChannels") && may("DeviceStateList") && may("UserEvent");
    if deaf || !(asks || account.is_old()) {
        let _ = write!(text, "[{user}](+)\n{READ}\n{WRITE}\n");
    }
    text
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
    match text.is_empty() {
        true => text,
        false => format!("[general](+)\n{text}"),
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
        assert_eq!(missing("callbridge", &well, &wanted), "");
        let bare = Account {
            actions: Some(BTreeSet::new()),
            timed: Some(false),
            variables: Some(BTreeSet::new()),
            ..well
        };
        insta::assert_snapshot!(missing("callbridge", &bare, &wanted), @"
        [general](+)
        timestampevents = yes
        channelvars = LEAD_ID   ; in addition to those that are there
        [callbridge](+)
        read = call,cdr,system,agent,user
        write = reporting,user
        ");
        insta::assert_snapshot!(whole("callbridge", "127.0.0.1", &wanted), @"
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
