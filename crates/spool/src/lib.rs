//! The durable state, which holds every finished call from the moment its outcome is decided until
//! it's in the CRM's journal.
//!
//! Callers send [`Op`]s, and get [`Done`]s after the commit. The state is a single SQLite file,
//! `spool.db` in the state folder, in WAL mode with `synchronous=FULL`, so every confirmed request
//! is on disk. Alternatively, it's a schema in a PostgreSQL database ([`open_postgres`]). One
//! thread owns the connection, committing the queued requests as a group ([`Handle`]). A [`Store`]
//! can also be used without the thread, on `:memory:`, one request at a time.
//!
//! Both engines run the same statements. They differ as follows:
//!
//! | | SQLite | PostgreSQL |
//! |---|---|---|
//! | schema | `tables/schema.rs` | the same scripts, translated (`postgres/schema.rs`) |
//! | permission to write | the lock file, for the process's life | the session's lock (`leading`) |
//! | memory ([`Store`]) | read once | reread after the lock was lost |
//! | statements without a result | run immediately | sent with later ones (`pipeline`) |
//! | space freed by deleted rows | given back to the disk by `purge` | left to autovacuum |
//! | file checks, copies | `check`, `identity` | left to the server; `postgres/history.rs` |
//!
//! | module | contents |
//! |---|---|
//! | [`state`] | a call's states, and the pure function that moves it between them |
//! | [`employee_work`] | sums of employees' work |
//! | `effects` | a step's effects on a call, also pure |
//! | [`op`] | the operations that can be stored, and their effects on the books |
//! | [`row`] | the types that can be read back |
//! | [`store`] | the open database and its books |
//! | `dispatch` | passes operations to the tables, and commits |
//! | `tally` | the books, in memory and as stored, and warnings for the log |
//! | `finished` | a judged call, with the values kept in its row |
//! | [`tables`] | all SQL, with one file for each kind of stored data |
//! | [`writer`] | the thread, group commits, and [`Handle`] |
//! | `db` | the open database of either engine, with its statements and errors |
//! | `value`, `columns` | statement parameters, and rows as read by serde |
//! | `postgres` | a session with PostgreSQL |
//! | `leader`, `leading` | which process leads, and the thread's life with PostgreSQL |
//! | `reading` | a handle that reads a PostgreSQL state led by another process |
//! | [`transfer`] | copies a whole state to the other engine |
//! | `held` | a state held by a single command, without the thread |
//! | `marks` | the marks of a state that no process may use |
//! | `state_move` | moves a state to another place |
//! | `exchange` | a state from any place as a single tar file |
//! | `hub` | a hub's position and its branches |
//! | `connection` | the OAuth connection (`connection_store` has the sessions that change it) |
//! | [`folder`] | opening a folder: modes and damage |
//! | `place` | where a state is kept, as given by `--state` |
//! | [`archive`] | a state folder as a single tar file: export and import |
//! | `state_dir` | folder, lock, and file: creating them, and noticing if they disappear |
//! | `check` | checks the file in the background |
//! | `identity` | detects copies of the file |
//! | `readers` | lookups of finished calls, and of leads by phone, without the writer's thread |
//! | [`binding`] | the CRM address, company, and application that the state is bound to |
//! | `advice` | advice on dead letters |
//! | [`error`] | the errors, with their exit codes |
//!
//! | file in the state folder | contents |
//! |---|---|
//! | `spool.db`, `-wal`, `-shm` | the database, mode 0600 |
//! | `spool.lock` | locked while in use; its holder, and the file's stamp after a clean exit |
//!
//! If a commit fails (no room, a failed write or sync), the caller is told that nothing was stored,
//! and can retry the same request. SQLite then overwrites the same place in its log, so no page in
//! the log depends on a sync that succeeded after a failed one. If the process is killed before
//! that, or before any other response, the next start may find the commit stored. After a kill, the
//! log is written to the file and restarted before anything is added ([`folder`]).
//!
//! If the log is written to the file but the file's sync fails, SQLite reports no error, and writes
//! it again from the log at the next commit. One case remains: a portion written to the file while
//! the check was reading isn't written again, and depends on the next successful sync. If a disk
//! loses pages from that portion without rejecting a write, the old pages remain on Linux.

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
mod health;
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
pub mod silence;
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
pub use health::{CommitTimes, Health, LostSessions};
pub use hub::{
    BRANCH_SOURCE, Branch, BranchChange, BranchRequest, BranchSender, HubAnswer, HubPosition,
    HubRow, NewBranch, Offer, Sighting, TokenRotation, foreign_pbx_message,
};
pub use leader::{Instance, Leader};
pub use leading::open_postgres;
pub use op::{
    CallFailure, Delivered, Delivery, Done, Op, PurgeCounts, SlotRow, UnreadableBytes, WebhookEvent,
};
pub use place::{DatabasePlace, StatePlace};
pub use postgres::server::{Grade, ServerFinding, ServerReport, inspect_server};
pub use postgres::{DatabaseProblem, LockRole, PostgresUrl, Standby};
pub use readers::{FinishedCalls, Known, LeadDirectory, Reader};
pub use reading::read_postgres;
pub use row::{
    Action, Attempt, Confirmable, Due, LeadByHand, Left, Letter, LetterFilter, MissedCustomer,
    Notice, Parties, Progress, QueueQuery, Row, RowId, SeenCall, SuspendedBranch, SuspendedCalls,
    Trial, TrunkCalls, Unconfirmed, UnreadMessage, WaitingPhone, WebhookPace, WorkQueue,
};
pub use silence::{Silence, SilenceReason};
pub use state::{FIRST_POLL, IfAbsent, OutcomeSource, Refused, State, Step, next, step_when_shown};
pub use state_move::move_state;
pub use store::Store;
pub use tables::audited::{
    AuditedCall, AuditedFate, AuditedValues, CallFate, JournaledCall, SentValues,
};
pub use tables::calls::Search;
pub use tables::directory::DirectorySize;
pub use tables::listed::{CallFilter, Listed, Place};
pub use tables::shows::LeadFields;
pub use transfer::{Copied, Transfer};
pub use writer::{Guard, Handle, Leadership};

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

/// Maximum bytes kept of an unreadable message. A later version may be able to read a whole
/// message.
pub const UNREADABLE_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes kept of all unreadable messages together. Any further messages are only counted.
pub const UNREADABLE_BYTES_ALL: u64 = 640 << 20;
/// Maximum number of unreadable messages kept. Any further messages are only counted.
pub const UNREADABLE_LETTERS_MAX: u64 = 10_000;
/// Maximum number of unreadable dead letters per branch, so that there's room for those of others.
pub const SOURCE_LETTERS_MAX: u64 = 200;
/// Maximum bytes of an unreadable message shown in lists and notifications.
pub const LISTED_BYTES_MAX: usize = 1024;
/// Maximum number of attempts kept per call, namely the first and the most recent ones.
pub const ATTEMPTS_MAX: usize = 50;
/// Maximum number of actions kept per dead letter, namely the first and the most recent ones.
pub const ACTIONS_MAX: usize = 50;
/// Maximum number of calls between extensions kept for lists.
pub const INTERNAL_KEPT: i64 = 1_000;
/// Calls between extensions aren't kept if they started longer ago than this.
pub const INTERNAL_KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum number of dead letters and waiting calls per page, unless the filter sets a limit.
pub const LETTERS_PAGE: usize = 500;
/// Maximum number of calls due for a poll in a single [`WorkQueue`].
pub const DUE_POLLS_MAX: usize = 8;
/// Confirmable calls are counted up to this number in a single [`WorkQueue`].
pub const CONFIRMABLE_MAX: u32 = 200;
/// Maximum number of calls that a single journal reading looks for.
pub const RECONCILE_MAX: usize = 500;
/// How long webhook deliveries are remembered, so that repeats are recognized (§6.9).
pub const DELIVERIES_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of webhook deliveries kept.
pub const DELIVERIES_MAX: u32 = 2_000_000;
/// Maximum time that a call is held back or left unpolled. A call that seems to wait longer was
/// written before the clock was set back.
pub const HELD_MAX: Duration = Duration::from_secs(65 * 60);

/// Minimum time that forwarded calls are kept, because the hub may lose its state.
pub const FORWARDED_KEPT: Duration = Duration::from_secs(31 * 24 * 3600);

/// A live call is sent before the backlog. A call that became ready longer ago than this is no
/// longer live.
pub const LIVE_FOR: Duration = Duration::from_secs(5 * 60);

/// Hook that receives each commit's duration, from `BEGIN` to the end of its sync.
pub type CommitHook = Arc<dyn Fn(Duration) + Send + Sync>;

/// Hook for tests that receives each statement's number before the statement runs. If it returns
/// `false`, the session is lost.
pub type StatementHook = Arc<dyn Fn(u64) -> bool + Send + Sync>;

/// The features and limits that a spool is opened with.
#[derive(Clone)]
pub struct Settings {
    /// Look up leads of failed calls, and show calls in lead fields. Needs a sender.
    pub look_up: bool,
    /// Whether a failed call is resent without its unknown employee (`--failed-employee=drop`).
    pub drop_employee: bool,
    /// The validated `--lead-field` value, or `None` without it.
    pub shows: Option<Arc<lead_field::Settings>>,
    /// The field names from `--field`, which are needed to compare the values in the CRM with those
    /// that were sent.
    pub names: FieldNames,
    /// Queue a notification for every dead letter (`--dead-letter-queue`).
    pub notices: bool,
    /// Queue a notification for every waiting call as well (`waiting=yes`).
    pub waiting_notices: bool,
    /// Create the folder and the database if they're missing. Otherwise, opening fails with
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

/// Returns the names under which the counts of calls (the books) are stored, in the same order as
/// `tally::Book`.
pub fn book_words() -> Vec<String> {
    let words = tally::Book::ALL.iter().map(|book| book.word());
    words.map(str::to_owned).collect()
}
