//! Files of a folder that a person wants to read again.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Paths of files to read again, shared between the code that requests them and the source that
/// reads them.
#[derive(Clone, Debug, Default)]
pub struct FilesAgain(Arc<Mutex<BTreeSet<String>>>);

impl FilesAgain {
    /// Requests that the file with this path is read again. The path is
    /// [`RecordDetails::file`](crate::RecordDetails::file).
    pub fn ask(&self, path: &str) {
        self.0.lock().insert(path.to_owned());
    }

    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock())
    }
}
