//! Determines which process leads, and whether it knows the slots of earlier requests.
//!
//! The leader writes a row in its first transaction, and the next leader reads it. If that's the
//! same process, it knows its slots, provided that the database hasn't lost any of its commits. Any
//! other process begins with a [`Silence`](crate::Silence).

use crate::db::Asked;
use crate::postgres::Session;
use crate::{Db, Error};
use callbridge_call::EventTime;
use serde::Deserialize;
use std::sync::LazyLock;

/// Maximum length of a session's name in bytes. PostgreSQL truncates longer names.
const LABEL_BYTES_MAX: usize = 63;

/// What a process stores about itself while it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Shown to the operator: the host and the process ID, or the value of `--instance`.
    pub name: String,
    /// Version of callbridge.
    pub version: String,
    /// Hash of the settings that a standby must share with the leader.
    pub settings: String,
    /// The process's random ID.
    process: String,
}

impl Instance {
    /// Describes the running process. The arguments are the fields with the same names.
    pub fn new(name: &str, version: &str, settings: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            settings: settings.to_owned(),
            process: PROCESS.clone(),
        }
    }

    /// Makes this instance look like another process.
    #[cfg(test)]
    pub(crate) fn another(mut self) -> Self {
        self.process = format!("the process of {}", self.name);
        self
    }

    pub(crate) fn row(&self, history: String, since: EventTime) -> Leader {
        let instance = self.clone();
        Leader {
            name: instance.name,
            version: instance.version,
            settings: instance.settings,
            since,
            process: instance.process,
            history,
        }
    }

    /// Returns the name of the process's PostgreSQL session: `callbridge VERSION SETTINGS NAME`.
    pub(crate) fn label(&self) -> String {
        let mut label = format!(
            "callbridge {} {} {}",
            self.version, self.settings, self.name
        );
        while label.len() > LABEL_BYTES_MAX {
            label.pop();
        }
        label
    }
}

/// The process that leads, or led last.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Leader {
    pub name: String,
    pub version: String,
    /// See [`Instance::settings`].
    pub settings: String,
    /// When the process acquired the lock.
    pub since: EventTime,
    /// The process's random ID.
    process: String,
    /// See `postgres::history`.
    history: String,
}

impl Leader {
    /// Returns `true` if this process wrote the row.
    pub fn is_this_process(&self) -> bool {
        self.process == *PROCESS
    }

    /// Returns `true` if this leader knows the slots of `last`: the database has kept all its
    /// commits, and it's the same process, unless there are no slots anyway (`has_slots`).
    pub(crate) fn knows_slots_of(&self, last: &Self, has_slots: bool) -> bool {
        self.history == last.history && (self.process == last.process || !has_slots)
    }
}

const LEADER: &str = "SELECT name, version, settings, since, process, history FROM leader";

/// Returns the leader's row, or `None` if no process has ever led.
pub fn leader(db: &Db) -> Result<Option<Leader>, Error> {
    db.query_first(LEADER, ())
}

/// Sends the query for the leader's row, whose result is read later.
pub(crate) fn ask(db: &Db) -> Result<Asked<Leader>, Error> {
    db.ask(LEADER, ())
}

/// Reads the leader's row in a session that doesn't have a [`Db`] yet.
pub(crate) fn leader_of(session: &Session) -> Result<Option<Leader>, Error> {
    Ok(session.rows(LEADER, &(), 1)?.pop())
}

pub(crate) fn set_leader(db: &Db, leader: &Leader) -> Result<(), Error> {
    let text = "INSERT INTO leader (id, name, version, settings, since, process, history)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version,
             settings = excluded.settings, since = excluded.since, process = excluded.process,
             history = excluded.history";
    let values = (
        &leader.name,
        &leader.version,
        &leader.settings,
        leader.since.micros(),
        &leader.process,
        &leader.history,
    );
    db.run(text, values)
}

/// This process's ID, which all its instances share.
static PROCESS: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().to_string());

#[cfg(test)]
mod tests {
    use super::*;

    fn instance() -> Instance {
        Instance::new("name", "0.1.0", "settings")
    }

    fn row(instance: Instance, history: &str) -> Leader {
        instance.row(history.to_owned(), EventTime::from_micros(1))
    }

    #[test]
    fn only_same_process_with_same_history_knows_the_slots() {
        let last = row(instance(), "history");
        let other = row(instance().another(), "history");
        assert!(row(instance(), "history").knows_slots_of(&last, true));
        assert!(!other.knows_slots_of(&last, true));
        assert!(other.knows_slots_of(&last, false), "no request was made");
        assert!(!row(instance(), "restored").knows_slots_of(&last, false));
    }

    #[test]
    fn label_is_cut_to_the_length_of_a_session_name() {
        let mut instance = instance();
        instance.name = "ü".repeat(60);
        let label = instance.label();
        assert!(label.starts_with("callbridge 0.1.0 settings ü"), "{label}");
        // Truncation never splits a two-byte character.
        assert_eq!(label.len(), LABEL_BYTES_MAX - 1, "{label}");
    }
}
