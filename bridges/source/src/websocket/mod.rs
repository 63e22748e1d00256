//! AMI as JSON over a WebSocket (amiws and gateways like it). What a client sends there becomes
//! an action of the PBX, so nothing is sent but protocol pings and pongs.

mod unmask;

use crate::connect::{Stream, Target};
use crate::error::Error;
use crate::source::{Access, Context};
use crate::url::TcpEndpoint;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as Trouble, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use unmask::Unmasked;

/// The longest message. One AMI event is some kilobytes; a gateway that sends more than this is
/// broken, and the connection ends.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

type WebSocketLine = WebSocketStream<Unmasked<Stream>>;

pub(crate) struct Socket {
    endpoint: TcpEndpoint,
    path: String,
}

impl Socket {
    pub(crate) fn new(endpoint: TcpEndpoint, path: String) -> Self {
        Self { endpoint, path }
    }

    /// One connection, from opening to its end; why it ended.
    pub(crate) async fn session(&mut self, context: &mut Context) -> Error {
        match self.run(context).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    /// Opens the line and leaves.
    pub(crate) async fn probe(&self, access: &Access) -> Result<(), Error> {
        let target = access.target(&self.endpoint);
        let mut socket = self.open(&target).await?;
        // An orderly end; whether the other side takes it so makes no difference.
        let _ = timeout(target.within, socket.close(None)).await;
        Ok(())
    }

    async fn run(&self, context: &mut Context) -> Result<std::convert::Infallible, Error> {
        let target = context.access.target(&self.endpoint);
        let mut socket = self.open(&target).await?;
        context.line.up(true).await?;
        let silent_after = context.access.settings.silent_after;
        let mut pings = interval(context.access.settings.ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                message = socket.next() => {
                    heard = Instant::now();
                    match message {
                        Some(Ok(Message::Binary(bytes))) => context.line.offer(bytes)?,
                        Some(Ok(Message::Text(text))) => context.line.offer(text.into())?,
                        Some(Ok(Message::Close(frame))) => {
                            let why = frame.map(|frame| frame.reason.to_string());
                            return Err(target.closed(why.unwrap_or_default()));
                        }
                        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                        Some(Err(trouble)) => return Err(ended(&target, &trouble)),
                        None => return Err(target.closed("without a word")),
                    }
                }
                () = context.line.drop_to_tell() => {
                    context.line.tell_dropped();
                }
                _ = pings.tick() => {
                    ping(&mut socket, &target, silent_after).await?;
                }
                () = tokio::time::sleep_until(heard + silent_after) => {
                    return Err(target.silent(silent_after));
                }
            }
        }
    }

    async fn open(&self, target: &Target) -> Result<WebSocketLine, Error> {
        let stream = Unmasked::new(target.open().await?);
        let scheme = if self.endpoint.tls { "wss" } else { "ws" };
        let url = format!("{scheme}://{}{}", self.endpoint, self.path);
        let config = WebSocketConfig::default()
            .read_buffer_size(16 << 10)
            .write_buffer_size(0)
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let greeting = client_async_with_config(url, stream, Some(config));
        match timeout(target.within, greeting).await {
            Ok(Ok((socket, _answer))) => Ok(socket),
            Ok(Err(trouble)) => Err(refused(target, &self.path, &trouble)),
            Err(_) => Err(target.timed_out()),
        }
    }
}

async fn ping(socket: &mut WebSocketLine, target: &Target, within: Duration) -> Result<(), Error> {
    match timeout(within, socket.send(Message::Ping(Bytes::new()))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(trouble)) => Err(ended(target, &trouble)),
        Err(_) => Err(target.silent(within)),
    }
}

fn refused(target: &Target, path: &str, trouble: &Trouble) -> Error {
    match trouble {
        Trouble::Http(answer) => target.not_that(format!(
            "no WebSocket at {path} (HTTP {}); check host, port and path of the URL",
            answer.status().as_u16()
        )),
        Trouble::Io(error) => target.failed(error),
        other => target.not_that(format!(
            "does not answer as a WebSocket ({other}); check host, port and path of the URL"
        )),
    }
}

fn ended(target: &Target, trouble: &Trouble) -> Error {
    target.closed(trouble.to_string())
}
