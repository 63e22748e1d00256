//! Tests that the log reports each event once, limits repeated lines, and has no empty fields.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, TRUNKS};
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::calls::{Call, recording};
use callbridge_testbed::pbx::FakePbx;
use std::path::Path;

/// Returns the content of a file in the `tests` directory.
fn read_test_file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name);
    std::fs::read(path).expect("readable")
}

/// Returns `true` if `word` is a log field without a value, such as `reason=`.
fn is_empty_field(word: &str) -> bool {
    word.ends_with('=') || word.ends_with("=\"\"")
}

#[tokio::test]
async fn log_begins_with_version_and_state_and_has_no_empty_field() {
    let (place, crm) = (Place::new(), crm::start().await);
    let now = callbridge_model::clock::now().wall.floor_seconds().get();
    let call = recordings::one("inbound_answered").moved_to(now - 300);
    place.write("calls.ami", call.ami);
    let source = place.file("calls.ami", "ami");
    // The trunk has no lead, so the call waits. A waiting call's log line is the longest.
    let trunk = "--trunk=city=PJSIP/city,country=UZ";
    let mut program = place.run(&crm.url(), &[&source, trunk, RATE_FLAG]);
    program
        .until("the call that waits", |status| status.books.waiting == 1)
        .await;
    let log = program.log();
    let first = log.lines().next().expect("a line");
    for part in [
        "callbridge runs",
        &format!("version={}", env!("CARGO_PKG_VERSION")),
        &format!("state={}", place.path("state")),
        "pbx=pbx1",
        "calls.ami",
    ] {
        assert!(first.contains(part), "{part} in {first}");
    }
    program.terminate().await;
    for line in place.logs().lines() {
        let empty = line.split(' ').any(is_empty_field);
        assert!(!empty, "{line}");
    }
}

#[tokio::test]
async fn reconnect_is_logged_in_one_line_with_gap_and_reason() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let source = place.ami(&pbx);
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    pbx.logged_in(1).await;
    let call = recordings::one("inbound_answered");
    let events = call.events().collect::<Vec<_>>().concat();
    pbx.say(&events).await;
    program
        .until("the events", |status| status.sources[0].read > 0)
        .await;
    pbx.cut().await;
    pbx.logged_in(2).await;
    program
        .until("the gap", |status| status.sources[0].gaps == 1)
        .await;
    // The events after the reconnect prove that the line about the reconnect has already been
    // logged.
    pbx.say(&events).await;
    program.terminate().await;
    let log = place.logs();
    let lines: Vec<&str> = log
        .lines()
        .skip_while(|line| !line.contains("the source is up"))
        .collect();
    let texts = ["the source is up again", "gap", "missing"];
    let counts = texts.map(|text| lines.iter().filter(|line| line.contains(text)).count());
    assert_eq!(counts, [1, 1, 1], "{log}");
    let line = lines
        .iter()
        .find(|line| line.contains("up again"))
        .expect("the line");
    for field in ["reason=", "from=", "until=", "missing_sec="] {
        assert!(line.contains(field), "{field} in {line}");
    }
}

#[tokio::test]
async fn log_flood_of_one_kind_is_limited_and_rest_is_counted() {
    const CALLS: u32 = 300;
    /// The log message for each of the calls.
    const KIND: &str = "a finished call waits for its lead";
    let (place, crm) = (Place::new(), crm::start().await);
    let calls: Vec<Call> = (0..CALLS).map(Call::without_lead).collect();
    place.write("calls.ami", recording(&calls));
    let source = place.file("calls.ami", "ami");
    let trunk = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";
    let mut program = place.run(&crm.url(), &[&source, trunk, RATE_FLAG]);
    program
        .until("the calls are waiting", |status| {
            status.books.waiting == u64::from(CALLS)
        })
        .await;
    program.terminate().await;
    let log = place.logs();
    let (mut logged, mut seconds, mut left_out) = (0, std::collections::BTreeMap::new(), 0);
    for line in log.lines().filter(|line| line.contains(KIND)) {
        match line.split_once("kind=\"") {
            None => {
                logged += 1;
                let second = line.split('.').next().expect("a time").to_owned();
                *seconds.entry(second).or_insert(0) += 1;
            }
            Some((_, rest)) => {
                let lines = rest.split_once("lines=").expect("how many").1;
                left_out += lines.parse::<u32>().expect("a number");
            }
        }
    }
    assert_eq!(logged + left_out, CALLS, "{log}");
    // The limit is 10 lines per second, but one second in the log may overlap two of the limit's
    // seconds.
    assert!(seconds.values().all(|many| *many <= 20), "{seconds:?}");
}

/// Waits until `status` and the log report that the source is in a different format. `advice` is
/// the part of the message that gives the right format.
async fn check_format_report(program: &mut Program, place: &Place, advice: &str) {
    program
        .until("the format is named", |status| {
            let reason = status.sources[0].reason.as_ref();
            reason.is_some_and(|reason| reason.contains(advice))
        })
        .await;
    let message = "the source has another format than its format= says";
    let log = place.logs();
    let lines = log
        .lines()
        .filter(|line| line.contains(message) && line.contains(advice));
    assert_eq!(lines.count(), 1, "{log}");
}

#[tokio::test]
async fn file_of_wrong_format_is_reported_with_format_to_use() {
    for (file, format, advice) in [
        (
            "recordings/inbound_answered/cdr.csv",
            "ami",
            "use format=cdr-csv",
        ),
        (
            "recordings/inbound_answered/ami.raw",
            "cel-csv",
            "use format=ami",
        ),
    ] {
        let (place, crm) = (Place::new(), crm::start().await);
        place.write("calls", read_test_file(file));
        let source = place.file("calls", format);
        let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
        check_format_report(&mut program, &place, advice).await;
        program.terminate().await;
    }
}

#[tokio::test]
async fn messages_in_another_format_are_reported_with_that_format() {
    let (place, crm, broker) = (Place::new(), crm::start().await, Broker::shared());
    let queue = "other-format";
    broker.declare(queue).await;
    let lines = String::from_utf8(read_test_file("matrix/asterisk-cdr.jsonl")).expect("text");
    let bodies: Vec<&str> = lines.lines().collect();
    broker.publish(queue, &bodies).await;
    let secret = place.write("secret", broker::SECRET);
    let base = broker.url(broker::ADMINISTRATOR);
    let source = format!("--source={base}?queue={queue}&format=asterisk-cel&secret-file={secret}");
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    check_format_report(&mut program, &place, "use format=asterisk-cdr").await;
    program.terminate().await;
}
