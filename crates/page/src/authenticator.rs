//! Who is logged in, who may try to, and how fast.

use crate::passwords::{HashMemory, Passwords};
use crate::request::Asked;
use crate::sessions::{LoggedIn, SESSION_SECONDS, Sessions};
use crate::shell::now_seconds;
use crate::throttle::{LoginThrottle, LoginTry};
use callbridge_model::clock;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The login of the page: open sessions, the throttle of tries, and the hashing of passwords.
pub(crate) struct Authenticator {
    pub(crate) sessions: Sessions,
    throttle: Mutex<LoginThrottle>,
    /// One password is hashed at a time, in one piece of memory.
    pub(crate) hashing: Arc<tokio::sync::Mutex<HashMemory>>,
    /// The cookie's name: it parts two pages on one host, whose ports do not.
    cookie: String,
}

impl Authenticator {
    pub(crate) fn new(instance: &str) -> Self {
        let fit = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let instance: String = instance.chars().map(fit).collect();
        Self {
            sessions: Sessions::default(),
            throttle: Mutex::default(),
            hashing: Arc::default(),
            cookie: format!("callbridge-{instance}"),
        }
    }

    /// Returns the token and the session of the first cookie that belongs to an open session.
    pub(crate) fn whose<'a>(
        &self,
        asked: &'a Asked,
        people: &Passwords,
    ) -> Option<(&'a str, LoggedIn)> {
        let now = now_seconds();
        let mut tokens = asked.cookies(&self.cookie);
        tokens.find_map(|token| Some((token, self.sessions.find(now, token, people)?)))
    }

    pub(crate) fn enter(&self, asked: &Asked, name: &str) -> (LoginTry, Duration) {
        let now = clock::now().boot;
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.enter(now, asked.from, name)
    }

    pub(crate) fn forgive(&self, right: &LoginTry) {
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.forgive(right);
    }

    pub(crate) fn set_cookie(&self, token: &str) -> String {
        let life = if token.is_empty() { 0 } else { SESSION_SECONDS };
        format!(
            "{}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}",
            self.cookie
        )
    }
}
