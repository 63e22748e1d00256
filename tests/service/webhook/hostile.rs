//! Tests that slow, large, incomplete, or numerous requests do not block the CRM's deliveries.

use super::line::{Line, soon};
use super::place::{Delivery, PLACES, Place, SECRET, completed_event, now};
use callbridge_listener::held::FREE_BYTES;
use callbridge_webhook::http::{BODY_BYTES_MAX, BUDGET_BYTES, PASSED_OVER_MAX};
use futures_util::future::join_all;

/// The source address of floods.
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

#[tokio::test]
async fn huge_body_is_refused_with_or_without_content_length() {
    let place = Place::start().await;
    let mut line = place.line().await;
    line.send(&Delivery::for_call(1).head(PASSED_OVER_MAX + 1))
        .await;
    assert_eq!(line.status().await, Some(413));
    let mut long = Delivery::for_call(1);
    long.body.resize(BODY_BYTES_MAX + 1, b' ');
    assert_eq!(place.post(&long).await, 413, "read over, and told");
    let mut hidden = place.line().await;
    let head = String::from_utf8(Delivery::for_call(1).head(0)).expect("text");
    let head = head.replace("Content-Length: 0", "Transfer-Encoding: chunked");
    hidden.send(head.as_bytes()).await;
    let chunk = [b"40000\r\n".to_vec(), vec![b'x'; 0x40000], b"\r\n".to_vec()].concat();
    for _ in 0..70 {
        // The connection can be cut at any chunk.
        hidden.send(&chunk).await;
    }
    assert!(matches!(hidden.status().await, Some(413) | None));
    assert_eq!(place.count("too_large"), 3);
    place.stop().await;
}

#[tokio::test]
async fn other_paths_and_methods_get_404_and_405() {
    let place = Place::start().await;
    let mut wrong = Delivery::for_call(1);
    wrong.path = "/webhook";
    assert_eq!(place.post(&wrong).await, 404);
    wrong.path = "/webhooks/?from=crm";
    assert_eq!(place.post(&wrong).await, 200);
    let get = b"GET /webhooks HTTP/1.1\r\nHost: here\r\n\r\n";
    assert_eq!(place.line().await.exchange(get).await, 405);
    place.stop().await;
}

#[tokio::test]
async fn incomplete_body_gets_408_and_journals_no_call() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    let delivery = Delivery::for_call(1);
    let mut half = place.line().await;
    half.send(&delivery.head(delivery.body.len())).await;
    half.send(&delivery.body[..delivery.body.len() / 2]).await;
    // The rest never comes, and the connection stays open.
    assert_eq!(half.status().await, Some(408));
    assert_eq!(place.books().await.journaled, 0);
    drop(half);
    let mut gone = place.line().await;
    gone.send(&delivery.head(delivery.body.len())).await;
    drop(gone);
    assert_eq!(place.post(&delivery).await, 200);
    place.stop().await;
}

#[tokio::test]
async fn endless_or_oversized_head_closes_the_connection() {
    let place = Place::start().await;
    let mut slow = place.line().await;
    slow.send(b"POST /webhooks HTTP/1.1\r\nX-Slow: ").await;
    let mut long = place.line().await;
    long.send(b"POST /webhooks HTTP/1.1\r\n").await;
    let line = format!("X-Long: {}\r\n", "x".repeat(8_000));
    let mut sent = 0;
    while sent < 40 && long.send(line.as_bytes()).await {
        sent += 1;
    }
    long.wait_for_end().await;
    let mut many = place.line().await;
    let heads = (0..200).map(|n| format!("X-Many-{n}: 1\r\n"));
    let request = format!(
        "POST /webhooks HTTP/1.1\r\n{}\r\n",
        heads.collect::<String>()
    );
    many.send(request.as_bytes()).await;
    many.wait_for_end().await;
    let mut noise = place.line().await;
    noise
        .send(&[0x16, 3, 1, 0, 200, 0, 0, 0, 13, 10, 13, 10])
        .await;
    noise.wait_for_end().await;
    slow.wait_for_end().await;
    assert_eq!(place.post(&Delivery::for_call(1)).await, 200);
    place.stop().await;
}

#[tokio::test]
async fn silent_connections_beyond_limit_do_not_block_delivery() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    let mut silent = Vec::new();
    for _ in 0..2 * PLACES {
        let mut line = place.line().await;
        line.send(b"POST /webhooks HTTP/1.1\r\n").await;
        silent.push(line);
    }
    assert_eq!(place.post(&Delivery::for_call(1)).await, 200);
    assert_eq!(place.books().await.journaled, 1);
    let ends = silent.iter_mut().map(Line::wait_for_end);
    soon("the end of all, by the time of a head", join_all(ends)).await;
    place.stop().await;
}

#[tokio::test]
async fn flood_from_other_address_cuts_no_slow_delivery() {
    let place = Place::start().await;
    place.store_sent_call(1).await;
    let mut slow = place.line().await;
    let request = Delivery::for_call(1).request();
    let (first, rest) = request.split_at(40);
    slow.send(first).await;
    let mut flood = std::collections::VecDeque::new();
    // With more connections, a busy machine would need longer than the time limit of a delivery.
    for _ in 0..4 * PLACES {
        flood.push_back(Line::open_from(ELSEWHERE, place.addr).await);
        if flood.len() > 2 * PLACES {
            flood.pop_front();
        }
    }
    assert_eq!(slow.exchange(rest).await, 200);
    assert_eq!(place.books().await.journaled, 1);
    place.stop().await;
}

#[tokio::test]
async fn delivery_survives_same_address_flood_of_half_the_limit() {
    let place = Place::start().await;
    let mut flood = Vec::new();
    for _ in 0..2 * PLACES {
        flood.push(place.line().await);
    }
    for n in 0..10 {
        place.store_sent_call(n).await;
        let mut slow = place.line().await;
        for _ in 0..PLACES / 2 - 1 {
            flood.push(place.line().await);
        }
        assert_eq!(slow.exchange(&Delivery::for_call(n).request()).await, 200);
        flood.drain(..PLACES / 2);
    }
    assert_eq!(place.books().await.journaled, 10);
    place.stop().await;
}

/// Returns a delivery of this size with a wrong signature.
fn delivery_with_wrong_signature(bytes: usize) -> Delivery {
    let mut delivery = Delivery::for_event(&completed_event(1), now(), "another secret");
    delivery.body.resize(bytes, b' ');
    delivery
}

#[tokio::test]
async fn bodies_over_budget_do_not_block_ordinary_events() {
    let place = Place::start().await;
    let most = BUDGET_BYTES / (BODY_BYTES_MAX - FREE_BYTES);
    let many = most + 10;
    assert!(many < PLACES);
    let mut n = 0;
    // If the machine is too slow for this many bodies at a time, the receiver closes connections as
    // too slow.
    while place.count("no_room") == 0 {
        assert!(n < 20, "no body was ever too much");
        let unsigned = delivery_with_wrong_signature(BODY_BYTES_MAX);
        let mut held = Vec::new();
        for _ in 0..many {
            let mut line = Line::open_from(ELSEWHERE, place.addr).await;
            line.send(&unsigned.head(BODY_BYTES_MAX)).await;
            line.send(&unsigned.body[1..]).await;
            held.push(line);
        }
        place.store_sent_call(n).await;
        assert_eq!(place.post(&Delivery::for_call(n)).await, 200);
        n += 1;
        let ends = held.iter_mut().map(async |line| {
            line.send(b" ").await;
            line.status().await
        });
        for status in soon("their answers", join_all(ends)).await {
            let may_come_again = matches!(status, Some(401 | 408 | 503) | None);
            assert!(may_come_again, "{status:?}");
        }
    }
    // Space that one delivery has released is free for the next.
    place.store_sent_call(n).await;
    let mut large = completed_event(n);
    large["mood"] = "x".repeat(BODY_BYTES_MAX - 2 * FREE_BYTES).into();
    let large = Delivery::for_event(&large, now(), SECRET);
    assert_eq!(place.post(&large).await, 200);
    place.stop().await;
}

#[tokio::test]
async fn open_connections_do_not_delay_the_stop() {
    let place = Place::start().await;
    let mut idle = place.line().await;
    let mut half = place.line().await;
    half.send(b"POST /webhooks HTTP/1.1\r\n").await;
    place.stop().await;
    idle.wait_for_end().await;
    half.wait_for_end().await;
}
