//! The HTTP listener (`--listen`): `/healthz`, `/readyz`, and `/metrics`. It changes nothing, and
//! shows no secret.

use super::metrics::{self, Format, Observed};
use callbridge_listener::body::{self, Body};
use callbridge_listener::serve::{AnswerHttp, Limits, Open};
use callbridge_listener::site::SiteRules;
use callbridge_listener::{descriptors, places::ConnectionPlace, serve};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, header::HeaderValue};
use std::{future::Future, sync::Arc};
use tokio::net::TcpListener;

/// Maximum number of open connections. The limit on open files can lower it.
pub const CONNECTIONS_MAX: usize = Limits::FEW.connections;

/// The running program, as the listener uses it.
pub trait Watch: Send + Sync + 'static {
    /// Collects the values of a scrape of `/metrics`.
    ///
    /// # Errors
    /// A message with the reason why the values are not available. No other values are shown then.
    fn observe(&self) -> impl Future<Output = Result<Observed, String>> + Send;
    /// Returns reasons why the program is not ready, one per line. Empty if it is ready. A paused
    /// sender is ready, because it keeps all calls, unless nothing can be stored.
    fn not_ready(&self) -> Vec<String>;
}

/// Serves `/healthz`, `/readyz`, and `/metrics` until `stop` completes.
pub async fn serve(listener: TcpListener, watch: Arc<impl Watch>, stop: impl Future<Output = ()>) {
    let limits = Limits {
        connections: descriptors::share(CONNECTIONS_MAX),
        ..Limits::FEW
    };
    let open = Open {
        name: "--listen",
        listener,
        tls: None,
        limits,
        site: SiteRules::STRICT,
    };
    serve::serve(open, Arc::new(Pages(watch)), stop).await;
}

struct Pages<W>(Arc<W>);

impl<W: Watch> AnswerHttp for Pages<W> {
    // The connection is not protected from being cut, so a scrape that is not read to its end can
    // make room for others.
    async fn answer(&self, _: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        // The body of a HEAD answer is dropped when it is sent.
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        let missing = match request.uri().path() {
            "/healthz" | "/readyz" | "/metrics" if !reads => {
                let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, String::new());
                let allow = HeaderValue::from_static("GET,HEAD");
                refused.headers_mut().insert(header::ALLOW, allow);
                return refused;
            }
            "/metrics" => return self.scrape(&request).await,
            "/readyz" => self.0.not_ready(),
            "/healthz" => Vec::new(),
            _ => return text(StatusCode::NOT_FOUND, String::new()),
        };
        if missing.is_empty() {
            text(StatusCode::OK, "ok\n".to_owned())
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, missing.join("\n") + "\n")
        }
    }
}

impl<W: Watch> Pages<W> {
    async fn scrape(&self, request: &Request<Incoming>) -> Response<Body> {
        let seen = match self.0.observe().await {
            Ok(seen) => seen,
            Err(why) => return text(StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
        };
        let header = request.headers().get(header::ACCEPT);
        let accept = header.and_then(|value| value.to_str().ok());
        let format = Format::from_accept(accept.unwrap_or_default());
        let page = metrics::render(&seen, format);
        body::response(StatusCode::OK, format.content_type(), body::whole(page))
    }
}

fn text(status: StatusCode, message: String) -> Response<Body> {
    body::response(status, "text/plain; charset=utf-8", body::whole(message))
}
