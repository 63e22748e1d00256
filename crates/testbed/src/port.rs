//! A port that no other process takes.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Finds a port of 127.0.0.1 on which no process listens, and that stays free until the caller
/// binds it. It is none of those that the system gives to processes that ask for any port, and none
/// that this function returned before.
///
/// A port that the system chose and that was released again can be taken at once as the local port
/// of a connection. A client that retries on it could even connect to itself.
///
/// # Panics
/// If every port is taken.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let range = range.expect("Linux tells its ports");
    let lowest = range
        .split_whitespace()
        .next()
        .and_then(|port| port.parse().ok());
    let ports = 10_000..lowest.filter(|lowest| *lowest > 11_000).unwrap_or(32_768);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..100_000 {
        let random = uuid::Uuid::new_v4().as_u128() as usize % ports.len();
        let port = ports.start + u16::try_from(random).expect("a port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() && given.insert(port) {
            return port;
        }
    }
    panic!("every port of 127.0.0.1 is taken");
}

/// Returns [`free_port`] with its address.
pub fn free_addr() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}
