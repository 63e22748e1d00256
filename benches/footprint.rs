//! The cost of the idle program, and its speed: start, memory, size on disk, and the time from a
//! hangup to the request on the wire.
//!
//! `cargo bench --bench footprint` measures the program as benches are built. To measure the
//! shipped one, build it with `cargo build --profile dist`, and set
//! `CALLBRIDGE_PROGRAM=target/dist/callbridge`. Each figure is shown with its target and a
//! reference from the same run.

#[path = "support/table.rs"]
mod table;
#[path = "footprint/wire.rs"]
mod wire;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable with the program to measure. If the variable is not set, the program
/// that benches are built with is measured.
const GIVEN: &str = "CALLBRIDGE_PROGRAM";
const RUNS: usize = 9;
/// Calls one after another, each from its hangup to its request.
const CALLS: u32 = 250;
const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/recordings/inbound_answered/ami.raw"
);
const TRUNK: &str = "city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";

/// Returns the program to measure.
fn program() -> PathBuf {
    let given = std::env::var_os(GIVEN).map(PathBuf::from);
    given.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_callbridge")))
}

/// A temporary folder of this run.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("footprint-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("token"), "svc_pat_bench\n").expect("a token");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running program. It is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(scratch: &Scratch, source: &str, crm: &str) -> Running {
    let child = Command::new(program())
        .env_remove("CALLBRIDGE_PROGRAM")
        .args([
            "run", "--log", "error", "--trunk", TRUNK, "--pbx-id", "bench",
        ])
        .args(["--source", source, "--crm-url", crm])
        .arg("--token-file")
        .arg(scratch.0.join("token"))
        .arg("--state")
        .arg(scratch.0.join("state"))
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    Running(child)
}

/// Measures the time from the start of the process to the first line of its first request (plain
/// HTTP).
fn start_to_first_request() -> Duration {
    let scratch = Scratch::new("start");
    let crm = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", crm.local_addr().expect("its address"));
    let begin = Instant::now();
    let running = start(
        &scratch,
        &format!("file://{RECORDING}?format=ami&from=start"),
        &url,
    );
    let (stream, _) = crm.accept().expect("a request");
    let mut line = String::new();
    BufReader::new(&stream)
        .read_line(&mut line)
        .expect("its first line");
    let took = begin.elapsed();
    assert!(line.contains("/v1/open-api/"), "{line}");
    let _ = (&stream).write_all(b"HTTP/1.1 503 later\r\ncontent-length: 0\r\n\r\n");
    drop(running);
    took
}

/// Measures the start and end of a process that does nothing, which is the cost of the machine.
fn start_of_nothing() -> Duration {
    let begin = Instant::now();
    let ended = Command::new("true").status().expect("true");
    assert!(ended.success());
    begin.elapsed()
}

/// Returns the resident memory in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("VmRSS");
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("a number")
}

/// Measures the memory of a daemon that follows an empty file, and of `sleep`.
fn idle() -> (u64, u64) {
    let scratch = Scratch::new("idle");
    let file = scratch.0.join("empty.raw");
    std::fs::write(&file, "").expect("a file");
    let crm = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", crm.local_addr().expect("its address"));
    let source = format!("file://{}?format=ami", file.display());
    let running = start(&scratch, &source, &url);
    let mut nothing = Running(Command::new("sleep").arg("60").spawn().expect("sleep"));
    let (stream, _) = crm.accept().expect("token/info");
    drop(stream);
    // Long enough for all effects of the start to settle.
    std::thread::sleep(Duration::from_secs(3));
    let figures = (resident(running.0.id()), resident(nothing.0.id()));
    let _ = nothing.0.kill();
    figures
}

fn median(mut times: Vec<Duration>) -> (Duration, Duration, Duration) {
    times.sort();
    (times[0], times[times.len() / 2], times[times.len() - 1])
}

/// Returns the size of a file, in MB.
fn size(path: &Path) -> Option<String> {
    let bytes = std::fs::metadata(path).ok()?.len();
    Some(format!("{:.1} MB", bytes as f64 / 1024.0 / 1024.0))
}

fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

fn mib(kib: u64) -> String {
    format!("{:.1} MB", kib as f64 / 1024.0)
}

/// Returns a percentile of sorted times, in milliseconds.
fn percentile_ms(times: &[Duration], share: usize) -> String {
    ms(times[(times.len() - 1) * share / 100])
}

/// Runs the bench that the module describes.
pub fn main() {
    let built = match std::env::var_os(GIVEN) {
        Some(_) => "the program given",
        None => "linked thinly",
    };
    let ours = median((0..RUNS).map(|_| start_to_first_request()).collect());
    let nothing = median((0..RUNS).map(|_| start_of_nothing()).collect());
    table::row(
        "footprint",
        "start to first request, median",
        &format!("{} ms ({}–{})", ms(ours.1), ms(ours.0), ms(ours.2)),
        "20 ms",
        &format!("start and end of `true`: {} ms", ms(nothing.1)),
    );
    let (resident, sleeping) = idle();
    table::row(
        "footprint",
        "resident, idle",
        &mib(resident),
        "14 MB",
        &format!("`sleep`: {}", mib(sleeping)),
    );
    let own = size(&program()).expect("the program");
    let git = size(Path::new("/usr/bin/git")).unwrap_or_else(|| "not installed".to_owned());
    let what = format!("stripped binary, {built}");
    table::row(
        "footprint",
        &what,
        &own,
        "25 MB",
        &format!("git, without its helpers: {git}"),
    );
    let (mut calls, mut plain) = wire::measure(CALLS);
    calls.sort();
    plain.sort();
    let plain = percentile_ms(&plain, 99);
    table::row(
        "footprint",
        "hang-up to request, p99",
        &format!("settle + {} ms", percentile_ms(&calls, 99)),
        "10 ms",
        &format!(
            "p50 {} ms, max {} ms; a bare connection and its first bytes: p99 {plain} ms",
            percentile_ms(&calls, 50),
            percentile_ms(&calls, 100)
        ),
    );
}
