//! Tests that a right password gets in beside a flood of wrong ones.

use crate::client::{Browser, Manner, PASSWORD, PageAnswer};
use crate::security::{serve_page, with_anna};
use std::collections::BTreeMap;
use tokio::sync::mpsc;

/// Sends wrong passwords from the address `client` until the page stops. Sends `client` to
/// `checked` each time the page has checked a password.
async fn flood(
    served: std::net::SocketAddr,
    client: String,
    name: Option<&'static str>,
    checked: mpsc::Sender<String>,
) {
    let mut browser = Browser::new(served);
    for n in 0.. {
        let made_up = format!("name{n}");
        let fields = [
            ("name", name.unwrap_or(&made_up)),
            ("password", "not this one"),
        ];
        let headers = format!(
            "X-Forwarded-For: {client}\r\nOrigin: {}\r\n",
            browser.origin()
        );
        let answer = browser.post_as("/login", &fields, &headers).await;
        assert!([403, 429].contains(&answer.status), "{}", answer.status);
        if answer.status == 403 {
            let _ = checked.send(client.clone()).await;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn flood_of_wrong_logins_delays_the_right_one_by_seconds() {
    let manner = Manner {
        behind_proxy: true,
        ..with_anna()
    };
    let (_, served) = serve_page(manner).await;
    let mut floods = tokio::task::JoinSet::new();
    let (checked, mut clients) = mpsc::channel(1000);
    for n in 0..24 {
        // Addresses of the same IPv6 network count as one client.
        let client = match n % 3 {
            0 => format!("192.0.2.{n}"),
            1 => "198.51.100.7".to_owned(),
            _ => format!("2001:db8::{n}"),
        };
        let name = if n % 2 == 0 { Some("anna") } else { None };
        floods.spawn(flood(served.address, client, name, checked.clone()));
    }
    // Until each client of the flood has sent five wrong passwords, it can fill the queue.
    let mut wrong: BTreeMap<String, usize> = BTreeMap::new();
    while wrong.len() < 10 || wrong.values().any(|times| *times < 5) {
        let client = clients.recv().await.expect("the flood goes on");
        let is_v6 = client.starts_with("2001:db8");
        let client = if is_v6 {
            "2001:db8::/64".to_owned()
        } else {
            client
        };
        *wrong.entry(client).or_default() += 1;
    }
    drop(clients);
    for _ in 0..3 {
        let mut anna = Browser::new(served.address);
        let headers = format!(
            "X-Forwarded-For: 203.0.113.9\r\nOrigin: {}\r\n",
            anna.origin()
        );
        let right = [("name", "anna"), ("password", PASSWORD)];
        let began = std::time::Instant::now();
        let entered = anna.post_as("/login", &right, &headers).await;
        assert_eq!(entered.status, 303);
        let took = began.elapsed();
        assert!(took.as_secs() < 8, "the right login took {took:?}");
    }
    floods.abort_all();
    served.stop().await;
}

/// Starts this many floods of wrong passwords for "anna" and others from one address.
fn flood_from_one_address(
    served: std::net::SocketAddr,
    parallel: usize,
) -> (tokio::task::JoinSet<()>, mpsc::Receiver<String>) {
    let mut floods = tokio::task::JoinSet::new();
    let (checked, clients) = mpsc::channel(1000);
    for n in 0..parallel {
        let name = if n % 2 == 0 { Some("anna") } else { None };
        let client = "198.51.100.7".to_owned();
        floods.spawn(flood(served, client, name, checked.clone()));
    }
    (floods, clients)
}

/// Logs in as "anna" from the address of [`flood_from_one_address`].
async fn log_in_beside_flood(served: std::net::SocketAddr, password: &str) -> PageAnswer {
    let mut browser = Browser::new(served);
    let headers = format!(
        "X-Forwarded-For: 198.51.100.7\r\nOrigin: {}\r\n",
        browser.origin()
    );
    let fields = [("name", "anna"), ("password", password)];
    browser.post_as("/login", &fields, &headers).await
}

#[tokio::test]
async fn right_passwords_get_in_beside_flood_of_their_own_address() {
    let manner = Manner {
        behind_proxy: true,
        ..with_anna()
    };
    let (_, served) = serve_page(manner).await;
    let (mut floods, mut checked) = flood_from_one_address(served.address, 40);
    for _ in 0..20 {
        checked.recv().await.expect("the flood goes on");
    }
    let mut logins = tokio::task::JoinSet::new();
    for _ in 0..15 {
        let address = served.address;
        logins.spawn(async move {
            let began = std::time::Instant::now();
            let answer = log_in_beside_flood(address, PASSWORD).await;
            answer.status == 303 && began.elapsed().as_secs() < 10
        });
    }
    let accepted = logins.join_all().await;
    let accepted = accepted.into_iter().filter(|is_in| *is_in).count();
    assert!(accepted >= 13, "{accepted} of 15");
    floods.abort_all();
    served.stop().await;
}

#[tokio::test]
async fn displaced_login_gets_429_and_keeps_its_name() {
    let manner = Manner {
        behind_proxy: true,
        ..with_anna()
    };
    let (_, served) = serve_page(manner).await;
    let (mut floods, checked) = flood_from_one_address(served.address, 100);
    drop(checked);
    let refused = loop {
        let answer = log_in_beside_flood(served.address, "not this one").await;
        if answer.status == 429 {
            break answer;
        }
    };
    assert_eq!(refused.header("retry-after"), Some("2"));
    assert!(refused.body.contains("name=\"name\" value=\"anna\""));
    floods.abort_all();
    served.stop().await;
}
