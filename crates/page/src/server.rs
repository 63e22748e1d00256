//! Sockets: connections with limits, a body read within its own, and a request handed on.

use crate::answer::harden;
use crate::page::Page;
use crate::request::{Asked, FormFields};
use crate::settings::Settings;
use callbridge_listener::body::{self, Body};
use callbridge_listener::descriptors;
use callbridge_listener::places::{ConnectionPlace, PeerGroup};
use callbridge_listener::serve::{self, AnswerHttp, Limits, Open};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Browsers of some people, six connections each, and their live parts.
const CONNECTIONS_MAX: usize = 256;
/// Of a form; the longest is one that ticks fifty letters.
const FORM_BYTES_MAX: usize = 64 * 1024;
/// A form is sent by then.
const FORM_WITHIN: Duration = Duration::from_secs(10);
/// A page is made by then; what takes longer is under way elsewhere and looked at again.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Serves a page until `shutdown`, and then ends what is under way.
pub async fn serve(listener: TcpListener, page: Page, shutdown: impl Future<Output = ()>) {
    page.take_up_sessions().await;
    let page = Arc::new(page);
    let limits = Limits {
        connections: descriptors::share(CONNECTIONS_MAX),
        // As long as a live part goes on, or the export of ten thousand letters.
        answer_within: Duration::from_secs(600),
        stop_within: Duration::from_secs(2),
        ..Limits::FEW
    };
    let open = Open {
        name: "--page",
        listener,
        tls: page.settings.tls.clone(),
        limits,
    };
    let stop = async {
        shutdown.await;
        page.close.send_replace(true);
    };
    serve::serve(open, Arc::clone(&page), stop).await;
    page.jobs.end().await;
    page.checks.end().await;
}

impl AnswerHttp for Page {
    async fn answer(&self, place: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        let asked = match asked(request, place.origin(), &self.settings).await {
            Ok(asked) => asked,
            Err(status) => return bare(status),
        };
        let _answering = place.answer();
        let mut response = match timeout(PAGE_WITHIN, self.shown(&asked)).await {
            Ok(response) => response,
            Err(_) => bare(StatusCode::GATEWAY_TIMEOUT),
        };
        harden(&mut response);
        response
    }
}

/// Reads a request to its end.
async fn asked(
    request: Request<Incoming>,
    peer: PeerGroup,
    settings: &Settings,
) -> Result<Asked, StatusCode> {
    let (head, body) = request.into_parts();
    let mut form = FormFields::default();
    if head.method == Method::POST {
        let content_type = head.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|it| it.to_str().ok());
        let kind = content_type.unwrap_or_default().split(';').next();
        let empty = content_type.is_none();
        let body = timeout(FORM_WITHIN, body::read(body, FORM_BYTES_MAX));
        let body = body.await.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
        let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        if kind != Some("application/x-www-form-urlencoded") && !(empty && body.is_empty()) {
            return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        form = FormFields::read(&body);
    }
    let forwarded = settings.believes(peer);
    let from = forwarded.then(|| Asked::forwarded(&head.headers)).flatten();
    Ok(Asked {
        query: FormFields::read(head.uri.query().unwrap_or_default().as_bytes()),
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        form,
        from: from.map_or(peer, PeerGroup::from),
    })
}

/// An answer to what no form of ours sends.
fn bare(status: StatusCode) -> Response<Body> {
    let words = body::whole(format!("{status}\n"));
    let mut response = body::response(status, "text/plain; charset=utf-8", words);
    harden(&mut response);
    response
}
