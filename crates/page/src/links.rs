//! The links of `callbridge page`: whoever holds one opens a session, once, within a minute.
//! Looking at it (a preview, a prefetch) burns nothing.

use crate::random::{self, BrowserToken};
use callbridge_admin::PageRole;
use callbridge_model::clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A link lives so long.
pub const LINK_LIVES: Duration = Duration::from_secs(60);
/// Links at a time; the oldest makes room.
const LINKS_MAX: usize = 100;

/// The person that a link lets in, until it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    pub(crate) who: String,
    pub(crate) role: PageRole,
    /// As long as the link is good, in time since boot.
    until: Duration,
}

/// The links that are out. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<BTreeMap<String, Guest>>>);

impl Links {
    /// A link for `who` (as what they do will be signed: a Unix user). Its path on the page:
    /// `/open/TOKEN`; `None` where the system gives no random bytes.
    pub fn issue(&self, who: &str, role: PageRole) -> Option<String> {
        self.issue_at(clock::now().boot, who, role)
    }

    fn issue_at(&self, now: Duration, who: &str, role: PageRole) -> Option<String> {
        let token = BrowserToken::new()?;
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, issued| issued.until > now);
        if links.len() >= LINKS_MAX {
            let oldest = links.iter().min_by_key(|(_, issued)| issued.until);
            if let Some(oldest) = oldest.map(|(hash, _)| hash.clone()) {
                links.remove(&oldest);
            }
        }
        let guest = Guest {
            who: who.to_owned(),
            role,
            until: now + LINK_LIVES,
        };
        links.insert(random::hash(token.reveal()), guest);
        Some(format!("/open/{}", token.reveal()))
    }

    /// Is it good still? Nothing changes.
    pub(crate) fn is_good(&self, token: &str) -> bool {
        let now = clock::now().boot;
        let links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let issued = links.get(&random::hash(token));
        issued.is_some_and(|issued| issued.until > now)
    }

    /// Takes the link away, and returns the person that it lets in; `None` where it has expired or
    /// was used.
    pub(crate) fn take(&self, token: &str) -> Option<Guest> {
        self.take_at(clock::now().boot, token)
    }

    fn take_at(&self, now: Duration, token: &str) -> Option<Guest> {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let guest = links.remove(&random::hash(token))?;
        (guest.until > now).then_some(guest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(path: &str) -> &str {
        path.strip_prefix("/open/").expect("a path of the page")
    }

    #[test]
    fn a_link_opens_once_and_within_a_minute() {
        let (links, now) = (Links::default(), Duration::from_secs(1000));
        let path = links
            .issue_at(now, "root", PageRole::Admin)
            .expect("a link");
        let late = links.issue_at(now, "root", PageRole::View).expect("a link");
        let guest = links.take_at(now + LINK_LIVES / 2, token(&path));
        let guest = guest.expect("a guest");
        assert_eq!((guest.who.as_str(), guest.role), ("root", PageRole::Admin));
        assert_eq!(links.take_at(now, token(&path)), None, "once");
        assert_eq!(links.take_at(now + LINK_LIVES, token(&late)), None, "late");
        assert_eq!(links.take_at(now, "made up"), None);
    }

    #[test]
    fn looking_burns_nothing_and_no_token_is_kept_or_printed() {
        let links = Links::default();
        let path = links.issue("anna", PageRole::View).expect("a link");
        assert!(links.is_good(token(&path)) && links.is_good(token(&path)));
        assert!(!links.is_good("made up"));
        assert!(!format!("{links:?}").contains(token(&path)));
        assert!(links.take(token(&path)).is_some());
        assert!(!links.is_good(token(&path)));
    }

    #[test]
    fn more_links_than_there_is_room_for_push_out_the_oldest() {
        let links = Links::default();
        let at = |n: u64| Duration::from_millis(n);
        let first = links.issue_at(at(0), "a", PageRole::View).expect("a link");
        let second = links.issue_at(at(1), "a", PageRole::View).expect("a link");
        for n in 2..=100 {
            links.issue_at(at(n), "a", PageRole::View).expect("a link");
        }
        assert_eq!(links.take_at(at(100), token(&first)), None);
        assert!(links.take_at(at(100), token(&second)).is_some());
    }
}
