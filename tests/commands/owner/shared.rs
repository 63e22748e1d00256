//! Tests folders that users other than their owner can write, and secrets that all users can read.

use super::stage::{Stage, set_mode};
use crate::commands::sidecar::json_lines;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;

/// Returns a stage whose folder belongs to the user that runs the test.
async fn begun() -> (Stage, std::path::PathBuf) {
    let stage = Stage::new().await;
    let state = stage.place.path("state");
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&state));
    let said = stage.place.say(&run).await;
    assert_eq!(said.code, 0, "{said:?}");
    (stage, state)
}

async fn check(stage: &Stage, flags: Vec<String>) -> (i32, Vec<Value>) {
    let words = ["check".to_owned(), "--json".to_owned()].into_iter();
    let said = stage
        .place
        .say(&words.chain(flags).collect::<Vec<_>>())
        .await;
    (said.code, json_lines(&said.out))
}

#[tokio::test]
async fn state_folder_writable_by_others_is_refused_with_a_fix() {
    let (stage, state) = begun().await;
    let flags = stage.token_flags(&state);
    let run: Vec<String> = ["run".to_owned()]
        .into_iter()
        .chain(flags.clone())
        .collect();
    for (mode, shown) in [(0o770, "770"), (0o777, "777")] {
        set_mode(&state, mode);
        for command in [run.clone(), stage.connect(&state)] {
            let said = stage.place.say(&command).await;
            assert_eq!(said.code, 78, "{said:?}");
            let fix = format!("chmod go-w {}", state.display());
            assert!(said.err.contains(&fix), "{said:?}");
            assert!(said.err.contains(shown), "{said:?}");
        }
        let (code, found) = check(&stage, flags.clone()).await;
        assert_eq!(code, 78, "{found:#?}");
        let fault = found.iter().find(|it| it["ok"] == false).expect("a fault");
        let fix = fault["fix"].as_str().expect("text");
        assert!(fault["name"] == "state" && fix.starts_with("chmod go-w"));
    }
    set_mode(&state, 0o755);
    assert_eq!(check(&stage, flags).await.0, 0);
}

#[tokio::test]
async fn empty_folder_that_others_may_write_is_made_private() {
    let stage = Stage::new().await;
    let state = stage.place.path("state");
    std::fs::create_dir(&state).expect("made");
    set_mode(&state, 0o775);
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&state));
    let said = stage.place.say(&run).await;
    assert_eq!(said.code, 0, "{said:?}");
    let about = state.metadata().expect("there");
    assert_eq!(about.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn world_readable_secret_is_reported_by_check_and_run() {
    let (stage, state) = begun().await;
    let token = stage.place.path("token");
    let flags = stage.token_flags(&state);
    let named = |found: &[Value]| {
        let secrets = found.iter().filter(|it| it["name"] == "secret");
        let path = token.display().to_string();
        let told = |it: &&Value| {
            it["message"]
                .as_str()
                .is_some_and(|what| what.contains(&path))
        };
        secrets.filter(told).count()
    };
    let run = ["run".to_owned(), "--until-idle".to_owned()].into_iter();
    let run: Vec<String> = run.chain(flags.clone()).collect();
    for (mode, folder, open) in [
        (0o644, 0o755, true),
        (0o640, 0o755, false),
        (0o644, 0o700, false),
    ] {
        set_mode(&token, mode);
        set_mode(&stage.place.path(""), folder);
        let (code, found) = check(&stage, flags.clone()).await;
        assert_eq!((code, named(&found)), (0, usize::from(open)), "{found:#?}");
        let said = stage.place.say(&run).await;
        assert_eq!(said.code, 0, "{said:?}");
        let warned = said.err.contains("can read a secret file");
        assert_eq!(warned, open, "{}", said.err);
    }
}
