//! Follows a file as it grows, is renamed, truncated, copied and truncated, or deleted and
//! recreated. Each poll checks the disk without waiting.

use super::opened::{FileRecord, Opened, ReadOutcome, is_same, write_time};
use super::opening;
use crate::url::{Format, From};
use crate::{EventTime, FilePosition};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Something found when polling a file or directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Complete frames in order, each with the position after it.
    Frames(Vec<FileRecord>),
    /// The file or directory was opened, which means that the source is up.
    Open,
    /// Records may be missing before the next ones.
    Gap(String),
    /// There's nothing new. The file has been renamed, and will be followed for a few more polls.
    Wait,
    /// The file currently can't be read.
    Trouble(String),
    /// The file doesn't exist, so it has no pending records.
    Absent(String),
    /// Everything has been read, and reading continues at this position.
    End(FilePosition),
}

/// Number of polls for which a renamed file stays open after its last byte, since the PBX may keep
/// writing to it until it opens the new file.
const LINGER: u32 = 2;

#[derive(Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    format: Format,
    from: From,
    resume: Option<FilePosition>,
    current: Option<Opened>,
    /// Whether the current file has been renamed, so that it's read to its end and then closed.
    leaving: bool,
    lingered: u32,
    /// Whether the next file at `path` is read from its start because it was created after reading
    /// began.
    from_start: bool,
}

impl Follower {
    pub(crate) fn new(
        path: PathBuf,
        format: Format,
        from: From,
        resume: Option<FilePosition>,
    ) -> Self {
        // A position in a different file isn't valid for this one.
        let resume = resume.filter(|position| Path::new(&position.path) == path);
        Self {
            path,
            format,
            from,
            resume,
            current: None,
            leaving: false,
            lingered: 0,
            from_start: false,
        }
    }

    /// Checks the disk once. `End`, `Wait`, `Trouble`, or `Absent` at the end of the list means
    /// that there's nothing more to read for now.
    pub(crate) fn poll(&mut self) -> Vec<Sight> {
        let mut sights = Vec::new();
        if let Err(error) = self.step(&mut sights) {
            // If a file can't be read, it's reopened at the same position.
            if let Some(current) = self.current.take() {
                self.resume = Some(current.position());
            }
            let why = match error.kind() {
                ErrorKind::PermissionDenied => {
                    format!("{error}; let the user of callbridge read the file")
                }
                _ => error.to_string(),
            };
            sights.push(Sight::Trouble(self.name_file(&why)));
        }
        sights
    }

    fn name_file(&self, message: &str) -> String {
        format!("{}: {message}", self.path.display())
    }

    fn step(&mut self, sights: &mut Vec<Sight>) -> io::Result<()> {
        if self.current.is_none() && !self.open(sights)? {
            return Ok(());
        }
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        match current.poll()? {
            ReadOutcome::More(frames) => {
                self.lingered = 0;
                sights.push(Sight::Frames(frames));
            }
            ReadOutcome::End => self.on_end(sights)?,
            ReadOutcome::Replaced => self.on_replaced(sights)?,
        }
        Ok(())
    }

    /// Opens the next file to read, returning `false` if there is none.
    fn open(&mut self, sights: &mut Vec<Sight>) -> io::Result<bool> {
        if let Some(position) = self.resume.take() {
            let later = match self.find_or_list_later(&position) {
                Ok(later) => later,
                Err(error) => {
                    self.resume = Some(position);
                    return Err(error);
                }
            };
            if self.current.is_none() {
                let message = format!(
                    "another file is there now, and the file that was read up to byte {} is gone; \
                     its records after that byte are missing",
                    position.offset
                );
                sights.push(Sight::Gap(self.name_file(&message)));
                self.go_on_in_first(later, sights);
            }
            if self.current.is_none() {
                return self.open(sights);
            }
            sights.push(Sight::Open);
            return Ok(true);
        }
        let opened = match (&self.from, self.from_start) {
            (From::End, false) => Opened::open_at_end(&self.path, self.format),
            (From::Start | From::Since(_), _) | (From::End, true) => {
                Opened::open_at(&self.path, &self.path, self.format, 0)
            }
        };
        // Any file that appears at `path` from now on is new, so it's read from its start.
        self.from_start = match &opened {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        match opened {
            Ok(opened) => {
                self.current = Some(opened);
                self.leaving = false;
                self.lingered = 0;
                sights.push(Sight::Open);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let message = "no such file; callbridge waits for it (check the path, and that the \
                             PBX writes this file)";
                sights.push(Sight::Absent(self.name_file(message)));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the file of `position`, no matter what it's called now. If that file is gone, returns
    /// the siblings that were written later.
    fn find_or_list_later(&mut self, position: &FilePosition) -> io::Result<Vec<PathBuf>> {
        self.find(position)?;
        if self.current.is_none() && position.written != EventTime::default() {
            self.find_written_after(position.written, None)
        } else {
            Ok(Vec::new())
        }
    }

    /// Opens the file of `position`, no matter what it's called now. If that file is gone, nothing
    /// is opened.
    fn find(&mut self, position: &FilePosition) -> io::Result<()> {
        self.from_start = true;
        let here = match is_same(&self.path, position) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            here => here?,
        };
        let own = self.path.clone();
        if here.is_some_and(|metadata| metadata.ino() == position.inode) {
            return self.go_on(&own, position.offset);
        }
        if let Some(path) = self.find_rotated(position)? {
            return self.go_on(&path, position.offset);
        }
        // A different inode with the same first bytes is a copy that replaced the file.
        if is_same(&own, position).is_ok_and(|same| same.is_some()) {
            return self.go_on(&own, position.offset);
        }
        Ok(())
    }

    /// Continues at `offset` in the file at `path`, which may also be a rotated file.
    fn go_on(&mut self, path: &Path, offset: u64) -> io::Result<()> {
        self.current = Some(Opened::open_at(path, &self.path, self.format, offset)?);
        self.leaving = path != self.path;
        self.lingered = 0;
        Ok(())
    }

    fn on_end(&mut self, sights: &mut Vec<Sight>) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if !self.leaving {
            let here = match std::fs::metadata(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                here => Some(here?.ino()),
            };
            if here == Some(current.inode) {
                self.lingered = 0;
                sights.push(Sight::End(current.position()));
                return Ok(());
            }
            if here.is_none() {
                // The file was renamed or deleted, and there's no new file yet. The PBX may still
                // be writing to the open file.
                let message = "it was renamed or deleted; callbridge waits for the next one";
                sights.push(Sight::Absent(self.name_file(message)));
                return Ok(());
            }
        }
        self.lingered += 1;
        if self.lingered <= LINGER {
            sights.push(Sight::Wait);
            return Ok(());
        }
        sights.extend(current.rest()?.map(|record| Sight::Frames(vec![record])));
        let last_write = current.written;
        let inode = current.inode;
        // This list is created anew for each file, because a rotation renames files.
        let later = self.find_written_after(last_write, Some(inode))?;
        self.current = None;
        self.from_start = true;
        self.go_on_in_first(later, sights);
        if self.current.is_none() {
            // Open the new file right away, because it may be rotated before the next poll too.
            self.open(sights)?;
        }
        Ok(())
    }

    /// Continues at the start of the first of these files that can be read, if any.
    fn go_on_in_first(&mut self, files: Vec<PathBuf>, sights: &mut Vec<Sight>) {
        for path in files {
            let Err(error) = self.go_on(&path, 0) else {
                return;
            };
            let why = opening::message(&error);
            let message = format!("{}: {why}; its records are missing", path.display());
            sights.push(Sight::Gap(message));
        }
    }

    /// Processes a file at `path` that was truncated. If it was copied first (`copytruncate`), the
    /// unread records are in the copy.
    fn on_replaced(&mut self, sights: &mut Vec<Sight>) -> io::Result<()> {
        let Some(current) = self.current.take() else {
            return Ok(());
        };
        self.from_start = true;
        let position = current.position();
        match self.find_rotated(&position)? {
            Some(path) => self.go_on(&path, position.offset),
            None => {
                let message = "it was truncated, and there is no copy of it; records that were \
                             written just before are missing";
                sights.push(Sight::Gap(self.name_file(message)));
                self.open(sights).map(drop)
            }
        }
    }

    /// Finds the sibling (`cel.csv.1`, `cel.csv-20261120`) that is the file of `position` or a copy
    /// of it.
    fn find_rotated(&self, position: &FilePosition) -> io::Result<Option<PathBuf>> {
        // If several copies have the same first bytes, use the newest, since that's the one just
        // created.
        let mut copy = None;
        for path in self.siblings()? {
            // A file that can't be read or is being rotated right now isn't the one we're looking
            // for.
            let Ok(Some(metadata)) = is_same(&path, position) else {
                continue;
            };
            if metadata.ino() == position.inode {
                return Ok(Some(path));
            }
            if position.offset > 0 {
                copy = copy.max(Some((metadata.modified()?, path)));
            }
        }
        Ok(copy.map(|(_, path)| path))
    }

    /// Returns the siblings last written after `moment`, oldest first, except for the file with the
    /// inode `own`.
    fn find_written_after(&self, moment: EventTime, own: Option<u64>) -> io::Result<Vec<PathBuf>> {
        let mut later = Vec::new();
        for path in self.siblings()? {
            let Ok(metadata) = std::fs::metadata(&path) else {
                continue;
            };
            let at = write_time(&metadata);
            if at > moment && metadata.is_file() && Some(metadata.ino()) != own {
                later.push((at, path));
            }
        }
        later.sort();
        Ok(later.into_iter().map(|(_, path)| path).collect())
    }

    /// Returns the rotated files in the same directory. Each is named after `path`, followed by a
    /// dot or dash and a number or date.
    fn siblings(&self) -> io::Result<Vec<PathBuf>> {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Ok(Vec::new());
        };
        let name = name.to_string_lossy();
        let mut siblings = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let file_name = entry.file_name();
            let other = file_name.to_string_lossy();
            let suffix = other.strip_prefix(name.as_ref());
            let number = suffix.and_then(|suffix| suffix.strip_prefix(['.', '-']));
            if number.is_some_and(is_number_or_date) {
                siblings.push(entry.path());
            }
        }
        Ok(siblings)
    }
}

fn is_number_or_date(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| matches!(c, '0'..='9' | '-' | '_' | '.' | 'T' | ':'))
}
