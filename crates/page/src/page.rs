//! The page's shared state, and a logged-in user's request.

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

/// Maximum number of sessions with a notice that hasn't been shown yet.
const NOTICES_MAX: usize = 1000;

/// The page's settings and state, and the daemon behind it.
pub struct Page {
    pub(crate) settings: Settings,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sessions: Sessions,
    /// The session cookie's name. It contains the instance, because browsers share cookies between
    /// a host's ports.
    pub(crate) cookie: String,
    pub(crate) throttle: Mutex<LoginThrottle>,
    /// Wakes the logins that are waiting for their turn when another login has ended.
    pub(crate) login_left: Notify,
    /// Memory for hashing. Its lock ensures that only one password is hashed at a time.
    pub(crate) hashing: Arc<tokio::sync::Mutex<HashMemory>>,
    pub(crate) jobs: Jobs,
    pub(crate) checks: CheckRun,
    pub(crate) live: Live,
    /// Notices for the next page, by the hash of the session's token.
    pub(crate) notices: Mutex<BTreeMap<String, String>>,
    /// Ends the background work and the streams when it becomes true.
    pub(crate) close: watch::Sender<bool>,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A logged-in user's request.
pub(crate) struct AuthenticatedRequest<'a> {
    pub(crate) page: &'a Page,
    pub(crate) asked: &'a Asked,
    pub(crate) shell: PageShell,
    /// The name under which the user's actions are recorded.
    pub(crate) who: String,
    /// The hash of the session's token.
    pub(crate) session: String,
}

impl Page {
    /// Creates a page with these settings for this daemon.
    pub fn new(settings: Settings, backend: Arc<dyn Backend>, sessions: Sessions) -> Self {
        let changes = backend.changes();
        let (close, closing) = watch::channel(false);
        let instance = settings
            .instance
            .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
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

    /// Restores the sessions stored before a restart.
    pub(crate) async fn take_up_sessions(&self) {
        let taken_up = match self.backend.kept_sessions().await {
            Ok(kept) => self.take_up(kept.as_deref().unwrap_or("{}")),
            Err(refusal) => Err(refusal.message),
        };
        if let Err(error) = taken_up {
            tracing::warn!(
                error,
                "the page's sessions cannot be read: all users must log in again"
            );
        }
    }

    fn take_up(&self, kept: &str) -> Result<(), String> {
        let people = self.settings.people.borrow();
        let taken_up = self.sessions.take_up(kept, now_seconds(), &people);
        taken_up.map_err(|error| error.to_string())
    }
}

impl AuthenticatedRequest<'_> {
    /// Reads the daemon's status, and updates the counts in the navigation from it. If this fails,
    /// a view that doesn't need the status can still be shown.
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

    /// Sets the notice to show on this session's next page.
    pub(crate) fn set_notice(&self, message: String) {
        let mut notices = (self.page.notices.lock()).unwrap_or_else(PoisonError::into_inner);
        if notices.len() >= NOTICES_MAX {
            notices.pop_first();
        }
        notices.insert(self.session.clone(), message);
    }
}

impl From<Refusal> for Problem {
    /// Shows a refusal by the daemon as a page.
    fn from(refusal: Refusal) -> Self {
        let (status, title) = match Code::of_number(refusal.code) {
            Code::Usage => (StatusCode::UNPROCESSABLE_ENTITY, "problem.input"),
            Code::Input | Code::NoInput => (StatusCode::NOT_FOUND, "problem.unknown"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "problem.unavailable"),
        };
        Self::new(status, title, refusal.message)
    }
}
