//! Whose each PBX is whose calls come as messages: the broker's user that `--pbx-owner` names; else
//! the one that published a call for it first, or to whom a person has handed it.

use callbridge_spool::Op;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};

/// PBXs whose users are known at most; a broker that names more of them is not telling the truth.
const OWNERS_MAX: usize = 65_536;
/// And of one user, so that it leaves room to others; what the flags name comes on top.
const OWNED_MAX: usize = 8_192;

/// The stored word of a PBX begins so.
pub const OWNER_PREFIX: &str = "pbx-user:";

/// PBX to user, shared with whoever hands a PBX over.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    all: Arc<Mutex<BTreeMap<String, String>>>,
    /// Of the flags, which alone decide.
    named: Arc<BTreeMap<String, String>>,
}

impl Owners {
    /// Joins the stored owners with those that the flags name, which replace them, and returns the
    /// operations that store the change.
    pub fn named(
        mut all: BTreeMap<String, String>,
        named: BTreeMap<String, String>,
    ) -> (Self, Vec<Op>) {
        let mut ops = Vec::new();
        for (pbx, user) in &named {
            if all.insert(pbx.clone(), user.clone()).as_ref() != Some(user) {
                ops.push(Self::op(pbx, user));
            }
        }
        let (all, named) = (Arc::new(Mutex::new(all)), Arc::new(named));
        (Self { all, named }, ops)
    }

    /// Returns the broker's user that this PBX belongs to; `None` where none has published for it
    /// yet.
    pub fn of(&self, pbx: &str) -> Option<String> {
        self.all.lock().get(pbx).cloned()
    }

    /// Returns the user that `--pbx-owner` names for this PBX: nobody can hand it over.
    pub fn named_owner(&self, pbx: &str) -> Option<&str> {
        self.named.get(pbx).map(String::as_str)
    }

    /// The PBX belongs to this user from now on; to be stored first.
    pub fn give(&self, pbx: &str, user: &str) {
        self.all.lock().insert(pbx.to_owned(), user.to_owned());
    }

    /// Operation that stores a PBX's owner.
    pub fn op(pbx: &str, user: &str) -> Op {
        Op::meta(format!("{OWNER_PREFIX}{pbx}"), user)
    }

    fn owns_too_many(&self, owners: &BTreeMap<String, String>, user: &str) -> bool {
        let own = |(pbx, owner): &(&String, &String)| {
            owner.as_str() == user && !self.named.contains_key(pbx.as_str())
        };
        owners.len() >= OWNED_MAX && owners.iter().filter(own).count() >= OWNED_MAX
    }

    /// Checks that this user may publish for this PBX; the first to do so becomes its owner, and
    /// the operation returned stores that.
    pub(super) fn owned(&self, pbx: &str, user: Option<&str>) -> Result<Option<Op>, String> {
        let mut owners = self.all.lock();
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
            (None, Some(user)) if self.owns_too_many(&owners, user) => Err(format!(
                "pbx: {user} publishes for {OWNED_MAX} PBXs already; it may be one of them, or \
                 --pbx-owner on the sender names it"
            )),
            (None, Some(user)) => {
                owners.insert(pbx.to_owned(), user.to_owned());
                Ok(Some(Self::op(pbx, user)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(pbx, user): &(&str, &str)| ((*pbx).to_owned(), (*user).to_owned());
        pairs.iter().map(own).collect()
    }

    #[test]
    fn one_user_owns_so_many_pbxs_and_leaves_room_to_others() {
        let named = map(&[("named", "flooding")]);
        let (owners, _) = Owners::named(BTreeMap::new(), named);
        for n in 0..OWNED_MAX {
            assert!(owners.owned(&format!("p{n}"), Some("flooding")).is_ok());
        }
        let why = owners
            .owned("one more", Some("flooding"))
            .expect_err("full");
        assert!(
            why.starts_with("pbx: flooding publishes for 8192 PBXs"),
            "{why}"
        );
        assert_eq!(owners.owned("p7", Some("flooding")), Ok(None));
        assert_eq!(owners.owned("named", Some("flooding")), Ok(None));
        assert!(
            owners
                .owned("one more", Some("other"))
                .is_ok_and(|op| op.is_some())
        );
    }

    #[test]
    fn an_owner_that_the_flags_name_alone_decides_whoever_was_first() {
        let stored = map(&[("p1", "thief"), ("p2", "two"), ("p3", "three")]);
        let named = map(&[("p1", "one"), ("p2", "two"), ("p4", "four")]);
        let (owners, ops) = Owners::named(stored, named);
        assert_eq!(ops, [Owners::op("p1", "one"), Owners::op("p4", "four")]);
        assert_eq!(owners.owned("p1", Some("one")), Ok(None));
        assert!(owners.owned("p1", Some("thief")).is_err());
        // before its first call, too
        assert!(owners.owned("p4", Some("thief")).is_err() && owners.owned("p4", None).is_err());
        assert_eq!(owners.owned("p4", Some("four")), Ok(None));
        assert_eq!(owners.owned("p3", Some("three")), Ok(None));
        let first = owners.owned("p5", Some("five"));
        assert_eq!(first, Ok(Some(Owners::op("p5", "five"))));
        assert_eq!(owners.named_owner("p4"), Some("four"));
        assert_eq!(owners.named_owner("p5"), None);
        assert_eq!(owners.of("p5").as_deref(), Some("five"));
    }
}
