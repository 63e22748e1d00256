//! Tests that an error names its cause and its fix, and that nothing is written.

use super::stage::Stage;
use callbridge_testbed::port::free_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

#[tokio::test]
async fn answers_that_are_missing_are_named_at_once_with_their_flags() {
    let stage = Stage::new().await;
    let etc = format!("--etc={}", stage.etc("").display());
    let said = stage
        .place
        .say(&["init", &etc, "--name=a/b", "--rate=x"])
        .await;
    assert_eq!(said.code, 64, "{said:?}");
    for words in [
        "--name: `a/b`",
        "--source: is missing: the PBX and its manager account",
        "--crm-url: is missing",
        "--token-file: is missing: the CRM's token in a file (or CALLBRIDGE_TOKEN",
        "--lead: is missing",
        "--country: is missing",
        "--rate x",
    ] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
    stage.is_untouched();
}

#[tokio::test]
async fn init_shows_fix_for_pbx_down_wrong_secret_or_missing_right() {
    let stage = Stage::new().await;
    let nobody = format!("--source=ami://bridge@127.0.0.1:{}", free_port());
    let said = stage.init(&["--source=", &nobody]).await;
    assert_eq!(said.code, 64, "two sources: {said:?}");
    let of = |source: &str| {
        let all = stage.flags().into_iter();
        let others = all.filter(|it| !it.starts_with("--source="));
        others.chain([source.to_owned()]).collect::<Vec<_>>()
    };
    let said = stage.place.say(&of(&nobody)).await;
    assert_eq!(said.code, 69, "{said:?}");
    assert!(
        said.err.contains("127.0.0.1") && said.err.contains("fix:"),
        "{said:?}"
    );
    let wrong = stage.place.write("wrong", "another secret");
    let refused = format!(
        "--source=ami://bridge@{}?secret-file={}",
        stage.pbx.addr(),
        wrong.display()
    );
    let said = stage.place.say(&of(&refused)).await;
    assert_eq!(said.code, 77, "{said:?}");
    assert!(
        said.err
            .contains("check the user, its secret, and its permit lines in manager.conf"),
        "{said:?}"
    );
    stage.pbx.answers(
        "ListCommands",
        &["Response: Success\nActionID: {id}\nPing: Keepalive command.  (Priv: <none>)\n\n"],
    );
    let said = stage.init(&[]).await;
    assert_eq!(said.code, 77, "{said:?}");
    assert!(said.err.contains("write = reporting,user"), "{said:?}");
    stage.is_untouched();
}

#[tokio::test]
async fn pbx_that_shows_no_trunk_wants_its_flag_and_takes_it() {
    let stage = Stage::new().await;
    let none = "Response: Error\nActionID: {id}\nMessage: Permission denied\n\n";
    stage.pbx.answers("PJSIPShowEndpoints", &[none]);
    let devices = "Response: Success\nActionID: {id}\nEventList: start\n\n\
        Event: DeviceStateChange\nActionID: {id}\nDevice: PJSIP/x7\nState: NOT_INUSE\n\n\
        Event: DeviceStateListComplete\nActionID: {id}\n\n";
    stage.pbx.answers("DeviceStateList", &[devices]);
    let said = stage.init(&[]).await;
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("PJSIP/x7") && said.err.contains("--trunk NAME=ENDPOINT"));
    stage.is_untouched();
    stage.init(&["--trunk=line=PJSIP/x7"]).await.well();
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
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked).await;
            let page = "<!doctype html><title>Welcome</title>";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
            let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let url = format!("--crm-url=http://{addr}");
    let said = stage.init(&[&url]).await;
    assert_eq!(said.code, 69, "{said:?}");
    assert!(said.err.contains(&addr.to_string()), "{said:?}");
    assert!(
        said.err
            .contains("check that --crm-url is the address of the API")
    );
    stage.is_untouched();
    stage.place.write("token", "svc_pat_of_nobody");
    let said = stage.init(&[]).await;
    assert_eq!(said.code, 77, "{said:?}");
    assert!(said.err.contains("token: the CRM refuses it"), "{said:?}");
    stage.is_untouched();
}

#[tokio::test]
async fn unwritable_folder_exits_73_with_a_fix() {
    let stage = Stage::new().await;
    let said = stage.init(&["--etc=/proc/none/etc"]).await;
    assert_eq!(said.code, 73, "{said:?}");
    assert!(said.err.contains("/proc/none/etc") && said.err.contains("run init as root"));
    let said = stage.init(&["--etc=relative"]).await;
    assert_eq!(said.code, 64, "{said:?}");
    assert!(
        said.err.contains("--etc: is not an absolute path"),
        "{said:?}"
    );
    stage.is_untouched();
}
