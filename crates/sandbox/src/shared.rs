//! The core under its lock, with the clock and the state file.

use super::core::Sandbox;
use super::envelope::{Refusal, Request, Response};
use super::state_file::StateFile;
use super::webhook::{Dispatch, dispatch};
use callbridge_call::EventTime;
use std::sync::{Arc, Mutex, PoisonError};
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

/// A sandbox that others in the process may look into.
#[derive(Clone)]
pub struct SharedSandbox {
    /// The core, and its state file if it has one.
    held: Arc<Mutex<(Sandbox, Option<StateFile>)>>,
    clock: SandboxClock,
}

impl SharedSandbox {
    /// A core, with its state file if it has one.
    pub(super) fn new(core: Sandbox, state: Option<StateFile>, clock: SandboxClock) -> Self {
        Self {
            held: Arc::new(Mutex::new((core, state))),
            clock,
        }
    }

    /// Does something with the core at the clock's moment; false when what it `changes` could not
    /// be kept.
    fn act<R>(&self, changes: bool, act: impl FnOnce(&mut Sandbox, EventTime) -> R) -> (R, bool) {
        // A panic under the lock leaves the core as it was after its last change.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (core, state) = &mut *held;
        // Under the lock, so that moments reach the core in order.
        let now = core.moment((self.clock)());
        core.tick(now);
        let result = act(core, now);
        let state = state.as_mut().filter(|_| changes);
        let kept = state.map_or(Ok(()), |state| state.keep(core));
        if let Err(error) = &kept {
            error!(%error, "the sandbox cannot keep its state");
        }
        (result, kept.is_ok())
    }

    /// Does something with the core at the clock's moment, after what is due by then.
    pub fn admin<R>(&self, act: impl FnOnce(&mut Sandbox, EventTime) -> R) -> R {
        self.act(true, act).0
    }

    /// The deliveries of this cycle: what is under way is not kept.
    pub(super) fn deliveries(&self) -> Vec<Dispatch> {
        self.act(false, dispatch::deliveries).0
    }

    /// The machine's moment, whatever the core's clock was set to.
    pub(super) fn machine_time(&self) -> EventTime {
        (self.clock)()
    }

    /// Answers a request. What a GET counts in a window is kept with the next change, or at the
    /// end.
    pub(super) fn handle(&self, request: &Request) -> Response {
        let changes = request.method != "GET";
        let (response, kept) = self.act(changes, |core, now| core.handle(now, request));
        if kept {
            response
        } else {
            Refusal::Status(500).respond()
        }
    }
}
