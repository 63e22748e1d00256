//! The live parts of pages, which rely on a stream of server-sent events that only says when to
//! reload. The content is loaded using ordinary requests with the usual checks.

use crate::answer;
use bytes::Bytes;
use callbridge_listener::body::{self, Body};
use futures_util::stream;
use hyper::{Response, StatusCode};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Maximum number of streams. Any further clients poll from time to time.
pub const STREAMS_MAX: usize = 64;
/// Minimum interval between two events in a stream.
const PAUSE: Duration = Duration::from_secs(1);
/// After this time, an event is sent even if there's nothing new, to update times and to detect
/// closed clients.
const QUIET_MAX: Duration = Duration::from_secs(10);
/// Lifetime of a stream. After that, the browser opens another one, for which the session is
/// checked again.
const STREAM_LIVES: Duration = Duration::from_secs(300);

/// What all streams share, which is the change counter and the limit on the number of streams.
pub(crate) struct Live {
    changes: watch::Receiver<u64>,
    places: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

struct ChangeStream {
    changes: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    until: Instant,
    first: bool,
    _place: OwnedSemaphorePermit,
}

impl Live {
    /// Creates what all streams of live updates share. They end once `closing` becomes true.
    pub(crate) fn new(changes: watch::Receiver<u64>, closing: watch::Receiver<bool>) -> Self {
        Self {
            changes,
            places: Arc::new(Semaphore::new(STREAMS_MAX)),
            closing,
        }
    }

    /// Opens an event stream. If there are too many streams, the response is 503 and says when the
    /// client should try again.
    pub(crate) fn stream(&self) -> Response<Body> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let mut full = Response::new(body::whole("too many live parts\n"));
            *full.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return answer::add_header(full, "retry-after", "5");
        };
        let changes = ChangeStream {
            changes: self.changes.clone(),
            closing: self.closing.clone(),
            until: Instant::now() + STREAM_LIVES,
            first: true,
            _place: place,
        };
        let events = stream::unfold(changes, |mut changes| async {
            let word = changes.next().await?;
            Some((Ok::<_, Infallible>(word), changes))
        });
        let events = body::in_pieces(events);
        let response = body::response(StatusCode::OK, "text/event-stream", events);
        // Proxies that buffer responses would delay the events.
        answer::add_header(response, "x-accel-buffering", "no")
    }
}

impl ChangeStream {
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.first) {
            self.changes.mark_unchanged();
            return Some(Bytes::from_static(b"retry: 2000\nevent: hello\ndata:\n\n"));
        }
        let Self {
            changes,
            closing,
            until,
            ..
        } = self;
        let news = async {
            sleep(PAUSE).await;
            // If the daemon's sender is gone, the daemon is stopping, which `closing` will report.
            let quiet = async {
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            drop(timeout(QUIET_MAX, quiet).await);
        };
        tokio::select! {
            () = news => Some(Bytes::from_static(b"event: changed\ndata:\n\n")),
            () = sleep_until(*until) => None,
            // The sender of `closing` has been dropped or has sent true, so the stream ends.
            _ = closing.wait_for(|closing| *closing) => None,
        }
    }
}
