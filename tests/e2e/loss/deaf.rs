//! Tests that the daemon neither ends nor has to wait if no process reads its log.

use crate::e2e::operations::monitoring::{get, listen_address};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording, TRUNKS};
use callbridge_sandbox::Server;
use callbridge_testbed::wait::{pass, soon};
use std::io::{self, BufRead as _, BufReader, PipeReader, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

/// The log message about lines that stderr didn't accept.
const LOST: &str = "lines of the log are lost";
/// Number of calls in a group. Each call creates one log line, and at most ten log lines of the
/// same kind are written per second.
const CALLS: usize = 20;
/// Pause between two groups of calls.
const PAUSE: Duration = Duration::from_millis(500);

/// A daemon whose stderr is a pipe. The test has read the pipe up to the line with the daemon's
/// address.
struct UnreadLog {
    place: Place,
    crm: Server,
    program: Program,
    log: Option<BufReader<PipeReader>>,
    address: SocketAddr,
}

impl UnreadLog {
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
        let program = place.run_with_stderr(&crm.url(), &flags, write);
        let reading = tokio::task::spawn_blocking(move || {
            let mut log = BufReader::new(read);
            let mut line = String::new();
            loop {
                line.clear();
                assert_ne!(
                    log.read_line(&mut line).expect("text"),
                    0,
                    "the log has ended"
                );
                if let Some(address) = listen_address(&line) {
                    return (log, address);
                }
            }
        });
        let (log, address) = soon("the address in the log", reading).await.expect("read");
        Self {
            place,
            crm,
            program,
            log: Some(log),
            address,
        }
    }

    /// Returns the number of lost lines as shown by the metrics.
    async fn lost_lines(&self) -> u64 {
        let (_, metrics) = get(self.address, "/metrics").await;
        let name = "callbridge_log_lines_lost_total ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the metric").parse().expect("a number")
    }

    /// Adds a call and waits until it has been journaled.
    async fn journal_call(&mut self, call: &Recording) {
        self.place.append("calls.ami", &call.ami);
        let expected = self.crm.admin(|core, _| core.records().len()) as u64 + 1;
        self.program
            .until("the call is journaled", |status| {
                status.books.journaled == expected && status.books.settled()
            })
            .await;
    }

    /// Adds groups of calls without a lead, each of which creates a log line, until log lines are
    /// lost.
    async fn fill_log(&mut self) {
        let call = recordings::one("unknown_customer");
        let begin = callbridge_model::clock::now().wall.floor_seconds().get() - 80_000;
        for (first_call, groups) in (0..).step_by(CALLS).zip(1..) {
            let times = (first_call..first_call + CALLS as i64).map(|nth| begin + nth * 20);
            let calls: Vec<u8> = times.flat_map(|at| call.moved_to(at).ami).collect();
            self.place.append("calls.ami", &calls);
            self.program
                .until("the calls are waiting", |status| {
                    status.books.waiting == groups * CALLS as u64
                })
                .await;
            if self.lost_lines().await > 0 {
                return;
            }
            pass(PAUSE).await;
        }
    }
}

#[tokio::test]
async fn log_reader_that_exits_loses_no_call() {
    let mut daemon = UnreadLog::start().await;
    drop(daemon.log.take());
    for call in recordings::consecutive(2) {
        daemon.journal_call(&call).await;
    }
    assert!(daemon.lost_lines().await > 0);
    daemon.program.terminate().await;
}

#[tokio::test]
async fn stalled_log_reader_delays_no_call_and_gets_loss_message() {
    let mut daemon = UnreadLog::start().await;
    daemon.fill_log().await;
    for call in recordings::consecutive(2) {
        daemon.journal_call(&call).await;
    }
    let UnreadLog {
        program, mut log, ..
    } = daemon;
    let mut log = log.take().expect("not yet taken");
    let reading = tokio::task::spawn_blocking(move || {
        let mut lines = String::new();
        while !lines.contains(LOST) {
            assert_ne!(log.read_line(&mut lines).expect("text"), 0, "{lines}");
        }
        // From here on, the test reads the log again, so the end of the daemon is logged.
        (log, lines)
    });
    let (mut log, mut lines) = soon("the message about lost lines", reading)
        .await
        .expect("read");
    let reading = tokio::task::spawn_blocking(move || {
        log.read_to_string(&mut lines).expect("text");
        lines
    });
    program.terminate().await;
    let lines = soon("the end of the log", reading).await.expect("read");
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
    let mut daemon = UnreadLog::start().await;
    daemon.fill_log().await;
    daemon.program.terminate().await;
    drop(daemon.log);
}
