//! Finds out which endpoints are trunks, by proposing them with reasons and asking the user.

use super::{Answers, pbx, say};
use crate::{Failure, Result};
use callbridge_asterisk::survey::EndpointList;
use callbridge_model::Code;
use callbridge_setup::proposal::{EndpointKind, ProposedEndpoint, propose, trunk_name};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum number of phones to list by name. If there are more, only their number is shown.
const TELEPHONES_MAX: usize = 20;
/// How long channels are watched at most.
const WATCH: Duration = Duration::from_secs(180);
/// Interval between checks of the channels.
const CHECK_EVERY: Duration = Duration::from_secs(3);

/// Adds the trunks chosen by the user to the flags, unless the flags already have trunks.
///
/// # Errors
/// Fails with 78 if no trunk was recognized and there's nobody to ask.
pub(crate) async fn find(answers: &mut Answers, shown: &pbx::ShownPbx) -> Result<()> {
    if !answers.init.flags.trunks.trunk.is_empty() {
        return Ok(());
    }
    let mut endpoints = shown.endpoints.clone();
    let mut all = proposals(shown, &endpoints);
    show(&all)?;
    let has_unknown = all
        .iter()
        .any(|proposed| proposed.kind == EndpointKind::Unknown);
    let is_unclear = has_unknown || all.is_empty();
    if is_unclear && answers.init.asks && !shown.accounts.is_empty() {
        let message = "Watch the PBX's channels for a few minutes? Place a call over each trunk \
                     meanwhile.";
        if answers.agrees(message, false).await? {
            watch(answers, &mut endpoints).await?;
            all = proposals(shown, &endpoints);
            show(&all)?;
        }
    }
    let mut names = Vec::new();
    let mut chosen = Vec::new();
    for proposed in &all {
        let endpoint = &proposed.endpoint;
        let is_trunk = match proposed.kind {
            EndpointKind::Trunk => true,
            EndpointKind::Telephone => false,
            EndpointKind::Unknown if answers.init.asks => {
                let question = format!("Is {endpoint} an outside line?");
                answers.agrees(&question, false).await?
            }
            EndpointKind::Unknown => false,
        };
        if is_trunk {
            let name = trunk_name(endpoint, &names);
            chosen.push(format!("{name}={endpoint}"));
            names.push(name);
        }
    }
    let taken = answers.init.yes && !chosen.is_empty();
    if answers.init.asks && !taken {
        return agree(answers, chosen).await;
    }
    if chosen.is_empty() {
        return Err(no_trunk_failure(&all));
    }
    answers.init.flags.trunks.trunk = chosen;
    Ok(())
}

fn proposals(shown: &pbx::ShownPbx, endpoints: &EndpointList) -> Vec<ProposedEndpoint> {
    [shown.switch.clone(), propose(endpoints)].concat()
}

/// Shows each endpoint with its proposed kind and the reason.
fn show(all: &[ProposedEndpoint]) -> Result<()> {
    if all.is_empty() {
        return say(
            "the account has no right to list the PBX's endpoints (give it write = reporting in \
             manager.conf, or run init on the PBX's machine, where it reads the PBX's files)",
        );
    }
    let width = all
        .iter()
        .map(|proposed| proposed.endpoint.chars().count())
        .max()
        .unwrap_or_default();
    let mut telephones = 0;
    for proposed in all {
        let word = match proposed.kind {
            EndpointKind::Trunk => "trunk",
            EndpointKind::Unknown => "?",
            EndpointKind::Telephone => {
                telephones += 1;
                if telephones > TELEPHONES_MAX {
                    continue;
                }
                "telephone"
            }
        };
        let endpoint = &proposed.endpoint;
        let reason = &proposed.reason;
        say(&format!("  {word:9}  {endpoint:width$}  {reason}"))?;
    }
    match telephones.checked_sub(TELEPHONES_MAX) {
        Some(more @ 1..) => say(&format!("  telephones: {more} more")),
        Some(0) | None => Ok(()),
    }
}

/// Watches live channels until every endpoint's kind is known or the time is up. Adds new facts to
/// `endpoints`.
async fn watch(answers: &Answers, endpoints: &mut EndpointList) -> Result<()> {
    let minutes = WATCH.as_secs() / 60;
    say(&format!("watching for up to {minutes} minutes …"))?;
    let until = Instant::now() + WATCH;
    while Instant::now() < until {
        pbx::refresh_endpoints(answers, endpoints).await;
        let all = propose(endpoints);
        let kinds: Vec<EndpointKind> = all.iter().map(|proposed| proposed.kind).collect();
        if kinds.contains(&EndpointKind::Trunk) && !kinds.contains(&EndpointKind::Unknown) {
            break;
        }
        sleep(CHECK_EVERY).await;
    }
    Ok(())
}

/// Asks the user to accept the proposed trunks or to type different ones.
async fn agree(answers: &mut Answers, proposed: Vec<String>) -> Result<()> {
    loop {
        let prompt = if proposed.is_empty() {
            "Trunks as NAME=ENDPOINT, for example city=PJSIP/city, separated by spaces: ".to_owned()
        } else {
            format!("Trunks, separated by spaces [{}]: ", proposed.join(" "))
        };
        let typed = answers.line(&prompt).await?;
        let chosen: Vec<String> = if typed.is_empty() {
            proposed.clone()
        } else {
            typed.split_whitespace().map(str::to_owned).collect()
        };
        let is_empty = chosen.is_empty();
        if !is_empty && answers.take(|flags| flags.trunks.trunk = chosen)? {
            return Ok(());
        }
    }
}

/// Returns the failure if no trunk was recognized and there's nobody to ask.
fn no_trunk_failure(all: &[ProposedEndpoint]) -> Failure {
    let names: Vec<&str> = all
        .iter()
        .map(|proposed| proposed.endpoint.as_str())
        .collect();
    let has = match names.join(", ").as_str() {
        "" => "the account has no right to list endpoints".to_owned(),
        names => format!("the PBX shows {names}"),
    };
    let message = format!(
        "no trunk could be recognized: {has}\n  fix: name each outside line with --trunk \
         NAME=ENDPOINT, such as --trunk city=PJSIP/city; or, while init runs, give the account the \
         right to see what each endpoint is (write = reporting,user,system in \
         manager.conf)\nnothing was written"
    );
    Failure::new(Code::Configuration, message)
}
