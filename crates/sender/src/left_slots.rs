//! Requests of a check that found no state: their slots wait in a small file beside the place of
//! the state, until a state is made there and takes them over.
//!
//! The file holds a JSON list of slots: fingerprints of tokens and times of the boot clock, nothing
//! secret, so that the daemon's user can read what root has left.

use crate::memory;
use callbridge_model::{TokenFingerprint, clock, plain_file};
use callbridge_spool::{Error, Handle, Op, SlotRow, tables};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A window of the service has 60 slots of some 250 bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The file of a state that is not there yet.
#[derive(Clone, Debug)]
pub struct LeftSlots(PathBuf);

impl LeftSlots {
    /// Of `state`, in this folder: the state's own, or one above it.
    ///
    /// # Errors
    /// The system's, where the current folder is not known.
    pub fn of(state: &Path, folder: &Path) -> io::Result<Self> {
        let (state, folder) = (std::path::absolute(state)?, std::path::absolute(folder)?);
        let below = state.strip_prefix(&folder).unwrap_or(&state);
        let below = below.to_string_lossy().replace('/', "-");
        let name = match below.as_str() {
            "" => ".callbridge-check.slots".to_owned(),
            below => format!(".callbridge-check-{below}.slots"),
        };
        Ok(Self(folder.join(name)))
    }

    /// Writes the slots of `spool`, a check's own.
    ///
    /// # Errors
    /// The disk's: what is not left cannot be counted.
    pub async fn leave(&self, spool: &Handle) -> Result<(), Error> {
        let slots = spool.read(|store| tables::slots::slots(store)).await?;
        self.write(&slots)
            .map_err(|error| Error::NotWritable(self.0.clone(), error.to_string()))
    }

    fn write(&self, slots: &[SlotRow]) -> io::Result<()> {
        // What a killed check has left must be in nobody's way: process ids come again.
        let new = self.0.with_extension(uuid::Uuid::new_v4().to_string());
        let mut how = OpenOptions::new();
        let mut file = how.create_new(true).write(true).mode(0o644).open(&new)?;
        file.write_all(&serde_json::to_vec(slots)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.0)
    }

    /// The slots; of a file that cannot be read one of nobody knows when, which stands for a whole
    /// window. Nothing where nothing was left.
    fn read(&self) -> Vec<SlotRow> {
        let read = plain_file::read(&self.0, BYTES_MAX);
        match read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
            Ok(slots) => slots,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(
                    file = %self.0.display(),
                    %error,
                    "what a check has sent cannot be read: nothing is sent for a minute"
                );
                vec![SlotRow {
                    slot: 0,
                    token: TokenFingerprint::of(""),
                    boot_id: String::new(),
                    sent: Duration::ZERO,
                    answered: None,
                    wall_sent: clock::now().wall,
                }]
            }
        }
    }
}

/// Takes into a state from which no sender has run yet what checks have left beside its place.
///
/// # Errors
/// The spool's.
pub async fn adopt(state: &Path, spool: &Handle) -> Result<Vec<LeftSlots>, Error> {
    let known = spool
        .read(|store| {
            let memory = tables::meta::meta(store, memory::KEY)?;
            Ok((memory.is_some(), tables::slots::slots(store)?))
        })
        .await?;
    let (false, own) = known else {
        return Ok(Vec::new());
    };
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_path_buf());
    let place = |above| {
        let place = LeftSlots::of(&state, above).ok()?;
        Some((place.read(), place)).filter(|(slots, _)| !slots.is_empty())
    };
    let found: Vec<_> = state.ancestors().filter_map(place).collect();
    let free = own.iter().map(|row| row.slot + 1).max().unwrap_or(0);
    let rows = found.iter().flat_map(|(slots, _)| slots.clone());
    let ops = (free..)
        .zip(rows)
        .map(|(slot, row)| Op::Slot(SlotRow { slot, ..row }));
    spool.write(ops.collect()).await?;
    Ok(found.into_iter().map(|(_, place)| place).collect())
}

/// Removes the files whose slots were taken over. One that cannot be removed does no harm: only a
/// state that is made anew reads it again.
pub fn remove(left: &[LeftSlots]) {
    for place in left {
        let _ = std::fs::remove_file(&place.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_check_that_was_killed_has_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let place = LeftSlots::of(&state, folder.path()).expect("a place");
        let half = place.0.with_extension(std::process::id().to_string());
        std::fs::write(half, "[").expect("written");
        place.write(&[]).expect("written");
        assert!(place.0.exists());
    }
}
