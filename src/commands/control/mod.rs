//! `status`, `dead …`, `lead …` and `explain --call`: asks the daemon, or the spool where no
//! daemon runs, and prints what it says.
//!
//! | module | what lives there |
//! |---|---|
//! | `conversation` | who answers, one question, its answers |
//! | [`calls`] | calls, those that are kept and those that come |
//! | [`dead`] | the commands about letters |
//! | [`fleet`] | PBXs handed to another user of the broker |
//! | [`page`] | a link to the page, a line of its password file |
//! | [`lead`] | the commands about leads |
//! | [`status`] | how all stands; `screen`: a terminal drawn anew in place |
//! | [`missed`] | customers who wait for a call back |

pub(crate) mod calls;
pub(crate) mod conversation;
pub(crate) mod dead;
pub(crate) mod fleet;
pub(crate) mod lead;
pub(crate) mod missed;
pub(crate) mod page;
mod screen;
pub(crate) mod status;

use crate::commands::explain::kept;
use crate::config::command::{Asking, Explain};
use crate::failure::Failure;
use crate::stdout::print;
use callbridge_admin::explain::text::Paint;
use callbridge_admin::protocol::ControlRequest;
use callbridge_model::Zone;
use callbridge_model::exit::Code;
use conversation::{converse, typed};
use serde_json::Value;

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
        print(kept::show(&typed(item)?, explain, zone, paint)?.as_bytes())
    };
    converse(&at, ControlRequest::Call { id }, config.rules.clone(), show).await?;
    Ok(())
}
