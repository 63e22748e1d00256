//! A folder into which the PBX puts a file for each record, whole: `mod_json_cdr`. With `rotate` it
//! makes folders in it, named by the second (`2026-11-22-10-31-26`), and writes into the newest.
//!
//! A [`FilePosition`] of a folder has the time of the newest file that was given, in microseconds,
//! as its offset, and as its inode the time at which the folder was first opened. Files that are
//! little older than the newest one are given once more after a restart: what they say is known by
//! then, and one that came late is not lost.
//!
//! New names come from inotify. Because a network's file system does not report them, the folder is
//! also listed whole when its time of change is another one, for a hundredth of the time at most.

use super::{follow::Sight, opening};
use crate::{EventTime, FilePosition, url::From};
use bytes::Bytes;
use callbridge_formats::MESSAGE_BYTES_MAX;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::{
    fs::Metadata, mem::MaybeUninit, os::fd::OwnedFd, os::unix::ffi::OsStrExt as _,
    os::unix::fs::MetadataExt as _, time::Instant,
};

/// Files given in one look.
const GIVEN_MAX: usize = 256;
/// Files so much older than the newest one given are looked at again after a restart.
const AGAIN_MICROS: u64 = 600_000_000;
/// A listing may take one part in so many of the time.
const LISTING_SHARE: u32 = 100;
/// Bytes of the events that are read from inotify at once.
const EVENT_BYTES: usize = 16 << 10;

/// Looks into a folder for files that it has not given.
#[derive(Debug)]
pub(crate) struct RecordFolder {
    path: PathBuf,
    from: From,
    resume: Option<FilePosition>,
    /// It was opened once.
    is_open: bool,
    /// The last look did not fail.
    is_up: bool,
    events: Option<OwnedFd>,
    /// The folder itself, by an empty name, and the dated ones in it.
    listed: BTreeMap<OsString, Listed>,
    /// Moment before which nothing is listed again.
    list_after: Option<Instant>,
    /// Key of this process for the hashes of names.
    key: RandomState,
    /// Files that are to be given, the oldest first.
    waiting: BTreeSet<(u64, OsString)>,
    /// Files that looked half written, with their sizes, or that could not be read.
    unfinished: BTreeMap<OsString, Option<usize>>,
    /// Given as unreadable, with the time at which their rights were changed last: they are given
    /// when that is another one.
    refused: BTreeMap<OsString, (i64, i64)>,
    began_micros: u64,
    newest_micros: u64,
}

/// A folder as it was when it was listed last.
#[derive(Debug, Default)]
struct Listed {
    watch: Option<i32>,
    /// Names in it that were given, or that were there before, as hashes.
    given: HashSet<u64>,
    changed: Option<(i64, i64)>,
    /// The listing before had found the same time of change: one alone proves nothing, for the
    /// clock of the disk steps by some milliseconds, and the second leg of a call may come within a
    /// step.
    is_certain: bool,
}

impl RecordFolder {
    pub(crate) fn new(path: PathBuf, from: From, resume: Option<FilePosition>) -> Self {
        // A position of another folder says nothing about this one.
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
            waiting: BTreeSet::new(),
            unfinished: BTreeMap::new(),
            refused: BTreeMap::new(),
            began_micros: 0,
            newest_micros: 0,
        }
    }

    /// Lists the folder where that is due, and reads the records that are new in it.
    pub(crate) fn poll(&mut self) -> Vec<Sight> {
        let mut sights = Vec::new();
        if let Err(error) = self.see(&mut sights) {
            self.is_up = false;
            let why = format!("{}: {}", self.path.display(), opening::words(&error));
            sights.push(match error.kind() {
                io::ErrorKind::NotFound => Sight::Absent(why),
                _ => Sight::Trouble(why),
            });
        }
        sights
    }

    fn see(&mut self, sights: &mut Vec<Sight>) -> io::Result<()> {
        if !std::fs::metadata(&self.path)?.is_dir() {
            return Err(io::Error::other(
                "this is not a folder; give the one into which the PBX puts a file for each record",
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
        let (mut frames, mut tried) = (Vec::new(), BTreeSet::new());
        let again: Vec<OsString> = self.unfinished.keys().cloned().collect();
        for name in again {
            self.notice(name);
        }
        for _ in 0..GIVEN_MAX {
            let Some((micros, name)) = self.waiting.pop_first() else {
                break;
            };
            // One that was written to while it waited stands there by two times.
            if self.is_given(&name) || !tried.insert(name.clone()) {
                continue;
            }
            if let Some(bytes) = self.record(&name) {
                self.newest_micros = self.newest_micros.max(micros);
                self.remember(&name, true);
                frames.push((bytes, self.position()));
            }
        }
        if frames.is_empty() && self.waiting.is_empty() {
            sights.push(Sight::End(self.position()));
        } else {
            sights.push(Sight::Frames(frames));
        }
        Ok(())
    }

    /// The names that inotify reports, and new dated folders.
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
                self.listed.values_mut().for_each(|it| it.changed = None);
                continue;
            }
            let mut folders = self.listed.iter();
            let folder = folders.find(|(_, it)| it.watch == Some(event.wd()));
            if let (Some((folder, _)), Some(name)) = (folder, event.file_name()) {
                let name = Path::new(folder).join(OsStr::from_bytes(name.to_bytes()));
                match event.events().contains(ReadFlags::ISDIR) {
                    true => self.list_after = None,
                    false => self.notice(name.into_os_string()),
                }
            }
        }
        self.events = Some(events);
    }

    /// Lists each folder that has changed since its last listing.
    fn list(&mut self) -> io::Result<()> {
        for folder in self.listed.keys().cloned().collect::<Vec<_>>() {
            match self.list_one(&folder) {
                Ok(()) => {}
                // What was rotated away long ago may be deleted.
                Err(_) if !folder.is_empty() => drop(self.listed.remove(&folder)),
                Err(error) => return Err(error),
            }
        }
        for name in self.refused.keys().cloned().collect::<Vec<_>>() {
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
        let (mut dated, mut there) = (Vec::new(), HashSet::new());
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = Path::new(folder).join(entry.file_name()).into_os_string();
            there.insert(self.key.hash_one(name.as_os_str()));
            let is_folder = entry.file_type().is_ok_and(|it| it.is_dir());
            if is_folder && folder.is_empty() && is_dated(&name) {
                dated.push(name);
            } else if !is_folder {
                self.notice(name);
            }
        }
        if let Some(listed) = self.listed.get_mut(folder) {
            // Names that are gone are forgotten.
            listed.given.retain(|name| there.contains(name));
            (listed.changed, listed.is_certain) = (changed, same);
        }
        for name in dated {
            if !self.listed.contains_key(&name) {
                self.list_one(&name)?;
            }
        }
        Ok(())
    }

    fn is_given(&self, name: &OsStr) -> bool {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let listed = self.listed.get(folder.as_os_str());
        listed.is_some_and(|it| it.given.contains(&self.key.hash_one(name)))
    }

    /// Remembers whether a file was given.
    fn remember(&mut self, name: &OsStr, given: bool) {
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let hash = self.key.hash_one(name);
        if let Some(listed) = self.listed.get_mut(folder.as_os_str()) {
            match given {
                true => listed.given.insert(hash),
                false => listed.given.remove(&hash),
            };
        }
    }

    /// Puts a regular file that was not given among those that wait.
    fn notice(&mut self, name: OsString) {
        let own = Path::new(&name).file_name().unwrap_or_default();
        let hidden = own.as_encoded_bytes().first() == Some(&b'.');
        let refused = self.refused.get(&name).copied();
        if hidden || refused.is_none() && self.is_given(&name) {
            return;
        }
        // It may be gone by now.
        let about = std::fs::symlink_metadata(self.path.join(&name));
        let Some(about) = about.ok().filter(Metadata::is_file) else {
            self.unfinished.remove(&name);
            self.refused.remove(&name);
            return;
        };
        if refused == Some(changed_inode(&about)) {
            return;
        }
        self.refused.remove(&name);
        self.remember(&name, false);
        self.waiting.insert((written_at(&about), name));
    }

    /// Leaves out, at the first poll, what was given before a restart, or was there before us.
    fn leave_out(&mut self) {
        let newest = self.waiting.last().map_or(0, |(micros, _)| *micros);
        let before = match (self.resume.take(), &self.from) {
            (Some(position), _) => {
                (self.began_micros, self.newest_micros) = (position.inode, position.offset);
                let again = position.offset.saturating_sub(AGAIN_MICROS);
                again.max(position.inode)
            }
            (None, From::End) => {
                (self.began_micros, self.newest_micros) = (newest.saturating_add(1), newest);
                u64::MAX
            }
            (None, From::Start | From::Since(_)) => 0,
        };
        let rest = self.waiting.split_off(&(before, OsString::new()));
        let old = std::mem::replace(&mut self.waiting, rest);
        old.iter().for_each(|(_, name)| self.remember(name, true));
    }

    /// The whole record; empty of one that is too long, words of one that cannot be read, `None`
    /// while it is being written.
    fn record(&mut self, name: &OsString) -> Option<Bytes> {
        let read = match self.read(name) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.unfinished.remove(name);
                return None;
            }
            Err(error) => return self.unreadable(name, &error),
        };
        if read.len() > MESSAGE_BYTES_MAX {
            return Some(Bytes::new());
        }
        let size = Some(read.len());
        let is_whole = read.trim_ascii_end().last() == Some(&b'}');
        // What has not grown since the last look will not: it is given as it is, and reported.
        if !is_whole && self.unfinished.insert(name.clone(), size) != Some(size) {
            return None;
        }
        self.unfinished.remove(name);
        match read.trim_ascii() {
            [] => Some(Bytes::from_static(b"\n")),
            whole => Some(Bytes::copy_from_slice(whole)),
        }
    }

    fn read(&self, name: &OsString) -> io::Result<Vec<u8>> {
        let limit = u64::try_from(MESSAGE_BYTES_MAX).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        let (file, _) = opening::open_entry(&self.path.join(name))?;
        file.take(limit + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// One bad file keeps no other back: it becomes a message that cannot be read, with the cause
    /// as its text, once a second look has found the same.
    fn unreadable(&mut self, name: &OsString, error: &io::Error) -> Option<Bytes> {
        if self.unfinished.insert(name.clone(), None) != Some(None) {
            return None;
        }
        self.unfinished.remove(name);
        let path = self.path.join(name);
        let about = std::fs::symlink_metadata(&path).ok()?;
        self.refused.insert(name.clone(), changed_inode(&about));
        let why = opening::words(error);
        Some(format!("{} cannot be read: {why}", path.display()).into())
    }

    fn position(&self) -> FilePosition {
        FilePosition {
            path: self.path.to_string_lossy().into(),
            inode: self.began_micros,
            head_len: 0,
            head_hash: 0,
            offset: self.newest_micros,
            written: EventTime::default(),
        }
    }
}

/// Returns the time at which a file was written, in microseconds since the epoch. A time of the
/// future is not believed: the time at which its entry was changed is the clock's own.
fn written_at(about: &Metadata) -> u64 {
    let micros = |seconds: i64, nanos: i64| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        seconds * 1_000_000 + u64::try_from(nanos).unwrap_or(0) / 1_000
    };
    micros(about.mtime(), about.mtime_nsec()).min(micros(about.ctime(), about.ctime_nsec()))
}

fn changed_inode(about: &Metadata) -> (i64, i64) {
    (about.ctime(), about.ctime_nsec())
}

/// Is this a name that `rotate` gives, as `2026-11-22-10-31-26`?
fn is_dated(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let as_dated = |(at, byte): (usize, &u8)| match at {
        4 | 7 | 10 | 13 | 16 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    bytes.len() == 19 && bytes.iter().enumerate().all(as_dated)
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
