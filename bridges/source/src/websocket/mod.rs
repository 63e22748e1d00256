//! AMI as JSON over a WebSocket (amiws and similar gateways). Since a gateway turns its clients'
//! messages into PBX actions, callbridge only sends protocol-level pings and pongs.

mod unmask;

use crate::{
    Access, Context, Error, LiveLine, NO_REASON, Pings, SourceFeed, Stream, Target, TcpEndpoint,
    listen,
};
use bytes::Bytes;
use callbridge_call::peer_text::peer_text;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{Join, ReadHalf, WriteHalf};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as Trouble, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use unmask::{Filter, Unmasked};

/// Maximum length of a message in bytes. An AMI event has a few kilobytes, so a gateway that sends
/// more than this is broken, and its connection is ended.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A connection to a gateway.
struct WebSocketLine {
    target: Target,
    socket: WebSocketStream<Join<Unmasked<ReadHalf<Stream>>, WriteHalf<Stream>>>,
    /// The last message received, until it's processed.
    received: Option<Message>,
    /// The number of the ping that has to be sent.
    ping: Option<u64>,
    /// Number of pings so far.
    pinged: u64,
    pings: Pings,
}

/// Runs one connection until a stop is requested or the connection ends, in which case the reason
/// is returned.
pub(crate) async fn session(
    endpoint: &TcpEndpoint,
    path: &str,
    context: &mut Context,
) -> Result<(), Error> {
    let opening = open(endpoint, path, &context.access);
    match context.stop.interrupts(opening).await {
        Some(line) => listen(&mut line?, context).await,
        None => Ok(()),
    }
}

/// Opens a connection, and then closes it.
pub(crate) async fn probe(
    endpoint: &TcpEndpoint,
    path: &str,
    access: &Access,
) -> Result<(), Error> {
    let mut line = open(endpoint, path, access).await?;
    // This is a clean close. It doesn't matter whether the other side responds to it.
    let _ = timeout(line.target.within, line.socket.close(None)).await;
    Ok(())
}

async fn open(endpoint: &TcpEndpoint, path: &str, access: &Access) -> Result<WebSocketLine, Error> {
    let target = access.target(endpoint);
    let (stream, write) = tokio::io::split(target.open().await?);
    let filter = Filter::default();
    let stream = tokio::io::join(Unmasked { stream, filter }, write);
    let scheme = if endpoint.tls { "wss" } else { "ws" };
    let url = format!("{scheme}://{endpoint}{path}");
    let config = WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let greeting = client_async_with_config(url, stream, Some(config));
    let greeted = async {
        greeting
            .await
            .map_err(|trouble| handshake_error(&target, path, &trouble))
    };
    let (socket, _answer) = target.in_time(greeted).await?;
    Ok(WebSocketLine {
        target,
        socket,
        received: None,
        ping: None,
        pinged: 0,
        pings: Pings::default(),
    })
}

impl LiveLine for WebSocketLine {
    fn target(&self) -> &Target {
        &self.target
    }

    async fn receive(&mut self) -> Result<(), Error> {
        match self.socket.next().await {
            Some(Ok(message)) => {
                self.received = Some(message);
                Ok(())
            }
            Some(Err(trouble)) => Err(self.target.closed_error(trouble.to_string())),
            None => Err(self.target.closed_error(NO_REASON)),
        }
    }

    async fn take_in(&mut self, feed: &mut SourceFeed) -> Result<(), Error> {
        match self.received.take() {
            Some(Message::Binary(bytes)) => feed.offer(bytes)?,
            Some(Message::Text(text)) => feed.offer(text.into())?,
            Some(Message::Close(frame)) => {
                let why = frame
                    .map(|frame| peer_text(frame.reason.as_bytes()))
                    .filter(|why| !why.is_empty())
                    .unwrap_or_else(|| NO_REASON.to_owned());
                return Err(self.target.closed_error(why));
            }
            Some(Message::Pong(payload)) => {
                let number = <[u8; 8]>::try_from(payload.as_ref()).map(u64::from_be_bytes);
                if let Ok(number) = number
                    && let Some(answer) = self.pings.note_answer(number, feed.now())
                {
                    feed.notice(answer.report(None));
                }
            }
            Some(Message::Ping(_) | Message::Frame(_)) | None => {}
        }
        Ok(())
    }

    fn ping(&mut self, feed: &mut SourceFeed) {
        self.pinged += 1;
        self.ping = Some(self.pinged);
        self.pings.note_sent(self.pinged, feed.now());
    }

    fn pings(&self) -> &Pings {
        &self.pings
    }

    async fn send(&mut self) -> Result<(), Error> {
        let Some(number) = self.ping.take() else {
            return Ok(());
        };
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let sent = self.socket.send(Message::Ping(payload)).await;
        sent.map_err(|trouble| self.target.closed_error(trouble.to_string()))
    }
}

fn handshake_error(target: &Target, path: &str, trouble: &Trouble) -> Error {
    match trouble {
        Trouble::Http(answer) => target.not_that_error(format!(
            "no WebSocket at {path} (HTTP {}); check host, port and path of the URL",
            answer.status().as_u16()
        )),
        Trouble::Io(error) => target.io_error(error),
        other => {
            let why = peer_text(other.to_string().as_bytes());
            target.not_that_error(format!(
                "does not answer as a WebSocket ({why}); check host, port and path of the URL"
            ))
        }
    }
}
