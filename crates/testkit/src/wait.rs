//! Waits for futures in tests that are not async.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

/// A future whose output this thread can wait for.
pub trait Wait: Future + Sized {
    /// Returns the output. For futures that need no runtime, like those of the spool.
    fn wait(self) -> Self::Output {
        let mut future = pin!(self);
        let waker = Arc::new(Unpark(thread::current())).into();
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }
}

impl<F: Future> Wait for F {}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
