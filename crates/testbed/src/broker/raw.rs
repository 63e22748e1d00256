//! Publishes messages byte by byte, with properties and routing keys that the AMQP library lapin
//! can't write.

use super::{ADMINISTRATOR, Broker, SECRET};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Flags and values of a message without properties.
pub const NO_PROPERTIES: [u8; 2] = [0, 0];

/// Returns the properties of a message whose only header is nested this deep.
pub fn deep_headers(depth: usize) -> Vec<u8> {
    let mut properties = vec![0x20, 0];
    properties.extend(nested_table(depth));
    properties
}

/// Returns the properties of a message with only this content type.
pub fn content_type(text: &[u8]) -> Vec<u8> {
    let mut properties = vec![0x80, 0];
    properties.extend(short(text));
    properties
}

/// Returns the frame with which a broker greets, with properties nested this deep.
pub fn deep_greeting(depth: usize) -> Vec<u8> {
    let mut payload = vec![0, 10, 0, 10, 0, 9];
    payload.extend(nested_table(depth));
    payload.extend(long(b"PLAIN"));
    payload.extend(long(b"en_US"));
    frame(1, 0, &payload)
}

/// Publishes a message with these properties, and waits until the broker has confirmed it.
pub async fn publish(broker: &Broker, exchange: &str, key: &[u8], properties: &[u8], body: &[u8]) {
    let address = ("127.0.0.1", broker.port());
    let mut line = TcpStream::connect(address).await.expect("a connection");
    line.write_all(b"AMQP\0\0\x09\x01").await.expect("written");
    expect(&mut line, [10, 10]).await;
    let login = format!("\0{ADMINISTRATOR}\0{SECRET}");
    let (plain, locale) = (short(b"PLAIN"), short(b"en_US"));
    send(
        &mut line,
        0,
        [10, 11],
        &[&[0; 4], &plain, &long(login.as_bytes()), &locale],
    )
    .await;
    let tune = expect(&mut line, [10, 30]).await;
    let without_heartbeat = [&tune[..6], &[0, 0]].concat();
    send(&mut line, 0, [10, 31], &[&without_heartbeat]).await;
    let vhost = short(broker.vhost().as_bytes());
    send(&mut line, 0, [10, 40], &[&vhost, &[0, 0]]).await;
    expect(&mut line, [10, 41]).await;
    send(&mut line, 1, [20, 10], &[&[0]]).await;
    expect(&mut line, [20, 11]).await;
    send(&mut line, 1, [85, 10], &[&[0]]).await;
    expect(&mut line, [85, 11]).await;
    let (exchange, key) = (short(exchange.as_bytes()), short(key));
    send(&mut line, 1, [60, 40], &[&[0, 0], &exchange, &key, &[0]]).await;
    let mut header = vec![0, 60, 0, 0];
    header.extend((body.len() as u64).to_be_bytes());
    header.extend(properties);
    let content = [frame(2, 1, &header), frame(3, 1, body)].concat();
    line.write_all(&content).await.expect("written");
    expect(&mut line, [60, 80]).await;
}

/// Sends a method. The numbers of AMQP's classes and methods are all below 256.
async fn send(line: &mut TcpStream, channel: u16, method: [u8; 2], fields: &[&[u8]]) {
    let [class, method] = method;
    let payload = [&[0, class, 0, method], &fields.concat()[..]].concat();
    let sent = line.write_all(&frame(1, channel, &payload)).await;
    sent.expect("written");
}

/// Waits for a method of the broker, and returns its fields.
async fn expect(line: &mut TcpStream, method: [u8; 2]) -> Vec<u8> {
    let mut head = [0; 7];
    line.read_exact(&mut head).await.expect("a frame");
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    let mut payload = vec![0; length + 1];
    line.read_exact(&mut payload).await.expect("a payload");
    let [class, method] = method;
    let text = String::from_utf8_lossy(&payload);
    assert_eq!(payload[..4], [0, class, 0, method], "{text}");
    payload[4..length].to_vec()
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend(channel.to_be_bytes());
    frame.extend(long(payload));
    frame.push(0xce);
    frame
}

/// Returns a table with one entry, nested this deep, including the table's length.
fn nested_table(depth: usize) -> Vec<u8> {
    let mut table = long(b"");
    for _ in 0..depth {
        table = long(&[&b"\x01aF"[..], &table].concat());
    }
    table
}

fn short(text: &[u8]) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("short");
    [&[length], text].concat()
}

/// Returns the bytes after their length, in four bytes.
fn long(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes(), bytes].concat()
}
