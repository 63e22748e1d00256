//! Tests a process that is frozen between the commit of a request's slot and the request's first
//! byte.

use crate::support::crm;
use crate::support::program::{Place, preload};
use crate::support::recordings::{self, TRUNKS};
use callbridge_sandbox::{Endpoint, Server};
use callbridge_testbed::port::free_addr;
use callbridge_testbed::wait::{pass, until};
use rusqlite::Connection;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request can wait less than this for its first byte.
const FROZEN: Duration = Duration::from_secs(6);
/// Slots that a new state uses at its start.
const SLOTS_OF_NEW_STATE: usize = 3;

/// Forwards connections to the CRM until it is closed. Then it refuses connections.
struct Way(JoinHandle<()>);

impl Way {
    async fn open(at: SocketAddr, crm: &Server) -> Self {
        let listener = TcpListener::bind(at).await.expect("a free port");
        let crm = crm.url().trim_start_matches("http://").to_owned();
        Self(tokio::spawn(async move {
            while let Ok((mut outer, _)) = listener.accept().await {
                let crm = crm.clone();
                tokio::spawn(async move {
                    let mut inner = TcpStream::connect(crm).await.ok()?;
                    copy_bidirectional(&mut outer, &mut inner).await.ok()
                });
            }
        }))
    }

    async fn close(self) {
        self.0.abort();
        drop(self.0.await);
    }
}

/// Returns the number of requests to this endpoint, or to all endpoints.
fn requests(crm: &Server, of: Option<Endpoint>) -> usize {
    let count = crm.admin(|core, _| {
        let counts = core.counts().iter();
        let counts = counts.filter(|((endpoint, _), _)| of.is_none_or(|of| of == *endpoint));
        counts.map(|(_, count)| *count).sum::<u64>()
    });
    usize::try_from(count).expect("few")
}

/// Promise: A request is written within five seconds after its slot was taken, or not at all.
#[tokio::test]
async fn request_frozen_before_first_byte_is_not_sent_and_slot_kept() {
    let (place, crm) = (Place::new(), crm::start().await);
    let address = free_addr();
    let way = Way::open(address, &crm).await;
    let (library, hangs) = (preload(&place, "hang.c"), place.path("hangs"));
    let source = place.file("recorded", "ami");
    // slots are kept until after the test
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], "--rate=240/1h"];
    let variables = [("LD_PRELOAD", library), ("TEST_HANG", hangs.clone())];
    let calls = ["inbound_answered", "outbound_answered"].map(recordings::one);
    place.append("recorded", &calls[0].ami);
    let mut program = place.run_with(&format!("http://{address}"), &flags, &variables);
    program.settled(1).await;

    // while the CRM is unreachable, the next commit is that of a probe and its slot
    way.close().await;
    place.append("recorded", &calls[1].ami);
    program
        .until("an unreachable CRM", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| pause.reason == "unreachable") && status.books.ready == 1
        })
        .await;
    place.write("hangs", "");
    let way = Way::open(address, &crm).await;
    let met = place.at("hangs.met");
    until("a commit that hangs", async || met.exists()).await;
    program.freeze().await;
    std::fs::remove_file(&hangs).expect("removed");
    pass(FROZEN).await;
    program.signal(Signal::CONT);

    program.settled(2).await;
    program.terminate().await;
    way.close().await;
    let log = place.logs();
    assert_eq!(log.matches("verdict=too_late").count(), 1, "{log}");
    assert_eq!(requests(&crm, Some(Endpoint::CallHistory)), 2, "each once");
    let unreachable = log.matches("verdict=failure").count();
    let state = Connection::open(place.at("state").join("spool.db")).expect("a state");
    let slots = state.query_row("SELECT count(*) FROM slots", [], |row| row.get(0));
    let taken = SLOTS_OF_NEW_STATE + requests(&crm, None) + unreachable + 1;
    assert_eq!(slots, Ok(taken), "one slot was kept and not used\n{log}");
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}
