//! The bodies of requests and responses.

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _};
use http_body_util::{BodyExt as _, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::{Response, StatusCode, header, header::HeaderValue};

/// A response body, either complete or streamed.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;
/// An error in a body's source, which ends the body early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Creates a response with this content type.
pub fn response(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    response
}

/// Creates a body that's completely in memory.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    let whole = Full::new(bytes.into());
    whole.map_err(|never| match never {}).boxed_unsync()
}

/// Creates a body that's streamed in pieces.
pub fn in_pieces<E: Into<BodyError> + 'static>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    StreamBody::new(pieces.map_ok(Frame::data).map_err(Into::into)).boxed_unsync()
}

/// Reads a request's body.
///
/// # Errors
/// Returns an error if the body is longer than `bytes_max` or the connection is lost.
pub async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, BodyError> {
    Ok(Limited::new(body, bytes_max).collect().await?.to_bytes())
}
