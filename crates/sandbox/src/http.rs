//! HTTP to the core and back; answers leave as the core orders.

use super::envelope::{BODY_BYTES_MAX, Delivery, Request, Response, Role};
use super::error::Error;
use super::shared::SharedSandbox;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use std::future::Future;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long open connections may take to end after the word to stop.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Pieces that a slow body is sent in.
const SLOW_PIECES: usize = 8;

#[derive(Clone)]
struct Shell {
    shared: SharedSandbox,
    role: Role,
    closing: watch::Receiver<bool>,
}

/// Serves a sandbox, or the part of it that an address has (§5.6.9), until `shutdown` is done; then
/// open connections have two seconds.
///
/// # Errors
/// The listener ended.
pub(super) async fn serve(
    listener: TcpListener,
    shared: SharedSandbox,
    role: Role,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let (close, closing) = watch::channel(false);
    let shell = Shell {
        shared: shared.clone(),
        role,
        closing: closing.clone(),
    };
    let router = axum::Router::new().fallback(answer).with_state(shell);
    let begun = async move {
        shutdown.await;
        close.send_replace(true);
    };
    let serving = axum::serve(listener, router).with_graceful_shutdown(begun);
    let mut closing = closing;
    let late = async move {
        // An error is the sender's end: `begun` is over.
        let _ = closing.wait_for(|closing| *closing).await;
        tokio::time::sleep(STOP_WITHIN).await;
    };
    let ended = tokio::select! {
        ended = async { serving.await } => ended,
        () = late => Ok(()),
    };
    shared.admin(|_, _| ());
    ended.map_err(Error::Http)
}

async fn answer(
    State(shell): State<Shell>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let request = read(request, shell.role).await;
    let response = shell.shared.handle(&request);
    match response.delivery {
        Delivery::Now => whole(response),
        Delivery::Lost => cut(),
        Delivery::After(time) => {
            let mut closing = shell.closing;
            tokio::select! {
                () = tokio::time::sleep(time) => whole(response),
                _ = closing.wait_for(|closing| *closing) => cut(),
            }
        }
        Delivery::Slow(time) => dripping(response, time),
    }
}

async fn read(request: axum::extract::Request, role: Role) -> Request {
    let (head, body) = request.into_parts();
    let headers = (head.headers.iter())
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    // A body above the limit reaches the core as one byte above it, which it answers with 413.
    let body = match axum::body::to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => bytes.to_vec(),
        Err(_) => vec![0; BODY_BYTES_MAX + 1],
    };
    Request {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers,
        body,
        role,
    }
}

/// Ends the connection as a lost network does: the body fails before its head is sent.
fn cut() -> axum::response::Response {
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let failed = std::future::ready(Err::<Bytes, _>(reset));
    axum::response::Response::new(Body::from_stream(futures_util::stream::once(failed)))
}

fn whole(response: Response) -> axum::response::Response {
    let body = Body::from(response.body.clone());
    with_body(&response, body)
}

fn dripping(response: Response, time: Duration) -> axum::response::Response {
    let size = response.body.len().div_ceil(SLOW_PIECES).max(1);
    let pieces: Vec<Bytes> = response
        .body
        .chunks(size)
        .map(Bytes::copy_from_slice)
        .collect();
    let pause = time / u32::try_from(pieces.len().max(1)).unwrap_or(1);
    let drip = futures_util::stream::unfold(pieces.into_iter(), move |mut rest| async move {
        let piece = rest.next()?;
        tokio::time::sleep(pause).await;
        Some((Ok::<_, std::convert::Infallible>(piece), rest))
    });
    with_body(&response, Body::from_stream(drip))
}

fn with_body(response: &Response, body: Body) -> axum::response::Response {
    let mut answer = axum::response::Response::new(body);
    *answer.status_mut() = axum::http::StatusCode::from_u16(response.status)
        .unwrap_or(axum::http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(response.content_type),
    );
    // Tokens and pages with people in them are kept nowhere on the way (RFC 6749 §5.1).
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let location = response
        .location
        .as_deref()
        .and_then(|to| HeaderValue::from_str(to).ok());
    if let Some(location) = location {
        headers.insert(header::LOCATION, location);
    }
    answer
}
