//! Files in a directory that someone has asked to have reread.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Paths of files to reread, shared between the code that requests this and the source that reads
/// them.
#[derive(Clone, Debug, Default)]
pub struct FilesAgain(Arc<Mutex<BTreeSet<String>>>);

impl FilesAgain {
    /// Requests that the file with this path, which is
    /// [`RecordDetails::file`](crate::RecordDetails::file), be reread.
    pub fn ask(&self, path: &str) {
        self.0.lock().insert(path.to_owned());
    }

    pub(crate) fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.lock())
    }
}
