//! The spool's errors, each of which has an exit code.

use crate::{Refused, RowId};
use callbridge_call::shell::{quoted, quoted_path};
use callbridge_model::{CallUuid, Code, ExitCode};
use std::path::{Path, PathBuf};

/// Why the spool refused a request, none of which was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process holds the state folder. The number is its process ID, if it wrote one.
    #[error(
        "the state in {0} is in use by {holder}: stop it, or give this one another --state",
        holder = holder(*.1)
    )]
    Locked(PathBuf, Option<u32>),
    #[error("no state in {0}: start `callbridge run` with this --state first")]
    Missing(PathBuf),
    /// This folder or file can't be created or written. Includes the system's or SQLite's message.
    #[error("cannot write {0}: {1}: let this user write there, or give another --state")]
    NotWritable(PathBuf, String),
    /// Something other than a plain file has a state file's name. The text says what was found, and
    /// what to do about it.
    #[error("cannot use {0}: {1}")]
    NotPlain(PathBuf, String),
    /// Other users can write to the folder, so they could replace the owner's files with links or
    /// other files. The number holds the folder's permission bits, at most `0o7777`.
    #[error(
        "users other than its owner can write in {0} (mode {1:03o}), and could remove or replace \
         its files: chmod go-w {word}, or give --state a separate folder below it",
        word = quoted_path(.0)
    )]
    Shared(PathBuf, u32),
    /// The state folder, or a file in it, disappeared while in use. Nothing was stored.
    #[error(
        "the state folder {0} disappeared in use: {1}: put the folder back, and start callbridge \
         again"
    )]
    Gone(PathBuf, String),
    /// A newer callbridge wrote the file. The numbers are the file's schema version and the newest
    /// version that this callbridge can read.
    #[error(
        "{0} has schema {1}, and this callbridge reads up to {2}: run the newer callbridge that \
         wrote it; the file is not changed"
    )]
    NewerSchema(PathBuf, i64, i64),
    #[error("{0} was not written by callbridge: give another --state; the file is not changed")]
    Foreign(PathBuf),
    /// The file can't be read. Includes SQLite's message, or the value that doesn't fit.
    #[error(
        "{0} is damaged: {1}: keep a copy of the folder, restore it from a backup, or give another \
         --state; the file is not changed"
    )]
    Damaged(PathBuf, String),
    /// The state belongs to a CRM address other than `--crm-url`.
    #[error("the state is bound to {0}, --crm-url is {1}: use --rebind to bind it to this address")]
    OtherAddress(String, String),
    /// There's no room for this file, so nothing was stored. The same request can be retried.
    #[error("no room for {0}: make room on its disk; callbridge then continues automatically")]
    Full(PathBuf),
    /// The disk failed, with SQLite's message, so nothing was stored. The same request can be
    /// retried.
    #[error(
        "cannot read or write {0}: {1}: check its disk; callbridge then continues automatically"
    )]
    Disk(PathBuf, String),
    /// The call's state doesn't allow the step.
    #[error("{0}: {1}")]
    Refused(RowId, Refused),
    /// A retry would send a call under another call's uuid.
    #[error(
        "{0}: another call has the uuid {1}: enter this call in the CRM by hand, discard it, and \
         give each PBX its own pbx="
    )]
    UuidTaken(RowId, CallUuid),
    /// No call or dead letter has this ID.
    #[error("no call or dead letter has the id {0}: see `callbridge dead list`")]
    NoRow(RowId),
    /// A call that must be stored has no uuid. The text is its linkedid.
    #[error("call {0} has no uuid and cannot be stored")]
    NoUuid(String),
    /// A value can't be written as JSON or doesn't fit its column. The texts are its name and the
    /// reason.
    #[error("{0} cannot be stored: {1}")]
    Unstorable(&'static str, String),
    #[error("the spool is closed")]
    Closed,
    /// The database can't be used until its settings or callbridge's are changed. The text is the
    /// reason.
    #[error("cannot use {0}: {1}")]
    Unusable(PathBuf, String),
    /// The session with the database, which holds the lock, was lost or can't be opened at the
    /// moment. The text is the reason. There's no telling whether the last commit was stored.
    #[error("no session with {0}: {1}; callbridge tries again automatically")]
    SessionLost(PathBuf, String),
    /// Another process is the leader. The second value is its name, if known.
    #[error(
        "{leader} leads on {0}, and this process is a standby",
        leader = .1.as_deref().unwrap_or("another process")
    )]
    NotLeader(PathBuf, Option<String>),
    /// The target of a copy isn't empty. The text names a table that has rows.
    #[error("{0} is not empty ({1} has rows): copy a state into an empty database or folder")]
    NotEmpty(PathBuf, String),
    /// Another state was being copied into this one, but the copy is incomplete.
    #[error(
        "{0} holds an unfinished copy of another state: run the same `callbridge state move` or \
         `state import` again"
    )]
    Unfinished(PathBuf),
    /// The state was moved to another place, given by the text.
    #[error("the state in {0} was moved: give --state {place}", place = quoted(.1))]
    Moved(PathBuf, String),
    /// The target of a move is where the state already is.
    #[error("the state is already in {0}: give --to another place")]
    SamePlace(String),
    /// Another process holds the database's lock. The second value is its name, if known.
    #[error(
        "the state in {0} is in use by {holder}: stop every callbridge that uses it",
        holder = .1.as_deref().unwrap_or("another process")
    )]
    InUse(PathBuf, Option<String>),
    /// The branch was removed, or never existed.
    #[error("no branch has the name {0}: see `callbridge branch list`")]
    NoBranch(String),
    /// The state doesn't belong to a hub, so it has no branches.
    #[error("this state does not accept calls of branches: start `callbridge run` with --collect")]
    NoHub,
    /// The request may only repeat calls ([`Op::OnlyRepeats`](crate::Op::OnlyRepeats)), and has
    /// others.
    #[error("the request has calls that are not stored yet")]
    NewCalls,
    /// SQLite refused one of our statements, with its message.
    #[error("{0}: {1}")]
    Sql(PathBuf, String),
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        match self {
            Self::Refused(..)
            | Self::UuidTaken(..)
            | Self::NoRow(..)
            | Self::NoUuid(..)
            | Self::NoBranch(..)
            | Self::NewCalls
            | Self::Unstorable(..) => Code::Input,
            Self::Missing(..) | Self::Closed | Self::SessionLost(..) | Self::NotLeader(..) => {
                Code::Unreachable
            }
            Self::NotWritable(..) | Self::Gone(..) | Self::Full(..) | Self::Disk(..) => {
                Code::CannotWrite
            }
            Self::Locked(..) | Self::InUse(..) => Code::Locked,
            Self::SamePlace(..) => Code::Usage,
            Self::NewerSchema(..)
            | Self::Foreign(..)
            | Self::Damaged(..)
            | Self::OtherAddress(..)
            | Self::NoHub
            | Self::Unusable(..)
            | Self::NotEmpty(..)
            | Self::Unfinished(..)
            | Self::Moved(..)
            | Self::Sql(..)
            | Self::Shared(..)
            | Self::NotPlain(..) => Code::Configuration,
        }
    }
}

impl Error {
    pub fn shared(dir: &Path, mode: u32) -> Self {
        Self::Shared(dir.to_path_buf(), mode & 0o7777)
    }

    /// Returns `true` if the same request may succeed later. This includes [`Error::Gone`],
    /// [`Error::SessionLost`], and [`Error::NotLeader`], during which all tasks wait and send
    /// nothing until the daemon ends or starts over.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Full(..)
                | Self::Disk(..)
                | Self::NotWritable(..)
                | Self::NotPlain(..)
                | Self::Gone(..)
                | Self::SessionLost(..)
                | Self::NotLeader(..)
        )
    }

    /// Returns `true` if the database may be opened later with the same settings. This includes a
    /// newer schema, because a newer callbridge may replace this process while it waits.
    pub(crate) const fn is_temporary(&self) -> bool {
        self.is_retryable() || matches!(self, Self::NewerSchema(..))
    }

    pub(super) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        use rusqlite::{Error as Sqlite, ErrorCode as Code};
        let path = path.to_path_buf();
        let why = error.to_string();
        match error.sqlite_error_code() {
            Some(Code::DiskFull) => Self::Full(path),
            Some(
                Code::SystemIoFailure
                | Code::OutOfMemory
                | Code::DatabaseBusy
                | Code::DatabaseLocked,
            ) => Self::Disk(path, why),
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => Self::Damaged(path, why),
            Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => {
                Self::NotWritable(path, why)
            }
            Some(_) => Self::Sql(path, why),
            // This isn't SQLite's error: the file holds a value that doesn't fit its column.
            None => match error {
                Sqlite::FromSqlConversionFailure(..)
                | Sqlite::IntegralValueOutOfRange(..)
                | Sqlite::InvalidColumnType(..)
                | Sqlite::Utf8Error(..) => Self::Damaged(path, why),
                _ => Self::Sql(path, why),
            },
        }
    }
}
