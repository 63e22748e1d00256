//! Tests that the listener survives garbage, incomplete requests, a thousand connections, and
//! clients that aren't allowed.

use callbridge_listener::descriptors;
use callbridge_lookup::answer::{Answer, Question, UnknownReason};
use callbridge_lookup::desk::{ANSWER_WITHIN, Desk, LookUp};
use callbridge_lookup::http::{self, Access, CONNECTIONS_MAX, Gate};
use callbridge_lookup::network::Network;
use callbridge_lookup::tally::Tally;
use callbridge_model::Secret;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A lookup that runs until this is dropped.
struct Served {
    at: SocketAddr,
    tally: Arc<Tally>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Served {
    async fn new(access: Access, look_up: LookUp) -> Self {
        Self::with_time_limit(Duration::from_secs(3600), access, look_up).await
    }

    async fn with_time_limit(limit: Duration, access: Access, look_up: LookUp) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let tally = Arc::new(Tally::new(Histogram::new([0.005])));
        let desk = Desk::open(look_up, limit).await.expect("a thread");
        let gate = Gate {
            desk,
            access,
            tally: Arc::clone(&tally),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(http::serve(listener, gate, async {
            stopped.await.ok();
        }));
        Self {
            at,
            tally,
            stop,
            server,
        }
    }

    async fn send(&self, bytes: &[u8]) -> String {
        let mut line = TcpStream::connect(self.at).await.expect("connected");
        let mut all = Vec::new();
        let sent = async {
            // A request that's rejected early isn't read to the end.
            line.write_all(bytes).await.ok();
            line.read_to_end(&mut all).await.ok();
        };
        let ended = timeout(Duration::from_secs(60), sent).await;
        ended.expect("an answer, or the end of the connection");
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Returns how many accepted connections were open at the same time. Since connections start
    /// and end while the kernel lists them, only those in two consecutive listings are counted, all
    /// of which were open between the two.
    fn connections(&self) -> usize {
        let first = self.listed_connections();
        first.intersection(&self.listed_connections()).count()
    }

    /// Returns the inodes of the accepted connections. In `/proc/net/tcp`, a connection that hasn't
    /// been accepted yet has no inode.
    fn listed_connections(&self) -> HashSet<String> {
        let own = format!(":{:04X}", self.at.port());
        let all = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
        let mut inodes = HashSet::new();
        for line in all.lines() {
            let columns = line.split_whitespace().collect::<Vec<_>>();
            // State 0A is the listening socket, which isn't a connection.
            if columns[1].ends_with(&own) && columns[3] != "0A" && columns[9] != "0" {
                inodes.insert(columns[9].to_owned());
            }
        }
        inodes
    }

    async fn get(&self, target: &str, more: &str) -> (u16, String) {
        let request = format!("GET {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n{more}\r\n");
        let answer = self.send(request.as_bytes()).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    fn count(&self, answer: &str) -> u64 {
        let counts = self.tally.counts();
        let found = counts.iter().find(|(word, _)| *word == answer);
        found.expect("it is counted").1
    }

    async fn shut_down(self) {
        self.stop.send(()).ok();
        self.server.await.expect("it ends");
    }
}

fn open_access() -> Access {
    Access {
        networks: Vec::new(),
        secrets: None,
    }
}

/// A lookup that doesn't know any caller.
fn unknown_caller_lookup() -> LookUp {
    Box::new(|_: &Question| Answer::unknown(UnknownReason::NoLead))
}

const CALLER_PATH: &str = "/caller?phone=%2B998901110001&trunk=city&format=hash";
const UNKNOWN_CALLER: &str =
    "known=no&lead=&name=&extension=&employee=&employeeName=&stage=&reason=no_lead";

#[tokio::test]
async fn each_request_is_answered_in_the_format_it_asks_for() {
    let served = Served::new(open_access(), unknown_caller_lookup()).await;
    assert_eq!(
        served.get(CALLER_PATH, "").await,
        (200, UNKNOWN_CALLER.to_owned())
    );
    let (status, json) = served.get("/caller?phone=1", "").await;
    assert_eq!(status, 200);
    assert!(
        json.starts_with("{\"known\":\"no\",\"lead\":null,"),
        "{json}"
    );
    let bad = UNKNOWN_CALLER.replace("no_lead", "bad_request");
    let (status, body) = served.get("/callers?format=hash", "").await;
    assert_eq!((status, body.as_str()), (404, &*bad));
    let posted =
        "POST /caller?format=hash HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\n\r\nx";
    let posted = served.send(posted.as_bytes()).await;
    assert!(
        posted.starts_with("HTTP/1.1 405 ") && posted.ends_with(&bad),
        "{posted}"
    );
    let counted = ["no", "bad", "late", "full"].map(|word| served.count(word));
    assert_eq!(counted, [2, 2, 0, 0]);
    served.shut_down().await;
}

#[tokio::test]
async fn garbage_and_partial_requests_are_cut_and_others_answered() {
    let served = Served::new(open_access(), unknown_caller_lookup()).await;
    let huge = format!(
        "GET /caller?phone={} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        "9".repeat(10 << 20)
    );
    let many = format!(
        "GET {CALLER_PATH} HTTP/1.1\r\n{}\r\n",
        "a: b\r\n".repeat(1_000)
    );
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"Action: Login\r\nUsername: x\r\n\r\n",
        huge.as_bytes(),
        many.as_bytes(),
    ] {
        let answer = served.send(garbage).await;
        assert!(!answer.contains("known="), "{answer}");
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    let mut half = Vec::new();
    for begun in [
        &b""[..],
        b"G",
        b"GET /caller?pho",
        b"GET /caller HTTP/1.1\r\nhost",
    ] {
        let mut line = TcpStream::connect(served.at).await.expect("connected");
        line.write_all(begun).await.expect("written");
        half.push(line);
    }
    assert_eq!(served.get(CALLER_PATH, "").await.0, 200);
    for mut line in half {
        let mut rest = Vec::new();
        line.read_to_end(&mut rest).await.ok();
        let rest = String::from_utf8_lossy(&rest).into_owned();
        assert!(!rest.contains("known="), "{rest}");
    }
    served.shut_down().await;
}

#[tokio::test]
async fn thousand_silent_connections_block_no_request() {
    descriptors::raise();
    let served = Served::new(open_access(), unknown_caller_lookup()).await;
    let mut silent = Vec::new();
    for _ in 0..1_000 {
        let line = TcpStream::connect(served.at).await;
        silent.push(line.expect("connected: check that `ulimit -Hn` is at least 2048"));
    }
    for _ in 0..20 {
        assert_eq!(
            served.get(CALLER_PATH, "").await,
            (200, UNKNOWN_CALLER.to_owned())
        );
        // One connection beyond the maximum is accepted, and waits until another one ends.
        let accepted = served.connections();
        assert!(accepted <= CONNECTIONS_MAX + 1, "{accepted} at once");
    }
    assert_eq!(served.count("no"), 20);
    drop(silent);
    served.shut_down().await;
}

#[tokio::test]
async fn request_during_a_stalled_disk_is_answered_as_late() {
    let (go_on, going) = std::sync::mpsc::sync_channel::<()>(0);
    let stalled_lookup: LookUp = Box::new(move |_| {
        going.recv().ok();
        Answer::unknown(UnknownReason::NoLead)
    });
    let served = Served::with_time_limit(ANSWER_WITHIN, open_access(), stalled_lookup).await;
    let begun = Instant::now();
    let (status, body) = served.get(CALLER_PATH, "").await;
    assert!(begun.elapsed() >= ANSWER_WITHIN);
    assert_eq!(
        (status, body),
        (200, UNKNOWN_CALLER.replace("no_lead", "late"))
    );
    assert_eq!((served.count("late"), served.count("no")), (1, 0));
    drop(go_on);
    served.shut_down().await;
}

#[tokio::test]
async fn requests_from_outside_or_without_password_are_refused() {
    let (current, secrets) = watch::channel(vec![Secret::from("s3cret".to_owned())]);
    let with_secret = Access {
        secrets: Some(secrets),
        ..open_access()
    };
    let refused = (401, UNKNOWN_CALLER.replace("no_lead", "refused"));
    let served = Served::new(with_secret, unknown_caller_lookup()).await;
    let basic = "authorization: Basic Y2FsbGJyaWRnZTpzM2NyZXQ=\r\n";
    for wrong in [
        "",
        "authorization: Bearer other\r\n",
        "authorization: Bearer \r\n",
        "authorization: Basic czNjcmV0\r\n",
    ] {
        assert_eq!(served.get(CALLER_PATH, wrong).await, refused, "{wrong}");
    }
    assert_eq!(served.count("refused"), 4);
    for right in [basic, "authorization: Bearer s3cret\r\n"] {
        assert_eq!(served.get(CALLER_PATH, right).await.0, 200, "{right}");
    }
    current.send_replace(vec![Secret::from("newer".to_owned())]);
    assert_eq!(
        served.get(CALLER_PATH, basic).await,
        refused,
        "it was changed"
    );
    served.shut_down().await;

    let office = Access {
        networks: vec![Network::parse("10.0.0.0/8").expect("a network")],
        secrets: None,
    };
    let served = Served::new(office, unknown_caller_lookup()).await;
    let (status, body) = served.get(CALLER_PATH, "").await;
    assert_eq!((status, body), (403, refused.1));
    served.shut_down().await;
    let office_and_loopback = Access {
        networks: ["10.0.0.0/8", "127.0.0.0/8"]
            .map(|network| Network::parse(network).expect("a network"))
            .into(),
        secrets: None,
    };
    let served = Served::new(office_and_loopback, unknown_caller_lookup()).await;
    assert_eq!(served.get(CALLER_PATH, "").await.0, 200);
    served.shut_down().await;
}
