//! A spool on a disk that can fail, with a model of its expected contents.

use crate::simulation::paths::{Met, Path, steps};
use callbridge_model::{CallUuid, Outcome, Reason};
use callbridge_spool as spool;
use callbridge_spool::{
    Delivered, Done, Error, Finished, Op, OutcomeSource, RowId, State, Step, Store, next, tables,
};
use std::collections::BTreeMap;

/// The step of a call that a webhook confirms.
const HOOKED: Step = Step::Journaled(OutcomeSource::Webhook);

/// The condition of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// The disk can be read and written.
    #[default]
    Sound,
    /// The disk can be read but not written.
    Full,
    /// The disk cannot be read or written.
    Failing,
}

/// The store, and a model of each row's state.
pub struct Disk {
    pub store: Store,
    pub health: Health,
    /// The expected state of each row, according to [`next`].
    pub states: BTreeMap<RowId, State>,
    /// The uuid of each row.
    pub uuids: BTreeMap<RowId, String>,
    /// All writes, if a snapshot can be restored.
    pub history: Option<Vec<Vec<Op>>>,
    /// Whether the disk was restored, and no slot has been taken since.
    pub restored: bool,
    /// Number of writes.
    pub writes: u64,
    counted: u64,
}

impl Disk {
    /// Creates an empty state.
    pub fn new() -> Self {
        Self::with_settings(spool::Settings::default())
    }

    /// Creates an empty state with these settings of the spool.
    pub fn with_settings(settings: spool::Settings) -> Self {
        Self {
            store: Store::in_memory(settings).expect("a store in memory"),
            health: Health::Sound,
            states: BTreeMap::new(),
            uuids: BTreeMap::new(),
            history: None,
            restored: false,
            writes: 0,
            counted: 0,
        }
    }

    /// Runs `read` on the store if the disk allows it.
    pub fn read<T>(&self, read: impl FnOnce(&Store) -> Result<T, Error>) -> Result<T, Error> {
        match self.health {
            Health::Sound | Health::Full => read(&self.store),
            Health::Failing => Err(self.error()),
        }
    }

    /// Writes the operations if the disk allows it. Checks that each step leads to the state that
    /// [`next`] returns, and that the books balance.
    pub fn write(&mut self, ops: Vec<Op>, met: &mut Met) -> Result<Vec<Done>, Error> {
        if self.health != Health::Sound {
            return Err(self.error());
        }
        if ops.is_empty() {
            return Ok(Vec::new());
        }
        let done = self.store.write(ops.clone())?;
        for (op, done) in ops.iter().zip(&done) {
            self.follow_operation(op, done, met);
        }
        if let Some(history) = &mut self.history {
            history.push(ops);
        }
        let books = self.store.books();
        assert!(books.balance(), "books: {books:?}");
        assert_eq!(books.finished, self.states.len() as u64, "{books:?}");
        self.writes += 1;
        // Counting all rows takes time in proportion to their number, so it is done only
        // occasionally.
        if self.writes - self.counted > 1000 + books.finished {
            self.counted = self.writes;
            self.recount();
        }
        Ok(done)
    }

    fn follow_operation(&mut self, op: &Op, done: &Done, met: &mut Met) {
        match (op, done) {
            (Op::Finish(call), Done::New(row)) => {
                let uuid = call.judged.record.uuid.expect("a uuid").to_string();
                self.uuids.insert(*row, uuid);
                self.states.insert(*row, first(call));
            }
            (Op::Finish(_), Done::Conflict(row)) => {
                self.states.insert(*row, State::Dead);
            }
            (Op::Finish(_), other) => {
                assert!(matches!(other, Done::Repeat(_) | Done::Counted), "{done:?}");
            }
            (Op::Step { row, step, .. }, Done::Stepped(to)) => {
                self.follow_step(*row, step, *to, met)
            }
            // The spool decides whether the call is retried automatically.
            (Op::FailedCall(failure), Done::Stepped(to)) => {
                let step = match to {
                    State::Ready => step_called("moved"),
                    _ => step_called("died"),
                };
                self.follow_step(failure.row, &step, *to, met);
            }
            (Op::Delivery(_), Done::Delivered(told)) => self.follow_delivery(told, met),
            (Op::Shown { calls, .. }, _) => {
                calls
                    .iter()
                    .for_each(|call| self.follow_page_row(call.uuid, met));
            }
            // From now on, the slots show the requests.
            (Op::Slot(_), _) => self.restored = false,
            (Op::BindCompany { .. }, Done::WrongCompany(binding)) => {
                panic!("bound to {binding:?} and then to another");
            }
            _ => {}
        }
    }

    fn follow_step(&mut self, row: RowId, step: &Step, to: State, met: &mut Met) {
        let state = self.states.get_mut(&row).expect("a known row");
        // An answer changes nothing if a webhook came first. A decision on a call that is no longer
        // dead changes nothing either.
        let overtaken = *state == State::Journaled && to == State::Journaled;
        let decided = matches!(step, Step::Reopened { .. }) && *state != State::Dead;
        if !overtaken && !decided {
            met.count(Path::Step {
                state: *state,
                step: step.name(),
            });
            assert_eq!(next(*state, step), Ok(to), "{row}: {step:?}");
        }
        *state = to;
    }

    fn follow_delivery(&mut self, delivered: &Delivered, met: &mut Met) {
        let Delivered::Confirmed { row, .. } = delivered else {
            return;
        };
        let state = self.states.get_mut(row).expect("a known row");
        met.count(Path::Step {
            state: *state,
            step: HOOKED.name(),
        });
        assert_eq!(next(*state, &HOOKED), Ok(State::Journaled), "{row}");
        *state = State::Journaled;
    }

    /// Checks that a call that a page showed is journaled, and that no other operation in the same
    /// write changed it.
    fn follow_page_row(&mut self, uuid: CallUuid, met: &mut Met) {
        let row = tables::calls::row_of(&self.store, uuid).expect("readable");
        let Some(state) = row.and_then(|row| self.states.get_mut(&row)) else {
            return;
        };
        let stored = tables::calls::row(&self.store, row.expect("known")).expect("readable");
        let to = stored.map_or(*state, |row| row.state);
        if *state != to {
            let step = HOOKED.name();
            met.count(Path::Step {
                state: *state,
                step,
            });
            assert_eq!(next(*state, &HOOKED), Ok(to), "{uuid}");
            *state = to;
        }
    }

    /// Restores the state after the first `writes` writes.
    pub fn restore(&mut self, writes: usize) {
        let history = self.history.take().expect("a history");
        let health = std::mem::take(&mut self.health);
        let mut nobody = Met::default();
        let mut old = Self {
            restored: true,
            ..Self::new()
        };
        for ops in history.into_iter().take(writes) {
            old.write(ops, &mut nobody).expect("it was written before");
        }
        old.health = health;
        old.restored = true;
        *self = old;
    }

    /// Compares the books with the rows.
    pub fn recount(&self) {
        let wrong = tables::books::recount(&self.store).expect("readable");
        assert_eq!(wrong, [], "books and rows differ");
    }

    fn error(&self) -> Error {
        let path = std::path::PathBuf::from("spool.db");
        match self.health {
            Health::Sound | Health::Full => Error::Full(path),
            Health::Failing => Error::Disk(path, "input/output error".to_owned()),
        }
    }
}

/// Returns a step with this name.
fn step_called(name: &str) -> Step {
    let mut all = steps().into_iter();
    all.find(|step| step.name() == name).expect("a step")
}

fn first(call: &Finished) -> State {
    match (call.judged.outcome, call.judged.reason) {
        (Outcome::Journal, _) => State::Ready,
        (_, reason) if reason.is_some_and(Reason::is_waiting) => State::Waiting,
        _ => State::Dead,
    }
}
