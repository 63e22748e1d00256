//! Tests of a connection that is logged in and receives no events of calls.

use crate::listener::{Line, Listener, action, id, say};
use crate::stage::{Stage, settings};
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_source::{Item, Outage, Settings};
use std::time::Duration;

/// Starts a manager, and a source that connects to it and asks every 20 ms.
async fn begin() -> (Listener, Stage) {
    let listener = Listener::plain().await;
    let url = format!("ami://bridge@127.0.0.1:{}", listener.port());
    let often = Settings {
        ping_every: Duration::from_millis(20),
        ..settings()
    };
    let stage = Stage::start(&url, often);
    (listener, stage)
}

/// Answers the next request for the list of channels with these. Other actions get no answer.
async fn lists(line: &mut Line, channels: &[&str]) {
    loop {
        let asked = action(line).await;
        if !asked.starts_with("Action: CoreShowChannels") {
            continue;
        }
        let id = id(&asked);
        let mut answer = format!("Response: Success\r\n{id}\r\nEventList: start\r\n\r\n");
        for channel in channels {
            let row = format!("Event: CoreShowChannel\r\n{id}\r\nUniqueid: {channel}\r\n\r\n");
            answer.push_str(&row);
        }
        answer.push_str(&format!("Event: CoreShowChannelsComplete\r\n{id}\r\n\r\n"));
        return say(line, answer.as_bytes()).await;
    }
}

/// Returns the next missing right that is reported, and the frames before it.
async fn lack(stage: &mut Stage) -> (MissingRight, Vec<String>) {
    let mut frames = Vec::new();
    loop {
        match stage.next().await {
            Item::MissingRight(lack) => return (lack, frames),
            Item::Frame(frame) => frames.push(String::from_utf8_lossy(&frame.bytes).into_owned()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn channels_without_events_report_missing_right_once() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.ami().await;
    stage.up().await;
    say(&mut line, b"Event: FullyBooted\r\n\r\n").await;
    lists(&mut line, &["17.1"]).await;
    lists(&mut line, &["17.1", "17.2", "17.3"]).await;
    let (lack, frames) = lack(&mut stage).await;
    assert_eq!(lack, MissingRight::Calls(2));
    let listed = frames
        .iter()
        .filter(|frame| frame.contains("Uniqueid: 17."));
    assert_eq!(listed.count(), 1, "the first list alone: {frames:?}");
    // It is reported once, and nothing more is asked.
    assert!(action(&mut line).await.starts_with("Action: Ping"));
    assert!(action(&mut line).await.starts_with("Action: Ping"));
    assert_eq!(stage.stop().await, []);
}

#[tokio::test]
async fn missing_fullybooted_or_denied_list_reports_missing_right() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.ami().await;
    stage.up().await;
    lists(&mut line, &[]).await;
    assert_eq!(lack(&mut stage).await.0, MissingRight::System);
    drop(line);
    let mut line = listener.ami().await;
    let asked = action(&mut line).await;
    let id = id(&asked);
    let denied = format!("Response: Error\r\n{id}\r\nMessage: Permission denied\r\n\r\n");
    say(&mut line, denied.as_bytes()).await;
    loop {
        match stage.next().await {
            Item::MissingRight(lack) => break assert_eq!(lack, MissingRight::List),
            Item::Frame(_) | Item::Up | Item::Down(_) | Item::Gap { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the items, without frames, until the connection is known to be open without a filter.
async fn unfiltered(stage: &mut Stage) -> Vec<Item> {
    let mut told = Vec::new();
    loop {
        match stage.next().await {
            Item::Frame(_) => {}
            Item::MissingRight(MissingRight::Filter) => return told,
            other => told.push(other),
        }
    }
}

#[tokio::test]
async fn filter_blocking_new_channel_reopens_line_without_filter() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.filtered().await;
    stage.up().await;
    lists(&mut line, &[]).await;
    lists(&mut line, &["17.1"]).await;
    // Its event should have arrived by the next question, but the connection is opened again.
    let mut line = listener.login().await;
    assert!(
        action(&mut line)
            .await
            .starts_with("Action: CoreShowChannels")
    );
    let told = unfiltered(&mut stage).await;
    assert_eq!(told[0], Item::MissingRight(MissingRight::System));
    assert_eq!(told[1], Item::MissingRight(MissingRight::Calls(1)));
    let Item::Down(Outage { why, .. }) = &told[2] else {
        panic!("{told:?}")
    };
    assert!(why.contains("no event passes the filter"), "{why}");
    assert_eq!(told[3], Item::Up);
    say(&mut line, b"Event: Newchannel\r\nUniqueid: 17.2\r\n\r\n").await;
    assert_eq!(stage.counts.now().reconnects, 1);
}

#[tokio::test]
async fn filter_blocking_echo_event_reopens_line_without_filter() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.filtered().await;
    stage.up().await;
    let asked = loop {
        let asked = action(&mut line).await;
        if asked.starts_with("Action: UserEvent") {
            break asked;
        }
    };
    let sent = format!(
        "Response: Success\r\n{}\r\nMessage: Event Sent\r\n\r\n",
        id(&asked)
    );
    say(&mut line, sent.as_bytes()).await;
    let mut line = listener.login().await;
    assert!(
        action(&mut line)
            .await
            .starts_with("Action: CoreShowChannels")
    );
    let told = unfiltered(&mut stage).await;
    assert!(matches!(told[0], Item::Down(_)), "{told:?}");
}

#[tokio::test]
async fn partly_accepted_filters_reopen_line_without_filters() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.login().await;
    for words in [
        "Response: Success",
        "Response: Error\r\nMessage: out of memory",
    ] {
        let asked = action(&mut line).await;
        assert!(asked.starts_with("Action: Filter"), "{asked}");
        say(
            &mut line,
            format!("{words}\r\n{}\r\n\r\n", id(&asked)).as_bytes(),
        )
        .await;
    }
    let mut line = listener.login().await;
    assert!(
        action(&mut line)
            .await
            .starts_with("Action: CoreShowChannels")
    );
    let told = unfiltered(&mut stage).await;
    let down = told.iter().any(
        |item| matches!(item, Item::Down(Outage { why, .. }) if why.contains("out of memory")),
    );
    assert!(down, "{told:?}");
}

/// Answers that our next own event was sent. Returns the id of the request.
async fn sends(line: &mut Line) -> String {
    loop {
        let asked = action(line).await;
        if asked.starts_with("Action: UserEvent") {
            let id = id(&asked);
            let sent = format!("Response: Success\r\n{id}\r\nMessage: Event Sent\r\n\r\n");
            say(line, sent.as_bytes()).await;
            return id.to_owned();
        }
    }
}

#[tokio::test]
async fn echo_event_result_reports_missing_right_or_events_flow() {
    let (listener, mut stage) = begin().await;
    // Nothing passes the account's own filter, and the login has no filter to leave out.
    let mut line = listener.ami().await;
    stage.up().await;
    say(&mut line, b"Event: FullyBooted\r\n\r\n").await;
    lists(&mut line, &[]).await;
    sends(&mut line).await;
    let answering = async {
        loop {
            lists(&mut line, &[]).await;
        }
    };
    tokio::select! {
        () = answering => {}
        (lack, _) = lack(&mut stage) => assert_eq!(lack, MissingRight::Echo),
    }
    drop(line);
    let mut line = listener.ami().await;
    say(&mut line, b"Event: FullyBooted\r\n\r\n").await;
    lists(&mut line, &[]).await;
    let id = sends(&mut line).await;
    let event = format!("Event: UserEvent\r\nUserEvent: CallbridgeHears\r\n{id}\r\n\r\n");
    say(&mut line, event.as_bytes()).await;
    loop {
        match stage.next().await {
            Item::EventsFlow => break,
            Item::Frame(_) | Item::Up | Item::Down(_) | Item::Gap { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
