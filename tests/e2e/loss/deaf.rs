//! Tests a log that no process reads. It must not end the daemon or make it wait.

use crate::e2e::operations::monitoring::{get, listens_at};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording, TRUNKS};
use callbridge_model::Status;
use callbridge_sandbox::Server;
use callbridge_testbed::wait::{pass, soon};
use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

/// The log message about lines that stderr did not accept.
const LOST: &str = "lines of the log are lost";
/// Calls at the same time. Each makes one log line, and this many lines of one kind are allowed per
/// second.
const CALLS: usize = 20;
/// Pause between two groups of calls.
const PAUSE: Duration = Duration::from_millis(500);

/// A daemon whose stderr is a pipe. The test has read the pipe up to the daemon's address.
struct Deaf {
    place: Place,
    crm: Server,
    program: Program,
    log: Option<BufReader<PipeReader>>,
    address: SocketAddr,
}

impl Deaf {
    async fn start() -> Self {
        let (place, crm) = (Place::new(), crm::start().await);
        place.write("calls.ami", "");
        let source = place.file("calls.ami", "ami");
        let flags = [
            &source,
            TRUNKS[0],
            TRUNKS[1],
            RATE_FLAG,
            "--cdr-wait=1s",
            "--listen=127.0.0.1:0",
            "--log-format=json",
        ];
        let (read, write) = io::pipe().expect("a pipe");
        let program = place.run_heard_by(&crm.url(), &flags, write);
        let reading = tokio::task::spawn_blocking(move || {
            let mut log = BufReader::new(read);
            let mut line = String::new();
            loop {
                line.clear();
                assert_ne!(log.read_line(&mut line).expect("text"), 0, "it has ended");
                if let Some(address) = listens_at(&line) {
                    return (log, address);
                }
            }
        });
        let (log, address) = soon("its address", reading).await.expect("read");
        Self {
            place,
            crm,
            program,
            log: Some(log),
            address,
        }
    }

    /// Returns the number of lost lines, as the metrics show it.
    async fn lost(&self) -> u64 {
        let (_, metrics) = get(self.address, "/metrics").await;
        let name = "callbridge_log_lines_lost_total ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the metric").parse().expect("a number")
    }

    /// Adds a call and waits until it is journaled.
    async fn journals(&mut self, call: &Recording) {
        self.place.append("calls.ami", &call.ami);
        let one_more = self.crm.admin(|core, _| core.records().len()) as u64 + 1;
        let journaled = |it: &Status| it.books.journaled == one_more && it.books.settled();
        self.program.until("the call is journaled", journaled).await;
    }

    /// Adds calls without a lead, each with a log line, until log lines are lost.
    async fn talks_until_lines_are_lost(&mut self) {
        let call = recordings::one("unknown_customer");
        let begin = callbridge_model::clock::now().wall.floor_seconds().get() - 80_000;
        for (many, nth) in (0..).step_by(CALLS).zip(1..) {
            let times = (many..many + CALLS as i64).map(|nth| begin + nth * 20);
            let calls: Vec<u8> = times.flat_map(|at| call.moved_to(at).ami).collect();
            self.place.append("calls.ami", &calls);
            let waiting = |it: &Status| it.books.waiting == nth * CALLS as u64;
            self.program.until("the calls are waiting", waiting).await;
            if self.lost().await > 0 {
                return;
            }
            pass(PAUSE).await;
        }
    }
}

#[tokio::test]
async fn log_reader_that_exits_loses_no_call() {
    let mut deaf = Deaf::start().await;
    drop(deaf.log.take());
    for call in recordings::in_a_row(2) {
        deaf.journals(&call).await;
    }
    assert!(deaf.lost().await > 0);
    deaf.program.terminate().await;
}

#[tokio::test]
async fn stalled_log_reader_delays_no_call_and_gets_loss_message() {
    let mut deaf = Deaf::start().await;
    deaf.talks_until_lines_are_lost().await;
    for call in recordings::in_a_row(2) {
        deaf.journals(&call).await;
    }
    let Deaf {
        program, mut log, ..
    } = deaf;
    let mut log = log.take().expect("not yet taken");
    let reading = tokio::task::spawn_blocking(move || {
        let mut lines = String::new();
        while !lines.contains(LOST) {
            assert_ne!(log.read_line(&mut lines).expect("text"), 0, "{lines}");
        }
        // From here on, the log is read again, and the end of the daemon is logged normally.
        (log, lines)
    });
    let (mut log, mut lines) = soon("what was missed", reading).await.expect("read");
    let reading = tokio::task::spawn_blocking(move || {
        log.read_to_string(&mut lines).expect("text");
        lines
    });
    program.terminate().await;
    let lines = soon("the end of its log", reading).await.expect("read");
    assert!(
        lines
            .trim_end()
            .lines()
            .last()
            .is_some_and(|line| line.contains("stopped")),
        "{lines}"
    );
}

#[tokio::test]
async fn unread_log_does_not_block_daemon_shutdown() {
    let mut deaf = Deaf::start().await;
    deaf.talks_until_lines_are_lost().await;
    deaf.program.terminate().await;
    drop(deaf.log);
}
