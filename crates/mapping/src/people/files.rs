//! Watches the list files, keeping track of which version of each one was read and whether it must
//! be reread.

use super::list::{self, LeadList};
use super::rows::{BadRow, ListReport, WrongHeader};
use super::rule::{EmployeeRule, LeadRule};
use super::{LeadFile, People};
use crate::people::Directory;
use crate::trunk::Trunk;
use callbridge_call::EventTime;
use callbridge_model::{Country, FileVersion, Phone, plain_file};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a list in bytes (about ten million rows). A larger file is rejected.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A file that was written less than this long before it was read is reread, because it may have
/// changed within the same tick of its clock.
const YOUNG: Duration = Duration::from_secs(2);

/// Maximum number of checks of a changing file. A list is replaced once two consecutive checks have
/// found the same file, because a file that's still being written lacks rows and may end in the
/// middle of one. After this many checks, it's read anyway.
const LOOKS_MAX: u32 = 30;

/// A list that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}: no such file")]
    Missing(PathBuf),
    #[error("{0}: cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
    /// The file is larger than 256 MB, which is the maximum for a list.
    #[error("{0}: larger than 256 MB")]
    TooLarge(PathBuf),
    /// The first line doesn't contain the columns.
    #[error("{0}: {1}")]
    Header(PathBuf, WrongHeader),
    /// The file has rows, but none of them is valid.
    #[error("{0}: no row of it can be used; {first}", first = .1.first(ToString::to_string))]
    Useless(PathBuf, ListReport),
}

impl Error {
    /// Returns the invalid rows, if they're the cause.
    pub const fn list_report(&self) -> Option<&ListReport> {
        match self {
            Self::Useless(_, about) => Some(about),
            Self::Missing(_) | Self::Unreadable(..) | Self::TooLarge(_) | Self::Header(..) => None,
        }
    }

    /// Returns the message for a log, with numbers reduced to their last four digits.
    pub fn masked(&self) -> String {
        match self {
            Self::Useless(file, about) => {
                let first = about.first(BadRow::masked);
                format!("{}: no row of it can be used; {first}", file.display())
            }
            error => error.to_string(),
        }
    }
}

/// A list that was reread or couldn't be read.
#[derive(Debug)]
pub struct News {
    /// The list's path, as given in the flag.
    pub file: PathBuf,
    pub kind: ListKind,
    /// Country of the list's numbers, or `None` for employees. Trunks in two countries may read the
    /// same file differently.
    pub country: Option<Country>,
    /// What changed in the list, whose valid rows are now in use. If there's an error, the old list
    /// stays in use, and the error is reported once until the file changes again.
    pub result: Result<ListChange, Error>,
}

impl News {
    /// Returns the report on the file's rows, if there is one.
    pub fn list_report(&self) -> Option<&ListReport> {
        match &self.result {
            Ok(change) => Some(&change.about),
            Err(error) => error.list_report(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ListKind {
    /// Rows with phone numbers and leads.
    Leads,
    Employees,
}

impl ListKind {
    /// Returns the kind as it appears in logs and JSON, i.e., `leads` or `employees`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// What changed in a newly read list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// The report on the list's rows, including invalid ones.
    pub about: ListReport,
    /// Phone numbers whose leads have changed, sorted, or empty for employees.
    pub phones: Vec<Phone>,
}

/// A list's kind and file. For employees, the file has no country.
type List = (ListKind, LeadFile);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Never,
    Missing,
    Version {
        version: FileVersion,
        settled: bool,
    },
}

/// The state of a list's file, which the next check uses to decide whether to read it.
#[derive(Clone, Copy, Debug, Default)]
struct FileState {
    seen: Seen,
    /// A newer version that hasn't been read yet, and the number of checks that found the file
    /// changed.
    newer: Option<(FileVersion, u32)>,
}

impl FileState {
    /// Returns `true` if the file was the same on the last check, or has changed on too many
    /// checks.
    fn check_stable(&mut self, version: FileVersion) -> bool {
        if matches!(self.seen, Seen::Version { version: old, .. } if old == version) {
            return true;
        }
        let (newer, looks) = self.newer.unzip();
        let stable = newer == Some(version) || looks >= Some(LOOKS_MAX);
        if !stable {
            self.newer = Some((version, looks.map_or(1, |looks| looks + 1)));
        }
        stable
    }
}

/// The lists in use, along with their files.
#[derive(Debug, Default)]
pub struct Watched {
    people: People,
    known: BTreeMap<List, FileState>,
}

impl Watched {
    /// Creates the lists for these trunks, without reading anything yet.
    pub fn for_trunks<'a>(trunks: impl Iterator<Item = &'a Trunk>) -> Self {
        let mut watched = Self::default();
        for trunk in trunks {
            for rule in &trunk.leads {
                if let LeadRule::Csv(file) = rule {
                    let list = (ListKind::Leads, (file.clone(), trunk.country));
                    watched.known.insert(list, FileState::default());
                }
            }
            if let Some(EmployeeRule::File(file)) = &trunk.employees {
                let list = (ListKind::Employees, (file.clone(), None));
                watched.known.insert(list, FileState::default());
            }
        }
        watched
    }

    /// Returns the distinct files of all lists.
    pub fn files(&self) -> BTreeSet<&Path> {
        let files = self.known.keys().map(|(_, (file, _))| file.as_path());
        files.collect()
    }

    /// Reads all lists, and returns a report on each one.
    ///
    /// # Errors
    ///
    /// Returns an error for each list that can't be used.
    pub fn load<'a>(
        trunks: impl Iterator<Item = &'a Trunk>,
        now: EventTime,
    ) -> Result<(Self, Vec<News>), Vec<Error>> {
        let mut watched = Self::for_trunks(trunks);
        let mut news = Vec::new();
        let mut errors = Vec::new();
        for list in watched.reload(now) {
            match list.result {
                Ok(_) => news.push(list),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            Ok((watched, news))
        } else {
            Err(errors)
        }
    }

    /// Adds this lead directory.
    #[must_use]
    pub fn with_directory(mut self, directory: Arc<dyn Directory>) -> Self {
        self.people = self.people.with_directory(directory);
        self
    }

    /// Returns the lists in use, along with the directory if there is one.
    pub fn people(&self) -> &People {
        &self.people
    }

    /// Reads the lists whose files have changed and are stable. Blocks on the disk.
    pub fn reload(&mut self, now: EventTime) -> Vec<News> {
        let mut news = Vec::new();
        for (list @ (kind, file), known) in &mut self.known {
            let in_force = match kind {
                ListKind::Leads => self.people.leads.contains_key(file),
                ListKind::Employees => self.people.employees.contains_key(&file.0),
            };
            let Some((seen, bytes)) = read(&file.0, known, in_force, now) else {
                continue;
            };
            let result = bytes.and_then(|bytes| take(&mut self.people, list, &bytes));
            // A file that was only reread because it was new, and hasn't changed, isn't reported.
            let again = matches!((known.seen, seen), (
                Seen::Version { version: a, settled: false },
                Seen::Version { version: b, .. },
            ) if a == b);
            known.seen = seen;
            known.newer = None;
            let change = result.as_ref().ok();
            if !again || change.is_some_and(|change| !change.phones.is_empty()) {
                news.push(News {
                    file: file.0.clone(),
                    kind: *kind,
                    country: file.1,
                    result,
                });
            }
        }
        news
    }
}

/// Replaces a list with the valid rows in its file. If no row is valid, the old list stays in use.
fn take(people: &mut People, (kind, file): &List, bytes: &[u8]) -> Result<ListChange, Error> {
    let (path, country) = file;
    match kind {
        ListKind::Leads => {
            let (newer, about) = LeadList::read(bytes, *country)
                .map_err(|header| Error::Header(path.clone(), header))?;
            if about.is_useless() {
                return Err(Error::Useless(path.clone(), about));
            }
            let older = people.leads.entry(file.clone()).or_default();
            let phones = older.changed_phones(&newer);
            *older = Arc::new(newer);
            Ok(ListChange { about, phones })
        }
        ListKind::Employees => {
            let (newer, about) =
                list::employees(bytes).map_err(|header| Error::Header(path.clone(), header))?;
            if about.is_useless() {
                return Err(Error::Useless(path.clone(), about));
            }
            people.employees.insert(path.clone(), Arc::new(newer));
            let phones = Vec::new();
            Ok(ListChange { about, phones })
        }
    }
}

/// Reads a file's current version and bytes, or returns `None` if it hasn't changed or isn't stable
/// while a list from it is in use (`in_force`).
fn read(
    path: &Path,
    known: &mut FileState,
    in_force: bool,
    now: EventTime,
) -> Option<(Seen, Result<Vec<u8>, Error>)> {
    let opened = plain_file::open_named(path)
        .and_then(|file| Ok((FileVersion::from_metadata(&file.metadata()?), file)));
    let (version, file) = match opened {
        Ok(opened) => opened,
        Err(_) if known.seen == Seen::Missing => return None,
        Err(error) => return Some((Seen::Missing, Err(read_error(path, error)))),
    };
    let same =
        matches!(known.seen, Seen::Version { version: old, settled: true } if old == version);
    if same || in_force && !known.check_stable(version) {
        return None;
    }
    let mut settled = now.since(version.written()) > YOUNG;
    let bytes = if version.bytes() > FILE_BYTES_MAX {
        Err(Error::TooLarge(path.to_owned()))
    } else {
        let mut bytes = Vec::new();
        let mut limited = file.take(FILE_BYTES_MAX);
        let read = limited.read_to_end(&mut bytes);
        let metadata = limited.into_inner().metadata();
        let version_after = metadata
            .map(|metadata| FileVersion::from_metadata(&metadata))
            .ok();
        // If the file was written in the meantime, the bytes may be incomplete, so it's reread.
        settled &= read.is_err() || version_after == Some(version);
        match read {
            Ok(_) => Ok(bytes),
            Err(error) => Err(read_error(path, error)),
        }
    };
    Some((Seen::Version { version, settled }, bytes))
}

fn read_error(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::Missing(path.to_owned()),
        _ => Error::Unreadable(path.to_owned(), error),
    }
}
