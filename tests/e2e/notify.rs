//! Is a command told once when a trouble begins and once when it ends, over restarts?

use crate::crm::{self, RATE_FLAG};
use crate::program::Place;
use crate::recordings;
use crate::wait;
use callbridge_model::Status;
use serde_json::Value;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:NONE";

fn told(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.at("told")).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(Result::ok).collect()
}

async fn tells(place: &Place, lines: usize) -> Vec<Value> {
    let stored = || place.logs().matches("--notify-command has run").count() >= lines;
    wait::until(&format!("{lines} runs"), async || stored()).await;
    told(place)
}

#[tokio::test]
async fn a_command_is_told_once_when_a_trouble_begins_and_once_when_it_ends() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("calls.ami", &recordings::one("inbound_answered").ami);
    let source = place.file("calls.ami", "ami");
    let (lines, variables) = (place.path("told"), place.path("variables"));
    let command = format!("--notify-command=cat >> '{lines}'; env > '{variables}'");
    let flags = [&source, TRUNK, RATE_FLAG, command.as_str()];
    let variables = [
        ("CALLBRIDGE_LOG", "info".to_owned()),
        ("PATH", "/usr/bin:/bin".to_owned()),
    ];
    let program = place.run_with(&crm.url(), &flags, &variables);
    let first = tells(&place, 1).await;
    assert_eq!(
        (&first[0]["kind"], &first[0]["state"]),
        (&"no_lead".into(), &"begins".into())
    );
    assert_eq!(first[0]["what"], "1 call waits for a lead");
    let todo = first[0]["todo"].as_str().expect("a command");
    assert!(
        todo.starts_with("callbridge lead missing --state"),
        "{todo}"
    );
    assert!(
        first[0]["since"]
            .as_i64()
            .is_some_and(|since| since > 1_700_000_000)
    );
    let variables = std::fs::read_to_string(place.at("variables")).expect("written");
    assert!(variables.contains("PATH=/usr/bin:/bin"), "{variables}");
    assert!(
        !variables.contains("CALLBRIDGE_"),
        "none of ours: {variables}"
    );
    program.terminate().await;

    // The same trouble, and then none any more.
    let mut program = place.run(&crm.url(), &flags);
    let parked = |it: &Status| it.books.parked == 1;
    program.until("the call that waits", parked).await;
    let given = place
        .lines(&["lead", "give", "+998901110001", "4001", "--json"])
        .await;
    assert_eq!(given[0]["left"], 1);
    let both = tells(&place, 2).await;
    assert_eq!(
        (&both[1]["kind"], &both[1]["state"]),
        (&"no_lead".into(), &"ends".into())
    );
    assert_eq!(both[1]["since"], both[0]["since"]);
    assert_eq!(both.len(), 2, "told once: {both:?}");
    program.terminate().await;
}
