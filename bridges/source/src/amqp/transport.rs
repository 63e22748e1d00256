//! lapin on a line that we have opened: the same sockets and TLS as every other source, and none of
//! lapin's own.

use crate::connect::Stream;
use async_compat::Compat;
use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::AsyncTcpStream;
use std::future::{Future, ready};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Tasks of the current tokio, on lines of ours.
pub(super) type LineRuntime = Runtime<RuntimeParts<Tokio, LineReactor>>;

/// Returns the runtime in which the call is made, on lines of ours.
pub(super) fn runtime() -> LineRuntime {
    let kit = Tokio::current();
    let reactor = LineReactor { time: kit.clone() };
    Runtime::new(RuntimeParts::new(kit, reactor))
}

/// Returns the connector that lapin calls once for its line; a line that is lost is not opened
/// again.
pub(super) fn connector(
    line: Stream,
) -> impl AsyncFn(lapin::uri::AMQPUri, LineRuntime) -> lapin::Result<AsyncTcpStream<Compat<Stream>>>
+ Send
+ Sync
+ 'static {
    let line = Mutex::new(Some(line));
    async move |_uri, _runtime| {
        let line = line.lock().ok().and_then(|mut line| line.take());
        let line = line.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Ok(AsyncTcpStream::Plain(Compat::new(line)))
    }
}

/// tokio's clock; it opens nothing.
#[derive(Clone, Debug)]
pub(super) struct LineReactor {
    time: Tokio,
}

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
        self.time.sleep(span)
    }

    fn interval(
        &self,
        span: Duration,
    ) -> impl futures_util::Stream<Item = Instant> + Send + 'static {
        self.time.interval(span)
    }

    fn tcp_connect_addr(
        &self,
        _address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
