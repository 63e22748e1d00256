//! The latest time at which a request may be written.
//!
//! A request counts toward the window in which it arrives. A process that takes over the state
//! assumes that this process's requests were written within seconds of storing their slots. So if
//! this process was suspended in the meantime, it mustn't write its requests later.
//!
//! The time is checked twice, by the boot clock:
//!
//! | when | for | left until the first byte |
//! |---|---|---|
//! | the connection is ready, with TLS ([`connected`]) | every request | two of hyper's tasks |
//! | hyper reads the body, before writing the head ([`TimedBody`]) | a body | the system call |
//!
//! If a process or a machine is suspended after the last check, it will still write the request
//! when it resumes.

use bytes::Bytes;
use callbridge_model::clock;
use http_body::{Body, Frame, SizeHint};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

tokio::task_local! {
    /// The latest time since boot at which this task's request may be written.
    pub(crate) static SEND_BY: Duration;
}

/// The request's deadline has passed without anything having been written.
#[derive(Debug, thiserror::Error)]
#[error("too late to be sent")]
pub(crate) struct TooLate;

fn check(send_by: Duration) -> Result<(), TooLate> {
    if clock::now().boot > send_by {
        return Err(TooLate);
    }
    Ok(())
}

/// Waits for the connection, giving it up if it isn't ready until after [`SEND_BY`]. If that isn't
/// set, there's no limit.
pub(crate) async fn connected<C>(
    connecting: impl Future<Output = Result<C, Box<dyn Error + Send + Sync>>>,
) -> Result<C, Box<dyn Error + Send + Sync>> {
    let connection = connecting.await?;
    if let Ok(send_by) = SEND_BY.try_with(|send_by| *send_by) {
        check(send_by)?;
    }
    Ok(connection)
}

/// A request's body, which returns an error if hyper reads it after `send_by`.
pub(crate) struct TimedBody {
    bytes: Option<Bytes>,
    send_by: Duration,
}

impl TimedBody {
    pub(crate) fn new(text: String, send_by: Duration) -> Self {
        Self {
            bytes: Some(Bytes::from(text)),
            send_by,
        }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = TooLate;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TooLate>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(check(self.send_by).map(|()| Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(length as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, ApiError, ApiResponse, Client, Request, Setup};
    use callbridge_model::Secret;
    use std::net::SocketAddr;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    /// Starts a server that reads one connection to its end, closing it once it has received a
    /// request.
    async fn server() -> (SocketAddr, JoinHandle<String>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let reading = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let mut bytes = Vec::new();
            let mut some = [0; 4096];
            loop {
                let count = socket.read(&mut some).await.unwrap_or(0);
                bytes.extend_from_slice(&some[..count]);
                if count == 0 || bytes.windows(4).any(|end| end == b"\r\n\r\n") {
                    return String::from_utf8(bytes).expect("text");
                }
            }
        });
        (address, reading)
    }

    fn requests() -> [Request; 2] {
        let submission = serde_json::json!({"leadId": 4001});
        [Request::TokenInfo, Request::Submit(submission)]
    }

    async fn send_to_server(request: &Request, send_by: Duration) -> (ApiResponse, String) {
        let (address, reading) = server().await;
        let address = Address::parse(&format!("http://{address}")).expect("an address");
        let client = Client::new(Setup::new(address));
        let token = Secret::from("svc_pat_x");
        let answer = client.send(request, &token, send_by).await;
        (answer, reading.await.expect("read"))
    }

    #[tokio::test]
    async fn request_past_its_deadline_sends_no_byte() {
        for request in requests() {
            let (response, received) = send_to_server(&request, Duration::ZERO).await;
            assert_eq!(response.answer, Err(ApiError::TooLate), "{request:?}");
            assert_eq!(received, "", "{request:?}");
        }
    }

    #[tokio::test]
    async fn request_in_time_is_sent_with_its_content_length() {
        let later = clock::now().boot + Duration::from_secs(60);
        for request in requests() {
            let (response, received) = send_to_server(&request, later).await;
            assert!(
                matches!(response.answer, Err(ApiError::Lost(_))),
                "{request:?}"
            );
            let has_length = received.contains("content-length: 15\r\n");
            assert_eq!(has_length, request.body().is_some(), "{received}");
            assert!(!received.contains("transfer-encoding"), "{received}");
        }
    }

    /// The connection is ready in time, but then the process is suspended.
    #[tokio::test]
    async fn body_past_its_deadline_also_holds_back_the_head() {
        let (address, reading) = server().await;
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]);
        let client = client.build().expect("a client");
        let body = TimedBody::new("text".to_owned(), Duration::ZERO);
        let sending = client.post(format!("http://{address}"));
        let failed = sending.body(reqwest::Body::wrap(body)).send().await;
        let failed = failed.expect_err("too late");
        let mut causes = crate::https::causes(&failed);
        assert!(causes.any(|cause| cause.is::<TooLate>()), "{failed:?}");
        drop(client);
        assert_eq!(reading.await.expect("read"), "");
    }
}
