//! Live parts: events, the limit of streams, and their end with the page.

use crate::client::{Browser, Manner, Served};
use crate::fake::Fake;
use crate::morning::morning;
use callbridge_admin::PageRole;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Opens a stream, and reads until it contains a text.
async fn listen(browser: &Browser, until: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(browser.address)
        .await
        .expect("connected");
    let head = format!("{}\r\n", browser.head("GET", "/live"));
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut said = String::new();
    read_until(&mut stream, &mut said, until).await;
    (stream, said)
}

async fn read_until(stream: &mut TcpStream, said: &mut String, until: &str) {
    let mut piece = [0; 4096];
    while !said.contains(until) {
        let count = stream.read(&mut piece).await.expect("read");
        if count == 0 {
            return;
        }
        said.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
}

#[tokio::test]
async fn change_is_streamed_and_the_stream_ends_with_the_page() {
    let fake = Fake::new(morning("Savdo", 1_795_158_000));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let (mut stream, said) = listen(&anna, "event: hello").await;
    assert!(said.contains("text/event-stream"), "{said}");
    assert!(!said.contains("event: changed"), "{said}");
    fake.change();
    let mut more = String::new();
    read_until(&mut stream, &mut more, "event: changed").await;
    assert!(more.contains("event: changed"), "{more}");
    served.stop().await;
    let mut rest = String::new();
    read_until(&mut stream, &mut rest, "never said").await;
}

#[tokio::test]
async fn stream_beyond_sixty_four_is_refused_with_retry_after() {
    let fake = Fake::new(morning("Savdo", 1_795_158_000));
    let served = Served::new(fake, Manner::default()).await;
    let anna = served.visitor(PageRole::View).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        let (stream, said) = listen(&anna, "event: hello").await;
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        held.push(stream);
    }
    let full = anna.get("/live").await;
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    assert_eq!(anna.get("/").await.status, 200, "the page goes on");
    drop(held);
    served.stop().await;
}
