//! `status`, `dead …`, `lead …`: asks the daemon, or the spool where no
//! daemon runs, and prints what it says.
//!
//! | module | what lives there |
//! |---|---|
//! | `conversation` | who answers, one question, its answers |
//! | [`branch`] | the branches of a hub |
//! | [`calls`] | calls, those that are kept and those that come |
//! | [`dead`] | the commands about letters |
//! | [`page`] | a link to the page, a line of its password file |
//! | [`lead`] | the commands about leads, and customers who wait for a call back |
//! | [`status`] | how all stands, once or drawn anew in place |

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

/// Asks, and prints the answers as the command of this request does. `shutdown` ends what follows.
///
/// # Errors
/// 69 without daemon and state; else each command's own.
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
        ControlRequest::LeadMissing => lead::missing(csv, at).await,
        ControlRequest::LeadList => lead::list(at).await,
        ControlRequest::LeadCheck { .. } => lead::check(request, at).await,
        ControlRequest::LeadSet { lead, .. } => lead::set(lead, request, at).await,
        ControlRequest::LeadGive { .. }
        | ControlRequest::LeadTake { .. }
        | ControlRequest::LeadGiven => lead::given(request, at).await,
        ControlRequest::Missed { .. } => lead::missed(request, csv, at).await,
        ControlRequest::PageLink { .. } => page::link(request, at).await,
        // Asked by commands that do more than print the answer.
        _ => list_items(at, request, None, |item, _| json_line(item)).await,
    }
}
