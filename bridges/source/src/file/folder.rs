//! Reads a directory into which the PBX writes one file per record (`mod_json_cdr`). With `rotate`,
//! the PBX creates subdirectories named after the current second (`2026-11-22-10-31-26`), and
//! writes into the newest.
//!
//! A file is finished once it contains a complete document or hasn't changed for a minute. Each
//! finished file is passed to the intake once, along with its path, and again if it changes later.
//!
//! For a directory, the offset in a [`FilePosition`] is a time in microseconds, up to which every
//! change of a file (its `ctime`) has been read. The inode is also a time, and files written before
//! it aren't read. After a restart, files that changed less than ten minutes before the offset are
//! passed on again, so that no change is lost. The spool recognizes any calls it already has.
//!
//! New names and changes are reported by inotify. Since a network file system doesn't report
//! either, the whole directory is also listed whenever its modification time has changed, taking up
//! at most 1 % of the time. Each listing also rechecks the files that were passed on while
//! incomplete.

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

/// Maximum number of files to pass on per poll.
const GIVEN_MAX: usize = 256;
/// After a restart, files that changed up to this long before the last position are passed on
/// again.
const AGAIN_MICROS: u64 = 600_000_000;
/// Listings may take up at most 1/100 of the time, so the wait after a listing is 100 times as long
/// as the listing.
const LISTING_SHARE: u32 = 100;
/// Size of the buffer for inotify events in bytes.
const EVENT_BYTES: usize = 16 << 10;
/// A file without a complete document is considered finished once it hasn't changed for this long.
const UNCHANGED_FOR: Duration = Duration::from_secs(60);
/// Maximum length in bytes of a record whose file someone has asked for.
const ASKED_BYTES_MAX: usize = 16 << 20;

/// Finds the files in a directory that haven't been passed on yet.
#[derive(Debug)]
pub(crate) struct RecordFolder {
    path: PathBuf,
    from: From,
    resume: Option<FilePosition>,
    /// Whether there has been a poll that didn't fail.
    is_open: bool,
    /// Whether the last poll didn't fail.
    is_up: bool,
    events: Option<OwnedFd>,
    /// The state of each listed directory by name, which is empty for the main directory. All
    /// others are its dated subdirectories.
    listed: BTreeMap<OsString, Listed>,
    /// Earliest time for the next listing, or `None` if one is due now.
    list_after: Option<Instant>,
    /// This process's key for hashing names.
    key: RandomState,
    /// Files waiting to be passed on.
    waiting: WaitingFiles,
    /// Files without a complete document, along with their state when they were last read.
    unfinished: BTreeMap<OsString, Unfinished>,
    /// Files that couldn't be read during the last poll.
    failed: BTreeSet<OsString>,
    /// Files passed on as unreadable, along with their `ctime`, which also changes with the
    /// permissions. A file is reread once its `ctime` is different.
    refused: BTreeMap<OsString, (i64, i64)>,
    /// Files passed on without a complete document. Each listing rechecks them.
    incomplete: BTreeSet<OsString>,
    /// Files that someone has asked to have reread.
    asked: BTreeSet<OsString>,
    again: FilesAgain,
    began_micros: u64,
    /// The latest change to any of the files passed on.
    newest_micros: u64,
}

/// A file without a complete document.
#[derive(Debug)]
struct Unfinished {
    state: FileState,
    /// When the file was last found to have a new state.
    since: Instant,
}

/// The result of reading a file.
enum Outcome {
    /// The file has a complete record, or part of one to which nothing is likely to be added.
    Finished(FileRecord),
    /// The file is gone or still being written.
    NotYet,
}

/// The state of a directory when it was last listed.
#[derive(Debug, Default)]
struct Listed {
    watch: Option<i32>,
    /// Files in the directory that were passed on or that existed before callbridge was first
    /// started, as a map from the hash of each file's name to the hash of its state at that time.
    given: HashMap<u64, u64>,
    changed: Option<(i64, i64)>,
    /// Whether the last two listings found the same modification time. A single listing isn't
    /// enough, because the disk's clock advances in steps of a few milliseconds, and a second file
    /// may be written within one step.
    is_certain: bool,
    /// Whether inotify events for the directory were lost, so that the next listing compares all
    /// files with the state in which they were passed on.
    may_have_changes: bool,
}

impl Listed {
    /// Records that inotify events for the directory were lost, so that the next listing compares
    /// all of its files with the state in which they were passed on.
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
        // A position from a different directory isn't valid for this one.
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

    /// Lists the directory if that's due, and reads its new records.
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

    /// Queues files that are unfinished, couldn't be read, or were requested again.
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

    /// Adds the files reported by inotify to the waiting files. A new dated directory makes a
    /// listing due.
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

    /// Lists each directory that has changed since its last listing, and adds its new files to the
    /// waiting files.
    fn list(&mut self) -> io::Result<()> {
        for folder in self.listed.keys().cloned().collect::<Vec<_>>() {
            match self.list_one(&folder) {
                Ok(()) => {}
                // A dated directory may be deleted once it's no longer written to.
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
            // Forget any names that are gone.
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

    /// Returns the hash of the state in which the file was passed on, or `None` if it wasn't.
    fn given_print(&self, name: &OsStr) -> Option<u64> {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let listed = self.listed.get(folder.as_os_str())?;
        listed.given.get(&self.key.hash_one(name)).copied()
    }

    /// Remembers the state in which a file was passed on.
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

    /// Adds a regular file to the waiting files, unless it has been passed on in its current state.
    fn notice(&mut self, name: OsString) {
        let own = Path::new(&name).file_name().unwrap_or_default();
        if own.as_encoded_bytes().first() == Some(&b'.') {
            return;
        }
        // The file may be gone by now.
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

    /// During the first poll, omits the files that were passed on before a restart or that existed
    /// before callbridge was first started.
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

    /// Forgets a file that's gone.
    fn forget(&mut self, name: &OsStr) {
        self.unfinished.remove(name);
        self.failed.remove(name);
        self.refused.remove(name);
        self.incomplete.remove(name);
        self.asked.remove(name);
    }

    /// Reads the file, and decides whether it's finished. `state` is the file's state when it was
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

    /// Reads the file, returning its document and the state it was in before that. If the file
    /// changed while it was being read, the document isn't considered complete. Since its next
    /// state will be different, the file is then reread.
    fn read(&self, name: &OsStr, is_asked: bool) -> io::Result<(Document, FileState)> {
        let (file, about) = opening::open_entry(&self.path.join(name))?;
        let opened = FileState::from_metadata(&about);
        let mut document = document::read(&file, bytes_max(is_asked))?;
        let after = FileState::from_metadata(&file.metadata()?);
        document.is_complete &= after.content == opened.content;
        Ok((document, opened))
    }

    /// Processes a file that can't be read. After the second failure, it's passed on without any
    /// bytes but with the reason, so that it doesn't block other files.
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

    /// Returns the time up to which every change has been read.
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

/// Returns up to what length a record is read.
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

/// Returns `true` for the name of a directory that the PBX creates with `rotate`, such as
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
