//! `token/info` asked once, where no daemon runs: through the core, so that its slot is counted
//! and kept like all others.

use super::core::Core;
use super::memory::Memory;
use super::plan::{About, Decision, Known, Launch, Settings};
use super::rate::Rate;
use super::token::print;
use crate::clock;
use crate::crm::{Answer, Client, Setup};
use crate::secret::Secret;
use crate::spool::{Binding, Error, Handle, Head, Op};
use std::time::Duration;

/// Why it was not asked.
#[derive(Debug, thiserror::Error)]
pub enum Unasked {
    /// The spool's fault.
    #[error(transparent)]
    Spool(#[from] Error),
    /// The state is a copy: what was asked since is not in it.
    #[error("the state is a copy, and what was asked since is not in it")]
    Restored,
    /// All requests of the running window are used; ask again after so long.
    #[error("all requests of the running window are used; ask again in {} s", .0.as_secs() + 1)]
    Full(Duration),
    /// For no reason that is known here.
    #[error("not asked")]
    Not,
}

/// What is stored of it beside its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Slots,
    /// Whose token it is, where the state is not bound yet.
    Binding,
}

/// Asks, and says what the state was bound to before. Without a rate in the windows of the last
/// run: its slots know nothing of longer ones.
///
/// # Errors
/// Why it was not asked.
pub async fn token_info(
    setup: Setup,
    rate: Option<Rate>,
    spool: &Handle,
    token: &Secret,
    keep: Keep,
) -> Result<(Answer, Binding), Unasked> {
    let known = spool
        .read(|store| Known::read(store, clock::boot_id()))
        .await?;
    if known.restored {
        return Err(Unasked::Restored);
    }
    let binding = known.binding.clone();
    let window = Memory::read(known.memory.as_deref()).window;
    let last = window.and_then(|it| format!("60/{}s", it.as_secs()).parse().ok());
    let settings = Settings {
        rate: rate.or(last).unwrap_or_default(),
        ..Settings::default()
    };
    let (mut core, mut ops) = Core::start(settings, known, clock::now());
    core.token(Some(print(token)));
    let plan = match core.next(clock::now(), &Head::default()) {
        Decision::Send(plan) => plan,
        Decision::WaitUntil(at) => {
            return Err(Unasked::Full(at.saturating_sub(clock::now().boot)));
        }
        Decision::Idle | Decision::Revive(_) => return Err(Unasked::Not),
    };
    let slot = plan.slot;
    let launch = core.launch(clock::now(), plan, About::default());
    let Launch::Go {
        request,
        ops: launched,
        ..
    } = launch
    else {
        return Err(Unasked::Not);
    };
    ops.extend(launched);
    spool.write(kept(ops, keep)).await?;
    let heard = Client::new(setup).send(&request, token).await;
    let answer = heard.answer.clone();
    if let Some(outcome) = core.answered(clock::now(), slot, heard) {
        spool.write(kept(outcome.ops, keep)).await?;
    }
    Ok((answer, binding))
}

/// No call is moved, and nothing is remembered: of what the core wants stored, the budget, and the
/// binding where it is asked for.
fn kept(ops: Vec<Op>, keep: Keep) -> Vec<Op> {
    let binds = keep == Keep::Binding;
    let stays = |op: &Op| {
        matches!(op, Op::Slot(_) | Op::SlotGone { .. })
            || (binds && matches!(op, Op::BindCompany { .. }))
    };
    ops.into_iter().filter(stays).collect()
}
