//! Tests calls whose lead or employee the CRM does not know, and the fields that leads show of
//! their calls.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording, TRUNKS};
use callbridge_model::webhook_signature::Key;
use callbridge_model::{Secret, Status};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::token::{Grant, IdSet};
use callbridge_sandbox::{Server, ViolationKind, lead};
use callbridge_testbed::wait::{soon, until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The application's secret, which signs webhooks.
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Starts a CRM whose token can do everything that leads need.
async fn crm_with(leads: &str, employees: &str, more: &[&str]) -> Server {
    let mut config = crm::settings();
    let grants = [
        "PERMISSION_OPEN_API_CALL:SAVE",
        "PERMISSION_OPEN_API_CALL:READ",
    ];
    let grants = grants.iter().chain(more);
    let company = &mut config.settings.company;
    company.grants = grants.filter_map(|text| Grant::parse(text)).collect();
    company.leads = IdSet::parse(leads).expect("ids");
    company.employees = IdSet::parse(employees).expect("ids");
    sandbox::start(config).await.expect("a sandbox")
}

const READ: &str = "PERMISSION_OPEN_API_LEAD:READ";
const SAVE: &str = "PERMISSION_OPEN_API_LEAD:SAVE";

/// Returns the value of a lead's field, or null if it has none.
pub fn field(crm: &Server, id: i64, field: &str) -> Value {
    let all = crm.admin(|core, _| lead::all(core));
    let leads = all.as_array().expect("leads");
    let lead = leads.iter().find(|lead| lead["id"] == id);
    let Some(fields) = lead.and_then(|lead| lead.get("fields")) else {
        return Value::Null;
    };
    match fields {
        Value::Object(map) => map.get(field).cloned().unwrap_or_default(),
        Value::Array(rows) => {
            let named = |row: &&Value| row["id"].as_i64().map(|id| id.to_string());
            let row = rows.iter().find(|row| named(row).as_deref() == Some(field));
            row.map_or(Value::Null, |row| row["value"].clone())
        }
        other => panic!("{other}"),
    }
}

fn time(epoch: i64) -> Value {
    let at = jiff::Timestamp::from_second(epoch).expect("a time");
    let at = at.to_zoned(jiff::tz::TimeZone::get("Asia/Tashkent").expect("a zone"));
    at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string().into()
}

fn no_breach(crm: &Server) {
    let wrong = crm::conduct(crm, |_| false);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns a call of lead 4001 that began `seconds` seconds after the recorded one, a day earlier.
fn later(seconds: i64) -> Recording {
    let call = recordings::one("inbound_answered");
    let began = call.calls[0]["startedAt"].as_i64().expect("an epoch");
    call.moved_to(began - 86_400 + seconds)
}

async fn start(place: &Place, crm: &Server, more: &[&str]) -> Program {
    let source = place.file("recorded", "ami");
    let usual = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let flags: Vec<&str> = usual.into_iter().chain(more.iter().copied()).collect();
    place.run(&crm.url(), &flags)
}

#[tokio::test]
async fn lead_field_shows_newest_of_unordered_calls_after_restart() {
    let (place, crm) = (
        Place::new(),
        crm_with("4001-4009", "501-599", &[READ, SAVE]).await,
    );
    let flags = [
        "--lead-field=last_call=11,last_missed=21,last_employee=12",
        "--pbx-timezone=Asia/Tashkent",
    ];
    let [old, newest, between] = [100, 900, 500].map(later);
    let began = |call: &Recording| time(call.calls[0]["startedAt"].as_i64().expect("an epoch"));
    place.append("recorded", &newest.ami);
    place.append("recorded", &old.ami);
    let mut program = start(&place, &crm, &flags).await;
    program.settled(2).await;
    let shows = async |value: &Value| {
        until("the field", async || field(&crm, 4_001, "11") == *value).await;
    };
    shows(&began(&newest)).await;
    assert_eq!(field(&crm, 4_001, "12"), json!("501"));
    program.kill().await;
    place.append("recorded", &between.ami);
    let mut program = start(&place, &crm, &flags).await;
    program.settled(3).await;
    let idle = |it: &callbridge_model::Status| {
        let fields = it.lead_fields.as_ref();
        fields.is_some_and(|fields| fields.waiting == 0 && fields.state == "ok")
    };
    program.until("nothing waits to be shown", idle).await;
    assert_eq!(field(&crm, 4_001, "11"), began(&newest), "over a kill");
    let last = later(2_000);
    place.append("recorded", &last.ami);
    program.settled(4).await;
    shows(&began(&last)).await;
    // A field of contacts is left out and reported.
    let status = program.status().await.expect("a status");
    let fields = status.lead_fields.expect("fields").fields;
    let wrong: Vec<_> = fields.iter().filter(|field| !field.ok).collect();
    assert_eq!((wrong.len(), wrong[0].id), (1, 21), "{fields:?}");
    assert!(wrong[0].message.contains("CONTACT"), "{}", wrong[0].message);
    program.terminate().await;
    assert!(place.logs().contains("last_missed=21"), "{}", place.logs());
    assert_eq!(field(&crm, 4_001, "21"), Value::Null);
    no_breach(&crm);
}

#[tokio::test]
async fn lead_field_values_match_types_and_callback_clears_missed() {
    let (place, crm) = (
        Place::new(),
        crm_with("4001-4009", "501-599", &[READ, SAVE]).await,
    );
    let kinds = "last_call=17:date,last_missed=16:boolean,missed-count=15:number,\
                 last_employee=19:number,trunk=18,direction=11,answered-by=13,did=12";
    let fields = format!("--lead-field={kinds}");
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    let call = |name: &str, ago: i64| recordings::one(name).moved_to(now - ago);
    let [first, second] = [3_600, 1_800].map(|ago| call("inbound_cancelled", ago));
    place.append("recorded", &first.ami);
    place.append("recorded", &second.ami);
    let zone = "--pbx-timezone=Asia/Tashkent";
    let mut program = start(&place, &crm, &[&fields, zone]).await;
    program.settled(2).await;
    let shows = async |wanted: &Value| {
        let ids = [11, 12, 13, 15, 16, 17, 18, 19];
        let all = || ids.map(|id: i64| field(&crm, 4_001, &id.to_string()));
        until(&wanted.to_string(), async || json!(all()) == *wanted).await;
    };
    let day = |call: &Recording| {
        let began = time(call.calls[0]["startedAt"].as_i64().expect("an epoch"));
        began.as_str().expect("a text")[..10].to_owned()
    };
    let did = &second.calls[0]["did"];
    let missed = json!(["INBOUND", did, null, 2, true, day(&second), "city", 501]);
    shows(&missed).await;
    let back = call("outbound_answered", 600);
    place.append("recorded", &back.ami);
    program.settled(3).await;
    // The number that was dialed in the last inbound call is still there.
    let talked = json!(["OUTBOUND", did, "101", 0, null, day(&back), "city", 501]);
    shows(&talked).await;
    let status = program.status().await.expect("a status");
    let fields = status.lead_fields.expect("fields").fields;
    assert!(fields.iter().all(|field| field.ok), "{fields:?}");
    program.terminate().await;
    no_breach(&crm);
}

#[tokio::test]
async fn refused_lead_field_value_is_named_until_field_accepts_one() {
    let (place, crm) = (
        Place::new(),
        crm_with("4001-4009", "501-599", &[READ, SAVE]).await,
    );
    place.append("recorded", &later(0).ami);
    let flag = "--lead-field=last_call=15,direction=11";
    let mut program = start(&place, &crm, &[flag]).await;
    let item = r#"the CRM did not accept {"id":15,"value":"2026-"#;
    let named = |it: &Status| {
        it.problems
            .iter()
            .any(|problem| problem.message.contains(item))
    };
    let status = program.until("the item is said", named).await;
    let fields = status.lead_fields.expect("fields").fields;
    let ok: Vec<_> = fields.iter().map(|field| (field.id, field.ok)).collect();
    assert_eq!(ok, [(15, false), (11, true)]);
    // The other field is written all the same.
    until("the direction", async || {
        field(&crm, 4_001, "11") == json!("INBOUND")
    })
    .await;
    let check = async || {
        let (recorded, url) = (place.file("recorded", "ami"), crm.url());
        let mut check = place.arguments(&url, &[&recorded, TRUNKS[0], RATE_FLAG, flag]);
        check[0] = "check".to_owned();
        let check: Vec<&str> = check.iter().map(String::as_str).collect();
        let found = place.command(&check).await.stdout;
        String::from_utf8_lossy(&found).into_owned()
    };
    let told = check().await;
    assert!(
        told.contains(&format!("lead-field last_call=15: {item}")),
        "{told}"
    );
    program.terminate().await;
    let told = check().await;
    assert!(
        told.contains(&format!("lead-field last_call=15: {item}")),
        "{told}"
    );
    assert!(place.logs().contains("did not accept"), "{}", place.logs());
    let newer = later(900);
    place.append("recorded", &newer.ami);
    let flag = "--lead-field=last_call=15:number,direction=11";
    let mut program = start(&place, &crm, &[flag]).await;
    until("the number", async || {
        field(&crm, 4_001, "15") == newer.calls[0]["startedAt"]
    })
    .await;
    let well = |it: &Status| {
        let fields = it.lead_fields.iter().flat_map(|it| &it.fields);
        fields.map(|field| field.ok).eq([true, true])
    };
    program.until("both are well", well).await;
    program.terminate().await;
    let wrong = crm::conduct(&crm, |it| it == ViolationKind::Invalid);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn failed_call_dead_letter_names_unknown_lead_or_employee() {
    let (place, crm) = (Place::new(), crm_with("4001", "502-599", &[READ]).await);
    for call in ["inbound_answered", "inbound_no_answer"].map(recordings::one) {
        place.append("recorded", &call.ami);
    }
    let mut program = start(&place, &crm, &[]).await;
    program.until("two letters", |it| it.books.dead == 2).await;
    let told = async || {
        let letters = place.letters().await;
        let mut told: Vec<String> = letters
            .iter()
            .map(|letter| letter["message"].as_str().unwrap_or_default().to_owned())
            .collect();
        told.sort();
        told
    };
    until("the lookups", async || {
        let told = told().await;
        told.iter().all(|words| words.contains("exist"))
    })
    .await;
    let told = told().await;
    let wanted = [
        "lead 4002 does not exist (deleted or another company's)",
        "the lead exists: employee 501 is not known",
    ];
    for (words, wanted) in told.iter().zip(wanted) {
        assert!(words.starts_with(wanted), "{words}");
    }
    program.terminate().await;
    no_breach(&crm);
}

#[tokio::test]
async fn unknown_employee_is_dropped_and_the_call_journaled() {
    let (place, crm) = (Place::new(), crm_with("4001", "502-599", &[READ]).await);
    place.append("recorded", &later(0).ami);
    place.append("recorded", &later(100).ami);
    let mut program = start(&place, &crm, &["--failed-employee=drop"]).await;
    program
        .until("both journaled", |it| it.books.journaled == 2)
        .await;
    let journal = crm.journal();
    let employees: Vec<_> = journal
        .iter()
        .map(|record| record.call.employee_id)
        .collect();
    assert_eq!(employees, [None, None]);
    // Neither call is a dead letter, so only `status` names the employee from now on.
    let words = "the CRM does not know employee 501 (extension 101), ";
    let named = |it: &Status| {
        it.problems
            .iter()
            .any(|problem| problem.message.starts_with(words))
    };
    program.until("the employee is named", named).await;
    program.terminate().await;
    let status = place.lines(&["status", "--json"]).await.remove(0);
    assert_eq!(status["employees"]["unknown"][0]["employeeId"], 501);
    no_breach(&crm);
}

#[tokio::test]
async fn without_the_grant_nothing_is_looked_up_or_shown() {
    let (place, crm) = (Place::new(), crm_with("4001", "502-599", &[]).await);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let mut program = start(&place, &crm, &["--lead-field=last_call=11"]).await;
    program.until("a letter", |it| it.books.dead == 1).await;
    let off = |it: &callbridge_model::Status| {
        let fields = it.lead_fields.as_ref();
        fields.is_some_and(|fields| fields.state == "off")
    };
    let status = program.until("fields are off", off).await;
    let why = status.lead_fields.and_then(|fields| fields.reason);
    assert!(why.is_some_and(|why| why.contains(SAVE)));
    program.terminate().await;
    no_breach(&crm);
}

/// Sends an event as the CRM does. Returns the status of the answer.
async fn deliver(addr: SocketAddr, event: &Value) -> String {
    let body = event.to_string();
    let now = callbridge_model::clock::now()
        .wall
        .floor_seconds()
        .get()
        .to_string();
    let key = Key::new(&Secret::from(SECRET));
    let signature = key.sign(&now, body.as_bytes());
    let head = format!(
        "POST /webhooks HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/json\r\n\
         X-Webhook-Id: {}\r\nX-Webhook-Installation-Id: 9\r\nX-Webhook-Timestamp: {now}\r\n\
         X-Webhook-Signature: {signature}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        event["eventId"].as_str().expect("an id"),
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = soon("the answer to an event", exchange).await;
    let answer = answer.unwrap_or_default();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn merged(into: i64, from: i64, id: u32) -> Value {
    json!({
        "eventId": format!("00000000-0000-4000-8000-{id:012}"), "eventType": "LEAD_MERGED",
        "occurredAt": callbridge_model::clock::now().wall.floor_seconds().get(), "companyId": 1,
        "lead": {"id": into, "name": "x", "phone": null}, "mergedLeadIds": [from],
    })
}

#[tokio::test]
async fn failed_and_new_calls_of_merged_lead_go_to_surviving_lead() {
    let (place, crm) = (Place::new(), crm_with("4005", "501-599", &[READ]).await);
    let addr = callbridge_testbed::port::free_addr();
    let secret = place.write("webhook-secret", SECRET);
    let flags = [
        format!("--webhook-listen={addr}"),
        format!("--webhook-secret-file={secret}"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    place.append("recorded", &later(0).ami);
    let mut program = start(&place, &crm, &flags).await;
    program.until("a letter", |it| it.books.dead == 1).await;
    until("the event is taken", async || {
        deliver(addr, &merged(4_005, 4_001, 1))
            .await
            .starts_with('2')
    })
    .await;
    program
        .until("it left", |it| {
            it.books.journaled == 1 && it.books.dead == 0
        })
        .await;
    // The next call goes directly to that lead, without a FAILED status.
    place.append("recorded", &later(100).ami);
    let status = program.until("both", |it| it.books.journaled == 2).await;
    assert!(status.books.balance());
    let journal = crm.journal();
    let leads: Vec<i64> = journal.iter().map(|record| record.call.lead_id).collect();
    assert_eq!(leads, [4_005, 4_005]);
    let failed = place.logs().matches("the CRM could not write it").count();
    assert_eq!(failed, 1, "{}", place.logs());
    program.terminate().await;
    no_breach(&crm);
}

#[tokio::test]
async fn lead_values_set_by_hand_are_checked_written_and_reported() {
    let (place, crm) = (
        Place::new(),
        crm_with("4001", "501-599", &[READ, SAVE]).await,
    );
    let set = async |values: &[&str]| {
        let arguments: Vec<&str> = ["lead", "set"]
            .into_iter()
            .chain(values.iter().copied())
            .collect();
        let output = place.command(&arguments).await;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().expect("an end"), told)
    };
    assert_eq!(set(&["4001", "11=VIP"]).await.0, 69, "no daemon");
    place.append("recorded", b"");
    let mut program = start(&place, &crm, &[]).await;
    program.until("it sends", |it| it.token.state == "ok").await;
    assert_eq!(
        set(&["4001", "11=VIP", "14=[a, b]"]).await,
        (0, String::new())
    );
    assert_eq!(field(&crm, 4_001, "11"), json!("VIP"));
    assert_eq!(set(&["4001", "11=null"]).await.0, 0);
    assert_eq!(field(&crm, 4_001, "11"), Value::Null);
    let (code, told) = set(&["4001", "21=x", "99=y"]).await;
    assert!(told.contains("CONTACT") && told.contains("99"), "{told}");
    assert_eq!(code, 65);
    let (code, told) = set(&["4444", "11=x"]).await;
    assert!(code == 65 && told.contains("4444"), "{told}");
    let (code, told) = set(&["x", "11=a", "11=b", "z"]).await;
    assert!(code == 64 && told.contains("given twice"), "{told}");
    let grants = ["PERMISSION_OPEN_API_CALL:SAVE", READ];
    let grants = grants
        .iter()
        .filter_map(|text| Grant::parse(text))
        .collect();
    crm.admin(|core, now| core.set_grants(now, grants));
    let (code, told) = set(&["4001", "11=x"]).await;
    assert!(code == 77 && told.contains(SAVE), "{told}");
    program.terminate().await;
}
