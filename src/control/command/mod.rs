//! `status`, `dead …`, `lead …` and `explain --call`: asks the daemon, or the spool where no
//! daemon runs, and prints what it says.
//!
//! | module | what lives there |
//! |---|---|
//! | `conversation` | who answers, one question, its answers |
//! | [`dead`] | the commands about letters; `watch`: letters as they come to be |
//! | [`lead`] | the commands about leads |

mod conversation;
pub mod dead;
pub mod lead;
mod watch;

use crate::cli::command::{Asking, Explain};
use crate::cli::dispatch::print;
use crate::cli::exit::{Code, Failure};
use crate::control::protocol::Ask;
use crate::explain::kept::Kept;
use crate::explain::text::Paint;
use crate::journal::Rules;
use crate::ops::Status;
use conversation::{converse, line};
use serde_json::Value;
use std::io::IsTerminal;

/// `status`
///
/// # Errors
/// 69 without daemon and state.
pub async fn status(at: &Asking) -> Result<(), Failure> {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let show = |item: &Value| {
        if at.json {
            return line(&item.to_string());
        }
        match serde_json::from_value::<Status>(item.clone()) {
            Ok(status) => print(status.to_text(colour).as_bytes()),
            Err(error) => Err(Failure::new(
                Code::Unreachable,
                format!("the daemon is of another version: {error}"),
            )),
        }
    };
    converse(&at.state, Ask::Status, Rules::default(), show).await?;
    Ok(())
}

/// `explain --call ID` without a file: the call as it was put down.
///
/// # Errors
/// 69 without daemon and state, 65 when no call has the id.
pub async fn kept_call(explain: &Explain, paint: Paint) -> Result<(), Failure> {
    let config = &explain.config;
    let state = config
        .state
        .as_deref()
        .ok_or_else(|| Failure::new(Code::Usage, "--state is missing: where is the call kept?"))?;
    let id = explain.call.clone().unwrap_or_default();
    let show = |item: &Value| {
        let kept = Kept::read(item.clone()).map_err(|error| {
            let words = format!("the daemon is of another version: {error}");
            Failure::new(Code::Unreachable, words)
        })?;
        print(kept.show(explain, paint)?.as_bytes())
    };
    converse(state, Ask::Call { id }, config.rules.clone(), show).await?;
    Ok(())
}
