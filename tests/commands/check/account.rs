//! Tests a manager account whose login succeeds: its rights, the events it receives, and whether
//! the trunks match the PBX's endpoints.

use super::findings::{Checked, check, with};
use crate::commands::sidecar::{Place, crm};
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::{FakePbx, Release};
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
    Event: UserEvent\nPrivilege: user,all\nUserEvent: CallbridgeCheck\nActionID: {id}\n\n";
const NO_CHANNELS: &str = "Response: Success\nActionID: {id}\nEventList: start\n\
    Message: Channels will follow\n\n\
    Event: CoreShowChannelsComplete\nActionID: {id}\nEventList: Complete\nListItems: 0\n\n";
const DEVICES: &str = "Response: Success\nActionID: {id}\nEventList: start\n\n\
    Event: DeviceStateChange\nActionID: {id}\nDevice: Queue:sales\nState: INUSE\n\n\
    Event: DeviceStateChange\nActionID: {id}\nDevice: PJSIP/city\nState: INUSE\n\n\
    Event: DeviceStateListComplete\nActionID: {id}\n\n";
const DENIED: &str = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";

/// Returns a list of these channels. The fields of each follow its id, and `behind` follows the
/// list.
fn channels(of: &[(&str, &str)], behind: &str) -> String {
    let mut answer = "Response: Success\nActionID: {id}\nEventList: start\n\n".to_owned();
    for (id, shows) in of {
        answer.push_str(&format!(
            "Event: CoreShowChannel\nActionID: {{id}}\nChannel: PJSIP/101-00000001\n\
             Uniqueid: {id}\n{shows}\n\n"
        ));
    }
    answer + "Event: CoreShowChannelsComplete\nActionID: {id}\n\n" + behind
}

fn endpoints(names: &[&str]) -> String {
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
    /// A PBX without calls, and an account that can list its endpoints.
    async fn new() -> Self {
        let (place, crm, pbx) = (Place::new(), crm(|_| ()).await, FakePbx::ami().await);
        pbx.answers("ListCommands", &[WITH_SYSTEM]);
        pbx.answers("CoreShowChannels", &[NO_CHANNELS]);
        pbx.answers(
            "PJSIPShowEndpoints",
            &[&endpoints(&["101", "102", "city", "gsm"])],
        );
        place.write("calls.ami", "");
        let flags = place.flags_of_file(&crm.url(), "calls.ami");
        let source = format!("ami://bridge@{}", pbx.addr());
        let flags = with(flags, "--source", &source);
        Self {
            place,
            _crm: crm,
            pbx,
            flags,
        }
    }

    async fn check(&self) -> Checked {
        check(&self.place, &self.flags).await
    }

    /// Runs `check` with only this trunk.
    async fn check_trunk(&self, trunk: &str) -> Checked {
        let trunk = format!("city={trunk},country=UZ,lead=var:LEAD_ID");
        check(&self.place, &with(self.flags.clone(), "--trunk", &trunk)).await
    }

    fn actions(&self) -> BTreeSet<String> {
        let asked = self.pbx.asked();
        let first = |action: &String| action.lines().next().unwrap_or_default().to_owned();
        asked.iter().map(first).collect()
    }
}

fn what<'a>(checked: &'a Checked, name: &str) -> &'a str {
    checked.well(name)["message"].as_str().expect("words")
}

#[tokio::test]
async fn recommended_account_passes_and_unseen_data_is_unknown() {
    let stage = Stage::new().await;
    stage.pbx.answers("ListCommands", &[RECOMMENDED]);
    stage.pbx.answers("UserEvent", &[ECHO]);
    stage.pbx.answers("DeviceStateList", &[DEVICES]);
    let checked = stage.check().await;
    checked.is_clean();
    assert_eq!(
        what(&checked, "rights of"),
        "the account can list channels, and has no more rights than it needs"
    );
    let events = what(&checked, "events of");
    let own = "an event that the account sent came back, but it is not known yet whether events of \
               calls arrive: no call";
    assert!(events.starts_with(own), "{events}");
    assert_eq!(
        what(&checked, "endpoint PJSIP/city"),
        "the PBX has PJSIP/city"
    );
    assert!(what(&checked, "times of").contains("no time"));
    assert!(what(&checked, "variables of").contains("LEAD_ID: not known"));
    let asked: Vec<String> = stage.actions().into_iter().collect();
    let only_asked = [
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
        asked, only_asked,
        "nothing that changes the PBX, and no configuration"
    );
}

#[tokio::test]
async fn account_with_access_to_secrets_gets_advice_on_rights() {
    let stage = Stage::new().await;
    let checked = stage.check().await;
    checked.is_clean();
    let rights = checked.well("rights of");
    let has = |key: &str, words: &str| rights[key].as_str().is_some_and(|it| it.contains(words));
    assert!(has("message", "GetConfig"), "{rights}");
    assert!(has("fix", "write = reporting,user"), "{rights}");
    let events = what(&checked, "events of");
    assert!(
        events.starts_with("FullyBooted arrived (the PBX runs), but it is not known"),
        "{events}"
    );
    assert!(
        !stage.actions().contains("Action: GetConfig"),
        "it is not asked"
    );
}

#[tokio::test]
async fn account_that_receives_only_call_events_is_no_problem() {
    let stage = Stage::new().await;
    stage.pbx.hides_boot();
    stage.pbx.answers("ListCommands", &[RECOMMENDED]);
    // With `read = call,cdr`, the event is sent and not received.
    let sent = "Response: Success\nActionID: {id}\nMessage: Event Sent\n\n";
    stage.pbx.answers("UserEvent", &[sent]);
    stage.pbx.answers("DeviceStateList", &[DEVICES]);
    let checked = stage.check().await;
    checked.is_clean();
    let events = checked.well("events of");
    let words = |key: &str| events[key].as_str().unwrap_or_default().to_owned();
    assert!(words("message").contains("no event arrived"), "{events}");
    assert!(words("fix").contains("read = call,cdr,system,agent,user"));
    // With a call, an event arrives, but the events of the PBX's start and stop do not.
    let hangup = "Event: Hangup\nPrivilege: call,all\nChannel: PJSIP/101-00000001\n\
                  Timestamp: 1795226443.028147\nUniqueid: 17.1\nChanVariable: LEAD_ID=\n\n";
    let live = channels(&[("17.1", "ChanVariable: LEAD_ID=")], hangup);
    stage.pbx.answers("CoreShowChannels", &[&live]);
    let checked = stage.check().await;
    checked.is_clean();
    let events = what(&checked, "events of");
    assert_eq!(
        events,
        "events of calls are received, but FullyBooted (the PBX has started) was not: the PBX is \
         still starting, or the account has no right to receive it"
    );
}

#[tokio::test]
async fn account_without_rights_is_77_though_it_is_let_in() {
    let stage = Stage::new().await;
    stage.pbx.hides_boot();
    let ping = "Response: Success\nActionID: {id}\nPing: Keepalive command.  (Priv: <none>)\n\n";
    stage.pbx.answers("ListCommands", &[ping]);
    let checked = stage.check().await;
    assert_eq!(checked.code, 77, "{checked:#?}");
    let faults = checked.faults();
    assert_eq!(faults.len(), 1, "{checked:#?}");
    assert!(faults[0].starts_with("rights of ami://"), "{faults:?}");
    assert!(
        what(&checked, "events of").contains("no event arrived"),
        "{checked:#?}"
    );
    let said = format!("{checked:?}");
    assert!(
        said.contains("read = call,cdr,system") && said.contains("write = reporting,user"),
        "{said}"
    );
    assert!(
        !stage.actions().contains("Action: CoreShowChannels"),
        "it may not"
    );
}

#[tokio::test]
async fn account_without_events_of_new_channel_is_77() {
    let words = "read = call,cdr,system,agent,user";
    let stage = Stage::new().await;
    let shown = "ChanVariable: LEAD_ID=";
    let before = channels(&[("17.1", shown)], "");
    let after = channels(&[("17.1", shown), ("17.2", shown)], "");
    // The answers are given twice, because `check` runs twice here.
    stage
        .pbx
        .answers("CoreShowChannels", &[&before, &after, &before, &after]);
    let checked = stage.check().await;
    checked.fails(
        77,
        "events of ami://",
        "a channel was created during the check",
        words,
    );
}

#[tokio::test]
async fn channel_event_shows_access_times_and_variables() {
    let stage = Stage::new().await;
    let hangup = |more: &str| {
        let event = format!(
            "Event: Hangup\nPrivilege: call,all\nChannel: PJSIP/101-00000001\n\
             Uniqueid: 17.1\n{more}\n"
        );
        channels(&[("17.1", "ChanVariable: CAMPAIGN=")], &event)
    };
    let time = "Timestamp: 1795226443.028147\nChanVariable: LEAD_ID=\n";
    stage.pbx.answers("CoreShowChannels", &[&hangup(time)]);
    let checked = stage.check().await;
    checked.is_clean();
    assert_eq!(what(&checked, "events of"), "events of calls are received");
    assert!(what(&checked, "times of").contains("the PBX's own time"));
    assert_eq!(what(&checked, "variables of"), "channels show LEAD_ID");
    stage.pbx.answers("CoreShowChannels", &[&hangup("")]);
    let checked = stage.check().await;
    let fix = "add LEAD_ID to channelvars";
    checked.fails(
        78,
        "variables of ami://",
        "channels do not show LEAD_ID",
        fix,
    );
    let times = checked.well("times of");
    assert!(
        times["fix"]
            .as_str()
            .is_some_and(|it| it.contains("timestampevents")),
        "{times}"
    );
}

#[tokio::test]
async fn variable_that_several_trunks_take_leads_from_is_named_once() {
    let stage = Stage::new().await;
    let mut flags = stage.flags.clone();
    let gsm = "--trunk=gsm=PJSIP/gsm,country=UZ,lead=var:LEAD_ID;userfield:([0-9]+)";
    flags.push(gsm.to_owned());
    let checked = check(&stage.place, &flags).await;
    assert_eq!(
        what(&checked, "variables of"),
        "LEAD_ID: not known before the first channel"
    );
    let version = checked.well("version of").to_string();
    assert!(version.contains("channelvars = LEAD_ID\""), "{version}");
}

#[tokio::test]
async fn trunk_without_matching_endpoint_is_78_with_suggestion() {
    let stage = Stage::new().await;
    for misspelt in ["PJSIP/citty", "pjsip/City", "PJSIP/ciyt", "SIP/city"] {
        let checked = stage.check_trunk(misspelt).await;
        let fix = "did you mean PJSIP/city? Give --trunk city=PJSIP/city";
        checked.fails(
            78,
            &format!("endpoint {misspelt}"),
            "no endpoint of this name",
            fix,
        );
    }
    let checked = stage.check_trunk("PJSIP/provider").await;
    checked.fails(
        78,
        "endpoint PJSIP/provider",
        "it has PJSIP/city, PJSIP/gsm",
        "core show channels",
    );
    // The PBX does not list the devices of every technology.
    for unlisted in ["Dongle/MTS", "DAHDI/i1", "PJSIP/*-out"] {
        let checked = stage.check_trunk(unlisted).await;
        match unlisted {
            "PJSIP/*-out" => checked.fails(78, "endpoint PJSIP/*-out", "of this name", ""),
            _ => checked.is_clean(),
        }
    }
}

#[tokio::test]
async fn phone_given_as_trunk_is_78() {
    let stage = Stage::new().await;
    let checked = stage.check_trunk("PJSIP/101").await;
    checked.fails(
        78,
        "endpoint PJSIP/101",
        "PJSIP/101 is named like a phone",
        "give --trunk the line",
    );
    // A gateway registers at the PBX as a phone does, and its number can name a line.
    let rows = "Response: Success\nActionID: {id}\nEventList: start\n\n\
        Event: EndpointList\nActionID: {id}\nObjectName: goip1\nAuths: goip1\nOutboundAuths: \n\
        Contacts: goip1/sip:goip1@10.0.0.9:5060\n\n\
        Event: EndpointList\nActionID: {id}\nObjectName: 712000000\nAuths: \nOutboundAuths: x\n\
        Contacts: \n\nEvent: EndpointListComplete\nActionID: {id}\n\n";
    stage.pbx.answers("PJSIPShowEndpoints", &[rows]);
    stage.check_trunk("PJSIP/goip1").await.is_clean();
    stage.check_trunk("PJSIP/712000000").await.is_clean();
}

#[tokio::test]
async fn endpoint_without_trunk_is_noted_unless_phone() {
    let mut stage = Stage::new().await;
    let checked = stage.check_trunk("PJSIP/city").await;
    checked.is_clean();
    assert_eq!(
        what(&checked, "endpoint PJSIP/city"),
        "the PBX has PJSIP/city"
    );
    assert_eq!(
        what(&checked, "endpoints of ami://"),
        "no --trunk matches PJSIP/gsm"
    );
    let wide = stage.check_trunk("PJSIP/*").await;
    wide.is_clean();
    let said = "it also matches telephones: PJSIP/101, PJSIP/102";
    assert_eq!(what(&wide, "endpoint PJSIP/*"), said);
    let staff = stage
        .place
        .write("staff.csv", "extension,employeeId\ngsm,501\n");
    stage.flags.push(format!("--employees={}", staff.display()));
    let checked = stage.check_trunk("PJSIP/city").await;
    checked.is_clean();
    assert!(
        !format!("{checked:?}").contains("no --trunk matches"),
        "{checked:#?}"
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
    let checked = stage.check_trunk("PJSIP/citty").await;
    checked.fails(
        78,
        "endpoint PJSIP/citty",
        "no endpoint of this name",
        "did you mean PJSIP/city?",
    );
    stage.pbx.answers("DeviceStateList", &[DENIED]);
    let checked = stage.check_trunk("PJSIP/citty").await;
    checked.is_clean();
    assert!(what(&checked, "endpoints of ami://").contains("not known"));
}

/// The commands that Asterisk 11 names for an account like that of deploy/.
const OLD: &str = "Response: Success\nActionID: {id}\n\
    CoreSettings: Show PBX core settings (version etc).  (Priv: system,reporting,all)\n\
    CoreShowChannels: List currently active channels.  (Priv: system,reporting,all)\n\
    QueueSummary: Show queue summary.  (Priv: <none>)\n\
    UserEvent: Send an arbitrary event.  (Priv: user,all)\n\n";

#[tokio::test]
async fn release_shows_source_capabilities_and_needed_settings() {
    let stage = Stage::new().await;
    stage.pbx.is_of(Release::V11);
    stage.pbx.answers("ListCommands", &[OLD]);
    let settings = "Response: Success\nActionID: {id}\nAMIversion: 1.3\n\
                    AsteriskVersion: 11.25.3\n\n";
    stage.pbx.answers("CoreSettings", &[settings]);
    let summary = "Response: Success\nActionID: {id}\nMessage: Queue summary will follow\n\n\
                   Event: QueueSummary\nActionID: {id}\nQueue: sales\n\n\
                   Event: QueueSummaryComplete\nActionID: {id}\n\n";
    stage.pbx.answers("QueueSummary", &[summary]);
    let checked = stage.check().await;
    checked.is_clean();
    let version = checked.well("version of ami://");
    assert_eq!(version["version"], "11.25.3");
    let how = |path: &str| version["tells"].pointer(path).cloned().unwrap_or_default();
    assert_eq!(how("/ami/talk/how"), "exact");
    assert_eq!(how("/ami/conference/how"), "exact");
    assert_eq!(how("/cel/conference/how"), "no");
    assert_eq!(how("/cel/lead/how"), "partly");
    assert_eq!(how("/cdr/talk/how"), "estimate");
    let but = how("/ami/queue/but");
    assert!(
        but.as_str()
            .is_some_and(|it| it.contains("eventwhencalled = yes")),
        "{but}"
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
    let queues = checked.well("queues of ami://");
    let fix = queues["fix"].as_str().unwrap_or_default();
    assert!(
        fix.contains("queues.conf has eventwhencalled = yes"),
        "{queues}"
    );
}

#[tokio::test]
async fn newer_release_skips_queues_and_is_named_by_manager() {
    let stage = Stage::new().await;
    let checked = stage.check().await;
    checked.is_clean();
    let version = checked.well("version of ami://");
    assert_eq!(version["version"], "22, according to its manager 11.0.0");
    assert_eq!(version["tells"]["ami"]["queue"]["how"], "exact");
    assert!(!version["settings"].to_string().contains("queues.conf"));
    assert!(!stage.actions().contains("Action: QueueSummary"));
}
