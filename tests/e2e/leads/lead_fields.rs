//! Tests calls whose lead or employee the CRM doesn't know, and the fields of a lead that show its
//! calls.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, Recording, TRUNKS};
use callbridge_model::webhook_signature::Key;
use callbridge_model::{Secret, Status};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::token::{Grant, IdSet};
use callbridge_sandbox::{Endpoint, Server, ViolationKind, lead};
use callbridge_testbed::wait::{soon, until};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The application's secret, which is used to sign webhooks.
const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Starts a CRM that has these leads and employees (as ID ranges). The token may read and write
/// calls, and has the grants in `more`.
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

/// Returns the value of the lead's field, or null if the field has no value.
pub fn field(crm: &Server, id: i64, field: &str) -> Value {
    let answer = crm.admin(|core, _| lead::all(core));
    let leads = answer.as_array().expect("leads");
    let lead = leads.iter().find(|lead| lead["id"] == id);
    let Some(fields) = lead.and_then(|lead| lead.get("fields")) else {
        return Value::Null;
    };
    match fields {
        Value::Object(map) => map.get(field).cloned().unwrap_or_default(),
        Value::Array(rows) => {
            let row = rows.iter().find(|row| {
                let id = row["id"].as_i64().map(|id| id.to_string());
                id.as_deref() == Some(field)
            });
            row.map_or(Value::Null, |row| row["value"].clone())
        }
        other => panic!("{other}"),
    }
}

/// Returns the time as shown by the CRM, in Tashkent's time zone.
fn time(epoch: i64) -> Value {
    let at = jiff::Timestamp::from_second(epoch).expect("a time");
    let at = at.to_zoned(jiff::tz::TimeZone::get("Asia/Tashkent").expect("a zone"));
    at.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string().into()
}

/// Returns the start of a recorded call as shown by the CRM.
fn start_time(call: &Recording) -> Value {
    time(call.calls[0]["startedAt"].as_i64().expect("an epoch"))
}

/// Checks that no request violated the CRM's document.
fn assert_no_violation(crm: &Server) {
    let violations = crm::conduct(crm, |_| false);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Returns a call for lead 4001 that started a day before the recorded call, plus `seconds`
/// seconds.
fn call_after(seconds: i64) -> Recording {
    let call = recordings::one("inbound_answered");
    let began = call.calls[0]["startedAt"].as_i64().expect("an epoch");
    call.moved_to(began - 86_400 + seconds)
}

/// Starts the program with the usual flags and those in `more`.
async fn start(place: &Place, crm: &Server, more: &[&str]) -> Program {
    let source = place.file("recorded", "ami");
    let usual = [source.as_str(), TRUNKS[0], TRUNKS[1], RATE_FLAG];
    let flags: Vec<&str> = usual.into_iter().chain(more.iter().copied()).collect();
    place.run(&crm.url(), &flags)
}

/// Waits until field 11 of lead 4001 has this value.
async fn wait_for_field(crm: &Server, value: &Value) {
    until("the field", async || field(crm, 4_001, "11") == *value).await;
}

fn has_shown_all_fields(status: &Status) -> bool {
    let fields = status.lead_fields.as_ref();
    fields.is_some_and(|fields| fields.waiting == 0 && fields.state == "ok")
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
    let [old, newest, between] = [100, 900, 500].map(call_after);
    place.append("recorded", &newest.ami);
    place.append("recorded", &old.ami);
    let mut program = start(&place, &crm, &flags).await;
    program.settled(2).await;
    wait_for_field(&crm, &start_time(&newest)).await;
    assert_eq!(field(&crm, 4_001, "12"), json!("501"));
    program.kill().await;
    place.append("recorded", &between.ami);
    let mut program = start(&place, &crm, &flags).await;
    program.settled(3).await;
    program
        .until("nothing waits to be shown", has_shown_all_fields)
        .await;
    assert_eq!(
        field(&crm, 4_001, "11"),
        start_time(&newest),
        "the newest call, also after a kill"
    );
    let last = call_after(2_000);
    place.append("recorded", &last.ami);
    program.settled(4).await;
    wait_for_field(&crm, &start_time(&last)).await;
    // callbridge omits field 21, because it belongs to contacts, and reports this.
    let status = program.status().await.expect("a status");
    let fields = status.lead_fields.expect("fields").fields;
    let left_out: Vec<_> = fields.iter().filter(|field| !field.ok).collect();
    assert_eq!((left_out.len(), left_out[0].id), (1, 21), "{fields:?}");
    assert!(
        left_out[0].message.contains("CONTACT"),
        "{}",
        left_out[0].message
    );
    program.terminate().await;
    assert!(place.logs().contains("last_missed=21"), "{}", place.logs());
    assert_eq!(field(&crm, 4_001, "21"), Value::Null);
    assert_no_violation(&crm);
}

/// Waits until fields 11, 12, 13, and 15 to 19 of lead 4001 have these values.
async fn wait_for_values(crm: &Server, wanted: &Value) {
    until(&wanted.to_string(), async || {
        let ids = [11, 12, 13, 15, 16, 17, 18, 19];
        let values = ids.map(|id: i64| field(crm, 4_001, &id.to_string()));
        json!(values) == *wanted
    })
    .await;
}

/// Returns the day on which a recorded call started, as shown by the CRM.
fn start_day(call: &Recording) -> String {
    start_time(call).as_str().expect("a text")[..10].to_owned()
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
    let [first, second] =
        [3_600, 1_800].map(|ago| recordings::one("inbound_cancelled").moved_to(now - ago));
    place.append("recorded", &first.ami);
    place.append("recorded", &second.ami);
    let zone = "--pbx-timezone=Asia/Tashkent";
    let mut program = start(&place, &crm, &[&fields, zone]).await;
    program.settled(2).await;
    let did = &second.calls[0]["did"];
    let second_day = start_day(&second);
    let missed = json!(["INBOUND", did, null, 2, true, second_day, "city", 501]);
    wait_for_values(&crm, &missed).await;
    let callback = recordings::one("outbound_answered").moved_to(now - 600);
    place.append("recorded", &callback.ami);
    program.settled(3).await;
    // The field `did` still has the number that was dialed in the last inbound call.
    let callback_day = start_day(&callback);
    let reached = json!(["OUTBOUND", did, "101", 0, null, callback_day, "city", 501]);
    wait_for_values(&crm, &reached).await;
    let status = program.status().await.expect("a status");
    let fields = status.lead_fields.expect("fields").fields;
    assert!(fields.iter().all(|field| field.ok), "{fields:?}");
    program.terminate().await;
    assert_no_violation(&crm);
}

/// Returns the report of `check` with this flag.
async fn check_report(place: &Place, crm: &Server, flag: &str) -> String {
    let source = place.file("recorded", "ami");
    let mut all = place.arguments(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG, flag]);
    all[0] = "check".to_owned();
    let arguments: Vec<&str> = all.iter().map(String::as_str).collect();
    let report = place.command(&arguments).await.stdout;
    String::from_utf8_lossy(&report).into_owned()
}

#[tokio::test]
async fn refused_lead_field_value_is_reported_until_one_is_accepted() {
    let (place, crm) = (
        Place::new(),
        crm_with("4001-4009", "501-599", &[READ, SAVE]).await,
    );
    place.append("recorded", &call_after(0).ami);
    let flag = "--lead-field=last_call=15,direction=11";
    let mut program = start(&place, &crm, &[flag]).await;
    let item = r#"the CRM did not accept {"id":15,"value":"2026-"#;
    let status = program
        .until("the refused value is reported", |status| {
            let mut problems = status.problems.iter();
            problems.any(|problem| problem.message.contains(item))
        })
        .await;
    let fields = status.lead_fields.expect("fields").fields;
    let ok: Vec<_> = fields.iter().map(|field| (field.id, field.ok)).collect();
    assert_eq!(ok, [(15, false), (11, true)]);
    // callbridge still writes the other field.
    until("the direction", async || {
        field(&crm, 4_001, "11") == json!("INBOUND")
    })
    .await;
    let output = check_report(&place, &crm, flag).await;
    assert!(
        output.contains(&format!("lead-field last_call=15: {item}")),
        "{output}"
    );
    program.terminate().await;
    let output = check_report(&place, &crm, flag).await;
    assert!(
        output.contains(&format!("lead-field last_call=15: {item}")),
        "{output}"
    );
    assert!(place.logs().contains("did not accept"), "{}", place.logs());
    let newer = call_after(900);
    place.append("recorded", &newer.ami);
    let flag = "--lead-field=last_call=15:number,direction=11";
    let mut program = start(&place, &crm, &[flag]).await;
    until("the number", async || {
        field(&crm, 4_001, "15") == newer.calls[0]["startedAt"]
    })
    .await;
    program
        .until("both fields are ok", |current| {
            let fields = current.lead_fields.iter().flat_map(|fields| &fields.fields);
            fields.map(|field| field.ok).eq([true, true])
        })
        .await;
    program.terminate().await;
    let violations = crm::conduct(&crm, |kind| kind == ViolationKind::Invalid);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Returns the messages of all dead letters in alphabetical order.
async fn sorted_messages(place: &Place) -> Vec<String> {
    let letters = place.letters().await;
    let mut messages: Vec<String> = letters
        .iter()
        .map(|letter| letter["message"].as_str().unwrap_or_default().to_owned())
        .collect();
    messages.sort();
    messages
}

#[tokio::test]
async fn failed_call_dead_letter_names_unknown_lead_or_employee() {
    let (place, crm) = (Place::new(), crm_with("4001", "502-599", &[READ]).await);
    for call in ["inbound_answered", "inbound_no_answer"].map(recordings::one) {
        place.append("recorded", &call.ami);
    }
    let mut program = start(&place, &crm, &[]).await;
    program
        .until("two dead letters", |status| status.books.dead == 2)
        .await;
    until("the lookups", async || {
        let messages = sorted_messages(&place).await;
        messages.iter().all(|text| text.contains("exist"))
    })
    .await;
    let messages = sorted_messages(&place).await;
    let wanted = [
        "lead 4002 does not exist (deleted or another company's)",
        "the lead exists: employee 501 is not known",
    ];
    for (message, beginning) in messages.iter().zip(wanted) {
        assert!(message.starts_with(beginning), "{message}");
    }
    program.terminate().await;
    assert_no_violation(&crm);
}

#[tokio::test]
async fn unknown_employee_is_dropped_and_the_call_journaled() {
    let (place, crm) = (Place::new(), crm_with("4001", "502-599", &[READ]).await);
    place.append("recorded", &call_after(0).ami);
    place.append("recorded", &call_after(100).ami);
    let mut program = start(&place, &crm, &["--failed-employee=drop"]).await;
    program
        .until("both journaled", |status| status.books.journaled == 2)
        .await;
    let journal = crm.journal();
    let employees: Vec<_> = journal
        .iter()
        .map(|record| record.call.employee_id)
        .collect();
    assert_eq!(employees, [None, None]);
    // No call became a dead letter, so only `status` mentions the employee.
    let message = "the CRM does not know employee 501 (extension 101), ";
    program
        .until("the employee is reported", |status| {
            let mut problems = status.problems.iter();
            problems.any(|problem| problem.message.starts_with(message))
        })
        .await;
    program.terminate().await;
    let status = place.lines(&["status", "--json"]).await.remove(0);
    assert_eq!(status["employees"]["unknown"][0]["employeeId"], 501);
    assert_no_violation(&crm);
}

#[tokio::test]
async fn missing_lead_grants_turn_off_lookups_and_lead_fields() {
    let (place, crm) = (Place::new(), crm_with("4001", "502-599", &[]).await);
    place.append("recorded", &call_after(0).ami);
    let mut program = start(&place, &crm, &["--lead-field=last_call=11"]).await;
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    // With the grant, the lead is looked up before a second call can fail.
    place.append("recorded", &call_after(100).ami);
    program
        .until("two dead letters", |status| status.books.dead == 2)
        .await;
    let has_lookup = crm.admin(|core, _| {
        let mut answers = core.counts().keys();
        answers.any(|(endpoint, _)| *endpoint == Endpoint::Lead)
    });
    assert!(!has_lookup, "a lead was looked up without the grant");
    let status = program
        .until("fields are off", |status| {
            let fields = status.lead_fields.as_ref();
            fields.is_some_and(|fields| fields.state == "off")
        })
        .await;
    let reason = status.lead_fields.and_then(|fields| fields.reason);
    assert!(reason.is_some_and(|reason| reason.contains(SAVE)));
    program.terminate().await;
    assert_no_violation(&crm);
}

/// Sends a signed webhook the way the CRM would. Returns the HTTP status of the response, or an
/// empty text if there's none.
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

/// Returns the webhook saying that the lead `from` was merged into the lead `into`. `id` makes the
/// event's ID unique.
fn merge_event(into: i64, from: i64, id: u32) -> Value {
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
    place.append("recorded", &call_after(0).ami);
    let mut program = start(&place, &crm, &flags).await;
    program
        .until("a dead letter", |status| status.books.dead == 1)
        .await;
    until("the event is taken", async || {
        deliver(addr, &merge_event(4_005, 4_001, 1))
            .await
            .starts_with('2')
    })
    .await;
    program
        .until("the dead letter is journaled", |status| {
            status.books.journaled == 1 && status.books.dead == 0
        })
        .await;
    // callbridge sends the next call directly to the surviving lead, so the CRM doesn't reject any
    // request.
    place.append("recorded", &call_after(100).ami);
    let status = program
        .until("both calls journaled", |current| {
            current.books.journaled == 2
        })
        .await;
    assert!(status.books.balance());
    let journal = crm.journal();
    let leads: Vec<i64> = journal.iter().map(|record| record.call.lead_id).collect();
    assert_eq!(leads, [4_005, 4_005]);
    let failed = place.logs().matches("the CRM could not write it").count();
    assert_eq!(failed, 1, "{}", place.logs());
    program.terminate().await;
    assert_no_violation(&crm);
}

/// Runs `lead set` with these arguments, and returns the exit status and the errors.
async fn set_lead(place: &Place, values: &[&str]) -> (i32, String) {
    let arguments = [&["lead", "set"], values].concat();
    let output = place.command(&arguments).await;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("an end"), errors)
}

#[tokio::test]
async fn lead_values_set_by_hand_are_checked_written_and_reported() {
    let (place, crm) = (
        Place::new(),
        crm_with("4001", "501-599", &[READ, SAVE]).await,
    );
    assert_eq!(
        set_lead(&place, &["4001", "11=VIP"]).await.0,
        69,
        "no daemon"
    );
    place.append("recorded", b"");
    let mut program = start(&place, &crm, &[]).await;
    program
        .until("the token is ok", |status| status.token.state == "ok")
        .await;
    assert_eq!(
        set_lead(&place, &["4001", "11=VIP", "14=[a, b]"]).await,
        (0, String::new())
    );
    assert_eq!(field(&crm, 4_001, "11"), json!("VIP"));
    assert_eq!(set_lead(&place, &["4001", "11=null"]).await.0, 0);
    assert_eq!(field(&crm, 4_001, "11"), Value::Null);
    let (code, errors) = set_lead(&place, &["4001", "21=x", "99=y"]).await;
    assert!(
        errors.contains("CONTACT") && errors.contains("99"),
        "{errors}"
    );
    assert_eq!(code, 65);
    let (code, errors) = set_lead(&place, &["4444", "11=x"]).await;
    assert!(code == 65 && errors.contains("4444"), "{errors}");
    let (code, errors) = set_lead(&place, &["x", "11=a", "11=b", "z"]).await;
    assert!(code == 64 && errors.contains("given twice"), "{errors}");
    let grants = ["PERMISSION_OPEN_API_CALL:SAVE", READ];
    let grants = grants
        .iter()
        .filter_map(|text| Grant::parse(text))
        .collect();
    crm.admin(|core, now| core.set_grants(now, grants));
    let (code, errors) = set_lead(&place, &["4001", "11=x"]).await;
    assert!(code == 77 && errors.contains(SAVE), "{errors}");
    program.terminate().await;
}
