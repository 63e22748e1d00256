//! Tests two hubs whose databases are copies of one, as after a failover without fencing: both
//! pause, and a command ends the pause of the one that remains.

use super::stage::{
    add_branch, free_address, messages, post_as_collector, start_hub_with, wait_until_serving,
};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use callbridge_model::Status;
use callbridge_testbed::postgres::{Durability, Postgres};
use serde_json::Value;

const BRANCH: &str = "samarkand";
/// A collector that changes hubs with each request shows the second database twice by then.
const ROUNDS: u32 = 4;

fn is_split(status: &Status) -> bool {
    let pause = status.pause.as_ref();
    pause.is_some_and(|pause| pause.reason == "split_database")
}

#[tokio::test]
async fn hubs_with_split_database_pause_until_sending_is_resumed() {
    let servers = [(); 2].map(|()| Postgres::start(Durability::None, ""));
    let schema = Postgres::new_schema();
    let places = servers
        .each_ref()
        .map(|server| Place::in_database(&server.url(&schema)));
    let token = add_branch(&places[0], BRANCH, BRANCH).await;
    let copy = tempfile::tempdir().expect("a folder");
    let file = copy.path().join("schema.sql");
    let file = file.to_str().expect("UTF-8");
    servers[0].dump(&schema, file);
    servers[1].sql(&format!("CREATE SCHEMA {schema}"));
    servers[1].restore(&schema, file);
    let crm = crm::start().await;
    let mut hubs = Vec::new();
    for place in &places {
        let address = free_address();
        let mut hub = start_hub_with(&[RATE_FLAG], place, &crm.url(), address);
        wait_until_serving(&mut hub).await;
        hubs.push((address, hub));
    }
    let mut seen = Value::Null;
    for round in 0..ROUNDS {
        for (address, hub) in &mut hubs {
            let calls = messages(BRANCH, round..round + 1);
            let (status, answer) = post_as_collector(*address, &token, &seen, calls).await;
            assert_eq!(status, 200, "{answer}");
            seen = answer;
            let status = hub.status().await.expect("a status");
            assert!(round > 0 || !is_split(&status), "once is no proof");
        }
    }
    for (_, hub) in &mut hubs {
        let status = hub.until("the pause", is_split).await;
        assert_eq!(status.books.finished, u64::from(ROUNDS), "calls are stored");
        let problem = &status.problems[0];
        assert!(problem.message.contains(BRANCH), "{problem:?}");
        assert!(problem.command.contains("sending resume"), "{problem:?}");
    }
    let (_, other) = hubs.pop().expect("a hub");
    other.kill().await;
    let resume = ["sending", "resume"];
    for word in ["sending resumes", "isn't paused"] {
        let output = places[0].command(&resume).await;
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success() && text.contains(word), "{text}");
    }
    let (_, mut hub) = hubs.pop().expect("a hub");
    let status = hub
        .until("the end of the pause", |status| !is_split(status))
        .await;
    let seen = status.hub.expect("a hub");
    assert_eq!(seen.silent_until, None, "no calls were lost");
    hub.terminate().await;
}
