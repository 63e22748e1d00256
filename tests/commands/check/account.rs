//! Tests `check` with a manager account whose login succeeds: the rights and events of the account,
//! and whether the trunks match the PBX's endpoints.

use super::findings::{CheckReport, check, replace_flag};
use crate::commands::sidecar::{Place, start_crm};
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::{FakePbx, Release};
use serde_json::Value;
use std::collections::BTreeSet;

/// The commands that the account of deploy/ can use, as Asterisk 22 names them.
const RECOMMENDED: &str = "Response: Success\nActionID: {id}\n\
    CoreSettings: Show PBX core settings (version etc).  (Priv: system,reporting,all)\n\
    CoreShowChannels: List currently active channels.  (Priv: system,reporting,all)\n\
    DeviceStateList: List the current known device states.  (Priv: call,reporting,all)\n\
    Ping: Keepalive command.  (Priv: <none>)\n\
    UserEvent: Send an arbitrary event.  (Priv: user,all)\n\n";
/// The commands of an account with `write = system`, which earlier documentation recommended.
const WITH_SYSTEM: &str = "Response: Success\nActionID: {id}\n\
    CoreShowChannels: List currently active channels.  (Priv: system,reporting,all)\n\
    Filter: Dynamically add filters for the current manager session.  (Priv: system,all)\n\
    GetConfig: Retrieve configuration.  (Priv: system,config,all)\n\
    PJSIPShowEndpoints: Lists PJSIP endpoints.  (Priv: system,all)\n\
    Ping: Keepalive command.  (Priv: <none>)\n\n";
const ECHO: &str = "Response: Success\nActionID: {id}\nMessage: Event Sent\n\n\
    Event: UserEvent\nPrivilege: user,all\nTimestamp: 1795226443.028147\n\
    UserEvent: CallbridgeCheck\nActionID: {id}\n\n";
const NO_CHANNELS: &str = "Response: Success\nActionID: {id}\nEventList: start\n\
    Message: Channels will follow\n\n\
    Event: CoreShowChannelsComplete\nActionID: {id}\nEventList: Complete\nListItems: 0\n\n";
const DEVICES: &str = "Response: Success\nActionID: {id}\nEventList: start\n\n\
    Event: DeviceStateChange\nActionID: {id}\nDevice: Queue:sales\nState: INUSE\n\n\
    Event: DeviceStateChange\nActionID: {id}\nDevice: PJSIP/city\nState: INUSE\n\n\
    Event: DeviceStateListComplete\nActionID: {id}\n\n";
const DENIED: &str = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";

/// Returns an answer to `CoreShowChannels` with one row per channel: its id, and its other fields.
/// `events_after` follows the answer.
fn channel_list(rows: &[(&str, &str)], events_after: &str) -> String {
    let mut answer = "Response: Success\nActionID: {id}\nEventList: start\n\n".to_owned();
    for (id, fields) in rows {
        answer.push_str(&format!(
            "Event: CoreShowChannel\nActionID: {{id}}\nChannel: PJSIP/101-00000001\n\
             Uniqueid: {id}\n{fields}\n\n"
        ));
    }
    answer + "Event: CoreShowChannelsComplete\nActionID: {id}\n\n" + events_after
}

/// Returns an answer to `PJSIPShowEndpoints` with these names.
fn endpoint_list(names: &[&str]) -> String {
    let mut answer = "Response: Success\nActionID: {id}\nEventList: start\n\n".to_owned();
    for name in names {
        answer.push_str(&format!(
            "Event: EndpointList\nActionID: {{id}}\nObjectType: endpoint\nObjectName: {name}\n\n"
        ));
    }
    answer + "Event: EndpointListComplete\nActionID: {id}\n\n"
}

struct Stage {
    place: Place,
    _crm: Server,
    pbx: FakePbx,
    flags: Vec<String>,
}

impl Stage {
    /// Starts a PBX without calls, and an account that can list the endpoints of the PBX.
    async fn new() -> Self {
        let (place, crm, pbx) = (Place::new(), start_crm(|_| ()).await, FakePbx::ami().await);
        pbx.answers("ListCommands", &[WITH_SYSTEM]);
        pbx.answers("CoreShowChannels", &[NO_CHANNELS]);
        pbx.answers(
            "PJSIPShowEndpoints",
            &[&endpoint_list(&["101", "102", "city", "gsm"])],
        );
        place.write("calls.ami", "");
        let flags = place.flags_of_file(&crm.url(), "calls.ami");
        let source = format!("ami://bridge@{}", pbx.addr());
        let flags = replace_flag(flags, "--source", &source);
        Self {
            place,
            _crm: crm,
            pbx,
            flags,
        }
    }

    async fn check(&self) -> CheckReport {
        check(&self.place, &self.flags).await
    }

    /// Runs `check` with one trunk, which has this endpoint.
    async fn check_trunk(&self, trunk: &str) -> CheckReport {
        let trunk = format!("city={trunk},country=UZ,lead=var:LEAD_ID");
        check(
            &self.place,
            &replace_flag(self.flags.clone(), "--trunk", &trunk),
        )
        .await
    }

    /// Returns the first line of each action that the PBX has received.
    fn actions(&self) -> BTreeSet<String> {
        let received = self.pbx.requests();
        received
            .iter()
            .map(|action| action.lines().next().unwrap_or_default().to_owned())
            .collect()
    }
}

/// Returns the message of the successful finding whose name starts with `name`.
fn message<'a>(report: &'a CheckReport, name: &str) -> &'a str {
    report.ok_finding(name)["message"].as_str().expect("words")
}

#[tokio::test]
async fn recommended_account_passes_and_unseen_data_is_unknown() {
    let stage = Stage::new().await;
    stage.pbx.answers("ListCommands", &[RECOMMENDED]);
    stage.pbx.answers("UserEvent", &[ECHO]);
    stage.pbx.answers("DeviceStateList", &[DEVICES]);
    let report = stage.check().await;
    report.assert_clean();
    assert_eq!(
        message(&report, "rights of"),
        "the account can list channels, and has no more rights than it needs"
    );
    let events = message(&report, "events of");
    let text = "an event that the account sent came back, but it is not known yet whether events \
                of calls arrive: no call";
    assert!(events.starts_with(text), "{events}");
    assert_eq!(
        message(&report, "endpoint PJSIP/city"),
        "the PBX has PJSIP/city"
    );
    assert!(message(&report, "times of").contains("the PBX's own time"));
    assert!(message(&report, "variables of").contains("LEAD_ID: not known"));
    let actions: Vec<String> = stage.actions().into_iter().collect();
    let expected = [
        "Action: Challenge",
        "Action: CoreSettings",
        "Action: CoreShowChannels",
        "Action: DeviceStateList",
        "Action: ListCommands",
        "Action: Login",
        "Action: Logoff",
        "Action: UserEvent",
    ];
    assert_eq!(
        actions, expected,
        "no action changes the PBX or reads its configuration"
    );
}

fn has_words(finding: &Value, key: &str, words: &str) -> bool {
    finding[key]
        .as_str()
        .is_some_and(|text| text.contains(words))
}

#[tokio::test]
async fn account_with_access_to_secrets_gets_advice_on_rights() {
    let stage = Stage::new().await;
    let report = stage.check().await;
    report.assert_clean();
    let rights = report.ok_finding("rights of");
    assert!(has_words(rights, "message", "GetConfig"), "{rights}");
    assert!(
        has_words(rights, "fix", "write = reporting,user"),
        "{rights}"
    );
    let events = message(&report, "events of");
    assert!(
        events.starts_with("FullyBooted arrived (the PBX runs), but it is not known"),
        "{events}"
    );
    assert!(
        !stage.actions().contains("Action: GetConfig"),
        "GetConfig is not sent"
    );
}

#[tokio::test]
async fn account_with_only_call_events_passes_check() {
    let stage = Stage::new().await;
    stage.pbx.hide_boot();
    stage.pbx.answers("ListCommands", &[RECOMMENDED]);
    // With `read = call,cdr`, the event is sent and not received.
    let sent = "Response: Success\nActionID: {id}\nMessage: Event Sent\n\n";
    stage.pbx.answers("UserEvent", &[sent]);
    stage.pbx.answers("DeviceStateList", &[DEVICES]);
    let report = stage.check().await;
    report.assert_clean();
    let events = report.ok_finding("events of");
    assert!(has_words(events, "message", "no event arrived"), "{events}");
    let right = "read = call,cdr,system,agent,user";
    assert!(has_words(events, "fix", right));
    // With a call, an event arrives, but the events of the PBX's start and stop do not.
    let hangup = "Event: Hangup\nPrivilege: call,all\nChannel: PJSIP/101-00000001\n\
                  Timestamp: 1795226443.028147\nUniqueid: 17.1\nChanVariable: LEAD_ID=\n\n";
    let live = channel_list(&[("17.1", "ChanVariable: LEAD_ID=")], hangup);
    stage.pbx.answers("CoreShowChannels", &[&live]);
    let report = stage.check().await;
    report.assert_clean();
    let events = message(&report, "events of");
    assert_eq!(
        events,
        "events of calls are received, but FullyBooted (the PBX has started) was not: the PBX is \
         still starting, or the account has no right to receive it"
    );
}

#[tokio::test]
async fn account_without_rights_that_can_log_in_exits_77() {
    let stage = Stage::new().await;
    stage.pbx.hide_boot();
    let ping = "Response: Success\nActionID: {id}\nPing: Keepalive command.  (Priv: <none>)\n\n";
    stage.pbx.answers("ListCommands", &[ping]);
    let report = stage.check().await;
    assert_eq!(report.code, 77, "{report:#?}");
    let failed_names = report.failed_names();
    assert_eq!(failed_names.len(), 1, "{report:#?}");
    assert!(
        failed_names[0].starts_with("rights of ami://"),
        "{failed_names:?}"
    );
    assert!(
        message(&report, "events of").contains("no event arrived"),
        "{report:#?}"
    );
    let report_text = format!("{report:?}");
    assert!(
        report_text.contains("read = call,cdr,system")
            && report_text.contains("write = reporting,user"),
        "{report_text}"
    );
    assert!(
        !stage.actions().contains("Action: CoreShowChannels"),
        "the account has no right to list channels"
    );
}

#[tokio::test]
async fn account_without_new_channel_events_exits_77() {
    let words = "read = call,cdr,system,agent,user";
    let stage = Stage::new().await;
    let shown = "ChanVariable: LEAD_ID=";
    let channels_before = channel_list(&[("17.1", shown)], "");
    let channels_after = channel_list(&[("17.1", shown), ("17.2", shown)], "");
    // The answers are given twice, because `check` runs twice here.
    stage.pbx.answers(
        "CoreShowChannels",
        &[
            &channels_before,
            &channels_after,
            &channels_before,
            &channels_after,
        ],
    );
    let report = stage.check().await;
    report.assert_single_failure(
        77,
        "events of ami://",
        "a channel was created during the check",
        words,
    );
}

/// Returns a list of one channel, and a `Hangup` event that ends with the lines `more`.
fn list_with_hangup(more: &str) -> String {
    let event = format!(
        "Event: Hangup\nPrivilege: call,all\nChannel: PJSIP/101-00000001\n\
         Uniqueid: 17.1\n{more}\n"
    );
    channel_list(&[("17.1", "ChanVariable: CAMPAIGN=")], &event)
}

#[tokio::test]
async fn channel_event_shows_access_times_and_variables() {
    let stage = Stage::new().await;
    let time = "Timestamp: 1795226443.028147\nChanVariable: LEAD_ID=\n";
    let without_lead = "Timestamp: 1795226443.028147\n";
    stage
        .pbx
        .answers("CoreShowChannels", &[&list_with_hangup(time)]);
    let report = stage.check().await;
    report.assert_clean();
    assert_eq!(
        message(&report, "events of"),
        "events of calls are received"
    );
    assert!(message(&report, "times of").contains("the PBX's own time"));
    assert_eq!(message(&report, "variables of"), "channels show LEAD_ID");
    stage
        .pbx
        .answers("CoreShowChannels", &[&list_with_hangup(without_lead)]);
    let report = stage.check().await;
    let fix = "add LEAD_ID to channelvars";
    report.assert_single_failure(
        78,
        "variables of ami://",
        "channels do not show LEAD_ID",
        fix,
    );
    let without_time = "ChanVariable: LEAD_ID=\n";
    stage
        .pbx
        .answers("CoreShowChannels", &[&list_with_hangup(without_time)]);
    let report = stage.check().await;
    report.assert_single_failure(
        78,
        "times of ami://",
        "events have no timestamps",
        "set timestampevents = yes",
    );
}

#[tokio::test]
async fn lead_variable_of_several_trunks_is_listed_once() {
    let stage = Stage::new().await;
    let mut flags = stage.flags.clone();
    let gsm = "--trunk=gsm=PJSIP/gsm,country=UZ,lead=var:LEAD_ID;userfield:([0-9]+)";
    flags.push(gsm.to_owned());
    let report = check(&stage.place, &flags).await;
    assert_eq!(
        message(&report, "variables of"),
        "LEAD_ID: not known before the first channel"
    );
    let version = report.ok_finding("version of").to_string();
    assert!(version.contains("channelvars = LEAD_ID\""), "{version}");
}

#[tokio::test]
async fn trunk_without_matching_endpoint_exits_78_with_suggestion() {
    let stage = Stage::new().await;
    for misspelt in ["PJSIP/citty", "pjsip/City", "PJSIP/ciyt", "SIP/city"] {
        let report = stage.check_trunk(misspelt).await;
        let fix = "did you mean PJSIP/city? Give --trunk city=PJSIP/city";
        report.assert_single_failure(
            78,
            &format!("endpoint {misspelt}"),
            "no endpoint of this name",
            fix,
        );
    }
    let report = stage.check_trunk("PJSIP/provider").await;
    report.assert_single_failure(
        78,
        "endpoint PJSIP/provider",
        "it has PJSIP/city, PJSIP/gsm",
        "core show channels",
    );
    // The PBX does not list the devices of every technology.
    for unlisted in ["Dongle/MTS", "DAHDI/i1", "PJSIP/*-out"] {
        let report = stage.check_trunk(unlisted).await;
        match unlisted {
            "PJSIP/*-out" => {
                report.assert_single_failure(78, "endpoint PJSIP/*-out", "of this name", "")
            }
            _ => report.assert_clean(),
        }
    }
}

#[tokio::test]
async fn phone_given_as_trunk_exits_78() {
    let stage = Stage::new().await;
    let report = stage.check_trunk("PJSIP/101").await;
    report.assert_single_failure(
        78,
        "endpoint PJSIP/101",
        "PJSIP/101 is named like a phone",
        "name the line to the carrier",
    );
    // A gateway registers at the PBX as a phone does, and its number can name a line.
    let rows = "Response: Success\nActionID: {id}\nEventList: start\n\n\
        Event: EndpointList\nActionID: {id}\nObjectName: goip1\nAuths: goip1\nOutboundAuths: \n\
        Contacts: goip1/sip:goip1@10.0.0.9:5060\n\n\
        Event: EndpointList\nActionID: {id}\nObjectName: 712000000\nAuths: \nOutboundAuths: x\n\
        Contacts: \n\nEvent: EndpointListComplete\nActionID: {id}\n\n";
    stage.pbx.answers("PJSIPShowEndpoints", &[rows]);
    stage.check_trunk("PJSIP/goip1").await.assert_clean();
    stage.check_trunk("PJSIP/712000000").await.assert_clean();
}

#[tokio::test]
async fn endpoint_without_trunk_is_noted_unless_phone() {
    let mut stage = Stage::new().await;
    let report = stage.check_trunk("PJSIP/city").await;
    report.assert_clean();
    assert_eq!(
        message(&report, "endpoint PJSIP/city"),
        "the PBX has PJSIP/city"
    );
    assert_eq!(
        message(&report, "endpoints of ami://"),
        "no --trunk matches PJSIP/gsm"
    );
    let report = stage.check_trunk("PJSIP/*").await;
    report.assert_clean();
    let expected = "it also matches telephones: PJSIP/101, PJSIP/102";
    assert_eq!(message(&report, "endpoint PJSIP/*"), expected);
    let staff = stage
        .place
        .write("staff.csv", "extension,employeeId\ngsm,501\n");
    stage.flags.push(format!("--employees={}", staff.display()));
    let report = stage.check_trunk("PJSIP/city").await;
    report.assert_clean();
    assert!(
        !format!("{report:?}").contains("no --trunk matches"),
        "{report:#?}"
    );
}

#[tokio::test]
async fn forbidden_endpoint_list_falls_back_to_devices_or_unknown() {
    let stage = Stage::new().await;
    let reporting = "Response: Success\nActionID: {id}\n\
        CoreShowChannels: List.  (Priv: system,reporting,all)\n\
        DeviceStateList: List.  (Priv: call,reporting,all)\n\n";
    stage.pbx.answers("ListCommands", &[reporting]);
    stage.pbx.answers("DeviceStateList", &[DEVICES]);
    let report = stage.check_trunk("PJSIP/citty").await;
    report.assert_single_failure(
        78,
        "endpoint PJSIP/citty",
        "no endpoint of this name",
        "did you mean PJSIP/city?",
    );
    stage.pbx.answers("DeviceStateList", &[DENIED]);
    let report = stage.check_trunk("PJSIP/citty").await;
    report.assert_clean();
    assert!(message(&report, "endpoints of ami://").contains("not known"));
}

/// The commands that Asterisk 11 names for an account like that of deploy/.
const OLD_COMMANDS: &str = "Response: Success\nActionID: {id}\n\
    CoreSettings: Show PBX core settings (version etc).  (Priv: system,reporting,all)\n\
    CoreShowChannels: List currently active channels.  (Priv: system,reporting,all)\n\
    QueueSummary: Show queue summary.  (Priv: <none>)\n\
    UserEvent: Send an arbitrary event.  (Priv: user,all)\n\n";

/// Returns the value at a JSON pointer into the table of the finding about a PBX's version.
fn value_at(version: &Value, path: &str) -> Value {
    version["tells"].pointer(path).cloned().unwrap_or_default()
}

#[tokio::test]
async fn release_shows_source_capabilities_and_needed_settings() {
    let stage = Stage::new().await;
    stage.pbx.set_release(Release::V11);
    stage.pbx.answers("ListCommands", &[OLD_COMMANDS]);
    let settings = "Response: Success\nActionID: {id}\nAMIversion: 1.3\n\
                    AsteriskVersion: 11.25.3\n\n";
    stage.pbx.answers("CoreSettings", &[settings]);
    let summary = "Response: Success\nActionID: {id}\nMessage: Queue summary will follow\n\n\
                   Event: QueueSummary\nActionID: {id}\nQueue: sales\n\n\
                   Event: QueueSummaryComplete\nActionID: {id}\n\n";
    stage.pbx.answers("QueueSummary", &[summary]);
    let report = stage.check().await;
    report.assert_clean();
    let version = report.ok_finding("version of ami://");
    assert_eq!(version["version"], "11.25.3");
    assert_eq!(value_at(version, "/ami/talk/how"), "exact");
    assert_eq!(value_at(version, "/ami/conference/how"), "exact");
    assert_eq!(value_at(version, "/cel/conference/how"), "no");
    assert_eq!(value_at(version, "/cel/lead/how"), "partly");
    assert_eq!(value_at(version, "/cdr/talk/how"), "estimate");
    let exception = value_at(version, "/ami/queue/but");
    assert!(
        exception
            .as_str()
            .is_some_and(|text| text.contains("eventwhencalled = yes")),
        "{exception}"
    );
    let wanted = version["settings"].to_string();
    for (file, line) in [
        ("manager.conf", "read = call,cdr,system,agent,user"),
        ("manager.conf", "channelvars = LEAD_ID"),
        ("cel.conf", "events = ALL"),
        ("queues.conf", "eventwhencalled = yes"),
    ] {
        assert!(
            wanted.contains(file) && wanted.contains(line),
            "{line} in {wanted}"
        );
    }
    let queues = report.ok_finding("queues of ami://");
    let fix = queues["fix"].as_str().unwrap_or_default();
    assert!(
        fix.contains("queues.conf has eventwhencalled = yes"),
        "{queues}"
    );
}

#[tokio::test]
async fn newer_release_is_known_from_ami_version_and_skips_queues() {
    let stage = Stage::new().await;
    let report = stage.check().await;
    report.assert_clean();
    let version = report.ok_finding("version of ami://");
    assert_eq!(version["version"], "22, according to its manager 11.0.0");
    assert_eq!(version["tells"]["ami"]["queue"]["how"], "exact");
    assert!(!version["settings"].to_string().contains("queues.conf"));
    assert!(!stage.actions().contains("Action: QueueSummary"));
}
