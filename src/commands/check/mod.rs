//! `check`, which tests everything that `run` would use, and reports each problem along with its
//! fix.
//!
//! | module | what it contains |
//! |---|---|
//! | [`place`] | state directory, clock, and listener; a temporary state for the check |
//! | [`database`] | a state's PostgreSQL server |
//! | [`inward`] | sources, files, FreeSWITCH, trunks, and the dead letter queue |
//! | [`lists`] | leads and employees |
//! | [`account`] | a manager account's permissions and events; [`manager_conf`]: its file |
//! | [`release`] | the PBX's release, the settings it needs, and what each source reports |
//! | [`endpoints`] | compares the PBX's endpoints with the trunks |
//! | [`service`] | the CRM's URL, token, grant, company, and fields; [`token`]: where it is |
//! | [`hub`] | a hub's listener and branches, and a collector's connection to its hub |
//! | [`lookup`] | the lookup for dialplans, with a test and any missing data |
//! | [`notify`] | whether the notification command exists |
//! | [`webhooks`] | the webhook receiver and the page, with address, certificate, and secrets |

pub(crate) mod account;
pub(crate) mod database;
pub(crate) mod endpoints;
pub(crate) mod hub;
pub(crate) mod inward;
pub(crate) mod lists;
pub(crate) mod lookup;
pub(crate) mod manager_conf;
pub(crate) mod notify;
pub(crate) mod place;
pub(crate) mod release;
pub(crate) mod service;
pub(crate) mod token;
pub(crate) mod webhooks;

use crate::config as cli;
use crate::config::{Check, Config};
use crate::terminal::has_color;
use crate::{Failure, Result, print};
use callbridge_call::shell::quoted_path;
use callbridge_mapping::People;
use callbridge_model::{Code, plain_file, safe, safe_json};
use endpoints::PbxEndpoints;
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// The part of a finding that doesn't fit into a sentence, which is a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// Fields in addition to those that every finding has.
    pub json: Map<String, Value>,
    /// The table as lines of text.
    pub text: String,
}

/// The result of a single check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckFinding {
    /// What the check is about, such as `source ami://…` or `token`.
    pub name: String,
    pub message: String,
    /// How to fix it, or empty if there's nothing to do.
    pub fix: String,
    /// The finding's exit status, or `None` if it isn't an error.
    pub fault: Option<Code>,
    pub extra: Option<Box<Extra>>,
}

/// Returns a finding about something that's fine.
pub(crate) fn well(name: impl Display, message: impl Display) -> CheckFinding {
    advice(name, message, "")
}

/// Returns a finding about something that works but could be improved.
pub(crate) fn advice(name: impl Display, message: impl Display, fix: impl Display) -> CheckFinding {
    CheckFinding {
        name: name.to_string(),
        message: message.to_string(),
        fix: fix.to_string(),
        fault: None,
        extra: None,
    }
}

/// Returns a finding about something that's wrong, which makes `check` exit with `code` or a worse
/// one.
pub(crate) fn fault(
    code: Code,
    name: impl Display,
    message: impl Display,
    fix: impl Display,
) -> CheckFinding {
    CheckFinding {
        fault: Some(code),
        ..advice(name, message, fix)
    }
}

impl CheckFinding {
    /// Formats the finding as `{name, ok, message, fix}` along with the table's fields.
    pub(crate) fn to_json(&self) -> String {
        let mut json = json!({
            "name": self.name, "ok": self.fault.is_none(), "message": self.message, "fix": self.fix,
        });
        if let (Some(extra), Some(object)) = (&self.extra, json.as_object_mut()) {
            object.extend(extra.json.clone());
        }
        safe_json(&json.to_string())
    }

    /// Formats the finding as one line, followed by a table if there is one, and a line with the
    /// fix.
    pub(crate) fn to_text(&self, color: bool) -> String {
        let mark = match (self.fault.is_none(), color) {
            (true, true) => "\x1b[32mok    \x1b[0m",
            (true, false) => "ok    ",
            (false, true) => "\x1b[31mfailed\x1b[0m",
            (false, false) => "failed",
        };
        let mut text = format!("{mark} {}: {}", safe(&self.name), safe(&self.message));
        if let Some(extra) = &self.extra {
            for line in extra.text.lines() {
                text.push_str(&format!("\n      {}", safe(line)));
            }
        }
        if !self.fix.is_empty() {
            text.push_str(&format!("\n      fix: {}", safe(&self.fix)));
        }
        text
    }
}

/// Prints findings as they arrive, and keeps them.
struct Findings {
    json: bool,
    color: bool,
    all: Vec<CheckFinding>,
}

impl Findings {
    fn show(&mut self, found: impl IntoIterator<Item = CheckFinding>) -> Result<()> {
        for finding in found {
            let line = if self.json {
                finding.to_json()
            } else {
                finding.to_text(self.color)
            };
            print(format!("{line}\n"))?;
            self.all.push(finding);
        }
        Ok(())
    }

    /// Fails with the worst exit status and the number of failed checks, if there are any.
    fn verdict(&self) -> Result<()> {
        let Some(code) = worst(&self.all) else {
            return Ok(());
        };
        let failed = self.all.iter().filter(|finding| finding.fault.is_some());
        let message = format!("{} of {} checks failed", failed.count(), self.all.len());
        Err(Failure::new(code, message))
    }
}

/// Returns the worst exit status. Problems with the state and the configuration come before those
/// with the token and the grant, then the disk, and then errors that may go away on their own.
fn worst(findings: &[CheckFinding]) -> Option<Code> {
    findings.iter().filter_map(|finding| finding.fault).max()
}

/// Performs all checks, printing one line per finding.
///
/// # Errors
/// Fails with the exit status of the worst finding.
pub(crate) async fn run(check: &Check) -> Result<()> {
    let mut findings = Findings {
        json: check.json,
        color: has_color(),
        all: Vec::new(),
    };
    let config = &check.config;
    let now = callbridge_model::clock::now().wall;
    findings.show([place::clock(now, crate::build_time::built_at())])?;
    let (found, state) = place::state(config).await;
    findings.show(found)?;
    if let Some(addr) = config.listen {
        findings.show([place::listener(addr, state.is_daemon()).await])?;
    }
    let doubts = cli::doubts::find(config).into_iter();
    findings.show(doubts.map(|doubt| advice(doubt.what, doubt.kind, doubt.message)))?;
    findings.show(open_secrets(config))?;
    findings.show(notify::check(config).await)?;
    let (found, people) = lists::check(config);
    findings.show(inward::trunks(config, &people))?;
    findings.show(found)?;
    sources(config, &people, &mut findings).await?;
    findings.show(inward::dead_letters(config).await)?;
    findings.show(webhooks::check(config, state.is_daemon()).await)?;
    findings.show(webhooks::page(config, state.is_daemon()).await)?;
    findings.show(lookup::check(config, &people, state.is_daemon()).await)?;
    findings.show(hub::check(config, &state).await)?;
    findings.show(service::check(config, state).await)?;
    findings.verdict()
}

/// Checks each source, its account's permissions, and the endpoints reported by the PBX.
async fn sources(config: &Config, people: &People, findings: &mut Findings) -> Result<()> {
    let mut shown = Vec::new();
    let mut has_unasked = false;
    for flag in &config.sources {
        let (mut found, account) = inward::source(flag).await;
        let can_read = found.fault.is_none();
        if can_read {
            found = inward::file(config, flag).unwrap_or(found);
        }
        findings.show([found])?;
        findings.show(inward::space(flag))?;
        if can_read {
            findings.show(inward::switch(config, flag).await)?;
        }
        match account {
            Some(account) => {
                findings.show(account::judge(config, flag, &account))?;
                shown.push(PbxEndpoints { flag, account });
            }
            None if can_read => findings.show(account::unknown_rights(flag))?,
            None => has_unasked = true,
        }
    }
    if has_unasked && shown.is_empty() {
        return Ok(());
    }
    findings.show(endpoints::judge(config, &shown, people))
}

/// Reports secret files that are readable by every user on this machine.
fn open_secrets(config: &Config) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    for file in config.secret_files() {
        if plain_file::is_open_to_all(&file) {
            let message = format!(
                "{} can be read by every user of this machine",
                file.display()
            );
            let fix = format!("chmod o-r {}", quoted_path(&file));
            findings.push(advice("secret", message, fix));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_that_of_the_worst_problem() {
        let clock = well("clock", "right");
        let remote = fault(Code::Unreachable, "source", "refused", "start it");
        let token = fault(Code::NoPermission, "token", "refused", "a new one");
        assert_eq!(worst(std::slice::from_ref(&clock)), None);
        assert_eq!(
            worst(&[clock, token.clone(), remote]),
            Some(Code::NoPermission)
        );
        assert_eq!(
            token.to_json(),
            r#"{"fix":"a new one","message":"refused","name":"token","ok":false}"#
        );
        assert_eq!(
            token.to_text(false),
            "failed token: refused\n      fix: a new one"
        );
    }
}
