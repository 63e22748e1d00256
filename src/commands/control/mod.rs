//! `status`, `dead …`, `lead …`, which send a request to the daemon, or to the spool if no daemon
//! is running, and print the response.
//!
//! | module | what it contains |
//! |---|---|
//! | `conversation` | sends one request and reads its replies |
//! | [`branch`] | a hub's branches |
//! | [`calls`] | stored calls, and new ones |
//! | [`dead`] | the commands for dead letters |
//! | [`page`] | a link to the page, and a line for its password file |
//! | [`lead`] | the commands for leads, and customers waiting for a callback |
//! | [`status`] | the status, once or updated in place |

pub(crate) mod branch;
pub(crate) mod calls;
pub(crate) mod conversation;
pub(crate) mod dead;
pub(crate) mod lead;
pub(crate) mod page;
pub(crate) mod status;

use crate::Result;
use crate::config::Asking;
use callbridge_admin::ControlRequest;
use conversation::{json_line, list_items};

/// Sends a command's request, and prints the response in the command's format. `csv` selects CSV
/// for commands that support it. `shutdown` ends commands that keep printing new items until
/// they're stopped.
///
/// # Errors
/// Fails with 69 if there's neither a daemon nor a state, or else with the command's exit status.
pub(crate) async fn ask(
    request: ControlRequest,
    csv: bool,
    at: &Asking,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
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
        ControlRequest::Branches => branch::list(at).await,
        ControlRequest::BranchAdd { .. } | ControlRequest::BranchRotate { .. } => {
            branch::token(request, at).await
        }
        ControlRequest::BranchRemove { .. } => branch::remove(request, at).await,
        ControlRequest::Resume => branch::resume_sending(at).await,
        ControlRequest::LeadMissing => lead::missing(csv, at).await,
        ControlRequest::LeadList => lead::list(at).await,
        ControlRequest::LeadCheck { .. } => lead::check(request, at).await,
        ControlRequest::LeadSet { lead, .. } => lead::set(lead, request, at).await,
        ControlRequest::LeadGive { .. }
        | ControlRequest::LeadTake { .. }
        | ControlRequest::LeadGiven => lead::run_assignment(request, at).await,
        ControlRequest::Missed { .. } => lead::missed(request, csv, at).await,
        ControlRequest::PageLink { .. } => page::link(request, at).await,
        // Other requests are sent by commands that do more than print the response.
        _ => list_items(at, request, None, |item, _| json_line(item)).await,
    }
}
