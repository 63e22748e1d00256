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
use crate::config::{Asking, Explain};
use crate::{Failure, print};
use callbridge_admin::ControlRequest;
use callbridge_admin::explain::story::Paint;
use callbridge_model::{Code, Zone};
use conversation::{converse, json_line, list_items, typed};
use serde_json::Value;

/// Asks, and prints the answers as the command of this request does. `shutdown` ends what follows.
///
/// # Errors
/// 69 without daemon and state; else each command's own.
pub(crate) async fn ask(
    request: ControlRequest,
    csv: bool,
    at: &Asking,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Failure> {
    match request {
        ControlRequest::Calls { which, follow, .. } => {
            calls::run(which, follow, at, shutdown).await
        }
        ControlRequest::Letters { whole: false, .. } => dead::list(request, at).await,
        ControlRequest::Letters { .. } if csv => dead::export(request, at).await,
        ControlRequest::Letters { .. } => dead::show(request, at).await,
        ControlRequest::Watch => dead::watch(at, shutdown).await,
        ControlRequest::Retry { .. } | ControlRequest::Discard { .. } => {
            dead::change(request, at).await
        }
        ControlRequest::LeadMissing => lead::missing(csv, at).await,
        ControlRequest::LeadList => lead::list(at).await,
        ControlRequest::LeadCheck { .. } => lead::check(request, at).await,
        ControlRequest::LeadSet { lead, .. } => lead::set(lead, request, at).await,
        ControlRequest::LeadGive { .. }
        | ControlRequest::LeadTake { .. }
        | ControlRequest::LeadGiven => lead::given(request, at).await,
        ControlRequest::Missed { .. } => missed::run(request, csv, at).await,
        ControlRequest::PageLink { .. } => page::link(request, at).await,
        ControlRequest::FleetOwner { .. } => fleet::owner(request, at).await,
        ControlRequest::ForwardAgain { .. } => fleet::forward_again(request, at).await,
        // Asked by commands that do more than print the answer.
        _ => list_items(at, request, "", |item, _| json_line(item)).await,
    }
}

/// `explain --call ID` without a file: the call as it was put down.
///
/// # Errors
/// 69 without daemon and state, 65 when no call has the id.
pub(crate) async fn kept_call(explain: &Explain, paint: Paint) -> Result<(), Failure> {
    let config = &explain.config;
    if config.state.is_none() {
        let words = "--state is missing: where is the call kept?";
        return Err(Failure::new(Code::Usage, words));
    }
    let id = explain.call.clone().unwrap_or_default();
    let at = Asking::of(config, explain.json);
    let show = |item: &Value, zone: &Zone| {
        print(kept::show(&typed(item)?, explain, zone, paint)?.as_bytes())
    };
    converse(&at, ControlRequest::Call { id }, show).await?;
    Ok(())
}
