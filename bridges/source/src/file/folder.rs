//! A folder into which the PBX puts a file for each record, whole: `mod_json_cdr`.
//!
//! A [`FilePosition`] of a folder has the time of the newest file that was given, in microseconds,
//! as its offset. Files that are little older are given once more after a restart: what they tell
//! is known by then, and one that came late is not lost.

use super::cut::Cut;
use super::follow::Sight;
use super::opening;
use crate::FilePosition;
use crate::url::From;
use bytes::Bytes;
use callbridge_formats::MESSAGE_BYTES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Files given in one look.
const GIVEN_MAX: usize = 256;
/// Files so much older than the newest one given are looked at again after a restart.
const AGAIN_MICROS: u64 = 600_000_000;

/// Looks into a folder for files that it has not given.
#[derive(Debug)]
pub(crate) struct RecordFolder {
    path: PathBuf,
    from: From,
    resume: Option<FilePosition>,
    is_open: bool,
    /// Names that were given, or that were there before.
    given: BTreeSet<OsString>,
    /// Files that looked half written, with their sizes.
    growing: BTreeMap<OsString, u64>,
    /// When the folder itself was changed, as of the last look that found nothing, and whether the
    /// look before it had found nothing either. One alone proves nothing: the clock of the disk
    /// steps by some milliseconds, and the second leg of a call may come within the same step.
    quiet_since: Option<((i64, i64), bool)>,
    newest_micros: u64,
}

/// A file that was not given yet.
struct NewFile {
    micros: u64,
    name: OsString,
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
            given: BTreeSet::new(),
            growing: BTreeMap::new(),
            quiet_since: None,
            newest_micros: 0,
        }
    }

    /// What there is to see now.
    pub(crate) fn look(&mut self) -> Vec<Sight> {
        let mut sights = Vec::new();
        if let Err(error) = self.see(&mut sights) {
            let why = opening::words(&error);
            sights.push(Sight::Trouble(format!("{}: {why}", self.path.display())));
        }
        sights
    }

    fn see(&mut self, sights: &mut Vec<Sight>) -> io::Result<()> {
        let about = std::fs::metadata(&self.path)?;
        if !about.is_dir() {
            return Err(io::Error::other(
                "this is no folder; give the one into which the PBX puts a file for each record",
            ));
        }
        let changed = (about.mtime(), about.mtime_nsec());
        if self.growing.is_empty() && self.quiet_since == Some((changed, true)) {
            sights.push(Sight::End(self.position()));
            return Ok(());
        }
        let mut new = self.new_files()?;
        if !self.is_open {
            self.is_open = true;
            sights.push(Sight::Open);
            self.leave_out(&mut new);
        }
        let more = new.len() > GIVEN_MAX;
        new.truncate(GIVEN_MAX);
        let mut frames = Vec::new();
        for file in new {
            if let Some(bytes) = self.record(&file.name)? {
                self.newest_micros = self.newest_micros.max(file.micros);
                self.given.insert(file.name);
                let end = self.newest_micros;
                frames.push((Cut { bytes, end }, self.position()));
            }
        }
        if frames.is_empty() && !more {
            let again = self
                .quiet_since
                .is_some_and(|(before, _)| before == changed);
            self.quiet_since = Some((changed, again));
            sights.push(Sight::End(self.position()));
        } else {
            sights.push(Sight::Frames(frames));
        }
        Ok(())
    }

    /// Regular files that were not given, the oldest first.
    fn new_files(&mut self) -> io::Result<Vec<NewFile>> {
        let (mut new, mut there) = (Vec::new(), BTreeSet::new());
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            if self.given.contains(&name) {
                there.insert(name);
                continue;
            }
            // It may be gone by now.
            let Ok(about) = entry.metadata() else {
                continue;
            };
            let hidden = name.as_encoded_bytes().first() == Some(&b'.');
            if about.is_file() && !hidden {
                let seconds = u64::try_from(about.mtime()).unwrap_or(0);
                let rest = u64::try_from(about.mtime_nsec()).unwrap_or(0) / 1_000;
                let micros = seconds * 1_000_000 + rest;
                new.push(NewFile { micros, name });
            }
        }
        // Names that are gone are forgotten.
        self.given = there;
        new.sort_by(|a, b| (a.micros, &a.name).cmp(&(b.micros, &b.name)));
        Ok(new)
    }

    /// At the first look: what was given before a restart, or was there before us.
    fn leave_out(&mut self, new: &mut Vec<NewFile>) {
        let before = match (self.resume.take(), &self.from) {
            (Some(position), _) => {
                self.newest_micros = position.offset;
                position.offset.saturating_sub(AGAIN_MICROS)
            }
            (None, From::End) => {
                let newest = new.iter().map(|file| file.micros).max();
                self.newest_micros = newest.unwrap_or(0);
                u64::MAX
            }
            (None, From::Start | From::Since(_)) => 0,
        };
        let (old, rest) = std::mem::take(new)
            .into_iter()
            .partition(|file| file.micros < before);
        *new = rest;
        let old: Vec<NewFile> = old;
        self.given.extend(old.into_iter().map(|file| file.name));
    }

    /// The whole record; empty of one that is too long, `None` while it is being written.
    fn record(&mut self, name: &OsString) -> io::Result<Option<Bytes>> {
        let limit = u64::try_from(MESSAGE_BYTES_MAX).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        let file = match File::open(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Ok(Some(Bytes::new()));
        }
        let size = bytes.len() as u64;
        let is_whole = bytes.trim_ascii_end().last() == Some(&b'}');
        // What has not grown since the last look will not: it is given as it is, and told.
        if !is_whole && self.growing.get(name) != Some(&size) {
            self.growing.insert(name.clone(), size);
            return Ok(None);
        }
        self.growing.remove(name);
        match bytes.trim_ascii() {
            [] => Ok(Some(Bytes::from_static(b"\n"))),
            whole => Ok(Some(Bytes::copy_from_slice(whole))),
        }
    }

    fn position(&self) -> FilePosition {
        FilePosition {
            path: self.path.to_string_lossy().into(),
            inode: 0,
            head_len: 0,
            head_hash: 0,
            offset: self.newest_micros,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str, text: &str, second: u64) {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
        let file = File::options().write(true).open(&path).expect("open");
        file.set_modified(at).expect("a time");
    }

    fn given(folder: &mut RecordFolder) -> (Vec<String>, Option<FilePosition>) {
        let (mut texts, mut last) = (Vec::new(), None);
        for _ in 0..4 {
            for sight in folder.look() {
                match sight {
                    Sight::Frames(frames) => {
                        for (cut, position) in frames {
                            texts.push(String::from_utf8(cut.bytes.to_vec()).expect("text"));
                            last = Some(position);
                        }
                    }
                    Sight::End(position) => last = Some(position),
                    Sight::Open => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        (texts, last)
    }

    fn opened(path: &Path, from: From, resume: Option<FilePosition>) -> RecordFolder {
        RecordFolder::new(path.to_owned(), from, resume)
    }

    #[test]
    fn files_are_given_once_in_the_order_of_their_times_and_hidden_ones_never() {
        let dir = tempfile::tempdir().expect("a folder");
        put(dir.path(), "b.json", "{\"n\":1}\n", 2_000);
        put(dir.path(), "a.json", "{\"n\":2}", 3_000);
        put(dir.path(), ".tmp", "{\"n\":9}", 1_000);
        let mut folder = opened(dir.path(), From::Start, None);
        assert_eq!(given(&mut folder).0, ["{\"n\":1}", "{\"n\":2}"]);
        put(dir.path(), "c.json", "{\"n\":3}", 2_500);
        assert_eq!(given(&mut folder).0, ["{\"n\":3}"], "late, and not lost");
        assert_eq!(given(&mut folder).0, [""; 0]);
    }

    #[test]
    fn a_file_that_comes_within_one_step_of_the_disks_clock_is_seen() {
        let dir = tempfile::tempdir().expect("a folder");
        put(dir.path(), "a.json", "{\"n\":1}", 1_000);
        let changed = std::fs::metadata(dir.path()).and_then(|it| it.modified());
        let mut folder = opened(dir.path(), From::Start, None);
        let [Sight::Open, Sight::Frames(_)] = &folder.look()[..] else {
            panic!("the first leg")
        };
        assert!(matches!(&folder.look()[..], [Sight::End(_)]));
        put(dir.path(), "b.json", "{\"n\":2}", 1_000);
        let of_folder = File::open(dir.path()).expect("open");
        of_folder
            .set_modified(changed.expect("a time"))
            .expect("as before");
        assert_eq!(given(&mut folder).0, ["{\"n\":2}"]);
    }

    #[test]
    fn a_restart_goes_on_where_it_was_and_gives_the_last_ones_again() {
        let dir = tempfile::tempdir().expect("a folder");
        put(dir.path(), "old.json", "{\"n\":0}", 1_000);
        let mut folder = opened(dir.path(), From::End, None);
        let (texts, _) = given(&mut folder);
        assert_eq!(texts, [""; 0], "from the end on");
        put(dir.path(), "a.json", "{\"n\":1}", 9_000);
        let (texts, position) = given(&mut folder);
        assert_eq!(texts, ["{\"n\":1}"]);
        put(dir.path(), "b.json", "{\"n\":2}", 9_001);
        let mut again = opened(dir.path(), From::End, position);
        assert_eq!(given(&mut again).0, ["{\"n\":1}", "{\"n\":2}"]);
    }

    #[test]
    fn a_file_that_is_being_written_is_waited_for_and_one_that_is_too_long_is_passed_over() {
        let dir = tempfile::tempdir().expect("a folder");
        put(dir.path(), "half.json", "{\"n\":", 1_000);
        put(
            dir.path(),
            "long.json",
            &"x".repeat(MESSAGE_BYTES_MAX + 1),
            1_001,
        );
        let mut folder = opened(dir.path(), From::Start, None);
        let [Sight::Open, Sight::Frames(frames)] = &folder.look()[..] else {
            panic!("the long one alone")
        };
        assert!(frames.len() == 1 && frames[0].0.bytes.is_empty());
        put(dir.path(), "half.json", "{\"n\":1}", 1_002);
        assert_eq!(given(&mut folder).0, ["{\"n\":1}"]);
        put(dir.path(), "torn.json", "{\"n\":", 1_003);
        assert_eq!(given(&mut folder).0, ["{\"n\":"], "as it is, to be told of");
    }

    #[test]
    fn what_is_no_folder_is_said() {
        let dir = tempfile::tempdir().expect("a folder");
        put(dir.path(), "f", "{}", 1);
        for (name, words) in [("f", "this is no folder"), ("none", "no such file")] {
            let mut folder = opened(&dir.path().join(name), From::Start, None);
            let [Sight::Trouble(why)] = &folder.look()[..] else {
                panic!("a trouble")
            };
            assert!(why.contains(words), "{why}");
        }
    }
}
