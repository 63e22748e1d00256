//! Tests that the lead shown while the phone rings is the lead to which the call is journaled.

use crate::e2e::operations::monitoring;
use crate::e2e::webhooks;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings;
use callbridge_model::Status;
use callbridge_sandbox::Server;
use callbridge_sandbox::token::IdSet;
use callbridge_testbed::calls::{Call, now};
use callbridge_testbed::wait::{soon, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=directory";

/// Returns the address on which `--lookup` with port 0 listens.
async fn address(program: &Program) -> SocketAddr {
    let find = || {
        let log = program.log();
        let line = log
            .lines()
            .find(|it| it.contains("answering lookups of callers"))?;
        let (_, port) = line.split_once("127.0.0.1:")?;
        let port = port.split(|c: char| !c.is_ascii_digit()).next()?;
        Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
    };
    until("its address in the log", async || find().is_some()).await;
    find().expect("an address")
}

/// Asks until an answer is not late. On a busy machine, some answers are a `no` because they are
/// late.
async fn ask(at: SocketAddr, query: &str) -> Value {
    for _ in 0..100 {
        let (status, body) = monitoring::get(at, &format!("/caller?{query}")).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        if answer["reason"] != "late" {
            return answer;
        }
    }
    panic!("{query}: a hundred answers came late");
}

/// Asks until the answer has these values, however busy the machine is.
async fn becomes(at: SocketAddr, query: &str, wanted: &Value) {
    let last = std::sync::Mutex::new(Value::Null);
    let asking = until("an answer", async || {
        let answer = ask(at, query).await;
        let fits = wanted.as_object().expect("fields").iter();
        let fits = fits.clone().all(|(name, value)| answer[name] == *value);
        *last.lock().expect("not poisoned") = answer;
        fits
    });
    let waited = tokio::time::timeout(Duration::from_secs(60), asking).await;
    assert!(waited.is_ok(), "{query}: {last:?}, not {wanted}");
}

async fn lead(crm: &Server, id: i64, phone: &str) {
    let lead = json!({
        "id": id, "name": "Anna, \"VIP\" ${SHELL(id)}", "responsibleId": 501,
        "contacts": [{"name": "Anna, \"VIP\" ${SHELL(id)}", "phones": [phone]}],
    });
    webhooks::admin(crm, "lead", &lead).await;
}

#[tokio::test]
async fn lead_shown_while_ringing_is_lead_of_journaled_call() {
    let place = Place::new();
    place.append("recorded", b"");
    let flags = [TRUNK, RATE_FLAG, "--lookup=127.0.0.1:0"];
    let (crm, mut program, _authority) = webhooks::start(&place, &flags, |config| {
        config.settings.company.leads = IdSet::default();
    })
    .await;
    let at = address(&program).await;
    let call = recordings::one("inbound_answered");
    let phone = "phone=%2B998901110001&trunk=city";
    becomes(
        at,
        phone,
        &json!({"known": "no", "reason": "no_lead", "lead": null}),
    )
    .await;
    lead(&crm, 4001, "+998901110001").await;
    becomes(
        at,
        phone,
        &json!({"known": "yes", "lead": 4001, "reason": null}),
    )
    .await;
    becomes(
        at,
        "phone=901110001",
        &json!({"known": "yes", "lead": 4001}),
    )
    .await;

    place.append("recorded", &call.ami);
    program
        .until("the call", |it: &Status| it.books.journaled == 1)
        .await;
    crm::judge(&crm, &place.letters().await, &recordings::expected(&[call]));

    lead(&crm, 4002, "+998901110001").await;
    let several = json!({"known": "several", "lead": null, "name": null, "extension": null});
    becomes(at, phone, &several).await;
    let metrics = monitoring::metrics(&program).await;
    for answer in ["yes", "no", "several", "late", "full", "refused", "bad"] {
        let line = format!("callbridge_lookups_total{{answer=\"{answer}\"}} ");
        let found = metrics.lines().find_map(|it| it.strip_prefix(&line));
        let count: u64 = found.and_then(|it| it.parse().ok()).expect(&line);
        let asked = ["yes", "no", "several"].contains(&answer);
        assert!(count > 0 || !asked, "{line}{count}");
        assert!(count == 0 || asked || answer == "late", "{line}{count}");
    }
    assert!(
        metrics.contains("callbridge_lookup_duration_seconds_count "),
        "{metrics}"
    );
    let log = program.log();
    assert!(
        !log.contains("Anna") && !log.contains("998901110001"),
        "{log}"
    );
    program.terminate().await;
}

/// A change of a caller's leads during the ringing.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    Renamed,
    /// The lead is merged into a lead that had another number until then.
    Merged,
    /// The lead is merged into a second one, and that one into a third.
    MergedTwice,
    Deleted,
    Made,
}

/// Number of calls, number of leads for each caller when the call begins, and the change of these
/// leads.
const RINGS: [(usize, i64, Meanwhile); 10] = [
    (7, 1, Meanwhile::Nothing),
    (3, 1, Meanwhile::Renamed),
    (2, 1, Meanwhile::Merged),
    (1, 1, Meanwhile::MergedTwice),
    (1, 1, Meanwhile::Deleted),
    (1, 2, Meanwhile::Nothing),
    (1, 2, Meanwhile::Merged),
    (1, 2, Meanwhile::Deleted),
    (2, 0, Meanwhile::Nothing),
    (1, 0, Meanwhile::Made),
];

/// Returns the n-th caller's leads: the first one, a second one, and two of other numbers.
fn leads_of(n: u32) -> [i64; 4] {
    [5_000, 5_100, 5_200, 5_300].map(|from| from + i64::from(n))
}

/// Makes the change. Returns the caller's lead afterwards, or `None` for no lead or for two.
async fn happens(crm: &Server, call: &Call, leads: i64, what: Meanwhile) -> Option<i64> {
    let [own, second, third, fourth] = leads_of(call.n);
    let mut kept = Some(own).filter(|_| leads == 1);
    let other = |n: u32| Call::without_lead(1_000 + n).phone();
    match what {
        Meanwhile::Nothing => {}
        Meanwhile::Renamed => {
            let renamed = json!({"id": own, "name": "Berta", "responsibleId": 502});
            webhooks::admin(crm, "lead/update", &renamed).await;
        }
        Meanwhile::Merged if leads == 2 => {
            webhooks::admin(crm, "lead/merge", &json!({"into": second, "from": [own]})).await;
            kept = Some(second);
        }
        Meanwhile::Merged | Meanwhile::MergedTwice => {
            lead(crm, third, &other(call.n)).await;
            webhooks::admin(crm, "lead/merge", &json!({"into": third, "from": [own]})).await;
            kept = Some(third);
            if matches!(what, Meanwhile::MergedTwice) {
                lead(crm, fourth, &other(100 + call.n)).await;
                let again = json!({"into": fourth, "from": [third]});
                webhooks::admin(crm, "lead/merge", &again).await;
                kept = Some(fourth);
            }
        }
        Meanwhile::Deleted => {
            webhooks::admin(crm, "lead/delete", &json!({"id": own})).await;
            kept = Some(second).filter(|_| leads == 2);
        }
        Meanwhile::Made => {
            lead(crm, own, &call.phone()).await;
            kept = Some(own);
        }
    }
    kept
}

/// Merges the AMI events of calls that take place at the same time.
fn in_order_of_time<'a>(calls: impl Iterator<Item = &'a str>) -> String {
    let mut events: Vec<&str> = calls
        .flat_map(|call| call.split_inclusive("\r\n\r\n"))
        .collect();
    events.sort_by_key(|event| {
        let time = event
            .lines()
            .find_map(|line| line.strip_prefix("Timestamp: "));
        time.expect("a time").to_owned()
    });
    events.concat()
}

#[tokio::test]
async fn twenty_calls_are_journaled_on_the_very_leads_that_were_shown() {
    let place = Place::new();
    place.append("recorded", b"");
    let flags = [TRUNK, RATE_FLAG, "--lookup=127.0.0.1:0"];
    let (crm, mut program, _authority) = webhooks::start(&place, &flags, |config| {
        config.settings.company.leads = IdSet::default();
    })
    .await;
    let at = address(&program).await;
    let rings = RINGS.iter().flat_map(|(times, leads, what)| {
        let one = (*leads, *what);
        std::iter::repeat_n(one, *times)
    });
    let begins = now() - 60;
    let rings: Vec<_> = rings
        .zip(1..)
        .map(|((leads, what), n)| {
            let call = Call::without_lead(n);
            (Call { begins, ..call }, leads, what)
        })
        .collect();
    assert_eq!(rings.len(), 20);
    let query = |call: &Call| format!("trunk=city&phone={}", call.phone().replace('+', "%2B"));
    let known = |lead: Option<i64>, leads| match (lead, leads) {
        (Some(lead), _) => json!({"known": "yes", "lead": lead}),
        (None, 2) => json!({"known": "several", "lead": null, "name": null}),
        (None, _) => json!({"known": "no", "lead": null, "name": null}),
    };
    for (call, leads, _) in &rings {
        let [own, second, ..] = leads_of(call.n);
        for id in [own, second]
            .iter()
            .take(usize::try_from(*leads).expect("few"))
        {
            lead(&crm, *id, &call.phone()).await;
        }
        let one = Some(own).filter(|_| *leads == 1);
        becomes(at, &query(call), &known(one, *leads)).await;
    }

    let told: Vec<_> = rings
        .iter()
        .map(|(call, ..)| {
            let told = call.ami();
            let end = told.find("Event: DialEnd").expect("it rings first");
            (told[..end].to_owned(), told[end..].to_owned())
        })
        .collect();
    let rings_at_once = in_order_of_time(told.iter().map(|(rings, _)| rings.as_str()));
    place.append("recorded", rings_at_once.as_bytes());
    let rung = told
        .iter()
        .map(|(rings, _)| rings.matches("\r\n\r\n").count());
    let rung: usize = rung.sum();
    let read = |it: &Status| {
        let source = &it.sources[0];
        source.read + source.skipped == rung as u64
    };
    program.until("twenty telephones that ring", read).await;
    let mut shown = Vec::new();
    for (call, leads, what) in &rings {
        let kept = happens(&crm, call, *leads, *what).await;
        becomes(at, &query(call), &known(kept, *leads)).await;
        if matches!(what, Meanwhile::Renamed) {
            becomes(at, &query(call), &json!({"lead": kept, "employee": 502})).await;
        }
        shown.push((call, ask(at, &query(call)).await));
    }
    let ends_at_once = in_order_of_time(told.iter().map(|(_, ends)| ends.as_str()));
    place.append("recorded", ends_at_once.as_bytes());
    let done = |it: &Status| it.books.finished == 20 && it.books.settled();
    let status = program.until("twenty calls", done).await;
    let journal = crm.journal();
    for (call, shown) in &shown {
        let uuid = call.uuid("pbx1");
        let of_call: Vec<_> = journal.iter().filter(|it| it.call.uuid == uuid).collect();
        let leads: Vec<i64> = of_call.iter().map(|it| it.call.lead_id).collect();
        let lead: Vec<i64> = shown["lead"].as_i64().into_iter().collect();
        assert_eq!(leads, lead, "{call:?}, {shown}");
    }
    assert_eq!((journal.len(), status.books.journaled), (16, 16));
    assert_eq!(status.dead_letters["ambiguous_lead"], 1);
    assert_eq!(status.books.waiting, 3);
    assert_eq!(crm::conduct(&crm, |_| false), Vec::<String>::new());
    program.terminate().await;
}

#[tokio::test]
async fn lookup_of_frozen_daemon_hangs_and_of_killed_one_is_refused() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", b"");
    let source = place.file("recorded", "ami");
    let program = place.run(&crm.url(), &[&source, TRUNK, "--lookup=127.0.0.1:0"]);
    let at = address(&program).await;
    becomes(at, "phone=901110001", &json!({"known": "no"})).await;
    program.freeze().await;
    let waits = async {
        tokio::time::timeout(Duration::from_millis(200), monitoring::get(at, "/caller")).await
    };
    assert!(soon("the caller's own time is over", waits).await.is_err());
    program.signal(Signal::CONT);
    becomes(at, "phone=901110001", &json!({"known": "no"})).await;
    program.kill().await;
    let refused = tokio::net::TcpStream::connect(at).await;
    assert!(refused.is_err(), "nothing listens there");
}

#[tokio::test]
async fn lookup_on_network_address_needs_allow_list_and_secret() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", b"");
    let source = place.file("recorded", "ami");
    let secret = format!("--lookup-secret-file={}", place.write("secret", "s3cret\n"));
    let (open, allow) = ("--lookup=0.0.0.0:0", "--lookup-allow=127.0.0.0/8");
    for refused in [vec![open], vec![open, allow], vec![open, &secret]] {
        let flags = [&[&*source, TRUNK], &refused[..]].concat();
        let program = place.run(&crm.url(), &flags);
        assert_eq!(program.ended().await.code(), Some(64), "{refused:?}");
    }
    let gone = format!("--lookup-secret-file={}", place.path("nowhere"));
    let flags = [&source, TRUNK, "--lookup=127.0.0.1:0", &gone];
    let program = place.run(&crm.url(), &flags);
    assert_eq!(program.ended().await.code(), Some(78));

    let flags = [&source, TRUNK, "--lookup=127.0.0.1:0", allow, &secret];
    let program = place.run(&crm.url(), &flags);
    let at = address(&program).await;
    let (status, body) = monitoring::get(at, "/caller?phone=901110001&format=hash").await;
    assert_eq!(status, 401);
    assert!(
        body.starts_with("known=no&") && body.ends_with("&reason=refused"),
        "{body}"
    );
    assert!(!program.log().contains("s3cret"));
    program.terminate().await;
}
