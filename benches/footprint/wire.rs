//! Measures the time from a call's last hangup to its request on the wire, with a PBX and a CRM on
//! real sockets. The CRM is the program's sandbox, behind a proxy that only records the time.

use super::{RECORDING, Running, Scratch, TRUNK, program};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Time after its last hangup at which a call is finished (`--settle`).
const SETTLE: Duration = Duration::from_millis(100);
/// Timeout of each step. A step that takes longer has failed.
const WITHIN: Duration = Duration::from_secs(20);
/// The sent call is this many times as short as the recorded call.
const SHORTER: f64 = 5.0;

/// Measures this many calls, one after another. Returns the time of each beyond `SETTLE`, and the
/// times of as many bare connections, which are measured first.
pub fn measure(calls: u32) -> (Vec<Duration>, Vec<Duration>) {
    let scratch = Scratch::new("wire");
    std::fs::write(scratch.0.join("ami"), "a secret\n").expect("a secret");
    let (crm, submitted, _sandbox) = crm(&scratch);
    let plain = (0..calls)
        .map(|_| measure_bare_connection(crm, &submitted))
        .collect();
    let pbx = TcpListener::bind("127.0.0.1:0").expect("a port");
    let source = format!(
        "ami://bench@{}?secret-file={}",
        pbx.local_addr().expect("its address"),
        scratch.0.join("ami").display()
    );
    let _daemon = daemon(&scratch, &source, &format!("http://{crm}"));
    let mut line = log_in(&pbx);
    let recorded = std::fs::read_to_string(RECORDING).expect("the recording");
    let events = last_hangup(&recorded);
    let mut times = Vec::new();
    for n in 0..calls {
        let call_events = call(events, n);
        let hung_up = Instant::now();
        line.write_all(call_events.as_bytes())
            .expect("the line is open");
        let sent = submitted.recv_timeout(WITHIN).expect("a submission");
        let after_hangup = sent.saturating_duration_since(hung_up);
        times.push(after_hangup.saturating_sub(SETTLE));
    }
    (times, plain)
}

/// Measures the reference: the time from a new connection to the first bytes of a submission at its
/// other end.
fn measure_bare_connection(crm: SocketAddr, submitted: &Receiver<Instant>) -> Duration {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(crm).expect("it listens");
    stream
        .write_all(b"POST /v1/open-api/call-history HTTP/1.1\r\nHost: bench\r\n\r\n")
        .expect("taken");
    let sent = submitted.recv_timeout(WITHIN).expect("a submission");
    sent.saturating_duration_since(begun)
}

fn daemon(scratch: &Scratch, source: &str, crm: &str) -> Running {
    let child = Command::new(program())
        .env_remove("CALLBRIDGE_PROGRAM")
        .args([
            "run", "--log", "error", "--pbx-id", "bench", "--trunk", TRUNK,
        ])
        .args(["--source", source, "--crm-url", crm, "--rate", "10000/1s"])
        .args(["--settle", &format!("{}ms", SETTLE.as_millis())])
        .arg("--token-file")
        .arg(scratch.0.join("token"))
        .arg("--state")
        .arg(scratch.0.join("state"))
        .stdout(Stdio::null())
        .spawn();
    Running(child.expect("the program starts"))
}

/// Starts a sandbox, and a proxy that records the time of each submission's first byte. Returns the
/// proxy's address.
fn crm(scratch: &Scratch) -> (SocketAddr, Receiver<Instant>, Running) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let sandbox = free.local_addr().expect("its address");
    drop(free);
    let child = Command::new(program())
        .env_remove("CALLBRIDGE_PROGRAM")
        .args(["sandbox", "--rate", "10000/1s"])
        .args(["--listen", &sandbox.to_string()])
        .arg("--token-file")
        .arg(scratch.0.join("token"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let child = Running(child.expect("the sandbox starts"));
    let begin = Instant::now();
    while TcpStream::connect(sandbox).is_err() {
        assert!(begin.elapsed() < WITHIN, "the sandbox does not listen");
    }
    let door = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = door.local_addr().expect("its address");
    let (noted, submitted) = sync_channel(1024);
    std::thread::spawn(move || {
        for stream in door.incoming().map_while(Result::ok) {
            let noted = noted.clone();
            std::thread::spawn(move || pass_on(stream, sandbox, &noted));
        }
    });
    (addr, submitted, child)
}

/// Passes one exchange on, in both directions.
fn pass_on(mut client: TcpStream, sandbox: SocketAddr, noted: &SyncSender<Instant>) -> Option<()> {
    let mut first = vec![0; 16 << 10];
    let read = client.read(&mut first).ok()?;
    let now = Instant::now();
    let line = first[..read].split(|&byte| byte == b'\r').next()?;
    if line.starts_with(b"POST ") && line.ends_with(b"/call-history HTTP/1.1") {
        noted.send(now).ok()?;
    }
    let mut server = TcpStream::connect(sandbox).ok()?;
    server.write_all(&first[..read]).ok()?;
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut server, &mut client);
    client.shutdown(Shutdown::Both).ok()
}

/// Accepts the daemon's login. Returns the connection, for sending events.
fn log_in(pbx: &TcpListener) -> TcpStream {
    let (mut line, _) = pbx.accept().expect("a manager");
    line.set_nodelay(true).expect("a socket");
    line.write_all(b"Asterisk Call Manager/11.0.0\r\n")
        .expect("open");
    let mut answers = line.try_clone().expect("a socket");
    let (booted_sender, booted) = sync_channel(1);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(answers.try_clone().expect("a socket"));
        while let Some(answer) = answer(&mut reader) {
            if answers.write_all(answer.as_bytes()).is_err() {
                return;
            }
            if answer.contains("FullyBooted") {
                let _ = booted_sender.try_send(());
            }
        }
    });
    booted.recv_timeout(WITHIN).expect("a login");
    line
}

/// Reads the next action, and returns the answer to it. `None` at the end of the connection.
fn answer(reader: &mut impl BufRead) -> Option<String> {
    let (mut id, mut action) = (String::new(), String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some(("ActionID", value)) => id = format!("ActionID: {value}\r\n"),
            Some(("Action", value)) => action = value.to_lowercase(),
            Some(_) => {}
            None => break,
        }
    }
    let more = match action.as_str() {
        "challenge" => "Challenge: 4711\r\n\r\n",
        "login" => {
            "Message: Authentication accepted\r\n\r\n\
             Event: FullyBooted\r\nStatus: Fully Booted\r\n\r\n"
        }
        "coreshowchannels" => {
            "EventList: start\r\n\r\n\
             Event: CoreShowChannelsComplete\r\nEventList: Complete\r\nListItems: 0\r\n\r\n"
        }
        _ => "Message: done\r\n\r\n",
    };
    Some(format!("Response: Success\r\n{id}{more}"))
}

/// Returns the recording's events from its greeting to its last hangup.
fn last_hangup(recorded: &str) -> &str {
    let (_, events) = recorded
        .split_once("Fully Booted\r\n\r\n")
        .expect("a greeting");
    let last = events.rfind("Event: Hangup\r\n").expect("a hang-up");
    let end = events[last..].find("\r\n\r\n").expect("its end");
    &events[..last + end + 4]
}

fn timestamp(line: &str) -> Option<f64> {
    line.strip_prefix("Timestamp: ")
        .and_then(|at| at.parse::<f64>().ok())
}

/// Returns the recorded call with new ids and times, so that its last event is now.
fn call(events: &str, n: u32) -> String {
    let now = callbridge_model::clock::now().wall.micros() as f64 / 1e6;
    let ended = events.lines().filter_map(timestamp).fold(0.0, f64::max);
    let mut text = String::with_capacity(events.len() + 100);
    for line in events.lines() {
        match timestamp(line) {
            Some(at) => text.push_str(&format!("Timestamp: {:.6}", now - (ended - at) / SHORTER)),
            None => text.push_str(line),
        }
        text.push_str("\r\n");
    }
    let second = now as u64;
    text.replace("1795151317.146", &format!("{second}.{}", 2 * n))
        .replace("1795151317.147", &format!("{second}.{}", 2 * n + 1))
        .replace("city-0000004f", &format!("city-{:08x}", 2 * n))
        .replace("101-00000050", &format!("101-{:08x}", 2 * n + 1))
        .replace("aabc1d53-a423", &format!("{n:08x}-a423"))
        .replace("998901110001", &format!("99890{:07}", 1_110_000 + n))
}
