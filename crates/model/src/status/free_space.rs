//! Checks the free space in the directories of file sources. Once such a directory is full, the
//! switch can't write its call records anymore, which callbridge has no other way of noticing.

use super::{FindingKind, Problem, Status};
use callbridge_call::shell::quoted;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A file system with this many free bytes has enough space, regardless of its size.
const PLENTY: u64 = 1 << 30;
/// On smaller file systems, space is considered low below this percentage.
const LOW_PERCENT: u64 = 5;
const MEBIBYTE: u64 = 1 << 20;

/// The space that is left for files in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreeSpace {
    pub path: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Free inodes, since each new file needs one. This and `total_files` are 0 on file systems
    /// without a limit.
    pub free_files: u64,
    pub total_files: u64,
}

impl FreeSpace {
    /// Returns the space available to a file or directory (or its nearest existing parent), or
    /// `None` if the file system can't be queried.
    pub fn of(path: &Path) -> Option<Self> {
        let mut existing = path.ancestors().filter(|above| above.exists());
        let stat = rustix::fs::statvfs(existing.next()?).ok()?;
        Some(Self {
            path: path.display().to_string(),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_files: stat.f_favail,
            total_files: stat.f_files,
        })
    }

    /// Returns `true` if not even one more record has room.
    pub const fn is_full(&self) -> bool {
        let has_no_file = self.total_files > 0 && self.free_files == 0;
        self.total_bytes > 0 && self.free_bytes < MEBIBYTE || has_no_file
    }

    /// Returns a warning about what will happen to which directory, or `None` if there's enough
    /// space.
    pub fn warning(&self) -> Option<String> {
        let left = if is_low(self.free_files, self.total_files, u64::MAX) {
            format!("{} new files", self.free_files)
        } else if is_low(self.free_bytes, self.total_bytes, PLENTY) {
            format!("{} MiB", self.free_bytes / MEBIBYTE)
        } else {
            return None;
        };
        Some(format!(
            "there is only room for {left} in {}: once it is full, the PBX cannot record its calls \
             there, and callbridge never hears of them",
            self.path
        ))
    }
}

/// Returns `true` if the free amount is below both `plenty` and [`LOW_PERCENT`] of `total`.
const fn is_low(free: u64, total: u64, plenty: u64) -> bool {
    total > 0 && free < plenty && free < total / 100 * LOW_PERCENT
}

/// Finds sources whose directory is almost full.
pub fn full_directories(status: &Status, found: &mut Vec<Problem>) {
    for source in &status.sources {
        if let Some(space) = &source.space
            && let Some(warning) = space.warning()
        {
            let message = format!("source {}: {warning}", source.name());
            let command = format!("df -h {}", quoted(&space.path));
            let values = [source.name().to_owned(), space.path.clone()];
            found.push(Problem::new(FindingKind::SourceDisk, message, command).with_values(values));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free_mib: u64, total_mib: u64, free_files: u64, total_files: u64) -> FreeSpace {
        FreeSpace {
            path: "/var/log/json_cdr".to_owned(),
            free_bytes: free_mib * MEBIBYTE,
            total_bytes: total_mib * MEBIBYTE,
            free_files,
            total_files,
        }
    }

    #[test]
    fn space_is_low_by_share_unless_a_gibibyte_is_free() {
        for (of, is_low) in [
            (space(0, 100, 0, 0), true),
            (space(4, 100, 0, 0), true),
            (space(6, 100, 0, 0), false),
            (space(2_000, 1_000_000, 0, 0), false),
            (space(1_000, 1_000_000, 0, 0), true),
            (space(50, 100, 0, 65_536), true),
            (space(50, 100, 60_000, 65_536), false),
            (FreeSpace::default(), false),
        ] {
            assert_eq!(of.warning().is_some(), is_low, "{of:?}");
            let is_full = of.free_bytes == 0 && of.total_bytes > 0
                || of.free_files == 0 && of.total_files > 0;
            assert_eq!(of.is_full(), is_full, "{of:?}");
        }
    }

    #[test]
    fn free_space_of_a_missing_file_is_that_of_its_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let space = FreeSpace::of(&folder.path().join("new/Master.csv")).expect("known");
        assert!(space.total_bytes > 0 && space.path.ends_with("new/Master.csv"));
    }
}
