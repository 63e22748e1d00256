//! Checks a hub's listener, its certificate, and its branches, or for a collector, the hub's URL,
//! TLS, the token, the PBX names, and the difference between the two clocks.

use super::place::{State, unusable_address};
use super::webhooks::{certificate, now};
use super::{CheckFinding, advice, fault, well};
use crate::config::Config;
use callbridge_crm::Address;
use callbridge_hub::forward::client::HubClient;
use callbridge_hub::forward::core::Reply;
use callbridge_hub::protocol::{BranchAnswer, ErrorAnswer};
use callbridge_model::{Code, Secret, clock};
use callbridge_spool::{Handle, tables};

/// If the hub's clock and this machine's differ by more than this, it's reported.
const CLOCK_DIFFERENCE_MS: u64 = 5_000;

/// Checks `--collect` and `--forward`. There are no findings if neither flag is given.
pub(crate) async fn check(config: &Config, state: &State) -> Vec<CheckFinding> {
    let mut found = collect(config, state).await;
    found.extend(forward(config).await);
    found
}

async fn collect(config: &Config, state: &State) -> Vec<CheckFinding> {
    let Some(collect) = &config.collect else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let how = if collect.tls.is_some() {
        "HTTPS"
    } else {
        "plain HTTP for a proxy on this machine"
    };
    match unusable_address("collect", collect.listen, state.is_daemon()).await {
        Some(fault) => found.push(fault),
        None => found.push(well("collect", format!("{}, {how}", collect.listen))),
    }
    if let Some(files) = &collect.tls {
        found.push(certificate("tls-cert", files, now(), |_, _, _| None));
    }
    match state {
        State::Ours(spool, ..) => found.push(stored_branches(spool).await),
        State::Daemon(status) => {
            let running = status.hub.iter().map(|hub| branches(hub.branches.len()));
            found.extend(running);
        }
        State::Standby { .. } | State::Unusable => {}
    }
    found
}

async fn stored_branches(spool: &Handle) -> CheckFinding {
    let read = spool.read(|store| tables::branches::branches(store)).await;
    match read {
        Ok(stored) => branches(stored.len()),
        Err(error) => fault(Code::Unreachable, "branches", error, "repair the state"),
    }
}

fn branches(count: usize) -> CheckFinding {
    if count == 0 {
        return advice(
            "branches",
            "there is no branch, so every request is refused",
            "add one: callbridge branch add NAME --pbx PBX",
        );
    }
    well("branches", format!("{count} branches"))
}

/// Checks a collector's connection to its hubs. There are no findings without `--forward`.
pub(crate) async fn forward(config: &Config) -> Vec<CheckFinding> {
    let Some(forward) = &config.forward else {
        return Vec::new();
    };
    let Some(token) = &forward.token else {
        return Vec::new();
    };
    let token = match token.read() {
        Ok(token) => token,
        Err(error) => {
            let fix = "put the token that `callbridge branch add` printed at the hub into the file";
            return vec![fault(Code::NoPermission, "hub token", error, fix)];
        }
    };
    let mut found = Vec::new();
    for address in &forward.hubs {
        found.extend(check_hub(config, address, &token).await);
    }
    found
}

/// Asks a hub which branch has the token, and checks the PBX names and the clock in its response.
async fn check_hub(config: &Config, address: &Address, token: &Secret) -> Vec<CheckFinding> {
    let name = format!("hub {}", address.as_str());
    let ca_file = config
        .forward
        .as_ref()
        .and_then(|forward| forward.ca_file.clone());
    let client = HubClient::new(address.clone(), ca_file);
    let asked = clock::now();
    let (status, body) = match client.branch(token).await {
        Reply::Answer { status, body, .. } => (status, body),
        Reply::Lost(message) | Reply::TimedOut(message) => {
            let fix = "check address, DNS, firewall, and certificate of the hub";
            return vec![fault(Code::Unreachable, name, message, fix)];
        }
        Reply::NoToken(message) => {
            let fix = "put the token that `callbridge branch add` printed into the file of \
                       --forward-token-file";
            return vec![fault(Code::NoPermission, name, message, fix)];
        }
    };
    let answered = clock::now();
    let error = serde_json::from_slice::<ErrorAnswer>(&body)
        .map_or_else(|_| String::new(), |answer| format!(": {}", answer.error));
    match (status, serde_json::from_slice::<BranchAnswer>(&body)) {
        (200, Ok(branch)) => {
            let message = format!("accepts calls of branch {}", branch.branch);
            let half = (answered.boot - asked.boot) / 2;
            let middle = asked.wall.plus(half).micros() / 1000;
            let mut found = vec![well(&name, message)];
            found.extend(pbx_names(config, &name, &branch));
            found.extend(clocks(&name, branch.time_ms - middle));
            found
        }
        (401 | 403, _) => {
            let message = format!("refuses the token ({status}{error})");
            let fix = "put the token that `callbridge branch add` or `branch rotate` printed at \
                       the hub into the file of --forward-token-file";
            vec![fault(Code::NoPermission, name, message, fix)]
        }
        (429 | 500.., _) => {
            let message = format!("answered {status}{error}");
            vec![fault(Code::Unreachable, name, message, "try again later")]
        }
        _ => {
            let message = format!("answered {status}{error}, so it is not a hub");
            let fix = "check the address in --forward, and that the hub runs with --collect";
            vec![fault(Code::Configuration, name, message, fix)]
        }
    }
}

/// Reports this collector's PBXs that the branch doesn't have.
fn pbx_names(config: &Config, name: &str, branch: &BranchAnswer) -> Option<CheckFinding> {
    let mut missing = Vec::new();
    for source in &config.sources {
        if let Some(pbx) = &source.pbx
            && !branch.pbxs.contains(pbx)
            && !missing.contains(pbx)
        {
            missing.push(pbx.clone());
        }
    }
    if missing.is_empty() {
        return None;
    }
    let message = format!(
        "branch {} has the PBXs {}, but not {}: their calls would be refused",
        branch.branch,
        branch.pbxs.join(", "),
        missing.join(", ")
    );
    let fix = format!(
        "run at the hub: callbridge branch add {} --pbx {}",
        branch.branch,
        missing.join(" --pbx ")
    );
    Some(fault(
        Code::Configuration,
        format!("{name} PBX"),
        message,
        fix,
    ))
}

fn clocks(name: &str, ahead_ms: i64) -> Option<CheckFinding> {
    if ahead_ms.unsigned_abs() <= CLOCK_DIFFERENCE_MS {
        return None;
    }
    let seconds = ahead_ms.unsigned_abs().div_ceil(1_000);
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let message = format!("the hub's clock is {seconds} s {side} this machine's");
    let fix = "set both clocks by NTP: calls that begin in the future are dead letters";
    Some(advice(format!("{name} clock"), message, fix))
}
