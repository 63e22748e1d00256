//! `status`, `dead …`, `lead …` and `explain --call`: asks the daemon, or the spool where no
//! daemon runs, and prints what it says.
//!
//! | module | what lives there |
//! |---|---|
//! | `conversation` | who answers, one question, its answers |
//! | [`calls`] | calls, those that are kept and those that come |
//! | [`dead`] | the commands about letters; `watch`: letters as they come to be |
//! | [`lead`] | the commands about leads |

pub(crate) mod calls;
mod conversation;
pub(crate) mod dead;
pub(crate) mod lead;
mod watch;

use crate::commands::explain::kept::Kept;
use crate::config::command::{Asking, Explain};
use crate::control::protocol::ControlRequest;
use crate::failure::Failure;
use crate::stdout::print;
use callbridge_explain::text::Paint;
use callbridge_mapping::journal::Rules;
use callbridge_model::exit::Code;
use callbridge_model::status::OverallState;
use callbridge_model::status::text::Look;
use callbridge_model::{Status, Zone};
use conversation::{converse, json_line};
use serde_json::Value;
use std::io::IsTerminal;

/// `status`; with `exit_code` the verdict is how the command ends.
///
/// # Errors
/// 69 without daemon and state; with `exit_code` 1 and 2, by the verdict.
pub(crate) async fn status(at: &Asking, exit_code: bool) -> Result<(), Failure> {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut verdict = OverallState::Well;
    let show = |item: &Value, zone: &Zone| {
        let read = serde_json::from_value::<Status>(item.clone());
        let mut status = read.map_err(|error| {
            let words = format!("the daemon is of another version: {error}");
            Failure::new(Code::Unreachable, words)
        })?;
        if status.version.is_empty() {
            // A daemon that is older than verdicts.
            status = status.judged();
        }
        verdict = status.verdict;
        match at.json {
            true => json_line(item),
            false => {
                let zone = zone.clone();
                print(status.to_text(&Look { colour, zone }).as_bytes())
            }
        }
    };
    converse(at, ControlRequest::Status, Rules::default(), show).await?;
    match verdict {
        OverallState::Attention if exit_code => Err(Failure::silent(Code::Failed)),
        OverallState::Down if exit_code => Err(Failure::silent(Code::Down)),
        OverallState::Well | OverallState::Attention | OverallState::Down => Ok(()),
    }
}

/// `explain --call ID` without a file: the call as it was put down.
///
/// # Errors
/// 69 without daemon and state, 65 when no call has the id.
pub(crate) async fn kept_call(explain: &Explain, paint: Paint) -> Result<(), Failure> {
    let config = &explain.config;
    let state = config
        .state
        .clone()
        .ok_or_else(|| Failure::new(Code::Usage, "--state is missing: where is the call kept?"))?;
    let id = explain.call.clone().unwrap_or_default();
    let at = Asking {
        state,
        json: explain.json,
        zone: config.pbx_timezone.clone(),
    };
    let show = |item: &Value, zone: &Zone| {
        let kept = Kept::read(item.clone()).map_err(|error| {
            let words = format!("the daemon is of another version: {error}");
            Failure::new(Code::Unreachable, words)
        })?;
        print(kept.show(explain, zone, paint)?.as_bytes())
    };
    converse(&at, ControlRequest::Call { id }, config.rules.clone(), show).await?;
    Ok(())
}
