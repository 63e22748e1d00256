//! A connection that can be cut without an answer, as a lost network cuts it.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Tells a connection to send nothing more and end.
#[derive(Clone, Debug, Default)]
pub struct CloseSignal(Arc<AtomicBool>);

impl CloseSignal {
    /// From now on every write fails, which ends the connection.
    pub fn cut(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A listener whose connections can be cut.
#[derive(Debug)]
pub struct Cuttable<L>(pub L);

impl<L: Listener> Listener for Cuttable<L> {
    type Io = CuttableIo<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (io, addr) = self.0.accept().await;
        (
            CuttableIo {
                io,
                line: CloseSignal::default(),
            },
            addr,
        )
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

impl<L: Listener> Connected<IncomingStream<'_, Cuttable<L>>> for CloseSignal {
    fn connect_info(stream: IncomingStream<'_, Cuttable<L>>) -> Self {
        stream.io().line.clone()
    }
}

/// A connection that can be cut.
#[derive(Debug)]
pub struct CuttableIo<T> {
    io: T,
    line: CloseSignal,
}

impl<T> CuttableIo<T> {
    fn check(&self) -> io::Result<()> {
        if self.line.0.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CuttableIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CuttableIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
