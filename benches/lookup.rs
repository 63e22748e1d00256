//! Caller lookups from the running program over its own listener: a million leads, and 200 lookups
//! per second for a minute. At the same time, 50 calls per second are taken in, and their leads are
//! found.
//!
//! `cargo bench --bench lookup` measures the program as benches are built. To measure the shipped
//! one, set `CALLBRIDGE_PROGRAM=target/dist/callbridge`. `-- 10000` uses that many leads. The
//! reference is a listener that reads a request and always returns the same bytes. Requests to both
//! alternate, so other load on the machine slows both.

#[path = "support/table.rs"]
mod table;

use callbridge_leads::directory::{ChangeKind, rows};
use callbridge_model::Phone;
use callbridge_spool::{Op, Settings, open};
use callbridge_testbed::calls::Call;
use callbridge_testbed::port::free_addr;
use callbridge_testkit::Wait as _;
use rusqlite::Connection;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable with the program to measure. If the variable is not set, the program
/// that benches are built with is measured.
const GIVEN: &str = "CALLBRIDGE_PROGRAM";
const LEADS: i64 = 1_000_000;
/// Leads per commit.
const GROUP: i64 = 500;
const MINUTE: Duration = Duration::from_secs(60);
const LOOK_UPS_A_SECOND: u32 = 200;
/// Threads that send lookups in turn.
const ASKERS: u32 = 20;
const CALLS_A_SECOND: u32 = 50;
/// Calls in the minute.
const CALLS: u32 = CALLS_A_SECOND * 60;
const TRUNK: &str = "city=PJSIP/city,country=UZ,lead=directory,employees=101:1;102:2;103:3";
const ANSWERED_PLAINLY: &str =
    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

/// Returns the number of the n-th lead. The numbers of [`Call`] are among them.
fn phone(n: i64) -> Phone {
    Phone::from_digits(998_900_500_000 + n).expect("a number")
}

/// Makes a lead as `lead/filter` returns it, with a name, a stage, and a responsible employee.
fn lead(n: i64) -> Op {
    let (id, phone) = (n + 1, phone(n));
    let name = format!("Customer Karimova {id}");
    let row = json!({
        "id": id, "updatedTimestamp": 10, "phone": phone.as_str(), "name": name,
        "statusName": "Negotiations", "responsibleId": id % 50 + 1,
        "responsibleName": format!("Employee Yusupova {}", id % 50 + 1),
        "contacts": [{"id": id, "name": name, "phones": [phone.as_str()]}],
    });
    let news = rows::read(&row, ChangeKind::Filter, None).news;
    Op::Learn(Box::new(news.expect("a lead and its time")))
}

/// Makes a state with this many leads. Returns its size in bytes.
fn fill(state: &Path, leads: i64) -> u64 {
    let (spool, guard) = open(state, Settings::default()).expect("opens");
    for from in (0..leads).step_by(usize::try_from(GROUP).unwrap_or(1)) {
        let ops = (from..(from + GROUP).min(leads)).map(lead);
        spool.write(ops.collect()).wait().expect("stored");
    }
    guard.close();
    let file = std::fs::metadata(state.join("spool.db"));
    file.expect("a file").len()
}

/// A running program. It is killed on drop.
struct Running(Child);

impl Running {
    fn start(folder: &Path, lookup: SocketAddr) -> Self {
        let given = std::env::var_os(GIVEN).map(PathBuf::from);
        let program = given.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_callbridge")));
        let token = folder.join("token");
        std::fs::write(&token, "svc_pat_bench\n").expect("a token");
        let source = format!("file://{}?format=ami", folder.join("calls").display());
        let child = Command::new(program)
            .env_remove("CALLBRIDGE_PROGRAM")
            .args(["run", "--log", "error", "--trunk", TRUNK])
            .args(["--pbx-id", "bench", "--source", &source])
            // No CRM listens there, so the calls stay in the spool.
            .args(["--crm-url", "http://127.0.0.1:9"])
            .args(["--lookup", &lookup.to_string(), "--token-file"])
            .arg(token)
            .arg("--state")
            .arg(folder.join("state"))
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("the program starts"))
    }

    /// Returns a figure of its memory, in MB.
    fn memory(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()));
        let status = status.expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.expect("a number") / 1024.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a listener that gives every request the same answer, in a thread that ends with the
/// process.
fn start_plain_listener() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(ANSWERED_PLAINLY.as_bytes());
        }
    });
    addr
}

/// Measures the time from the connection to the last byte, which is how long a dialplan waits.
fn ask(addr: SocketAddr, phone: &Phone) -> (Duration, String) {
    let begun = Instant::now();
    let number = phone.as_str().trim_start_matches('+');
    let mut line = TcpStream::connect(addr).expect("it listens");
    let request = format!(
        "GET /caller?phone=%2B{number}&trunk=city&format=hash HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    );
    line.write_all(request.as_bytes()).expect("taken");
    let mut answer = String::new();
    line.read_to_string(&mut answer).expect("an answer");
    (begun.elapsed(), answer)
}

/// Times of the answers, and how many answers were `late` or `full`.
#[derive(Default)]
struct AnswerTimes {
    ours: Vec<Duration>,
    plain: Vec<Duration>,
    put_off: u32,
}

/// Runs one of the [`ASKERS`] threads. Every fourth number belongs to no lead.
fn run_asker(asker: u32, leads: i64, ours: SocketAddr, plain: SocketAddr) -> AnswerTimes {
    let mut times = AnswerTimes::default();
    let begun = Instant::now();
    let lookups = LOOK_UPS_A_SECOND * u32::try_from(MINUTE.as_secs()).unwrap_or(60);
    for turn in (asker..lookups).step_by(ASKERS as usize) {
        let due = Duration::from_secs(1) * turn / LOOK_UPS_A_SECOND;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let scattered = (i64::from(turn) * 7_368_787) % leads;
        let known = turn % 4 != 0;
        let n = if known { scattered } else { scattered - leads };
        let (took, answer) = ask(ours, &phone(n));
        times.ours.push(took);
        if answer.contains("reason=late") || answer.contains("reason=full") {
            times.put_off += 1;
        } else {
            let wanted = if known {
                format!("known=yes&lead={}&name=Customer%20Karimova", n + 1)
            } else {
                "known=no&lead=&".to_owned()
            };
            assert!(answer.contains(&wanted), "{answer}");
        }
        times.plain.push(ask(plain, &phone(n)).0);
    }
    times
}

/// Appends calls to the source's file for a minute.
fn calls(file: &Path) {
    let mut file = OpenOptions::new().append(true).open(file).expect("a file");
    let begun = Instant::now();
    for n in 0..CALLS {
        let due = Duration::from_secs(1) * n / CALLS_A_SECOND;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let call = Call::without_lead(n).ami();
        file.write_all(call.as_bytes()).expect("written");
    }
}

/// Returns the number of stored calls, and the number of stored calls with a lead. Waits until
/// `written` calls are stored, but at most a minute.
fn count_stored(state: &Path, written: u32) -> (u32, u32) {
    let db = Connection::open(state.join("spool.db")).expect("the state");
    let counted = "SELECT count(*), count(lead) FROM calls";
    let deadline = Instant::now() + MINUTE;
    loop {
        let counts = db.query_row(counted, [], |row| Ok((row.get(0)?, row.get(1)?)));
        let (calls, with_lead): (u32, u32) = counts.expect("a count");
        if calls >= written || Instant::now() >= deadline {
            return (calls, with_lead);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns a quantile of sorted times, in milliseconds.
fn quantile_ms(times: &[Duration], thousandth: usize) -> f64 {
    let time = times[(times.len() - 1) * thousandth / 1_000];
    time.as_secs_f64() * 1e3
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let p50 = quantile_ms(&times, 500);
    let p90 = quantile_ms(&times, 900);
    let p99 = quantile_ms(&times, 990);
    let most = quantile_ms(&times, 1_000);
    format!("p50 {p50:.2}, p90 {p90:.2}, p99 {p99:.2}, max {most:.1} ms")
}

fn print_row(leads: i64, what: &str, measured: &str, goal: &str, reference: &str) {
    let what = format!("{leads} leads: {what}");
    table::row("lookup", &what, measured, goal, reference);
}

/// Runs the bench that the module describes.
pub fn main() {
    let mut named = std::env::args().filter_map(|word| word.parse().ok());
    let leads = named.next().unwrap_or(LEADS);
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = fill(&folder.path().join("state"), leads);
    let file = folder.path().join("calls");
    std::fs::write(&file, "").expect("a file");
    let (ours, plain) = (free_addr(), start_plain_listener());
    let running = Running::start(folder.path(), ours);
    while TcpStream::connect(ours).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    ask(ours, &phone(0));
    let before = running.memory("VmRSS:");
    let mut all = AnswerTimes::default();
    std::thread::scope(|scope| {
        scope.spawn(|| calls(&file));
        let askers: Vec<_> = (0..ASKERS)
            .map(|asker| scope.spawn(move || run_asker(asker, leads, ours, plain)))
            .collect();
        for asker in askers {
            let times = asker.join().expect("it asks to the end");
            all.ours.extend(times.ours);
            all.plain.extend(times.plain);
            all.put_off += times.put_off;
        }
    });
    print_row(
        leads,
        "lookups, 200/s beside 50 calls/s",
        &quantiles(all.ours),
        "p99 5, max 100",
        &format!("a listener that only answers: {}", quantiles(all.plain)),
    );
    let (stored, with_lead) = count_stored(&folder.path().join("state"), CALLS);
    let calls = format!("{stored} of {CALLS} stored, {with_lead} with their lead");
    print_row(leads, "calls beside them", &calls, "all stored", "");
    let put_off = format!("{} answered late or full", all.put_off);
    print_row(leads, "put off", &put_off, "", "");
    let resident = format!(
        "{:.1} MB, peak {:.1} MB",
        running.memory("VmRSS:"),
        running.memory("VmHWM:")
    );
    print_row(
        leads,
        "memory",
        &resident,
        "",
        &format!("before the first caller: {before:.1} MB"),
    );
    let disk = format!("{:.0} B a lead", bytes as f64 / leads as f64);
    print_row(leads, "disk", &disk, "", "");
    assert_eq!(
        stored, CALLS,
        "fewer calls than the rows say were taken in during the lookups"
    );
}
