//! Where the token comes from: a file that is read again when it changes, or a value for good.

use crate::secret::{ExposeSecret, Secret};
use crate::spool::TokenPrint;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Bytes of a token file; a longer one holds no token.
const FILE_MAX: u64 = 16 * 1024;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("--token-file {path}: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// Nothing in it.
    #[error("--token-file {0} is empty: put the token into it, on a line by itself")]
    Empty(PathBuf),
    /// More than a token, or bytes that no header carries.
    #[error(
        "--token-file {0} holds more than one line of visible ASCII: it must hold the token alone"
    )]
    NotAToken(PathBuf),
}

/// Where the token comes from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// `--token-file`, or the credential `token`: watched.
    File(PathBuf),
    /// `CALLBRIDGE_TOKEN`
    Fixed(Secret),
    /// None was given.
    Missing,
}

impl TokenSource {
    /// The token as it is now; `None` when none was given.
    ///
    /// # Errors
    /// The file's, as [`TokenError`] says.
    pub fn read(&self) -> Result<Option<Secret>, TokenError> {
        match self {
            Self::Fixed(token) => Ok(Some(token.clone())),
            Self::Missing => Ok(None),
            Self::File(path) => {
                let unreadable = |error: std::io::Error| TokenError::Unreadable {
                    path: path.clone(),
                    why: error.to_string(),
                };
                let file = File::open(path).map_err(unreadable)?;
                let mut text = String::new();
                file.take(FILE_MAX + 1)
                    .read_to_string(&mut text)
                    .map_err(unreadable)?;
                let token = text.trim();
                if token.is_empty() {
                    return Err(TokenError::Empty(path.clone()));
                }
                if token.len() as u64 > FILE_MAX || !token.bytes().all(|b| b.is_ascii_graphic()) {
                    return Err(TokenError::NotAToken(path.clone()));
                }
                Ok(Some(Secret::from(token)))
            }
        }
    }
}

/// The print by which a token is known in the spool.
pub fn print(token: &Secret) -> TokenPrint {
    TokenPrint::of(token.expose_secret())
}

/// What a look at the source gave.
#[derive(Debug)]
pub enum Look {
    /// As before.
    Same,
    /// This one from now on; `None` when there is none any more, and why.
    Changed(Option<Secret>, Option<TokenError>),
}

/// Looks again and again, and reads only what changed.
#[derive(Debug)]
pub struct Watch {
    source: TokenSource,
    seen: Option<Stamp>,
    current: Option<TokenPrint>,
    /// A look in which the file was gone or torn: it may be being written.
    doubted: bool,
}

/// A file's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Watch {
    /// A watch that has seen nothing yet.
    pub fn new(source: TokenSource) -> Self {
        Self {
            source,
            seen: None,
            current: None,
            doubted: true,
        }
    }

    /// Whether looking again can show anything new.
    pub fn is_worthwhile(&self) -> bool {
        matches!(self.source, TokenSource::File(_))
    }

    /// One look. A file that is gone or torn is believed at the second look alone.
    pub fn look(&mut self) -> Look {
        let stamp = match &self.source {
            TokenSource::File(path) => std::fs::metadata(path).ok().map(|it| Stamp::of(&it)),
            TokenSource::Fixed(_) | TokenSource::Missing => None,
        };
        if stamp.is_some() && stamp == self.seen && !self.doubted {
            return Look::Same;
        }
        match self.source.read() {
            Ok(token) => {
                self.seen = stamp;
                self.doubted = false;
                let print = token.as_ref().map(print);
                if print == self.current && print.is_some() {
                    return Look::Same;
                }
                self.current = print;
                Look::Changed(token, None)
            }
            Err(_) if !self.doubted => {
                self.doubted = true;
                Look::Same
            }
            Err(error) => {
                let first = self.current.take().is_some() || self.seen.is_none();
                self.seen = stamp.or(Some(Stamp {
                    inode: 0,
                    size: 0,
                    changed: (0, 0),
                }));
                if first {
                    Look::Changed(None, Some(error))
                } else {
                    Look::Same
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(watch: &mut Watch) -> Option<Option<String>> {
        match watch.look() {
            Look::Same => None,
            Look::Changed(token, _) => Some(token.map(|it| it.expose_secret().to_owned())),
        }
    }

    #[test]
    fn a_token_file_is_read_again_when_it_changes() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        std::fs::write(&path, "svc_pat_one\n").expect("written");
        let mut watch = Watch::new(TokenSource::File(path.clone()));
        assert_eq!(changed(&mut watch), Some(Some("svc_pat_one".to_owned())));
        assert_eq!(changed(&mut watch), None);
        let new = dir.path().join("new");
        std::fs::write(&new, "svc_pat_two").expect("written");
        std::fs::rename(&new, &path).expect("renamed");
        assert_eq!(changed(&mut watch), Some(Some("svc_pat_two".to_owned())));
        std::fs::write(&path, "").expect("written");
        assert_eq!(changed(&mut watch), None, "it may be being written");
        assert_eq!(changed(&mut watch), Some(None));
        assert_eq!(changed(&mut watch), None);
        std::fs::write(&path, "svc_pat_two").expect("written");
        assert_eq!(changed(&mut watch), Some(Some("svc_pat_two".to_owned())));
    }

    #[test]
    fn a_missing_or_wrong_file_is_told_once_and_then_waited_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("token");
        let mut watch = Watch::new(TokenSource::File(path.clone()));
        assert_eq!(changed(&mut watch), Some(None));
        assert_eq!(changed(&mut watch), None);
        std::fs::write(&path, "two words").expect("written");
        assert_eq!(changed(&mut watch), None);
        std::fs::write(&path, "svc_pat_one").expect("written");
        assert_eq!(changed(&mut watch), Some(Some("svc_pat_one".to_owned())));
    }

    #[test]
    fn no_token_shows_in_debug() {
        let source = TokenSource::Fixed(Secret::from("svc_pat_one"));
        let mut watch = Watch::new(source.clone());
        let look = watch.look();
        assert!(!format!("{source:?} {watch:?} {look:?}").contains("svc_pat"));
    }
}
