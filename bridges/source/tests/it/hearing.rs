//! Tests of a connection that is logged in but receives no events of calls.

use crate::listener::{Line, Listener, action_id_line, read_action, send};
use crate::stage::{Stage, settings};
use callbridge_asterisk::subscription_probe::MissingRight;
use callbridge_source::{Item, Outage, Settings};
use std::time::Duration;

/// Starts a fake PBX, and a source that connects to the PBX and sends a request every 20 ms.
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

/// Answers the next request for the list of channels with `channels`. Earlier actions get no
/// answer.
async fn answer_channel_list(line: &mut Line, channels: &[&str]) {
    loop {
        let request = read_action(line).await;
        if !request.starts_with("Action: CoreShowChannels") {
            continue;
        }
        let id = action_id_line(&request);
        let mut answer = format!("Response: Success\r\n{id}\r\nEventList: start\r\n\r\n");
        for channel in channels {
            let row = format!("Event: CoreShowChannel\r\n{id}\r\nUniqueid: {channel}\r\n\r\n");
            answer.push_str(&row);
        }
        answer.push_str(&format!("Event: CoreShowChannelsComplete\r\n{id}\r\n\r\n"));
        return send(line, answer.as_bytes()).await;
    }
}

/// Returns the next missing right that the source reports, and the frames before the report.
async fn next_missing_right(stage: &mut Stage) -> (MissingRight, Vec<String>) {
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
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    send(&mut line, b"Event: FullyBooted\r\n\r\n").await;
    answer_channel_list(&mut line, &["17.1"]).await;
    answer_channel_list(&mut line, &["17.1", "17.2", "17.3"]).await;
    let (lack, frames) = next_missing_right(&mut stage).await;
    assert_eq!(lack, MissingRight::Calls(2));
    let listed = frames
        .iter()
        .filter(|frame| frame.contains("Uniqueid: 17."));
    assert_eq!(listed.count(), 1, "only the first list: {frames:?}");
    // The missing right is reported once, and the source requests no more lists.
    assert!(read_action(&mut line).await.starts_with("Action: Ping"));
    assert!(read_action(&mut line).await.starts_with("Action: Ping"));
    assert_eq!(stage.stop().await, []);
}

#[tokio::test]
async fn missing_fullybooted_or_denied_list_reports_missing_right() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    answer_channel_list(&mut line, &[]).await;
    assert_eq!(next_missing_right(&mut stage).await.0, MissingRight::System);
    drop(line);
    let mut line = listener.accept_ami().await;
    let request = read_action(&mut line).await;
    let id = action_id_line(&request);
    let denied = format!("Response: Error\r\n{id}\r\nMessage: Permission denied\r\n\r\n");
    send(&mut line, denied.as_bytes()).await;
    loop {
        match stage.next().await {
            Item::MissingRight(lack) => break assert_eq!(lack, MissingRight::List),
            Item::Frame(_) | Item::Up | Item::Down(_) | Item::Gap { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the items, without frames, before the report that no event passes the filter.
async fn items_until_filter_right_is_missing(stage: &mut Stage) -> Vec<Item> {
    let mut items = Vec::new();
    loop {
        match stage.next().await {
            Item::Frame(_) => {}
            Item::MissingRight(MissingRight::Filter) => return items,
            other => items.push(other),
        }
    }
}

/// Skips items until a frame contains `text`. Panics if the connection is lost first.
async fn wait_for_frame(stage: &mut Stage, text: &str) {
    loop {
        match stage.next().await {
            Item::Frame(frame) if String::from_utf8_lossy(&frame.bytes).contains(text) => return,
            Item::Down(outage) => panic!("{outage:?} before the frame"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn filter_blocking_new_channel_reopens_line_without_filter() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.accept_filtered().await;
    stage.expect_up().await;
    answer_channel_list(&mut line, &[]).await;
    answer_channel_list(&mut line, &["17.1"]).await;
    // No event of the new channel has arrived, so the source opens the connection again.
    let mut line = listener.accept_login().await;
    assert!(
        read_action(&mut line)
            .await
            .starts_with("Action: CoreShowChannels")
    );
    let items = items_until_filter_right_is_missing(&mut stage).await;
    assert_eq!(items[0], Item::MissingRight(MissingRight::System));
    assert_eq!(items[1], Item::MissingRight(MissingRight::Calls(1)));
    let Item::Down(Outage { why, .. }) = &items[2] else {
        panic!("{items:?}")
    };
    assert!(why.contains("no event passes the filter"), "{why}");
    assert_eq!(items[3], Item::Up);
    send(&mut line, b"Event: Newchannel\r\nUniqueid: 17.2\r\n\r\n").await;
    wait_for_frame(&mut stage, "Uniqueid: 17.2").await;
    assert_eq!(stage.counts.now().reconnects, 1);
}

#[tokio::test]
async fn filter_blocking_echo_event_reopens_line_without_filter() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.accept_filtered().await;
    stage.expect_up().await;
    let request = loop {
        let request = read_action(&mut line).await;
        if request.starts_with("Action: UserEvent") {
            break request;
        }
    };
    let sent = format!(
        "Response: Success\r\n{}\r\nMessage: Event Sent\r\n\r\n",
        action_id_line(&request)
    );
    send(&mut line, sent.as_bytes()).await;
    let mut line = listener.accept_login().await;
    assert!(
        read_action(&mut line)
            .await
            .starts_with("Action: CoreShowChannels")
    );
    let items = items_until_filter_right_is_missing(&mut stage).await;
    assert!(matches!(items[0], Item::Down(_)), "{items:?}");
}

#[tokio::test]
async fn partly_accepted_filters_reopen_line_without_filters() {
    let (listener, mut stage) = begin().await;
    let mut line = listener.accept_login().await;
    for words in [
        "Response: Success",
        "Response: Error\r\nMessage: out of memory",
    ] {
        let request = read_action(&mut line).await;
        assert!(request.starts_with("Action: Filter"), "{request}");
        send(
            &mut line,
            format!("{words}\r\n{}\r\n\r\n", action_id_line(&request)).as_bytes(),
        )
        .await;
    }
    let mut line = listener.accept_login().await;
    assert!(
        read_action(&mut line)
            .await
            .starts_with("Action: CoreShowChannels")
    );
    let items = items_until_filter_right_is_missing(&mut stage).await;
    let down = items.iter().any(
        |item| matches!(item, Item::Down(Outage { why, .. }) if why.contains("out of memory")),
    );
    assert!(down, "{items:?}");
}

/// Answers the source's next `UserEvent` action as if the event had been sent. Returns the line
/// with the action's id.
async fn answer_user_event(line: &mut Line) -> String {
    loop {
        let request = read_action(line).await;
        if request.starts_with("Action: UserEvent") {
            let id = action_id_line(&request);
            let sent = format!("Response: Success\r\n{id}\r\nMessage: Event Sent\r\n\r\n");
            send(line, sent.as_bytes()).await;
            return id.to_owned();
        }
    }
}

#[tokio::test]
async fn echo_event_result_reports_missing_right_or_events_flow() {
    let (listener, mut stage) = begin().await;
    // No event passes the filter of the account, and the login has no filter to omit.
    let mut line = listener.accept_ami().await;
    stage.expect_up().await;
    send(&mut line, b"Event: FullyBooted\r\n\r\n").await;
    answer_channel_list(&mut line, &[]).await;
    answer_user_event(&mut line).await;
    let answering = async {
        loop {
            answer_channel_list(&mut line, &[]).await;
        }
    };
    tokio::select! {
        () = answering => {}
        (lack, _) = next_missing_right(&mut stage) => assert_eq!(lack, MissingRight::Echo),
    }
    drop(line);
    let mut line = listener.accept_ami().await;
    send(&mut line, b"Event: FullyBooted\r\n\r\n").await;
    answer_channel_list(&mut line, &[]).await;
    let id = answer_user_event(&mut line).await;
    let event = format!("Event: UserEvent\r\nUserEvent: CallbridgeHears\r\n{id}\r\n\r\n");
    send(&mut line, event.as_bytes()).await;
    loop {
        match stage.next().await {
            Item::EventsFlow => break,
            Item::Frame(_) | Item::Up | Item::Down(_) | Item::Gap { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
