//! Tests `init` with a FreeSWITCH: it lists its gateways and phones, and `check` accepts the
//! result.

use crate::commands::sidecar::{Place, Said, TOKEN, crm};
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
        let (place, crm) = (Place::new(), crm(|_| ()).await);
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

    async fn init(&self, password: &str) -> Said {
        self.place.say(&self.flags(password)).await
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
    let said = stage.init(PASSWORD).await;
    assert_eq!(said.code, 0, "{said:?}");
    for words in [
        "trunk",
        "gateway/gsm",
        "telephone",
        "user/101",
        "To start it, run:",
    ] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
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
    let kept = stage.read("credstore/callbridge.office.esl-secret");
    assert_eq!(kept.trim(), PASSWORD);
    let shown = format!("{}{}{flags}", said.out, said.err);
    assert!(
        !shown.contains(PASSWORD) && !shown.contains(TOKEN),
        "{shown}"
    );
    let at = stage.place.path("etc/callbridge").join("office.flags");
    stage.place.write("secret", "no password any more");
    let at = format!("@{}", at.display());
    let checked = stage.place.say(&["check", &at]).await;
    assert_eq!(checked.code, 0, "{checked:?}");
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
    let said = stage.init(PASSWORD).await;
    assert_eq!(said.code, 0, "{said:?}");
    let flags = stage.read("office.flags");
    assert!(flags.contains("# --employees=101:ID\n"), "{flags}");
    assert!(!flags.contains("notify-command"), "{flags}");
    let written = flags.lines().filter(|it| it.starts_with("--"));
    let written: Vec<&str> = written
        .map(|it| it.split('=').next().unwrap_or(it))
        .collect();
    let given = [
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
    assert_eq!(written, given);
    let at = format!(
        "@{}",
        stage.place.path("etc/callbridge/office.flags").display()
    );
    let checked = stage.place.say(&["check", &at]).await;
    assert!(
        checked.out.contains("control characters in their names"),
        "{checked:?}"
    );
}

#[tokio::test]
async fn password_that_the_switch_refuses_leaves_nothing_written() {
    let stage = SwitchStage::new().await;
    let said = stage.init("ClueCon").await;
    assert_eq!(said.code, 77, "{said:?}");
    assert!(said.err.contains("refused the password"), "{said:?}");
    assert!(!stage.place.path("etc").exists(), "something was written");
}

#[tokio::test]
async fn freeswitch_lead_variable_is_proposed_as_deploy_exports_it() {
    let stage = SwitchStage::new().await;
    let mut flags = stage.flags(PASSWORD);
    flags.retain(|flag| !flag.starts_with("--lead="));
    let mut terminal = Terminal::start(&stage.place, &flags);
    terminal.takes_default("Trunks, separated by spaces").await;
    terminal.takes_default("must never change [office]: ").await;
    terminal.takes_default("[var:lead_id]: ").await;
    terminal.takes_default("empty for none: ").await;
    terminal
        .takes_default("telegram, mail, or empty for none: ")
        .await;
    terminal.takes_default("Write these files? [Y/n] ").await;
    let (code, rest) = terminal.ends().await;
    assert_eq!(code, 0, "{rest}");
    let flags = stage.read("office.flags");
    assert!(flags.contains("--lead=var:lead_id\n"), "{flags}");
    let exported = include_str!("../../../deploy/freeswitch/dialplan.xml");
    assert!(
        exported.contains("lead_id="),
        "deploy exports another variable"
    );
}
