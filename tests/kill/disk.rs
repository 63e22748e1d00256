//! Tests a disk that is really full while calls arrive.

use crate::kill::mounts::{SmallDisk, inside};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, LEADS, Recording, TRUNKS, consecutive};
use callbridge_model::Status;
use callbridge_model::status::SourceState;
use callbridge_sandbox::Server;
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::pbx::FakePbx;
use callbridge_testbed::wait::until;

/// More messages than the tests' PBX can hold before it writes them to its connection.
const LAST_MESSAGES: usize = 1_030;

fn is_full(status: &Status) -> bool {
    let pause = status.pause.as_ref();
    pause.is_some_and(|pause| pause.reason == "disk")
}

/// Waits until `status` shows the problem and its fix. When the disk is nearly full, a large commit
/// fails, and a small one after it can still fit.
async fn wait_until_reported(place: &Place) {
    until("a status that tells of the disk", async || {
        let output = place.command(&["status"]).await;
        let words = String::from_utf8_lossy(&output.stdout);
        let fix = "make room on its disk; callbridge then continues automatically";
        words.contains("paused (disk): ") && words.contains("no room for") && words.contains(fix)
    })
    .await;
}

/// Checks that all calls are journaled once, and that the intake was paused. No error is excused,
/// because nothing was killed.
async fn judge(place: &Place, crm: &Server, calls: &[Recording]) {
    let logs = place.logs();
    let paused = logs.matches("intake is held").count();
    assert!(paused > 0, "{logs}");
    crm::judge(crm, &place.letters().await, &recordings::expected(calls));
}

/// Promise: A full disk costs no call, is reported, and is recovered from automatically.
#[test]
fn disk_that_fills_under_load_is_reported_and_loses_no_call() {
    inside(
        "kill::disk::disk_that_fills_under_load_is_reported_and_loses_no_call",
        fill_under_load(),
    );
}

async fn fill_under_load() {
    let (place, crm, calls) = (Place::on_disk(), crm::start().await, consecutive(300));
    let disk = SmallDisk::at(place.at("state"), 64 << 10);
    disk.fill_but(2 << 10);
    let (broker, queue) = (Broker::shared(), "full");
    broker.declare(queue).await;
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url(broker::ADMINISTRATOR);
    let source = format!("--source={base}?queue={queue}&format=asterisk-cel&secret-file={secret}");
    let leads = place.write("leads.csv", LEADS);
    let trunk = format!("--trunk=city=PJSIP/city,country=UZ,strip=9,lead=csv:{leads}");
    let bodies: Vec<String> = calls.iter().flat_map(Recording::cel).collect();
    let (before, after) = bodies.split_at(bodies.len() / 2);

    let mut program = place.run(&crm.url(), &[&source, &trunk, RATE_FLAG]);
    broker.publish(queue, before).await;
    let status = program.until("a full disk", is_full).await;
    assert!(status.books.finished < 300, "{:?}", status.books);
    disk.fill();
    wait_until_reported(&place).await;
    until("no consumer", async || broker.consumers(queue).await == 0).await;
    broker.publish(queue, after).await;
    let status = program.until("a disk that stays full", is_full).await;
    assert!(status.books.balance(), "{:?}", status.books);
    let shown = (status.sources[0].state, status.sources[0].reason.as_deref());
    let no_room = "paused: there is no room to store more events";
    assert_eq!(shown, (SourceState::Down, Some(no_room)));
    let kept = broker.depth(queue).await;
    assert!(kept > 0, "the broker keeps nothing");

    disk.make_room();
    let status = program.settled(300).await;
    assert!(status.books.balance(), "{:?}", status.books);
    assert_eq!((status.books.journaled, status.pause), (300, None));
    assert_eq!(status.sources[0].state, SourceState::Up);
    program.terminate().await;
    assert_eq!(broker.depth(queue).await, 0);
    judge(&place, &crm, &calls).await;
}

/// A PBX with a connection, its first call journaled, and a disk that can be filled.
struct Line {
    /// The disk is a field before the place, so it is unmounted first.
    disk: SmallDisk,
    place: Place,
    crm: Server,
    pbx: FakePbx,
    program: Program,
    calls: Vec<Recording>,
}

impl Line {
    async fn start(calls: usize) -> Self {
        let (place, crm, pbx) = (Place::on_disk(), crm::start().await, FakePbx::ami().await);
        let disk = SmallDisk::at(place.at("state"), 32 << 10);
        let source = place.ami(&pbx);
        let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG];
        let program = place.run(&crm.url(), &flags);
        pbx.logged_in(1).await;
        let mut line = Self {
            disk,
            place,
            crm,
            pbx,
            program,
            calls: consecutive(calls),
        };
        line.send(&line.calls[0]).await;
        line.program.settled(1).await;
        line
    }

    async fn send(&self, call: &Recording) {
        for event in call.events() {
            self.pbx.say(event).await;
        }
    }

    /// Checks that every call is journaled once when there is room again. Stops the program.
    async fn finish(mut self) -> Status {
        let calls = self.calls.len() as u64;
        let status = self.program.settled(calls).await;
        assert_eq!((status.books.journaled, &status.pause), (calls, &None));
        self.program.terminate().await;
        judge(&self.place, &self.crm, &self.calls).await;
        status
    }
}

#[test]
fn events_during_full_disk_are_kept_until_space_is_free() {
    inside(
        "kill::disk::events_during_full_disk_are_kept_until_space_is_free",
        keep_events_in_ring(),
    );
}

async fn keep_events_in_ring() {
    let mut line = Line::start(20).await;
    line.disk.fill_but(0);
    for call in &line.calls[1..] {
        line.send(call).await;
    }
    let status = line.program.until("a full disk", is_full).await;
    assert!(status.books.finished < 20, "{:?}", status.books);
    wait_until_reported(&line.place).await;

    line.disk.make_room();
    let status = line.finish().await;
    assert_eq!(status.sources[0].gaps, 0, "nothing was missed");
}

#[test]
fn events_beyond_ring_on_full_disk_are_gap_and_calls_are_kept() {
    inside(
        "kill::disk::events_beyond_ring_on_full_disk_are_gap_and_calls_are_kept",
        overflow_ring(),
    );
}

async fn overflow_ring() {
    let mut line = Line::start(3).await;
    line.disk.fill_but(0);
    line.send(&line.calls[1]).await;
    line.program.until("a full disk", is_full).await;
    // 48 MiB, more than the ring's 28 MiB and the sockets' buffers can hold.
    let noise = format!("Event: Noise\r\nWords: {}\r\n\r\n", "x".repeat(990));
    let noise = noise.repeat(1_024);
    for _ in 0..48 {
        line.pbx.say(noise.as_bytes()).await;
    }
    // This many more messages can wait to be written. When the last one is accepted, the noise was
    // read.
    for _ in 0..LAST_MESSAGES {
        line.pbx.say(b"Event: Last\r\n\r\n").await;
    }
    line.disk.make_room();
    line.program
        .until("a gap", |status| status.sources[0].gaps > 0)
        .await;
    line.send(&line.calls[2]).await;
    line.finish().await;
}

#[test]
fn unwritable_state_at_start_exits_73() {
    inside(
        "kill::disk::unwritable_state_at_start_exits_73",
        start_on_read_only_disk(),
    );
}

async fn start_on_read_only_disk() {
    let (place, crm) = (Place::on_disk(), crm::start().await);
    let calls = consecutive(1);
    place.append("recorded", &calls[0].ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], RATE_FLAG, "--until-idle"];
    for run_before in [false, true] {
        let disk = SmallDisk::at(place.at("state"), 4 << 10);
        if run_before {
            place.run(&crm.url(), &flags).expect_success().await;
        }
        disk.make_read_only();
        let ended = place.run(&crm.url(), &flags).ended().await;
        let words = place.logs();
        assert_eq!(ended.code(), Some(73), "{words}");
        let named = words.contains(&place.path("state")) && words.contains("--state");
        assert!(named, "{words}");
    }
}
