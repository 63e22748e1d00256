//! Tests `lead give`, `lead take`, `lead given`, and the stored name of the user who changed a dead
//! letter.

use crate::commands::sidecar::{Place, poll_until, start_crm};
use callbridge_testbed::calls::{Call, recording};
use serde_json::{Value, json};

/// Returns the name of the user that runs the tests, as the daemon reports it.
fn own_name() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let fields = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let mut own = fields.filter(|fields| fields.get(2) == Some(&uid.as_str()));
    let name = own.next().map(|fields| fields[0].to_owned());
    name.unwrap_or_else(|| format!("uid {uid}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn assigned_lead_releases_waiting_calls_now_or_at_next_start() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    let calls = [Call::without_lead(1), Call::without_lead(2)];
    place.write("calls.ami", recording(&calls));
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/waiting", 2).await;
    let command = format!("lead give {} 4001 --json", &calls[0].phone()[4..]);
    let assigned = place.run_on_state(&command).await.lines();
    assert_eq!(
        (&assigned[0]["leadId"], &assigned[0]["left"]),
        (&json!(4001), &json!(1))
    );
    assert_eq!(assigned[0]["phone"], calls[0].phone());
    place.wait_for_number("/books/journaled", 1).await;
    assert_eq!(crm.journal()[0].call.lead_id, 4001);
    let check = place
        .run_on_state(&format!("lead check --json {}", calls[0].phone()))
        .await;
    let reason = check.lines()[0]["reason"].to_string();
    assert!(
        reason.contains(&format!("given by {}", own_name())),
        "{reason}"
    );
    daemon.stop().await;

    // Without a daemon, the assigned lead is stored and used from the next start on.
    let (first, second) = (calls[0].phone(), calls[1].phone());
    place
        .run_on_state(&format!("lead give {second} 4002"))
        .await
        .expect_success();
    let listed = place.run_on_state("lead given --json").await.lines();
    let phones: Vec<&Value> = listed.iter().map(|lead| &lead["phone"]).collect();
    assert_eq!(phones, [&json!(first), &json!(second)]);
    assert_eq!(listed[0]["who"], own_name());
    place.run_until_idle(&flags).await;
    assert_eq!(crm.journal().len(), 2);
    place
        .run_on_state(&format!("lead take {first}"))
        .await
        .expect_success();
    let second_take = place.run_on_state(&format!("lead take {first}")).await;
    assert_eq!(second_take.code, 65, "{second_take:?}");
    assert!(
        second_take.err.contains("has no assigned lead"),
        "{second_take:?}"
    );
    let wrong = place.run_on_state("lead give 0001 4001").await;
    assert_eq!(wrong.code, 65, "{wrong:?}");
    assert!(
        wrong.err.contains("give it with + and its country"),
        "{wrong:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_lists_each_action_with_its_user() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", recording(&[Call::new(1, 9001)]));
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    assert_eq!(place.dead_letters("").await[0]["actions"], json!([]));
    place
        .run_on_state("dead retry --all --lead 9002 --dry-run")
        .await
        .expect_success();
    place
        .run_on_state("dead retry --all --lead 9002")
        .await
        .expect_success();
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/dead", 1).await;
    place
        .run_on_state("dead retry --all --lead 9003")
        .await
        .expect_success();
    let letter = poll_until("a letter for the third time", async || {
        let letter = place.dead_letters("").await.pop()?;
        let attempts = letter["attempts"].as_array().map_or(0, Vec::len);
        (attempts == 3).then_some(letter)
    })
    .await;
    let actions = letter["actions"].as_array().cloned().unwrap_or_default();
    let recorded: Vec<_> = actions
        .iter()
        .map(|action| (&action["who"], &action["action"]))
        .collect();
    let user = json!(own_name());
    let (first, second) = (json!("retry with lead 9002"), json!("retry with lead 9003"));
    assert_eq!(
        recorded,
        [(&user, &first), (&user, &second)],
        "a dry run is not recorded"
    );
    let shown = place.run_on_state("dead show --all").await.expect_success();
    let line = format!("{}: retry with lead 9003", own_name());
    assert!(shown.contains(&line), "{shown}");
    daemon.stop().await;
}
