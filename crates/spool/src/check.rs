//! The check of the file, beside the work: after an unclean stop, and where somebody changed the
//! file while nobody ran.

use crate::{Error, check_siblings, not_writable};
use rusqlite::{Connection, InterruptHandle, OpenFlags};
use std::path::Path;
use std::thread::JoinHandle;

/// The check of the file after an unclean stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// The last process ended in order, or there was none.
    #[default]
    NotNeeded,
    /// The check is under way, beside the work.
    Checking,
    /// The check found nothing wrong.
    Sound,
    /// The file is damaged, an [`Error::Damaged`]. It is left as it is.
    Damaged(Error),
    /// The check could not be made, or was broken off by the end of the process.
    Unknown(String),
}

/// A check under way; dropping it breaks it off.
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
        // An interrupt is lost on a statement that has not begun yet: say it until it is heard.
        while !thread.is_finished() {
            self.interrupt.interrupt();
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        thread.join().ok();
    }
}

/// Checks the file on a connection and a thread of its own.
pub(super) fn check_beside(
    file: &Path,
    report: impl Fn(Integrity) + Send + 'static,
) -> Result<Check, Error> {
    let wrong = |error: rusqlite::Error| Error::sqlite(file, &error);
    check_siblings(file)?;
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(wrong)?;
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
        Ok(words) if words == "ok" => Integrity::Sound,
        Ok(words) => Integrity::Damaged(Error::Damaged(path.to_path_buf(), words)),
        Err(error) => match Error::sqlite(path, &error) {
            damaged @ Error::Damaged(..) => Integrity::Damaged(damaged),
            _ => Integrity::Unknown(error.to_string()),
        },
    }
}
