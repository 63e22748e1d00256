//! Tests that a missed customer is listed until an employee talks to them.

use crate::e2e::operations::monitoring::metrics;
use crate::support::crm;
use crate::support::program::Place;
use crate::support::recordings;
use callbridge_testbed::calls::{moved_to, now};
use serde_json::{Value, json};

const TRUNK: &str =
    "--trunk=city=PJSIP/city,country=UZ,strip=9,unanswered=no,lead=var:LEAD_ID;csv:leads.csv";
/// The missed customer.
const PHONE: &str = "+998901110002";

/// Returns a recorded call's AMI events, changed to the missed customer and shifted to start at
/// `begins`, in seconds since the epoch.
fn events_of_call(name: &str, begins: i64) -> Vec<u8> {
    let recorded = String::from_utf8(recordings::one(name).ami).expect("text");
    let moved = moved_to(&recorded, begins);
    moved.replace("998901110001", "998901110002").into_bytes()
}

/// Returns the missed customers listed by the command.
async fn list_missed(place: &Place) -> Vec<Value> {
    place.lines(&["missed", "--json"]).await
}

#[tokio::test]
async fn missed_customer_is_listed_until_reached() {
    let (place, crm) = (Place::new(), crm::start().await);
    let leads = place.write("leads.csv", "phone,leadId\n");
    let trunk = TRUNK.replace("leads.csv", &leads);
    let source = place.file("calls.ami", "ami");
    let flags = [&source, &trunk, crm::RATE_FLAG, "--listen=127.0.0.1:0"];
    let begins = now() - 3_000;
    place.append("calls.ami", &events_of_call("inbound_no_answer", begins));
    let mut program = place.run(&crm.url(), &flags);
    let status = program
        .until("a customer who waits", |current| {
            current.trunks[0].missed_customers == 1
        })
        .await;
    assert_eq!(
        (status.books.skipped, status.books.finished),
        (1, 0),
        "no record"
    );
    assert_eq!((status.trunks[0].calls, status.trunks[0].day_calls), (1, 1));
    let expected = json!({
        "phone": PHONE, "leadId": null, "trunk": "city", "firstAt": begins,
        "lastAt": begins, "tries": 1,
    });
    assert_eq!(list_missed(&place).await, [expected]);
    let assigned = place
        .lines(&["lead", "give", "90 111 00 02", "4001", "--json"])
        .await;
    assert_eq!(assigned[0]["left"], 0);
    place.append(
        "calls.ami",
        &events_of_call("inbound_no_answer", begins + 600),
    );
    program
        .until("the second try", |current| current.trunks[0].calls == 2)
        .await;
    let listed = list_missed(&place).await;
    let customer = &listed[0];
    assert_eq!(customer["tries"], 2);
    assert_eq!(
        (&customer["firstAt"], &customer["lastAt"]),
        (&json!(begins), &json!(begins + 600))
    );
    assert_eq!(
        customer["leadId"], 4001,
        "the lead that was assigned to the number"
    );
    let exported = metrics(&program).await;
    let line = "callbridge_missed_customers{trunk=\"city\"} 1\n";
    assert!(exported.contains(line), "{exported}");
    assert_eq!(
        place.lines(&["missed", "--json", "--since", "30m"]).await,
        [Value::Null; 0]
    );
    assert_eq!(
        place
            .lines(&["missed", "--json", "--since", "24h"])
            .await
            .len(),
        1
    );
    program.terminate().await;
    let csv = place.command(&["missed", "--csv"]).await.stdout;
    let csv = String::from_utf8(csv).expect("text");
    assert!(
        csv.starts_with("phone,leadId,trunk,firstAt,lastAt,tries\n"),
        "{csv}"
    );
    assert!(csv.contains(&format!("{PHONE},4001,city,")), "{csv}");

    let mut program = place.run(&crm.url(), &flags);
    place.append(
        "calls.ami",
        &events_of_call("inbound_answered", begins + 1_200),
    );
    program
        .until("a call that reached the customer", |current| {
            current.trunks[0].missed_customers == 0
        })
        .await;
    assert_eq!(list_missed(&place).await, [Value::Null; 0]);
    let output = place.command(&["missed"]).await.stdout;
    assert_eq!(output, b"no customer waits for a callback\n");
    program.terminate().await;
}
