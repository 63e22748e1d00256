//! Tests that an error of `init` names its cause and its fix, and that nothing is written.

use super::stage::Stage;
use callbridge_testbed::port::free_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

#[tokio::test]
async fn missing_answers_are_listed_with_their_flags() {
    let stage = Stage::new().await;
    let etc = format!("--etc={}", stage.etc("").display());
    let output = stage
        .place
        .run_command(&["init", &etc, "--name=a/b", "--rate=x"])
        .await;
    assert_eq!(output.code, 64, "{output:?}");
    for words in [
        "--name: `a/b`",
        "--source: is missing: the PBX and its manager account",
        "--crm-url: is missing",
        "--token-file: is missing: the CRM's token in a file (or CALLBRIDGE_TOKEN",
        "--lead: is missing",
        "--country: is missing",
        "--rate x",
    ] {
        assert!(output.err.contains(words), "{words}: {}", output.err);
    }
    stage.assert_untouched();
}

/// Returns the flags of the stage with another `--source` flag.
fn flags_with_source(stage: &Stage, source: &str) -> Vec<String> {
    let mut flags = stage.flags();
    flags.retain(|flag| !flag.starts_with("--source="));
    flags.push(source.to_owned());
    flags
}

#[tokio::test]
async fn init_shows_fix_for_pbx_down_wrong_secret_or_missing_right() {
    let stage = Stage::new().await;
    let closed_port = format!("--source=ami://bridge@127.0.0.1:{}", free_port());
    let output = stage.init(&["--source=", &closed_port]).await;
    assert_eq!(output.code, 64, "two sources: {output:?}");
    let output = stage
        .place
        .run_command(&flags_with_source(&stage, &closed_port))
        .await;
    assert_eq!(output.code, 69, "{output:?}");
    assert!(
        output.err.contains("127.0.0.1") && output.err.contains("fix:"),
        "{output:?}"
    );
    let wrong = stage.place.write("wrong", "another secret");
    let refused = format!(
        "--source=ami://bridge@{}?secret-file={}",
        stage.pbx.addr(),
        wrong.display()
    );
    let output = stage
        .place
        .run_command(&flags_with_source(&stage, &refused))
        .await;
    assert_eq!(output.code, 77, "{output:?}");
    assert!(
        output
            .err
            .contains("check the user, its secret, and its permit lines in manager.conf"),
        "{output:?}"
    );
    stage.pbx.answers(
        "ListCommands",
        &["Response: Success\nActionID: {id}\nPing: Keepalive command.  (Priv: <none>)\n\n"],
    );
    let output = stage.init(&[]).await;
    assert_eq!(output.code, 77, "{output:?}");
    assert!(output.err.contains("write = reporting,user"), "{output:?}");
    stage.assert_untouched();
}

#[tokio::test]
async fn pbx_without_visible_trunk_requires_trunk_flag() {
    let stage = Stage::new().await;
    let refusal = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";
    stage.pbx.answers("PJSIPShowEndpoints", &[refusal]);
    let devices = "Response: Success\nActionID: {id}\nEventList: start\n\n\
        Event: DeviceStateChange\nActionID: {id}\nDevice: PJSIP/x7\nState: NOT_INUSE\n\n\
        Event: DeviceStateListComplete\nActionID: {id}\n\n";
    stage.pbx.answers("DeviceStateList", &[devices]);
    let output = stage.init(&[]).await;
    assert_eq!(output.code, 78, "{output:?}");
    assert!(output.err.contains("PJSIP/x7") && output.err.contains("--trunk NAME=ENDPOINT"));
    stage.assert_untouched();
    stage
        .init(&["--trunk=line=PJSIP/x7"])
        .await
        .expect_success();
    assert!(
        stage
            .read("office.flags")
            .contains("--trunk=line=PJSIP/x7\n")
    );
}

#[tokio::test]
async fn init_reports_crm_html_page_and_refused_token() {
    let stage = Stage::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let page = "<!doctype html><title>Welcome</title>";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
            let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let url = format!("--crm-url=http://{addr}");
    let output = stage.init(&[&url]).await;
    assert_eq!(output.code, 69, "{output:?}");
    assert!(output.err.contains(&addr.to_string()), "{output:?}");
    assert!(
        output
            .err
            .contains("check that --crm-url is the address of the API")
    );
    stage.assert_untouched();
    stage.place.write("token", "svc_pat_of_nobody");
    let output = stage.init(&[]).await;
    assert_eq!(output.code, 77, "{output:?}");
    assert!(
        output.err.contains("token: the CRM refuses it"),
        "{output:?}"
    );
    stage.assert_untouched();
}

#[tokio::test]
async fn unwritable_folder_exits_73_with_a_fix() {
    let stage = Stage::new().await;
    let output = stage.init(&["--etc=/proc/none/etc"]).await;
    assert_eq!(output.code, 73, "{output:?}");
    assert!(output.err.contains("/proc/none/etc") && output.err.contains("run init as root"));
    let output = stage.init(&["--etc=relative"]).await;
    assert_eq!(output.code, 64, "{output:?}");
    assert!(
        output.err.contains("--etc: is not an absolute path"),
        "{output:?}"
    );
    stage.assert_untouched();
}
