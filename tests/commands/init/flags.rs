//! Tests `init` with all answers as flags: which files `init` writes, and that other commands
//! accept the files.

use super::stage::Stage;
use crate::commands::sidecar::grant_leads;
use crate::commands::sidecar::{TOKEN, poll_until};
use std::os::unix::fs::PermissionsExt as _;

#[tokio::test]
async fn init_detects_trunks_and_check_and_run_accept_its_files() {
    let stage = Stage::new().await;
    let output = stage.init(&[]).await;
    assert_eq!(output.code, 0, "{output:?}");
    for words in [
        "trunk      PJSIP/x7       the PBX logs in to it, and it does not log in to the PBX",
        "telephone  PJSIP/trunk-9  extension 109 of the dialplan shows its state (a hint)",
        "telephone  PJSIP/101      it logs in to the PBX",
        "clock: the PBX's clock is",
        "ok    grant",
        "To start it, run:",
    ] {
        let shown = output.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&words), "{words}: {}", output.out);
    }
    let flags = stage.read("office.flags");
    assert!(flags.contains("--trunk=x7=PJSIP/x7\n"), "{flags}");
    assert!(!flags.contains("=PJSIP/trunk-9") && flags.contains("# --employees=101:ID;trunk-9:ID"));
    for line in [
        "--pbx-id=office",
        "--pbx-timezone=Asia/Tashkent",
        "--country=UZ",
    ] {
        assert!(flags.contains(line), "{line}: {flags}");
    }
    // The answers to RegistrationsOutbound and GetConfig would contain passwords.
    let actions = stage.pbx.requests().join("\n");
    assert!(!actions.contains("RegistrationsOutbound") && !actions.contains("GetConfig"));
    let all_text = format!("{}{}{flags}", output.out, output.err);
    assert!(
        !all_text.contains(TOKEN) && !all_text.contains("secret of the manager"),
        "{all_text}"
    );
    for (name, mode, text) in [
        ("office.flags", 0o644, None),
        ("credstore/callbridge.office.token", 0o600, Some(TOKEN)),
        (
            "credstore/callbridge.office.ami-secret",
            0o600,
            Some("secret of the manager"),
        ),
    ] {
        let metadata = stage.etc(name).metadata().expect(name);
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
        assert!(
            text.is_none_or(|text| stage.read(name).trim() == text),
            "{name}"
        );
    }
    let flags_argument = format!("@{}", stage.etc("office.flags").display());
    // Secrets come only from the stored credentials.
    stage.place.write("token", "no token any more");
    let output = stage.place.run_command(&["check", &flags_argument]).await;
    assert_eq!(output.code, 0, "{output:?}");
    let daemon = stage.place.start_as("run", &["run", &flags_argument]);
    stage.pbx.logged_in(3).await;
    poll_until("a token that is right", async || {
        let status = stage.place.status().await?;
        (status["token"]["state"] == "ok").then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn existing_flags_are_overwritten_only_with_yes_after_a_diff() {
    let stage = Stage::new().await;
    grant_leads(&stage.crm);
    stage.init(&[]).await.expect_success();
    let flags_before = stage.read("office.flags");
    // The answers match the existing file, so nothing changes and `--yes` is not needed.
    stage.init(&[]).await.expect_success();
    assert_eq!(stage.read("office.flags"), flags_before);
    let output = stage.init(&["--lead=directory", "--lead-directory"]).await;
    assert_eq!(output.code, 73, "{output:?}");
    assert!(
        output.err.contains("office.flags would be overwritten"),
        "{output:?}"
    );
    assert!(output.out.contains("- --lead=var:LEAD_ID\n"), "{output:?}");
    assert!(output.out.contains("+ --lead=directory\n"), "{output:?}");
    assert_eq!(stage.read("office.flags"), flags_before);
    let output = stage
        .init(&["--lead=directory", "--lead-directory", "--yes"])
        .await;
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        stage
            .read("office.flags")
            .contains("--lead=directory\n--lead-directory\n")
    );
    let entries = std::fs::read_dir(stage.etc("")).expect("a folder");
    let names: Vec<_> = entries
        .map(|entry| entry.expect("a file").file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test]
async fn directory_lead_rule_without_terminal_passes_check() {
    let stage = Stage::new().await;
    grant_leads(&stage.crm);
    stage.init(&["--lead=directory"]).await.expect_success();
    let file = format!("@{}", stage.etc("office.flags").display());
    stage
        .place
        .run_command(&["check", &file])
        .await
        .expect_success();
    let written = stage.read("office.flags");
    assert!(written.contains("--lead-directory\n"), "{written}");
}

#[tokio::test]
async fn non_utf8_flags_file_is_overwritten_only_with_yes() {
    let stage = Stage::new().await;
    let old = b"# \xcf\xd2\xd1\n--lead=directory\n";
    std::fs::create_dir_all(stage.etc("")).expect("a folder");
    std::fs::write(stage.etc("office.flags"), old).expect("written");
    let output = stage.init(&[]).await;
    assert_eq!(output.code, 73, "{output:?}");
    assert!(output.out.contains("- --lead=directory\n"), "{output:?}");
    let bytes = std::fs::read(stage.etc("office.flags")).expect("there");
    assert_eq!(bytes, old);
    stage.init(&["--yes"]).await.expect_success();
    assert!(stage.read("office.flags").contains("--lead=var:LEAD_ID\n"));
}

#[tokio::test]
async fn init_exits_with_code_of_the_failed_check() {
    let stage = Stage::new().await;
    let employees = format!("--employees={}", stage.place.path("missing.csv").display());
    let output = stage.init(&[&employees]).await;
    assert_eq!(output.code, 66, "{output:?}");
    assert!(
        output
            .err
            .contains("the files are written, but check found problems"),
        "{output:?}"
    );
    assert!(!output.out.contains("To start it, run:"), "{output:?}");
    stage.read("office.flags");
}
