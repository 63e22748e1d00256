//! Lookups on read-only connections that do not use the writer's thread. They do not wait for a
//! commit, and they see every earlier commit. They find finished calls by their ids, and leads by
//! phone.

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

/// After a failed query, the database is not asked again for this long.
const PAUSE: Duration = Duration::from_secs(1);
/// Name of the session on the server.
const LABEL: &str = "callbridge reader";

/// A read-only connection, in addition to the spool's connection. It also works while another
/// process leads.
#[derive(Debug)]
pub struct Reader {
    /// The open connection. `None` if the session was lost. The next query then opens a session.
    db: Option<Db>,
    /// The database to connect to again. `None` for a file.
    url: Option<PostgresUrl>,
    /// The last failure, and its time. `None` after a query that succeeded.
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

    /// Makes a reader that connects at its first query.
    pub fn of_database(url: &PostgresUrl) -> Self {
        Self {
            db: None,
            url: Some(url.clone()),
            failed: None,
        }
    }

    /// Runs `question` on the connection. If the session ended since the last query, runs it again
    /// in a new session.
    ///
    /// # Errors
    /// The error of `question`. [`Error::SessionLost`] if the database cannot be reached.
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
        // The caller can be an async task. A task must not block on the session's own runtime, so a
        // thread does.
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

/// Finds finished calls by their ids.
#[derive(Debug)]
pub struct FinishedCalls(Reader);

impl FinishedCalls {
    /// Opens a read-only connection to the file of this folder, in addition to the spool's own.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Reader::of_file(&dir.join(state_dir::FILE)).map(Self)
    }

    /// Makes lookups of finished calls in a database. Connects at the first lookup.
    pub fn in_database(url: &PostgresUrl) -> Self {
        Self(Reader::of_database(url))
    }

    /// Returns the finished call that the unique id or linkedid `id` of this PBX belongs to. Also
    /// returns `None` if the state cannot be read. A repeated call is then still recognized by its
    /// uuid.
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

/// Reads the facts of a dead letter's call from JSON. If they cannot be read, a better account of
/// the call gets nothing from them.
fn letter(text: &str) -> Option<Box<FinishedCall>> {
    let read = serde_json::from_str(text);
    read.inspect_err(|error| tracing::error!(%error, "the call of a dead letter cannot be read"))
        .ok()
}

/// A finished call, with the values that show whether a later call with the same id is another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The id is the call's linkedid, not an id of one of its channels.
    pub own: bool,
    /// By the PBX's clock.
    pub started: EpochSeconds,
    /// The calling customer's number as the PBX wrote it. `None` if no customer called in or the
    /// number is no longer known.
    pub caller: Option<String>,
    /// The call is a dead letter `incomplete` that a person must handle.
    pub incomplete: bool,
    /// Facts of the call in this dead letter. They are added to a better account of the call.
    pub letter: Option<Box<FinishedCall>>,
}

impl Known {
    /// Returns `true` if a channel that was created at `born`, with the caller's number `caller`,
    /// begins another call with the same ids. Possible causes are two PBXs with one id, or a clock
    /// that went back.
    pub fn is_another(&self, born: Option<EpochSeconds>, caller: &str) -> bool {
        let elsewhen = born.is_some_and(|born| (born.get() - self.started.get()).abs() > 1);
        let somebody_else = match (&self.caller, tail(caller)) {
            (Some(known), Some(caller)) => tail(known).is_some_and(|known| known != caller),
            (None, _) | (_, None) => false,
        };
        self.own && (elsewhen || somebody_else)
    }
}

/// Returns the last seven digits of a number, which are the same in every form of the number.
/// `None` if it has fewer digits.
fn tail(number: &str) -> Option<String> {
    let digits: String = number.chars().filter(char::is_ascii_digit).collect();
    (digits.len() >= 7).then(|| digits[digits.len() - 7..].to_owned())
}

/// Lookups in the directory of leads.
#[derive(Debug)]
pub struct LeadDirectory {
    beside: Mutex<Reader>,
    failed: AtomicBool,
}

impl LeadDirectory {
    /// Opens a read-only connection to the file of this folder, in addition to the spool's own.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Ok(Self::new(Reader::of_file(&dir.join(state_dir::FILE))?))
    }

    /// Makes lookups of leads in a database. Connects at the first lookup.
    pub fn in_database(url: &PostgresUrl) -> Self {
        Self::new(Reader::of_database(url))
    }

    const fn new(reader: Reader) -> Self {
        Self {
            beside: Mutex::new(reader),
            failed: AtomicBool::new(false),
        }
    }

    /// Returns `true` if a lookup has failed since the last call of this function. Calls with a
    /// known lead can be waiting.
    pub fn has_failed(&self) -> bool {
        self.failed.swap(false, Ordering::AcqRel)
    }

    /// Looks up the leads that have or had this number.
    ///
    /// # Errors
    /// A message, if the directory cannot be read now.
    pub fn find(&self, phone: &Phone) -> Result<Finding, String> {
        self.ask("the directory of leads", |db| holders(db, phone))
    }

    /// Reads the displayed values of a lead. For a merged lead, reads those of the surviving lead.
    ///
    /// # Errors
    /// A message, if the directory cannot be read now.
    pub fn profile(&self, lead: LeadId) -> Result<LeadProfile, String> {
        self.ask("the directory of leads", |db| profile(db, lead))
    }

    /// Returns the lead that `lead` was merged into, or `lead`, and its displayed values. The
    /// values are empty if the directory cannot be read now.
    pub fn current_profile(&self, lead: LeadId) -> (LeadId, LeadProfile) {
        let known = self.ask("the directory of leads", |db| {
            let now = survivor(db, lead)?.unwrap_or(lead);
            Ok((now, profile(db, now)?))
        });
        known.unwrap_or((lead, LeadProfile::default()))
    }

    /// Returns the employees who are responsible for leads, with the number of their leads. Reads
    /// all leads.
    ///
    /// # Errors
    /// A message, if the directory cannot be read now.
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
    // Otherwise SQLite plans a statement again for each bound value that a partial index can serve.
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
