//! Tests `init` with answers that are typed on a terminal.

use super::stage::Stage;
use crate::commands::sidecar::{TOKEN, grant_leads};
use crate::commands::terminal::{CTRL_C, Terminal};
use callbridge_testbed::messengers::Messenger;

impl Stage {
    /// Starts `init` in a terminal, with only its name and folders as flags.
    fn start_init(&self) -> Terminal {
        let etc = format!("--etc={}", self.etc("").display());
        let state = format!("--state={}", self.place.path("state").display());
        Terminal::start(&self.place, &["init", "--name=office", &etc, &state])
    }

    /// Types the first three answers: the address of the PBX, its user, and `secret`.
    async fn answer_pbx_questions(&self, terminal: &mut Terminal, secret: &str) {
        terminal.wait_for_text("manager (AMI)").await;
        terminal.type_keys(&format!("{}\n", self.pbx.addr())).await;
        terminal.wait_for_text("[callbridge]: ").await;
        terminal.type_keys("bridge\n").await;
        terminal.wait_for_text("Its secret (not shown): ").await;
        terminal.type_keys(&format!("{secret}\n")).await;
    }
}

#[tokio::test]
async fn init_answers_create_service_files_and_show_no_secret() {
    let stage = Stage::new().await;
    let mut terminal = stage.start_init();
    stage.answer_pbx_questions(&mut terminal, "another").await;
    let refused = terminal.wait_for_text("try again (Ctrl-C cancels): ").await;
    assert!(
        refused.contains("[bridge]") && refused.contains("write = reporting"),
        "{refused}"
    );
    terminal.type_keys("\n").await;
    stage
        .answer_pbx_questions(&mut terminal, "another one")
        .await;
    terminal.wait_for_text("try again (Ctrl-C cancels): ").await;
    terminal.type_keys("s\n").await;
    let second_question = terminal.wait_for_text("Its secret (not shown): ").await;
    assert!(
        !second_question.contains("manager (AMI)"),
        "{second_question}"
    );
    terminal.type_keys("secret of the manager\n").await;
    terminal
        .accept_default("Trunks, separated by spaces [x7=PJSIP/x7]: ")
        .await;
    terminal.wait_for_text("must never change [office]: ").await;
    terminal.type_keys("head office\n").await;
    let repeated = terminal.wait_for_text("must never change [office]: ").await;
    assert!(
        repeated.contains("use at most 64 letters, digits"),
        "{repeated}"
    );
    terminal.type_keys("head-office\n").await;
    terminal
        .accept_default("or to a hub? Type crm or hub [crm]: ")
        .await;
    terminal.wait_for_text("CRM's API").await;
    terminal.type_keys(&format!("{}\n", stage.crm.url())).await;
    terminal.wait_for_text("connect by consent later): ").await;
    terminal.type_keys("svc_pat_another\n").await;
    terminal
        .wait_for_text("token again (Ctrl-C cancels): ")
        .await;
    terminal.type_keys("s\n").await;
    let second_question = terminal.wait_for_text("connect by consent later): ").await;
    assert!(!second_question.contains("CRM's API"), "{second_question}");
    terminal.type_keys(&format!("{TOKEN}\n")).await;
    terminal.wait_for_text("[var:LEAD_ID]: ").await;
    terminal.type_keys("csv:/no/such/leads.csv\n").await;
    let repeated = terminal.wait_for_text("[var:LEAD_ID]: ").await;
    assert!(
        repeated.contains("/no/such/leads.csv is not a file"),
        "{repeated}"
    );
    terminal.type_keys("\n").await;
    terminal.wait_for_text("as UZ: ").await;
    terminal.type_keys("Uzbekistan\n").await;
    let repeated = terminal.wait_for_text("as UZ: ").await;
    assert!(repeated.contains("is not a country code"), "{repeated}");
    terminal.type_keys("uz\n").await;
    terminal.wait_for_text("empty for none: ").await;
    terminal.type_keys("9\n").await;
    let repeated = terminal.wait_for_text("empty for none: ").await;
    assert!(repeated.contains("9 is neither a list"), "{repeated}");
    terminal.type_keys("101:501;101:502\n").await;
    let repeated = terminal.wait_for_text("empty for none: ").await;
    assert!(repeated.contains("has two employees"), "{repeated}");
    terminal.type_keys("101:501\n").await;
    terminal
        .wait_for_text("telegram, mail, or empty for none: ")
        .await;
    terminal.type_keys("telegram\n").await;
    terminal.wait_for_text("(not shown): ").await;
    terminal.type_keys("no token\n").await;
    terminal.wait_for_text("@name of a channel: ").await;
    terminal.type_keys("-100\n").await;
    let repeated = terminal
        .wait_for_text("telegram, mail, or empty for none: ")
        .await;
    assert!(repeated.contains("not the token of a bot"), "{repeated}");
    terminal.type_keys("mail\n").await;
    let mailbox = Messenger::smtp();
    let server = format!("smtp://{}", mailbox.address);
    for (question, answer) in [
        ("smtp://localhost: ", &*server),
        ("empty if it needs none: ", ""),
        ("Address of the sender: ", "pbx@example.com"),
        ("Address of the recipient: ", "admin@example.com"),
    ] {
        terminal.wait_for_text(question).await;
        terminal.type_keys(&format!("{answer}\n")).await;
    }
    let shown = terminal.wait_for_text("Write these files? [Y/n] ").await;
    assert!(
        !shown.contains(TOKEN) && !shown.contains("secret of") && !shown.contains(&server),
        "{shown}"
    );
    stage.assert_untouched();
    terminal.type_keys("\n").await;
    terminal.wait_for_text("Send a test message? [Y/n] ").await;
    terminal.type_keys("y\n").await;
    let (code, rest) = terminal.wait_for_end().await;
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
    let command = "deploy/notify/mail ";
    assert!(flags.contains(command), "{flags}");
    assert!(
        flags.contains("/callbridge.office.notify\n--notify-missed=30m\n"),
        "{flags}"
    );
}

#[tokio::test]
async fn ctrl_c_at_a_question_exits_130_and_writes_nothing() {
    let stage = Stage::new().await;
    let mut terminal = stage.start_init();
    terminal.wait_for_text("manager (AMI)").await;
    terminal.type_keys(CTRL_C).await;
    let (code, output) = terminal.wait_for_end().await;
    assert_eq!(code, 130, "{output}");
    assert!(output.contains("nothing was written"), "{output}");
    let mut terminal = stage.start_init();
    stage
        .answer_pbx_questions(&mut terminal, "secret of the manager")
        .await;
    terminal.accept_default("Trunks, separated").await;
    terminal
        .accept_default("must never change [office]: ")
        .await;
    terminal
        .accept_default("or to a hub? Type crm or hub [crm]: ")
        .await;
    terminal.wait_for_text("CRM's API").await;
    terminal.type_keys(CTRL_C).await;
    assert_eq!(terminal.wait_for_end().await.0, 130);
    // Ctrl-D has the same effect.
    let mut terminal = stage.start_init();
    terminal.wait_for_text("manager (AMI)").await;
    terminal.type_keys("\x04").await;
    assert_eq!(terminal.wait_for_end().await.0, 130);
    stage.assert_untouched();
}

/// Returns the answer to `CoreShowChannels` with these rows.
fn channel_list(rows: &str) -> String {
    let start = "Response: Success\nActionID: {id}\nEventList: start\n\n";
    format!("{start}{rows}Event: CoreShowChannelsComplete\nActionID: {{id}}\n\n")
}

#[tokio::test]
async fn trunk_known_only_by_name_is_confirmed_by_watched_call() {
    let stage = Stage::new().await;
    let call = channel_list(
        "Event: CoreShowChannel\nActionID: {id}\nChannel: PJSIP/x7-0000000a\nUniqueid: 1.1\n\
         CallerIDNum: +998901110001\n\n",
    );
    stage
        .pbx
        .answers("CoreShowChannels", &[&channel_list(""), &call]);
    let refusal = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";
    stage.pbx.answers("PJSIPShowEndpoints", &[refusal]);
    let devices = "Response: Success\nActionID: {id}\nEventList: start\n\n\
        Event: DeviceStateChange\nActionID: {id}\nDevice: PJSIP/x7\nState: INUSE\n\n\
        Event: DeviceStateListComplete\nActionID: {id}\n\n";
    stage.pbx.answers("DeviceStateList", &[devices]);
    let mut terminal = stage.start_init();
    stage
        .answer_pbx_questions(&mut terminal, "secret of the manager")
        .await;
    let shown = terminal
        .wait_for_text("over each trunk meanwhile. [y/N] ")
        .await;
    assert!(shown.contains("only its name is known"), "{shown}");
    terminal.type_keys("y\n").await;
    let shown = terminal.wait_for_text("[x7=PJSIP/x7]: ").await;
    assert!(
        shown.contains("a call with an outside number (…0001) is on it now"),
        "{shown}"
    );
    terminal.type_keys(CTRL_C).await;
    assert_eq!(terminal.wait_for_end().await.0, 130);
    stage.assert_untouched();
}

#[tokio::test]
async fn lookup_flag_is_written_only_if_answer_is_yes() {
    for (answer, is_written) in [("\n", false), ("y\n", true)] {
        let stage = Stage::new().await;
        grant_leads(&stage.crm);
        let mut flags = stage.flags();
        flags.retain(|flag| !flag.starts_with("--lead="));
        let more_flags = [
            "--lead=directory",
            "--lead-directory",
            "--employees=101:501",
        ];
        flags.extend(more_flags.map(str::to_owned));
        flags.push("--trunk=x7=PJSIP/x7".to_owned());
        flags.push("--pbx-id=office".to_owned());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut terminal = Terminal::start(&stage.place, &flags);
        terminal.wait_for_text("Its secret (not shown): ").await;
        terminal.type_keys("secret of the manager\n").await;
        terminal
            .wait_for_text("the extension to ring first)? [y/N] ")
            .await;
        terminal.type_keys(answer).await;
        terminal
            .wait_for_text("telegram, mail, or empty for none: ")
            .await;
        terminal.type_keys("\n").await;
        terminal.wait_for_text("Write these files? [Y/n] ").await;
        terminal.type_keys("\n").await;
        let (code, rest) = terminal.wait_for_end().await;
        assert_eq!(code, 0, "{rest}");
        let flags = stage.read("office.flags");
        let has = flags.contains("--lookup=127.0.0.1:4573\n");
        assert_eq!(has, is_written, "{flags}");
    }
}

#[tokio::test]
async fn directory_lead_rule_adds_lead_directory() {
    let stage = Stage::new().await;
    grant_leads(&stage.crm);
    let mut flags = stage.flags();
    flags.retain(|flag| !flag.starts_with("--lead="));
    flags.push("--trunk=x7=PJSIP/x7".to_owned());
    flags.push("--pbx-id=office".to_owned());
    flags.push("--employees=101:501".to_owned());
    let mut terminal = Terminal::start(&stage.place, &flags);
    terminal.wait_for_text("Its secret (not shown): ").await;
    terminal.type_keys("secret of the manager\n").await;
    terminal.wait_for_text("[var:LEAD_ID]: ").await;
    terminal.type_keys("directory\n").await;
    terminal
        .wait_for_text("PERMISSION_OPEN_API_LEAD:READ.")
        .await;
    terminal
        .accept_default("the extension to ring first)? [y/N] ")
        .await;
    terminal
        .accept_default("telegram, mail, or empty for none: ")
        .await;
    terminal.accept_default("Write these files? [Y/n] ").await;
    let (code, rest) = terminal.wait_for_end().await;
    assert_eq!(code, 0, "{rest}");
    let flags = stage.read("office.flags");
    assert!(
        flags.contains("--lead=directory\n--lead-directory\n"),
        "{flags}"
    );
}
