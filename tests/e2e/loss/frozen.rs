//! Tests that a process doesn't send a request if it's frozen after it stored the request's slot
//! and before it wrote the first byte.

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

/// How long the process is frozen. A request must be written within five seconds of taking its
/// slot.
const FREEZE: Duration = Duration::from_secs(6);
/// Number of slots that are already used in a new state.
const SLOTS_OF_NEW_STATE: usize = 3;

/// A proxy that forwards connections to the CRM until it's closed, after which connections are
/// refused.
struct Proxy(JoinHandle<()>);

impl Proxy {
    async fn open(address: SocketAddr, crm: &Server) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
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

/// Returns the number of requests to this endpoint, or to all endpoints for `None`.
fn count_requests(crm: &Server, wanted: Option<Endpoint>) -> usize {
    let count = crm.admin(|core, _| {
        let counts = core.counts().iter();
        let counts =
            counts.filter(|((endpoint, _), _)| wanted.is_none_or(|only| only == *endpoint));
        counts.map(|(_, count)| *count).sum::<u64>()
    });
    usize::try_from(count).expect("few")
}

/// Promise: A request is written within five seconds after its slot was taken, or not at all.
#[tokio::test]
async fn request_frozen_before_first_byte_is_not_sent_and_slot_kept() {
    let (place, crm) = (Place::new(), crm::start().await);
    let address = free_addr();
    let proxy = Proxy::open(address, &crm).await;
    let (library, hangs) = (preload(&place, "hang.c"), place.path("hangs"));
    let source = place.file("recorded", "ami");
    // With a window of one hour, all slots are kept until after the test.
    let flags = [source.as_str(), TRUNKS[0], TRUNKS[1], "--rate=240/1h"];
    let variables = [("LD_PRELOAD", library), ("TEST_HANG", hangs.clone())];
    let calls = ["inbound_answered", "outbound_answered"].map(recordings::one);
    place.append("recorded", &calls[0].ami);
    let mut program = place.run_with(&format!("http://{address}"), &flags, &variables);
    program.settled(1).await;

    // While the CRM is unreachable, the next commit stores a probe's slot.
    proxy.close().await;
    place.append("recorded", &calls[1].ami);
    program
        .until("an unreachable CRM", |status| {
            let pause = status.pause.as_ref();
            pause.is_some_and(|pause| pause.reason == "unreachable") && status.books.ready == 1
        })
        .await;
    place.write("hangs", "");
    let proxy = Proxy::open(address, &crm).await;
    let met = place.at("hangs.met");
    until("a commit that hangs", async || met.exists()).await;
    program.freeze().await;
    std::fs::remove_file(&hangs).expect("removed");
    pass(FREEZE).await;
    program.signal(Signal::CONT);

    program.settled(2).await;
    program.terminate().await;
    proxy.close().await;
    let log = place.logs();
    assert_eq!(log.matches("verdict=too_late").count(), 1, "{log}");
    assert_eq!(
        count_requests(&crm, Some(Endpoint::CallHistory)),
        2,
        "each call is sent once"
    );
    let unreachable = log.matches("verdict=failure").count();
    let state = Connection::open(place.at("state").join("spool.db")).expect("a state");
    let slots = state.query_row("SELECT count(*) FROM slots", [], |row| row.get(0));
    let taken = SLOTS_OF_NEW_STATE + count_requests(&crm, None) + unreachable + 1;
    assert_eq!(
        slots,
        Ok(taken),
        "one slot was taken and no request was sent\n{log}"
    );
    crm::judge(&crm, &place.letters().await, &recordings::expected(&calls));
}
