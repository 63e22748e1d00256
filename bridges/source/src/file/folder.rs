//! Reads a folder into which the PBX puts one file per record (`mod_json_cdr`). With its option
//! `rotate`, the PBX makes subfolders named by the second (`2026-11-22-10-31-26`), and writes into
//! the newest.
//!
//! A file is finished when it holds a complete document, or when it has not changed for a minute. A
//! finished file is given to the intake once, with its path. A file that changes later is given
//! again.
//!
//! For a folder, the offset of a [`FilePosition`] is a time in microseconds. Every change of a file
//! up to this time (its `ctime`) was read. The inode is also a time: files that were written
//! earlier are not read. After a restart, files that changed less than ten minutes before the
//! offset are given again. The spool recognizes their calls, and no change is lost.
//!
//! New names and changes come from inotify. A network file system reports neither, so the whole
//! folder is also listed when its modification time differs. Listings use at most 1 % of the time.
//! Each listing also checks the files again that were given although they were not complete.

use super::document::{self, Document};
use super::waiting::{FileState, WaitingFiles};
use super::{FilesAgain, follow::Sight, opened::FileRecord, opening};
use crate::{EventTime, FilePosition, RecordDetails, item::KEPT_BYTES, url::From};
use bytes::Bytes;
use callbridge_formats::MESSAGE_BYTES_MAX;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{
    fs::Metadata, mem::MaybeUninit, os::fd::OwnedFd, os::unix::ffi::OsStrExt as _,
    os::unix::fs::MetadataExt as _,
};

/// Maximum files given in one poll.
const GIVEN_MAX: usize = 256;
/// Files that changed this long before the last position are given again after a restart.
const AGAIN_MICROS: u64 = 600_000_000;
/// Listings use at most 1/100 of the time: the wait after a listing is 100 times its duration.
const LISTING_SHARE: u32 = 100;
/// Size in bytes of the buffer for inotify's events.
const EVENT_BYTES: usize = 16 << 10;
/// A file without a complete document is finished once it has not changed for this long.
const UNCHANGED_FOR: Duration = Duration::from_secs(60);
/// Longest record that is read when a person asks for its file.
const ASKED_BYTES_MAX: usize = 16 << 20;

/// Finds the files of a folder that were not given yet.
#[derive(Debug)]
pub(crate) struct RecordFolder {
    path: PathBuf,
    from: From,
    resume: Option<FilePosition>,
    /// The first poll that did not fail is over.
    is_open: bool,
    /// The last poll did not fail.
    is_up: bool,
    events: Option<OwnedFd>,
    /// State of each listed folder, by name. The folder itself has an empty name. The other names
    /// are its dated subfolders.
    listed: BTreeMap<OsString, Listed>,
    /// The next listing is not before this time. `None` if a listing is due now.
    list_after: Option<Instant>,
    /// Key of this process for the hashes of names.
    key: RandomState,
    /// Files that wait to be given.
    waiting: WaitingFiles,
    /// Files without a complete document, each with its state at the last read.
    unfinished: BTreeMap<OsString, Unfinished>,
    /// Files that could not be read at the last poll.
    failed: BTreeSet<OsString>,
    /// Files given as unreadable, each with its `ctime`, which a change of its rights also changes.
    /// A file is read again when its `ctime` differs.
    refused: BTreeMap<OsString, (i64, i64)>,
    /// Files that were given without a complete document. Each listing checks them again.
    incomplete: BTreeSet<OsString>,
    /// Files that a person wants to read again.
    asked: BTreeSet<OsString>,
    again: FilesAgain,
    began_micros: u64,
    /// Latest change of a file that was given.
    newest_micros: u64,
}

/// A file without a complete document.
#[derive(Debug)]
struct Unfinished {
    state: FileState,
    /// Time of the last read that found a new state of the file.
    since: Instant,
}

/// Result of reading a file.
enum Outcome {
    /// The file has a whole record, or a part to which nothing is expected to be added.
    Finished(FileRecord),
    /// The file is gone, or still being written.
    NotYet,
}

/// State of a folder when it was last listed.
#[derive(Debug, Default)]
struct Listed {
    watch: Option<i32>,
    /// Files of the folder that were given, or that existed before callbridge first ran: from the
    /// hash of a name to the hash of the file's state then.
    given: HashMap<u64, u64>,
    changed: Option<(i64, i64)>,
    /// The last two listings found the same modification time. One listing is not enough, because
    /// the disk's clock advances in steps of some milliseconds, and a second file can be written
    /// within a step.
    is_certain: bool,
    /// inotify's events for the folder were lost, so the next listing compares all files with the
    /// state in which they were given.
    may_have_changes: bool,
}

impl Listed {
    /// Notes that inotify's events for the folder were lost. The next listing compares all of its
    /// files with the state in which they were given.
    const fn note_lost_events(&mut self) {
        self.changed = None;
        self.may_have_changes = true;
    }
}

impl RecordFolder {
    pub(crate) fn new(
        path: PathBuf,
        from: From,
        resume: Option<FilePosition>,
        again: FilesAgain,
    ) -> Self {
        // A position in another folder is not valid for this one.
        let resume = resume.filter(|position| Path::new(&position.path) == path);
        Self {
            path,
            from,
            resume,
            is_open: false,
            is_up: false,
            events: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok(),
            listed: BTreeMap::from([(OsString::new(), Listed::default())]),
            list_after: None,
            key: RandomState::new(),
            waiting: WaitingFiles::default(),
            unfinished: BTreeMap::new(),
            failed: BTreeSet::new(),
            refused: BTreeMap::new(),
            incomplete: BTreeSet::new(),
            asked: BTreeSet::new(),
            again,
            began_micros: 0,
            newest_micros: 0,
        }
    }

    /// Lists the folder if that is due, and reads its new records.
    pub(crate) fn poll(&mut self, now: Instant) -> Vec<Sight> {
        let mut sights = Vec::new();
        if let Err(error) = self.see(&mut sights, now) {
            self.is_up = false;
            let why = format!("{}: {}", self.path.display(), opening::message(&error));
            sights.push(match error.kind() {
                io::ErrorKind::NotFound => Sight::Absent(why),
                _ => Sight::Trouble(why),
            });
        }
        sights
    }

    fn see(&mut self, sights: &mut Vec<Sight>, now: Instant) -> io::Result<()> {
        if !std::fs::metadata(&self.path)?.is_dir() {
            return Err(io::Error::other(
                "this is not a folder; give the folder in which the PBX writes one file per record",
            ));
        }
        self.take_events();
        if self.list_after.is_none_or(|at| at <= Instant::now()) {
            let begun = Instant::now();
            self.list()?;
            let wait = begun.elapsed() * LISTING_SHARE;
            self.list_after = Some(Instant::now() + wait);
        }
        if !std::mem::replace(&mut self.is_up, true) {
            sights.push(Sight::Open);
        }
        if !std::mem::replace(&mut self.is_open, true) {
            self.leave_out();
        }
        self.notice_again();
        let mut records = Vec::new();
        for _ in 0..GIVEN_MAX {
            let Some((name, state)) = self.waiting.pop_first() else {
                break;
            };
            if let Outcome::Finished(mut record) = self.read_record(&name, state, now) {
                self.newest_micros = self.newest_micros.max(state.changed);
                record.position = self.position();
                records.push(record);
            }
        }
        if records.is_empty() && self.waiting.is_empty() {
            sights.push(Sight::End(self.position()));
        } else {
            sights.push(Sight::Frames(records));
        }
        Ok(())
    }

    /// Adds unfinished files, files that could not be read, and files that a person requests to the
    /// waiting files.
    fn notice_again(&mut self) {
        let unfinished = self.unfinished.keys().chain(&self.failed);
        for name in unfinished.cloned().collect::<Vec<_>>() {
            self.notice(name);
        }
        for path in self.again.take() {
            if let Ok(name) = Path::new(&path).strip_prefix(&self.path) {
                let name = name.as_os_str().to_owned();
                self.asked.insert(name.clone());
                self.notice(name);
            }
        }
    }

    /// Adds the files that inotify reports to the waiting files. A new dated folder makes a listing
    /// due.
    fn take_events(&mut self) {
        let Some(events) = self.events.take() else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(&events, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                self.list_after = None;
                self.listed.values_mut().for_each(Listed::note_lost_events);
                continue;
            }
            let mut folders = self.listed.iter();
            let folder = folders.find(|(_, listed)| listed.watch == Some(event.wd()));
            if let (Some((folder, _)), Some(name)) = (folder, event.file_name()) {
                let name = Path::new(folder).join(OsStr::from_bytes(name.to_bytes()));
                if event.events().contains(ReadFlags::ISDIR) {
                    self.list_after = None;
                } else {
                    self.notice(name.into_os_string());
                }
            }
        }
        self.events = Some(events);
    }

    /// Lists each folder that has changed since its last listing, and adds its new files to the
    /// waiting files.
    fn list(&mut self) -> io::Result<()> {
        for folder in self.listed.keys().cloned().collect::<Vec<_>>() {
            match self.list_one(&folder) {
                Ok(()) => {}
                // A dated folder that is no longer written to can be deleted.
                Err(_) if !folder.is_empty() => drop(self.listed.remove(&folder)),
                Err(error) => return Err(error),
            }
        }
        let doubtful = self.refused.keys().chain(&self.incomplete);
        for name in doubtful.cloned().collect::<Vec<_>>() {
            self.notice(name);
        }
        Ok(())
    }

    fn list_one(&mut self, folder: &OsStr) -> io::Result<()> {
        let path = self.path.join(folder);
        let about = std::fs::metadata(&path)?;
        let changed = Some((about.mtime(), about.mtime_nsec()));
        let listed = self.listed.entry(folder.to_owned()).or_default();
        let same = listed.changed == changed;
        if same && listed.is_certain {
            return Ok(());
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB;
        if let (None, Some(events)) = (listed.watch, &self.events) {
            listed.watch = inotify::add_watch(events, &path, flags).ok();
        }
        let may_have_changes = std::mem::take(&mut listed.may_have_changes);
        let mut dated = Vec::new();
        let mut there = HashSet::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = Path::new(folder).join(entry.file_name()).into_os_string();
            there.insert(self.key.hash_one(name.as_os_str()));
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && folder.is_empty() && is_dated(&name) {
                dated.push(name);
            } else if !is_folder && (may_have_changes || self.given_print(&name).is_none()) {
                self.notice(name);
            }
        }
        if let Some(listed) = self.listed.get_mut(folder) {
            // Names that are gone are forgotten.
            listed.given.retain(|name, _| there.contains(name));
            listed.changed = changed;
            listed.is_certain = same;
        }
        for name in dated {
            if !self.listed.contains_key(&name) {
                self.list_one(&name)?;
            }
        }
        Ok(())
    }

    /// Returns the hash of the state in which the file was given. `None` if it was not given.
    fn given_print(&self, name: &OsStr) -> Option<u64> {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let listed = self.listed.get(folder.as_os_str())?;
        listed.given.get(&self.key.hash_one(name)).copied()
    }

    /// Remembers the state in which a file was given.
    fn remember(&mut self, name: &OsStr, state: FileState) {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let hash = self.key.hash_one(name);
        let print = self.print(state);
        if let Some(listed) = self.listed.get_mut(folder.as_os_str()) {
            listed.given.insert(hash, print);
        }
    }

    fn print(&self, state: FileState) -> u64 {
        self.key.hash_one(state.content)
    }

    /// Adds a regular file to the waiting files, unless it was given in its current state.
    fn notice(&mut self, name: OsString) {
        let own = Path::new(&name).file_name().unwrap_or_default();
        if own.as_encoded_bytes().first() == Some(&b'.') {
            return;
        }
        // The file can be gone by now.
        let about = std::fs::symlink_metadata(self.path.join(&name)).ok();
        let Some(about) = about.filter(Metadata::is_file) else {
            self.forget(&name);
            return;
        };
        let state = FileState::from_metadata(&about);
        let is_asked = self.asked.contains(&name);
        if let Some(rights) = self.refused.get(&name) {
            if *rights == changed_inode(&about) && !is_asked {
                return;
            }
            self.refused.remove(&name);
        } else if self.given_print(&name) == Some(self.print(state)) && !is_asked {
            return;
        }
        self.waiting.insert(name, state);
    }

    /// At the first poll, leaves out the files that were given before a restart, or that existed
    /// before callbridge first ran.
    fn leave_out(&mut self) {
        let mut ours_from = 0;
        let mut changed_from = 0;
        if let Some(position) = self.resume.take() {
            self.began_micros = position.inode;
            self.newest_micros = position.offset;
            ours_from = position.inode;
            changed_from = position.offset.saturating_sub(AGAIN_MICROS);
        } else if self.from == From::End {
            self.began_micros = self.waiting.last_written().saturating_add(1);
            self.newest_micros = self.waiting.last_changed();
            ours_from = u64::MAX;
        }
        for (name, state) in self.waiting.take_older(ours_from, changed_from) {
            self.remember(&name, state);
        }
    }

    /// Forgets a file that is gone.
    fn forget(&mut self, name: &OsStr) {
        self.unfinished.remove(name);
        self.failed.remove(name);
        self.refused.remove(name);
        self.incomplete.remove(name);
        self.asked.remove(name);
    }

    /// Reads the file, and decides whether it is finished. `state` is the file's state when it was
    /// added to the waiting files.
    fn read_record(&mut self, name: &OsString, state: FileState, now: Instant) -> Outcome {
        let is_asked = self.asked.contains(name);
        let last = self.unfinished.get(name);
        let is_unchanged = is_unchanged_since(last, state);
        let waited = last.map_or(Duration::ZERO, |last| now.duration_since(last.since));
        let is_over = is_asked || (is_unchanged && waited >= UNCHANGED_FOR);
        if is_unchanged && !is_over {
            return Outcome::NotYet;
        }
        let (document, state) = match self.read(name, is_asked) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget(name);
                return Outcome::NotYet;
            }
            Err(error) => return self.unreadable(name, &error),
        };
        self.failed.remove(name);
        let is_still = is_asked || is_unchanged_since(self.unfinished.get(name), state);
        let is_finished = document.is_complete || (is_over && is_still);
        if !is_finished {
            let since = now;
            self.unfinished
                .insert(name.clone(), Unfinished { state, since });
            return Outcome::NotYet;
        }
        self.forget(name);
        if !document.is_complete {
            self.incomplete.insert(name.clone());
        }
        self.remember(name, state);
        let mut details = self.details(name);
        let mut bytes = document.bytes;
        let bytes_max = bytes_max(is_asked);
        if document.length > bytes_max as u64 {
            details.cut_from = Some(state.content.size.max(document.length));
            bytes = bytes.slice(..bytes.len().min(KEPT_BYTES));
        } else if bytes.is_empty() {
            details.fault = Some(format!("{}: the file is empty", self.path_text(name)));
        }
        self.finish_record(bytes, details)
    }

    /// Reads the file. Returns its document, and the state of the file before it was read. If the
    /// file changed during the read, the document does not count as complete. Its next state
    /// differs, so the file is read again.
    fn read(&self, name: &OsStr, is_asked: bool) -> io::Result<(Document, FileState)> {
        let (file, about) = opening::open_entry(&self.path.join(name))?;
        let opened = FileState::from_metadata(&about);
        let mut document = document::read(&file, bytes_max(is_asked))?;
        let after = FileState::from_metadata(&file.metadata()?);
        document.is_complete &= after.content == opened.content;
        Ok((document, opened))
    }

    /// Handles a file that cannot be read. After the second failure, the file is given without
    /// bytes and with the reason, so that it does not block other files.
    fn unreadable(&mut self, name: &OsString, error: &io::Error) -> Outcome {
        let is_asked = self.asked.contains(name);
        if self.failed.insert(name.clone()) && !is_asked {
            return Outcome::NotYet;
        }
        self.forget(name);
        let Ok(about) = std::fs::symlink_metadata(self.path.join(name)) else {
            return Outcome::NotYet;
        };
        self.remember(name, FileState::from_metadata(&about));
        self.refused.insert(name.clone(), changed_inode(&about));
        let mut details = self.details(name);
        let why = opening::message(error);
        details.fault = Some(format!("{} cannot be read: {why}", self.path_text(name)));
        self.finish_record(Bytes::new(), details)
    }

    fn path_text(&self, name: &OsStr) -> String {
        self.path.join(name).to_string_lossy().into_owned()
    }

    fn details(&self, name: &OsStr) -> RecordDetails {
        RecordDetails {
            file: Some(self.path_text(name).into()),
            ..RecordDetails::default()
        }
    }

    fn finish_record(&self, bytes: Bytes, details: RecordDetails) -> Outcome {
        Outcome::Finished(FileRecord {
            bytes,
            position: self.position(),
            details: Some(Box::new(details)),
        })
    }

    /// Returns the time up to which every change was read.
    fn read_to_micros(&self) -> u64 {
        let unfinished = self.unfinished.values().map(|file| file.state.changed);
        let unread = unfinished.chain(self.waiting.first_changed()).min();
        let before = unread.map_or(u64::MAX, |changed| changed.saturating_sub(1));
        self.newest_micros.min(before)
    }

    fn position(&self) -> FilePosition {
        FilePosition {
            path: self.path.to_string_lossy().into(),
            inode: self.began_micros,
            head_at: 0,
            head_len: 0,
            head_hash: 0,
            offset: self.read_to_micros(),
            written: EventTime::default(),
        }
    }
}

fn is_unchanged_since(last: Option<&Unfinished>, state: FileState) -> bool {
    last.is_some_and(|last| last.state.content == state.content)
}

/// Returns the length up to which a record is read.
const fn bytes_max(is_asked: bool) -> usize {
    if is_asked {
        ASKED_BYTES_MAX
    } else {
        MESSAGE_BYTES_MAX
    }
}

fn changed_inode(about: &Metadata) -> (i64, i64) {
    (about.ctime(), about.ctime_nsec())
}

/// Returns `true` for the name of a folder that the PBX makes with `rotate`, such as
/// `2026-11-22-10-31-26`.
fn is_dated(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.len() == 19
        && bytes.iter().enumerate().all(|(i, byte)| match i {
            4 | 7 | 10 | 13 | 16 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
