//! What commands print.

use crate::Failure;
use callbridge_model::Code;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use tokio::io::Interest;
use tokio::net::unix::pipe;

/// Ends when stdout is a pipe that nobody reads any more: `calls --follow | head -1` need not wait
/// for one more call to notice.
pub(crate) async fn nobody_reads() {
    let out = io::stdout().as_fd().try_clone_to_owned();
    // Unchecked: made sure of, it would be set not to block, and what is printed could be refused.
    match out.and_then(pipe::Sender::from_owned_fd_unchecked) {
        Ok(out) => drop(out.ready(Interest::ERROR).await),
        // A file is never closed at its other end.
        Err(_) => std::future::pending().await,
    }
}

/// To stdout. Whoever closed it has read enough: `callbridge man | head` is no failure.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::of(Code::Failed, error))
        }
        _ => Ok(()),
    }
}
