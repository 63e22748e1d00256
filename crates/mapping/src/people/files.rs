//! Which version of which list was read; and reading them anew when they change.

use super::list::{self, LeadList};
use super::rows::{BadRow, ListReport, WrongHeader};
use super::rule::{EmployeeRule, LeadRule};
use super::{LeadFile, People};
use crate::people::Directory;
use crate::trunk::Trunk;
use callbridge_call::EventTime;
use callbridge_model::{Country, FileVersion, Phone, plain_file};
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A list larger than this (some ten million rows) is refused.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A file written to so shortly before it was read may have been written to since, within the
/// same tick of its clock: it is read once more.
const YOUNG: Duration = Duration::from_secs(2);

/// A list that is in force is replaced once its file was the same at two looks in a row: a file
/// that is being written has rows missing, and a last one that is cut. After so many looks it is
/// read all the same.
const LOOKS_MAX: u32 = 30;

/// A list that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No file of this name exists.
    #[error("{0}: no such file")]
    Missing(PathBuf),
    /// The file cannot be opened or read.
    #[error("{0}: cannot be read: {1}")]
    Unreadable(PathBuf, io::Error),
    /// The file is larger than 256 MB, which no list may be.
    #[error("{0}: larger than 256 MB")]
    TooLarge(PathBuf),
    /// The first line does not name the columns.
    #[error("{0}: {1}")]
    Header(PathBuf, WrongHeader),
    /// The file has rows, and none of them is good.
    #[error("{0}: no row of it can be used; {first}", first = first(.1))]
    Useless(PathBuf, ListReport),
}

impl Error {
    /// The rows that are wrong, where it is them.
    pub const fn about(&self) -> Option<&ListReport> {
        match self {
            Self::Useless(_, about) => Some(about),
            Self::Missing(_) | Self::Unreadable(..) | Self::TooLarge(_) | Self::Header(..) => None,
        }
    }

    /// For a log: of numbers their last four digits.
    pub fn masked(&self) -> String {
        match self {
            Self::Useless(file, about) => {
                let first = about.named.first().map(BadRow::masked).unwrap_or_default();
                format!("{}: no row of it can be used; {first}", file.display())
            }
            error => error.to_string(),
        }
    }
}

fn first(about: &ListReport) -> String {
    about
        .named
        .first()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// A list that was read anew, or could not be.
#[derive(Debug)]
pub struct News {
    /// Path of the list, as the flag names it.
    pub file: PathBuf,
    /// Kind of its rows: leads or employees.
    pub kind: ListKind,
    /// Country by which its numbers were read: trunks of two countries may read one file
    /// differently. `None` for employees.
    pub country: Option<Country>,
    /// Changes of its good rows, which are in force. On an error the old list stays in force: one
    /// error is reported once, until the file changes again.
    pub result: Result<ListChange, Error>,
}

impl News {
    /// The file's rows, as far as there are any.
    pub fn about(&self) -> Option<&ListReport> {
        match &self.result {
            Ok(change) => Some(&change.about),
            Err(error) => error.about(),
        }
    }
}

/// Kinds of lists, by their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ListKind {
    /// Rows of phones and leads.
    Leads,
    /// Rows of extensions and employees.
    Employees,
}

impl ListKind {
    /// The kind as logs and JSON have it: `leads`, `employees`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// Changes that a newly read list brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// Report on its rows, the bad ones by name.
    pub about: ListReport,
    /// Of these phones a lead list says something else than before, sorted; none for employees.
    pub phones: Vec<Phone>,
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

    const fn kind(&self) -> ListKind {
        match self {
            Self::Leads(_) => ListKind::Leads,
            Self::Employees(_) => ListKind::Employees,
        }
    }

    const fn country(&self) -> Option<Country> {
        match self {
            Self::Leads((_, country)) => *country,
            Self::Employees(_) => None,
        }
    }

    fn is_in_force(&self, people: &People) -> bool {
        match self {
            Self::Leads(key) => people.leads.contains_key(key),
            Self::Employees(path) => people.employees.contains_key(path),
        }
    }
}

/// State of a file when it was last read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Never,
    Missing,
    Version { version: FileVersion, settled: bool },
}

/// State of a list's file, by which the next check decides whether to read it.
#[derive(Clone, Copy, Debug)]
struct FileState {
    seen: Seen,
    /// A newer version that is not read yet, and at how many looks the file was another.
    newer: Option<(FileVersion, u32)>,
}

impl FileState {
    const UNREAD: Self = Self {
        seen: Seen::Never,
        newer: None,
    };

    /// Returns `true` when the file was the same at the last check, or has changed for too many
    /// checks.
    fn rests(&mut self, version: FileVersion) -> bool {
        if matches!(self.seen, Seen::Version { version: old, .. } if old == version) {
            return true;
        }
        match self.newer {
            Some((newer, _)) if newer == version => true,
            Some((_, LOOKS_MAX..)) => true,
            newer => {
                let looks = newer.map_or(1, |(_, looks)| looks + 1);
                self.newer = Some((version, looks));
                false
            }
        }
    }
}

/// The lists in force, and the files they come from.
#[derive(Debug)]
pub struct Watched {
    people: People,
    known: BTreeMap<List, FileState>,
}

impl Watched {
    /// The lists that any of these trunks names; nothing is read yet.
    pub fn of<'a>(trunks: impl Iterator<Item = &'a Trunk>) -> Self {
        let mut known = BTreeMap::new();
        for trunk in trunks {
            for rule in &trunk.leads {
                if let LeadRule::Csv(file) = rule {
                    known.insert(
                        List::Leads((file.clone(), trunk.country)),
                        FileState::UNREAD,
                    );
                }
            }
            if let Some(EmployeeRule::File(file)) = &trunk.employees {
                known.insert(List::Employees(file.clone()), FileState::UNREAD);
            }
        }
        Self {
            people: People::default(),
            known,
        }
    }

    /// Reads all lists, and gives what is to be said of them.
    ///
    /// # Errors
    /// Every list that cannot be used.
    pub fn load<'a>(
        trunks: impl Iterator<Item = &'a Trunk>,
        now: EventTime,
    ) -> Result<(Self, Vec<News>), Vec<Error>> {
        let mut watched = Self::of(trunks);
        let (mut news, mut faults) = (Vec::new(), Vec::new());
        for one in watched.reload(now) {
            match one.result {
                Ok(_) => news.push(one),
                Err(error) => faults.push(error),
            }
        }
        match faults.is_empty() {
            true => Ok((watched, news)),
            false => Err(faults),
        }
    }

    /// The same with this directory of leads beside them.
    #[must_use]
    pub fn with_directory(mut self, directory: Arc<dyn Directory>) -> Self {
        self.people = self.people.with_directory(directory);
        self
    }

    /// Returns the lists in force, with the directory where there is one.
    pub fn people(&self) -> &People {
        &self.people
    }

    /// Reads the lists whose files are others than last time, and at rest. Blocks on the disk.
    pub fn reload(&mut self, now: EventTime) -> Vec<News> {
        let mut news = Vec::new();
        for (list, known) in &mut self.known {
            let in_force = list.is_in_force(&self.people);
            let before = known.seen;
            let (version, result) = match read(list.path(), known, in_force, now) {
                Read::Same => continue,
                Read::Bytes(version, bytes) => (version, take(&mut self.people, list, &bytes)),
                Read::Failed(version, error) => (version, Err(error)),
            };
            // Read once more for its youth alone, and the same: no news.
            let again = matches!((before, version), (
                Seen::Version { version: a, settled: false },
                Seen::Version { version: b, .. },
            ) if a == b);
            *known = FileState {
                seen: version,
                newer: None,
            };
            let same = match &result {
                Ok(change) => change.phones.is_empty(),
                Err(_) => true,
            };
            if !(again && same) {
                news.push(News {
                    file: list.path().to_owned(),
                    kind: list.kind(),
                    country: list.country(),
                    result,
                });
            }
        }
        news
    }
}

/// Puts the good rows of a list in force; a list of bad rows alone leaves the old one there.
fn take(people: &mut People, list: &List, bytes: &[u8]) -> Result<ListChange, Error> {
    let path = || list.path().to_owned();
    let wrong = |header| Error::Header(path(), header);
    match list {
        List::Leads(key) => {
            let (newer, about) = LeadList::read(bytes, key.1).map_err(wrong)?;
            if about.is_useless() {
                return Err(Error::Useless(path(), about));
            }
            let older = people.leads.entry(key.clone()).or_default();
            let phones = older.changed(&newer);
            *older = newer;
            Ok(ListChange { about, phones })
        }
        List::Employees(file) => {
            let (newer, about) = list::employees(bytes).map_err(wrong)?;
            if about.is_useless() {
                return Err(Error::Useless(path(), about));
            }
            people.employees.insert(file.clone(), newer);
            Ok(ListChange {
                about,
                phones: Vec::new(),
            })
        }
    }
}

enum Read {
    Same,
    Bytes(Seen, Vec<u8>),
    Failed(Seen, Error),
}

fn read(path: &Path, known: &mut FileState, in_force: bool, now: EventTime) -> Read {
    let seen = known.seen;
    let opened = plain_file::open_named(path)
        .and_then(|file| Ok((FileVersion::of(&file.metadata()?), file)));
    let (version, file) = match opened {
        Ok(opened) => opened,
        Err(_) if seen == Seen::Missing => return Read::Same,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Read::Failed(Seen::Missing, Error::Missing(path.to_owned()));
        }
        Err(error) => {
            return Read::Failed(Seen::Missing, Error::Unreadable(path.to_owned(), error));
        }
    };
    if matches!(seen, Seen::Version { version: old, settled: true } if old == version) {
        return Read::Same;
    }
    if in_force && !known.rests(version) {
        return Read::Same;
    }
    let written = version.written();
    let mut seen = Seen::Version {
        version,
        settled: now.since(written) > YOUNG,
    };
    if version.bytes() > FILE_BYTES_MAX {
        return Read::Failed(seen, Error::TooLarge(path.to_owned()));
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX);
    if let Err(error) = limited.read_to_end(&mut bytes) {
        return Read::Failed(seen, Error::Unreadable(path.to_owned(), error));
    }
    // Written to meanwhile: what was read may be torn, so it is read once more.
    let after = limited
        .into_inner()
        .metadata()
        .map(|about| FileVersion::of(&about));
    if after.ok() != Some(version) {
        seen = Seen::Version {
            version,
            settled: false,
        };
    }
    Read::Bytes(seen, bytes)
}
