//! Files that say who is let in: password files and secrets that callers must know.

use super::verdict::{Todo, todo};
use super::{FindingKind, Status};
use serde::{Deserialize, Serialize};

/// A file of passwords or secrets that cannot be used, or that lets in fewer people than it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretFile {
    /// Flag that names the file: `--page-password-file`.
    pub flag: String,
    /// What is wrong with the file, and what follows from it. Never a secret.
    pub why: String,
}

pub(super) fn secret_files(status: &Status, found: &mut Vec<Todo>) {
    for file in &status.secret_files {
        let what = format!("{}: {}", file.flag, file.why);
        let values = [file.flag.clone(), file.why.clone()];
        found.push(todo(FindingKind::SecretFiles, what, status.check()).with(values));
    }
}
