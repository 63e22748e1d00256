//! What is read of a broker's line, with its bodies cut, before lapin has it.

use super::bodies::{Bodies, Cutter};
use crate::connect::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf, ReadHalf};

const READ_BYTES: usize = 64 << 10;

/// The line.
pub(super) struct LimitedLine {
    line: ReadHalf<Stream>,
    bodies: Bodies,
    cutter: Cutter,
    read: Box<[u8]>,
    /// What stays of what was read, and how much of it was given on.
    stays: Vec<u8>,
    given: usize,
}

impl LimitedLine {
    pub(super) fn new(line: ReadHalf<Stream>, bodies: Bodies) -> Self {
        Self {
            line,
            cutter: Cutter::new(bodies.clone()),
            bodies,
            read: vec![0; READ_BYTES].into(),
            stays: Vec::new(),
            given: 0,
        }
    }
}

impl AsyncRead for LimitedLine {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let it = self.get_mut();
        while it.given == it.stays.len() {
            it.stays.clear();
            it.given = 0;
            if !it.bodies.has_room(cx.waker()) {
                return Poll::Pending;
            }
            let mut read = ReadBuf::new(&mut it.read);
            ready!(Pin::new(&mut it.line).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            it.cutter.cut(read.filled(), &mut it.stays);
        }
        let ready = &it.stays[it.given..];
        let length = ready.len().min(buffer.remaining());
        buffer.put_slice(&ready[..length]);
        it.given += length;
        Poll::Ready(Ok(()))
    }
}
