//! Files of passwords, and of secrets that callers must know.

use super::verdict::Problem;
use super::{FindingKind, Status};
use serde::{Deserialize, Serialize};

/// A file of passwords or secrets that is unusable, or that admits fewer people than it names.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretFile {
    /// Flag that names the file: `--page-password-file`.
    pub flag: String,
    /// The problem of the file and its consequence. Never a secret.
    pub reason: String,
}

pub(super) fn secret_files(status: &Status, found: &mut Vec<Problem>) {
    for file in &status.secret_files {
        let message = format!("{}: {}", file.flag, file.reason);
        let values = [file.flag.clone(), file.reason.clone()];
        found.push(
            Problem::new(FindingKind::SecretFiles, message, status.check()).with_values(values),
        );
    }
}
