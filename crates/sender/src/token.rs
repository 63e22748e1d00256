//! The token's source: a file that's reloaded when it changes, a fixed value, or a keeper that
//! renews the token ([`super::token_update`]).

use crate::token_update::{TokenPrints, TokenUpdate, Tokens};
use callbridge_model::{FileVersion, Secret, is_token};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use tokio::sync::watch;

/// Maximum size of a token file in bytes.
const FILE_MAX: u64 = 16 * 1024;

/// Reasons why a token file doesn't provide a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("--token-file {0} is not there: put the token into it, on its own line")]
    Missing(PathBuf),
    /// The file can't be read. Includes the system's message.
    #[error("--token-file {0}: {1}; give callbridge's user the right to read it")]
    Unreadable(PathBuf, String),
    #[error("--token-file {0} is empty: put the token into it, on its own line")]
    Empty(PathBuf),
    /// The file holds more than a token, or bytes that aren't allowed in a header.
    #[error(
        "--token-file {0} holds more than one line of visible ASCII: it must hold only the token"
    )]
    NotAToken(PathBuf),
}

/// Where the token comes from, depending on flags and environment variables.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// `--token-file` or the `token` credential, which is watched for changes.
    File(PathBuf),
    /// The value of `CALLBRIDGE_TOKEN`, which never changes.
    Fixed(Secret),
    /// A connection made by consent, or `--token-command`. Its keeper reports each change.
    Kept(watch::Receiver<TokenUpdate>),
    /// Neither a flag nor an environment variable provides a token.
    Missing,
}

impl TokenSource {
    /// Returns the current token, or `None` if none was given.
    ///
    /// # Errors
    /// Returns an error if the token's file is missing or doesn't hold a valid token.
    pub fn read(&self) -> Result<Option<Tokens>, TokenError> {
        match self {
            Self::Fixed(token) => Ok(Some(Tokens::one(token.clone()))),
            Self::Kept(updates) => Ok(updates.borrow().tokens.clone()),
            Self::Missing => Ok(None),
            Self::File(path) => {
                let bytes = read_start(path).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => TokenError::Missing(path.clone()),
                    _ => TokenError::Unreadable(path.clone(), error.to_string()),
                })?;
                let text =
                    String::from_utf8(bytes).map_err(|_| TokenError::NotAToken(path.clone()))?;
                // Some editors put a byte order mark in front of the text.
                let token = text.trim_start_matches('\u{feff}').trim();
                if token.is_empty() {
                    return Err(TokenError::Empty(path.clone()));
                }
                if token.len() as u64 > FILE_MAX || !is_token(token) {
                    return Err(TokenError::NotAToken(path.clone()));
                }
                Ok(Some(Tokens::one(Secret::from(token))))
            }
        }
    }
}

/// Reads a file up to one byte past [`FILE_MAX`], so that a file that's too large can be
/// recognized.
fn read_start(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_MAX + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[derive(Debug)]
pub enum TokenCheck {
    Same,
    /// The file exists but can't be read, so the previous token stays in use.
    Kept(TokenError),
    /// The token to use from now on, or `None` if there no longer is one, with the reason.
    Changed(Option<Tokens>, Option<TokenError>),
}

/// Checks the token's source repeatedly, reading a file only if it has changed.
#[derive(Debug)]
pub struct Watch {
    source: TokenSource,
    seen: Option<FileVersion>,
    /// Fingerprints of the current and previous tokens at the last check.
    current: Option<TokenPrints>,
    /// Whether the last check found the file missing or incomplete, so that it may be in the middle
    /// of being written.
    doubted: bool,
    /// Whether the log already warns that the file can't be read.
    reported: bool,
}

impl Watch {
    /// Creates a watch that hasn't checked anything yet.
    pub fn new(source: TokenSource) -> Self {
        Self {
            source,
            seen: None,
            current: None,
            doubted: true,
            reported: false,
        }
    }

    /// Returns `true` if the source must be checked regularly, since only a file can change without
    /// telling us.
    pub fn is_worthwhile(&self) -> bool {
        matches!(self.source, TokenSource::File(_))
    }

    /// Completes when the token's keeper has reported a change, or never if there's no keeper.
    pub async fn changed(&mut self) {
        // An error means that the keeper has ended, in which case the process is ending too.
        if let TokenSource::Kept(updates) = &mut self.source
            && updates.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// Returns the keeper's latest update, or `None` without a keeper.
    pub fn keeper_update(&self) -> Option<TokenUpdate> {
        match &self.source {
            TokenSource::Kept(updates) => Some(updates.borrow().clone()),
            TokenSource::File(_) | TokenSource::Fixed(_) | TokenSource::Missing => None,
        }
    }

    /// Checks once. A missing or incomplete file doesn't count until the second check, because it
    /// may be in the middle of being written.
    pub fn check(&mut self) -> TokenCheck {
        let version = match &self.source {
            TokenSource::File(path) => std::fs::metadata(path)
                .ok()
                .map(|file| FileVersion::from_metadata(&file)),
            TokenSource::Fixed(_) | TokenSource::Kept(_) | TokenSource::Missing => None,
        };
        if version.is_some() && version == self.seen && !self.doubted {
            return TokenCheck::Same;
        }
        match self.source.read() {
            Ok(token) => {
                self.seen = version;
                self.doubted = false;
                self.reported = false;
                let prints = token.as_ref().map(Tokens::prints);
                if prints == self.current && prints.is_some() {
                    return TokenCheck::Same;
                }
                self.current = prints;
                TokenCheck::Changed(token, None)
            }
            Err(_) if !self.doubted => {
                self.doubted = true;
                TokenCheck::Same
            }
            Err(error @ TokenError::Unreadable { .. }) if self.current.is_some() => {
                if std::mem::replace(&mut self.reported, true) {
                    TokenCheck::Same
                } else {
                    TokenCheck::Kept(error)
                }
            }
            Err(error) => {
                let first = self.current.take().is_some() || self.seen.is_none();
                self.seen = version.or(Some(FileVersion::default()));
                if first {
                    TokenCheck::Changed(None, Some(error))
                } else {
                    TokenCheck::Same
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::ExposeSecret as _;

    fn changed_token(watch: &mut Watch) -> Option<Option<String>> {
        match watch.check() {
            TokenCheck::Same | TokenCheck::Kept(_) => None,
            TokenCheck::Changed(token, _) => {
                Some(token.map(|tokens| tokens.current.expose_secret().to_owned()))
            }
        }
    }

    #[test]
    fn token_file_is_read_again_when_it_changes() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        std::fs::write(&path, "svc_pat_one\n").expect("written");
        let mut watch = Watch::new(TokenSource::File(path.clone()));
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_pat_one".to_owned()))
        );
        assert_eq!(changed_token(&mut watch), None);
        let new = dir.path().join("new");
        std::fs::write(&new, "svc_pat_two").expect("written");
        std::fs::rename(&new, &path).expect("renamed");
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_pat_two".to_owned()))
        );
        std::fs::write(&path, "").expect("written");
        assert_eq!(changed_token(&mut watch), None, "it may be being written");
        assert_eq!(changed_token(&mut watch), Some(None));
        assert_eq!(changed_token(&mut watch), None);
        std::fs::write(&path, "svc_pat_two").expect("written");
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_pat_two".to_owned()))
        );
    }

    #[test]
    fn token_file_is_trimmed_and_invalid_content_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        for bytes in [
            &b"svc_pat_one"[..],
            b"svc_pat_one\n",
            b"svc_pat_one\r\n",
            b"\xef\xbb\xbfsvc_pat_one",
            b"\xef\xbb\xbfsvc_pat_one\r\n\r\n",
            b"\n \tsvc_pat_one \n",
        ] {
            std::fs::write(&path, bytes).expect("written");
            let token = TokenSource::File(path.clone()).read().expect("a token");
            assert_eq!(
                token.expect("a token").current.expose_secret(),
                "svc_pat_one",
                "{bytes:?}"
            );
        }
        for bytes in [
            &b"\xff\xfes\0v\0c\0"[..],
            b"one\ntwo",
            b"one two",
            b"t\0ken",
            &[b'x'; 20_000],
        ] {
            std::fs::write(&path, bytes).expect("written");
            let error = TokenSource::File(path.clone())
                .read()
                .expect_err("no token");
            assert!(matches!(error, TokenError::NotAToken(_)), "{bytes:?}");
        }
        for bytes in [&b""[..], b"\n", b"\xef\xbb\xbf\r\n", b"  \t"] {
            std::fs::write(&path, bytes).expect("written");
            let error = TokenSource::File(path.clone())
                .read()
                .expect_err("no token");
            assert!(matches!(error, TokenError::Empty(_)), "{bytes:?}");
        }
    }

    #[test]
    fn unreadable_token_file_keeps_the_current_token() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        std::fs::write(&path, "svc_pat_one").expect("written");
        let mut watch = Watch::new(TokenSource::File(path.clone()));
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_pat_one".to_owned()))
        );
        // Root can read anything except a directory.
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder");
        assert!(
            matches!(watch.check(), TokenCheck::Same),
            "it may be being written"
        );
        assert!(matches!(
            watch.check(),
            TokenCheck::Kept(TokenError::Unreadable { .. })
        ));
        assert!(matches!(watch.check(), TokenCheck::Same), "said once");
        std::fs::remove_dir(&path).expect("removed");
        std::fs::write(&path, "svc_pat_one").expect("written");
        assert_eq!(changed_token(&mut watch), None, "the same again");
        std::fs::write(&path, "svc_pat_two").expect("written");
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_pat_two".to_owned()))
        );
        let mut unread = Watch::new(TokenSource::File(dir.path().to_owned()));
        assert_eq!(
            changed_token(&mut unread),
            Some(None),
            "there was none to keep"
        );
    }

    #[test]
    fn missing_or_invalid_token_file_is_reported_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        let mut watch = Watch::new(TokenSource::File(path.clone()));
        assert_eq!(changed_token(&mut watch), Some(None));
        assert_eq!(changed_token(&mut watch), None);
        std::fs::write(&path, "two words").expect("written");
        assert_eq!(changed_token(&mut watch), None);
        std::fs::write(&path, "svc_pat_one").expect("written");
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_pat_one".to_owned()))
        );
    }

    fn send_tokens(keeper: &watch::Sender<TokenUpdate>, tokens: Option<Tokens>) {
        keeper.send_replace(TokenUpdate {
            tokens,
            ..TokenUpdate::default()
        });
    }

    #[test]
    fn keeper_token_update_is_reported_once() {
        let (keeper, reported) = watch::channel(TokenUpdate::default());
        let mut watch = Watch::new(TokenSource::Kept(reported));
        assert_eq!(changed_token(&mut watch), Some(None));
        let one = Tokens::one(Secret::from("svc_at_one"));
        send_tokens(&keeper, Some(one.clone()));
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_at_one".to_owned()))
        );
        assert_eq!(changed_token(&mut watch), None);
        send_tokens(&keeper, Some(one.clone()));
        assert_eq!(changed_token(&mut watch), None, "the same again");
        let end = callbridge_call::EpochSeconds::new(7);
        send_tokens(
            &keeper,
            Some(Tokens {
                previous: Some((one.current, end)),
                ..Tokens::one(Secret::from("svc_at_two"))
            }),
        );
        assert_eq!(
            changed_token(&mut watch),
            Some(Some("svc_at_two".to_owned()))
        );
        send_tokens(&keeper, None);
        assert_eq!(changed_token(&mut watch), Some(None));
    }

    #[test]
    fn debug_output_contains_no_token() {
        let source = TokenSource::Fixed(Secret::from("svc_pat_one"));
        let mut watch = Watch::new(source.clone());
        let look = watch.check();
        assert!(!format!("{source:?} {watch:?} {look:?}").contains("svc_pat"));
    }
}
