//! Tests of the survey, with responses from Asterisk 22.

use super::*;
use crate::login::Settings;
use secrecy::SecretString;

fn login() -> Login {
    let secret = SecretString::from("secret");
    Login::new("bridge", secret, Settings::default()).expect("good credentials")
}

fn frame(lines: &str) -> Vec<u8> {
    lines.replace('\n', "\r\n").into_bytes()
}

/// Returns the requested actions, in order.
fn actions(asked: &[Outgoing]) -> Vec<String> {
    asked.iter().map(action_name).collect()
}

fn action_name(outgoing: &Outgoing) -> String {
    let text = String::from_utf8_lossy(outgoing.bytes()).into_owned();
    let line = text.lines().next().unwrap_or_default();
    line.replace("Action: ", "")
}

/// Returns a survey that has received the list of commands `commands`, its login, and the names of
/// the actions that it requests next.
fn survey_with_commands(commands: &str) -> (Survey, Login, Vec<String>) {
    let (mut login, mut survey) = (login(), Survey::new("Asterisk Call Manager/11.0.0"));
    let _ = survey.begin(&mut login);
    let named = format!("Response: Success\nActionID: callbridge-1\n{commands}");
    survey.on_frame(&frame(&named));
    assert!(survey.is_answered());
    let asked = survey.ask(&mut login);
    (survey, login, actions(&asked))
}

const ALL: &str = "CoreShowChannels: List active channels.  (Priv: system,reporting,all)\n\
    DeviceStateList: List the current known device states.  (Priv: call,reporting,all)\n\
    PJSIPShowEndpoints: Lists PJSIP endpoints.  (Priv: system,all)\n\
    UserEvent: Send an arbitrary event.  (Priv: user,all)\n";

#[test]
fn survey_sends_permitted_actions_and_never_reads_config() {
    let (_, _, asked) = survey_with_commands(ALL);
    let all = [
        "UserEvent",
        "UserEvent",
        "UserEvent",
        "PJSIPShowEndpoints",
        "DeviceStateList",
        "CoreShowChannels",
    ];
    assert_eq!(asked, all);
    let config = "GetConfig: Retrieve configuration.  (Priv: system,config,all)\n\
        Command: Execute Asterisk CLI Command.  (Priv: command,all)\nPing: Keepalive.\n";
    assert_eq!(survey_with_commands(config).2, [] as [&str; 0]);
    let (mut login, mut survey) = (login(), Survey::new("Asterisk Call Manager/1.0"));
    let _ = survey.begin(&mut login);
    survey.on_frame(&frame(
        "Response: Error\nActionID: callbridge-1\nMessage: Permission denied\n",
    ));
    let asked = survey.ask(&mut login);
    let lists = [
        "CoreSettings",
        "QueueSummary",
        "PJSIPShowEndpoints",
        "SIPpeers",
        "IAXpeers",
        "DeviceStateList",
        "ExtensionStateList",
        "CoreShowChannels",
    ];
    assert_eq!(
        actions(&asked),
        lists,
        "no event of our own unless it may be sent"
    );
}

#[test]
fn survey_answers_show_endpoints_rights_and_echo() {
    let (mut survey, _, _) = survey_with_commands(ALL);
    for lines in [
        "Event: FullyBooted\nPrivilege: system,all\nStatus: Fully Booted\n",
        "Event: EventOfAnother\nActionID: other-3\nObjectName: no\n",
        "Response: Success\nActionID: callbridge-2\nMessage: Event Sent\n",
        "Event: UserEvent\nPrivilege: user,all\nUserEvent: CallbridgeCheck\n\
         ActionID: callbridge-2\nSample: Event: BridgeEnter\n",
        "Event: UserEvent\nPrivilege: user,all\nUserEvent: CallbridgeCheck\n\
         ActionID: callbridge-3\nSample: Event: Newchannel\n",
        "Event: UserEvent\nPrivilege: user,all\nTimestamp: 1795226443.028147\n\
         UserEvent: CallbridgeCheck\nActionID: callbridge-4\n",
        "Response: Success\nActionID: callbridge-5\nEventList: start\n",
        "Event: EndpointList\nActionID: callbridge-5\nObjectType: endpoint\nObjectName: city\n",
        "Event: EndpointListComplete\nActionID: callbridge-5\nEventList: Complete\n",
        "Response: Success\nActionID: callbridge-6\nMessage: Device State Changes will follow\n",
        "Event: DeviceStateChange\nActionID: callbridge-6\nDevice: MWI:1@x\nState: NOT_INUSE\n",
        "Event: DeviceStateChange\nActionID: callbridge-6\nDevice: Queue:sales\nState: INUSE\n",
        "Event: DeviceStateChange\nActionID: callbridge-6\nDevice: Dongle/MTS\nState: INUSE\n",
        "Event: DeviceStateListComplete\nActionID: callbridge-6\n",
        "Response: Error\nActionID: callbridge-7\nMessage: Permission denied\n",
    ] {
        assert!(!survey.is_answered());
        survey.on_frame(&frame(lines));
    }
    assert!(survey.is_answered() && survey.is_echoed() && !survey.may_receive_more());
    let account = survey.account();
    assert_eq!(account.version, "11.0.0");
    let endpoints = &account.endpoints;
    assert!(endpoints.names().eq(["Dongle/MTS", "PJSIP/city"]));
    assert!(endpoints.whole.iter().eq(["PJSIP"]));
    assert_eq!(account.clock, Some(EventTime::from_seconds(1_795_226_443)));
    assert_eq!(
        (account.booted, account.echoed, account.timed),
        (true, Some(true), Some(true))
    );
    assert_eq!((account.channels, account.calls), (None, CallProof::None));
    assert_eq!(account.bridges, BridgeProof::Unknown);
}

/// Returns the survey's conclusion about bridge events if only our own events with these IDs come
/// back. `callbridge-2` contains the text of a bridge event, and `callbridge-3` that of a new
/// channel.
fn bridges_after_echoes(ids: &[u32]) -> BridgeProof {
    let (mut survey, _, _) = survey_with_commands(ALL);
    for id in ids {
        survey.on_frame(&frame(&format!(
            "Event: UserEvent\nPrivilege: user,all\nUserEvent: CallbridgeCheck\n\
             ActionID: callbridge-{id}\n"
        )));
    }
    survey.account().bridges
}

#[test]
fn filter_that_drops_only_the_bridge_sample_drops_bridge_events() {
    // A filter without `!` that doesn't list UserEvent only lets through texts with the events it
    // does list.
    assert_eq!(bridges_after_echoes(&[3]), BridgeProof::Dropped);
    assert_eq!(bridges_after_echoes(&[3, 4]), BridgeProof::Dropped);
    assert_eq!(bridges_after_echoes(&[4]), BridgeProof::Dropped);
    for unclear in [&[][..], &[2], &[2, 3, 4], &[2, 4]] {
        assert_eq!(
            bridges_after_echoes(unclear),
            BridgeProof::Unknown,
            "{unclear:?}"
        );
    }
}

#[test]
fn bridge_event_proves_that_bridge_events_arrive() {
    let (mut survey, _, _) = survey_with_commands(ALL);
    survey.on_frame(&frame(
        "Event: BridgeEnter\nPrivilege: call,all\nUniqueid: 17.1\n",
    ));
    survey.on_frame(&frame(
        "Event: UserEvent\nUserEvent: CallbridgeCheck\nActionID: callbridge-4\n",
    ));
    assert_eq!(survey.account().bridges, BridgeProof::Heard);
}

/// Passes a list of channels to the survey, as the response to the action `id`.
fn list(survey: &mut Survey, id: &str, channels: &[&str]) {
    survey.on_frame(&frame(&format!(
        "Response: Success\nActionID: {id}\nEventList: start\n"
    )));
    for channel in channels {
        survey.on_frame(&frame(&format!(
            "Event: CoreShowChannel\nActionID: {id}\nChannel: PJSIP/101-00000001\n\
             Uniqueid: {channel}\nChanVariable: LEAD_ID=\nChanVariable: CAMPAIGN=x\n"
        )));
    }
    survey.on_frame(&frame(&format!(
        "Event: CoreShowChannelsComplete\nActionID: {id}\n"
    )));
}

#[test]
fn channel_new_in_second_list_proves_unheard_calls() {
    let (mut survey, mut login, _) = survey_with_commands("CoreShowChannels: List.\n");
    list(&mut survey, "callbridge-2", &["17.1"]);
    assert!(survey.may_receive_more() && !survey.is_settled());
    let _ = survey.list(&mut login).expect("allowed");
    list(&mut survey, "callbridge-3", &["17.1", "17.2"]);
    let account = survey.account();
    assert_eq!(
        (account.channels, account.calls),
        (Some(2), CallProof::Unheard(1))
    );
    let shown = account.variables.expect("channels were seen");
    assert!(
        shown.iter().eq(["CAMPAIGN", "LEAD_ID"]),
        "empty ones, too: {shown:?}"
    );
}

#[test]
fn channel_event_proves_that_calls_are_heard() {
    let (mut survey, _, _) = survey_with_commands("CoreShowChannels: List.\n");
    list(&mut survey, "callbridge-2", &["17.1"]);
    survey.on_frame(&frame(
        "Event: Hangup\nPrivilege: call,all\nChannel: PJSIP/101-00000001\nUniqueid: 17.1\n",
    ));
    assert!(survey.is_settled());
    let account = survey.account();
    assert_eq!(
        (account.calls, account.timed),
        (CallProof::Heard, Some(false))
    );
}

#[test]
fn event_with_a_time_proves_that_the_pbx_sends_times() {
    let (mut survey, _, _) = survey_with_commands("CoreShowChannels: List.\n");
    let row = "Event: Status\nPrivilege: Call\nActionID: another-1\nUniqueid: 17.1\n";
    survey.on_frame(&frame(row));
    assert_eq!(survey.account.timed, None, "a row of a list");
    survey.on_frame(&peer_status(""));
    assert_eq!(survey.account.timed, Some(false));
    survey.on_frame(&peer_status("Timestamp: 1795226443.5\n"));
    survey.on_frame(&peer_status(""));
    assert_eq!(survey.account.timed, Some(true));
}

fn peer_status(time: &str) -> Vec<u8> {
    frame(&format!("Event: PeerStatus\nPrivilege: system,all\n{time}"))
}

#[test]
fn survey_requests_release_and_before_12_also_queues() {
    let may = "CoreSettings: Show PBX core settings.  (Priv: system,reporting,all)\n\
        QueueSummary: Show queue summary.  (Priv: <none>)\n";
    assert_eq!(survey_with_commands(may).2, ["CoreSettings"], "Asterisk 22");
    let (mut login, mut survey) = (login(), Survey::new("Asterisk Call Manager/1.3"));
    let _ = survey.begin(&mut login);
    let named = format!("Response: Success\nActionID: callbridge-1\n{may}");
    survey.on_frame(&frame(&named));
    assert_eq!(
        actions(&survey.ask(&mut login)),
        ["CoreSettings", "QueueSummary"]
    );
    for lines in [
        "Response: Success\nActionID: callbridge-2\nAMIversion: 1.3\nAsteriskVersion: 11.25.3\n",
        "Response: Success\nActionID: callbridge-3\nMessage: Queue summary will follow\n",
        "Event: QueueSummary\nActionID: callbridge-3\nQueue: sales\n",
        "Event: QueueSummary\nActionID: callbridge-3\nQueue: support\n",
        "Event: QueueSummaryComplete\nActionID: callbridge-3\n",
    ] {
        assert!(!survey.is_answered(), "{lines}");
        survey.on_frame(&frame(lines));
    }
    assert!(survey.is_answered());
    let account = survey.account();
    assert_eq!(account.release.as_deref(), Some("11.25.3"));
    assert_eq!(account.queues, Some(2));
}

fn endpoint_row(name: &str, more: &str) -> String {
    format!("Event: EndpointList\nActionID: callbridge-2\nObjectName: {name}\n{more}\n")
}

#[test]
fn endpoint_facts_distinguish_trunks_from_phones() {
    let may = "PJSIPShowEndpoints: x\nPJSIPShowRegistrationsOutbound: x\n\
        ExtensionStateList: x\nCoreShowChannels: x\n";
    let (mut survey, _, _) = survey_with_commands(may);
    let there = "Auths: \nOutboundAuths: a\nContacts: x7/sip:sip.provider.uz:5060\n";
    let here = "Auths: auth101\nOutboundAuths: \nContacts: 101/sip:101@10.0.0.7:5060;ob\n";
    for lines in [
        "Response: Success\nActionID: callbridge-2\nEventList: start\n",
        &endpoint_row("x7", there),
        &endpoint_row("trunk-9", here),
        &endpoint_row("gate", "Auths: \nOutboundAuths: \nContacts: \n"),
        "Event: EndpointListComplete\nActionID: callbridge-2\n",
        "Response: Success\nActionID: callbridge-3\nEventList: start\n",
        "Event: ExtensionStatus\nActionID: callbridge-3\nExten: 109\nContext: hints\n\
         Hint: PJSIP/trunk-9&Custom:DND109,CustomPresence:109\n",
        "Event: ExtensionStateListComplete\nActionID: callbridge-3\n",
        "Response: Success\nActionID: callbridge-4\nEventList: start\n",
        "Event: CoreShowChannel\nActionID: callbridge-4\nChannel: PJSIP/gate-0000001f\n\
         Uniqueid: 1.1\nCallerIDNum: +998901110001\n",
        "Event: CoreShowChannelsComplete\nActionID: callbridge-4\n",
    ] {
        assert!(!survey.is_answered(), "{lines}");
        survey.on_frame(&frame(lines));
    }
    assert!(survey.is_answered());
    let facts = survey.account().endpoints.facts;
    let number = "+998901110001".to_owned();
    for (name, expected) in [
        ("PJSIP/x7", vec![EndpointFact::LogsInThere]),
        (
            "PJSIP/trunk-9",
            vec![
                EndpointFact::Hint("109".to_owned()),
                EndpointFact::LogsInHere,
                EndpointFact::CalledAs("101".to_owned()),
            ],
        ),
        (
            "PJSIP/gate",
            vec![EndpointFact::NoLogin, EndpointFact::Outside(number)],
        ),
    ] {
        let found: Vec<EndpointFact> = facts[name].iter().cloned().collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn contact_yields_an_extension_only_for_a_phone() {
    let phone = extension_of("101/sip:101@127.0.0.1:6101,");
    assert_eq!(phone.as_deref(), Some("101"));
    assert_eq!(
        extension_of("sips:9@[2001:db8::1];ob").as_deref(),
        Some("9")
    );
    for line in [
        "city/sip:127.0.0.1:6000,",
        "x/sip:998712000000@provider.uz",
        "x/sip:office@provider.uz",
        "x/sip:@10.0.0.1",
        "",
    ] {
        assert_eq!(extension_of(line), None, "{line}");
    }
}

#[test]
fn host_is_found_in_every_form_of_an_address() {
    for (uri, host) in [
        ("sip:sip.provider.uz", "sip.provider.uz"),
        ("sips:user@Host:5061;transport=tls", "host"),
        ("city/sip:203.0.113.5:5060", "203.0.113.5"),
        ("203.0.113.5", "203.0.113.5"),
        ("sip:[2001:db8::1]:5060", "2001:db8::1"),
    ] {
        assert_eq!(host_of(uri).as_deref(), Some(host), "{uri}");
    }
    assert_eq!(host_of(""), None);
}
