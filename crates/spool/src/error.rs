//! What can go wrong with the durable state, with the exit code of each.

use crate::{Refused, RowId};
use callbridge_model::{CallUuid, Code, ExitCode};
use std::path::{Path, PathBuf};

/// Reason why the spool cannot do what it was asked. Nothing of a refused request is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process holds the folder.
    #[error(
        "the state in {dir} is in use by {}: stop it, or give this one another --state",
        holder(*pid)
    )]
    Locked {
        /// The state folder of `--state`.
        dir: PathBuf,
        /// The holder, where it left its number.
        pid: Option<u32>,
    },
    /// The folder has no state, where one was expected.
    #[error("no state in {dir}: start `callbridge run` with this --state first")]
    Missing {
        /// The state folder of `--state`.
        dir: PathBuf,
    },
    /// Folder or file cannot be made or written.
    #[error("cannot write {path}: {why}: let this user write there, or give another --state")]
    NotWritable {
        /// The folder or file concerned, at its path.
        path: PathBuf,
        /// Message of the system, or of SQLite.
        why: String,
    },
    /// Something else stands where a file of the state should be.
    #[error("cannot use {path}: {why}")]
    NotPlain {
        /// Path at which something else stands.
        path: PathBuf,
        /// Description of what stands there, and the remedy.
        why: String,
    },
    /// Whoever may write in the folder can put links and files in the way of its owner's.
    #[error(
        "others than its owner may write in {dir} (mode {mode:03o}), and could take its files away \
         or put others in their place: chmod go-w {dir}, or give --state a folder of its own below \
         it"
    )]
    Shared {
        /// The state folder of `--state`.
        dir: PathBuf,
        /// Permission bits of the folder, at most `0o7777`.
        mode: u32,
    },
    /// The open file is not in its place any more. Nothing was stored.
    #[error(
        "the state is not at {path} any more: {why}: put its folder back as it was; nothing is \
         taken in or sent until then, and work goes on by itself afterwards"
    )]
    Gone {
        /// Path at which the file was opened.
        path: PathBuf,
        /// Description of what is there instead.
        why: &'static str,
    },
    /// A newer callbridge wrote the file.
    #[error(
        "{path} has schema {found}, this callbridge knows {known}: run the newer callbridge that \
         wrote it; the file is left as it is"
    )]
    NewerSchema {
        /// The database, which is left as it is.
        path: PathBuf,
        /// Number of the schema that it has.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// The file is some other program's database.
    #[error("{path} is not callbridge's: give another --state; the file is left as it is")]
    Foreign {
        /// The database, which is left as it is.
        path: PathBuf,
    },
    /// The file cannot be read as what it should be.
    #[error(
        "{path} is damaged: {why}: keep a copy of the folder, restore it from a backup, or give \
         another --state; the file is left as it is"
    )]
    Damaged {
        /// The damaged file, which is left as it is.
        path: PathBuf,
        /// SQLite's words, or what does not fit.
        why: String,
    },
    /// The state belongs to another CRM address.
    #[error("the state is bound to {bound}, --crm-url is {given}: use --rebind to bind it anew")]
    OtherAddress {
        /// The address it is bound to.
        bound: String,
        /// The address that `--crm-url` gives now.
        given: String,
    },
    /// No room. Nothing was stored; the same request can be made again.
    #[error("no room for {path}: make room on its disk; work goes on by itself then")]
    Full {
        /// The file that found no room.
        path: PathBuf,
    },
    /// The disk failed. Nothing was stored; the same request can be made again.
    #[error("cannot read or write {path}: {why}: look at its disk; work goes on by itself then")]
    Disk {
        /// The file that cannot be read or written.
        path: PathBuf,
        /// Message of SQLite on the failure.
        why: String,
    },
    /// The step does not exist in the call's state.
    #[error("{row}: {refused}")]
    Refused {
        /// Id of the call that refused.
        row: RowId,
        /// State of the call, and the step that it does not have.
        refused: Refused,
    },
    /// A retry would send a call under a uuid that is another call's.
    #[error(
        "{row}: another call has the uuid {uuid}: enter this one by hand, discard it, and give \
         each PBX its own pbx="
    )]
    UuidTaken {
        /// Id of the letter to be retried.
        row: RowId,
        /// Uuid that the other call has already.
        uuid: CallUuid,
    },
    /// No call or letter has the id.
    #[error("no call or letter has the id {row}: see `callbridge dead list`")]
    NoRow {
        /// Id that no call or letter has.
        row: RowId,
    },
    /// A call to be kept has no uuid.
    #[error("call {linkedid} has no uuid and cannot be kept")]
    NoUuid {
        /// The PBX's id for it.
        linkedid: String,
    },
    /// A value cannot be written as JSON, or has no place in a column.
    #[error("{what} cannot be stored: {why}")]
    Unstorable {
        /// Name of the value, for the message.
        what: &'static str,
        /// Reason why the value has no place, in words.
        why: String,
    },
    /// The spool's thread has ended.
    #[error("the spool is closed")]
    Closed,
    /// SQLite refused a statement of ours.
    #[error("{path}: {why}")]
    Sql {
        /// The database that the statement was for.
        path: PathBuf,
        /// Message of SQLite on the statement.
        why: String,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        match self {
            Self::Refused { .. }
            | Self::UuidTaken { .. }
            | Self::NoRow { .. }
            | Self::NoUuid { .. }
            | Self::Unstorable { .. } => Code::Input,
            Self::Missing { .. } | Self::Closed => Code::Unreachable,
            Self::NotWritable { .. }
            | Self::Gone { .. }
            | Self::Full { .. }
            | Self::Disk { .. } => Code::CannotWrite,
            Self::Locked { .. } => Code::Locked,
            Self::NewerSchema { .. }
            | Self::Foreign { .. }
            | Self::Damaged { .. }
            | Self::OtherAddress { .. }
            | Self::Sql { .. }
            | Self::Shared { .. }
            | Self::NotPlain { .. } => Code::Configuration,
        }
    }
}

impl Error {
    /// A folder of this mode, in which others may write.
    pub fn shared(dir: &Path, mode: u32) -> Self {
        Self::Shared {
            dir: dir.to_path_buf(),
            mode: mode & 0o7777,
        }
    }

    /// Returns `true` when the same request may succeed later, without anybody changing it.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::Disk { .. }
                | Self::NotWritable { .. }
                | Self::NotPlain { .. }
                | Self::Gone { .. }
        )
    }

    /// Converts SQLite's error into one of ours.
    pub(super) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::{Error as Sqlite, ErrorCode as Code};
        let path = path.to_path_buf();
        let why = error.to_string();
        match error.sqlite_error_code() {
            Some(Code::DiskFull) => Self::Full { path },
            Some(
                Code::SystemIoFailure
                | Code::OutOfMemory
                | Code::DatabaseBusy
                | Code::DatabaseLocked,
            ) => Self::Disk { path, why },
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => Self::Damaged { path, why },
            Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => {
                Self::NotWritable { path, why }
            }
            Some(_) => Self::Sql { path, why },
            // Not SQLite's own: a value that no column of ours can hold.
            None => match error {
                Sqlite::FromSqlConversionFailure(..)
                | Sqlite::IntegralValueOutOfRange(..)
                | Sqlite::InvalidColumnType(..)
                | Sqlite::Utf8Error(..) => Self::Damaged { path, why },
                _ => Self::Sql { path, why },
            },
        }
    }
}
