//! Tests `check` with a FreeSWITCH: its login, and whether the trunks match its gateways.

use super::findings::{Checked, check, with};
use crate::commands::sidecar::{Place, crm};
use callbridge_sandbox::Server;
use callbridge_testbed::switch::{FakeSwitch, PASSWORD};

const SOFIA: &str = "       Name\t   Type\t                    Data\tState\n\
    ================================================\n\
    \x20  external\tprofile\t  sip:mod_sofia@127.0.0.1:15080\tRUNNING (0)\n\
    external::city\tgateway\t        sip:city@127.0.0.1:16000\tNOREG\n\
    external::gsm\tgateway\t         sip:gsm@127.0.0.1:16001\tREGED\n\
    ================================================\n1 profiles 0 alias\n";

struct Stage {
    place: Place,
    _crm: Server,
    switch: FakeSwitch,
    flags: Vec<String>,
}

impl Stage {
    async fn new() -> Self {
        let (place, crm, switch) = (Place::new(), crm(|_| ()).await, FakeSwitch::start().await);
        switch.answers(
            "version",
            "FreeSWITCH Version 1.10.12-release~64bit (64bit)\n",
        );
        switch.answers("sofia status", SOFIA);
        switch.answers("module_exists mod_amqp", "false");
        place.write("calls.ami", "");
        let flags = place.flags_of_file(&crm.url(), "calls.ami");
        let secret = place.write("esl.secret", PASSWORD);
        let source = format!("esl://{}?secret-file={}", switch.addr(), secret.display());
        let flags = with(flags, "--source", &source);
        Self {
            place,
            _crm: crm,
            switch,
            flags,
        }
    }

    /// Runs `check` with only this trunk.
    async fn check(&self, endpoint: &str) -> Checked {
        let trunk = format!("city={endpoint},country=UZ,lead=var:lead_id");
        check(&self.place, &with(self.flags.clone(), "--trunk", &trunk)).await
    }
}

fn said(checked: &Checked, name: &str) -> String {
    let found = checked.well(name);
    format!("{}; {}", found["message"], found["fix"])
}

#[tokio::test]
async fn switch_whose_gateways_are_those_of_the_trunks_is_well() {
    let stage = Stage::new().await;
    let all = "gateway/city|address/127.0.0.1:16000|gateway/gsm";
    let checked = stage.check(all).await;
    checked.is_clean();
    assert!(said(&checked, "release of esl://").contains("FreeSWITCH 1.10.12-release"));
    assert!(said(&checked, "endpoint gateway/city of").contains("the switch has city"));
    let only_asked = stage.switch.asked();
    let changes = ["originate", "reload", "uuid_kill", "global_setvar", "bgapi"];
    let changed = |it: &String| changes.iter().any(|word| it.contains(word));
    assert!(!only_asked.iter().any(changed), "{only_asked:?}");
}

#[tokio::test]
async fn gateways_without_trunk_or_registration_are_named() {
    let stage = Stage::new().await;
    let checked = stage.check("gateway/city").await;
    checked.is_clean();
    let said_of = |name: &str| said(&checked, name);
    assert!(said_of("gateways of").contains("no --trunk matches gsm"));
    assert!(said_of("gateway city of").contains("|address/127.0.0.1:16000"));
}

#[tokio::test]
async fn gateway_missing_on_the_switch_is_a_problem() {
    let stage = Stage::new().await;
    let checked = stage.check("gateway/town|profile/external").await;
    let what = "the switch has none of this name: calls over trunk city would be internal";
    checked.fails(78, "endpoint gateway/town of", what, "`sofia status`");
}

#[tokio::test]
async fn wrong_switch_password_exits_77() {
    let stage = Stage::new().await;
    stage.place.write("esl.secret", "ClueCon");
    let checked = stage.check("gateway/city").await;
    let what = "the switch refused the password";
    checked.fails(77, "source esl://", what, "event_socket.conf.xml");
}
