//! Tests a state folder that another program has damaged.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings::{self, TRUNKS};
use callbridge_spool::folder::FILE;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Damages a file, whose length is given.
type Harm = fn(&Path, u64);

fn overwrite(file: &Path, at: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(file);
    let noise: Vec<u8> = (0..8192_u32).map(|n| (n * 7919 % 251) as u8).collect();
    let file = file.expect("the file");
    file.write_all_at(&noise, at).expect("written");
}

/// Returns the number of pages that are the same in both files.
fn unchanged_pages(before: &[u8], after: &[u8]) -> usize {
    let pages = before.chunks(4096).zip(after.chunks(4096));
    pages.filter(|(one, other)| one == other).count()
}

fn cut(file: &Path, to: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(file);
    file.expect("the file").set_len(to).expect("cut");
}

#[tokio::test]
async fn damaged_file_at_start_exits_78_and_is_kept() {
    let harms: [(&str, Harm); 3] = [
        ("its beginning is noise", |file, _| overwrite(file, 0)),
        ("its middle is noise", |file, length| {
            overwrite(file, length / 2 / 4096 * 4096);
        }),
        ("its end is gone", |file, length| cut(file, length * 3 / 4)),
    ];
    for killed in [false, true] {
        for (words, harm) in harms {
            let (place, crm) = (Place::on_disk(), crm::start().await);
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
            assert!(before.len() <= after.len(), "{words}, killed: {killed}");
            // Before SQLite detects the damage, a start can write a few pages: after a kill those
            // of the write-ahead log, and otherwise the identity of the file.
            let pages = before.len().div_ceil(4096);
            let unchanged = unchanged_pages(&before, &after);
            assert!(
                2 * unchanged > pages,
                "{words}, killed: {killed}: {unchanged} of {pages} pages are unchanged"
            );
            if words == "its beginning is noise" && !killed {
                assert!(
                    before == after,
                    "the file changed, although SQLite cannot open it"
                );
            }
        }
    }
}
