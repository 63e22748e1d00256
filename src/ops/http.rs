//! The HTTP listener (`--listen`): `/healthz`, `/readyz`, `/metrics`. Nothing of it changes
//! anything, and nothing of it shows a secret.

use super::metrics::{self, Format, Observed};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Answers under way have so long to end; half a request holds nobody up.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Looks at the running program when it is asked.
pub trait Watch: Send + Sync + 'static {
    /// What a scrape shows.
    fn observe(&self) -> Pin<Box<dyn Future<Output = Observed> + Send + '_>>;
    /// What keeps the program from being ready, a line each; empty when it is. A paused sender is
    /// ready: it keeps everything.
    fn not_ready(&self) -> Vec<String>;
}

/// Serves until `shutdown` ends.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    watch: Arc<dyn Watch>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let app = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .with_state(watch);
    let (told, mut stopping) = watch::channel(false);
    let shutdown = async move {
        shutdown.await;
        told.send_replace(true);
    };
    let late = async {
        // Ends in an error when the serving has ended by itself.
        let _ = stopping.wait_for(|stopping| *stopping).await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    let serving = axum::serve(listener, app).with_graceful_shutdown(shutdown);
    tokio::select! {
        ended = async { serving.await } => ended,
        () = late => Ok(()),
    }
}

async fn readyz(State(watch): State<Arc<dyn Watch>>) -> impl IntoResponse {
    let missing = watch.not_ready();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n")
    }
}

async fn scrape(State(watch): State<Arc<dyn Watch>>, headers: HeaderMap) -> impl IntoResponse {
    let seen = watch.observe().await;
    let accept = headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
    let format = Format::of(accept.unwrap_or_default());
    (
        [(header::CONTENT_TYPE, format.content_type())],
        metrics::render(&seen, format),
    )
}
