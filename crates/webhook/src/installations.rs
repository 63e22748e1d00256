//! The installations whose deliveries have been verified. They determine what happens to a delivery
//! that wasn't signed with any known secret.
//!
//! When a secret is regenerated, the CRM starts signing with the new one immediately (§6.4.7), so
//! it can't be known here before the first delivery that needs it. That delivery must be retried
//! rather than lost. Deliveries meant for others shouldn't be, once it's known whose deliveries
//! arrive here.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Name of the stored setting that holds the installations.
pub const STORED: &str = "webhook.installations";

/// Maximum number of installations. The header that identifies them isn't signed, so it could be
/// changed in transit. The oldest installation is forgotten first.
const INSTALLATIONS_MAX: usize = 16;

/// The installations whose deliveries have been verified, oldest first.
#[derive(Debug, Default)]
pub struct Installations(Mutex<Vec<String>>);

impl Installations {
    /// Reads the text that [`Installations::add`] returned before a restart.
    pub fn new(stored: Option<&str>) -> Self {
        let known = stored.unwrap_or_default().split_whitespace();
        Self(Mutex::new(known.map(str::to_owned).collect()))
    }

    /// Returns `true` if a delivery for this installation may be ours, which is the case if one of
    /// its deliveries has been verified before, or if none has been for any installation.
    pub fn could_be_ours(&self, installation: &str) -> bool {
        let known = self.lock();
        known.is_empty() || known.iter().any(|known| known == installation)
    }

    /// Records that a delivery for this installation was verified. If it's the first one, returns
    /// the text to store.
    pub fn add(&self, installation: &str) -> Option<String> {
        let mut known = self.lock();
        if known.iter().any(|known| known == installation) {
            return None;
        }
        if known.len() >= INSTALLATIONS_MAX {
            known.remove(0);
        }
        known.push(installation.to_owned());
        Some(known.join(" "))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_installation_could_be_ours_until_one_is_verified() {
        let first = Installations::default();
        assert!(first.could_be_ours("9001") && first.could_be_ours("7"));
        let stored = first.add("9001");
        assert_eq!(first.add("9001"), None, "it's known");
        for known in [first, Installations::new(stored.as_deref())] {
            assert!(known.could_be_ours("9001") && !known.could_be_ours("7"));
        }
    }

    #[test]
    fn oldest_installation_is_forgotten_when_there_are_many() {
        let known = Installations::default();
        for n in 0..=INSTALLATIONS_MAX {
            known.add(&n.to_string());
        }
        assert!(!known.could_be_ours("0") && known.could_be_ours("1"));
    }
}
