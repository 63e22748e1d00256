//! What the loop shows: to whoever looks, and each change in the log once.

use super::log::troubles;
use super::status::SenderStatus;
use super::status::TokenPlace;
use callbridge_model::Now;
use callbridge_model::status::{Lease, Pause, SenderTrouble};
use tokio::sync::watch;
use tracing::{info, warn};

/// Publishes the status, and remembers what the log had last.
pub(super) struct SenderView {
    status: watch::Sender<SenderStatus>,
    /// State of the lease to send, where several could; `None` where this process alone does.
    lease: Option<watch::Receiver<Lease>>,
    /// Another may have sent since it was last our turn.
    may_have_sent: bool,
    /// The pause that the log told of last.
    logged_pause: Option<String>,
    /// And what of the CRM failed beside it.
    logged_troubles: Vec<SenderTrouble>,
    warned_days: Option<u32>,
}

impl SenderView {
    /// Starts with nothing logged yet.
    pub(super) fn new(
        status: watch::Sender<SenderStatus>,
        lease: Option<watch::Receiver<Lease>>,
    ) -> Self {
        Self {
            status,
            may_have_sent: lease.is_some(),
            lease,
            logged_pause: None,
            logged_troubles: Vec::new(),
            warned_days: None,
        }
    }

    /// Waits until the lease may have changed. Never ends where nobody else could send.
    pub(super) async fn turn_changed(&mut self) {
        let changed = match &mut self.lease {
            Some(lease) => lease.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending().await
        }
    }

    /// Notes that another holds the lease, and may send now.
    pub(super) fn anothers(&mut self) {
        self.may_have_sent = true;
    }

    /// Returns `true` when another may have sent before our turn; once for each turn.
    pub(super) fn took_over(&mut self) -> bool {
        std::mem::take(&mut self.may_have_sent)
    }

    /// Reason given to commands while another holds the lease, as `standby`; no pause of the
    /// sender.
    pub(super) fn anothers_turn(&self, held: bool) -> Option<Pause> {
        let lease = self.lease.as_ref().filter(|_| !held)?;
        let name = lease.borrow().name.clone();
        Some(Pause {
            reason: "standby".to_owned(),
            cure: format!(
                "this process does not hold the lease {name}: ask the one that does, or wait \
                 until it has come over"
            ),
        })
    }

    /// Shows it; `asking` while it is not known whether anything may go out, `place` is where
    /// a new token belongs, unless it is kept fresh by itself.
    pub(super) fn publish(
        &mut self,
        now: Now,
        mut status: SenderStatus,
        asking: bool,
        place: Option<&TokenPlace>,
    ) {
        status.lease = self.lease.as_ref().map(|lease| lease.borrow().clone());
        if status.expires_in_days != self.warned_days {
            self.warned_days = status.expires_in_days;
            // a token that is kept fresh by itself always ends soon
            if let (Some(days), Some(place)) = (self.warned_days, place) {
                let cure = format!("issue a new token in the CRM and put it into {place}");
                warn!(days, cure, "the token ends in so many days");
            }
        }
        self.log_pause(status.pause.as_ref(), asking);
        troubles(&self.logged_troubles, &status.troubles);
        self.logged_troubles.clone_from(&status.troubles);
        self.status.send_if_modified(|shown| {
            if status.token_shared && !shown.token_shared {
                let limit = status.budget(now.boot).limit;
                warn!(
                    reason = "token_shared",
                    limit,
                    "a 429 although fewer requests than allowed were sent: the rate is \
                            halved"
                );
            }
            let modified = *shown != status;
            *shown = status;
            modified
        });
    }

    /// A pause that begins, or is over: another token that is refused as well ends none.
    fn log_pause(&mut self, pause: Option<&Pause>, asking: bool) {
        let reason = pause.map(|it| it.reason.clone());
        if reason == self.logged_pause || reason.is_none() && asking {
            return;
        }
        match pause {
            Some(Pause { reason, cure }) => warn!(%reason, %cure, "paused"),
            None => info!("no longer paused"),
        }
        self.logged_pause = reason;
    }
}
