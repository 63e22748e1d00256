//! Reloads the files with page passwords and lookup secrets when they change.
//!
//! A change takes effect once two reads that are one second apart agree, because editors write
//! files in several steps. After that, only users and passwords on valid lines are accepted, and
//! none are if the file is empty, missing, or unreadable. `status` shows the errors.

use callbridge_model::status::SecretFile;
use callbridge_model::{ExposeSecret as _, Secret, SecretPlace};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Interval between two reads.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Errors in the current files by flag. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretFiles(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl SecretFiles {
    /// Stores the error in this flag's file, or removes it if it's `None`.
    pub(crate) fn set(&self, flag: &'static str, fault: Option<String>) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match fault {
            Some(fault) => errors.insert(flag, fault),
            None => errors.remove(flag),
        };
    }

    /// Returns all errors, as shown by `status`.
    pub(crate) fn problems(&self) -> Vec<SecretFile> {
        let errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = Vec::new();
        for (flag, reason) in errors.iter() {
            let flag = (*flag).to_owned();
            let reason = reason.clone();
            shown.push(SecretFile { flag, reason });
        }
        shown
    }

    /// Reloads this flag's file whenever it has changed, until the future is dropped. `parse` is
    /// given the text, or why there is none, and returns the new value for `current` along with the
    /// error for `status`. The error is stored before `current` changes.
    pub(crate) async fn follow<T>(
        self,
        place: SecretPlace,
        flag: &'static str,
        parse: impl Fn(Result<&Secret, String>) -> (T, Option<String>),
        current: watch::Sender<T>,
    ) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        let mut reads = SettledText::new(read(&place));
        loop {
            ticks.tick().await;
            let Some(settled) = reads.take(read(&place)) else {
                continue;
            };
            let text = settled.clone().map(Secret::from);
            let (let_in, fault) = parse(text.as_ref().map_err(String::clone));
            match &fault {
                Some(error) => tracing::warn!(flag, error, "applied a file with errors"),
                None => tracing::info!(flag, "applied the changed file"),
            }
            self.set(flag, fault);
            current.send_replace(let_in);
        }
    }
}

/// A file's text, or why there is none.
type FileText = Result<String, String>;

fn read(place: &SecretPlace) -> FileText {
    let text = place.text().map_err(|error| error.to_string())?;
    Ok(text.expose_secret().to_owned())
}

/// Detects that a file has changed, which is the case if two consecutive reads agree and differ
/// from the current text.
struct SettledText {
    in_force: FileText,
    last: FileText,
}

impl SettledText {
    fn new(in_force: FileText) -> Self {
        let last = in_force.clone();
        Self { in_force, last }
    }

    /// Takes the next read. If the file has changed, returns the text to use from now on.
    fn take(&mut self, read: FileText) -> Option<&FileText> {
        let has_settled = read == self.last && read != self.in_force;
        self.last = read;
        if !has_settled {
            return None;
        }
        self.in_force.clone_from(&self.last);
        Some(&self.in_force)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_change_is_used_after_two_equal_reads() {
        let anna: FileText = Ok("anna".to_owned());
        let empty = Ok(String::new());
        let mut reads = SettledText::new(Ok("anna\nbek".to_owned()));
        assert_eq!(reads.take(empty), None, "an editor has emptied the file");
        assert_eq!(reads.take(anna.clone()), None);
        assert_eq!(reads.take(anna.clone()), Some(&anna));
        assert_eq!(reads.take(anna.clone()), None, "the text is already in use");
        let gone = Err("the file is gone".to_owned());
        assert_eq!(reads.take(gone.clone()), None);
        assert_eq!(reads.take(anna), None, "replaced by a rename");
        assert_eq!(reads.take(gone.clone()), None);
        assert_eq!(reads.take(gone.clone()), Some(&gone));
    }

    #[test]
    fn secret_file_problems_are_shown_until_the_file_is_valid() {
        let files = SecretFiles::default();
        files.set("--lookup-secret-file", Some("it is empty".to_owned()));
        assert_eq!(files.problems()[0].flag, "--lookup-secret-file");
        files.clone().set("--lookup-secret-file", None);
        assert_eq!(files.problems(), []);
    }
}
