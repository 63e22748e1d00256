//! The cost of the page: 500 requests per second and 50 live views, while the daemon takes in
//! calls, and while it sends within its budget. Each figure is compared with the same daemon
//! without visitors, from the same run.

#[path = "support/table.rs"]
mod table;

use callbridge_testbed::calls::{Call, recording};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Calls of the recording that are taken in.
const TAKEN: u32 = 4_000;
/// Calls that are sent, with a budget of 60 requests in 6 s.
const SENT: u32 = 240;
const REQUESTS_PER_SECOND: u64 = 500;
const VIEWS: usize = 50;
/// Pages that are requested in turn.
const PATHS: [&str; 5] = ["/", "/calls", "/letters", "/missed", "/pbx"];

fn program() -> PathBuf {
    let given = std::env::var_os("CALLBRIDGE_PROGRAM").map(PathBuf::from);
    given.unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_callbridge")))
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon that reads a recording, and its sandbox.
struct Daemon {
    folder: tempfile::TempDir,
    running: Running,
    _crm: callbridge_sandbox::Server,
}

impl Daemon {
    async fn start(calls: u32, rate: &str) -> Self {
        let mut config = callbridge_sandbox::Config::default();
        config.settings.persist_after = Duration::ZERO;
        config.settings.persist_jitter = Duration::ZERO;
        config.settings.rate.requests = 100_000;
        let crm = callbridge_sandbox::start(config).await.expect("a sandbox");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(path_in(&folder, "token"), "svc_pat_sandbox").expect("a token");
        std::fs::write(path_in(&folder, "calls.ami"), "").expect("a recording");
        let child = Command::new(program())
            .env_remove("CALLBRIDGE_PROGRAM")
            .args(["run", "--log=error", "--pbx-id=bench", "--page=127.0.0.1:0"])
            .arg("--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID")
            .arg(format!("--rate={rate}"))
            .arg(format!("--crm-url={}", crm.url()))
            .arg(format!("--token-file={}", path_in(&folder, "token")))
            .arg(format!("--state={}", path_in(&folder, "state")))
            .arg(format!(
                "--source=file://{}?format=ami&from=start",
                path_in(&folder, "calls.ami")
            ))
            .stdout(Stdio::null())
            .spawn()
            .expect("the program starts");
        let daemon = Self {
            folder,
            running: Running(child),
            _crm: crm,
        };
        while daemon.book("finished").is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let calls: Vec<Call> = (1..=calls).map(|n| Call::new(n, 4_002)).collect();
        std::fs::write(file_path(&daemon, "calls.ami"), recording(&calls)).expect("a recording");
        daemon
    }

    fn ask(&self, words: &[&str]) -> Option<String> {
        let output = Command::new(program())
            .env_remove("CALLBRIDGE_PROGRAM")
            .args(words)
            .arg(format!("--state={}", file_path(self, "state")))
            .stderr(Stdio::null())
            .output()
            .expect("it runs");
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn book(&self, name: &str) -> Option<u64> {
        let output = self.ask(&["status", "--json"])?;
        let status: Value = serde_json::from_str(&output).ok()?;
        if status["pause"]["reason"] == "no daemon runs" {
            return None;
        }
        status["books"][name].as_u64()
    }

    /// Measures the time until a book reaches this count.
    async fn measure_until(&self, book: &str, wanted: u64) -> Duration {
        let begun = Instant::now();
        while self.book(book).is_none_or(|now| now < wanted) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        begun.elapsed()
    }

    fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.running.0.id());
        let status = std::fs::read_to_string(path).expect("its status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let words = line.and_then(|line| line.split_whitespace().nth(1));
        words.and_then(|kib| kib.parse().ok()).expect("a number")
    }
}

fn file_path(daemon: &Daemon, name: &str) -> String {
    path_in(&daemon.folder, name)
}

fn path_in(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Visitors of the page, until it is dropped.
struct Crowd {
    tasks: tokio::task::JoinSet<()>,
    answered: Arc<AtomicU64>,
    begun: Instant,
}

/// A client with a session.
#[derive(Clone)]
struct Visitor {
    client: reqwest::Client,
    origin: String,
    cookie: String,
}

impl Visitor {
    async fn enter(daemon: &Daemon) -> Self {
        let output = daemon.ask(&["page"]).expect("a link");
        let url = output.trim().strip_prefix("open: ").expect("a link");
        let (origin, _) = url.split_once("/open/").expect("a path");
        let client = reqwest::Client::builder().no_proxy();
        let client = client.redirect(reqwest::redirect::Policy::none());
        let client = client.build().expect("a client");
        let entering = client.post(url).header("Origin", origin).send();
        let answer = entering.await.expect("an answer");
        let cookie = answer.headers().get("set-cookie").expect("a cookie");
        let cookie = cookie.to_str().expect("text").split(';').next();
        Self {
            client,
            origin: origin.to_owned(),
            cookie: cookie.unwrap_or_default().to_owned(),
        }
    }

    async fn get(&self, path: &str) -> Option<reqwest::Response> {
        let request = self.client.get(format!("{}{path}", self.origin));
        let answer = request.header("Cookie", &self.cookie).send().await.ok()?;
        answer.status().is_success().then_some(answer)
    }
}

impl Crowd {
    async fn visit(daemon: &Daemon) -> Self {
        let visitor = Visitor::enter(daemon).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..VIEWS {
            let visitor = visitor.clone();
            tasks.spawn(async move {
                loop {
                    let Some(mut view) = visitor.get("/live").await else {
                        continue;
                    };
                    while let Ok(Some(_)) = view.chunk().await {}
                }
            });
        }
        let answered = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&answered);
        tasks.spawn(async move {
            let each = Duration::from_micros(1_000_000 / REQUESTS_PER_SECOND);
            let mut tick = tokio::time::interval(each);
            let room = Arc::new(tokio::sync::Semaphore::new(64));
            let mut next = 0;
            loop {
                tick.tick().await;
                let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                let (visitor, counted) = (visitor.clone(), Arc::clone(&counted));
                let path = PATHS[next % PATHS.len()];
                next += 1;
                tokio::spawn(async move {
                    if let Some(answer) = visitor.get(path).await
                        && answer.bytes().await.is_ok()
                    {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(place);
                });
            }
        });
        Self {
            tasks,
            answered,
            begun: Instant::now(),
        }
    }

    /// Ends all visits. Returns the complete pages per second.
    fn leave(mut self) -> f64 {
        self.tasks.abort_all();
        let answered = self.answered.load(Ordering::Relaxed);
        answered as f64 / self.begun.elapsed().as_secs_f64()
    }
}

async fn measure_intake(crowded: bool) -> (f64, f64) {
    let daemon = Daemon::start(TAKEN, "60/60s").await;
    let crowd = if crowded {
        Some(Crowd::visit(&daemon).await)
    } else {
        None
    };
    let took = daemon.measure_until("finished", u64::from(TAKEN)).await;
    let asked = crowd.map_or(0.0, Crowd::leave);
    (f64::from(TAKEN) / took.as_secs_f64(), asked)
}

async fn measure_pace(crowded: bool) -> (Duration, f64) {
    let daemon = Daemon::start(SENT, "60/6s").await;
    let crowd = if crowded {
        Some(Crowd::visit(&daemon).await)
    } else {
        None
    };
    let took = daemon.measure_until("journaled", u64::from(SENT)).await;
    (took, crowd.map_or(0.0, Crowd::leave))
}

/// Measures the resident KiB that a live view adds.
async fn measure_memory() -> (u64, f64) {
    let daemon = Daemon::start(10, "60/60s").await;
    let visitor = Visitor::enter(&daemon).await;
    drop(visitor.get("/").await);
    let before = daemon.resident_kib();
    let mut views = Vec::new();
    for _ in 0..VIEWS {
        views.push(visitor.get("/live").await.expect("a live view"));
    }
    for view in &mut views {
        drop(view.chunk().await);
    }
    let after = daemon.resident_kib();
    let each = after.saturating_sub(before) as f64 / VIEWS as f64;
    (before, each)
}

/// Runs the bench that the module describes.
pub fn main() {
    // If another cryptography provider is installed already, the bench uses that provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (alone, _) = measure_intake(false).await;
        let (beside, asked) = measure_intake(true).await;
        table::row(
            "page",
            &format!("calls taken in, {asked:.0} pages a second"),
            &format!("{beside:.0} calls/s"),
            "-",
            &format!("{alone:.0} calls/s without"),
        );
        let (alone, _) = measure_pace(false).await;
        let (beside, asked) = measure_pace(true).await;
        table::row(
            "page",
            &format!("{SENT} calls at 60/6s, {asked:.0} pages a second"),
            &format!("{:.1} s", beside.as_secs_f64()),
            "as without",
            &format!("{:.1} s without", alone.as_secs_f64()),
        );
        let (before, each) = measure_memory().await;
        table::row(
            "page",
            "resident memory of a live view",
            &format!("{each:.0} KiB"),
            "-",
            &format!("{} MB without views", before / 1024),
        );
    });
}
