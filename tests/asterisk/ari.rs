//! A minimal client of Asterisk's REST interface: requests without a body, and an application that
//! listens. Without a listener, the application can be given no channel.

use crate::wait::finish_in_time;
use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// User and password, as in `conf/ari.conf`.
const KEY: &str = "api_key=scenario:live";

/// The REST interface on a port.
pub struct Ari {
    port: u16,
}

/// The application `live`. Dropping the value ends the application.
pub struct Application(JoinHandle<()>);

impl Drop for Application {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Ari {
    /// Uses the Asterisk with this HTTP port.
    pub fn new(port: u16) -> Self {
        Self { port }
    }

    /// Listens as application `live`.
    pub async fn listen(&self) -> Result<Application> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let url = format!("ws://127.0.0.1:{}/ari/events?app=live&{KEY}", self.port);
        let (mut events, _) = tokio_tungstenite::client_async(url, stream).await?;
        Ok(Application(tokio::spawn(async move {
            while let Some(Ok(_)) = events.next().await {}
        })))
    }

    /// Sends a request that must succeed. `path` includes the query but not the leading `/ari/`.
    pub async fn send_request(&self, method: &str, path: &str) -> Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let query = if path.contains('?') { '&' } else { '?' };
        let request = format!(
            "{method} /ari/{path}{query}{KEY} HTTP/1.1\r\nHost: 127.0.0.1\r\n\
             Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        finish_in_time("an answer", stream.read_to_end(&mut answer)).await??;
        let answer = String::from_utf8_lossy(&answer);
        let first = answer.lines().next().context("no answer")?;
        ensure!(first.contains(" 20"), "{method} {path}: {answer}");
        Ok(())
    }
}
