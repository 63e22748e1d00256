//! HTTP as bytes, with one request per connection.

use super::seen::Seen;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A longer head is an error.
const HEAD_MAX: usize = 64 << 10;
/// A CRM that does not answer within this time counts as unreachable.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// An answer as it came from the CRM.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub content_type: String,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(status: u16, text: &str) -> Self {
        Self {
            status,
            content_type: "application/json".to_owned(),
            location: None,
            body: text.as_bytes().to_vec(),
        }
    }

    pub fn page(status: u16) -> Self {
        let body = format!("<html><body><h1>{status}</h1><hr>nginx</body></html>\n");
        Self {
            content_type: "text/html".to_owned(),
            ..Self::json(status, &body)
        }
    }

    /// Returns the answer's bytes, with `told` as its `Content-Length`.
    pub fn bytes(&self, content_length: usize) -> Vec<u8> {
        let location = self.location.as_ref();
        let location = location.map_or(String::new(), |to| format!("Location: {to}\r\n"));
        let head = format!(
            "HTTP/1.1 {} Said\r\nContent-Type: {}\r\n{location}Content-Length: {content_length}\r\n\
             Connection: close\r\n\r\n",
            self.status, self.content_type
        );
        [head.into_bytes(), self.body.clone()].concat()
    }
}

/// Reads one request. Returns `Err` if the request ends too early: with the part that came, or
/// with `None` if nothing came.
pub async fn read_request(stream: &mut TcpStream) -> Result<Seen, Option<Seen>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break at + 4;
        }
        let read = stream.read_buf(&mut bytes).await;
        if matches!(read, Ok(0) | Err(_)) || bytes.len() > HEAD_MAX {
            return Err((!bytes.is_empty()).then(Seen::default));
        }
    };
    let (mut seen, length) = head(&bytes[..head_end]);
    while bytes.len() < head_end + length {
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Err(Some(seen)),
            Ok(_) => {}
        }
    }
    seen.body = bytes.split_off(head_end);
    Ok(seen)
}

fn head(bytes: &[u8]) -> (Seen, usize) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split("\r\n");
    let words = lines.next().unwrap_or_default().split(' ');
    let mut words = words.map(str::to_owned);
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let pairs = lines.filter_map(|line| line.split_once(':'));
    let headers = pairs.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    let seen = Seen {
        method,
        path,
        headers: headers.collect(),
        ..Seen::default()
    };
    let length = seen.header("content-length").next();
    let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    (seen, length)
}

/// Sends the same request to the CRM and returns its answer. Returns `None` if no CRM answers.
pub async fn pass_on(seen: &Seen, crm: SocketAddr) -> Option<Response> {
    let ours = ["connection", "content-length"];
    let kept = seen.headers.iter();
    let kept = kept.filter(|(name, _)| !ours.contains(&name.as_str()));
    let headers: String = kept.map(|(k, v)| format!("{k}: {v}\r\n")).collect();
    let head = format!("{} {} HTTP/1.1\r\n{headers}", seen.method, seen.path);
    exchange(crm, &head, &seen.body).await
}

/// Sends a request of the judge.
pub async fn ask(crm: SocketAddr, method: &str, path: &str, body: &str) -> Option<Response> {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {crm}\r\n");
    exchange(crm, &head, body.as_bytes()).await
}

async fn exchange(crm: SocketAddr, head: &str, body: &[u8]) -> Option<Response> {
    let length = body.len();
    let end = format!("Connection: close\r\nContent-Length: {length}\r\n\r\n");
    let exchange = async {
        let mut stream = TcpStream::connect(crm).await.ok()?;
        let request = [head.as_bytes(), end.as_bytes(), body].concat();
        stream.write_all(&request).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        response(&answer)
    };
    timeout(ANSWER_WITHIN, exchange).await.ok()?
}

/// Parses an answer that ends with its connection. Returns `None` if it is shorter than its
/// `Content-Length`.
fn response(bytes: &[u8]) -> Option<Response> {
    let head_end = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
    let status = String::from_utf8_lossy(bytes.get(9..12)?).parse().ok()?;
    let (answer, length) = head(&bytes[..head_end]);
    let body = bytes[head_end..].to_vec();
    let has_length = answer.header("content-length").next().is_some();
    let is_complete = !has_length || length == body.len();
    let content_type = answer.header("content-type").next();
    let location = answer.header("location").next();
    is_complete.then(|| Response {
        status,
        content_type: content_type.unwrap_or_default().to_owned(),
        location: location.map(str::to_owned),
        body,
    })
}
