//! What can go wrong with the durable state, with the exit code of each.

use super::row::RowId;
use super::state::Refused;
use callbridge_model::{CallUuid, Code, ExitCode};
use std::path::{Path, PathBuf};

/// Why the spool cannot do what it was asked. Nothing of a refused request is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process holds the folder.
    #[error(
        "the state in {dir} is in use by {}: stop it, or give this one another --state",
        holder(*pid)
    )]
    Locked {
        /// The state folder.
        dir: PathBuf,
        /// The holder, where it left its number.
        pid: Option<u32>,
    },
    /// There is no state where one was expected.
    #[error("no state in {dir}: start `callbridge run` with this --state first")]
    Missing {
        /// The state folder.
        dir: PathBuf,
    },
    /// Folder or file cannot be made or written.
    #[error("cannot write {path}: {why}: let this user write there, or give another --state")]
    NotWritable {
        /// The folder or file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// Something else stands where a file of the state should be.
    #[error("cannot use {path}: {why}")]
    NotPlain {
        /// The file.
        path: PathBuf,
        /// What it is, and what to do.
        why: String,
    },
    /// Whoever may write in the folder can put links and files in the way of its owner's.
    #[error(
        "others than its owner may write in {dir} (mode {mode:03o}), and could take its files away \
         or put others in their place: chmod go-w {dir}, or give --state a folder of its own below \
         it"
    )]
    Shared {
        /// The state folder.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The open file is not in its place any more. Nothing was stored.
    #[error(
        "the state is not at {path} any more: {why}: put its folder back as it was; nothing is \
         taken in or sent until then, and work goes on by itself afterwards"
    )]
    Gone {
        /// Where it was.
        path: PathBuf,
        /// What is there instead.
        why: &'static str,
    },
    /// Written by a newer callbridge.
    #[error(
        "{path} has schema {found}, this callbridge knows {known}: run the newer callbridge that \
         wrote it; the file is left as it is"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema known here.
        known: i64,
    },
    /// Some other program's database.
    #[error("{path} is not callbridge's: give another --state; the file is left as it is")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read as what it should be.
    #[error(
        "{path} is damaged: {why}: keep a copy of the folder, restore it from a backup, or give \
         another --state; the file is left as it is"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's words, or what does not fit.
        why: String,
    },
    /// The state belongs to another CRM address.
    #[error("the state is bound to {bound}, --crm-url is {given}: use --rebind to bind it anew")]
    OtherAddress {
        /// The address it is bound to.
        bound: String,
        /// The address given.
        given: String,
    },
    /// No room. Nothing was stored; the same request can be made again.
    #[error("no room for {path}: make room on its disk; work goes on by itself then")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The disk failed. Nothing was stored; the same request can be made again.
    #[error("cannot read or write {path}: {why}: look at its disk; work goes on by itself then")]
    Disk {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        why: String,
    },
    /// The step does not exist in the call's state.
    #[error("{row}: {refused}")]
    Refused {
        /// The call.
        row: RowId,
        /// State and step.
        refused: Refused,
    },
    /// A retry would send a call under a uuid that is another call's.
    #[error(
        "{row}: another call has the uuid {uuid}: enter this one by hand, discard it, and give \
         each PBX its own pbx="
    )]
    UuidTaken {
        /// The call.
        row: RowId,
        /// The other call's uuid.
        uuid: CallUuid,
    },
    /// There is no such call or letter.
    #[error("no call or letter has the id {row}: see `callbridge dead list`")]
    NoRow {
        /// The id asked for.
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
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// The spool's thread has ended.
    #[error("the spool is closed")]
    Closed,
    /// SQLite refused a statement of ours.
    #[error("{path}: {why}")]
    Sql {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
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

    /// The same request may succeed later, without anybody changing it.
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

    /// SQLite's error, said in our words.
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
