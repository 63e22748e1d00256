//! Tests the state folder, its binding, and the listener.

use super::findings::{check, with};
use crate::commands::sidecar::{Place, crm};
use callbridge_leads::directory::{ChangeKind, rows};
use callbridge_sandbox::Server;
use callbridge_spool as spool;
use callbridge_testbed::calls::Call;
use callbridge_testbed::port::free_addr;
use serde_json::json;
use tokio::net::TcpListener;

async fn stage() -> (Place, Server, Vec<String>) {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    (place, crm, flags)
}

/// Creates a state by opening it once.
pub async fn begun(place: &Place) {
    let opened = spool::open(&place.path("state"), spool::Settings::default());
    let (handle, guard) = opened.expect("the state");
    drop(handle);
    tokio::task::spawn_blocking(move || guard.close())
        .await
        .expect("closed");
}

/// Returns the paths of everything in a folder and its subfolders.
fn below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            all.push(path);
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn check_leaves_nothing_where_no_state_exists() {
    let (place, _crm, flags) = stage().await;
    let deep = place.path("not/there/yet").display().to_string();
    let all = place.path("");
    let before = below(&all);
    check(&place, &with(flags.clone(), "--state", &deep))
        .await
        .is_clean();
    assert_eq!(below(&all), before, "the folder was not there");
    std::fs::create_dir_all(&deep).expect("made");
    let before = below(&all);
    check(&place, &with(flags.clone(), "--state", &deep))
        .await
        .is_clean();
    assert_eq!(below(&all), before, "the folder was empty");
    begun(&place).await;
    let before = below(&all);
    check(&place, &flags).await.is_clean();
    assert_eq!(below(&all), before, "a state that is in use");
}

#[tokio::test]
async fn unwritable_state_is_73_and_sends_no_crm_request() {
    let (place, crm, flags) = stage().await;
    place.write("in-the-way", "");
    // Not even root can create a folder in these two.
    for folder in [
        place.path("in-the-way").display().to_string(),
        "/proc/callbridge".into(),
    ] {
        let flags = with(flags.clone(), "--state", &folder);
        let checked = check(&place, &flags).await;
        assert_eq!(checked.code, 73, "{checked:#?}");
        assert_eq!(checked.faults(), ["state", "crm"]);
        let said = format!("{checked:?}");
        assert!(
            said.contains(&folder) && said.contains("another --state"),
            "{said}"
        );
    }
    let asked = crm.admin(|core, _| core.counts().values().sum::<u64>());
    assert_eq!(asked, 0, "a request that could not be counted");
}

#[tokio::test]
async fn state_held_by_other_process_without_daemon_is_75() {
    let (place, _crm, flags) = stage().await;
    let opened = spool::open(&place.path("state"), spool::Settings::default());
    let (handle, guard) = opened.expect("the state");
    let checked = check(&place, &flags).await;
    assert_eq!(
        (checked.code, checked.faults()),
        (75, vec!["state".into(), "crm".into()])
    );
    let said = format!("{checked:?}");
    let holder = format!("in use by process {}", std::process::id());
    assert!(said.contains(&holder) && said.contains("stop it"), "{said}");
    drop(handle);
    tokio::task::spawn_blocking(move || guard.close())
        .await
        .expect("closed");
    check(&place, &flags).await.is_clean();
}

#[tokio::test]
async fn newer_and_a_foreign_state_are_78_and_left_as_they_are() {
    let (place, _crm, flags) = stage().await;
    begun(&place).await;
    check(&place, &flags).await.is_clean();
    let file = place.path("state").join(spool::folder::FILE);
    let newer = |file: &std::path::Path| {
        let db = rusqlite::Connection::open(file).expect("SQLite");
        db.pragma_update(None, "user_version", 1_000).expect("set");
    };
    newer(&file);
    let before = std::fs::read(&file).expect("a file");
    let checked = check(&place, &flags).await;
    assert_eq!(
        (checked.code, checked.faults()),
        (78, vec!["state".into(), "crm".into()])
    );
    let said = format!("{checked:?}");
    assert!(
        said.contains("schema 1000") && said.contains("newer callbridge"),
        "{said}"
    );
    assert_eq!(std::fs::read(&file).expect("a file"), before);
    std::fs::write(&file, "a letter to my aunt, not a database").expect("written");
    let checked = check(&place, &flags).await;
    assert_eq!(checked.code, 78, "{checked:#?}");
    let kept = std::fs::read_to_string(&file).expect("a file");
    assert!(kept.starts_with("a letter"), "{kept}");
}

#[tokio::test]
async fn state_bound_to_other_address_is_78_until_rebind() {
    let (place, first, flags) = stage().await;
    place.run_until_idle(&flags).await;
    let second = crm(|_| ()).await;
    let mut flags = with(flags, "--crm-url", &second.url());
    let checked = check(&place, &flags).await;
    checked.fails(78, "binding", first.url().as_str(), "--rebind");
    flags.push("--rebind".to_owned());
    check(&place, &flags).await.is_clean();
}

#[tokio::test]
async fn another_pbx_id_than_the_stored_one_is_78() {
    let (place, _crm, flags) = stage().await;
    place.run_until_idle(&flags).await;
    let flags = with(flags, "--pbx-id", "another");
    check(&place, &flags)
        .await
        .fails(78, "pbx-id", "another", "--pbx-id test");
}

#[tokio::test]
async fn address_that_is_taken_is_64_unless_the_daemon_has_it() {
    let (place, _crm, flags) = stage().await;
    let taken = TcpListener::bind(free_addr()).await.expect("a port");
    let addr = taken.local_addr().expect("bound").to_string();
    let flags = with(flags, "--listen", &addr);
    check(&place, &flags)
        .await
        .fails(64, "listen", &addr, "--listen");
    drop(taken);
    check(&place, &flags).await.is_clean();
    let daemon = place.run(&flags).await;
    check(&place, &flags).await.is_clean();
    daemon.stop().await;
}

#[tokio::test]
async fn copied_state_is_69_on_every_check_before_daemon_runs() {
    let (place, _crm, flags) = stage().await;
    begun(&place).await;
    check(&place, &flags).await.is_clean();
    let file = place.path("state").join(spool::folder::FILE);
    std::fs::copy(&file, place.path("backup")).expect("copied");
    std::fs::rename(place.path("backup"), &file).expect("put back");
    for _ in 0..2 {
        let checked = check(&place, &flags).await;
        checked.fails(69, "crm", "the state is a copy", "callbridge run");
    }
}

#[tokio::test]
async fn lookup_check_tries_each_trunk_and_names_problems() {
    let (place, _crm, flags) = stage().await;
    let addr = free_addr().to_string();
    let flags = with(flags, "--lookup", &addr);
    let found = check(&place, &flags).await;
    found.is_clean();
    let free = found.well("lookup")["message"].to_string();
    assert!(free.contains("is free"), "{free}");
    let taken = TcpListener::bind(&addr).await.expect("a port");
    let found = check(&place, &flags).await;
    found.fails(64, "lookup", &addr, "--lookup");
    drop(taken);

    let daemon = place.run(&flags).await;
    let found = check(&place, &flags).await;
    found.is_clean();
    let tried = found.well("lookup city");
    let what = tried["message"].as_str().expect("words");
    assert!(
        what.starts_with("answered ") && what.contains(" ms"),
        "{what}"
    );
    assert!(
        tried["fix"]
            .as_str()
            .is_some_and(|it| it.contains("lead=directory")),
        "{tried}"
    );
    let other = with(flags.clone(), "--lookup", &free_addr().to_string());
    let other: Vec<String> = other.into_iter().collect();
    let found = check(&place, &other).await;
    found.fails(69, "lookup", "refused", "restart it");
    daemon.stop().await;
}

#[tokio::test]
async fn responsible_employees_without_extension_are_named_by_trunk() {
    let (place, _crm, flags) = stage().await;
    let addr = free_addr().to_string();
    let mut flags = with(flags, "--lookup", &addr);
    flags.retain(|flag| !flag.starts_with("--trunk="));
    let trunks = [
        "--trunk=city=PJSIP/city,country=UZ,lead=directory,employees=101:501;10 2:502;103:503",
        "--trunk=gsm=PJSIP/gsm,country=UZ,lead=directory,\
         employees=101:501;102:502;104:504;105:505;106:503",
    ];
    flags.extend(trunks.map(str::to_owned));
    let said = async |trunk: &str| {
        let found = check(&place, &flags).await;
        found.well(&format!("lookup {trunk}")).clone()
    };
    assert_eq!(
        said("city").await["message"],
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
    let city = said("city").await;
    assert_eq!(city["message"], format!("callers of this trunk; {missing}"));
    let fix = city["fix"].as_str().expect("words");
    assert!(fix.contains("employees="), "{fix}");
    assert_eq!(said("gsm").await["fix"], "", "all are on its list");
    let daemon = place.run(&flags).await;
    let city = said("city").await["message"].to_string();
    assert!(
        city.contains("answered ") && city.contains(missing),
        "{city}"
    );
    daemon.stop().await;
}
