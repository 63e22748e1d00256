//! Checks the SQLite file in the background, after an unclean stop or if the file was changed while
//! no process was running.

use crate::{Error, check_siblings, not_writable};
use rusqlite::{Connection, InterruptHandle, OpenFlags};
use std::path::Path;
use std::thread::JoinHandle;

/// Result of checking the SQLite file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// No check is needed, because the last process exited cleanly or there was none.
    #[default]
    NotNeeded,
    Checking,
    Sound,
    /// The file is damaged, but hasn't been changed. Contains an [`Error::Damaged`].
    Damaged(Error),
    /// The check couldn't run, or was canceled because the process was ending. Contains the
    /// message.
    Unknown(String),
}

/// A running check, which is canceled when it's dropped.
pub(super) struct Check {
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Check")
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // SQLite ignores an interrupt if no statement has started yet, so repeat it until the
        // thread ends.
        while !thread.is_finished() {
            self.interrupt.interrupt();
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        thread.join().ok();
    }
}

/// Starts checking the file in a thread of its own, over its own connection. `report` receives
/// [`Integrity::Checking`] and later the result.
pub(super) fn check_beside(
    file: &Path,
    report: impl Fn(Integrity) + Send + 'static,
) -> Result<Check, Error> {
    check_siblings(file)?;
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| Error::sqlite(file, &error))?;
    let interrupt = db.get_interrupt_handle();
    let path = file.to_path_buf();
    report(Integrity::Checking);
    let thread = std::thread::Builder::new()
        .name("spool-check".into())
        .spawn(move || report(quick_check(&db, &path)))
        .map_err(|error| not_writable(file, &error))?;
    Ok(Check {
        interrupt,
        thread: Some(thread),
    })
}

fn quick_check(db: &Connection, path: &Path) -> Integrity {
    match db.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0)) {
        Ok(message) if message == "ok" => Integrity::Sound,
        Ok(message) => Integrity::Damaged(Error::Damaged(path.to_path_buf(), message)),
        Err(error) => match Error::sqlite(path, &error) {
            damaged @ Error::Damaged(..) => Integrity::Damaged(damaged),
            _ => Integrity::Unknown(error.to_string()),
        },
    }
}
