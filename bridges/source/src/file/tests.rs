//! Tests that the follower neither misses a record nor reads one twice when log files change.

use super::follow::{Follower, Sight};
use crate::FilePosition;
use crate::url::{Format, From};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A log file being followed in a temporary directory, along with what the follower has reported.
struct Desk {
    folder: tempfile::TempDir,
    follower: Follower,
    lines: Vec<String>,
    /// Lengths of the records that were truncated.
    cut: Vec<u64>,
    gaps: Vec<String>,
    troubles: Vec<String>,
    position: Option<FilePosition>,
}

impl Desk {
    fn new(from: From) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let follower = follower(&folder.path().join("cel.csv"), from, None);
        Self {
            folder,
            follower,
            lines: Vec::new(),
            cut: Vec::new(),
            gaps: Vec::new(),
            troubles: Vec::new(),
            position: None,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("cel.csv")
    }

    /// Returns the path of another file in the log file's directory.
    fn sibling(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, text: &str) {
        append(&self.path(), text);
    }

    /// Polls until several polls in a row don't find anything new, and returns the lines that were
    /// read.
    fn read(&mut self) -> Vec<String> {
        self.lines.clear();
        let mut quiet = 0;
        while quiet < 8 {
            quiet += 1;
            for sight in self.follower.poll() {
                match sight {
                    Sight::Frames(frames) => {
                        quiet = 0;
                        for record in frames {
                            let text = String::from_utf8_lossy(&record.bytes);
                            self.lines.push(text.into_owned());
                            let cut_from = record.details.and_then(|details| details.cut_from);
                            self.cut.extend(cut_from);
                            self.position = Some(record.position);
                        }
                    }
                    Sight::Gap(why) => self.gaps.push(why),
                    Sight::Trouble(why) | Sight::Absent(why) => self.troubles.push(why),
                    Sight::Open => quiet = 0,
                    Sight::End(position) => self.position = Some(position),
                    Sight::Wait => {}
                }
            }
        }
        self.lines.clone()
    }

    /// Replaces the follower, as if callbridge were restarted after the last frame.
    fn restart(&mut self, from: From) {
        let stored = self.position.as_ref().map(|position| {
            let text = serde_json::to_string(position).expect("a position is JSON");
            serde_json::from_str(&text).expect("and comes back")
        });
        self.follower = follower(&self.path(), from, stored);
    }
}

fn follower(path: &Path, from: From, resume: Option<FilePosition>) -> Follower {
    Follower::new(path.to_owned(), Format::AmiJson, from, resume)
}

fn append(path: &Path, text: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let mut file = file.expect("the file opens");
    file.write_all(text.as_bytes()).expect("it is written");
}

fn lines(range: std::ops::Range<u32>) -> String {
    range
        .map(|n| format!("line {n} of a day that is long\n"))
        .collect()
}

fn line_texts(range: std::ops::Range<u32>) -> Vec<String> {
    range
        .map(|n| format!("line {n} of a day that is long"))
        .collect()
}

#[test]
fn line_completed_later_is_read_once_and_whole() {
    let mut desk = Desk::new(From::Start);
    desk.write("one\ntw");
    assert_eq!(desk.read(), ["one"]);
    desk.write("o");
    assert!(desk.read().is_empty());
    desk.write("\n");
    assert_eq!(desk.read(), ["two"]);
}

#[test]
fn from_end_skips_old_lines_but_keeps_unfinished_line() {
    let mut desk = Desk::new(From::End);
    desk.write("old\nhal");
    assert!(desk.read().is_empty());
    desk.write("f\nnew\n");
    assert_eq!(desk.read(), ["half", "new"]);
}

#[test]
fn missing_file_is_reported_and_later_read_from_its_start() {
    let mut desk = Desk::new(From::End);
    assert!(desk.read().is_empty());
    assert!(desk.troubles[0].contains("no such file; callbridge waits for it"));
    desk.write("first\n");
    assert_eq!(desk.read(), ["first"]);
}

#[test]
fn renamed_file_is_read_to_its_end_then_the_new_one() {
    let mut desk = Desk::new(From::Start);
    desk.write("a\n");
    desk.read();
    fs::rename(desk.path(), desk.sibling("cel.csv.1")).expect("renamed");
    assert!(desk.read().is_empty());
    assert!(
        desk.troubles
            .last()
            .expect("a reason")
            .contains("renamed or deleted")
    );
    // The writer still has the old file open, whose last line has no end yet.
    append(&desk.sibling("cel.csv.1"), "b\nc");
    assert_eq!(desk.read(), ["b"]);
    desk.write("d\n");
    assert_eq!(desk.read(), ["c", "d"]);
    assert!(desk.gaps.is_empty());
}

fn rotate(desk: &Desk) {
    fs::rename(desk.path(), desk.sibling("cel.csv.1")).expect("renames");
    desk.write(&lines(10..11));
}

#[test]
fn rename_back_resets_the_wait_after_a_rotation() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(1..3));
    assert_eq!(desk.read(), line_texts(1..3));
    rotate(&desk);
    assert_eq!(desk.follower.poll(), [Sight::Wait]);
    assert_eq!(desk.follower.poll(), [Sight::Wait]);
    fs::rename(desk.sibling("cel.csv.1"), desk.path()).expect("renames");
    assert!(matches!(desk.follower.poll()[..], [Sight::End(_)]));
    rotate(&desk);
    assert_eq!(desk.follower.poll(), [Sight::Wait]);
    append(&desk.sibling("cel.csv.1"), &lines(3..4));
    assert_eq!(desk.read(), [line_texts(3..4), line_texts(10..11)].concat());
}

#[test]
fn copytruncate_loses_nothing_that_the_copy_has() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..100));
    assert_eq!(desk.read().len(), 100);
    desk.write(&lines(100..103));
    fs::copy(desk.path(), desk.sibling("cel.csv-20261120")).expect("copied");
    let file = OpenOptions::new().write(true).open(desk.path());
    file.expect("opens").set_len(0).expect("truncated");
    desk.write(&lines(103..105));
    assert_eq!(desk.read(), line_texts(100..105));
    assert!(desk.gaps.is_empty());
}

/// Copies the log file to `copy` and truncates it, then writes `text` where it used to end, as a
/// writer that keeps its offset would.
fn copytruncate(desk: &Desk, copy: &str, text: &str) {
    let offset = fs::metadata(desk.path()).expect("there").len();
    fs::copy(desk.path(), desk.sibling(copy)).expect("copied");
    let file = OpenOptions::new()
        .write(true)
        .open(desk.path())
        .expect("opens");
    file.set_len(0).expect("truncated");
    file.write_all_at(text.as_bytes(), offset).expect("written");
}

#[test]
fn copytruncate_with_a_kept_write_offset_loses_nothing() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..100));
    assert_eq!(desk.read(), line_texts(0..100));
    desk.write(&lines(100..103));
    copytruncate(&desk, "cel.csv-1", &lines(103..105));
    assert_eq!(desk.read(), line_texts(100..105));
    desk.write(&lines(105..106));
    assert_eq!(desk.read(), line_texts(105..106));
    // The second hole looks just like the first one, and the records before it are in the second
    // copy.
    desk.write(&lines(106..108));
    copytruncate(&desk, "cel.csv-2", &lines(108..109));
    desk.restart(From::End);
    assert_eq!(desk.read(), line_texts(106..109));
    assert!(
        desk.gaps.is_empty() && desk.cut.is_empty(),
        "{:?}",
        desk.gaps
    );
}

#[test]
fn large_hole_before_a_line_is_skipped() {
    for from in [From::Start, From::End] {
        let mut desk = Desk::new(from.clone());
        let hole = 3 << 20;
        let file = fs::File::create(desk.path()).expect("made");
        file.set_len(hole).expect("a hole");
        desk.read();
        desk.write(&lines(0..2));
        assert_eq!(desk.read(), line_texts(0..2), "{from:?}");
        let position = desk.position.clone().expect("read");
        assert_eq!((position.head_at, position.head_len > 0), (hole, true));
        assert!(desk.cut.is_empty());
    }
}

#[test]
fn record_over_the_limit_is_cut() {
    let mut desk = Desk::new(From::Start);
    let long = "x".repeat(1_258_291);
    desk.write(&format!("{}{long}\n{}", lines(0..1), lines(1..2)));
    let read = desk.read();
    assert_eq!(
        (&read[0], &read[2]),
        (&line_texts(0..1)[0], &line_texts(1..2)[0])
    );
    assert_eq!(
        (read[1].as_str(), &desk.cut[..]),
        (&long[..64 << 10], &[1_258_291][..])
    );
}

#[test]
fn truncation_without_a_copy_is_a_gap_and_reading_continues() {
    let mut desk = Desk::new(From::End);
    desk.write(&lines(0..10));
    desk.read();
    // Between two polls, the file was replaced with a longer one. Only the first bytes reveal the
    // change.
    fs::write(desk.path(), lines(20..60)).expect("written");
    assert_eq!(desk.read(), line_texts(20..60));
    assert!(desk.gaps[0].contains("truncated"), "{:?}", desk.gaps);
}

#[test]
fn file_deleted_and_created_again_counts_as_another() {
    let mut desk = Desk::new(From::End);
    desk.write("a\n");
    desk.read();
    fs::remove_file(desk.path()).expect("deleted");
    desk.write("b\n");
    assert_eq!(desk.read(), ["b"]);
}

#[test]
fn restart_continues_after_the_last_committed_line() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..50));
    desk.read();
    desk.write(&lines(50..52));
    desk.restart(From::End);
    assert_eq!(desk.read(), line_texts(50..52));
    assert!(desk.gaps.is_empty());
}

#[test]
fn restart_reads_new_lines_even_if_first_run_read_none() {
    let mut desk = Desk::new(From::End);
    desk.write("old\n");
    assert!(desk.read().is_empty());
    desk.write("new\n");
    desk.restart(From::End);
    assert_eq!(desk.read(), ["new"]);
}

/// Creates a file that has been rotated twice since it was read. `.2` has one more row, `.1` has
/// two rows, and the new file has one.
fn rotate_twice() -> Desk {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..50));
    desk.read();
    desk.write(&lines(50..51));
    fs::rename(desk.path(), desk.sibling("cel.csv.2")).expect("renamed");
    append(&desk.sibling("cel.csv.1"), &lines(51..53));
    desk.write(&lines(53..54));
    set_modified(&desk.sibling("cel.csv.2"), 1);
    set_modified(&desk.sibling("cel.csv.1"), 2);
    set_modified(&desk.path(), 3);
    desk
}

#[test]
fn restart_after_rotations_reads_the_old_files_first() {
    let mut desk = rotate_twice();
    desk.restart(From::End);
    assert_eq!(desk.read(), line_texts(50..54));
    assert!(desk.gaps.is_empty());
}

#[test]
fn rotation_while_old_files_are_read_skips_none_of_them() {
    let mut desk = rotate_twice();
    desk.restart(From::End);
    let first = desk.follower.poll();
    assert!(matches!(&first[..], [Sight::Open, Sight::Frames(frames)] if frames.len() == 1));
    // Each file has been renamed, and a directory that has the name of one of them isn't a file.
    for (from, to) in [("cel.csv.2", "cel.csv.3"), ("cel.csv.1", "cel.csv.2")] {
        fs::rename(desk.sibling(from), desk.sibling(to)).expect("renamed");
    }
    fs::rename(desk.path(), desk.sibling("cel.csv.1")).expect("renamed");
    fs::create_dir(desk.sibling("cel.csv.0")).expect("made");
    desk.write(&lines(54..55));
    assert_eq!(desk.read(), line_texts(51..55));
    assert!(desk.gaps.is_empty() && desk.troubles.is_empty());
}

#[test]
fn missing_file_at_restart_reads_only_newer_rotated_files() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..50));
    set_modified(&desk.path(), 2);
    desk.read();
    append(&desk.sibling("cel.csv.3"), &lines(70..80));
    append(&desk.sibling("cel.csv.1"), &lines(51..53));
    set_modified(&desk.sibling("cel.csv.3"), 1);
    set_modified(&desk.sibling("cel.csv.1"), 3);
    // The file that was read is now `cel.csv.2.gz`.
    let text = fs::read(desk.path()).expect("read");
    fs::write(desk.sibling("cel.csv.2.gz"), text).expect("packed");
    fs::remove_file(desk.path()).expect("deleted");
    desk.write(&lines(53..54));
    desk.restart(From::End);
    assert_eq!(desk.read(), line_texts(51..54));
    assert!(desk.gaps[0].contains("is gone"), "{:?}", desk.gaps);
    assert_eq!(desk.gaps.len(), 1);
}

#[test]
fn next_file_is_kept_open_before_it_is_rotated_too() {
    let mut desk = Desk::new(From::Start);
    desk.write("a\n");
    desk.read();
    fs::rename(desk.path(), desk.sibling("cel.csv.1")).expect("renamed");
    desk.write("b\n");
    while desk.follower.poll() == [Sight::Wait] {}
    // The disk is full for an hour, during which the file isn't polled.
    fs::rename(desk.sibling("cel.csv.1"), desk.sibling("cel.csv.2")).expect("renamed");
    fs::rename(desk.path(), desk.sibling("cel.csv.1")).expect("renamed");
    desk.write("c\n");
    assert_eq!(desk.read(), ["b", "c"]);
    assert!(desk.gaps.is_empty());
}

#[test]
fn truncated_file_is_kept_open_before_it_is_rotated_too() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..50));
    desk.read();
    fs::write(desk.path(), lines(70..72)).expect("written");
    assert!(matches!(desk.follower.poll()[0], Sight::Gap(_)));
    fs::rename(desk.path(), desk.sibling("cel.csv.1")).expect("renamed");
    desk.write(&lines(72..73));
    assert_eq!(desk.read(), line_texts(70..73));
}

/// Sets a file's modification time, so that the order of files doesn't depend on the clock's
/// precision.
fn set_modified(path: &Path, seconds: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("opens");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_795_151_317 + seconds);
    file.set_modified(time).expect("set");
}

#[test]
fn reused_inode_is_recognized_by_the_first_bytes() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..50));
    desk.read();
    let inode = desk.position.as_ref().expect("read").inode;
    // The inode gets different and longer content. On ext4, this happens if a file is deleted and
    // recreated, but here, the file is simply overwritten.
    fs::write(desk.path(), lines(70..150)).expect("written");
    desk.restart(From::End);
    assert_eq!(desk.read(), line_texts(70..150));
    assert_eq!(desk.position.as_ref().expect("read").inode, inode);
    assert!(desk.gaps[0].contains("another file"), "{:?}", desk.gaps);
}

#[test]
fn file_with_same_content_and_new_inode_is_the_same_file() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..50));
    desk.read();
    let text = fs::read(desk.path()).expect("read");
    fs::remove_file(desk.path()).expect("deleted");
    append(&desk.sibling("keeps the inode busy"), "x");
    append(&desk.path(), &String::from_utf8(text).expect("text"));
    desk.write(&lines(50..51));
    desk.restart(From::Start);
    assert_eq!(desk.read(), line_texts(50..51));
    assert!(desk.gaps.is_empty());
}

#[test]
fn unreadable_path_is_reported_and_tried_again() {
    let mut desk = Desk::new(From::Start);
    fs::create_dir(desk.path()).expect("made");
    desk.read();
    assert!(
        desk.troubles[0].contains("not a regular file"),
        "{:?}",
        desk.troubles
    );
    fs::remove_dir(desk.path()).expect("removed");
    desk.write("a\n");
    assert_eq!(desk.read(), ["a"]);
}

#[test]
fn long_file_is_read_in_pieces_that_lose_nothing() {
    let mut desk = Desk::new(From::Start);
    desk.write(&lines(0..20_000));
    assert_eq!(desk.read(), line_texts(0..20_000));
    let position = desk.position.clone().expect("read");
    assert_eq!(position.head_len, 1_024);
    let length = fs::metadata(desk.path()).expect("there").len();
    assert_eq!(position.offset, length);
}

#[test]
fn header_is_repeated_after_a_restart() {
    let header = "eventtype;eventtime;channame;uniqueid;linkedid";
    let mut desk = Desk::new(From::Start);
    desk.follower = Follower::new(desk.path(), Format::CelCsv, From::Start, None);
    desk.write(&format!("{header}\none\n"));
    assert_eq!(desk.read(), [header, "one"]);
    let stored = desk.position.clone();
    desk.follower = Follower::new(desk.path(), Format::CelCsv, From::Start, stored);
    assert!(desk.read().is_empty(), "nothing was written");
    desk.write("two\n");
    assert_eq!(desk.read(), [header, "two"]);
    desk.write("three\n");
    assert_eq!(desk.read(), ["three"]);
}
