//! Tests `init` with all answers as flags: which files it writes, and that other commands accept
//! them.

use super::stage::Stage;
use crate::commands::sidecar::grant_leads;
use crate::commands::sidecar::{TOKEN, until};
use std::os::unix::fs::PermissionsExt as _;

#[tokio::test]
async fn init_detects_trunks_and_check_and_run_accept_its_files() {
    let stage = Stage::new().await;
    let said = stage.init(&[]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for words in [
        "trunk      PJSIP/x7       the PBX logs in to it, and it does not log in to the PBX",
        "telephone  PJSIP/trunk-9  extension 109 of the dialplan shows its state (a hint)",
        "telephone  PJSIP/101      it logs in to the PBX",
        "clock: the PBX's clock is",
        "ok    grant",
        "To start it, run:",
    ] {
        let shown = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&words), "{words}: {}", said.out);
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
    // The answers to these actions would contain the passwords of the registrations.
    let asked = stage.pbx.asked().join("\n");
    assert!(!asked.contains("RegistrationsOutbound") && !asked.contains("GetConfig"));
    let all = format!("{}{}{flags}", said.out, said.err);
    assert!(
        !all.contains(TOKEN) && !all.contains("secret of the manager"),
        "{all}"
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
        let about = stage.etc(name).metadata().expect(name);
        assert_eq!(about.permissions().mode() & 0o777, mode, "{name}");
        assert!(
            text.is_none_or(|text| stage.read(name).trim() == text),
            "{name}"
        );
    }
    let at = format!("@{}", stage.etc("office.flags").display());
    // Secrets come only from the stored credentials.
    stage.place.write("token", "no token any more");
    let checked = stage.place.say(&["check", &at]).await;
    assert_eq!(checked.code, 0, "{checked:?}");
    let daemon = stage.place.start_as("run", &["run", &at]);
    stage.pbx.logged_in(3).await;
    let answers = async || {
        let status = stage.place.status().await?;
        (status["token"]["state"] == "ok").then_some(())
    };
    until("a token that is right", answers).await;
    daemon.stop().await;
}

#[tokio::test]
async fn existing_flags_are_overwritten_only_with_yes_after_a_diff() {
    let stage = Stage::new().await;
    grant_leads(&stage.crm);
    stage.init(&[]).await.well();
    let before = stage.read("office.flags");
    // A second run changes nothing and asks no server.
    stage.init(&[]).await.well();
    let said = stage.init(&["--lead=directory", "--lead-directory"]).await;
    assert_eq!(said.code, 73, "{said:?}");
    assert!(
        said.err.contains("office.flags would be overwritten"),
        "{said:?}"
    );
    assert!(said.out.contains("- --lead=var:LEAD_ID\n"), "{said:?}");
    assert!(said.out.contains("+ --lead=directory\n"), "{said:?}");
    assert_eq!(stage.read("office.flags"), before);
    let said = stage
        .init(&["--lead=directory", "--lead-directory", "--yes"])
        .await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        stage
            .read("office.flags")
            .contains("--lead=directory\n--lead-directory\n")
    );
    let left = std::fs::read_dir(stage.etc("")).expect("a folder");
    let names: Vec<_> = left.map(|it| it.expect("a file").file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test]
async fn non_utf8_flags_file_is_overwritten_only_with_yes() {
    let stage = Stage::new().await;
    let old = b"# \xcf\xd2\xd1\n--lead=directory\n";
    std::fs::create_dir_all(stage.etc("")).expect("a folder");
    std::fs::write(stage.etc("office.flags"), old).expect("written");
    let said = stage.init(&[]).await;
    assert_eq!(said.code, 73, "{said:?}");
    assert!(said.out.contains("- --lead=directory\n"), "{said:?}");
    let kept = std::fs::read(stage.etc("office.flags")).expect("there");
    assert_eq!(kept, old);
    stage.init(&["--yes"]).await.well();
    assert!(stage.read("office.flags").contains("--lead=var:LEAD_ID\n"));
}

#[tokio::test]
async fn init_ends_with_the_code_of_the_failed_check() {
    let stage = Stage::new().await;
    let employees = format!("--employees={}", stage.place.path("missing.csv").display());
    let said = stage.init(&[&employees]).await;
    assert_eq!(said.code, 66, "{said:?}");
    assert!(
        said.err
            .contains("the files are written, but check found problems"),
        "{said:?}"
    );
    assert!(!said.out.contains("To start it, run:"), "{said:?}");
    stage.read("office.flags");
}
