//! Tests the hub's responses to valid and invalid requests.

use super::stage::{Hub, message, messages, post, post_as};
use crate::e2e::operations::monitoring;
use callbridge_testbed::wait::soon;
use rusqlite::Connection;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const NEWER_CONTENT_TYPE: &str = "application/vnd.callbridge.call+json; version=2";

/// Promise: One line of JSON, posted with curl, is journaled.
#[tokio::test]
async fn hub_journals_one_posted_line() {
    let mut hub = Hub::start().await;
    let token = hub.add_branch("samarkand").await;
    let body = message("samarkand", 1).to_string();
    let (status, answer) = hub.post(&token, body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["refused"], json!([]));
    let taken = answer["taken"].clone();
    assert_eq!(taken.as_array().expect("uuids").len(), 1);
    hub.program
        .until("the call is journaled", |status| {
            status.books.journaled == 1
        })
        .await;
    let (status, again) = hub.post(&token, body).await;
    assert_eq!(
        (status, &again["taken"]),
        (200, &taken),
        "a repeat is taken"
    );
    assert!(again["seq"].as_u64() > answer["seq"].as_u64());
    let status = hub.program.settled(1).await;
    assert_eq!(status.books.finished, 1);
    hub.program.terminate().await;
}

#[tokio::test]
async fn wrong_requests_are_refused_and_counted_by_branch() {
    let mut hub = Hub::start().await;
    let token = hub.add_branch("samarkand").await;
    hub.add_branch("bukhara").await;
    let (status, answer) = hub.post("no-token", messages("samarkand", 1..2)).await;
    assert_eq!(status, 401, "{answer}");
    let body = format!(
        "{}garbage\n{}{{\"id\":\"9\"}}\n",
        messages("samarkand", 1..2),
        messages("bukhara", 2..3)
    );
    let (status, answer) = hub.post(&token, body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["taken"].as_array().expect("uuids").len(), 1);
    let refused = answer["refused"].as_array().expect("lines");
    let lines: Vec<_> = refused.iter().map(|refused| &refused["line"]).collect();
    assert_eq!(lines, [2, 3, 4]);
    let error = refused[1]["error"].as_str().expect("an error");
    assert!(
        error.starts_with("pbx: bukhara is not a PBX of branch samarkand"),
        "{error}"
    );
    let (status, answer) = post_as(
        hub.address,
        "/v1/calls",
        &token,
        NEWER_CONTENT_TYPE,
        messages("samarkand", 2..3),
    )
    .await;
    assert_eq!(status, 415, "{answer}");
    let (status, _) = hub.post(&token, messages("samarkand", 0..501)).await;
    assert_eq!(status, 413);
    let (status, _) = hub.post(&token, " ".repeat((1 << 20) + 1)).await;
    assert_eq!(status, 413);
    let (status, _) = post(hub.address, "/v2/calls", &token, String::new()).await;
    assert_eq!(status, 404);
    let (status, _) = post(hub.address, "/v1/report", &token, "no JSON".to_owned()).await;
    assert_eq!(status, 400);
    let status = hub.program.settled(1).await;
    assert_eq!(status.books.finished, 1);
    let metrics = monitoring::address(&hub.program).await;
    let (_, text) = monitoring::get(metrics, "/metrics").await;
    for (branch, reason, count) in [
        ("", "token", 1),
        ("samarkand", "line", 3),
        ("samarkand", "version", 1),
        ("samarkand", "too_many_lines", 1),
        ("samarkand", "too_large", 1),
        ("samarkand", "path", 1),
        ("samarkand", "report", 1),
    ] {
        let labels = format!("{{branch=\"{branch}\",reason=\"{reason}\"}}");
        let line = format!("callbridge_branch_refused_total{labels} {count}");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    for name in [
        "callbridge_hub_silent 0",
        "callbridge_branch_taken_calls_total{",
    ] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
    hub.program.terminate().await;
}

#[tokio::test]
async fn refused_lines_are_dead_letters_of_their_branch() {
    let mut hub = Hub::start().await;
    let token = hub.add_branch("samarkand").await;
    for _ in 0..3 {
        let wrong = "{\"id\":\"9\"}\n".repeat(2);
        let (status, answer) = hub.post(&token, wrong).await;
        assert_eq!(status, 422, "{answer}");
        assert_eq!(answer["refused"].as_array().map(Vec::len), Some(2));
    }
    let foreign = messages("bukhara", 2..3);
    let (status, _) = hub.post(&token, foreign.clone()).await;
    assert_eq!(status, 422);
    let (status, _) = hub
        .post(&token, format!("[{}]", message("samarkand", 3)))
        .await;
    assert_eq!(status, 422);
    let status = hub
        .program
        .until("the dead letters", |status| {
            status.dead_letters.get("unreadable") == Some(&3)
        })
        .await;
    assert_eq!(status.books.finished, 0);
    let branches = hub.place.lines(&["branch", "list", "--json"]).await;
    assert_eq!(branches[0]["refused"], 3 * 2 + 2);
    let last = branches[0]["refusal"].as_str().expect("an error");
    assert!(last.contains("array"), "{last}");
    for command in [&["status"][..], &["branch", "list"]] {
        let text = hub.place.command(command).await.stdout;
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(text.contains("refused") && text.contains(last), "{text}");
    }
    let log = hub.program.log();
    assert!(
        log.contains("refused lines of a branch") && log.contains("id=9"),
        "{log}"
    );
    let letters = hub.place.letters().await;
    let letter = letters.iter().find(|letter| {
        let why = letter["message"].as_str().unwrap_or_default();
        why.contains("bukhara is not a PBX")
    });
    let id = letter.expect("the line of another PBX")["id"].to_string();
    let retry = ["dead", "retry", &id];
    let refused = hub.place.command(&retry).await;
    assert_eq!(refused.status.code(), Some(65), "the PBX is still foreign");
    let shown = String::from_utf8(refused.stdout).expect("UTF-8");
    assert!(shown.contains("bukhara is not a PBX"), "{shown}");
    let added = ["branch", "add", "samarkand", "--pbx", "bukhara"];
    assert!(hub.place.command(&added).await.status.success());
    // The script posts a corrected call before someone retries the refused line.
    let corrected = foreign.replace(r#""talkSec":12"#, r#""talkSec":11"#);
    assert_ne!(corrected, foreign);
    let (status, answer) = hub.post(&token, corrected).await;
    assert_eq!(status, 200, "{answer}");
    let retried = hub.place.command(&retry).await;
    let shown = String::from_utf8(retried.stdout).expect("UTF-8");
    assert!(retried.status.success(), "{shown}");
    assert!(shown.contains(" dead"), "{shown}");
    hub.program
        .until("one call and its conflict", |status| {
            let dead = &status.dead_letters;
            status.books.journaled == 1
                && dead.get("unreadable") == Some(&2)
                && dead.get("uuid_conflict") == Some(&1)
        })
        .await;
    hub.program.terminate().await;
    let spool = Connection::open(hub.place.at("state/spool.db")).expect("the state");
    let text = "SELECT count(*) FROM calls WHERE turn = 'samarkand'";
    let calls = spool.query_row(text, [], |row| row.get::<_, u32>(0));
    assert_eq!(calls, Ok(2), "both calls are the branch's");
}

#[tokio::test]
async fn collector_with_only_refused_lines_gets_200_and_keeps_them() {
    let mut hub = Hub::start().await;
    let token = hub.add_branch("samarkand").await;
    let mut line = TcpStream::connect(hub.address).await.expect("it listens");
    let request = format!(
        "POST /v1/calls HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\
         callbridge-sender: 5f6c\r\nConnection: close\r\nContent-Length: 7\r\n\r\ngarbage"
    );
    line.write_all(request.as_bytes()).await.expect("taken");
    let mut answer = Vec::new();
    let read = soon("the answer", line.read_to_end(&mut answer)).await;
    read.expect("an answer");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let status = hub.program.settled(0).await;
    assert!(status.dead_letters.is_empty(), "{:?}", status.dead_letters);
    let branches = hub.place.lines(&["branch", "list", "--json"]).await;
    assert_eq!(branches[0]["refused"], 1);
    hub.program.terminate().await;
}

#[tokio::test]
async fn incomplete_body_is_answered_408_and_counted() {
    let hub = Hub::start().await;
    let token = hub.add_branch("samarkand").await;
    let mut line = TcpStream::connect(hub.address).await.expect("it listens");
    let head = format!(
        "POST /v1/calls HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 9000\r\n\r\nhalf a body"
    );
    line.write_all(head.as_bytes()).await.expect("taken");
    let mut answer = Vec::new();
    let read = soon("the end of the request", line.read_to_end(&mut answer)).await;
    read.expect("an answer");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 408"), "{text}");
    let metrics = monitoring::address(&hub.program).await;
    let (_, text) = monitoring::get(metrics, "/metrics").await;
    let line = "callbridge_branch_refused_total{branch=\"samarkand\",reason=\"slow\"} 1";
    assert!(text.contains(line), "{text}");
    hub.program.terminate().await;
}

#[tokio::test]
async fn rotated_token_is_valid_at_once_and_removed_branch_is_refused() {
    let hub = Hub::start().await;
    let old = hub.add_branch("samarkand").await;
    let rotated = hub
        .place
        .lines(&["branch", "rotate", "samarkand", "--json"])
        .await;
    let new = rotated[0]["token"].as_str().expect("a token").to_owned();
    assert_ne!(old, new);
    for token in [&old, &new] {
        let (status, answer) = hub.post(token, messages("samarkand", 1..2)).await;
        assert_eq!(status, 200, "{answer}");
    }
    let branches = hub.place.lines(&["branch", "list", "--json"]).await;
    assert_eq!(branches[0]["branch"], "samarkand");
    assert_eq!(branches[0]["taken"], 2);
    assert_eq!(branches[0]["state"], "never");
    hub.place
        .lines(&["branch", "remove", "samarkand", "--json"])
        .await;
    let (status, _) = hub.post(&new, messages("samarkand", 2..3)).await;
    assert_eq!(status, 401);
    let logs = hub.place.logs();
    assert!(!logs.contains(&new) && !logs.contains(&old), "{logs}");
    hub.program.terminate().await;
}

#[tokio::test]
async fn stolen_token_ends_at_once_and_weak_or_taken_one_is_refused() {
    let hub = Hub::start().await;
    let old = hub.add_branch("samarkand").await;
    let rotate = ["branch", "rotate", "samarkand", "--now", "--json"];
    let rotated = hub.place.lines(&rotate).await;
    let new = rotated[0]["token"].as_str().expect("a token").to_owned();
    let (status, _) = hub.post(&old, messages("samarkand", 1..2)).await;
    assert_eq!(status, 401);
    let (status, answer) = hub.post(&new, messages("samarkand", 1..2)).await;
    assert_eq!(status, 200, "{answer}");
    for (token, code, message) in [
        ("a password", 64, "doesn't hold a token"),
        (&new, 65, "branch samarkand has this token already"),
        (&old, 65, "branch samarkand has this token already"),
    ] {
        let file = hub.place.write("given-token", token);
        let add = [
            "branch",
            "add",
            "bukhara",
            "--pbx",
            "bukhara",
            "--token-file",
            &file,
        ];
        let output = hub.place.command(&add).await;
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(message), "{told}");
        assert!(!told.contains(token), "{told}");
    }
    hub.program.terminate().await;
}

#[tokio::test]
async fn flooding_branch_is_limited_and_another_is_served() {
    let hub = Hub::start().await;
    let flood = hub.add_branch("flood").await;
    let quiet = hub.add_branch("quiet").await;
    let mut limited = 0;
    for _ in 0..70 {
        let (status, _) = hub.post(&flood, messages("flood", 0..1)).await;
        limited += u32::from(status == 429);
    }
    assert!(limited >= 10, "{limited}");
    let (status, _) = hub.post(&quiet, messages("quiet", 0..1)).await;
    assert_eq!(status, 200);
    hub.program.terminate().await;
}
