//! The hub's listener for calls from branches, and the hub's part of `status`.

use super::tasks::Tasks;
use crate::config::Config;
use crate::{Failure, OrFail as _};
use callbridge_hub::http;
use callbridge_hub::receiver::{Receiver, Turns};
use callbridge_hub::status::branch_status;
use callbridge_hub::tally::Tally;
use callbridge_hub::token::{BranchTable, new_id};
use callbridge_intake::run::SharedPeople;
use callbridge_model::status::HubStatus;
use callbridge_model::{Code, Now, clock};
use callbridge_sender::pacer::{lost_arrive, silence_after};
use callbridge_sender::rate::Rate;
use callbridge_spool::{Branch, Error, Handle, HubRow, Op, Silence, SilenceReason, Store, tables};
use callbridge_webhook::tls;
use futures_util::FutureExt as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// A view of the hub for `status` and metrics.
#[derive(Clone, Debug)]
pub(crate) struct HubView {
    address: SocketAddr,
    /// The hub's certificate, unless a proxy has it.
    tls: Option<tls::CurrentCertificate>,
    pub(crate) branches: Arc<BranchTable>,
    pub(crate) tally: Arc<Tally>,
}

/// The hub's part of the state.
#[derive(Debug)]
pub(crate) struct StoredHub {
    row: HubRow,
    silence: Option<Silence>,
    branches: Vec<Branch>,
}

/// Reads the hub's part of the state, or returns `None` if no hub has ever used this state.
pub(crate) fn read_hub(store: &Store) -> Result<Option<StoredHub>, Error> {
    let Some(row) = store.hub() else {
        return Ok(None);
    };
    Ok(Some(StoredHub {
        row: row.clone(),
        silence: store.silence().cloned(),
        branches: tables::branches::branches(store)?,
    }))
}

impl HubView {
    /// Returns the hub's part of `status`.
    pub(crate) fn status(&self, stored: Option<StoredHub>, now: Now) -> HubStatus {
        let mut status = HubStatus {
            address: self.address.to_string(),
            tls: self.tls.is_some(),
            certificate_expires_at: self.certificate_expires_at(),
            ..HubStatus::default()
        };
        let Some(StoredHub {
            row: hub,
            silence,
            branches,
        }) = stored
        else {
            return status;
        };
        status.incarnation = hub.position.incarnation;
        status.seq = hub.position.seq;
        status.began_at = hub.began.floor_seconds().get();
        status.lost_commits_shown_by = hub.revealed_by;
        if let Some(silence) = silence
            && silence.why == SilenceReason::LostCommits
            && clock::boot_id().as_deref() == Some(silence.boot_id.as_str())
            && silence.until > now.boot
        {
            let until = now.wall.plus(silence.until - now.boot);
            status.silent_until = Some(until.floor_seconds().get());
        }
        let at = now.wall.floor_seconds().get();
        for branch in branches {
            status.branches.push(branch_status(branch, at));
        }
        status
    }
}

impl HubView {
    fn certificate_expires_at(&self) -> Option<i64> {
        let expiry = *self.tls.as_ref()?.expiry.borrow();
        i64::try_from(expiry?.as_secs()).ok()
    }
}

/// Starts the listener for `--collect`, or returns `None` without that flag.
///
/// # Errors
/// Returns an error if the address is in use or the certificate can't be used.
pub(crate) async fn start(
    config: &Config,
    spool: &Handle,
    people: &SharedPeople,
    tasks: &mut Tasks,
) -> Result<Option<HubView>, Failure> {
    let Some(settings) = &config.collect else {
        return Ok(None);
    };
    let kept_tls = settings.tls.clone().map(|files| tls::keep("hub", files));
    let kept_tls = kept_tls.transpose();
    let tls = kept_tls.or_fail_at(Code::Configuration, "--tls-cert")?;
    let begin = Op::BeginHub {
        incarnation: new_id(),
        at: clock::now().wall,
    };
    spool.write(vec![begin]).await?;
    let branches = Arc::new(BranchTable::default());
    branches.reload(spool).await?;
    let (listener, address) = super::listen_at("--collect", settings.listen).await?;
    let (kept, keeping) = tls.unzip();
    let view = HubView {
        address,
        tls: kept.clone(),
        branches: Arc::clone(&branches),
        tally: Arc::default(),
    };
    tracing::info!(%address, tls = view.tls.is_some(), "receiving calls of branches");
    let crm = config.crm.as_ref();
    let rate = crm.map_or(Rate::default(), |crm| crm.rate);
    let by_proxy = crm.is_some_and(|crm| crm.setup.proxy.is_some());
    let receiver = Arc::new(Receiver {
        spool: spool.clone(),
        rules: config.rules.clone(),
        people: Arc::clone(people),
        branches,
        tally: Arc::clone(&view.tally),
        silence: silence_after(lost_arrive(by_proxy), rate.longest_window()),
        version: crate::VERSION,
        turns: Turns::default(),
        quota: Mutex::default(),
    });
    if let Some(keeping) = keeping {
        tasks.start_until_stop(keeping.map(Ok));
    }
    let stop = tasks.stop();
    let server = kept.map(|kept| kept.server);
    tasks.start(async move { http::serve(listener, server, receiver, stop).await });
    Ok(Some(view))
}
