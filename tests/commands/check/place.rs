//! Tests `check` with the state folder, its binding, and the addresses that `run` listens on.

use super::findings::{check, replace_flag};
use crate::commands::sidecar::{Place, start_crm};
use callbridge_leads::directory::{ChangeKind, rows};
use callbridge_sandbox::Server;
use callbridge_spool as spool;
use callbridge_testbed::calls::Call;
use callbridge_testbed::port::free_addr;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Returns a place with a call to read, its CRM, and the flags.
async fn stage() -> (Place, Server, Vec<String>) {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    (place, crm, flags)
}

/// Creates a state by opening it once.
pub async fn create_state(place: &Place) {
    let opened = spool::open(&place.path("state"), spool::Settings::default());
    let (handle, guard) = opened.expect("the state");
    drop(handle);
    tokio::task::spawn_blocking(move || guard.close())
        .await
        .expect("closed");
}

/// Returns the paths of everything in a folder and its subfolders.
fn paths_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut paths = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

#[tokio::test]
async fn check_creates_no_file_in_missing_empty_or_used_state() {
    let (place, _crm, flags) = stage().await;
    let deep = place.path("not/there/yet").display().to_string();
    let root = place.path("");
    let paths_before = paths_below(&root);
    check(&place, &replace_flag(flags.clone(), "--state", &deep))
        .await
        .assert_clean();
    assert_eq!(paths_below(&root), paths_before, "the folder was not there");
    std::fs::create_dir_all(&deep).expect("made");
    let paths_before = paths_below(&root);
    check(&place, &replace_flag(flags.clone(), "--state", &deep))
        .await
        .assert_clean();
    assert_eq!(paths_below(&root), paths_before, "the folder was empty");
    create_state(&place).await;
    let paths_before = paths_below(&root);
    check(&place, &flags).await.assert_clean();
    assert_eq!(paths_below(&root), paths_before, "a state that is in use");
}

#[tokio::test]
async fn unwritable_state_exits_73_and_sends_no_crm_request() {
    let (place, crm, flags) = stage().await;
    place.write("in-the-way", "");
    // Not even root can create a folder at either path.
    for folder in [
        place.path("in-the-way").display().to_string(),
        "/proc/callbridge".into(),
    ] {
        let flags = replace_flag(flags.clone(), "--state", &folder);
        let report = check(&place, &flags).await;
        assert_eq!(report.code, 73, "{report:#?}");
        assert_eq!(report.failed_names(), ["state", "crm"]);
        let report_text = format!("{report:?}");
        assert!(
            report_text.contains(&folder) && report_text.contains("another --state"),
            "{report_text}"
        );
    }
    let requests = crm.admin(|core, _| core.counts().values().sum::<u64>());
    assert_eq!(requests, 0, "a request that could not be counted");
}

#[tokio::test]
async fn state_held_by_other_process_without_daemon_exits_75() {
    let (place, _crm, flags) = stage().await;
    let opened = spool::open(&place.path("state"), spool::Settings::default());
    let (handle, guard) = opened.expect("the state");
    let report = check(&place, &flags).await;
    assert_eq!(
        (report.code, report.failed_names()),
        (75, vec!["state".into(), "crm".into()])
    );
    let report_text = format!("{report:?}");
    let holder = format!("in use by process {}", std::process::id());
    assert!(
        report_text.contains(&holder) && report_text.contains("stop it"),
        "{report_text}"
    );
    drop(handle);
    tokio::task::spawn_blocking(move || guard.close())
        .await
        .expect("closed");
    check(&place, &flags).await.assert_clean();
}

/// Writes a later schema version into the file of a state.
fn set_newer_schema(file: &std::path::Path) {
    let db = rusqlite::Connection::open(file).expect("SQLite");
    db.pragma_update(None, "user_version", 1_000).expect("set");
}

#[tokio::test]
async fn newer_or_invalid_state_exits_78_and_is_unchanged() {
    let (place, _crm, flags) = stage().await;
    create_state(&place).await;
    check(&place, &flags).await.assert_clean();
    let file = place.path("state").join(spool::folder::FILE);
    set_newer_schema(&file);
    let bytes_before = std::fs::read(&file).expect("a file");
    let report = check(&place, &flags).await;
    assert_eq!(
        (report.code, report.failed_names()),
        (78, vec!["state".into(), "crm".into()])
    );
    let report_text = format!("{report:?}");
    assert!(
        report_text.contains("schema 1000") && report_text.contains("newer callbridge"),
        "{report_text}"
    );
    assert_eq!(std::fs::read(&file).expect("a file"), bytes_before);
    std::fs::write(&file, "a letter to my aunt, not a database").expect("written");
    let report = check(&place, &flags).await;
    assert_eq!(report.code, 78, "{report:#?}");
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(text.starts_with("a letter"), "{text}");
}

#[tokio::test]
async fn state_bound_to_other_address_exits_78_until_rebind() {
    let (place, first, flags) = stage().await;
    place.run_until_idle(&flags).await;
    let second = start_crm(|_| ()).await;
    let mut flags = replace_flag(flags, "--crm-url", &second.url());
    let report = check(&place, &flags).await;
    report.assert_single_failure(78, "binding", first.url().as_str(), "--rebind");
    flags.push("--rebind".to_owned());
    check(&place, &flags).await.assert_clean();
}

#[tokio::test]
async fn pbx_id_different_from_stored_one_exits_78() {
    let (place, _crm, flags) = stage().await;
    place.run_until_idle(&flags).await;
    let flags = replace_flag(flags, "--pbx-id", "another");
    check(&place, &flags)
        .await
        .assert_single_failure(78, "pbx-id", "another", "--pbx-id test");
}

#[tokio::test]
async fn listen_address_in_use_exits_64_unless_used_by_daemon() {
    let (place, _crm, flags) = stage().await;
    let listener = TcpListener::bind(free_addr()).await.expect("a port");
    let addr = listener.local_addr().expect("bound").to_string();
    let flags = replace_flag(flags, "--listen", &addr);
    check(&place, &flags)
        .await
        .assert_single_failure(64, "listen", &addr, "--listen");
    drop(listener);
    check(&place, &flags).await.assert_clean();
    let daemon = place.start_daemon(&flags).await;
    check(&place, &flags).await.assert_clean();
    daemon.stop().await;
}

#[tokio::test]
async fn copied_state_exits_69_on_every_check_before_daemon_runs() {
    let (place, _crm, flags) = stage().await;
    create_state(&place).await;
    check(&place, &flags).await.assert_clean();
    let file = place.path("state").join(spool::folder::FILE);
    std::fs::copy(&file, place.path("backup")).expect("copied");
    std::fs::rename(place.path("backup"), &file).expect("put back");
    for _ in 0..2 {
        let report = check(&place, &flags).await;
        let message = "that this state does not contain";
        report.assert_single_failure(69, "crm", message, "callbridge run");
    }
}

#[tokio::test]
async fn lookup_check_measures_the_answer_and_reports_problems() {
    let (place, _crm, flags) = stage().await;
    let addr = free_addr().to_string();
    let flags = replace_flag(flags, "--lookup", &addr);
    let found = check(&place, &flags).await;
    found.assert_clean();
    let message = found.ok_finding("lookup")["message"].to_string();
    assert!(message.contains("is free"), "{message}");
    let listener = TcpListener::bind(&addr).await.expect("a port");
    let found = check(&place, &flags).await;
    found.assert_single_failure(64, "lookup", &addr, "--lookup");
    drop(listener);

    let daemon = place.start_daemon(&flags).await;
    let found = check(&place, &flags).await;
    found.assert_clean();
    let tried = found.ok_finding("lookup city");
    let message = tried["message"].as_str().expect("words");
    assert!(
        message.starts_with("answered ") && message.contains(" ms"),
        "{message}"
    );
    assert!(
        tried["fix"]
            .as_str()
            .is_some_and(|text| text.contains("lead=directory")),
        "{tried}"
    );
    let other_flags = replace_flag(flags.clone(), "--lookup", &free_addr().to_string());
    let found = check(&place, &other_flags).await;
    found.assert_single_failure(69, "lookup", "refused", "restart it");
    daemon.stop().await;
}

/// Runs `check`, and returns the successful finding about number lookups of this trunk.
async fn lookup_finding(place: &Place, flags: &[String], trunk: &str) -> Value {
    let found = check(place, flags).await;
    found.ok_finding(&format!("lookup {trunk}")).clone()
}

#[tokio::test]
async fn responsible_employees_without_extension_are_listed_by_trunk() {
    let (place, _crm, flags) = stage().await;
    let addr = free_addr().to_string();
    let mut flags = replace_flag(flags, "--lookup", &addr);
    flags.retain(|flag| !flag.starts_with("--trunk="));
    let trunks = [
        "--trunk=city=PJSIP/city,country=UZ,lead=directory,employees=101:501;10 2:502;103:503",
        "--trunk=gsm=PJSIP/gsm,country=UZ,lead=directory,\
         employees=101:501;102:502;104:504;105:505;106:503",
    ];
    flags.extend(trunks.map(str::to_owned));
    assert_eq!(
        lookup_finding(&place, &flags, "city").await["message"],
        "callers of this trunk",
        "no state yet"
    );

    // Employees 501 to 505 have one to five leads.
    let opened = spool::open(&place.path("state"), spool::Settings::default());
    let (handle, guard) = opened.expect("the state");
    let leads = (501_i64..=505).flat_map(|id| (501..=id).map(move |n| (id * 10 + n - 500, id)));
    let learn = leads.map(|(id, employee)| {
        let row = json!({
            "id": id, "updatedTimestamp": 10, "name": "Anna Petrova", "phone": null,
            "responsibleId": employee, "responsibleName": "Olim Karimov",
        });
        let news = rows::read(&row, ChangeKind::Filter, None)
            .news
            .expect("a lead");
        spool::Op::Learn(Box::new(news))
    });
    handle.write(learn.collect()).await.expect("stored");
    drop(handle);
    tokio::task::spawn_blocking(move || guard.close())
        .await
        .expect("closed");
    let missing = "3 of 5 responsible employees have no extension here; by id, with their number \
                   of leads: 505 (5), 504 (4), 502 (2)";
    let city = lookup_finding(&place, &flags, "city").await;
    assert_eq!(city["message"], format!("callers of this trunk; {missing}"));
    let fix = city["fix"].as_str().expect("words");
    assert!(fix.contains("employees="), "{fix}");
    assert_eq!(
        lookup_finding(&place, &flags, "gsm").await["fix"],
        "",
        "all are on its list"
    );
    let daemon = place.start_daemon(&flags).await;
    let city = lookup_finding(&place, &flags, "city").await["message"].to_string();
    assert!(
        city.contains("answered ") && city.contains(missing),
        "{city}"
    );
    let gsm = lookup_finding(&place, &flags, "gsm").await["message"].to_string();
    assert!(gsm.contains("answered "), "{gsm}");
    daemon.stop().await;
}
