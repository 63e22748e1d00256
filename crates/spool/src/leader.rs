//! Which process leads, and whether it knows the slots of earlier requests.
//!
//! The leader writes one row in its first transaction. The next leader reads the row. Slots are
//! timed by the boot clock of the machine that made the requests. So a leader knows them only if
//! the row was written by itself, or by a process that had ended on this machine before it began,
//! and if the database has the same history. Otherwise
//! [`Store::predecessor`](crate::Store::predecessor) is another process.

use crate::db::Asked;
use crate::postgres::Session;
use crate::{Db, Error};
use callbridge_call::EventTime;
use serde::Deserialize;

/// Maximum length of a session's name in bytes. PostgreSQL cuts longer names.
const LABEL_BYTES_MAX: usize = 63;

/// Facts about a process that it stores while it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Shown to people: the host and the process id, or the value of `--instance`.
    pub name: String,
    /// Version of callbridge.
    pub version: String,
    /// Hash of the settings that a standby must share with the leader.
    pub settings: String,
    /// Id of this boot. `None` if the kernel does not show it.
    pub boot_id: Option<String>,
    /// See [`own_process`].
    process: String,
}

impl Instance {
    /// Describes the running process. The arguments are the fields of the same names.
    pub fn new(name: &str, version: &str, settings: &str, boot_id: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            settings: settings.to_owned(),
            boot_id,
            process: own_process(),
        }
    }

    /// Makes this instance look like another process of this machine, which has not ended.
    #[cfg(test)]
    pub(crate) fn another(mut self) -> Self {
        self.process = format!("another/{}", self.process);
        self
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
    /// Time at which the process took the lock.
    pub since: EventTime,
    /// Id of the boot that the process ran in. Empty if it is not known.
    boot_id: String,
    /// See [`own_process`].
    process: String,
    /// See `postgres::history`.
    history: String,
}

/// This process, which can become the leader.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) instance: Instance,
    /// The process in the leader's row, if it had ended on this machine before this process began.
    predecessor: Option<String>,
}

impl Candidate {
    /// Makes a candidate. `last` is the leader's row as it was when this process began.
    pub(crate) fn new(instance: Instance, last: Option<&Leader>) -> Self {
        let ended = last.filter(|last| {
            let same_boot = instance.boot_id.as_ref() == Some(&last.boot_id);
            same_boot && has_ended(&last.process)
        });
        Self {
            predecessor: ended.map(|last| last.process.clone()),
            instance,
        }
    }

    /// Returns `true` if this process does not know the slots of the leader in the row `last`.
    /// `history` is the database's present history.
    pub(crate) fn takes_over(&self, last: Option<&Leader>, history: &str) -> bool {
        let Some(last) = last else {
            return false;
        };
        let is_known = self.instance.boot_id.as_ref() == Some(&last.boot_id)
            && (last.process == self.instance.process
                || self.predecessor.as_ref() == Some(&last.process));
        !is_known || last.history != history
    }

    pub(crate) fn row(&self, history: String, since: EventTime) -> Leader {
        let instance = self.instance.clone();
        Leader {
            name: instance.name,
            version: instance.version,
            settings: instance.settings,
            since,
            boot_id: instance.boot_id.unwrap_or_default(),
            process: instance.process,
            history,
        }
    }
}

const LEADER: &str = "SELECT name, version, settings, since, boot_id, process, history FROM leader";

/// Returns the leader's row. `None` if no process has led yet.
pub fn leader(db: &Db) -> Result<Option<Leader>, Error> {
    db.query_first(LEADER, ())
}

/// Sends the query for the leader's row. The answer is read later.
pub(crate) fn ask(db: &Db) -> Result<Asked<Leader>, Error> {
    db.ask(LEADER, ())
}

/// Reads the leader's row in a session that has no [`Db`] yet.
pub(crate) fn leader_of(session: &Session) -> Result<Option<Leader>, Error> {
    Ok(session.rows(LEADER, &(), 1)?.pop())
}

pub(crate) fn set_leader(db: &Db, leader: &Leader) -> Result<(), Error> {
    let text = "INSERT INTO leader (id, name, version, settings, since, boot_id, process, history)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version,
             settings = excluded.settings, since = excluded.since, boot_id = excluded.boot_id,
             process = excluded.process, history = excluded.history";
    let values = (
        &leader.name,
        &leader.version,
        &leader.settings,
        leader.since.micros(),
        &leader.boot_id,
        &leader.process,
        &leader.history,
    );
    db.run(text, values)
}

/// Describes this process so another process on this machine can find it: `NAMESPACE/ID/START`.
/// START is in ticks since boot. A process id is reused, but not together with the same start.
fn own_process() -> String {
    let id = std::process::id();
    let start = start_of(id).unwrap_or_default();
    format!("{}/{id}/{start}", namespace().unwrap_or_default())
}

/// Returns the PID namespace of this process. The same process id in another namespace belongs to
/// another process.
fn namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(link.to_string_lossy().into_owned())
}

fn start_of(id: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program can contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

/// Returns `true` if the process described by `process` ([`own_process`]) is known to have ended.
/// It must be a process of the same boot.
fn has_ended(process: &str) -> bool {
    let mut parts = process.rsplitn(3, '/');
    let (start, id, found) = (parts.next(), parts.next(), parts.next());
    let (Some(start), Some(Ok(id)), Some(found)) = (start, id.map(str::parse), found) else {
        return false;
    };
    let is_visible = namespace().is_some_and(|own| own == found) && !start.is_empty();
    is_visible && start_of(id).as_deref() != Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(boot_id: &str) -> Instance {
        Instance::new("name", "0.1.0", "settings", Some(boot_id.to_owned()))
    }

    fn leader_with_process(process: String) -> Leader {
        let instance = Instance {
            process,
            ..instance("boot")
        };
        let candidate = Candidate::new(instance, None);
        candidate.row("history".to_owned(), EventTime::from_micros(1))
    }

    #[test]
    fn own_or_ended_predecessor_of_same_history_is_no_takeover() {
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("a process");
        let id = child.id();
        let start = start_of(id).expect("it runs, or has not been waited for");
        let process = format!("{}/{id}/{start}", namespace().expect("Linux"));
        child.wait().expect("ended");
        let ended = leader_with_process(process);
        let candidate = Candidate::new(instance("boot"), Some(&ended));
        assert!(!candidate.takes_over(None, "history"), "a new state");
        assert!(!candidate.takes_over(Some(&ended), "history"), "a restart");
        let own = leader_with_process(own_process());
        assert!(
            !candidate.takes_over(Some(&own), "history"),
            "a lost session"
        );
        assert!(
            candidate.takes_over(Some(&own), "another"),
            "a restored one"
        );
        let rebooted = Candidate::new(instance("next boot"), Some(&ended));
        assert!(rebooted.takes_over(Some(&ended), "history"));
    }

    #[test]
    fn running_or_invisible_process_counts_as_another_leader() {
        // The process of this test is still running.
        let running = leader_with_process(own_process());
        let candidate = Candidate::new(instance("boot").another(), Some(&running));
        assert!(candidate.takes_over(Some(&running), "history"));
        for hidden in ["pid:[1]/7/123", "", "7/123", "/7/"] {
            let hidden = leader_with_process(hidden.to_owned());
            let candidate = Candidate::new(instance("boot"), Some(&hidden));
            assert!(candidate.takes_over(Some(&hidden), "history"));
        }
    }

    #[test]
    fn label_is_cut_to_the_length_of_a_session_name() {
        let mut instance = instance("boot");
        instance.name = "ü".repeat(60);
        let label = instance.label();
        assert!(label.starts_with("callbridge 0.1.0 settings ü"), "{label}");
        // A cut never divides the two bytes of a character.
        assert_eq!(label.len(), LABEL_BYTES_MAX - 1, "{label}");
    }
}
