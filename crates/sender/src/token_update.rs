//! Updates from a keeper, which renews tokens for the sender. A keeper is either a connection
//! that's refreshed or a command that prints a token. It reports every change, as well as the
//! reason if there's no token.

use crate::status::{SenderStatus, TOKEN_MISSING, TOKEN_REFUSED};
use callbridge_call::EpochSeconds;
use callbridge_model::status::Pause;
use callbridge_model::{ExposeSecret as _, Secret, TokenFingerprint};

/// The current token and the previous one.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// Used for all requests.
    pub current: Secret,
    /// The previous token, with its expiry. Its requestIds can't be read with any other token
    /// (§4.6).
    pub previous: Option<(Secret, EpochSeconds)>,
    /// The company that the tokens must belong to (`connect --company`), or `None` for any.
    pub company: Option<i64>,
}

/// The current and previous tokens' fingerprints.
pub type TokenPrints = (TokenFingerprint, Option<TokenFingerprint>);

/// Returns the fingerprint by which the spool recognizes a token.
pub fn print(token: &Secret) -> TokenFingerprint {
    TokenFingerprint::of(token.expose_secret())
}

impl Tokens {
    /// Returns the fingerprints, the current token's first.
    pub fn prints(&self) -> TokenPrints {
        let previous = self.previous.as_ref().map(|(token, _)| print(token));
        (print(&self.current), previous)
    }

    /// Wraps a single token, without a previous one.
    pub const fn one(current: Secret) -> Self {
        Self {
            current,
            previous: None,
            company: None,
        }
    }
}

/// An update from the tokens' keeper to the sender.
#[derive(Clone, Debug, Default)]
pub struct TokenUpdate {
    /// `None` while no token can be used.
    pub tokens: Option<Tokens>,
    /// Why no new token can be obtained, although the last one may still be in use. If no token can
    /// be used, this is the pause: `reconnect`, `client_refused`, `unreachable`, or
    /// `token_missing`.
    pub trouble: Option<Pause>,
    /// How to fix a token that the CRM refuses, shown instead of advice about `--token-file`. Empty
    /// until the keeper has sent an update.
    pub fix: String,
}

/// State of a connection that an administrator must consent to again.
pub const RECONNECT: &str = "reconnect";
/// State of an OAuth client that the CRM refuses, so that no refresh succeeds. Either the client's
/// secret is wrong or the company is blocked.
pub const CLIENT_REFUSED: &str = "client_refused";

/// Returns `true` if the problem can only be fixed manually. Such a problem is shown even before
/// the last token expires.
fn needs_person(trouble: &Pause) -> bool {
    matches!(trouble.reason.as_str(), RECONNECT | CLIENT_REFUSED)
}

impl TokenUpdate {
    /// Adds the keeper's problem and fix to a status. A lost connection is shown as soon as it's
    /// known, even though its last token may remain valid for a while.
    pub fn adorn(&self, status: &mut SenderStatus) {
        let trouble = self.trouble.as_ref();
        if let Some(trouble) = trouble.filter(|trouble| needs_person(trouble)) {
            status.token.state.clone_from(&trouble.reason);
        }
        let Some(pause) = &mut status.pause else {
            return;
        };
        let missing = pause.reason == TOKEN_MISSING;
        // Just after startup, the keeper may not have reported yet, or the sender may not have
        // picked up its token.
        if missing && trouble.is_none() && (self.tokens.is_some() || self.fix.is_empty()) {
            status.pause = None;
            status.token.state = "unknown".to_owned();
            return;
        }
        let refused = pause.reason == TOKEN_REFUSED;
        match trouble {
            Some(trouble) if missing || (refused && needs_person(trouble)) => {
                pause.clone_from(trouble);
            }
            _ if (missing || refused) && !self.fix.is_empty() => pause.fix.clone_from(&self.fix),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::UNREACHABLE;

    fn paused_status(reason: &str) -> SenderStatus {
        SenderStatus {
            pause: Some(Pause {
                reason: reason.to_owned(),
                fix: "as the sender says".to_owned(),
            }),
            ..SenderStatus::default()
        }
    }

    fn adorned_pause(update: &TokenUpdate, reason: &str) -> (String, String) {
        let mut status = paused_status(reason);
        update.adorn(&mut status);
        let pause = status.pause.expect("a pause");
        (pause.reason, pause.fix)
    }

    #[test]
    fn reconnect_is_pause_reason_without_valid_token() {
        let update = TokenUpdate {
            trouble: Some(Pause::new(RECONNECT, "callbridge connect")),
            ..TokenUpdate::default()
        };
        let over = (RECONNECT.to_owned(), "callbridge connect".to_owned());
        assert_eq!(adorned_pause(&update, TOKEN_MISSING), over);
        assert_eq!(adorned_pause(&update, TOKEN_REFUSED), over);
        assert_eq!(
            adorned_pause(&update, UNREACHABLE).0,
            "unreachable",
            "it has its own"
        );
        let mut status = SenderStatus::default();
        update.adorn(&mut status);
        assert_eq!(status.token.state, RECONNECT);
        assert_eq!(status.pause, None, "the last token may still be good");
    }

    #[test]
    fn token_is_unknown_not_missing_before_the_keeper_reports() {
        let mut status = paused_status(TOKEN_MISSING);
        status.token.state = "missing".to_owned();
        TokenUpdate::default().adorn(&mut status);
        assert_eq!((status.pause, &*status.token.state), (None, "unknown"));
        let fix_only = TokenUpdate {
            fix: "it is run again".to_owned(),
            ..TokenUpdate::default()
        };
        assert_eq!(adorned_pause(&fix_only, TOKEN_MISSING).0, "token_missing");
        let given = TokenUpdate {
            tokens: Some(Tokens::one(Secret::from("svc_at_now"))),
            ..fix_only
        };
        let mut status = paused_status(TOKEN_MISSING);
        given.adorn(&mut status);
        assert_eq!(status.pause, None, "it is there, though not yet taken up");
        let mut status = paused_status(UNREACHABLE);
        TokenUpdate::default().adorn(&mut status);
        assert_eq!(status.pause.expect("a pause").reason, "unreachable");
    }

    #[test]
    fn refused_client_is_reported_before_the_last_token_expires() {
        let update = TokenUpdate {
            trouble: Some(Pause::new(CLIENT_REFUSED, "blocked, or the secret")),
            ..TokenUpdate::default()
        };
        let named = (
            CLIENT_REFUSED.to_owned(),
            "blocked, or the secret".to_owned(),
        );
        assert_eq!(adorned_pause(&update, TOKEN_MISSING), named);
        assert_eq!(adorned_pause(&update, TOKEN_REFUSED), named);
        let mut status = SenderStatus::default();
        update.adorn(&mut status);
        assert_eq!(status.token.state, CLIENT_REFUSED);
    }

    #[test]
    fn authority_outage_keeps_token_refused_pause_reason() {
        let update = TokenUpdate {
            trouble: Some(Pause::new(UNREACHABLE, "no way there")),
            fix: "it is being refreshed".to_owned(),
            ..TokenUpdate::default()
        };
        assert_eq!(adorned_pause(&update, TOKEN_MISSING).0, "unreachable");
        let (reason, fix) = adorned_pause(&update, TOKEN_REFUSED);
        assert_eq!(reason, "token_refused");
        assert_eq!(fix, "it is being refreshed");
    }

    #[test]
    fn debug_output_contains_no_token() {
        let tokens = Tokens {
            previous: Some((Secret::from("svc_at_before"), EpochSeconds::new(1))),
            ..Tokens::one(Secret::from("svc_at_now"))
        };
        let update = TokenUpdate {
            tokens: Some(tokens),
            ..TokenUpdate::default()
        };
        assert!(!format!("{update:?}").contains("svc_at"));
    }
}
