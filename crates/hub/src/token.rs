//! Branch tokens, which are 256 random bits. The state keeps only their SHA-256 hashes.

use callbridge_call::EpochSeconds;
use callbridge_model::{ExposeSecret as _, Secret, is_token};
use callbridge_spool::{Error, Handle, tables};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock};
use subtle::ConstantTimeEq as _;

/// The prefix by which people and secret scanners recognize a token.
const PREFIX: &str = "cbh_";
/// Number of random bytes in a token.
const BYTES: usize = 32;

/// Creates a token, or returns `None` if the system provides no random bytes.
pub fn new_token() -> Option<Secret> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(Secret::from(format!("{PREFIX}{}", hex(&bytes))))
}

/// Returns the hash of a token, or `None` if it can be guessed.
pub fn strong_hash(token: &Secret) -> Option<String> {
    is_strong(token).then(|| hash(token))
}

/// Returns `true` if a token looks like one from [`new_token`] and isn't a simple pattern, so that
/// it can't be guessed. A random token practically always has more than eight different digits.
fn is_strong(token: &Secret) -> bool {
    let Some(digits) = token.expose_secret().strip_prefix(PREFIX) else {
        return false;
    };
    let different: BTreeSet<u8> = digits.bytes().collect();
    digits.len() == 2 * BYTES
        && different.len() > 8
        && digits
            .bytes()
            .all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
}

/// Creates a random ID for a hub's incarnation or a collector's state, which no other state shares.
pub fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Returns a token's SHA-256 hash, as kept in the state.
pub fn hash(token: &Secret) -> String {
    hex(digest(&SHA256, token.expose_secret().as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a `String` can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A branch that can send calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownBranch {
    pub name: String,
    pub pbxs: BTreeSet<String>,
    token: String,
    previous: Option<(String, EpochSeconds)>,
}

/// The stored branches, kept in memory so that a request with an unknown token never reaches the
/// spool.
#[derive(Debug, Default)]
pub struct BranchTable {
    all: RwLock<Arc<Vec<Arc<KnownBranch>>>>,
}

impl BranchTable {
    /// Reloads the branches, which is done at startup and whenever a branch changes.
    ///
    /// # Errors
    /// Returns an error if the spool can't be read.
    pub async fn reload(&self, spool: &Handle) -> Result<(), Error> {
        let branches = spool
            .read(|store| tables::branches::branches(store))
            .await?;
        let mut all = Vec::with_capacity(branches.len());
        for branch in branches {
            all.push(Arc::new(KnownBranch {
                name: branch.name,
                pbxs: branch.pbxs.into_iter().collect(),
                token: branch.token,
                previous: branch.previous,
            }));
        }
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
        Ok(())
    }

    /// Finds a token's branch, or returns `None` if no branch has this token. How long this takes
    /// depends only on the number of branches.
    pub fn find(&self, token: &Secret, now: EpochSeconds) -> Option<Arc<KnownBranch>> {
        if !is_token(token.expose_secret()) {
            return None;
        }
        let all = Arc::clone(&self.all.read().unwrap_or_else(PoisonError::into_inner));
        let hash = hash(token);
        let mut found = None;
        for branch in all.iter() {
            let is_current = is_same(&branch.token, &hash);
            let is_previous = match &branch.previous {
                Some((previous, until)) => is_same(previous, &hash) && now < *until,
                None => false,
            };
            if is_current || is_previous {
                found = Some(Arc::clone(branch));
            }
        }
        found
    }
}

fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(branches: Vec<KnownBranch>) -> BranchTable {
        BranchTable {
            all: RwLock::new(Arc::new(branches.into_iter().map(Arc::new).collect())),
        }
    }

    fn branch(name: &str, token: &Secret) -> KnownBranch {
        KnownBranch {
            name: name.to_owned(),
            pbxs: BTreeSet::new(),
            token: hash(token),
            previous: None,
        }
    }

    fn branch_of_token(table: &BranchTable, token: &Secret, at: i64) -> Option<String> {
        let branch = table.find(token, EpochSeconds::new(at))?;
        Some(branch.name.clone())
    }

    #[test]
    fn new_token_is_random_and_not_shown_in_debug_output() {
        let (one, other) = (new_token().expect("random"), new_token().expect("random"));
        assert_ne!(one.expose_secret(), other.expose_secret());
        assert_eq!(one.expose_secret().len(), PREFIX.len() + 2 * BYTES);
        assert!(!format!("{one:?}").contains(one.expose_secret()));
    }

    #[test]
    fn token_is_strong_only_if_it_is_random() {
        let token = new_token().expect("random");
        assert!(is_strong(&token));
        let text = token.expose_secret();
        let zeros = format!("{PREFIX}{}", "0".repeat(2 * BYTES));
        let pattern = format!("{PREFIX}{}", "01234567".repeat(8));
        let upper = format!("{PREFIX}{}", text[PREFIX.len()..].to_uppercase());
        for weak in [
            "",
            "secret",
            &text[1..],
            &text[..40],
            &zeros,
            &pattern,
            &upper,
        ] {
            assert!(!is_strong(&Secret::from(weak)), "{weak}");
        }
    }

    /// The state keeps this text, so any other format would invalidate all branch tokens.
    #[test]
    fn token_hash_is_the_sha256_in_lowercase_hex() {
        // The SHA-256 example in FIPS 180-2, appendix B.1.
        assert_eq!(
            hash(&Secret::from("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn previous_token_is_valid_until_it_expires() {
        let (old, new) = (new_token().expect("random"), new_token().expect("random"));
        let rotated = KnownBranch {
            previous: Some((hash(&old), EpochSeconds::new(100))),
            ..branch("samarkand", &new)
        };
        let table = table(vec![branch("tashkent", &Secret::from("t")), rotated]);
        assert_eq!(
            branch_of_token(&table, &new, 200).as_deref(),
            Some("samarkand")
        );
        assert_eq!(
            branch_of_token(&table, &old, 99).as_deref(),
            Some("samarkand")
        );
        assert_eq!(branch_of_token(&table, &old, 100), None);
        assert_eq!(branch_of_token(&table, &Secret::from(""), 0), None);
    }
}
