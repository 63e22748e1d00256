//! A state for the time of one check, where `run` has none yet: made where its folder would be, and
//! taken away again. Its requests count all the same: their slots are left for `run`.

use crate::commands::scratch::ScratchFolder;
use callbridge_sender::left_slots::LeftSlots;
use callbridge_spool::Error;
use std::io;
use std::path::Path;

/// A folder of our own, gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Trial {
    pub folder: ScratchFolder,
    pub left: LeftSlots,
}

impl Trial {
    /// In `state`, or where it would be made.
    ///
    /// # Errors
    /// [`Error::NotWritable`], as `run` would find it.
    pub(crate) fn begin(state: &Path) -> Result<Self, Error> {
        let wrong = |error: io::Error| Error::NotWritable {
            path: state.to_path_buf(),
            why: error.to_string(),
        };
        let place = standing(state).map_err(wrong)?;
        let left = LeftSlots::of(state, place).map_err(wrong)?;
        let folder = place.join(format!(".callbridge-check-{}", std::process::id()));
        let folder = ScratchFolder::make(folder).map_err(wrong)?;
        Ok(Self { folder, left })
    }
}

/// The nearest folder above that is there, or the state itself.
fn standing(state: &Path) -> io::Result<&Path> {
    for above in state.ancestors() {
        let above = match above.as_os_str().is_empty() {
            true => Path::new("."),
            false => above,
        };
        match above.metadata() {
            Ok(found) if found.is_dir() => return Ok(above),
            Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}
