//! The response of a listener whose process can't respond right now, which is 503 with the reason.

use super::body::{self, Body};
use super::places::ConnectionPlace;
use super::serve::AnswerHttp;
use hyper::{Request, Response, StatusCode, body::Incoming, header, header::HeaderValue};

/// How many seconds a client should wait before retrying this server. In the meantime, it tries
/// other servers.
const RETRY_AFTER: &str = "5";

/// Responds to every request with 503 and the reason returned by this function.
pub struct Unavailable(pub Box<dyn Fn() -> String + Send + Sync>);

impl AnswerHttp for Unavailable {
    async fn answer(&self, _: &ConnectionPlace, _: Request<Incoming>) -> Response<Body> {
        let text = (self.0)() + "\n";
        let plain = "text/plain; charset=utf-8";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let mut answer = body::response(status, plain, body::whole(text));
        let retry_after = HeaderValue::from_static(RETRY_AFTER);
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, retry_after);
        answer
    }
}
