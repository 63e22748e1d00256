//! Tests that a connection that receives no events is reported, even though its login succeeded.

use crate::e2e::operations::monitoring::metrics;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::status::{FindingKind, OverallState, RightKind, SourceState, Status};
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::FakePbx;

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

    /// Sends the events of a recording, without lines that contain any of these texts.
    async fn say(&self, name: &str, without: &[&str]) {
        let events = recordings::one(name).events().collect::<Vec<_>>().concat();
        let events = String::from_utf8(events).expect("text");
        let lines = events.split_inclusive('\n');
        let kept = lines.filter(|line| !without.iter().any(|part| line.contains(part)));
        self.pbx.say(kept.collect::<String>().as_bytes()).await;
    }

    /// Returns the number of log lines with these words.
    fn logged(&self, words: &str) -> usize {
        let log = self.place.logs();
        log.lines().filter(|line| line.contains(words)).count()
    }
}

fn kinds(status: &Status) -> Vec<FindingKind> {
    status.problems.iter().map(|problem| problem.kind).collect()
}

fn missing_rights(status: &Status) -> Vec<RightKind> {
    status.sources[0]
        .missing_rights
        .iter()
        .map(|right| right.kind)
        .collect()
}

#[tokio::test]
async fn line_is_connected_until_an_event_proves_that_it_is_up() {
    let mut stage = Stage::start(FakePbx::ami().await).await;
    let connected = |it: &Status| it.sources[0].state == SourceState::Connected;
    let status = stage
        .program
        .until("a line that is let in", connected)
        .await;
    assert_eq!((status.verdict, kinds(&status)), (OverallState::Ok, vec![]));
    let exported = metrics(&stage.program).await;
    let shows = |name: &str, text: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(name));
        lines.next().expect("the metric").to_owned()
    };
    assert!(shows("callbridge_source_up{", &exported).ends_with(" 1"));
    assert!(shows("callbridge_source_receiving{", &exported).ends_with(" 0"));
    stage.say("inbound_answered", &[]).await;
    let up = |it: &Status| it.sources[0].state == SourceState::Up;
    let status = stage.program.until("a line that is heard", up).await;
    assert_eq!(missing_rights(&status), []);
    let exported = metrics(&stage.program).await;
    assert!(shows("callbridge_source_receiving{", &exported).ends_with(" 1"));
    stage.program.terminate().await;
}

#[tokio::test]
async fn missing_ami_rights_are_logged_once_and_shown_in_status() {
    let pbx = FakePbx::ami().await;
    pbx.hides_boot();
    let list = "Response: Success\nActionID: {id}\nEventList: start\n\n\
                Event: CoreShowChannelsComplete\nActionID: {id}\n\n";
    pbx.answers("CoreShowChannels", &[list]);
    let mut stage = Stage::start(pbx).await;
    let kind = |it: &Status| missing_rights(it) == [RightKind::System];
    let status = stage.program.until("nothing heard", kind).await;
    // `check` says the same: calls may be received all the same.
    assert_eq!((status.verdict, kinds(&status)), (OverallState::Ok, vec![]));
    let said = &status.sources[0].missing_rights[0].message;
    assert!(said.contains("read = call,cdr,system"), "{said}");
    // At the next login, the channel list is refused.
    let denied = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";
    stage.pbx.answers("CoreShowChannels", &[denied]);
    stage.pbx.cut().await;
    stage.pbx.logged_in(2).await;
    let kind = |it: &Status| missing_rights(it) == [RightKind::List];
    let status = stage.program.until("no list", kind).await;
    assert!(
        kinds(&status).contains(&FindingKind::Rights),
        "{:?}",
        status.problems
    );
    stage.program.terminate().await;
    let log = stage.place.logs();
    for words in [
        "no FullyBooted came after the login",
        "no right to list the live channels",
    ] {
        let told = log.lines().filter(|line| line.contains(words)).count();
        assert_eq!(told, 1, "{words}: {log}");
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
        stage.say(name, &["Timestamp:", "ChanVariable:"]).await;
    }
    let kind = |it: &Status| missing_rights(it) == [RightKind::Variables, RightKind::Times];
    let status = stage.program.until("both named", kind).await;
    let rights = status
        .problems
        .iter()
        .find(|problem| problem.kind == FindingKind::Rights);
    assert!(
        rights.is_some_and(|it| it.message.contains("LEAD_ID") && !it.message.contains("time"))
    );
    assert_eq!(stage.logged("channelvars"), 1);
    assert_eq!(stage.logged("timestampevents"), 1);
    // `manager reload` fixes one problem while the connection is up.
    stage.say("inbound_answered", &["Timestamp:"]).await;
    let mended = |it: &Status| missing_rights(it) == [RightKind::Times];
    stage.program.until("the variable is shown", mended).await;
    stage.program.terminate().await;
}
