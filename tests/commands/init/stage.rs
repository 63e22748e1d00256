//! A PBX with a trunk called `x7` and a phone called `trunk-9`, and a CRM. Tests run `init` with
//! both.

use crate::commands::sidecar::{CommandOutput, Place, start_crm};
use callbridge_sandbox::Server;
use callbridge_testbed::pbx::FakePbx;
use std::path::PathBuf;

const COMMANDS: &str = "Response: Success\nActionID: {id}\n\
    CoreSettings: Show PBX core settings (version etc).  (Priv: system,reporting,all)\n\
    CoreShowChannels: List currently active channels.  (Priv: system,reporting,all)\n\
    DeviceStateList: List the current known device states.  (Priv: call,reporting,all)\n\
    ExtensionStateList: List the current known extension states.  (Priv: call,reporting,all)\n\
    PJSIPShowEndpoints: Lists PJSIP endpoints.  (Priv: system,all)\n\
    PJSIPShowRegistrationsOutbound: Lists PJSIP outbound registrations.  (Priv: system,all)\n\
    UserEvent: Send an arbitrary event.  (Priv: user,all)\n\n";
const ECHO: &str = "Response: Success\nActionID: {id}\nMessage: Event Sent\n\n\
    Event: UserEvent\nPrivilege: user,all\nTimestamp: 1.5\nUserEvent: CallbridgeCheck\n\
    ActionID: {id}\n\n";
const CHANNELS: &str = "Response: Success\nActionID: {id}\nEventList: start\n\n\
    Event: CoreShowChannelsComplete\nActionID: {id}\nEventList: Complete\nListItems: 0\n\n";
const ENDPOINTS: &str = "Response: Success\nActionID: {id}\nEventList: start\n\n\
    Event: EndpointList\nActionID: {id}\nObjectName: trunk-9\nAuths: trunk-9\nOutboundAuths: \n\
    Contacts: trunk-9/sip:109@10.0.0.9:5060\n\n\
    Event: EndpointList\nActionID: {id}\nObjectName: 101\nAuths: 101\nOutboundAuths: \nContacts: \
    \n\n\
    Event: EndpointList\nActionID: {id}\nObjectName: x7\nAuths: \nOutboundAuths: x7\n\
    Contacts: x7/sip:sip.provider.uz\n\n\
    Event: EndpointListComplete\nActionID: {id}\n\n";
const HINTS: &str = "Response: Success\nActionID: {id}\nEventList: start\n\n\
    Event: ExtensionStatus\nActionID: {id}\nExten: 109\nHint: PJSIP/trunk-9\n\n\
    Event: ExtensionStateListComplete\nActionID: {id}\n\n";

pub struct Stage {
    pub place: Place,
    pub crm: Server,
    pub pbx: FakePbx,
}

impl Stage {
    pub async fn new() -> Self {
        let (place, crm, pbx) = (Place::new(), start_crm(|_| ()).await, FakePbx::ami().await);
        for (action, answer) in [
            ("ListCommands", COMMANDS),
            ("UserEvent", ECHO),
            ("CoreShowChannels", CHANNELS),
            ("PJSIPShowEndpoints", ENDPOINTS),
            ("ExtensionStateList", HINTS),
        ] {
            pbx.answers(action, &[answer]);
        }
        Self { place, crm, pbx }
    }

    /// Returns the arguments of an `init` that has every answer as a flag.
    pub fn flags(&self) -> Vec<String> {
        vec![
            "init".to_owned(),
            "--name=office".to_owned(),
            format!("--etc={}", self.etc("").display()),
            format!("--source=ami://bridge@{}", self.pbx.addr()),
            format!("--crm-url={}", self.crm.url()),
            format!("--token-file={}", self.place.path("token").display()),
            "--lead=var:LEAD_ID".to_owned(),
            "--country=UZ".to_owned(),
            format!("--state={}", self.place.path("state").display()),
        ]
    }

    /// Returns the path of a file in the folder that `init` writes.
    pub fn etc(&self, name: &str) -> PathBuf {
        self.place.path("etc/callbridge").join(name)
    }

    /// Runs `init` with every answer as a flag, and with the flags `more`.
    pub async fn init(&self, more: &[&str]) -> CommandOutput {
        let more = more.iter().map(|flag| (*flag).to_owned());
        let arguments: Vec<String> = self.flags().into_iter().chain(more).collect();
        self.place.run_command(&arguments).await
    }

    /// Asserts that `init` has written nothing, not even a folder.
    pub fn assert_untouched(&self) {
        assert!(!self.place.path("etc").exists(), "something was written");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.etc(name)).expect("a file")
    }
}
