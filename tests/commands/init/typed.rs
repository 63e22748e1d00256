//! Tests `init` with answers that are typed on a terminal.

use super::stage::Stage;
use crate::commands::sidecar::{TOKEN, grant_leads};
use crate::commands::terminal::{CTRL_C, Terminal};
use callbridge_testbed::messengers::Messenger;

impl Stage {
    /// Starts `init` without any answer except the folders.
    fn starts(&self) -> Terminal {
        let etc = format!("--etc={}", self.etc("").display());
        let state = format!("--state={}", self.place.path("state").display());
        Terminal::start(&self.place, &["init", "--name=office", &etc, &state])
    }

    /// Types the first three answers.
    async fn of_pbx(&self, terminal: &mut Terminal, secret: &str) {
        terminal.shows("manager (AMI)").await;
        terminal.types(&format!("{}\n", self.pbx.addr())).await;
        terminal.shows("[callbridge]: ").await;
        terminal.types("bridge\n").await;
        terminal.shows("Its secret (not shown): ").await;
        terminal.types(&format!("{secret}\n")).await;
    }
}

#[tokio::test]
async fn init_answers_write_a_service_and_show_no_secret() {
    let stage = Stage::new().await;
    let mut terminal = stage.starts();
    stage.of_pbx(&mut terminal, "another").await;
    let refused = terminal.shows("try again (Ctrl-C cancels): ").await;
    assert!(
        refused.contains("[bridge]") && refused.contains("write = reporting"),
        "{refused}"
    );
    terminal.types("\n").await;
    stage.of_pbx(&mut terminal, "another one").await;
    terminal.shows("try again (Ctrl-C cancels): ").await;
    terminal.types("s\n").await;
    let alone = terminal.shows("Its secret (not shown): ").await;
    assert!(!alone.contains("manager (AMI)"), "{alone}");
    terminal.types("secret of the manager\n").await;
    terminal
        .takes_default("Trunks, separated by spaces [x7=PJSIP/x7]: ")
        .await;
    terminal.shows("must never change [office]: ").await;
    terminal.types("head office\n").await;
    let again = terminal.shows("must never change [office]: ").await;
    assert!(again.contains("use at most 64 letters, digits"), "{again}");
    terminal.types("head-office\n").await;
    terminal
        .takes_default("or to a hub? Type crm or hub [crm]: ")
        .await;
    terminal.shows("CRM's API").await;
    terminal.types(&format!("{}\n", stage.crm.url())).await;
    terminal.shows("connect by consent later): ").await;
    terminal.types("svc_pat_another\n").await;
    terminal.shows("token again (Ctrl-C cancels): ").await;
    terminal.types("s\n").await;
    let alone = terminal.shows("connect by consent later): ").await;
    assert!(!alone.contains("CRM's API"), "{alone}");
    terminal.types(&format!("{TOKEN}\n")).await;
    terminal.shows("[var:LEAD_ID]: ").await;
    terminal.types("csv:/no/such/leads.csv\n").await;
    let again = terminal.shows("[var:LEAD_ID]: ").await;
    assert!(
        again.contains("/no/such/leads.csv is not a file"),
        "{again}"
    );
    terminal.types("\n").await;
    terminal.shows("as UZ: ").await;
    terminal.types("Uzbekistan\n").await;
    let again = terminal.shows("as UZ: ").await;
    assert!(again.contains("is not a country code"), "{again}");
    terminal.types("uz\n").await;
    terminal.shows("empty for none: ").await;
    terminal.types("9\n").await;
    let again = terminal.shows("empty for none: ").await;
    assert!(again.contains("9 is neither a list"), "{again}");
    terminal.types("101:501;101:502\n").await;
    let again = terminal.shows("empty for none: ").await;
    assert!(again.contains("has two employees"), "{again}");
    terminal.types("101:501\n").await;
    terminal.shows("telegram, mail, or empty for none: ").await;
    terminal.types("telegram\n").await;
    terminal.shows("(not shown): ").await;
    terminal.types("no token\n").await;
    terminal.shows("@name of a channel: ").await;
    terminal.types("-100\n").await;
    let again = terminal.shows("telegram, mail, or empty for none: ").await;
    assert!(again.contains("not the token of a bot"), "{again}");
    terminal.types("mail\n").await;
    let mailbox = Messenger::smtp();
    let server = format!("smtp://{}", mailbox.address);
    for (question, answer) in [
        ("smtp://localhost: ", &*server),
        ("empty if it needs none: ", ""),
        ("Address of the sender: ", "pbx@example.com"),
        ("Address of the recipient: ", "admin@example.com"),
    ] {
        terminal.shows(question).await;
        terminal.types(&format!("{answer}\n")).await;
    }
    let shown = terminal.shows("Write these files? [Y/n] ").await;
    assert!(
        !shown.contains(TOKEN) && !shown.contains("secret of") && !shown.contains(&server),
        "{shown}"
    );
    stage.is_untouched();
    terminal.types("\n").await;
    terminal.shows("Send a test message? [Y/n] ").await;
    terminal.types("y\n").await;
    let (code, rest) = terminal.ends().await;
    assert_eq!(code, 0, "{rest}");
    assert!(rest.contains("\nsent\r\n"), "{rest}");
    let mail = mailbox.next().await;
    assert!(mail.contains("this is a test"), "{mail}");
    assert!(rest.contains("callbridge run @"), "{rest}");
    let flags = stage.read("office.flags");
    assert!(flags.contains("--pbx-id=head-office\n"), "{flags}");
    assert!(
        flags.contains("--trunk=x7=PJSIP/x7\n--country=UZ\n--lead=var:LEAD_ID\n"),
        "{flags}"
    );
    assert!(
        flags.contains("--employees=101:501\n") && !flags.contains("101:ID"),
        "{flags}"
    );
    assert_eq!(
        stage.read("credstore/callbridge.office.token").trim(),
        TOKEN
    );
    let told = "deploy/notify/mail ";
    assert!(flags.contains(told), "{flags}");
    assert!(
        flags.contains("/callbridge.office.notify\n--notify-missed=30m\n"),
        "{flags}"
    );
}

#[tokio::test]
async fn ctrl_c_at_any_question_writes_nothing_and_is_130() {
    let stage = Stage::new().await;
    let mut terminal = stage.starts();
    terminal.shows("manager (AMI)").await;
    terminal.types(CTRL_C).await;
    let (code, said) = terminal.ends().await;
    assert_eq!(code, 130, "{said}");
    assert!(said.contains("nothing was written"), "{said}");
    let mut terminal = stage.starts();
    stage.of_pbx(&mut terminal, "secret of the manager").await;
    terminal.takes_default("Trunks, separated").await;
    terminal.takes_default("must never change [office]: ").await;
    terminal
        .takes_default("or to a hub? Type crm or hub [crm]: ")
        .await;
    terminal.shows("CRM's API").await;
    terminal.types(CTRL_C).await;
    assert_eq!(terminal.ends().await.0, 130);
    // Ctrl-D has the same effect.
    let mut terminal = stage.starts();
    terminal.shows("manager (AMI)").await;
    terminal.types("\x04").await;
    assert_eq!(terminal.ends().await.0, 130);
    stage.is_untouched();
}

#[tokio::test]
async fn trunk_known_only_by_name_is_confirmed_by_watched_call() {
    let stage = Stage::new().await;
    let list = |rows: &str| {
        let row = "Response: Success\nActionID: {id}\nEventList: start\n\n";
        format!("{row}{rows}Event: CoreShowChannelsComplete\nActionID: {{id}}\n\n")
    };
    let call = list(
        "Event: CoreShowChannel\nActionID: {id}\nChannel: PJSIP/x7-0000000a\nUniqueid: 1.1\n\
         CallerIDNum: +998901110001\n\n",
    );
    stage.pbx.answers("CoreShowChannels", &[&list(""), &call]);
    let none = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";
    stage.pbx.answers("PJSIPShowEndpoints", &[none]);
    let devices = "Response: Success\nActionID: {id}\nEventList: start\n\n\
        Event: DeviceStateChange\nActionID: {id}\nDevice: PJSIP/x7\nState: INUSE\n\n\
        Event: DeviceStateListComplete\nActionID: {id}\n\n";
    stage.pbx.answers("DeviceStateList", &[devices]);
    let mut terminal = stage.starts();
    stage.of_pbx(&mut terminal, "secret of the manager").await;
    let shown = terminal.shows("over each trunk meanwhile. [y/N] ").await;
    assert!(shown.contains("only its name is known"), "{shown}");
    terminal.types("y\n").await;
    let shown = terminal.shows("[x7=PJSIP/x7]: ").await;
    assert!(
        shown.contains("a call with an outside number (…0001) is on it now"),
        "{shown}"
    );
    terminal.types(CTRL_C).await;
    assert_eq!(terminal.ends().await.0, 130);
    stage.is_untouched();
}

#[tokio::test]
async fn lookup_flag_is_written_only_if_answer_is_yes() {
    for (answer, is_written) in [("\n", false), ("y\n", true)] {
        let stage = Stage::new().await;
        grant_leads(&stage.crm);
        let mut flags = stage.flags();
        flags.retain(|flag| !flag.starts_with("--lead="));
        let given = [
            "--lead=directory",
            "--lead-directory",
            "--employees=101:501",
        ];
        flags.extend(given.map(str::to_owned));
        flags.push("--trunk=x7=PJSIP/x7".to_owned());
        flags.push("--pbx-id=office".to_owned());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut terminal = Terminal::start(&stage.place, &flags);
        terminal.shows("Its secret (not shown): ").await;
        terminal.types("secret of the manager\n").await;
        terminal.shows("the extension to ring first)? [y/N] ").await;
        terminal.types(answer).await;
        terminal.shows("telegram, mail, or empty for none: ").await;
        terminal.types("\n").await;
        terminal.shows("Write these files? [Y/n] ").await;
        terminal.types("\n").await;
        let (code, rest) = terminal.ends().await;
        assert_eq!(code, 0, "{rest}");
        let flags = stage.read("office.flags");
        let has = flags.contains("--lookup=127.0.0.1:4573\n");
        assert_eq!(has, is_written, "{flags}");
    }
}

#[tokio::test]
async fn directory_rule_asks_for_lead_directory() {
    let stage = Stage::new().await;
    grant_leads(&stage.crm);
    let mut flags = stage.flags();
    flags.retain(|flag| !flag.starts_with("--lead="));
    flags.push("--trunk=x7=PJSIP/x7".to_owned());
    flags.push("--pbx-id=office".to_owned());
    flags.push("--employees=101:501".to_owned());
    let mut terminal = Terminal::start(&stage.place, &flags);
    terminal.shows("Its secret (not shown): ").await;
    terminal.types("secret of the manager\n").await;
    terminal.shows("[var:LEAD_ID]: ").await;
    terminal.types("directory\n").await;
    terminal
        .takes_default("PERMISSION_OPEN_API_LEAD:READ)? [Y/n] ")
        .await;
    terminal
        .takes_default("the extension to ring first)? [y/N] ")
        .await;
    terminal
        .takes_default("telegram, mail, or empty for none: ")
        .await;
    terminal.takes_default("Write these files? [Y/n] ").await;
    let (code, rest) = terminal.ends().await;
    assert_eq!(code, 0, "{rest}");
    let flags = stage.read("office.flags");
    assert!(
        flags.contains("--lead=directory\n--lead-directory\n"),
        "{flags}"
    );
}
