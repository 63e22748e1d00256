//! Accepts connections, and pauses after an accept fails. If the process or the system has run out
//! of file descriptors, every accept fails immediately until one becomes available. Only the start
//! and the end of such a series of failures are logged, with one line each.

use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long to pause after an accept has failed.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Minimum interval between two warnings about failed accepts.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// Accepts one listener's connections, continuing after errors.
#[derive(Debug)]
pub struct Acceptor {
    /// The listener's flag, or another name to show in the log.
    name: &'static str,
    again_at: Option<Instant>,
    /// Number of failed accepts since the last connection.
    failed: u64,
    said_at: Option<Instant>,
}

impl Acceptor {
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            again_at: None,
            failed: 0,
            said_at: None,
        }
    }

    /// Waits for the next connection returned by `accept`, which must be cancel-safe. This function
    /// is cancel-safe as well, because the end of a pause is stored in `self`.
    pub async fn next<T, F: Future<Output = io::Result<T>>>(
        &mut self,
        accept: impl Fn() -> F,
    ) -> T {
        loop {
            if let Some(at) = self.again_at {
                sleep_until(at).await;
                self.again_at = None;
            }
            match accept().await {
                Ok(taken) => {
                    let times = std::mem::take(&mut self.failed);
                    if times > 0 {
                        tracing::info!(
                            listener = self.name,
                            times,
                            "connections are accepted again"
                        );
                    }
                    return taken;
                }
                Err(error) if is_the_others(&error) => {
                    tracing::debug!(listener = self.name, %error, "a connection closed at once");
                }
                Err(error) => self.fails(&error),
            }
        }
    }

    fn fails(&mut self, error: &io::Error) {
        let now = Instant::now();
        self.again_at = Some(now + AGAIN_AFTER);
        self.failed += 1;
        let logged_lately = self.said_at.is_some_and(|at| now < at + SAID_EVERY);
        if self.failed == 1 && !logged_lately {
            self.said_at = Some(now);
            tracing::warn!(
                listener = self.name,
                %error,
                "cannot accept connections: callbridge keeps trying"
            );
        }
    }
}

/// Returns `true` if the connection ended before it was accepted. That isn't a problem with this
/// process, so there's no need to pause before the next accept.
fn is_the_others(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::VecDeque;

    /// A listener that returns these results in turn, and then waits forever. Its second field
    /// counts calls to `accept`.
    struct ScriptedListener(RefCell<VecDeque<io::Result<u32>>>, RefCell<u32>);

    impl ScriptedListener {
        fn new(answers: impl IntoIterator<Item = io::Result<u32>>) -> Self {
            Self(RefCell::new(answers.into_iter().collect()), RefCell::new(0))
        }

        async fn accept(&self) -> io::Result<u32> {
            *self.1.borrow_mut() += 1;
            let answer = self.0.borrow_mut().pop_front();
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    }

    fn no_descriptor() -> io::Result<u32> {
        Err(io::Error::from_raw_os_error(libc_emfile()))
    }

    /// Returns EMFILE, which has the same number on every Linux.
    const fn libc_emfile() -> i32 {
        24
    }

    fn aborted_connection() -> io::Result<u32> {
        Err(ErrorKind::ConnectionAborted.into())
    }

    #[tokio::test]
    async fn accept_pauses_after_own_error_but_not_after_peer_abort() {
        let listener = ScriptedListener::new([
            aborted_connection(),
            aborted_connection(),
            Ok(1),
            no_descriptor(),
            no_descriptor(),
            Ok(2),
        ]);
        let mut acceptor = Acceptor::new("--listen");
        let begun = Instant::now();
        assert_eq!(acceptor.next(|| listener.accept()).await, 1);
        assert_eq!((acceptor.again_at, acceptor.failed), (None, 0));
        assert_eq!(acceptor.next(|| listener.accept()).await, 2);
        assert!(begun.elapsed() >= 2 * AGAIN_AFTER, "{:?}", begun.elapsed());
        assert_eq!(acceptor.failed, 0);
    }

    #[tokio::test]
    async fn canceled_accept_does_not_shorten_the_pause() {
        let listener = ScriptedListener::new([no_descriptor(), Ok(1)]);
        let mut acceptor = Acceptor::new("--listen");
        let begun = Instant::now();
        let mut answer = None;
        while answer.is_none() {
            let soon = Duration::from_millis(1);
            let accepted = tokio::time::timeout(soon, acceptor.next(|| listener.accept())).await;
            answer = accepted.ok();
        }
        assert_eq!(answer, Some(1));
        assert_eq!(
            *listener.1.borrow(),
            2,
            "a try for each that was waited for"
        );
        assert!(begun.elapsed() >= AGAIN_AFTER, "{:?}", begun.elapsed());
    }
}
