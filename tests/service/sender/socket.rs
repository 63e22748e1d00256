//! Tests the socket options of a connection to the CRM.

use callbridge_crm::Timeouts;
use callbridge_crm::{Address, Client, Request, Setup};
use callbridge_model::Secret;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::Socket;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

/// Returns how long the system tries to deliver data to this address before it gives up.
fn user_timeout(to: SocketAddr) -> Option<Duration> {
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty()).expect("our own process");
    let open = std::fs::read_dir("/proc/self/fd").expect("our files");
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let sockets = numbers.filter_map(|number| {
        let file = pidfd_getfd(&ourselves, number, PidfdGetfdFlags::empty()).ok()?;
        let socket = Socket::from(file);
        (socket.peer_addr().ok()?.as_socket()? == to).then_some(socket)
    });
    let mut timeouts = sockets.filter_map(|socket| socket.tcp_user_timeout().ok()?);
    timeouts.next()
}

#[tokio::test]
async fn tcp_user_timeout_equals_request_timeout() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    let address = Address::parse(&format!("http://{addr}")).expect("an address");
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        total: Duration::from_secs(17),
    };
    let client = Client::new(Setup {
        timeouts,
        ..Setup::new(address)
    });
    let token = Secret::from("svc_pat_x");
    let mut sending = std::pin::pin!(client.send(&Request::TokenInfo, &token, Duration::MAX));
    let accepted = tokio::select! {
        answer = &mut sending => panic!("nobody answers: {:?}", answer.answer),
        accepted = listener.accept() => accepted.expect("a connection"),
    };
    assert_eq!(user_timeout(addr), Some(timeouts.total));
    drop((accepted, sending));
}
