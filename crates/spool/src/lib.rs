//! The durable state: every finished call from its verdict to the CRM's journal.
//!
//! Callers send [`Op`]s, and get [`Done`]s after the commit. The state is one SQLite file,
//! `spool.db` in the state folder, in WAL mode with `synchronous=FULL`, so every answered request
//! is on the disk. Or it is a schema of a PostgreSQL database ([`open_postgres`]). One thread owns
//! the connection, and commits the queued requests as one group ([`Handle`]). A [`Store`] can also
//! be used without the thread, on `:memory:`, one request at a time.
//!
//! Both engines run the same statements. Their differences are these:
//!
//! | | SQLite | PostgreSQL |
//! |---|---|---|
//! | schema | `tables/schema.rs` | the same scripts, translated (`postgres/schema.rs`) |
//! | right to write | the lock file, for the process's life | the session's lock (`leading`) |
//! | memory ([`Store`]) | read once | read again when the lock was lost |
//! | statements without an answer | run at once | sent with later ones (`postgres/pipeline.rs`) |
//! | space of deleted rows | `purge` returns pages to the disk | autovacuum |
//! | check, copy of the file | `check`, `identity` | the server's; `postgres/history.rs` |
//!
//! | module | what it contains |
//! |---|---|
//! | [`state`] | the states of a call, and the pure function between them |
//! | [`employee_work`] | sums of the work of employees |
//! | `effects` | the effects of a step on a call, also pure |
//! | [`op`] | the operations that can be stored, and their effects on the books |
//! | [`row`] | the types that can be read |
//! | [`store`] | the open database and its books |
//! | `dispatch` | passes operations to the tables, and commits |
//! | `tally` | the books, in memory and as they are written, and warnings for the log |
//! | `finished` | a judged call, with the values that its row keeps |
//! | [`tables`] | all SQL, one file per stored thing |
//! | [`writer`] | the thread, group commit, [`Handle`] |
//! | `db` | the open database, its statements and errors, of both engines |
//! | `value`, `columns` | values of statements, and rows as serde reads them |
//! | `postgres` | a session with PostgreSQL |
//! | `leader`, `leading` | which process leads, and the thread's life with PostgreSQL |
//! | `reading` | a handle that reads a PostgreSQL state which another process leads |
//! | [`transfer`] | a whole state, copied to the other engine |
//! | `held` | a state that one command holds, without the thread |
//! | `marks` | the marks of a state that no process must use |
//! | `state_move` | a state that moves to another place |
//! | `exchange` | a state in any place as one tar file |
//! | `hub` | the position of a hub, and its branches |
//! | `connection` | the OAuth connection; `connection_store`: sessions that change it |
//! | [`folder`] | opening: modes, damage |
//! | `place` | the place of a state, as `--state` names it |
//! | [`archive`] | a state folder as one tar file: export and import |
//! | `state_dir` | folder, lock, and file: how they are made, and what happens if they disappear |
//! | `check` | the check of the file in the background |
//! | `identity` | whether the file is a copy |
//! | `readers` | lookups of finished calls, and of leads by phone, without the writer's thread |
//! | [`binding`] | whose calls these are |
//! | `advice` | advice about a dead letter |
//! | [`error`] | the errors, with their exit codes |
//!
//! | file in the state folder | content |
//! |---|---|
//! | `spool.db`, `-wal`, `-shm` | the database, mode 0600 |
//! | `spool.lock` | locked while in use; its holder, and the file's stamp after a clean end |
//!
//! If a commit fails (no room, a failed write or sync), the answer is that nothing was stored, and
//! the same request can be made again. SQLite then writes the same place of its log again, so no
//! page of the log depends on a sync that followed a failed one. Until then, that commit can still
//! be found after a kill. The same is true of any kill before an answer. After a kill, the log is
//! written into the file and restarted before anything is added ([`folder`]).
//!
//! If the log is written into the file and the file's sync fails, SQLite reports no error, and
//! writes it again from the log at the next commit. One case is left: a part that was written into
//! the file while the check was reading is not written again, and depends on the next sync that
//! succeeds. On Linux, if a disk loses pages of that part without refusing a write, the old pages
//! stay.

#![cfg_attr(
    test,
    allow(clippy::duplicate_mod, reason = "the same tests run on both engines")
)]

pub mod advice;
pub mod archive;
pub mod binding;
mod check;
mod columns;
mod connection;
mod connection_store;
mod db;
mod dispatch;
mod echo;
mod effects;
pub mod employee_work;
pub mod error;
mod exchange;
#[cfg(debug_assertions)]
mod fault;
mod finished;
pub mod folder;
pub mod foreign;
mod held;
mod hub;
mod identity;
mod leader;
mod leading;
mod marks;
pub mod op;
mod place;
mod postgres;
mod readers;
mod reading;
pub mod row;
pub mod state;
mod state_dir;
mod state_move;
pub mod store;
pub mod tables;
mod tally;
pub mod transfer;
mod value;
pub mod writer;

pub use crate::advice::{fix, fix_after_lookup};
pub use binding::{Binding, Fit};
pub use check::Integrity;
pub use connection::{ConnectionChange, StoredConnection};
pub use connection_store::ConnectionStore;
pub use db::Db;
pub use echo::CallEcho;
pub use error::Error;
pub use exchange::{export, import};
pub use finished::Finished;
pub use folder::{open, refuse_shared};
pub use foreign::ForeignCall;
pub use hub::{
    Branch, BranchChange, BranchRequest, HubAnswer, HubPosition, HubRow, HubSilence, NewBranch,
    Offer, TokenRotation,
};
pub use leader::{Instance, Leader};
pub use leading::open_postgres;
pub use op::{
    CallFailure, Delivered, Delivery, Done, Op, PurgeCounts, SlotRow, UnreadableBytes, WebhookEvent,
};
pub use place::{DatabasePlace, StatePlace};
pub use postgres::server::{Grade, ServerFinding, ServerReport, inspect_server};
pub use postgres::{PostgresUrl, Standby};
pub use readers::{FinishedCalls, Known, LeadDirectory, Reader};
pub use reading::read_postgres;
pub use row::{
    Action, Attempt, Confirmable, Due, LeadByHand, Left, Letter, LetterFilter, MissedCustomer,
    Notice, Progress, QueueQuery, Row, RowId, SeenCall, TrunkCalls, Unconfirmed, UnreadMessage,
    WaitingPhone, WebhookPace, WorkQueue,
};
pub use state::{FIRST_POLL, IfAbsent, OutcomeSource, Refused, State, Step, next, step_when_shown};
pub use state_move::move_state;
pub use store::{Predecessor, Store};
pub use tables::audited::{
    AuditedCall, AuditedFate, AuditedValues, CallFate, JournaledCall, SentValues,
};
pub use tables::calls::Search;
pub use tables::directory::DirectorySize;
pub use tables::listed::{CallFilter, Listed, Place};
pub use tables::shows::LeadFields;
pub use transfer::{Copied, Transfer};
pub use writer::{Guard, Handle, Health, Leadership};

pub(crate) use columns::{Json, json_column};
pub(crate) use db::{count, json};
pub(crate) use finished::called_extensions;
pub(crate) use state_dir::{Lock, StateDir, check_siblings, not_writable};
pub(crate) use tally::{Book, DROPPED, GIVEN_UP, LeadWarning, TO_SURVIVOR};

use callbridge_crm::FieldNames;
use callbridge_leads::directory::backfill::ReadLeads;
use callbridge_leads::lead_field;
use std::sync::Arc;
use std::time::Duration;

/// Bytes kept of one unreadable message: all that a later version could read.
pub const UNREADABLE_BYTES_MAX: usize = 1 << 20;
/// Bytes kept of all unreadable messages. Further ones are only counted.
pub const UNREADABLE_BYTES_ALL: u64 = 640 << 20;
/// Unreadable messages kept. Further ones are only counted.
pub const UNREADABLE_LETTERS_MAX: u64 = 10_000;
/// Bytes of an unreadable message in lists and notices.
pub const LISTED_BYTES_MAX: usize = 1024;
/// Attempts kept of one call: the first, and the last ones.
pub const ATTEMPTS_MAX: usize = 50;
/// Actions kept of one dead letter: the first, and the last ones.
pub const ACTIONS_MAX: usize = 50;
/// Calls between extensions that are kept for lists.
pub const INTERNAL_KEPT: i64 = 1_000;
/// Age after their start beyond which calls between extensions are not kept.
pub const INTERNAL_KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Dead letters and waiting calls on a page, unless the filter sets another limit.
pub const LETTERS_PAGE: usize = 500;
/// Calls due for a poll in one [`WorkQueue`].
pub const DUE_POLLS_MAX: usize = 8;
/// Confirmable calls counted in one [`WorkQueue`].
pub const CONFIRMABLE_MAX: u32 = 200;
/// Calls that one reading of the journal looks for.
pub const RECONCILE_MAX: usize = 500;
/// Time for which deliveries of webhooks are recognized (§6.9).
pub const DELIVERIES_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of webhook deliveries kept.
pub const DELIVERIES_MAX: u32 = 2_000_000;
/// Maximum time that a call is held back or left unpolled. A call that seems to wait longer was
/// written before the clock was set back.
pub const HELD_MAX: Duration = Duration::from_secs(65 * 60);

/// Forwarded calls are kept at least this long, because the hub can lose its state.
pub const FORWARDED_KEPT: Duration = Duration::from_secs(31 * 24 * 3600);

/// A call that was stored longer ago than this is not live, whatever it was then.
pub const LIVE_FOR: Duration = Duration::from_secs(5 * 60);

/// Hook that receives the time of each commit, from `BEGIN` to the end of its sync.
pub type CommitHook = Arc<dyn Fn(Duration) + Send + Sync>;

/// Hook that receives the number of each statement before it runs, for tests. If it returns
/// `false`, the session is lost.
pub type StatementHook = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// Features and limits with which a spool is opened.
#[derive(Clone)]
pub struct Settings {
    /// Look up leads of failed calls, and show calls in lead fields. Needs a sender.
    pub look_up: bool,
    /// The value of `--failed-employee` is `drop`: an unknown employee is left out.
    pub drop_employee: bool,
    /// The value of `--lead-field`, checked. `None` without it.
    pub shows: Option<Arc<lead_field::Settings>>,
    /// The names in `--field`, by which the CRM's values are compared with those that were sent.
    pub names: FieldNames,
    /// Queue a notice for every dead letter (`--dead-letter-queue`).
    pub notices: bool,
    /// Queue a notice for every waiting call too (`waiting=yes`).
    pub waiting_notices: bool,
    /// Create the folder and the database if they are missing. Otherwise opening fails with
    /// [`Error::Missing`].
    pub create: bool,
    /// Read leads in addition to the calls (`--lead-directory`).
    pub lead_directory: Option<ReadLeads>,
    /// Age at which journaled and discarded calls, and seen calls, are forgotten.
    pub retention: Duration,
    /// Hook that runs on the spool's thread after each commit.
    pub on_commit: Option<CommitHook>,
    /// Hook that runs before each statement.
    pub on_statement: Option<StatementHook>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            look_up: false,
            drop_employee: false,
            shows: None,
            names: FieldNames::default(),
            notices: false,
            waiting_notices: false,
            create: true,
            lead_directory: None,
            retention: Duration::from_secs(30 * 24 * 3600),
            on_commit: None,
            on_statement: None,
        }
    }
}

#[cfg(test)]
mod tests;

/// Returns the names under which the counts of calls (the books) are stored, in the order of
/// `tally::Book`.
pub fn book_words() -> Vec<String> {
    let words = tally::Book::ALL.iter().map(|book| book.word());
    words.map(str::to_owned).collect()
}
