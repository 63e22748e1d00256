//! Which version of which list was read; and reading them anew when they change.

use super::directory::Directory;
use super::list::{self, LeadList};
use super::rule::{EmployeeRule, LeadRule};
use super::{LeadFile, People};
use crate::journal::Phone;
use crate::trunk::Trunks;
use callbridge_call::EventTime;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A list larger than this (some ten million rows) is refused.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A file written to so shortly before it was read may have been written to since, within the
/// same tick of its clock: it is read once more.
const YOUNG: Duration = Duration::from_secs(2);

/// A list that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there.
    #[error("{0}: no such file")]
    Missing(PathBuf),
    /// It cannot be opened or read.
    #[error("{0}: cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
    /// It is larger than any list may be.
    #[error("{0}: larger than 256 MB")]
    TooLarge(PathBuf),
    /// A row or the header is wrong.
    #[error("{0}: {1}")]
    Wrong(PathBuf, list::Fault),
}

/// A list that was read anew, or could not be.
#[derive(Debug)]
pub struct News {
    /// The list.
    pub file: PathBuf,
    /// What it holds now; on an error the old list stays in force. One error is told once, until
    /// the file changes again.
    pub result: Result<Change, Error>,
}

/// What a newly read list changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of these phones it says something else than before.
    Leads {
        /// Rows now.
        rows: usize,
        /// The phones, sorted.
        phones: Vec<Phone>,
    },
    /// The employees of some extensions may be others.
    Employees {
        /// Rows now.
        rows: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum List {
    Leads(LeadFile),
    Employees(PathBuf),
}

impl List {
    fn path(&self) -> &Path {
        match self {
            Self::Leads((path, _)) | Self::Employees(path) => path,
        }
    }
}

/// A version of a file: inodes are reused at once and sizes stay, so all of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        }
    }
}

/// What was seen of a file last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Never,
    Missing,
    Version { stamp: Stamp, settled: bool },
}

/// The lists in force, and the files they come from.
#[derive(Debug)]
pub struct Watched {
    people: People,
    seen: BTreeMap<List, Seen>,
}

impl Watched {
    /// The lists that the trunks name; nothing is read yet.
    pub fn new(trunks: &Trunks) -> Self {
        let mut seen = BTreeMap::new();
        for trunk in trunks.iter() {
            for rule in &trunk.leads {
                if let LeadRule::Csv(file) = rule {
                    seen.insert(List::Leads((file.clone(), trunk.country)), Seen::Never);
                }
            }
            if let Some(EmployeeRule::File(file)) = &trunk.employees {
                seen.insert(List::Employees(file.clone()), Seen::Never);
            }
        }
        Self {
            people: People::default(),
            seen,
        }
    }

    /// Reads all lists; every one that cannot be used is told.
    pub fn load(trunks: &Trunks, now: EventTime) -> Result<Self, Vec<Error>> {
        let mut watched = Self::new(trunks);
        let faults: Vec<Error> = watched
            .reload(now)
            .into_iter()
            .filter_map(|news| news.result.err())
            .collect();
        if faults.is_empty() {
            Ok(watched)
        } else {
            Err(faults)
        }
    }

    /// The same with this directory of leads beside them.
    #[must_use]
    pub fn with_directory(mut self, directory: Arc<dyn Directory>) -> Self {
        self.people = self.people.with_directory(directory);
        self
    }

    /// The lists in force.
    pub fn people(&self) -> &People {
        &self.people
    }

    /// Reads the lists whose files are others than last time. Blocks on the disk.
    pub fn reload(&mut self, now: EventTime) -> Vec<News> {
        let mut news = Vec::new();
        for (list, seen) in &mut self.seen {
            let (version, result) = match read(list.path(), *seen, now) {
                Read::Same => continue,
                Read::Bytes(version, bytes) => (version, take(&mut self.people, list, &bytes)),
                Read::Failed(version, error) => (version, Err(error)),
            };
            // Read once more for its youth alone, and the same: no news.
            let again = matches!((*seen, version), (
                Seen::Version { stamp: a, settled: false },
                Seen::Version { stamp: b, .. },
            ) if a == b);
            *seen = version;
            let same = match &result {
                Ok(Change::Leads { phones, .. }) => phones.is_empty(),
                Ok(Change::Employees { .. }) => true,
                Err(_) => true,
            };
            if !(again && same) {
                news.push(News {
                    file: list.path().to_owned(),
                    result,
                });
            }
        }
        news
    }
}

/// Puts a list in force.
fn take(people: &mut People, list: &List, bytes: &[u8]) -> Result<Change, Error> {
    let wrong = |fault| Error::Wrong(list.path().to_owned(), fault);
    match list {
        List::Leads(key) => {
            let newer = LeadList::read(bytes, key.1).map_err(wrong)?;
            let older = people.leads.entry(key.clone()).or_default();
            let change = Change::Leads {
                rows: newer.len(),
                phones: older.changed(&newer),
            };
            *older = newer;
            Ok(change)
        }
        List::Employees(path) => {
            let newer = list::employees(bytes).map_err(wrong)?;
            let rows = newer.len();
            people.employees.insert(path.clone(), newer);
            Ok(Change::Employees { rows })
        }
    }
}

enum Read {
    Same,
    Bytes(Seen, Vec<u8>),
    Failed(Seen, Error),
}

fn read(path: &Path, seen: Seen, now: EventTime) -> Read {
    let opened = File::open(path).and_then(|file| Ok((Stamp::of(&file.metadata()?), file)));
    let (stamp, file) = match opened {
        Ok(opened) => opened,
        Err(_) if seen == Seen::Missing => return Read::Same,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Read::Failed(Seen::Missing, Error::Missing(path.to_owned()));
        }
        Err(error) => {
            return Read::Failed(Seen::Missing, Error::Unreadable(path.to_owned(), error));
        }
    };
    if matches!(seen, Seen::Version { stamp: old, settled: true } if old == stamp) {
        return Read::Same;
    }
    let written = EventTime::from_seconds(stamp.modified.0.max(stamp.changed.0));
    let mut version = Seen::Version {
        stamp,
        settled: now.since(written) > YOUNG,
    };
    if stamp.bytes > FILE_BYTES_MAX {
        return Read::Failed(version, Error::TooLarge(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX);
    if let Err(error) = limited.read_to_end(&mut bytes) {
        return Read::Failed(version, Error::Unreadable(path.to_owned(), error));
    }
    // Written to meanwhile: what was read may be torn, so it is read once more.
    let after = limited
        .into_inner()
        .metadata()
        .map(|about| Stamp::of(&about));
    if after.ok() != Some(stamp) {
        version = Seen::Version {
            stamp,
            settled: false,
        };
    }
    Read::Bytes(version, bytes)
}
