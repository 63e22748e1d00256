//! The core under its lock, with the clock and the state file.

use super::core::Sandbox;
use super::envelope::{Refusal, Request, Response};
use super::state_file::StateFile;
use callbridge_call::EventTime;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::error;

/// Tells the moment; it must not go back.
pub type SandboxClock = Arc<dyn Fn() -> EventTime + Send + Sync>;

/// A clock that starts at the wall clock's moment and then runs with the time since boot, so that
/// a step of the wall clock neither opens nor shuts a window.
pub fn steady_clock() -> SandboxClock {
    let start = callbridge_model::clock::now();
    Arc::new(move || {
        start.wall.plus(
            callbridge_model::clock::now()
                .boot
                .saturating_sub(start.boot),
        )
    })
}

/// The core with its state file.
#[derive(Debug)]
struct PersistedCore {
    core: Sandbox,
    state: Option<StateFile>,
}

impl PersistedCore {
    /// Does something with the core and keeps what it changed; false when it could not be kept.
    fn act<R>(&mut self, act: impl FnOnce(&mut Sandbox) -> R) -> (R, bool) {
        let result = act(&mut self.core);
        let kept = match &mut self.state {
            Some(state) => state.keep(&mut self.core),
            None => Ok(()),
        };
        if let Err(error) = &kept {
            error!(%error, "the sandbox cannot keep its state");
        }
        (result, kept.is_ok())
    }
}

/// A sandbox that others in the process may look into.
#[derive(Clone)]
pub struct SharedSandbox {
    held: Arc<Mutex<PersistedCore>>,
    clock: SandboxClock,
}

impl SharedSandbox {
    /// A core, with its state file if it has one.
    pub(super) fn new(core: Sandbox, state: Option<StateFile>, clock: SandboxClock) -> Self {
        Self {
            held: Arc::new(Mutex::new(PersistedCore { core, state })),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PersistedCore> {
        // A panic under the lock leaves the core as it was after its last change.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the core at the clock's moment, after what is due by then.
    pub fn admin<R>(&self, act: impl FnOnce(&mut Sandbox, EventTime) -> R) -> R {
        let mut held = self.lock();
        let now = held.core.moment((self.clock)());
        let (result, _) = held.act(|core| {
            core.tick(now);
            act(core, now)
        });
        result
    }

    /// The machine's moment, whatever the core's clock was set to.
    pub(super) fn machine_time(&self) -> EventTime {
        (self.clock)()
    }

    pub(super) fn handle(&self, request: &Request) -> Response {
        let mut held = self.lock();
        // Under the lock, so that moments reach the core in order.
        let now = held.core.moment((self.clock)());
        let (response, kept) = held.act(|core| core.handle(now, request));
        if kept {
            response
        } else {
            Refusal::Status(500).respond()
        }
    }
}
