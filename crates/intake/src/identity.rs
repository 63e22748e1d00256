//! The id of the PBX whose sources have no `pbx=`. It is part of each call's uuid, so another id
//! would log every call again. The state keeps the first id, and a change is refused.

use callbridge_model::{Code, ExitCode};

/// Name of the setting that keeps the value of `--pbx-id`.
pub const META_KEY: &str = "pbx-id";

/// `--pbx-id` differs from the id under which the state has logged its calls.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--pbx-id is `{given}`, and this state has logged its calls as PBX `{stored}`. With another \
     id, every call would be logged again. Use --pbx-id {stored}, or another --state"
)]
pub struct PbxIdChanged {
    /// The id under which the state has logged its calls.
    pub stored: String,
    /// The id that `--pbx-id` names now.
    pub given: String,
}

impl ExitCode for PbxIdChanged {
    fn exit_code(&self) -> Code {
        Code::Configuration
    }
}

/// Refuses an id that differs from the stored id. A new state has no stored id.
///
/// # Errors
/// [`PbxIdChanged`] if the ids differ.
pub fn refuse_change(stored: Option<&str>, given: &str) -> Result<(), PbxIdChanged> {
    match stored {
        Some(stored) if stored != given => Err(PbxIdChanged {
            stored: stored.to_owned(),
            given: given.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_pbx_id_cannot_be_changed() {
        assert_eq!(refuse_change(None, "office"), Ok(()));
        assert_eq!(refuse_change(Some("office"), "office"), Ok(()));
        let changed = refuse_change(Some("office"), "hq").expect_err("another id");
        assert_eq!(changed.exit_code(), Code::Configuration);
        insta::assert_snapshot!(
            changed,
            @"--pbx-id is `hq`, and this state has logged its calls as PBX `office`. With another \
              id, every call would be logged again. Use --pbx-id office, or another --state"
        );
    }
}
