//! A state folder that somebody has laid hands on.

use crate::crm::{self, RATE_FLAG};
use crate::program::Place;
use crate::recordings::{self, Recording, TRUNKS};
use crate::wait::until;
use callbridge::spool::folder::{FILE, LOCK};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// What was done to the file, by its length.
type Harm = fn(&Path, u64);

fn overwrite(file: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(file);
    let noise: Vec<u8> = (0..8192_u32).map(|n| (n * 7919 % 251) as u8).collect();
    let file = file.expect("the file");
    file.write_all_at(&noise, at).expect("written");
}

fn cut(file: &Path, to: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(file);
    file.expect("the file").set_len(to).expect("cut");
}

#[tokio::test]
async fn a_file_damaged_while_nobody_ran_ends_it_with_78_and_is_kept() {
    let harms: [(&str, Harm); 3] = [
        ("its beginning is noise", |file, _| overwrite(file, 0)),
        ("its middle is noise", |file, length| {
            overwrite(file, length / 2 / 4096 * 4096);
        }),
        ("its end is gone", |file, length| cut(file, length * 3 / 4)),
    ];
    for killed in [false, true] {
        for (words, harm) in harms {
            let (place, crm) = (Place::new(), crm::start().await);
            place.append("recorded", &recordings::one("inbound_answered").ami);
            let source = place.file("recorded", "ami");
            let flags = [&source, TRUNKS[0], RATE_FLAG];
            let mut program = place.run(&crm.url(), &flags);
            program.settled(1).await;
            program.terminate().await;
            let file = place.at("state").join(FILE);
            if killed {
                let mut program = place.run(&crm.url(), &flags);
                program.until("it runs", |_| true).await;
                program.kill().await;
            }
            let length = std::fs::metadata(&file).expect("the file").len();
            harm(&file, length);
            let before = std::fs::read(&file).expect("readable");
            let ended = place.run(&crm.url(), &flags).ended().await;
            let log = place.logs();
            assert_eq!(ended.code(), Some(78), "{words}, killed: {killed}\n{log}");
            assert!(
                log.contains("is damaged") && log.contains("backup"),
                "{log}"
            );
            let after = std::fs::read(&file).expect("still there");
            assert!(!after.is_empty() && before.len() <= after.len(), "{words}");
        }
    }
}

/// Three calls one after the other.
fn calls() -> [Recording; 3] {
    let now = callbridge::clock::now().wall.floor_seconds().get();
    let kinds = ["inbound_answered", "outbound_answered", "blind_transfer"];
    let mut begin = now - 600;
    kinds.map(|kind| {
        begin += 60;
        recordings::one(kind).moved_to(begin)
    })
}

#[tokio::test]
async fn a_state_deleted_in_use_is_made_anew_and_loses_nothing() {
    let (place, crm, calls) = (Place::new(), crm::start().await, calls());
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    program.settled(1).await;
    std::fs::remove_dir_all(place.at("state")).expect("deleted");
    place.append("recorded", &calls[1].ami);
    let status = program.settled(2).await;
    assert_eq!((status.books.journaled, status.pause), (2, None));
    assert!(place.logs().contains("it is made anew"), "{}", place.logs());
    // A file alone: the log belongs to a file that is no more, or what is in the log is lost.
    for (times, name) in [(2, "spool.db"), (3, "spool.db-wal")] {
        std::fs::remove_file(place.at("state").join(name)).expect("deleted");
        let made = async || place.logs().matches("it is made anew").count() == times;
        until("the state", made).await;
    }
    program.kill().await;

    let mut program = place.run(&crm.url(), &flags);
    place.append("recorded", &calls[2].ami);
    let status = program.settled(3).await;
    assert_eq!(status.books.journaled, 3);
    program.terminate().await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}

#[tokio::test]
async fn a_state_moved_away_in_use_holds_everything_until_it_is_put_back() {
    let (place, crm, calls) = (Place::new(), crm::start().await, calls());
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    program.settled(1).await;
    std::fs::rename(place.at("state"), place.at("elsewhere")).expect("moved");
    place.append("recorded", &calls[1].ami);
    let words = "it was moved: put its folder back";
    until(words, async || place.logs().contains(words)).await;
    assert_eq!(crm.journal().len(), 1);
    assert!(!place.at("state").exists(), "no second state is begun");
    std::fs::rename(place.at("elsewhere"), place.at("state")).expect("put back");
    let status = program.settled(2).await;
    assert_eq!((status.books.journaled, status.pause), (2, None));
    program.terminate().await;
    crm::judge(
        &crm,
        &place.letters().await,
        &recordings::expected(&calls[..2]),
    );
}

#[tokio::test]
async fn a_lock_deleted_in_use_keeps_a_second_process_out_all_the_same() {
    let (place, crm, calls) = (Place::new(), crm::start().await, calls());
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let mut program = place.run(&crm.url(), &flags);
    program.settled(1).await;
    let lock = place.at("state").join(LOCK);
    std::fs::remove_file(&lock).expect("deleted");
    until("the lock", async || lock.exists()).await;
    let second = place.run(&crm.url(), &flags).ended().await;
    assert_eq!(second.code(), Some(75), "{}", place.logs());
    place.append("recorded", &calls[1].ami);
    program.settled(2).await;
    program.terminate().await;
    crm::judge(
        &crm,
        &place.letters().await,
        &recordings::expected(&calls[..2]),
    );
}
