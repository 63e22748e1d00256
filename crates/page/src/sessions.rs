//! Open sessions, and the links from `callbridge page`. A link opens a single session and must be
//! used within a minute. A `GET` request for the link (such as a preview or a prefetch) doesn't use
//! it up. Only the hashes of tokens are stored, both in memory and across restarts.

use crate::passwords::Passwords;
use crate::random::{self, BrowserToken};
use callbridge_admin::PageRole;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::BTreeMap, time::Duration};

/// Lifetime of a session in seconds.
pub const SESSION_SECONDS: i64 = 12 * 3600;
/// Maximum number of sessions. Beyond that, the oldest session of the user with the most sessions
/// is ended.
const SESSIONS_MAX: usize = 1000;
/// Maximum number of sessions per user. Beyond that, the user's oldest session is ended.
const SESSIONS_OF_ONE_MAX: usize = 20;

/// Lifetime of a link.
pub const LINK_LIVES: Duration = Duration::from_secs(60);
/// Maximum number of links. Beyond that, the oldest one is dropped.
const LINKS_MAX: usize = 100;

/// A logged-in user's session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoggedIn {
    /// The name under which the user's actions are recorded.
    pub(crate) who: String,
    pub(crate) role: PageRole,
    /// When the session ends, in epoch seconds.
    until: i64,
    /// Hash of the user's line in the password file, or `None` for a session opened using a link.
    /// The session ends when the line changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
}

impl LoggedIn {
    /// Returns `true` if the session was opened using a link or the user's line in the password
    /// file is unchanged.
    fn is_valid(&self, people: &Passwords) -> bool {
        let Some(line) = &self.line else {
            return true;
        };
        people.print(&self.who).as_ref() == Some(line)
    }
}

type ByHash = BTreeMap<String, LoggedIn>;

/// The open sessions by the hash of their tokens. Clones share the same sessions.
#[derive(Clone, Debug, Default)]
pub struct Sessions(Arc<Mutex<ByHash>>);

impl Sessions {
    /// Returns the number of sessions that were open as of the last change, for metrics.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Restores the sessions stored in `kept` (JSON) that are still valid.
    pub(crate) fn take_up(
        &self,
        kept: &str,
        now: i64,
        people: &Passwords,
    ) -> serde_json::Result<()> {
        let mut kept: ByHash = serde_json::from_str(kept)?;
        kept.retain(|_, one| {
            // If the clock was ahead, a stored session mustn't live longer than a new one.
            one.is_valid(people) && one.until > now && one.until <= now + SESSION_SECONDS
        });
        *self.lock() = kept;
        Ok(())
    }

    /// Opens a session, or returns `None` if the system doesn't provide random bytes. `line` is the
    /// hash of the user's line in the password file, or `None` for a login by link.
    pub(crate) fn open(
        &self,
        now: i64,
        who: &str,
        role: PageRole,
        line: Option<String>,
    ) -> Option<BrowserToken> {
        let token = BrowserToken::new()?;
        let mut open = self.lock();
        open.retain(|_, one| one.until > now);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for one in open.values() {
            *counts.entry(&one.who).or_default() += 1;
        }
        let own_count = counts.get(who).copied().unwrap_or(0);
        let crowded = if own_count >= SESSIONS_OF_ONE_MAX {
            Some(who)
        } else if open.len() < SESSIONS_MAX {
            None
        } else {
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            most.map(|(who, _)| who)
        };
        let own = (open.iter()).filter(|(_, one)| crowded == Some(one.who.as_str()));
        let oldest = own.min_by_key(|(_, one)| one.until);
        if let Some(oldest) = oldest.map(|(hash, _)| hash.clone()) {
            open.remove(&oldest);
        }
        let one = LoggedIn {
            who: who.to_owned(),
            role,
            until: now + SESSION_SECONDS,
            line,
        };
        open.insert(random::hash(token.reveal()), one);
        Some(token)
    }

    /// Returns the open session with this token, or `None` if it has ended or its user's line in
    /// the password file has changed.
    pub(crate) fn find(&self, now: i64, token: &str, people: &Passwords) -> Option<LoggedIn> {
        let open = self.lock();
        let one = open.get(&random::hash(token))?;
        (one.until > now && one.is_valid(people)).then(|| one.clone())
    }

    /// Ends the session with this token, if there is one.
    pub(crate) fn end(&self, token: &str) {
        self.lock().remove(&random::hash(token));
    }

    /// Returns all sessions as JSON for storing them. The JSON doesn't contain any secrets.
    pub(crate) fn to_json(&self) -> String {
        // Strings and numbers can always be written as JSON.
        serde_json::to_string(&*self.lock()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, ByHash> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a link expires, in time since boot, and the name and role of its user.
type Guest = (Duration, String, PageRole);

/// The valid links by the hash of their tokens. Clones share the same links.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<BTreeMap<String, Guest>>>);

impl Links {
    /// Creates a link for `who`, a Unix user under whose name actions will be recorded. Returns its
    /// path on the page, `/open/TOKEN`, or `None` if the system doesn't provide random bytes.
    pub fn issue(&self, now: Duration, who: &str, role: PageRole) -> Option<String> {
        let token = BrowserToken::new()?;
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, (until, ..)| *until > now);
        if links.len() >= LINKS_MAX {
            let oldest = links.iter().min_by_key(|(_, (until, ..))| *until);
            if let Some(oldest) = oldest.map(|(hash, _)| hash.clone()) {
                links.remove(&oldest);
            }
        }
        let guest = (now + LINK_LIVES, who.to_owned(), role);
        links.insert(random::hash(token.reveal()), guest);
        Some(format!("/open/{}", token.reveal()))
    }

    /// Returns `true` if the link is still valid, without using it up.
    pub(crate) fn is_good(&self, now: Duration, token: &str) -> bool {
        let links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let issued = links.get(&random::hash(token));
        issued.is_some_and(|(until, ..)| *until > now)
    }

    /// Uses up the link, and returns the name and role of its user, or `None` if the link has
    /// expired or been used.
    pub(crate) fn take(&self, now: Duration, token: &str) -> Option<(String, PageRole)> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, who, role) = links.remove(&random::hash(token))?;
        if until > now { Some((who, role)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passwords::hash_password;

    fn restored_sessions(json: Option<&str>, now: i64) -> Sessions {
        let sessions = Sessions::default();
        let taken_up = json.map_or(Ok(()), |json| {
            sessions.take_up(json, now, &Passwords::default())
        });
        taken_up.expect("sessions");
        sessions
    }

    fn find(sessions: &Sessions, now: i64, token: &str) -> Option<LoggedIn> {
        sessions.find(now, token, &Passwords::default())
    }

    #[test]
    fn session_survives_restart_for_12_hours_without_stored_token() {
        let before = restored_sessions(None, 0);
        let token = before
            .open(100, "anna", PageRole::Admin, None)
            .expect("a session");
        let json = before.to_json();
        assert!(!json.contains(token.reveal()), "{json}");
        let after = restored_sessions(Some(&json), 200);
        assert_eq!(after.count(), 1);
        let found = find(&after, 200, token.reveal()).expect("anna");
        assert_eq!((found.who.as_str(), found.role), ("anna", PageRole::Admin));
        assert_eq!(find(&after, 100 + SESSION_SECONDS, token.reveal()), None);
        assert_eq!(
            restored_sessions(Some(&json), 100 + SESSION_SECONDS).count(),
            0
        );
        assert_eq!(
            restored_sessions(Some(&json), 0).count(),
            0,
            "of a future clock"
        );
    }

    #[test]
    fn session_ends_at_once_when_its_password_line_changes() {
        let line = hash_password("anna", PageRole::Admin, "correct horse").expect("a line");
        let people = Passwords::parse(&line).expect("a file");
        let changed = Passwords::parse(&line.replace(":admin:", ":view:")).expect("a file");
        let open = Sessions::default();
        let token = open
            .open(1, "anna", PageRole::Admin, people.print("anna"))
            .expect("a session");
        let kept = open.to_json();
        assert!(open.find(2, token.reveal(), &people).is_some());
        let restored = Sessions::default();
        restored.take_up(&kept, 2, &people).expect("sessions");
        assert_eq!(restored.count(), 1);
        for other in [changed, Passwords::default()] {
            assert_eq!(open.find(2, token.reveal(), &other), None);
            let restored = Sessions::default();
            restored.take_up(&kept, 2, &other).expect("sessions");
            assert_eq!(restored.count(), 0);
        }
    }

    fn open_session(sessions: &Sessions, now: i64, who: &str) -> BrowserToken {
        sessions.open(now, who, PageRole::View, None).expect("one")
    }

    #[test]
    fn session_flood_ends_sessions_of_its_own_users_only() {
        let sessions = restored_sessions(None, 0);
        let anna = open_session(&sessions, 1, "anna");
        for n in 0..5_000 {
            open_session(&sessions, 2 + n, "bek");
        }
        assert_eq!(sessions.count(), 1 + SESSIONS_OF_ONE_MAX);
        assert!(find(&sessions, 5_002, anna.reveal()).is_some());
        for n in 0..2_000 {
            open_session(&sessions, 6_000, &format!("guest{n}"));
        }
        assert_eq!(sessions.count(), SESSIONS_MAX);
        assert!(
            find(&sessions, 6_001, anna.reveal()).is_some(),
            "older than most"
        );
    }

    #[test]
    fn logout_ends_the_session() {
        let sessions = restored_sessions(None, 0);
        let token = sessions
            .open(1, "anna", PageRole::View, None)
            .expect("a session");
        assert!(find(&sessions, 2, token.reveal()).is_some());
        assert!(find(&sessions, 2, "made up").is_none());
        sessions.end(token.reveal());
        assert!(find(&sessions, 2, token.reveal()).is_none());
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn invalid_session_list_is_refused() {
        let sessions = Sessions::default();
        assert!(sessions.take_up("[", 0, &Passwords::default()).is_err());
    }

    const NOW: Duration = Duration::from_secs(1000);

    fn token(path: &str) -> &str {
        path.strip_prefix("/open/").expect("a path of the page")
    }

    #[test]
    fn link_opens_once_and_within_a_minute() {
        let (links, now) = (Links::default(), Duration::from_secs(1000));
        let path = links.issue(now, "root", PageRole::Admin).expect("a link");
        let late = links.issue(now, "root", PageRole::View).expect("a link");
        let guest = links.take(now + LINK_LIVES / 2, token(&path));
        let guest = guest.expect("a guest");
        assert_eq!((guest.0.as_str(), guest.1), ("root", PageRole::Admin));
        assert_eq!(links.take(now, token(&path)), None, "once");
        assert_eq!(links.take(now + LINK_LIVES, token(&late)), None, "late");
        assert_eq!(links.take(now, "made up"), None);
    }

    #[test]
    fn link_check_uses_no_link_and_debug_shows_no_token() {
        let links = Links::default();
        let path = links.issue(NOW, "anna", PageRole::View).expect("a link");
        assert!(links.is_good(NOW, token(&path)) && links.is_good(NOW, token(&path)));
        assert!(!links.is_good(NOW, "made up"));
        assert!(!format!("{links:?}").contains(token(&path)));
        assert!(links.take(NOW, token(&path)).is_some());
        assert!(!links.is_good(NOW, token(&path)));
    }

    #[test]
    fn oldest_link_is_dropped_when_there_are_too_many() {
        let links = Links::default();
        let mut paths = Vec::new();
        for ms in 0..=100 {
            let now = Duration::from_millis(ms);
            paths.push(links.issue(now, "a", PageRole::View).expect("a link"));
        }
        let now = Duration::from_millis(100);
        assert_eq!(links.take(now, token(&paths[0])), None);
        assert!(links.take(now, token(&paths[1])).is_some());
    }
}
