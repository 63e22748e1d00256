//! Tests that a lead can be assigned to a number in three ways: typed in rows, typed for one
//! number, and read from a file.

use crate::client::{Manner, Served};
use crate::fake::Fake;
use crate::morning::morning;
use callbridge_admin::PageRole;
use callbridge_model::clock;

fn now() -> i64 {
    clock::now().wall.micros() / 1_000_000
}

#[tokio::test]
async fn lead_form_assigns_unassigns_and_explains_refusals() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let fields = [("phone", "+998935550101"), ("lead", "four")];
    let refused = anna.act("/numbers", "/numbers/give", &fields).await;
    assert_eq!(refused.status, 422);
    assert!(
        refused.body.contains("“four” is not a lead") && refused.body.contains("value=\"four\"")
    );
    let fields = [("phone", "+998935550101"), ("lead", "4001")];
    assert_eq!(
        anna.act("/numbers", "/numbers/give", &fields).await.status,
        303
    );
    let page = anna.get("/numbers").await.body;
    assert!(
        page.contains("Lead 4001 is assigned; 7 calls are being sent."),
        "{page}"
    );
    let again = anna.get("/numbers").await.body;
    assert!(!again.contains("calls are being sent"), "it is said once");
    let fields = [("phone", "+998000000000"), ("lead", "4007")];
    let unknown = anna.act("/numbers", "/numbers/give", &fields).await;
    assert_eq!(unknown.status, 422);
    for kept in [
        "this number waits no more",
        "value=\"+998000000000\"",
        "value=\"4007\"",
    ] {
        assert!(unknown.body.contains(kept), "{kept}: {}", unknown.body);
    }
    let take = [("phone", "+998935550101")];
    assert_eq!(
        anna.act("/numbers", "/numbers/take", &take).await.status,
        303
    );
    assert_eq!(fake.known().given.len(), 1);
    served.stop().await;
}

#[tokio::test]
async fn unknown_lead_is_assigned_if_it_is_sent_twice() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let before = fake.known().given.len();
    let phone = "+998935550101";
    let sure = format!("{phone} 9999");
    for fields in [
        vec![("row", phone), ("row-lead", "9999")],
        vec![("phone", phone), ("lead", "9999")],
        vec![("phone", phone), ("lead", "9998"), ("sure", &sure)],
    ] {
        let asked = anna.act("/numbers", "/numbers/give", &fields).await;
        assert_eq!(asked.status, 422);
        assert!(asked.body.contains("among the CRM"), "{}", asked.body);
        let answer = format!("name=\"sure\" value=\"{phone} {}\"", fields[1].1);
        assert!(asked.body.contains(&answer), "{}", asked.body);
        assert_eq!(fake.known().given.len(), before);
    }
    let fields = [("row", phone), ("row-lead", "9999"), ("sure", &sure)];
    assert_eq!(
        anna.act("/numbers", "/numbers/give", &fields).await.status,
        303
    );
    assert_eq!(fake.known().given.len(), before + 1);
    served.stop().await;
}

#[tokio::test]
async fn assigned_lead_shows_how_to_resend_dead_letters() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let fields = [("phone", "+998935550101"), ("lead", "4002")];
    anna.act("/numbers", "/numbers/give", &fields).await;
    let page = anna.get("/numbers").await.body;
    let command = "callbridge dead retry 12 9 --lead 4002";
    assert!(page.contains(command), "{page}");
    served.stop().await;
}

#[tokio::test]
async fn leads_typed_in_several_rows_are_assigned_together() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let page = anna.get("/numbers").await.body;
    assert_eq!(page.matches("name=\"row-lead\"").count(), 3, "{page}");
    let fields = [
        ("row", "+998935550101"),
        ("row-lead", "4001"),
        ("row", "+998935550102"),
        ("row-lead", "four"),
        ("row", "Savdo"),
        ("row-lead", " "),
    ];
    let some = anna.act("/numbers", "/numbers/give", &fields).await;
    assert_eq!(some.status, 422, "{}", some.body);
    for said in [
        "Lead 4001 is assigned; 7 calls are being sent.",
        "“four” is not a lead",
        "value=\"four\"",
    ] {
        assert!(some.body.contains(said), "{said}: {}", some.body);
    }
    let first = fake.known().given.last().cloned().expect("one is given");
    assert_eq!(first.lead_id.get(), 4001);
    assert_eq!(fake.known().numbers.len(), 2, "what was left empty stays");
    let none = anna.act("/numbers", "/numbers/give", &[]).await;
    assert_eq!(none.status, 422, "nothing was typed");
    served.stop().await;
}

/// Returns the row of this number in the file, with a lead at its end.
fn row_with_lead(file: &str, phone: &str, lead: &str) -> String {
    let row = file.lines().find(|line| line.starts_with(phone));
    format!("{}{lead}", row.expect("its row"))
}

#[tokio::test]
async fn numbers_file_can_be_uploaded_again_with_leads() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let file = anna.get("/numbers.csv").await.body;
    let csv = format!(
        "phone,calls,firstAt,lastAt,lead\r\n{}\r\n{}\r\n+998000000000,1,,,4009\r\n",
        row_with_lead(&file, "+998935550101", "4001"),
        row_with_lead(&file, "+998935550102", "4002"),
    );
    let answer = anna
        .act("/numbers", "/numbers/give", &[("csv", &csv)])
        .await;
    assert_eq!(answer.status, 422, "{}", answer.body);
    for said in [
        "The leads of 2 numbers are assigned; calls being sent: 8.",
        "this number waits no more",
        "+998000000000",
    ] {
        assert!(answer.body.contains(said), "{said}: {}", answer.body);
    }
    let given: Vec<i64> = (fake
        .known()
        .given
        .iter()
        .map(|assigned| assigned.lead_id.get()))
    .collect();
    assert_eq!(given, [4001, 4001, 4002]);
    served.stop().await;
}

#[tokio::test]
async fn lead_file_with_conflict_or_bad_row_assigns_no_lead() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let before = fake.known().given.len();
    for (csv, said) in [
        // A comma inside quotes does not separate cells: `4,001` is not lead 4.
        ("phone,lead\n+998935550101,\"4,001\"\n", "is not a lead"),
        (
            "+998935550101;4001\n+998 93 555-01-01;4002\n",
            "has two leads in the list: neither was saved",
        ),
        (
            "telephone,deal\n+998935550101,4001\n",
            "must name the columns",
        ),
        (
            "phone,lead\n+998935550101,\n",
            "1 row without a number or a lead",
        ),
    ] {
        let answer = anna.act("/numbers", "/numbers/give", &[("csv", csv)]).await;
        assert_eq!(answer.status, 422, "{csv}: {}", answer.body);
        assert!(answer.body.contains(said), "{csv}: {}", answer.body);
        assert_eq!(fake.known().given.len(), before, "{csv}");
    }
    // A name with a comma in it does not shift the columns.
    let csv = "phone,name,lead\n+998935550101,\"Karimova, Aziza\",4001\n";
    let answer = anna.act("/numbers", "/numbers/give", &[("csv", csv)]).await;
    assert_eq!(answer.status, 303, "{}", answer.body);
    let last = fake.known().given.last().cloned().expect("given");
    assert_eq!(last.lead_id.get(), 4001);
    served.stop().await;
}

#[tokio::test]
async fn unreadable_number_in_a_file_rejects_only_its_row() {
    let fake = Fake::new(morning("Savdo", now()));
    let served = Served::new(std::sync::Arc::clone(&fake), Manner::default()).await;
    let mut anna = served.visitor(PageRole::Admin).await;
    let numbers: Vec<String> = (fake.known().numbers.iter().take(2))
        .map(|waiting| waiting.phone.as_str().to_owned())
        .collect();
    let csv = format!(
        "phone,lead\n{},4001\ncall me,4002\n1234,4003\n{},4004\n",
        numbers[0], numbers[1]
    );
    let before = fake.known().given.len();
    let answer = anna
        .act("/numbers", "/numbers/give", &[("csv", &csv)])
        .await;
    assert_eq!(answer.status, 422, "{}", answer.body);
    for expected in [
        "Line 3: ",
        "Line 4: ",
        "call me",
        "not a full telephone number",
    ] {
        assert!(
            answer.body.contains(expected),
            "{expected}: {}",
            answer.body
        );
    }
    assert!(!answer.body.contains("Line 2: "), "{}", answer.body);
    assert_eq!(fake.known().given.len(), before + 2, "the other rows");
    served.stop().await;
}
