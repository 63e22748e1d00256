//! Tests `init` with a FreeSWITCH: `init` lists the gateways and phones, and `check` accepts the
//! written flags.

use crate::commands::sidecar::{CommandOutput, Place, TOKEN, start_crm};
use crate::commands::terminal::Terminal;
use callbridge_sandbox::Server;
use callbridge_testbed::switch::{FakeSwitch, PASSWORD};

const SOFIA: &str = "Name\tType\tData\tState\n\
    external\tprofile\tsip:mod_sofia@127.0.0.1:15080\tRUNNING (0)\n\
    external::city\tgateway\tsip:city@127.0.0.1:16000\tNOREG\n\
    external::gsm\tgateway\tsip:gsm@gsm.example\tREGED\n";
const REGISTRATIONS: &str = r#"{"row_count":1,"rows":[{"reg_user":"101","realm":"pbx.lab"}]}"#;

struct SwitchStage {
    place: Place,
    crm: Server,
    switch: FakeSwitch,
}

impl SwitchStage {
    async fn new() -> Self {
        let (place, crm) = (Place::new(), start_crm(|_| ()).await);
        let switch = FakeSwitch::start().await;
        for (question, answer) in [
            ("version", "FreeSWITCH Version 1.10.12-release (64bit)\n"),
            ("sofia status", SOFIA),
            ("module_exists mod_amqp", "false"),
            ("show registrations as json", REGISTRATIONS),
        ] {
            switch.answers(question, answer);
        }
        Self { place, crm, switch }
    }

    async fn init(&self, password: &str) -> CommandOutput {
        self.place.run_command(&self.flags(password)).await
    }

    fn flags(&self, password: &str) -> Vec<String> {
        let secret = self.place.write("secret", password);
        let etc = self.place.path("etc/callbridge");
        vec![
            "init".to_owned(),
            "--name=office".to_owned(),
            format!("--etc={}", etc.display()),
            format!(
                "--source=esl://{}?secret-file={}",
                self.switch.addr(),
                secret.display()
            ),
            format!("--crm-url={}", self.crm.url()),
            format!("--token-file={}", self.place.path("token").display()),
            "--lead=var:lead_id".to_owned(),
            "--country=UZ".to_owned(),
            format!("--state={}", self.place.path("state").display()),
        ]
    }

    fn read(&self, name: &str) -> String {
        let path = self.place.path("etc/callbridge").join(name);
        std::fs::read_to_string(path).expect("a file")
    }
}

#[tokio::test]
async fn init_writes_gateways_as_trunks_and_password_as_credential() {
    let stage = SwitchStage::new().await;
    let output = stage.init(PASSWORD).await;
    assert_eq!(output.code, 0, "{output:?}");
    for words in [
        "trunk",
        "gateway/gsm",
        "telephone",
        "user/101",
        "To start it, run:",
    ] {
        assert!(output.out.contains(words), "{words}: {}", output.out);
    }
    let flags = stage.read("office.flags");
    for line in [
        "--trunk=city=gateway/city|address/127.0.0.1:16000\n",
        "--trunk=gsm=gateway/gsm\n",
        &format!("--source=esl://{}\n", stage.switch.addr()),
        "# --employees=101:ID",
    ] {
        assert!(flags.contains(line), "{line}: {flags}");
    }
    let stored = stage.read("credstore/callbridge.office.esl-secret");
    assert_eq!(stored.trim(), PASSWORD);
    let shown = format!("{}{}{flags}", output.out, output.err);
    assert!(
        !shown.contains(PASSWORD) && !shown.contains(TOKEN),
        "{shown}"
    );
    let flags_file = stage.place.path("etc/callbridge").join("office.flags");
    stage.place.write("secret", "no password any more");
    let flags_argument = format!("@{}", flags_file.display());
    let output = stage.place.run_command(&["check", &flags_argument]).await;
    assert_eq!(output.code, 0, "{output:?}");
}

#[tokio::test]
async fn registration_name_with_control_character_adds_no_flag() {
    let stage = SwitchStage::new().await;
    let hostile: Vec<String> = (0..0x20)
        .chain([0x7f, 0x85])
        .map(|code| {
            let name = char::from_u32(code).expect("a character");
            let name = format!("102{name}--notify-command=/bin/true");
            format!(
                r#"{{"reg_user":{},"realm":"pbx.lab"}}"#,
                serde_json::json!(name)
            )
        })
        .collect();
    let rows = hostile.join(",");
    let list = format!(
        r#"{{"row_count":35,"rows":[{{"reg_user":"101"}},{{"reg_user":"9;1:2"}},{rows}]}}"#
    );
    stage.switch.answers("show registrations as json", &list);
    let output = stage.init(PASSWORD).await;
    assert_eq!(output.code, 0, "{output:?}");
    let flags = stage.read("office.flags");
    assert!(flags.contains("# --employees=101:ID\n"), "{flags}");
    assert!(!flags.contains("notify-command"), "{flags}");
    let written = flags.lines().filter(|line| line.starts_with("--"));
    let written: Vec<&str> = written
        .map(|line| line.split('=').next().unwrap_or(line))
        .collect();
    let expected = [
        "--pbx-id",
        "--pbx-timezone",
        "--source",
        "--trunk",
        "--trunk",
        "--country",
        "--lead",
        "--crm-url",
        "--state",
    ];
    assert_eq!(written, expected);
    let flags_argument = format!(
        "@{}",
        stage.place.path("etc/callbridge/office.flags").display()
    );
    let output = stage.place.run_command(&["check", &flags_argument]).await;
    assert!(
        output.out.contains("control characters in their names"),
        "{output:?}"
    );
}

#[tokio::test]
async fn refused_switch_password_writes_nothing() {
    let stage = SwitchStage::new().await;
    let output = stage.init("ClueCon").await;
    assert_eq!(output.code, 77, "{output:?}");
    assert!(output.err.contains("refused the password"), "{output:?}");
    assert!(!stage.place.path("etc").exists(), "something was written");
}

#[tokio::test]
async fn freeswitch_lead_variable_is_proposed_as_deploy_exports_it() {
    let stage = SwitchStage::new().await;
    let mut flags = stage.flags(PASSWORD);
    flags.retain(|flag| !flag.starts_with("--lead="));
    let mut terminal = Terminal::start(&stage.place, &flags);
    terminal.accept_default("Trunks, separated by spaces").await;
    terminal
        .accept_default("must never change [office]: ")
        .await;
    terminal.accept_default("[var:lead_id]: ").await;
    terminal.accept_default("empty for none: ").await;
    terminal
        .accept_default("telegram, mail, or empty for none: ")
        .await;
    terminal.accept_default("Write these files? [Y/n] ").await;
    let (code, rest) = terminal.wait_for_end().await;
    assert_eq!(code, 0, "{rest}");
    let flags = stage.read("office.flags");
    assert!(flags.contains("--lead=var:lead_id\n"), "{flags}");
    let exported = include_str!("../../../deploy/freeswitch/dialplan.xml");
    assert!(
        exported.contains("lead_id="),
        "deploy exports another variable"
    );
}
