//! How long what is given out lives, and the application of the flags.

use super::application::Application;
use super::state::{CODE_LIFE, REFRESH_LIFE};
use crate::token::ACCESS_SECONDS;
use std::time::Duration;

/// Settings of the OAuth part.
#[derive(Clone, Debug)]
pub struct OauthSettings {
    /// `expires_in`; an hour, or less for trials.
    pub access_life: Duration,
    /// Of a refresh token.
    pub refresh_life: Duration,
    /// Of an authorization code.
    pub code_life: Duration,
    /// Mixed into new values.
    pub salt: u128,
    /// The application to begin with.
    pub application: Option<Application>,
}

impl Default for OauthSettings {
    fn default() -> Self {
        Self {
            access_life: Duration::from_secs(ACCESS_SECONDS.unsigned_abs()),
            refresh_life: REFRESH_LIFE,
            code_life: CODE_LIFE,
            salt: 0,
            application: None,
        }
    }
}
