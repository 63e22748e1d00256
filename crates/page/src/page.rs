//! The page: its settings, the daemon behind it, and what a visit of somebody sees.

use crate::background::{CheckRun, Jobs};
use crate::shell::{Badges, PageShell, now_seconds};
use crate::{
    answer::Problem, backend::Backend, live::Live, passwords::HashMemory, request::Asked,
    sessions::Sessions, settings::Settings, throttle::LoginThrottle,
};
use callbridge_admin::Refusal;
use callbridge_model::status::HubStatus;
use callbridge_model::{Code, Reason, Status};
use hyper::StatusCode;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};

/// Sessions for whom something waits to be said.
const NOTICES_MAX: usize = 1000;

/// The page: made from its settings and the daemon, then served.
pub struct Page {
    pub(crate) settings: Settings,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sessions: Sessions,
    /// The name of a session's cookie: it parts two pages on one host, whose ports do not.
    pub(crate) cookie: String,
    pub(crate) throttle: Mutex<LoginThrottle>,
    /// Wakes the logins that wait for their turn when one has left.
    pub(crate) login_left: Notify,
    /// One password is hashed at a time, in one piece of memory.
    pub(crate) hashing: Arc<tokio::sync::Mutex<HashMemory>>,
    pub(crate) jobs: Jobs,
    pub(crate) checks: CheckRun,
    pub(crate) live: Live,
    /// By the hash of a session's token.
    pub(crate) notices: Mutex<BTreeMap<String, String>>,
    /// Says to what works in the background that it ends.
    pub(crate) close: watch::Sender<bool>,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A request of somebody who is logged in.
pub(crate) struct AuthenticatedRequest<'a> {
    pub(crate) page: &'a Page,
    pub(crate) asked: &'a Asked,
    pub(crate) shell: PageShell,
    /// The name by which the user's acts are signed.
    pub(crate) who: String,
    /// The hash of the session's token.
    pub(crate) session: String,
}

impl Page {
    /// Of these settings, before this daemon.
    pub fn new(settings: Settings, backend: Arc<dyn Backend>, sessions: Sessions) -> Self {
        let changes = backend.changes();
        let (close, closing) = watch::channel(false);
        let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let instance: String = settings.instance.chars().map(fit).collect();
        Self {
            sessions,
            cookie: format!("callbridge-{instance}"),
            throttle: Mutex::default(),
            login_left: Notify::new(),
            hashing: Arc::default(),
            settings,
            backend,
            jobs: Jobs::new(closing.clone()),
            checks: CheckRun::default(),
            live: Live::new(changes, closing),
            notices: Mutex::default(),
            close,
        }
    }

    /// Takes up the sessions of before.
    pub(crate) async fn take_up_sessions(&self) {
        let take_up = |kept: Option<String>| {
            let people = self.settings.people.borrow();
            let kept = kept.as_deref().unwrap_or("{}");
            let taken_up = self.sessions.take_up(kept, now_seconds(), &people);
            taken_up.map_err(|error| error.to_string())
        };
        let kept = self.backend.kept_sessions().await;
        let kept = kept.map_err(|refusal| refusal.words);
        if let Err(error) = kept.and_then(take_up) {
            tracing::warn!(error, "the page's sessions cannot be read: all log in anew");
        }
    }
}

impl AuthenticatedRequest<'_> {
    /// Reads the daemon's status, and from it what stands beside every page: a view that shows
    /// nothing else of it goes on without.
    pub(crate) async fn refresh_badges(&mut self) -> Result<Status, Refusal> {
        let status = self.page.backend.status().await?;
        if let Ok(missed) = self.page.backend.missed_count().await {
            self.shell.badges = Badges {
                missed,
                letters: status.dead_letter_count(),
                waiting: status.waiting_count(Reason::NoLead),
                silent: status.hub.as_ref().map(HubStatus::silent_branches),
            };
        }
        Ok(status)
    }

    /// Says something at the head of the next page that this browser asks for.
    pub(crate) fn say(&self, words: String) {
        let mut notices = (self.page.notices.lock()).unwrap_or_else(PoisonError::into_inner);
        if notices.len() >= NOTICES_MAX {
            notices.pop_first();
        }
        notices.insert(self.session.clone(), words);
    }
}

impl From<Refusal> for Problem {
    /// A refusal of the daemon as a page.
    fn from(refusal: Refusal) -> Self {
        let (status, title) = match Code::of_number(refusal.code) {
            Code::Usage => (StatusCode::UNPROCESSABLE_ENTITY, "problem.input"),
            Code::Input | Code::NoInput => (StatusCode::NOT_FOUND, "problem.unknown"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "problem.unavailable"),
        };
        Self::new(status, title, refusal.words)
    }
}
