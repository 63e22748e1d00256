//! Tests folders that users other than their owner can write, and secrets that all users can read.

use super::stage::{Stage, set_mode};
use crate::commands::sidecar::json_lines;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;

/// Returns a stage, and its state folder, which belongs to the user that runs the test.
async fn stage_with_state() -> (Stage, std::path::PathBuf) {
    let stage = Stage::new().await;
    let state = stage.place.path("state");
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&state));
    let output = stage.place.run_command(&run).await;
    assert_eq!(output.code, 0, "{output:?}");
    (stage, state)
}

/// Runs `check --json` with these flags. Returns the exit code and the findings.
async fn check(stage: &Stage, flags: Vec<String>) -> (i32, Vec<Value>) {
    let words = ["check".to_owned(), "--json".to_owned()].into_iter();
    let output = stage
        .place
        .run_command(&words.chain(flags).collect::<Vec<_>>())
        .await;
    (output.code, json_lines(&output.out))
}

#[tokio::test]
async fn state_folder_writable_by_others_is_refused_with_a_fix() {
    let (stage, state) = stage_with_state().await;
    let flags = stage.token_flags(&state);
    let run: Vec<String> = ["run".to_owned()]
        .into_iter()
        .chain(flags.clone())
        .collect();
    for (mode, shown) in [(0o770, "770"), (0o777, "777")] {
        set_mode(&state, mode);
        for command in [run.clone(), stage.connect_arguments(&state)] {
            let output = stage.place.run_command(&command).await;
            assert_eq!(output.code, 78, "{output:?}");
            let fix = format!("chmod go-w {}", state.display());
            assert!(output.err.contains(&fix), "{output:?}");
            assert!(output.err.contains(shown), "{output:?}");
        }
        let (code, found) = check(&stage, flags.clone()).await;
        assert_eq!(code, 78, "{found:#?}");
        let problem = found
            .iter()
            .find(|finding| finding["ok"] == false)
            .expect("a problem");
        let fix = problem["fix"].as_str().expect("text");
        assert!(problem["name"] == "state" && fix.starts_with("chmod go-w"));
    }
    set_mode(&state, 0o755);
    assert_eq!(check(&stage, flags).await.0, 0);
}

#[tokio::test]
async fn empty_folder_writable_by_others_is_made_private() {
    let stage = Stage::new().await;
    let state = stage.place.path("state");
    std::fs::create_dir(&state).expect("made");
    set_mode(&state, 0o775);
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&state));
    let output = stage.place.run_command(&run).await;
    assert_eq!(output.code, 0, "{output:?}");
    let metadata = state.metadata().expect("there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
}

/// Returns the number of findings about secrets whose message contains `path`.
fn count_secret_findings(found: &[Value], path: &str) -> usize {
    let secrets = found.iter().filter(|finding| finding["name"] == "secret");
    let messages = secrets.filter_map(|finding| finding["message"].as_str());
    messages.filter(|message| message.contains(path)).count()
}

#[tokio::test]
async fn world_readable_secret_is_reported_by_check_and_run() {
    let (stage, state) = stage_with_state().await;
    let token = stage.place.path("token");
    let flags = stage.token_flags(&state);
    let token_path = token.display().to_string();
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
        assert_eq!(
            (code, count_secret_findings(&found, &token_path)),
            (0, usize::from(open)),
            "{found:#?}"
        );
        let output = stage.place.run_command(&run).await;
        assert_eq!(output.code, 0, "{output:?}");
        let warned = output.err.contains("can read a secret file");
        assert_eq!(warned, open, "{}", output.err);
    }
}
