//! Tests `check` with a FreeSWITCH: its login, and whether the trunks match its gateways.

use super::findings::{CheckReport, check, replace_flag};
use crate::commands::sidecar::{Place, start_crm};
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
        let (place, crm, switch) = (
            Place::new(),
            start_crm(|_| ()).await,
            FakeSwitch::start().await,
        );
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
        let flags = replace_flag(flags, "--source", &source);
        Self {
            place,
            _crm: crm,
            switch,
            flags,
        }
    }

    /// Runs `check` with one trunk, which has this endpoint.
    async fn check(&self, endpoint: &str) -> CheckReport {
        let trunk = format!("city={endpoint},country=UZ,lead=var:lead_id");
        check(
            &self.place,
            &replace_flag(self.flags.clone(), "--trunk", &trunk),
        )
        .await
    }
}

/// Returns the message and the fix of the successful finding whose name starts with `name`.
fn finding_text(report: &CheckReport, name: &str) -> String {
    let found = report.ok_finding(name);
    format!("{}; {}", found["message"], found["fix"])
}

#[tokio::test]
async fn switch_with_gateways_for_all_trunks_passes_check() {
    let stage = Stage::new().await;
    let endpoints = "gateway/city|address/127.0.0.1:16000|gateway/gsm";
    let report = stage.check(endpoints).await;
    report.assert_clean();
    assert!(finding_text(&report, "release of esl://").contains("FreeSWITCH 1.10.12-release"));
    assert!(finding_text(&report, "endpoint gateway/city of").contains("the switch has city"));
    let commands = stage.switch.requests();
    for change in ["originate", "reload", "uuid_kill", "global_setvar", "bgapi"] {
        assert!(
            !commands.iter().any(|command| command.contains(change)),
            "{commands:?}"
        );
    }
}

#[tokio::test]
async fn gateways_without_trunk_or_registration_are_reported() {
    let stage = Stage::new().await;
    let report = stage.check("gateway/city").await;
    report.assert_clean();
    assert!(finding_text(&report, "gateways of").contains("no --trunk matches gsm"));
    assert!(finding_text(&report, "gateway city of").contains("|address/127.0.0.1:16000"));
}

#[tokio::test]
async fn gateway_missing_on_switch_exits_78() {
    let stage = Stage::new().await;
    let report = stage.check("gateway/town|profile/external").await;
    let message = "FreeSWITCH does not know this name, so calls over trunk city would be internal";
    report.assert_single_failure(78, "endpoint gateway/town of", message, "`sofia status`");
}

#[tokio::test]
async fn wrong_switch_password_exits_77() {
    let stage = Stage::new().await;
    stage.place.write("esl.secret", "ClueCon");
    let report = stage.check("gateway/city").await;
    let message = "the switch refused the password";
    report.assert_single_failure(77, "source esl://", message, "event_socket.conf.xml");
}
