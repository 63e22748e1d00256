//! Lookups over read-only connections that don't use the writer's thread, so they never wait for a
//! commit, but see every earlier one. They find finished calls by their IDs, and leads by phone
//! number.

use super::{Db, Error, state_dir};
use crate::postgres::{Access, PostgresUrl, Session};
use crate::tables::directory::{
    holders, leads_of_phones, profile, responsible_employees, survivor,
};
use crate::tables::given::assigned_lead;
use callbridge_call::{EpochSeconds, FinishedCall};
use callbridge_leads::directory::{Finding, LeadProfile};
use callbridge_mapping::LeadAnswer;
use callbridge_mapping::people::{Directory, PhoneLeads};
use callbridge_model::{EmployeeId, LeadId, Phone};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait after a failed query before querying the database again.
const PAUSE: Duration = Duration::from_secs(1);
/// The session's name on the server.
const LABEL: &str = "callbridge reader";

/// A read-only connection in addition to the spool's own. It also works while another process
/// leads.
#[derive(Debug)]
pub struct Reader {
    /// The open connection, or `None` if the session was lost, in which case the next query opens
    /// another one.
    db: Option<Db>,
    /// The database to reconnect to, or `None` for a file.
    url: Option<PostgresUrl>,
    /// The last failure and when it happened, or `None` after a successful query.
    failed: Option<(Instant, Error)>,
}

impl Reader {
    fn of_file(file: &Path) -> Result<Self, Error> {
        Ok(Self {
            db: Some(open_read_only(file)?),
            url: None,
            failed: None,
        })
    }

    /// Creates a reader that connects with its first query.
    pub fn of_database(url: &PostgresUrl) -> Self {
        Self {
            db: None,
            url: Some(url.clone()),
            failed: None,
        }
    }

    /// Runs `question` on the connection. If the session has ended since the last query, it's run
    /// again in a new session.
    ///
    /// # Errors
    /// Returns the error from `question`, or [`Error::SessionLost`] if the database can't be
    /// reached.
    pub fn ask<T: Send>(
        &mut self,
        question: &(impl Fn(&Db) -> Result<T, Error> + Sync),
    ) -> Result<T, Error> {
        let Some(url) = &self.url else {
            let db = self.db.as_ref().ok_or(Error::Closed)?;
            return question(db);
        };
        if let Some((at, error)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let db = &mut self.db;
        // The caller may be an async task, which must not block on the session's own runtime, so
        // use a separate thread.
        let answer = std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask_session(db, url, question));
            asking.join().unwrap_or(Err(Error::Closed))
        });
        let failed = answer.as_ref().err().filter(|error| error.is_retryable());
        self.failed = failed.map(|error| (Instant::now(), error.clone()));
        answer
    }
}

fn ask_session<T>(
    db: &mut Option<Db>,
    url: &PostgresUrl,
    question: &impl Fn(&Db) -> Result<T, Error>,
) -> Result<T, Error> {
    if let Some(open) = db {
        match question(open) {
            Err(Error::SessionLost(..)) => *db = None,
            answer => return answer,
        }
    }
    let session = Session::open(url, Access::Read, LABEL)?;
    let answer = question(db.insert(Db::postgres(session)));
    if matches!(answer, Err(Error::SessionLost(..))) {
        *db = None;
    }
    answer
}

/// Finds finished calls by their IDs.
#[derive(Debug)]
pub struct FinishedCalls(Reader);

impl FinishedCalls {
    /// Opens a read-only connection to this folder's file, in addition to the spool's own.
    ///
    /// # Errors
    /// Returns an error if the file can't be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Reader::of_file(&dir.join(state_dir::FILE)).map(Self)
    }

    /// Creates lookups of finished calls in a database, connecting with the first lookup.
    pub fn in_database(url: &PostgresUrl) -> Self {
        Self(Reader::of_database(url))
    }

    /// Returns the finished call that the unique ID or linkedid `id` on this PBX belongs to. This
    /// is also `None` if the state can't be read, in which case a repeated call is still recognized
    /// by its uuid.
    pub fn finished(&mut self, pbx: &str, id: &str) -> Option<Known> {
        let text = "SELECT t.is_linkedid, t.started,
                    CASE WHEN c.direction = 'INBOUND' THEN c.raw_phone END,
                    CASE WHEN c.state = 'dead' AND c.reason = 'incomplete' THEN c.call END
             FROM seen_calls t LEFT JOIN calls c ON c.uuid = t.uuid WHERE t.pbx = ?1 AND t.id = ?2";
        let found: Result<Option<(_, _, _, Option<_>)>, _> =
            self.0.ask(&|db| db.query_first(text, (pbx, id)));
        let found =
            found.inspect_err(|error| tracing::warn!(%error, "finished calls cannot be looked up"));
        found.ok()?.map(|(own, started, caller, facts)| Known {
            own,
            started,
            caller,
            incomplete: facts.is_some(),
            letter: facts.and_then(|text: String| letter(&text)),
        })
    }
}

/// Reads the facts of a dead letter's call from JSON. If they can't be read, they don't contribute
/// to a better account of the call.
fn letter(text: &str) -> Option<Box<FinishedCall>> {
    let read = serde_json::from_str(text);
    read.inspect_err(|error| tracing::error!(%error, "the call of a dead letter cannot be read"))
        .ok()
}

/// A finished call, with the values that tell whether a later call with the same ID is a different
/// one.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Whether the ID is the call's linkedid, rather than the ID of one of its channels.
    pub own: bool,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// The calling customer's number as written by the PBX, or `None` if no customer called in or
    /// the number is no longer known.
    pub caller: Option<String>,
    /// Whether the call is an `incomplete` dead letter that needs manual attention.
    pub incomplete: bool,
    /// The facts of the call in this dead letter, which are added to a better account of the call.
    pub letter: Option<Box<FinishedCall>>,
}

impl Known {
    /// Returns `true` if a channel created at `born`, with the caller's number `caller`, starts a
    /// different call with the same IDs. This can be caused by two PBXs with the same ID, or by a
    /// clock that went back.
    pub fn is_another(&self, born: Option<EpochSeconds>, caller: &str) -> bool {
        let elsewhen = born.is_some_and(|born| (born.get() - self.started.get()).abs() > 1);
        let somebody_else = match (&self.caller, tail(caller)) {
            (Some(known), Some(caller)) => tail(known).is_some_and(|known| known != caller),
            (None, _) | (_, None) => false,
        };
        self.own && (elsewhen || somebody_else)
    }
}

/// Returns a number's last seven digits, which are the same however it's written, or `None` if it
/// has fewer digits.
fn tail(number: &str) -> Option<String> {
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    (digits.len() >= 7).then(|| digits[digits.len() - 7..].to_owned())
}

/// Lookups in the lead directory.
#[derive(Debug)]
pub struct LeadDirectory {
    beside: Mutex<Reader>,
    failed: AtomicBool,
}

impl LeadDirectory {
    /// Opens a read-only connection to this folder's file, in addition to the spool's own.
    ///
    /// # Errors
    /// Returns an error if the file can't be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Ok(Self::new(Reader::of_file(&dir.join(state_dir::FILE))?))
    }

    /// Creates lookups of leads in a database, connecting with the first lookup.
    pub fn in_database(url: &PostgresUrl) -> Self {
        Self::new(Reader::of_database(url))
    }

    const fn new(reader: Reader) -> Self {
        Self {
            beside: Mutex::new(reader),
            failed: AtomicBool::new(false),
        }
    }

    /// Returns `true` if a lookup has failed since the last time this was called, so that calls
    /// with a known lead may be waiting.
    pub fn has_failed(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }

    /// Looks up the leads that have, or used to have, this number.
    ///
    /// # Errors
    /// Returns an error message if the directory can't be read at the moment.
    pub fn find(&self, phone: &Phone) -> Result<Finding, String> {
        self.ask("the directory of leads", |db| holders(db, phone))
    }

    /// Reads a lead's displayed values or, if it was merged, those of the surviving lead.
    ///
    /// # Errors
    /// Returns an error message if the directory can't be read at the moment.
    pub fn profile(&self, lead: LeadId) -> Result<LeadProfile, String> {
        self.ask("the directory of leads", |db| profile(db, lead))
    }

    /// Returns the lead that `lead` was merged into, or else `lead` itself, with its displayed
    /// values. These are empty if the directory can't be read at the moment.
    pub fn current_profile(&self, lead: LeadId) -> (LeadId, LeadProfile) {
        let known = self.ask("the directory of leads", |db| {
            let now = survivor(db, lead)?.unwrap_or(lead);
            Ok((now, profile(db, now)?))
        });
        known.unwrap_or((lead, LeadProfile::default()))
    }

    /// Returns the employees responsible for leads, each with their number of leads. Reads all
    /// leads.
    ///
    /// # Errors
    /// Returns an error message if the directory can't be read at the moment.
    pub fn responsible_employees(&self) -> Result<Vec<(EmployeeId, u64)>, String> {
        self.ask("the directory of leads", responsible_employees)
    }

    fn ask<T: Send>(
        &self,
        place: &str,
        question: impl Fn(&Db) -> Result<T, Error> + Sync,
    ) -> Result<T, String> {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        beside.ask(&question).map_err(|error| {
            self.failed.store(true, Ordering::Release);
            tracing::warn!(%error, "{place} cannot be read");
            error.to_string()
        })
    }
}

impl Directory for LeadDirectory {
    fn lead_of(&self, phone: &Phone) -> Result<LeadAnswer, String> {
        Ok(self.find(phone)?.answer())
    }

    fn assigned_lead(&self, phone: &Phone) -> Result<Option<(LeadId, String)>, String> {
        let given = self.ask("the given leads", |db| assigned_lead(db, phone))?;
        Ok(given.map(|assigned| (assigned.lead_id, assigned.message())))
    }

    fn look_up(&self, phones: &[Phone]) -> Result<Vec<PhoneLeads>, String> {
        let found = self.ask("the directory of leads", |db| leads_of_phones(db, phones))?;
        let leads = found.into_iter().map(|(finding, assigned)| PhoneLeads {
            lead: finding.answer(),
            assigned: assigned.map(|assigned| (assigned.lead_id, assigned.message())),
        });
        Ok(leads.collect())
    }
}

fn open_read_only(file: &Path) -> Result<Db, Error> {
    state_dir::check_siblings(file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db =
        Connection::open_with_flags(file, flags).map_err(|error| Error::sqlite(file, &error))?;
    // Otherwise, SQLite would replan a statement for each bound value that a partial index can
    // serve.
    let stable = DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG;
    db.set_db_config(stable, true)
        .map_err(|error| Error::sqlite(file, &error))?;
    Ok(Db::sqlite(db, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_spool_has_no_finished_calls() {
        let dir = tempfile::tempdir().expect("a folder");
        let spool = super::super::open(dir.path(), super::super::Settings::default());
        let (_handle, guard) = spool.expect("a spool");
        let mut memory = FinishedCalls::open(dir.path()).expect("beside it");
        assert_eq!(memory.finished("pbx", "1.2"), None);
        drop(memory);
        guard.close();
    }

    fn known_call(own: bool) -> Known {
        Known {
            own,
            started: EpochSeconds::new(100),
            caller: Some("+998901110001".into()),
            incomplete: false,
            letter: None,
        }
    }

    #[test]
    fn known_id_belongs_to_another_call_if_start_or_caller_differs() {
        let at = EpochSeconds::new;
        let call = known_call(true);
        assert!(
            !call.is_another(Some(at(101)), "901110001"),
            "the same in another form"
        );
        assert!(!call.is_another(None, "<unknown>"));
        assert!(
            !call.is_another(Some(at(100)), "101"),
            "an extension says nothing"
        );
        assert!(call.is_another(Some(at(100)), "998935550000"));
        assert!(call.is_another(Some(at(3700)), "998901110001"));
        assert!(
            !known_call(false).is_another(Some(at(3700)), "998935550000"),
            "a channel of it"
        );
    }
}
