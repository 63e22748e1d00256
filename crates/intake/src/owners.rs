//! Whose each PBX is whose calls come as messages: the broker's user that published for it first,
//! or whom a person has handed it to.

use callbridge_spool::Op;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// PBXs whose users are known at most; a broker that names more of them is not telling the truth.
const OWNERS_MAX: usize = 65_536;

/// The stored word of a PBX begins so.
pub const OWNER_PREFIX: &str = "pbx-user:";

/// PBX to user, shared with whoever hands a PBX over.
#[derive(Clone, Debug, Default)]
pub struct Owners(Arc<Mutex<BTreeMap<String, String>>>);

impl From<BTreeMap<String, String>> for Owners {
    fn from(all: BTreeMap<String, String>) -> Self {
        Self(Arc::new(Mutex::new(all)))
    }
}

impl Owners {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The PBX belongs to this user from now on; to be stored first.
    pub fn give(&self, pbx: &str, user: &str) {
        self.lock().insert(pbx.to_owned(), user.to_owned());
    }

    /// What is stored of that.
    pub fn op(pbx: &str, user: &str) -> Op {
        Op::Meta {
            key: format!("{OWNER_PREFIX}{pbx}"),
            value: user.to_owned(),
        }
    }

    /// Whether this user may tell of this PBX; what is to be stored of that.
    pub(super) fn owned(&self, pbx: &str, user: Option<&str>) -> Result<Option<Op>, String> {
        let mut owners = self.lock();
        match (owners.get(pbx), user) {
            (Some(owner), Some(user)) if owner == user => Ok(None),
            (Some(_), Some(user)) => Err(format!(
                "user_id: {user} publishes for PBX {pbx}, which belongs to the user that published \
                 for it first; it may be that user, or pbx may be another name"
            )),
            (Some(_), None) => Err(format!(
                "user_id: it is missing, and PBX {pbx} belongs to the user that published for it \
                 first; it may be that user"
            )),
            (None, None) => Ok(None),
            (None, Some(_)) if owners.len() >= OWNERS_MAX => Err(format!(
                "pbx: {OWNERS_MAX} PBXs are known already; it may be one of them"
            )),
            (None, Some(user)) => {
                owners.insert(pbx.to_owned(), user.to_owned());
                Ok(Some(Self::op(pbx, user)))
            }
        }
    }
}
