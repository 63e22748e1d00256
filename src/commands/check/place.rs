//! Checks the environment that `run` needs, which is the clock, the state directory, and the
//! listener.
//!
//! If there's no state yet, `check` creates a temporary one in the place where `run` would create
//! it, and removes it at the end. Since the slots that `check` used are lost along with it, each
//! new state starts with three used slots.

use super::{CheckFinding, database, fault, well};
use crate::commands::ScratchFolder;
use crate::config::Config;
use callbridge_admin::LockWait;
use callbridge_admin::state_access::{open_here, status};
use callbridge_call::EventTime;
use callbridge_intake::identity;
use callbridge_model::status::Role;
use callbridge_model::{Code, ExitCode as _, Status};
use callbridge_spool::{self as spool, Error, Fit, Guard, Handle, StatePlace, tables};
use std::{io, net::SocketAddr, path::Path};
use tokio::net::TcpListener;

/// The state directory, as far as the check can use it.
pub(crate) enum State {
    /// The state is in use by a running daemon, whose status this is.
    Daemon(Box<Status>),
    /// The state isn't in use by any other process, so `check` has opened it, or a temporary one if
    /// there's no state yet.
    Ours(Handle, Guard, Option<TrialFolder>),
    /// Another process is leading the database.
    Standby {
        leader: String,
        /// Whether a daemon is running on this machine as a standby. If so, it's using the
        /// addresses in its flags.
        is_daemon: bool,
    },
    /// The state can't be used, for a reason given in a finding.
    Unusable,
}

impl State {
    pub(crate) const fn is_daemon(&self) -> bool {
        match self {
            Self::Daemon(_) => true,
            Self::Standby { is_daemon, .. } => *is_daemon,
            Self::Ours(..) | Self::Unusable => false,
        }
    }
}

/// Reports a clock that shows a time from before the build.
pub(crate) fn clock(now: EventTime, built: EventTime) -> CheckFinding {
    if now >= built {
        return well("clock", date_text(now));
    }
    let message = format!(
        "{} is before this program was built, {}",
        date_text(now),
        date_text(built)
    );
    let fix = "set this machine's clock (timedatectl set-ntp true); calls would be journaled at \
               wrong times";
    fault(Code::Configuration, "clock", message, fix)
}

fn date_text(at: EventTime) -> String {
    match jiff::Timestamp::from_second(at.floor_seconds().get()) {
        Ok(time) => time.to_string(),
        Err(_) => "before any date".to_owned(),
    }
}

/// Checks whether the `--listen` address is available or in use by the daemon.
pub(crate) async fn listener(addr: SocketAddr, daemon: bool) -> CheckFinding {
    match unusable_address("listen", addr, false).await {
        None => well("listen", format!("{addr} is free")),
        Some(CheckFinding { name, .. }) if daemon => {
            well(name, format!("{addr} is in use by the running daemon"))
        }
        Some(fault) => fault,
    }
}

/// Returns an error if no listener can be opened on the flag's address, or `None` if a daemon is
/// running, because it may be using the address.
pub(crate) async fn unusable_address(
    flag: &str,
    addr: SocketAddr,
    daemon: bool,
) -> Option<CheckFinding> {
    if daemon {
        return None;
    }
    let error = TcpListener::bind(addr).await.err()?;
    let todo = format!("give --{flag} an address of this machine that no other program uses");
    Some(fault(Code::Usage, flag, format!("{addr}: {error}"), todo))
}

/// Opens the state the way `run` would.
pub(crate) async fn state(config: &Config) -> (Vec<CheckFinding>, State) {
    let place = config.state_place();
    let Some(url) = place.database() else {
        return state_in(config, &place, false).await;
    };
    let (mut found, report) = database::check(url);
    let Some(report) = report else {
        return (found, State::Unusable);
    };
    let (of_state, state) = state_in(config, &place, report.is_new).await;
    found.extend(of_state);
    (found, state)
}

/// Opens the state in this place. `is_new` means that there's no state in a database yet.
async fn state_in(config: &Config, place: &StatePlace, is_new: bool) -> (Vec<CheckFinding>, State) {
    let wait = LockWait::begin();
    loop {
        match status(place.socket_folder()).await {
            Ok(Some(status)) => {
                let mut found = Vec::new();
                if let Some(folder) = place.folder() {
                    found.extend(
                        spool::refuse_shared(folder)
                            .err()
                            .as_ref()
                            .map(unusable_state),
                    );
                }
                if let Some(leadership) = &status.leadership
                    && leadership.role == Role::Standby
                {
                    let message = format!("{place}: this machine's callbridge is a standby");
                    found.insert(0, well("state", message));
                    let standby = State::Standby {
                        leader: leadership.leader_name(),
                        is_daemon: true,
                    };
                    return (found, standby);
                }
                let what = format!("{place}: its daemon is running");
                found.insert(0, well("state", what));
                return (found, State::Daemon(Box::new(status)));
            }
            Ok(None) => {}
            Err(error) => {
                let what = format!("{place}: its daemon does not answer: {error}");
                let todo = "read the daemon's log, or run check as the daemon's user";
                let finding = fault(Code::Unreachable, "state", what, todo);
                return (vec![finding], State::Unusable);
            }
        }
        match open_state(place, is_new) {
            Ok((handle, guard, trial)) => {
                let new = trial.as_ref().map_or("", |_| "; `run` creates it");
                let what = format!("{place} can be used{new}");
                let mut found = vec![well("state", what)];
                found.extend(binding(config, &handle).await);
                return (found, State::Ours(handle, guard, trial));
            }
            Err(Error::Locked { .. }) if wait.has_more().await => {}
            Err(Error::NotLeader(_, leader)) => {
                let leader = leader.unwrap_or_else(|| "another process".to_owned());
                let what = format!("{place} can be used; {leader} leads");
                let standby = State::Standby {
                    leader,
                    is_daemon: false,
                };
                return (vec![well("state", what)], standby);
            }
            Err(error) => return (vec![unusable_state(&error)], State::Unusable),
        }
    }
}

/// Opens the state, or a temporary one if there is none, because a check mustn't create one.
fn open_state(
    place: &StatePlace,
    is_new: bool,
) -> Result<(Handle, Guard, Option<TrialFolder>), Error> {
    let trial = match place {
        StatePlace::Database(_) if is_new => TrialFolder::begin(&std::env::temp_dir())?,
        StatePlace::Database(_) => {
            let (handle, guard) = open_here(place, spool::Settings::default(), false)?;
            return Ok((handle, guard, None));
        }
        StatePlace::Folder(dir) => {
            spool::refuse_shared(dir)?;
            if dir.join(spool::folder::FILE).symlink_metadata().is_ok() {
                let (handle, guard) = spool::open(dir, spool::Settings::default())?;
                return Ok((handle, guard, None));
            }
            TrialFolder::begin(dir)?
        }
    };
    let (handle, guard) = spool::open(&trial.folder.0, spool::Settings::default())?;
    Ok((handle, guard, Some(trial)))
}

fn unusable_state(error: &Error) -> CheckFinding {
    let text = error.to_string();
    // The spool's messages end with the fix, after a colon.
    let parts = text.rsplit_once(": ");
    let (what, todo) = parts.unwrap_or((&text, "give another --state"));
    fault(error.exit_code(), "state", what, todo)
}

/// Checks that the state belongs to the CRM URL and the PBX given by the flags.
async fn binding(config: &Config, spool: &Handle) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    let read = spool.read(|store| {
        let pbx = tables::meta::meta(store, identity::META_KEY)?;
        Ok((tables::meta::binding(store)?, pbx))
    });
    let (binding, pbx) = match read.await {
        Ok(read) => read,
        Err(error) => return vec![unusable_state(&error)],
    };
    if let Some(crm) = &config.crm
        && binding.fits_address(crm.setup.address.as_str()) == Fit::Other
        && !config.rebind
    {
        let bound = binding.address.unwrap_or_default();
        let given = crm.setup.address.as_str();
        let what = format!("the state is bound to {bound}, but --crm-url is {given}");
        let todo = "give the old --crm-url, another --state, or --rebind if the CRM has moved";
        found.push(fault(Code::Configuration, "binding", what, todo));
    }
    found.extend(pbx_id(config, pbx.as_deref()));
    found
}

/// Returns whether `--pbx-id` matches the state, or `None` without that flag.
fn pbx_id(config: &Config, stored: Option<&str>) -> Option<CheckFinding> {
    let given = config.pbx_id.as_deref()?;
    let Err(error) = identity::refuse_change(stored, given) else {
        return Some(well("pbx-id", given));
    };
    let todo = format!("give --pbx-id {}, or another --state", error.stored);
    let what = error.to_string();
    Some(fault(error.exit_code(), "pbx-id", what, todo))
}

/// A temporary directory for a check's state, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct TrialFolder {
    pub folder: ScratchFolder,
}

impl TrialFolder {
    /// Creates the directory in `state`, or where the state would be created.
    ///
    /// # Errors
    /// Returns [`Error::NotWritable`], as `run` would.
    pub(crate) fn begin(state: &Path) -> Result<Self, Error> {
        match Self::create(state) {
            Ok(folder) => Ok(Self { folder }),
            Err(error) => Err(Error::NotWritable(state.into(), error.to_string())),
        }
    }

    fn create(state: &Path) -> io::Result<ScratchFolder> {
        let place = existing_folder(state)?;
        // If a check is killed, its directory is left behind. Process IDs may repeat, so the name
        // is a UUID.
        let name = format!(".callbridge-check-{}", uuid::Uuid::new_v4().simple());
        ScratchFolder::make(place.join(name))
    }
}

/// Returns the state directory, or its nearest existing ancestor.
fn existing_folder(state: &Path) -> io::Result<&Path> {
    for above in state.ancestors() {
        let is_here = above.as_os_str().is_empty();
        let above = if is_here { Path::new(".") } else { above };
        match above.metadata() {
            Ok(found) if found.is_dir() => return Ok(above),
            Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_of_a_killed_check_does_not_block_the_next() {
        let place = tempfile::tempdir().expect("a folder");
        let left = format!(".callbridge-check-{}", std::process::id());
        std::fs::create_dir(place.path().join(left)).expect("made");
        let trial = TrialFolder::begin(&place.path().join("state")).expect("a trial");
        assert!(trial.folder.0.is_dir());
    }

    #[test]
    fn clock_is_a_problem_only_if_before_the_build_time() {
        let built = EventTime::from_seconds(1_795_000_000);
        let before = clock(EventTime::from_seconds(1_794_999_999), built);
        assert_eq!(before.fault, Some(Code::Configuration));
        assert!(before.message.contains("2026-11-18"), "{}", before.message);
        assert_eq!(
            clock(EventTime::from_seconds(1_795_000_001), built).fault,
            None
        );
    }

    #[tokio::test]
    async fn address_in_use_is_a_problem_unless_the_daemon_uses_it() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = taken.local_addr().expect("its address");
        assert_eq!(listener(addr, false).await.fault, Some(Code::Usage));
        assert_eq!(listener(addr, true).await.fault, None);
        drop(taken);
        assert_eq!(listener(addr, false).await.fault, None);
    }
}
