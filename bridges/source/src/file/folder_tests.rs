//! Tests of a directory of records. Each file must be read once and in order, and a bad file
//! mustn't block other files.

use super::*;
use rustix::thread::CapabilitySet;
use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

/// Writes a file that was last changed `second` seconds after 1970.
fn put(folder: &Path, name: &str, text: &str, second: u64) {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
    let file = File::options().write(true).open(&path).expect("open");
    file.set_modified(at).expect("a time");
}

/// Returns a record's text, or why it can't be read.
fn record_text(record: &FileRecord) -> String {
    let details = record.details.as_ref().expect("details");
    let text = String::from_utf8(record.bytes.to_vec()).expect("text");
    details.fault.clone().unwrap_or(text)
}

/// Returns a record's file, and the length of the complete record if it was truncated.
fn file_of(record: &FileRecord) -> (String, Option<u64>) {
    let details = record.details.as_ref().expect("details");
    (
        details.file.as_deref().expect("a file").to_owned(),
        details.cut_from,
    )
}

/// Polls the directory four times, and returns the records' texts and the last position.
fn poll_records(folder: &mut RecordFolder) -> (Vec<String>, Option<FilePosition>) {
    poll_records_at(folder, Instant::now())
}

fn poll_records_at(folder: &mut RecordFolder, now: Instant) -> (Vec<String>, Option<FilePosition>) {
    let (mut texts, mut last) = (Vec::new(), None);
    for _ in 0..4 {
        for sight in folder.poll(now) {
            match sight {
                Sight::Frames(frames) => {
                    for record in frames {
                        texts.push(record_text(&record));
                        last = Some(record.position);
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

fn open_folder(path: &Path, from: From, resume: Option<FilePosition>) -> RecordFolder {
    RecordFolder::new(path.to_owned(), from, resume, FilesAgain::default())
}

#[test]
fn files_are_read_once_by_time_and_hidden_files_skipped() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "b.json", "{\"n\":1}\n", 2_000);
    put(dir.path(), "a.json", "{\"n\":2}", 3_000);
    put(dir.path(), ".tmp", "{\"n\":9}", 1_000);
    let mut folder = open_folder(dir.path(), From::Start, None);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":1}", "{\"n\":2}"]);
    put(dir.path(), "c.json", "{\"n\":3}", 2_500);
    assert_eq!(
        poll_records(&mut folder).0,
        ["{\"n\":3}"],
        "late, and not lost"
    );
    assert_eq!(poll_records(&mut folder).0, [""; 0]);
}

#[test]
fn file_created_within_one_disk_clock_tick_is_seen() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a.json", "{\"n\":1}", 1_000);
    let changed = std::fs::metadata(dir.path()).and_then(|metadata| metadata.modified());
    let mut folder = open_folder(dir.path(), From::Start, None);
    let [Sight::Open, Sight::Frames(_)] = &folder.poll(Instant::now())[..] else {
        panic!("the first leg")
    };
    assert!(matches!(&folder.poll(Instant::now())[..], [Sight::End(_)]));
    put(dir.path(), "b.json", "{\"n\":2}", 1_000);
    let of_folder = File::open(dir.path()).expect("open");
    of_folder
        .set_modified(changed.expect("a time"))
        .expect("as before");
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":2}"]);
}

fn make_folder(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    std::fs::create_dir(&folder).expect("a folder");
    folder
}

#[test]
fn rotate_folders_are_read_even_if_created_later() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = make_folder(dir.path(), "2026-11-20-10-00-00");
    put(&first, "a.json", "{\"n\":1}", 1_000);
    let backup = make_folder(dir.path(), "backup");
    put(&backup, "no.json", "{\"n\":9}", 1_000);
    let mut folder = open_folder(dir.path(), From::Start, None);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":1}"]);
    let later = make_folder(dir.path(), "2026-11-21-00-00-00");
    put(&later, "b.json", "{\"n\":2}", 2_000);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":2}"]);
    put(&later, "a.json", "{\"n\":3}", 2_001);
    assert_eq!(
        poll_records(&mut folder).0,
        ["{\"n\":3}"],
        "its name is another"
    );
}

#[test]
fn unreadable_file_blocks_no_other_and_is_read_when_fixed() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a.json", "{\"n\":1}", 1_000);
    put(dir.path(), "b.json", "{\"n\":2}", 1_001);
    let path = dir.path().join("a.json");
    std::fs::set_permissions(&path, Permissions::from_mode(0o000)).expect("changed");
    // Root can read every file, so this thread gives up root's capabilities.
    let mut rights = rustix::thread::capabilities(None).expect("rights");
    let of_root = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    rights.effective.remove(of_root);
    rustix::thread::set_capabilities(None, rights).expect("given up");
    let mut folder = open_folder(dir.path(), From::Start, None);
    let texts = poll_records(&mut folder).0;
    assert_eq!((texts.len(), &*texts[0]), (2, "{\"n\":2}"), "{texts:?}");
    let why = "a.json cannot be read: Permission denied (os error 13); let the user of";
    assert!(texts[1].contains(why), "{texts:?}");
    assert_eq!(poll_records(&mut folder).0, [""; 0], "once");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":1}"]);
}

#[test]
fn file_rewritten_while_waiting_is_read_once_and_complete() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = open_folder(dir.path(), From::Start, None);
    assert_eq!(poll_records(&mut folder).0, [""; 0]);
    for (name, text) in [("whole.json", "{\"n\":1}"), ("half.json", "{\"n\":")] {
        for second in [1_000, 1_001] {
            put(dir.path(), name, text, second);
            folder.notice(name.into());
        }
    }
    let sights = folder.poll(Instant::now());
    let [Sight::Frames(frames)] = &sights[..] else {
        panic!("{sights:?}")
    };
    assert_eq!(frames.len(), 1, "the whole one, once: {sights:?}");
    put(dir.path(), "half.json", "{\"n\":2}", 1_002);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":2}"]);
}

#[test]
fn names_of_removed_files_are_forgotten() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a.json", "{\"n\":1}", 1_000);
    let mut folder = open_folder(dir.path(), From::Start, None);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":1}"]);
    std::fs::remove_file(dir.path().join("a.json")).expect("removed");
    // The disk's clock may not have advanced since the last poll.
    folder
        .listed
        .values_mut()
        .for_each(|listed| listed.changed = None);
    folder.list().expect("listed");
    assert!(folder.listed[OsStr::new("")].given.is_empty());
}

#[test]
fn fifo_in_place_of_a_file_blocks_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a.json", "{\"n\":1}", 1_000);
    let path = dir.path().join("a.json");
    let mut folder = open_folder(dir.path(), From::Start, None);
    folder.list().expect("listed");
    std::fs::remove_file(&path).expect("removed");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).expect("a FIFO");
    let texts = poll_records(&mut folder).0;
    assert!(
        texts.iter().all(|text| text.contains("cannot be read")),
        "{texts:?}"
    );
}

#[test]
fn future_file_time_moves_no_position_past_new_files() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a.json", "{\"n\":1}", 4_102_444_800);
    let mut folder = open_folder(dir.path(), From::Start, None);
    let (texts, position) = poll_records(&mut folder);
    assert_eq!(texts, ["{\"n\":1}"]);
    std::fs::write(dir.path().join("b.json"), "{\"n\":2}").expect("written");
    let mut again = open_folder(dir.path(), From::End, position);
    assert_eq!(poll_records(&mut again).0, ["{\"n\":1}", "{\"n\":2}"]);
}

#[test]
fn second_start_ignores_files_older_than_the_first_start() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "old.json", "{\"n\":0}", 9_000);
    let mut first = open_folder(dir.path(), From::End, None);
    let (texts, position) = poll_records(&mut first);
    assert_eq!(texts, [""; 0]);
    put(dir.path(), "new.json", "{\"n\":1}", 9_100);
    let mut second = open_folder(dir.path(), From::End, position);
    assert_eq!(poll_records(&mut second).0, ["{\"n\":1}"]);
}

#[test]
fn restart_continues_and_reads_the_last_files_again() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "old.json", "{\"n\":0}", 1_000);
    let mut folder = open_folder(dir.path(), From::End, None);
    let (texts, _) = poll_records(&mut folder);
    assert_eq!(texts, [""; 0], "from the end on");
    put(dir.path(), "a.json", "{\"n\":1}", 9_000);
    let (texts, position) = poll_records(&mut folder);
    assert_eq!(texts, ["{\"n\":1}"]);
    put(dir.path(), "b.json", "{\"n\":2}", 9_001);
    let mut again = open_folder(dir.path(), From::End, position);
    assert_eq!(poll_records(&mut again).0, ["{\"n\":1}", "{\"n\":2}"]);
}

fn seconds_after(begun: Instant, seconds: u64) -> Instant {
    begun + Duration::from_secs(seconds)
}

#[test]
fn half_written_file_waits_a_minute_without_change() {
    let dir = tempfile::tempdir().expect("a folder");
    let begun = Instant::now();
    let mut folder = open_folder(dir.path(), From::Start, None);
    put(dir.path(), "a.json", "{\"n\":", 1_000);
    assert_eq!(poll_records_at(&mut folder, begun).0, [""; 0]);
    assert_eq!(
        poll_records_at(&mut folder, seconds_after(begun, 59)).0,
        [""; 0]
    );
    put(dir.path(), "a.json", "{\"n\": [1,", 1_030);
    assert_eq!(
        poll_records_at(&mut folder, seconds_after(begun, 59)).0,
        [""; 0],
        "it changed"
    );
    assert_eq!(
        poll_records_at(&mut folder, seconds_after(begun, 118)).0,
        [""; 0]
    );
    put(dir.path(), "b.json", "{\"n\":2}", 1_031);
    assert_eq!(
        poll_records_at(&mut folder, seconds_after(begun, 118)).0,
        ["{\"n\":2}"]
    );
    assert_eq!(
        poll_records_at(&mut folder, seconds_after(begun, 120)).0,
        ["{\"n\": [1,"]
    );
    assert_eq!(
        poll_records_at(&mut folder, seconds_after(begun, 500)).0,
        [""; 0],
        "once"
    );
    put(dir.path(), "a.json", "{\"n\": [1]}", 1_032);
    assert_eq!(
        poll_records_at(&mut folder, seconds_after(begun, 500)).0,
        ["{\"n\": [1]}"]
    );
}

/// Writes a long record in 64 KiB pieces, as a PBX would.
fn write_in_pieces(path: &Path) {
    let mut file = File::create(path).expect("created");
    let record = format!("{{\"n\":\"{}\"}}", "x".repeat(2 << 20));
    for piece in record.as_bytes().chunks(64 << 10) {
        file.write_all(piece).expect("written");
    }
}

#[test]
fn file_that_is_written_while_it_is_read_is_given_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = open_folder(dir.path(), From::Start, None);
    let mut given = poll_records(&mut folder).0.len();
    for n in 0..40 {
        let path = dir.path().join(format!("{n}.json"));
        let writer = std::thread::spawn(move || write_in_pieces(&path));
        while !writer.is_finished() {
            given += poll_records(&mut folder).0.len();
        }
        writer.join().expect("the file is written");
        given += poll_records(&mut folder).0.len();
    }
    assert_eq!(given, 40);
}

#[test]
fn file_changed_after_reading_is_read_again() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "old.json", "{\"n\":0}", 900);
    let mut folder = open_folder(dir.path(), From::End, None);
    assert_eq!(poll_records(&mut folder).0, [""; 0]);
    put(dir.path(), "a.json", "{\"n\":1}", 1_000);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":1}"]);
    put(dir.path(), "a.json", "{\"n\":2}", 1_001);
    put(dir.path(), "old.json", "{\"n\":3}", 1_002);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":2}", "{\"n\":3}"]);
    // Changing the file's permissions doesn't change its content.
    let path = dir.path().join("a.json");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("changed");
    assert_eq!(poll_records(&mut folder).0, [""; 0]);
}

#[test]
fn file_change_is_found_without_file_system_events() {
    let dir = tempfile::tempdir().expect("a folder");
    let begun = Instant::now();
    let later = begun + Duration::from_secs(61);
    let mut folder = open_folder(dir.path(), From::Start, None);
    folder.events = None;
    put(dir.path(), "torn.json", "{\"n\":", 1_000);
    assert_eq!(poll_records_at(&mut folder, begun).0, [""; 0]);
    assert_eq!(poll_records_at(&mut folder, later).0, ["{\"n\":"]);
    put(dir.path(), "torn.json", "{\"n\":1}", 1_000);
    folder.list_after = None;
    assert_eq!(poll_records_at(&mut folder, later).0, ["{\"n\":1}"]);
}

#[test]
fn lost_file_system_events_cause_files_to_be_compared() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = open_folder(dir.path(), From::Start, None);
    folder.events = None;
    put(dir.path(), "a.json", "{\"n\":1}", 1_000);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":1}"]);
    put(dir.path(), "a.json", "{\"n\":2}", 1_001);
    folder
        .listed
        .values_mut()
        .for_each(Listed::note_lost_events);
    folder.list_after = None;
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":2}"]);
}

#[test]
fn file_changed_during_a_restart_is_read_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = open_folder(dir.path(), From::Start, None);
    put(dir.path(), "a.json", "{\"n\":1}", 1_000);
    put(dir.path(), "b.json", "{\"n\":2}", 5_000_000);
    let (texts, position) = poll_records(&mut folder);
    assert_eq!(texts, ["{\"n\":1}", "{\"n\":2}"]);
    // The writer sets an old modification time, but the system's change time reveals the change.
    put(dir.path(), "a.json", "{\"n\":3}", 1_001);
    let mut again = open_folder(dir.path(), From::End, position);
    assert_eq!(poll_records(&mut again).0, ["{\"n\":3}", "{\"n\":2}"]);
}

#[test]
fn incomplete_file_holds_the_position_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut folder = open_folder(dir.path(), From::Start, None);
    put(dir.path(), "half.json", "{\"n\":", 1_000);
    assert_eq!(poll_records(&mut folder).0, [""; 0]);
    let half = std::fs::metadata(dir.path().join("half.json")).expect("there");
    put(dir.path(), "a.json", "{\"n\":1}", 1_001);
    let (_, position) = poll_records(&mut folder);
    assert!(position.expect("a position").offset < FileState::from_metadata(&half).changed);
}

#[test]
fn too_long_record_is_cut_and_read_whole_on_request() {
    let dir = tempfile::tempdir().expect("a folder");
    let long = format!("{{\"n\":\"{}\"}}", "x".repeat(1_258_291));
    put(dir.path(), "long.json", &long, 1_000);
    let again = FilesAgain::default();
    let (path, from) = (dir.path().to_owned(), From::Start);
    let mut folder = RecordFolder::new(path, from, None, again.clone());
    let [Sight::Open, Sight::Frames(frames)] = &folder.poll(Instant::now())[..] else {
        panic!("the long one")
    };
    let file = dir.path().join("long.json").display().to_string();
    assert_eq!(file_of(&frames[0]), (file.clone(), Some(long.len() as u64)));
    assert_eq!(record_text(&frames[0]), long[..KEPT_BYTES]);
    assert_eq!(poll_records(&mut folder).0, [""; 0], "once");
    again.ask(&file);
    assert!(
        poll_records(&mut folder).0 == [long],
        "whole, because a person asks"
    );
    again.ask("/elsewhere/long.json");
    assert_eq!(poll_records(&mut folder).0, [""; 0]);
}

#[test]
fn nul_bytes_before_a_record_are_skipped() {
    let dir = tempfile::tempdir().expect("a folder");
    let hole = "\0".repeat(3 * MESSAGE_BYTES_MAX);
    put(dir.path(), "a.json", &format!("{hole}{{\"n\":1}}\n"), 1_000);
    let mut folder = open_folder(dir.path(), From::Start, None);
    assert_eq!(poll_records(&mut folder).0, ["{\"n\":1}"]);
}

#[test]
fn empty_file_is_reported_after_a_minute() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "a.json", "\0\0\n", 1_000);
    let mut folder = open_folder(dir.path(), From::Start, None);
    let begun = Instant::now();
    assert_eq!(poll_records_at(&mut folder, begun).0, [""; 0]);
    let texts = poll_records_at(&mut folder, begun + Duration::from_secs(60)).0;
    assert!(texts[0].ends_with("a.json: the file is empty"), "{texts:?}");
}

#[test]
fn path_that_is_not_a_folder_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), "f", "{}", 1);
    for (name, words) in [("f", "this is not a folder"), ("none", "no such file")] {
        let mut folder = open_folder(&dir.path().join(name), From::Start, None);
        let [Sight::Trouble(why) | Sight::Absent(why)] = &folder.poll(Instant::now())[..] else {
            panic!("a trouble")
        };
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn folder_is_up_again_after_it_could_not_be_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, away) = (dir.path().join("cdr"), dir.path().join("away"));
    std::fs::create_dir(&path).expect("a folder");
    let mut folder = open_folder(&path, From::End, None);
    assert!(matches!(
        &folder.poll(Instant::now())[..],
        [Sight::Open, Sight::End(_)]
    ));
    std::fs::rename(&path, &away).expect("renamed");
    assert!(matches!(
        &folder.poll(Instant::now())[..],
        [Sight::Absent(_)]
    ));
    std::fs::write(&path, "").expect("written");
    assert!(matches!(
        &folder.poll(Instant::now())[..],
        [Sight::Trouble(_)]
    ));
    std::fs::remove_file(&path).expect("removed");
    std::fs::rename(&away, &path).expect("renamed");
    put(&path, "a.json", "{\"n\":1}", 1_000);
    let [Sight::Open, Sight::Frames(_)] = &folder.poll(Instant::now())[..] else {
        panic!("up again, with what came meanwhile")
    };
    assert!(matches!(&folder.poll(Instant::now())[..], [Sight::End(_)]));
}
