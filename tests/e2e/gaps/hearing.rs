//! Tests that a connection that doesn't receive any events is reported even though the login was
//! successful.

use crate::e2e::operations::monitoring::metrics;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::status::{FindingKind, OverallState, RightKind, SourceState, Status};
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::FakePbx;

/// A PBX, a callbridge that's connected to it, and a CRM.
struct Stage {
    place: Place,
    _crm: Server,
    pbx: FakePbx,
    program: Program,
}

impl Stage {
    async fn start(pbx: FakePbx) -> Self {
        let (place, crm) = (Place::new(), crm::start().await);
        let source = place.ami(&pbx);
        let flags = [
            &source,
            TRUNKS[0],
            TRUNKS[1],
            RATE_FLAG,
            "--listen=127.0.0.1:0",
        ];
        let program = place.run(&crm.url(), &flags);
        pbx.logged_in(1).await;
        Self {
            place,
            _crm: crm,
            pbx,
            program,
        }
    }

    /// Sends a recording's events, except for lines that contain any of the texts in `without`.
    async fn send_recording(&self, name: &str, without: &[&str]) {
        let events = recordings::one(name).events().collect::<Vec<_>>().concat();
        let events = String::from_utf8(events).expect("text");
        let lines = events.split_inclusive('\n');
        let kept = lines.filter(|line| !without.iter().any(|part| line.contains(part)));
        self.pbx.say(kept.collect::<String>().as_bytes()).await;
    }

    /// Returns the number of log lines that contain this text.
    fn count_log_lines(&self, text: &str) -> usize {
        let log = self.place.logs();
        log.lines().filter(|line| line.contains(text)).count()
    }
}

fn problem_kinds(status: &Status) -> Vec<FindingKind> {
    status.problems.iter().map(|problem| problem.kind).collect()
}

/// Returns a metric's line. `prefix` is its name along with the brace that opens the labels.
fn metric_line<'a>(exported: &'a str, prefix: &str) -> &'a str {
    let mut lines = exported.lines();
    let line = lines.find(|line| line.starts_with(prefix));
    line.expect("the metric")
}

fn missing_rights(status: &Status) -> Vec<RightKind> {
    status.sources[0]
        .missing_rights
        .iter()
        .map(|right| right.kind)
        .collect()
}

#[tokio::test]
async fn source_state_is_connected_until_the_first_event_then_up() {
    let mut stage = Stage::start(FakePbx::ami().await).await;
    let status = stage
        .program
        .until("a connected source", |current| {
            current.sources[0].state == SourceState::Connected
        })
        .await;
    assert_eq!(
        (status.verdict, problem_kinds(&status)),
        (OverallState::Ok, vec![])
    );
    let exported = metrics(&stage.program).await;
    assert!(metric_line(&exported, "callbridge_source_up{").ends_with(" 1"));
    assert!(metric_line(&exported, "callbridge_source_receiving{").ends_with(" 0"));
    stage.send_recording("inbound_answered", &[]).await;
    let status = stage
        .program
        .until("a source that receives events", |current| {
            current.sources[0].state == SourceState::Up
        })
        .await;
    assert_eq!(missing_rights(&status), []);
    let exported = metrics(&stage.program).await;
    assert!(metric_line(&exported, "callbridge_source_receiving{").ends_with(" 1"));
    stage.program.terminate().await;
}

#[tokio::test]
async fn missing_ami_rights_are_logged_once_and_shown_in_status() {
    let pbx = FakePbx::ami().await;
    pbx.hide_boot();
    let list = "Response: Success\nActionID: {id}\nEventList: start\n\n\
                Event: CoreShowChannelsComplete\nActionID: {id}\n\n";
    pbx.answers("CoreShowChannels", &[list]);
    let mut stage = Stage::start(pbx).await;
    let status = stage
        .program
        .until("the missing right system", |current| {
            missing_rights(current) == [RightKind::System]
        })
        .await;
    // Calls can be received without this permission, so this isn't a problem. `check` reports the
    // same.
    assert_eq!(
        (status.verdict, problem_kinds(&status)),
        (OverallState::Ok, vec![])
    );
    let message = &status.sources[0].missing_rights[0].message;
    assert!(message.contains("read = call,cdr,system"), "{message}");
    // At the next login, the channel list is denied.
    let denied = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";
    stage.pbx.answers("CoreShowChannels", &[denied]);
    stage.pbx.cut().await;
    stage.pbx.logged_in(2).await;
    let status = stage
        .program
        .until("the missing right to list", |current| {
            missing_rights(current) == [RightKind::List]
        })
        .await;
    assert!(
        problem_kinds(&status).contains(&FindingKind::Rights),
        "{:?}",
        status.problems
    );
    stage.program.terminate().await;
    let log = stage.place.logs();
    for text in [
        "no FullyBooted came after the login",
        "no right to list the live channels",
    ] {
        let count = log.lines().filter(|line| line.contains(text)).count();
        assert_eq!(count, 1, "{text}: {log}");
    }
}

#[tokio::test]
async fn missing_event_time_and_lead_variable_are_reported() {
    let mut stage = Stage::start(FakePbx::ami().await).await;
    let names = [
        "inbound_answered",
        "outbound_answered",
        "blind_transfer",
        "ring_group",
    ];
    for name in names {
        stage
            .send_recording(name, &["Timestamp:", "ChanVariable:"])
            .await;
    }
    let expected = [RightKind::Variables, RightKind::Times];
    let status = stage
        .program
        .until("both missing values", |current| {
            missing_rights(current) == expected
        })
        .await;
    let rights = status
        .problems
        .iter()
        .find(|problem| problem.kind == FindingKind::Rights);
    assert!(
        rights.is_some_and(|problem| problem.message.contains("LEAD_ID")
            && problem.message.contains("timestampevents"))
    );
    assert_eq!(stage.count_log_lines("channelvars"), 1);
    // A call whose answer and hangup arrived at the same time has such a line as well.
    let log = stage.place.logs();
    let missing = log.lines().filter(|line| line.contains("lacks a right"));
    let of_times = missing.filter(|line| line.contains("timestampevents"));
    assert_eq!(of_times.count(), 1, "{log}");
    // `manager reload` fixes one of the problems while the connection is up.
    stage
        .send_recording("inbound_answered", &["Timestamp:"])
        .await;
    stage
        .program
        .until("the variable is shown", |current| {
            missing_rights(current) == [RightKind::Times]
        })
        .await;
    stage.program.terminate().await;
}
