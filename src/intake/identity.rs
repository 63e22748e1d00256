//! Which PBX a source's calls belong to. The id is part of every call's uuid: another id would
//! double every call, so the one first used is kept in the spool and a change is refused.

/// Under which name the spool keeps the id of the PBX that no `pbx=` names.
pub const META_KEY: &str = "pbx-id";

/// `--pbx-id` is another than the one that the stored calls were journaled under.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the PBX was called `{stored}` when its calls were journaled, and --pbx-id now says `{given}`: \
     every call would be journaled a second time. Give --pbx-id {stored}, or another --state"
)]
pub struct Changed {
    /// In the spool.
    pub stored: String,
    /// By the flag.
    pub given: String,
}

/// The id of the PBX that no `pbx=` names: as stored, else as given, else made once of a random
/// part. The second value says that it is new and has to be stored.
///
/// # Errors
/// When flag and spool disagree.
pub fn settle(
    stored: Option<String>,
    given: Option<&str>,
    random: impl FnOnce() -> u64,
) -> Result<(String, bool), Changed> {
    match (stored, given) {
        (Some(stored), Some(given)) if stored != given => Err(Changed {
            stored,
            given: given.to_owned(),
        }),
        (Some(stored), _) => Ok((stored, false)),
        (None, Some(given)) => Ok((given.to_owned(), true)),
        (None, None) => Ok((format!("pbx-{:016x}", random()), true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_once_and_a_change_is_refused() {
        let made = settle(None, None, || 0xabc).expect("an id");
        assert_eq!(made, ("pbx-0000000000000abc".to_owned(), true));
        let kept = settle(Some(made.0.clone()), None, || 0).expect("the same");
        assert_eq!(kept, (made.0.clone(), false));
        assert_eq!(settle(None, Some("hq"), || 0), Ok(("hq".to_owned(), true)));
        assert_eq!(
            settle(Some("hq".into()), Some("hq"), || 0),
            Ok(("hq".to_owned(), false))
        );
        let changed = settle(Some(made.0), Some("hq"), || 0).expect_err("refused");
        assert!(
            changed
                .to_string()
                .contains("--pbx-id pbx-0000000000000abc")
        );
    }
}
