//! A callbridge of the fleet as a process, which is started, killed, frozen and loses its disk.

use crate::program::{Place, Program};
use callbridge_model::Status;
use callbridge_model::status::Books;
use rustix::process::Signal;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// A process that does its work answers within this, on a busy machine too.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// See the module.
pub struct FleetUnit {
    pub name: String,
    pub place: Place,
    arguments: Vec<String>,
    running: Mutex<Option<Program>>,
    /// Ends that nobody has asked for.
    pub faults: AtomicU32,
}

impl FleetUnit {
    /// Not started yet.
    pub fn new(name: String, place: Place, arguments: Vec<String>) -> Self {
        Self {
            name,
            place,
            arguments,
            running: Mutex::new(None),
            faults: AtomicU32::new(0),
        }
    }

    /// Starts it, where it does not run.
    pub async fn start(&self) {
        let mut running = self.running.lock().await;
        if running.is_none() {
            *running = Some(self.place.start(&self.arguments, &[]));
        }
    }

    /// `kill -9`
    pub async fn kill(&self) {
        if let Some(program) = self.running.lock().await.take() {
            program.kill().await;
        }
    }

    /// SIGTERM; whether it has ended in order.
    pub async fn stop(&self) -> bool {
        let program = self.running.lock().await.take();
        let Some(program) = program else { return true };
        program.signal(Signal::TERM);
        program.ended().await.success()
    }

    /// A signal that leaves it alive.
    pub async fn signal(&self, signal: Signal) {
        if let Some(program) = &*self.running.lock().await {
            program.signal(signal);
        }
    }

    /// What it says of itself; `None` when it does not run, or does not answer.
    pub async fn status(&self) -> Option<Status> {
        let running = self.running.lock().await;
        timeout(ANSWERS_WITHIN, running.as_ref()?.status())
            .await
            .ok()?
    }

    /// The books of a process that runs.
    pub async fn books(&self) -> Option<Books> {
        self.status().await.map(|status| status.books)
    }

    /// The books as they stand in the state of one that does not run; `None` where there is none.
    pub async fn books_left(&self) -> Option<Books> {
        let output = self.place.command(&["status", "--json"]).await;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        serde_json::from_value(status["books"].clone()).ok()
    }

    /// Starts it again where it has ended by itself, which is counted, and said.
    pub async fn look_after(&self) {
        let ended = {
            let mut running = self.running.lock().await;
            let ended = running.as_mut().and_then(Program::has_ended);
            if ended.is_some() {
                let log = running.take().map(|program| program.log());
                let log = log.unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                println!("{} ended by itself ({ended:?}): {last:#?}", self.name);
            }
            ended
        };
        if ended.is_some() {
            self.faults.fetch_add(1, Ordering::Relaxed);
            self.start().await;
        }
    }

    /// Its state is gone, as with its disk.
    pub fn lose_state(&self) {
        let state = self.place.at("state");
        // The folder itself may be a disk of its own.
        for entry in std::fs::read_dir(&state).into_iter().flatten().flatten() {
            let path = entry.path();
            let gone = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            gone.expect("removed");
        }
    }
}
