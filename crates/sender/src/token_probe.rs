//! Queries `token/info` once, for commands without a daemon. The request goes through the core, so
//! its slot is counted and stored like any other.

use crate::budget::pacer::SEND_WITHIN;
use crate::core::Core;
use crate::memory::Memory;
use crate::plan::{Decision, Known, RequestInputs, Settings};
use crate::rate::Rate;
use crate::token_update::print;
use callbridge_crm::{ApiResult, Client, Setup};
use callbridge_model::{Secret, clock};
use callbridge_spool::{Binding, Error, Handle, Op, WorkQueue};
use std::time::Duration;

/// Maximum time that a request waits for a slot.
const SOON: Duration = Duration::from_secs(3);

/// Reasons why no request was made.
#[derive(Debug, thiserror::Error)]
pub enum Unasked {
    #[error(transparent)]
    Spool(#[from] Error),
    /// The state is a copy, or another process used it last, so its slots can't be relied on.
    #[error("the CRM may still count requests that this state does not contain")]
    Silent,
    /// The current window's requests are used up. Ask again after this time.
    #[error("all requests of the current window of the rate limit are used; try again in {} \
             s", .0.as_secs() + 1)]
    Full(Duration),
    /// The core didn't choose a request, for a reason unknown here.
    #[error("not asked")]
    Not,
}

/// Requests the token's record. Returns the response, along with the company and application that
/// the state was bound to before. Without a rate, the last run's window is used, because the stored
/// slots don't cover a longer one.
///
/// # Errors
/// Returns the reason why no request was made.
pub async fn token_info(
    setup: Setup,
    rate: Option<Rate>,
    spool: &Handle,
    token: &Secret,
) -> Result<(ApiResult, Binding), Unasked> {
    let mut probe = TokenProbe::open(setup, rate, spool, token).await?;
    let answer = probe.ask(&WorkQueue::default()).await?;
    Ok((answer, probe.binding))
}

/// Makes one request after another.
pub struct TokenProbe<'a> {
    core: Core,
    /// Operations from startup, committed with the first request.
    ops: Vec<Op>,
    client: Client,
    spool: &'a Handle,
    token: &'a Secret,
    /// The company and application that the state was bound to before.
    pub binding: Binding,
}

impl<'a> TokenProbe<'a> {
    /// Reads the spool and prepares the first request, without sending anything yet.
    ///
    /// # Errors
    /// Returns the reason why no request can be made.
    pub async fn open(
        setup: Setup,
        rate: Option<Rate>,
        spool: &'a Handle,
        token: &'a Secret,
    ) -> Result<Self, Unasked> {
        let known = spool
            .read(|store| Known::read(store, clock::boot_id()))
            .await?;
        let boot_id = known.boot_id.as_ref();
        if (known.silence.as_ref()).is_some_and(|silence| Some(&silence.boot_id) != boot_id) {
            return Err(Unasked::Silent);
        }
        let binding = known.binding.clone();
        let window = Memory::read(known.memory.as_deref()).window;
        let last = window.and_then(|window| format!("60/{}s", window.as_secs()).parse().ok());
        let settings = Settings {
            rate: rate.or(last).unwrap_or_default(),
            by_proxy: setup.proxy.is_some(),
            ..Settings::default()
        };
        let (mut core, ops) = Core::start(settings, known, clock::now());
        crate::log::log_doubts(&core.doubts);
        core.token(clock::now(), Some(print(token)));
        Ok(Self {
            core,
            ops,
            client: Client::new(setup),
            spool,
            token,
            binding,
        })
    }

    /// Makes the request that's due for this head of the spool, waiting up to 3 s for a slot. The
    /// first one is `token/info`.
    ///
    /// # Errors
    /// Returns the reason why no request was made.
    pub async fn ask(&mut self, head: &WorkQueue) -> Result<ApiResult, Unasked> {
        let mut decision = self.core.next(clock::now(), head);
        if let Decision::WaitUntil(at) = decision {
            let wait = at.saturating_sub(clock::now().boot);
            if wait > SOON {
                return Err(Unasked::Full(wait));
            }
            tokio::time::sleep(wait).await;
            decision = self.core.next(clock::now(), head);
        }
        let plan = match decision {
            Decision::Send(plan) => plan,
            Decision::WaitUntil(at) => {
                return Err(Unasked::Full(at.saturating_sub(clock::now().boot)));
            }
            Decision::Idle | Decision::Settle(_) | Decision::Commit(_) => return Err(Unasked::Not),
        };
        let slot = plan.slot;
        let now = clock::now();
        let launch = self.core.launch(now, plan, RequestInputs::default());
        let (request, _) = launch.request.ok_or(Unasked::Not)?;
        let mut ops = std::mem::take(&mut self.ops);
        ops.extend(launch.ops);
        self.keep(ops).await?;
        let send_by = now.boot + SEND_WITHIN;
        let response = self.client.send(&request, self.token, send_by).await;
        let answer = response.answer.clone();
        if let Some(outcome) = self.core.judge_answer(clock::now(), slot, response) {
            self.keep(outcome.ops).await?;
        }
        Ok(answer)
    }

    /// Stores only the budget's slots, leaving calls, memory, and binding alone.
    async fn keep(&self, mut ops: Vec<Op>) -> Result<(), Error> {
        ops.retain(|op| matches!(op, Op::Slot(_) | Op::SlotGone(..)));
        self.spool.write(ops).await?;
        Ok(())
    }
}
