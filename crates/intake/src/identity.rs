//! The ID of the PBX for sources without `pbx=`. It's part of each call's UUID, so a different ID
//! would log every call again. The first ID is kept in the state, and any change is rejected.

use callbridge_model::{Code, ExitCode};

/// Name of the setting that holds the value of `--pbx-id`.
pub const META_KEY: &str = "pbx-id";

/// `--pbx-id` differs from the ID that the state has logged its calls with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--pbx-id is `{given}`, and this state has logged its calls as PBX `{stored}`. With another \
     id, every call would be logged again. Use --pbx-id {stored}, or another --state"
)]
pub struct PbxIdChanged {
    /// The ID that the state has logged its calls with.
    pub stored: String,
    /// The ID now given in `--pbx-id`.
    pub given: String,
}

impl ExitCode for PbxIdChanged {
    fn exit_code(&self) -> Code {
        Code::Configuration
    }
}

/// Rejects an ID that differs from the stored one. A new state has no stored ID.
///
/// # Errors
///
/// Returns [`PbxIdChanged`] if the IDs differ.
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
