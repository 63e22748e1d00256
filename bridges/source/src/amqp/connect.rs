//! Opens a broker's connection. Instead of passing a URL to lapin (the AMQP library), callbridge
//! opens the connection itself, using the same sockets and TLS as for every other source, and hands
//! it to lapin along with the settings that lapin needs.

use super::bodies::{Bodies, LimitedLine};
use super::frames::FRAME_BYTES_MAX;
use super::messages;
use crate::{Error, Secret, Settings, Stream, Target, TcpEndpoint, url::Broker};
use async_compat::Compat;
use async_rs::{Runtime, Tokio, traits::Reactor, util::RuntimeParts};
use callbridge_call::redact::Redactor;
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties, uri::AMQPUri};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use std::future::{Future, ready};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};
use std::{net::SocketAddr, path::PathBuf};

/// Maximum length in bytes of a message received on a connection that doesn't consume a queue. On
/// such a connection, the broker only sends messages to return them.
const SHORT_BYTES_MAX: u64 = 128 << 10;

/// A broker, along with how to log in to it.
#[derive(Clone, Debug)]
pub struct Login {
    /// The broker's nodes and virtual host, and the user to log in as.
    pub broker: Broker,
    /// The user's password, which is reread at each login.
    pub secret: Secret,
    /// The environment variable to mention in the error if there's no password.
    pub variable: &'static str,
    /// PEM certificates that replace the system's root certificates.
    pub ca_file: Option<PathBuf>,
    /// Timeout for the connection, the TLS handshake, and the login together.
    pub within: Duration,
}

impl Login {
    /// Creates a login to this broker with the default timeout.
    pub fn new(broker: &Broker, secret: Secret, ca_file: Option<&PathBuf>) -> Self {
        Self {
            broker: broker.clone(),
            secret,
            variable: "CALLBRIDGE_AMQP_SECRET",
            ca_file: ca_file.cloned(),
            within: Settings::default().connect_within,
        }
    }

    fn uri(&self, endpoint: &TcpEndpoint, secret: &SecretString) -> AMQPUri {
        let mut uri = AMQPUri {
            vhost: self.broker.vhost.clone(),
            ..AMQPUri::default()
        };
        uri.query.heartbeat = Some(self.broker.heartbeat);
        uri.query.frame_max = Some(FRAME_BYTES_MAX);
        uri.authority.host.clone_from(&endpoint.host);
        uri.authority.port = endpoint.port;
        let login = &mut uri.authority.userinfo;
        login.username.clone_from(&self.broker.user);
        login.password = secret.expose_secret().to_owned();
        uri
    }

    /// Removes this login's password from a text sent by the broker.
    pub fn redact(&self, text: &str) -> String {
        match self.secret.read(self.variable) {
            Ok(secret) => Redactor::new([secret.expose_secret()]).redact(text),
            Err(_) => text.to_owned(),
        }
    }

    /// Connects and logs in to the first of the broker's nodes that accepts the login. If the
    /// connection is lost later, it isn't reopened automatically.
    ///
    /// # Errors
    /// Returns the last node's error, which may be that there's no connection, that TLS or the
    /// login failed, or that the virtual host doesn't exist.
    pub async fn open(&self) -> Result<Connection, Error> {
        let opened = self.open_node_from(0).await;
        opened.map(|(connection, _)| connection)
    }

    /// Like [`Login::open`], but also returns the node. `turn` selects the node to try first.
    /// Callers increment it with each connection, because a node that has been cut off from the
    /// others accepts a login but then never responds.
    pub(super) async fn open_node_from(&self, turn: usize) -> Result<(Connection, Target), Error> {
        self.open_limited(turn, &Bodies::new(SHORT_BYTES_MAX, u64::MAX))
            .await
    }

    /// Like [`Login::open_node_from`], but limits the size of message bodies.
    pub(super) async fn open_limited(
        &self,
        turn: usize,
        bodies: &Bodies,
    ) -> Result<(Connection, Target), Error> {
        let broker = &self.broker;
        let mut nodes = vec![&broker.endpoint];
        nodes.extend(&broker.others);
        let mut at = turn;
        let secret = self.secret.read(self.variable)?;
        let redactor = Redactor::new([secret.expose_secret()]);
        loop {
            let target = Target {
                endpoint: nodes[at % nodes.len()].clone(),
                ca_file: self.ca_file.clone(),
                within: self.within,
                redactor: redactor.clone(),
            };
            at += 1;
            match target.in_time(self.connect(&target, bodies, &secret)).await {
                Ok(line) => return Ok((line, target)),
                Err(error) if at - turn == nodes.len() => return Err(error),
                Err(error) => tracing::debug!(%error, "the next node of the broker is tried"),
            }
        }
    }

    async fn connect(
        &self,
        target: &Target,
        bodies: &Bodies,
        secret: &SecretString,
    ) -> Result<Connection, Error> {
        let uri = self.uri(&target.endpoint, secret);
        let (read, write) = tokio::io::split(target.open().await?);
        let line = LimitedLine::new(read, bodies.clone());
        let connect = connector(Box::new(tokio::io::join(line, write)));
        let name = format!("callbridge {}", env!("CARGO_PKG_VERSION"));
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let kit = Tokio::current();
        let runtime = Runtime::new(RuntimeParts::new(kit.clone(), LineReactor(kit)));
        let opened = Connection::connector(uri, runtime, connect, properties).await;
        opened.map_err(|error| messages::connect_error(target, &self.broker, &error))
    }
}

/// The runtime for lapin, which has the current tokio runtime's tasks and a reactor that doesn't
/// open any connections.
type LineRuntime = Runtime<RuntimeParts<Tokio, LineReactor>>;

/// Returns the function that provides lapin with `line` as its connection. Any further call fails,
/// so lapin can't reopen a lost connection.
fn connector(
    line: Stream,
) -> impl AsyncFn(AMQPUri, LineRuntime) -> lapin::Result<AsyncTcpStream<Compat<Stream>>>
+ Send
+ Sync
+ 'static {
    let unused = Mutex::new(Some(line));
    async move |_uri, _runtime| {
        let taken = unused.lock().take();
        let line = taken.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Ok(AsyncTcpStream::Plain(Compat::new(line)))
    }
}

/// A reactor that only has tokio's timers. Any request to open a connection fails.
#[derive(Clone, Debug)]
struct LineReactor(Tokio);

impl Reactor for LineReactor {
    type TcpStream = Compat<Stream>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + Send + 'static>(
        &self,
        _socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<Self::TcpStream, _>(io::ErrorKind::Unsupported.into())
    }

    fn sleep(&self, span: Duration) -> Self::Sleep {
        self.0.sleep(span)
    }

    fn interval(
        &self,
        span: Duration,
    ) -> impl futures_util::Stream<Item = Instant> + Send + 'static {
        self.0.interval(span)
    }

    fn tcp_connect_addr(
        &self,
        _address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
