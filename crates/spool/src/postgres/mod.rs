//! PostgreSQL as an engine of [`Db`](crate::Db): a single session, whose Tokio runtime only runs
//! while the thread waits for a response.
//!
//! | module | contents |
//! |---|---|
//! | [`url`] | the value of `--state` |
//! | `tls` | the trusted root certificates |
//! | `connecting` | connecting to one of several hosts, and the server's warnings |
//! | `session` | a connection: its settings, its deadline, and its statements |
//! | `error` | the server's errors, converted into [`Error`](crate::Error) |
//! | `values` | values and rows in PostgreSQL's binary format |
//! | `health` | the database problems that `status` shows |
//! | `history` | identifies the database's history |
//! | `login` | the refusal to send a password in cleartext |
//! | `lock` | the lock that makes a process the leader, and the processes waiting for it |
//! | `pipeline` | statements that were sent but whose results haven't been read yet |
//! | `schema` | the tables, and their migration |
//! | [`server`] | what `check` reports about a server, and the refusal of a pooler |

mod connecting;
mod error;
mod health;
mod history;
mod lock;
mod login;
mod pipeline;
mod schema;
pub mod server;
mod session;
mod tls;
pub mod url;
mod values;

pub use health::DatabaseProblem;
pub(crate) use health::{OLD_SNAPSHOT, problems};
pub(crate) use history::history;
pub use lock::{LockRole, Standby};
pub(crate) use lock::{
    hide_standby, lock_holder, lock_role, show_standby, standbys, take_leader_lock,
};
pub(crate) use pipeline::Slot;
pub(crate) use schema::{inspect, migrate};
pub(crate) use server::refuse_pooler;
pub(crate) use session::{Access, Session};
pub use url::PostgresUrl;
