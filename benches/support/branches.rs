//! Branches that send calls to a hub.

use callbridge_call::EpochSeconds;
use callbridge_hub::http;
use callbridge_hub::receiver::{Receiver, Turns};
use callbridge_hub::tally::Tally;
use callbridge_hub::token::{BranchTable, hash, new_id};
use callbridge_mapping::{People, Rules, Trunk};
use callbridge_model::{Secret, clock};
use callbridge_spool::{Handle, NewBranch, Op};
use callbridge_testkit::Wait as _;
use serde_json::json;
use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Connections at the same time.
const LINES: usize = 20;

fn token(branch: usize) -> String {
    format!("cbh_{branch:064}")
}

/// Makes a call of a branch. All calls of a branch are by one customer.
fn message(branch: usize, call: usize) -> String {
    json!({
        "pbx": format!("pbx{branch}"), "id": format!("1795151317.{call}"), "direction": "INBOUND",
        "trunk": "city", "phone": "+998901110001", "startedAt": 1_795_151_317 + call,
        "durationSec": 5.2, "answered": true, "talkSec": 4.1, "extension": "101",
        "extensions": ["101"], "leadId": 4001, "variables": {"LEAD_ID": "4001"},
    })
    .to_string()
}

fn request(branch: usize, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/calls HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{body}",
        token(branch),
        body.len()
    )
    .into_bytes()
}

/// Returns the bodies of this many requests of each branch, each with its branch. The calls of a
/// branch are numbered from `first`.
pub fn bodies(
    branches: usize,
    first: usize,
    (requests, calls): (usize, usize),
) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    for n in 0..requests {
        for branch in 0..branches {
            let first = first + n * calls;
            let lines = (first..first + calls).map(|call| message(branch, call));
            all.push((branch, lines.collect::<Vec<_>>().join("\n")));
        }
    }
    all
}

pub fn requests(bodies: &[(usize, String)]) -> Vec<Vec<u8>> {
    let requests = bodies.iter().map(|(branch, body)| request(*branch, body));
    requests.collect()
}

/// Sends all requests, [`LINES`] at a time, and reads each answer.
pub fn send(addr: SocketAddr, requests: &[Vec<u8>]) {
    let share = requests.len().div_ceil(LINES);
    std::thread::scope(|scope| {
        for requests in requests.chunks(share) {
            scope.spawn(move || {
                for request in requests {
                    let mut stream = TcpStream::connect(addr).expect("it listens");
                    stream.set_nodelay(true).expect("a socket");
                    stream.write_all(request).expect("taken");
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).expect("an answer");
                    let text = String::from_utf8_lossy(&answer);
                    assert!(answer.starts_with(b"HTTP/1.1 200"), "{text}");
                }
            });
        }
    });
}

/// Makes the state that of a hub, and adds this many branches.
pub fn add(spool: &Handle, branches: usize) {
    let mut ops = vec![Op::BeginHub {
        incarnation: new_id(),
        at: clock::now().wall,
    }];
    for branch in 0..branches {
        ops.push(Op::AddBranch(NewBranch {
            name: format!("branch{branch}"),
            token: hash(&Secret::from(token(branch))),
            pbxs: vec![format!("pbx{branch}")],
            at: EpochSeconds::new(1),
        }));
    }
    spool.write(ops).wait().expect("stored");
}

/// Starts a listener for the branches of this state.
pub fn serve(runtime: &tokio::runtime::Runtime, spool: &Handle) -> (SocketAddr, JoinHandle<()>) {
    let branches = Arc::new(BranchTable::default());
    runtime
        .block_on(branches.reload(spool))
        .expect("readable branches");
    let rules = Rules {
        without_trunk: Some(Trunk::default()),
        ..Rules::default()
    };
    let receiver = Arc::new(Receiver {
        spool: spool.clone(),
        rules,
        people: Arc::new(RwLock::new(Arc::new(People::default()))),
        branches,
        tally: Arc::new(Tally::default()),
        silence: Duration::from_secs(105),
        version: "bench",
        turns: Turns::default(),
        quota: Mutex::default(),
    });
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let serving = runtime.spawn(http::serve(listener, None, receiver, pending()));
    (addr, serving)
}
