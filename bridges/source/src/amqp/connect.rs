//! Opens a broker's connection. The AMQP library lapin gets no URL, only the parts that it needs.
//! callbridge opens the connection, with the same sockets and TLS as every other source, and passes
//! it to lapin.

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

/// Maximum bytes of a received message on connections that consume no queue. The broker sends
/// messages there only to return them.
const SHORT_BYTES_MAX: u64 = 128 << 10;

/// A broker and how to log in to it.
#[derive(Clone, Debug)]
pub struct Login {
    /// The broker's nodes, its virtual host, and the user to log in as.
    pub broker: Broker,
    /// The user's password, read again at each login.
    pub secret: Secret,
    /// The environment variable that the error names if there is no password.
    pub variable: &'static str,
    /// PEM certificates that replace the system's roots.
    pub ca_file: Option<PathBuf>,
    /// Time limit for the connection, the TLS handshake, and the login together.
    pub within: Duration,
}

impl Login {
    /// Makes a login to this broker, with the default time limit.
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

    /// Removes the password of this login from a text of the broker.
    pub fn redact(&self, text: &str) -> String {
        match self.secret.read(self.variable) {
            Ok(secret) => Redactor::new([secret.expose_secret()]).redact(text),
            Err(_) => text.to_owned(),
        }
    }

    /// Connects and logs in to the first of the broker's nodes that accepts the login. A connection
    /// that is lost is not opened again automatically.
    ///
    /// # Errors
    /// The error of the last node: no connection, TLS refused, login refused, or no such virtual
    /// host.
    pub async fn open(&self) -> Result<Connection, Error> {
        let opened = self.open_node_from(0).await;
        opened.map(|(connection, _)| connection)
    }

    /// Connects like [`Login::open`], and also returns the node. `turn` selects the node to try
    /// first. Callers increase it with each connection, because a node that was cut off from the
    /// others accepts a login and then answers nothing.
    pub(super) async fn open_node_from(&self, turn: usize) -> Result<(Connection, Target), Error> {
        self.open_limited(turn, &Bodies::new(SHORT_BYTES_MAX, u64::MAX))
            .await
    }

    /// Connects like [`Login::open_node_from`], with these limits for the bodies of messages.
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

/// Runtime for lapin: the tasks of the current tokio runtime, and a reactor that opens no
/// connections.
type LineRuntime = Runtime<RuntimeParts<Tokio, LineReactor>>;

/// Returns the function that gives `line` to lapin as its connection. A second call fails, so lapin
/// cannot open a lost connection again.
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

/// Reactor with tokio's timers only. A request to open a connection fails.
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
