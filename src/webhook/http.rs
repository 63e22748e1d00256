//! The listener: `POST /webhooks` over plain HTTP or TLS of our own. Whatever is slow, huge or too
//! much is cut, so that what the service sends gets through.

use super::headers::Headers;
use super::receiver::Receiver;
use super::stand::{Place, Stand};
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

/// Where events are taken.
pub const PATH: &str = "/webhooks";
/// An event has some kilobytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// What is longer is read over so far, so that the answer reaches whoever sent it.
pub const PASSED_OVER_MAX: usize = 16 << 20;
/// Of one request.
const HEADERS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// A head that is not whole by then is cut; so is a connection on which nothing is asked.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The service waits 10 s for an answer (§6.9): what is slower is of no use to it.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// A TLS handshake takes a second over the worst line.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Connections at a time. The service has 20 deliveries of a company under way.
pub const CONNECTIONS_MAX: usize = 256;
/// What is under way at the end has so long.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// After the system refused to hand over a connection (no descriptors left).
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves until `stop`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    receiver: Arc<Receiver>,
    stop: impl Future<Output = ()>,
) {
    let (close, closing) = watch::channel(false);
    let mut stop = pin!(stop);
    let stand = Arc::new(Stand::new());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "no connection");
                sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        if connections.len() >= CONNECTIONS_MAX && !stand.make_room() {
            // All of them are being answered: one of these ends first.
            connections.join_next().await;
        }
        let place = stand.enter();
        let id = place.id();
        let acceptor = tls
            .as_ref()
            .map(|tls| TlsAcceptor::from(Arc::clone(&tls.borrow())));
        let connection = connection(
            stream,
            acceptor,
            Arc::clone(&receiver),
            place,
            closing.clone(),
        );
        stand.may_cut(id, connections.spawn(connection));
    }
    drop(listener);
    close.send_replace(true);
    let end = Instant::now() + STOP_WITHIN;
    let ending = async { while connections.join_next().await.is_some() {} };
    if timeout_at(end, ending).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    receiver: Arc<Receiver>,
    place: Place,
    stop: watch::Receiver<bool>,
) {
    // Answers are small and wait for nothing.
    stream.set_nodelay(true).ok();
    match acceptor {
        None => talk(stream, receiver, place, stop).await,
        Some(acceptor) => match timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => talk(stream, receiver, place, stop).await,
            Ok(Err(error)) => {
                tracing::debug!(%error, "no TLS");
                receiver.turned_away("no_tls", 0, "");
            }
            Err(_) => receiver.turned_away("no_tls", 0, "the handshake took too long"),
        },
    }
}

async fn talk<S>(stream: S, receiver: Arc<Receiver>, place: Place, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let place = Arc::new(place);
    let service = service_fn(move |request| {
        let (receiver, place) = (Arc::clone(&receiver), Arc::clone(&place));
        async move { Ok::<_, Infallible>(answer(&receiver, &place, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    // A sender that is gone stops as well.
    let stopping = async { drop(stop.wait_for(|stop| *stop).await) };
    tokio::select! {
        ended = serving.as_mut() => return ended.unwrap_or_else(cut),
        () = stopping => serving.as_mut().graceful_shutdown(),
    }
    serving.await.unwrap_or_else(cut);
}

/// How a connection ends that did not end well is nobody's concern but a developer's.
fn cut(error: hyper::Error) {
    tracing::debug!(%error, "a webhook connection was cut");
}

async fn answer(receiver: &Receiver, place: &Place, request: Request<Incoming>) -> Response<Body> {
    let turn_away = |status: u16, word| {
        receiver.turned_away(word, status, "");
        response(status, word)
    };
    if request.uri().path().trim_end_matches('/') != PATH {
        return turn_away(404, "no_such_path");
    }
    if request.method() != Method::POST {
        let mut response = turn_away(405, "no_such_method");
        let allow = HeaderValue::from_static("POST");
        response.headers_mut().insert(header::ALLOW, allow);
        return response;
    }
    let all = request.headers().iter();
    let headers = Headers::read(all.map(|(name, value)| (name.as_str(), value.as_bytes())));
    let headers = match headers {
        Ok(headers) => headers,
        Err(refusal) => {
            let answer = receiver.refuse(&refusal);
            return response(answer.status, answer.word);
        }
    };
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()?.parse::<usize>().ok());
    let asks_first = request.headers().contains_key(header::EXPECT);
    let most = if asks_first {
        BODY_BYTES_MAX
    } else {
        PASSED_OVER_MAX
    };
    if length.is_some_and(|length| length > most) {
        return turn_away(413, "too_large");
    }
    let body = match timeout(BODY_WITHIN, read(request.into_body())).await {
        Ok(Ok(body)) => body,
        Ok(Err(Torn::TooLarge)) => return turn_away(413, "too_large"),
        Ok(Err(Torn::Cut)) => return turn_away(408, "cut"),
        Err(_) => return turn_away(408, "too_slow"),
    };
    let _answering = place.answer();
    let answer = receiver.take(&headers, &body).await;
    response(answer.status, answer.word)
}

/// A body that is not there whole.
enum Torn {
    TooLarge,
    Cut,
}

/// Reads a body to its end. One that is too long is passed over, as far as it is not beyond all
/// measure: an answer in the midst of it would be lost with the connection.
async fn read(body: Incoming) -> Result<Vec<u8>, Torn> {
    let mut pieces = Body::new(body).into_data_stream();
    let (mut whole, mut length) = (Vec::new(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Torn::Cut)?;
        length += piece.len();
        if length > PASSED_OVER_MAX {
            return Err(Torn::TooLarge);
        }
        if length > BODY_BYTES_MAX {
            whole = Vec::new();
        } else {
            whole.extend_from_slice(&piece);
        }
    }
    match length > BODY_BYTES_MAX {
        true => Err(Torn::TooLarge),
        false => Ok(whole),
    }
}

fn response(status: u16, word: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(word));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    if !response.status().is_success() {
        // The rest of a body that nobody reads would be taken for the next request.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}
