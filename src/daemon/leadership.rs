//! Which process leads a state in PostgreSQL, as shown by `status`.

use crate::config::Config;
use callbridge_admin::state_access::host_name;
use callbridge_model::status::{
    DatabaseProblem, LeaderStatus, LeadershipStatus, LostSession, Role, StandbyStatus,
};
use callbridge_spool::{Error, Health, Instance, Leader, LockRole, Store, tables};
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Returns the name, version, and settings hash under which this process is known to the database's
/// other processes.
pub(crate) fn instance(config: &Config) -> Instance {
    let name = config.instance.clone().unwrap_or_else(host_name);
    Instance::new(&name, crate::VERSION, &settings_hash(config))
}

/// Returns a hash of the flags that a standby must have in common with the leader, which are the
/// CRM's URL and the trunks.
fn settings_hash(config: &Config) -> String {
    let crm = config.crm.as_ref();
    let address = crm.map(|crm| crm.setup.address.as_str().to_owned());
    let text = format!("{address:?} {:?}", config.rules);
    hex(&digest(&SHA256, text.as_bytes()).as_ref()[..4])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut hex = String::new();
    for byte in bytes {
        // Writing to a string can't fail.
        write!(hex, "{byte:02x}").ok();
    }
    hex
}

/// Reads which process is leading and which ones are waiting, or returns `None` for SQLite. `role`
/// is this process's role.
///
/// # Errors
/// Returns an error if the database can't be read.
pub(crate) fn read(store: &Store, role: Role) -> Result<Option<LeadershipStatus>, Error> {
    let Some(row) = tables::leaders::leader(store)? else {
        return Ok(None);
    };
    let mut status = LeadershipStatus {
        role,
        ..LeadershipStatus::default()
    };
    for problem in tables::leaders::database_problems(store)? {
        status.database.push(DatabaseProblem {
            kind: problem.word.to_owned(),
            message: problem.message,
        });
    }
    if role == Role::Leader {
        status.round_trip_us = store.measure_round_trip()?.map(micros);
    }
    for standby in tables::leaders::standbys(store)? {
        status
            .standbys
            .push(standby_status(&standby.label, standby.since, &row));
    }
    match tables::leaders::lock_role(store)? {
        None => {}
        Some(LockRole::Other(other)) => {
            status.problem = Some(format!(
                "the role {other} holds the leader's lock: end its session, and let all hubs \
                 connect as the same role"
            ));
        }
        Some(LockRole::Own) if role == Role::Standby && row.is_this_process() => {
            status.problem = Some(
                "its session was lost, and the database has not released the lock yet".to_owned(),
            );
        }
        Some(LockRole::Own) => {
            status.leader = Some(LeaderStatus {
                name: row.name,
                version: row.version,
                since: row.since.floor_seconds().get(),
            });
        }
    }
    Ok(Some(status))
}

/// Adds how long commits take, and the sessions that this process has lost.
pub(crate) fn add_health(status: &mut LeadershipStatus, health: &Health) {
    if status.role == Role::Leader {
        let slowest = health.commits.slowest(Instant::now());
        status.slowest_commit_us = slowest.map(micros);
    }
    status.lost_sessions = health.lost_sessions.count;
    status.last_lost_session = health.lost_sessions.last.clone().map(|(at, reason)| {
        let at = at.floor_seconds().get();
        LostSession { at, reason }
    });
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Parses a session's name, which has the form `callbridge VERSION SETTINGS NAME`. Settings are
/// only compared if the versions are equal, because different versions may hash the same settings
/// differently.
fn standby_status(label: &str, since: i64, leader: &Leader) -> StandbyStatus {
    let mut words = label.splitn(4, ' ').skip(1);
    let version = words.next().unwrap_or_default().to_owned();
    let settings = words.next().unwrap_or_default();
    let same_settings = settings == leader.settings || version != leader.version;
    StandbyStatus {
        name: words.next().unwrap_or(label).to_owned(),
        version,
        since,
        same_settings,
    }
}
