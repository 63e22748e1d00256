//! Connects to a URL's hosts, and keeps the server's warnings for a connection.

use super::login::ScramOnly;
use super::url::PostgresUrl;
use super::{error, tls};
use crate::Error;
use socket2::{SockRef, TcpKeepalive};
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_postgres::config::Host;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

/// Maximum time for connecting to a host, including TLS and the login.
const CONNECT: Duration = Duration::from_secs(5);

/// The server function that waits for a synchronous standby. It issues a warning if the wait ends
/// before the standby has the transaction.
const SYNC_WAIT: &str = "SyncRepWaitForLSN";

/// The last warning that a commit didn't reach the standby.
#[derive(Clone, Default)]
pub(super) struct LastWarning(Arc<Mutex<Option<String>>>);

impl LastWarning {
    fn set(&self, warning: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
    }

    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs a connection until it ends. A warning is stored before the response that follows it.
    async fn watch<S, T>(self, mut connection: Connection<S, T>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
        T: AsyncRead + AsyncWrite + Unpin,
    {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            // Other warnings, such as one about a database that must be vacuumed, say nothing about
            // the commit.
            if let AsyncMessage::Notice(notice) = message
                && notice.routine() == Some(SYNC_WAIT)
            {
                self.set(format!("a warning: {}", notice.message()));
            }
        }
    }
}

/// Tries the hosts in turn, each with a deadline, because a host that's frozen or cut off may
/// accept a connection but never respond. Also returns the place of the host that did.
pub(super) async fn connect(
    configs: &[Config],
    url: &PostgresUrl,
    warning: &LastWarning,
) -> Result<(usize, (Client, JoinHandle<()>)), Error> {
    let mut last = Error::Closed;
    for (host, config) in configs.iter().enumerate() {
        let connecting = connect_host(config, url, warning.clone());
        match tokio::time::timeout(CONNECT, connecting).await {
            Ok(Ok(connected)) => return Ok((host, connected)),
            Ok(Err(error)) => last = error,
            Err(_) => last = error::no_connection(&url.place(), CONNECT),
        }
    }
    Err(last)
}

/// Returns a client, along with the task that runs its connection.
async fn connect_host(
    config: &Config,
    url: &PostgresUrl,
    warning: LastWarning,
) -> Result<(Client, JoinHandle<()>), Error> {
    let place = url.place();
    if let (false, [Host::Tcp(name)], [port]) =
        (url.uses_tls(), config.get_hosts(), config.get_ports())
    {
        let stream = open_tcp(config, name, *port).await;
        let stream =
            stream.map_err(|error| Error::SessionLost(place.clone(), error.to_string()))?;
        let connected = config.connect_raw(ScramOnly::new(stream), NoTls).await;
        let (client, connection) =
            connected.map_err(|error| error::of_connection(&place, &error))?;
        return Ok((client, tokio::spawn(warning.watch(connection))));
    }
    if !url.uses_tls() {
        let connected = config.connect(NoTls).await;
        let (client, connection) =
            connected.map_err(|error| error::of_connection(&place, &error))?;
        return Ok((client, tokio::spawn(warning.watch(connection))));
    }
    let tls = tls::connector(url.ca_file.as_deref());
    let tls = tls.map_err(|why| Error::Unusable(place.clone(), why))?;
    let connected = config.connect(tls).await;
    let (client, connection) = connected.map_err(|error| error::of_connection(&place, &error))?;
    Ok((client, tokio::spawn(warning.watch(connection))))
}

/// Opens a TCP connection with the configured options, the way the library does.
async fn open_tcp(config: &Config, name: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((name, port)).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_user_timeout(config.get_tcp_user_timeout().copied())?;
    let mut keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
    if let Some(interval) = config.get_keepalives_interval() {
        keepalive = keepalive.with_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        keepalive = keepalive.with_retries(retries);
    }
    socket.set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
