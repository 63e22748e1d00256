//! Serves connections with limits on their number and duration. Incomplete or slow requests are cut
//! off, so that other clients get a response.

use super::places::{ConnectionPlace, PeerGroup, Places};
use super::site::{SiteRefusal, SiteRules};
use super::{accept::Acceptor, body, body::Body};
use futures_util::future::BoxFuture;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};
use tokio::{sync::watch, task::JoinSet};
use tokio_rustls::TlsAcceptor;

/// Maximum number of headers per request.
const HEADERS_MAX: usize = 64;
/// Maximum length of a request's headers in bytes, and maximum number of bytes of a body per read.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Limits on connections and their duration, as protection against slow clients and floods.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of simultaneous connections.
    pub connections: usize,
    /// Timeout for the TLS handshake and the request headers, after which the connection is closed.
    pub head_within: Duration,
    /// Time from the end of `head_within` until the response must be finished.
    pub answer_within: Duration,
    /// How long responses in progress may take when the listener stops, after which they're cut
    /// off.
    pub stop_within: Duration,
    /// Whether a connection can carry more than one request.
    pub keep_alive: bool,
}

impl Limits {
    /// Limits for a small number of clients that immediately send their only request, such as
    /// Prometheus, a load balancer, or `curl`.
    pub const FEW: Self = Self {
        connections: 32,
        head_within: Duration::from_secs(8),
        answer_within: Duration::from_secs(10),
        stop_within: Duration::from_secs(1),
        keep_alive: false,
    };
}

/// A request handler, shared by all of a listener's connections.
pub trait AnswerHttp: Send + Sync + 'static {
    /// Responds to one request. The connection won't be closed to make room as long as the result
    /// of [`ConnectionPlace::answer`] is held.
    fn answer(
        &self,
        place: &ConnectionPlace,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;

    /// Handles a connection that failed to start TLS. The reason is empty if the TLS library
    /// reported the error.
    fn no_tls(&self, _why: &'static str) {}
}

/// An open listener, along with the flag that opened it.
#[derive(Debug)]
pub struct Open {
    /// The flag that opened the listener, as shown in the log.
    pub name: &'static str,
    /// The bound socket, which accepts connections.
    pub listener: TcpListener,
    /// The current TLS settings, or `None` for a listener without TLS.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    pub limits: Limits,
    /// The rules for requests from browsers.
    pub site: SiteRules,
}

/// A handler whose responses are boxed, so that all listeners share the same code.
type Answer = dyn Fn(Arc<ConnectionPlace>, Request<Incoming>) -> BoxFuture<'static, Response<Body>>
    + Send
    + Sync;

/// Serves connections until `stop` ends, and then gives open connections a limited time to finish.
pub async fn serve(open: Open, answer: Arc<impl AnswerHttp>, stop: impl Future<Output = ()>) {
    let handler = Arc::clone(&answer);
    let no_tls: Arc<dyn Fn(&'static str) + Send + Sync> = Arc::new(move |why| handler.no_tls(why));
    let local = open.listener.local_addr();
    let is_loopback = local.is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let name = open.name;
    let site = open.site;
    let answer: Arc<Answer> = Arc::new(move |place, request| {
        if let Some(refusal) = site.refusal(&request, is_loopback) {
            tracing::debug!(listener = name, ?refusal, "refused a request of a browser");
            return Box::pin(std::future::ready(refusal_response(refusal)));
        }
        let answer = Arc::clone(&answer);
        Box::pin(async move { answer.answer(&place, request).await })
    });
    let limits = open.limits;
    let (close, closing) = watch::channel(false);
    let mut stop = pin!(stop);
    let places = Places::default();
    let mut incoming = Acceptor::new(open.name);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // If all connections are being responded to, one must end before another is accepted.
        let room = places.held() < limits.connections || places.is_anybody_waiting();
        let (stream, from) = tokio::select! {
            taken = incoming.next(|| open.listener.accept()), if room => taken,
            Some(_) = connections.join_next() => continue,
            () = &mut stop => break,
        };
        if places.held() >= limits.connections && !places.make_room() {
            continue; // all are being answered by now, so the new connection is closed
        }
        while places.held() >= limits.connections && connections.join_next().await.is_some() {}
        let origin = PeerGroup::from(from.ip());
        let place = places.enter(origin);
        let id = place.id;
        let tls = open.tls.as_ref().map(|tls| Arc::clone(&tls.borrow()));
        let line = Line {
            answer: Arc::clone(&answer),
            no_tls: Arc::clone(&no_tls),
            place,
            limits,
            begun: Instant::now(),
            stop: closing.clone(),
        };
        places.may_cut(id, origin, connections.spawn(line.take(stream, tls)));
    }
    drop(open.listener);
    close.send_replace(true);
    let end = Instant::now() + limits.stop_within;
    let ending = async { while connections.join_next().await.is_some() {} };
    if timeout_at(end, ending).await.is_err() {
        connections.shutdown().await;
    }
}

fn refusal_response(refusal: SiteRefusal) -> Response<Body> {
    let message = body::whole(refusal.message());
    body::response(SiteRefusal::STATUS, "text/plain; charset=utf-8", message)
}

/// A connection from its accept to its end.
struct Line {
    answer: Arc<Answer>,
    no_tls: Arc<dyn Fn(&'static str) + Send + Sync>,
    place: ConnectionPlace,
    limits: Limits,
    begun: Instant,
    stop: watch::Receiver<bool>,
}

impl Line {
    async fn take(self, stream: TcpStream, tls: Option<Arc<ServerConfig>>) {
        // Responses are small, so they're sent without delay.
        stream.set_nodelay(true).ok();
        let Some(tls) = tls else {
            return self.talk(stream).await;
        };
        let head_by = self.begun + self.limits.head_within;
        match timeout_at(head_by, TlsAcceptor::from(tls).accept(stream)).await {
            Ok(Ok(stream)) => self.talk(stream).await,
            Ok(Err(error)) => {
                tracing::debug!(%error, "no TLS");
                (self.no_tls)("");
            }
            Err(_) => (self.no_tls)("the handshake took too long"),
        }
    }

    async fn talk<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = self.limits;
        let mut stop = self.stop;
        let head_by = self.begun + limits.head_within;
        let answer = self.answer;
        let place = Arc::new(self.place);
        let service = service_fn(move |request| {
            let answer = answer(Arc::clone(&place), request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_by.saturating_duration_since(Instant::now()))
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .keep_alive(limits.keep_alive)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = pin!(serving);
        // If the sender has been dropped, the connection stops as well.
        let stopping = async { drop(stop.wait_for(|stop| *stop).await) };
        let whole = async {
            tokio::select! {
                ended = serving.as_mut() => return ended,
                () = stopping => serving.as_mut().graceful_shutdown(),
            }
            serving.await
        };
        // A connection that ended badly is only of interest to developers.
        match timeout_at(head_by + limits.answer_within, whole).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection was cut"),
            Err(_) => tracing::debug!("a connection took too long and was cut"),
        }
    }
}
