//! Whether this machine could send: whoever holds the lease and cannot gives it to one that could.

use callbridge_crm::{Client, Setup};
use callbridge_model::status::Lease;
use callbridge_sender::SenderStatus;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Between two looks at the way to the CRM, on a machine that does not send.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// And at how the sender does, on the one that does.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Pauses in which nothing can be sent, whoever is to blame. The others are the calls' or a wish.
const UNABLE: [&str; 10] = [
    "outage",
    "token_missing",
    "token_refused",
    "reconnect",
    "client_refused",
    "no_grant",
    "wrong_company",
    "wrong_address",
    "disk",
    "clock",
];

/// Keeps `able` true to what is known: of the holder by what it sends, of another by a question
/// that counts against nobody.
pub(crate) async fn keep(
    setup: Setup,
    shown: watch::Receiver<SenderStatus>,
    mut lease: watch::Receiver<Lease>,
    able: watch::Sender<bool>,
) -> anyhow::Result<()> {
    let mut held = false;
    loop {
        let holds = lease.borrow_and_update().is_held();
        if holds && !held {
            // Until its first request has failed or passed its sender says nothing.
            tokio::time::sleep(LOOK_EVERY).await;
        }
        held = holds;
        let pause = shown.borrow().pause.as_ref().map(|it| it.reason.clone());
        let pause = pause.filter(|reason| UNABLE.contains(&reason.as_str()));
        let (is_able, again) = match (holds, pause.as_deref()) {
            (true, pause) => (pause.is_none(), LOOK_EVERY),
            // An outage that it met while it held may be over.
            (false, None | Some("outage")) => {
                let reached = Client::reach(&setup).await;
                if let Err(why) = &reached {
                    tracing::debug!(reason = %why, "standing by, and the CRM is not reached");
                }
                (reached.is_ok(), ASK_EVERY)
            }
            (false, Some(_)) => (false, LOOK_EVERY),
        };
        able.send_replace(is_able);
        let turned = lease.wait_for(|it| it.is_held() != holds);
        let _ = timeout(again, turned).await;
    }
}
