//! Tests that the page streams events, limits the number of streams, and ends all streams when it
//! stops.

use crate::client::{Browser, Manner, Served};
use crate::fake::Fake;
use crate::morning::morning;
use callbridge_admin::PageRole;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Opens a stream of the page, and reads it up to the text `until`. Returns the stream, and the
/// text that was read.
async fn listen(browser: &Browser, until: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(browser.address)
        .await
        .expect("connected");
    let head = format!("{}\r\n", browser.head("GET", "/live"));
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut received = String::new();
    read_until(&mut stream, &mut received, until).await;
    (stream, received)
}

async fn read_until(stream: &mut TcpStream, received: &mut String, until: &str) {
    let mut piece = [0; 4096];
    while !received.contains(until) {
        let count = stream.read(&mut piece).await.expect("read");
        if count == 0 {
            return;
        }
        received.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
}

#[tokio::test]
async fn change_is_streamed_and_stream_ends_when_page_stops() {
    let fake = Fake::new(morning("Savdo", 1_795_158_000));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let (mut stream, received) = listen(&anna, "event: hello").await;
    assert!(received.contains("text/event-stream"), "{received}");
    assert!(!received.contains("event: changed"), "{received}");
    fake.change();
    let mut more = String::new();
    read_until(&mut stream, &mut more, "event: changed").await;
    assert!(more.contains("event: changed"), "{more}");
    served.stop().await;
    let mut rest = Vec::new();
    let end = timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
    end.expect("the stream ends").expect("read");
}

#[tokio::test]
async fn stream_beyond_sixty_four_is_refused_with_retry_after() {
    let fake = Fake::new(morning("Savdo", 1_795_158_000));
    let served = Served::new(fake, Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let (stream, received) = listen(&anna, "event: hello").await;
        assert!(received.starts_with("HTTP/1.1 200"), "{received}");
        held.push(stream);
    }
    let full = anna.get("/live").await;
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    assert_eq!(anna.get("/").await.status, 200, "the page goes on");
    drop(held);
    served.stop().await;
}
