//! A state folder that somebody has laid hands on.

use crate::crm::{self, RATE_FLAG};
use crate::program::{Place, Program};
use crate::recordings::{self, Recording, TRUNKS};
use crate::wait::until;
use callbridge_sandbox::Server;
use callbridge_spool::folder::{FILE, LOCK};
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

/// A program in use, the first of its calls journaled.
struct Scene {
    place: Place,
    crm: Server,
    calls: Vec<Recording>,
    program: Program,
}

impl Scene {
    async fn in_use() -> Self {
        let (place, crm) = (Place::new(), crm::start().await);
        place.append("recorded", b"");
        let program = run(&place, &crm);
        let mut scene = Self {
            calls: recordings::in_a_row(3),
            place,
            crm,
            program,
        };
        scene.call(0);
        scene.program.settled(1).await;
        scene
    }

    /// The n-th call takes place.
    fn call(&self, n: usize) {
        self.place.append("recorded", &self.calls[n].ami);
    }

    /// The first calls are journaled, each once.
    async fn ends_with(mut self, calls: usize) {
        let wanted = calls as u64;
        let status = self.program.settled(wanted).await;
        assert_eq!((status.books.journaled, status.pause), (wanted, None));
        self.program.terminate().await;
        let expected = recordings::expected(&self.calls[..calls]);
        crm::judge(&self.crm, &self.place.letters().await, &expected);
    }
}

fn run(place: &Place, crm: &Server) -> Program {
    let source = place.file("recorded", "ami");
    place.run(&crm.url(), &[&source, TRUNKS[0], TRUNKS[1], RATE_FLAG])
}

#[tokio::test]
async fn a_state_deleted_in_use_is_made_anew_and_loses_nothing() {
    let mut scene = Scene::in_use().await;
    let state = scene.place.at("state");
    std::fs::remove_dir_all(&state).expect("deleted");
    scene.call(1);
    let status = scene.program.settled(2).await;
    assert_eq!((status.books.journaled, status.pause), (2, None));
    let log = scene.place.logs();
    assert!(log.contains("it was written anew"), "{log}");
    // A file alone: the log belongs to a file that is no more, or what is in the log is lost.
    for (times, name) in [(2, "spool.db"), (3, "spool.db-wal")] {
        std::fs::remove_file(state.join(name)).expect("deleted");
        let made = async || scene.place.logs().matches("it was written anew").count() == times;
        until("the state", made).await;
    }
    scene.program.kill().await;
    scene.program = run(&scene.place, &scene.crm);
    scene.call(2);
    scene.ends_with(3).await;
}

#[tokio::test]
async fn a_state_moved_away_in_use_holds_everything_until_it_is_put_back() {
    let scene = Scene::in_use().await;
    let (state, elsewhere) = (scene.place.at("state"), scene.place.at("elsewhere"));
    std::fs::rename(&state, &elsewhere).expect("moved");
    scene.call(1);
    let words = "it was moved: put its folder back";
    until(words, async || scene.place.logs().contains(words)).await;
    assert_eq!(scene.crm.journal().len(), 1);
    assert!(!state.exists(), "no second state is begun");
    std::fs::rename(&elsewhere, &state).expect("put back");
    scene.ends_with(2).await;
}

#[tokio::test]
async fn a_lock_deleted_in_use_keeps_a_second_process_out_all_the_same() {
    let scene = Scene::in_use().await;
    let lock = scene.place.at("state").join(LOCK);
    std::fs::remove_file(&lock).expect("deleted");
    until("the lock", async || lock.exists()).await;
    let second = run(&scene.place, &scene.crm).ended().await;
    assert_eq!(second.code(), Some(75), "{}", scene.place.logs());
    scene.call(1);
    scene.ends_with(2).await;
}
