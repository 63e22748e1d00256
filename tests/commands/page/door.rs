//! Tests access to the page of a running daemon.

use super::browser::Browser;
use crate::commands::sidecar::{Place, Running, crm, until};
use callbridge_sandbox::Server;
use callbridge_testbed::port::free_addr;
use reqwest::{Method, StatusCode};
use std::process::{Command, Stdio};

async fn daemon(place: &Place, more: &[&str]) -> (Server, Running) {
    let crm = crm(|_| {}).await;
    place.write("calls.ami", "");
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    // An address that is still free after a kill.
    flags.push(format!("--page={}", free_addr()));
    flags.extend(more.iter().map(ToString::to_string));
    let running = place.run(&flags).await;
    (crm, running)
}

#[tokio::test]
async fn link_opens_one_session_and_looking_at_it_burns_nothing() {
    let place = Place::new();
    let (_crm, running) = daemon(&place, &[]).await;
    let (mut browser, path) = Browser::outside(&place).await;
    for _ in 0..3 {
        let shown = browser.page(&path).await;
        assert!(shown.contains("<form"), "{shown}");
    }
    let outside = browser.get("/calls").await;
    assert_eq!(outside.status, StatusCode::SEE_OTHER);
    let shown = browser.post(&path, &[]).await;
    assert_eq!(shown.status, StatusCode::SEE_OTHER, "{}", shown.text);
    browser.cookie = shown.cookie;
    assert!(browser.cookie.is_some());
    let again = browser.post(&path, &[]).await;
    assert_ne!(
        again.status,
        StatusCode::SEE_OTHER,
        "a button that is replayed"
    );
    assert_eq!(again.cookie, None);
    let today = browser.page("/").await;
    assert!(today.contains("No problem found"), "{today}");
    running.stop().await;
}

/// Promise: A forged request changes nothing on the page.
#[tokio::test]
async fn form_is_accepted_only_with_token_same_origin_and_session() {
    let place = Place::new();
    let (_crm, running) = daemon(&place, &[]).await;
    let browser = Browser::inside(&place).await;
    let token = browser.token("/check").await;
    let true_form = [("token", token.as_str())];
    let refused = async |what: &str, request: reqwest::RequestBuilder| {
        let shown = browser.send(request).await;
        assert_eq!(
            shown.status,
            StatusCode::FORBIDDEN,
            "{what}: {}",
            shown.text
        );
    };
    let form = || browser.form("/check", &true_form);
    refused("without any origin", form()).await;
    refused(
        "another origin",
        form().header("Origin", "https://evil.example"),
    )
    .await;
    refused("no origin", form().header("Origin", "null")).await;
    refused("cross-site", form().header("Sec-Fetch-Site", "cross-site")).await;
    let own = browser.origin.clone();
    let other_host = form().header("Origin", &own).header("Host", "evil.example");
    refused("another host", other_host).await;
    let forged = browser.form("/check", &[("token", "forged")]);
    refused("a forged token", forged.header("Origin", &own)).await;
    let bare = browser.form("/check", &[]);
    refused("no token", bare.header("Origin", &own)).await;
    let hosts = browser
        .request(Method::GET, "/")
        .header("Host", "evil.example");
    refused("a page under another name", hosts).await;

    let same_site = form().header("Sec-Fetch-Site", "same-origin");
    for form in [same_site, form().header("Origin", &own)] {
        let shown = browser.send(form).await;
        assert_eq!(shown.status, StatusCode::SEE_OTHER, "{shown:?}");
        assert_eq!(shown.location.as_deref(), Some("/check"));
    }

    let out = browser.post("/logout", &true_form).await;
    assert_eq!(out.status, StatusCode::SEE_OTHER);
    let after = browser.get("/calls").await;
    assert_eq!(after.status, StatusCode::SEE_OTHER, "a cookie after logout");
    let after = browser.post("/check", &true_form).await;
    assert_eq!(
        after.status,
        StatusCode::UNAUTHORIZED,
        "a form after logout"
    );
    running.stop().await;
}

#[tokio::test]
async fn login_works_after_wrong_passwords_and_session_survives_kill() {
    let place = Place::new();
    let lines = [line_of("anna", "admin"), line_of("bek", "view")];
    let file = place.write("people", lines.concat());
    let file = format!("--page-password-file={}", file.display());
    let (crm, running) = daemon(&place, &[&file]).await;
    let (mut browser, _) = Browser::outside(&place).await;
    let login = async |browser: &Browser, name: &str, password: &str| {
        let fields = [("name", name), ("password", password)];
        browser.post("/login", &fields).await
    };
    let shown = login(&browser, "bek", PASSWORD).await;
    assert_eq!(shown.status, StatusCode::SEE_OTHER, "{}", shown.text);
    browser.cookie = shown.cookie;
    let calls = browser.page("/calls").await;
    assert!(calls.contains("bek"), "who is logged in");
    browser.page("/letters").await;

    // This user can view the page and not change anything.
    let (outside, _) = Browser::outside(&place).await;
    for n in 0..5 {
        let shown = login(&outside, "anna", "a wrong password").await;
        assert_eq!(shown.status, StatusCode::FORBIDDEN, "{n}: {}", shown.text);
    }
    let shown = login(&outside, "anna", PASSWORD).await;
    assert_eq!(shown.status, StatusCode::SEE_OTHER, "{}", shown.text);

    let port = browser
        .origin
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    running.end(rustix::process::Signal::KILL).await;
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.extend([format!("--page=127.0.0.1:{port}"), file]);
    let running = place.run(&flags).await;
    let calls = browser.page("/calls").await;
    assert!(calls.contains("bek"), "the same session after a kill -9");
    running.stop().await;
}

#[tokio::test]
async fn wrong_password_flood_needs_under_40_mib_and_admin_logs_in() {
    let place = Place::new();
    let file = place.write("people", line_of("anna", "admin"));
    let file = format!("--page-password-file={}", file.display());
    let (_crm, running) = daemon(&place, &[&file]).await;
    let (outside, _) = Browser::outside(&place).await;
    let before = running.peak_kib();
    let login = async |name: &str, password: &str| {
        let fields = [("name", name), ("password", password)];
        outside.post("/login", &fields).await.status
    };
    let names: Vec<String> = (0..64).map(|n| format!("nobody{n}")).collect();
    let wrong = names.iter().map(|name| login(name, "a wrong password"));
    // If the flood makes a login fail, it is tried again, as a person would.
    let right = async {
        loop {
            let status = login("anna", PASSWORD).await;
            if status != StatusCode::TOO_MANY_REQUESTS {
                return status;
            }
        }
    };
    let all = futures_util::future::join_all(wrong);
    let (wrong, right) = tokio::join!(all, right);
    let expected = [StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];
    assert!(wrong.iter().all(|it| expected.contains(it)), "{wrong:?}");
    assert_eq!(right, StatusCode::SEE_OTHER, "the administrator gets in");
    // One password hash takes 19 MiB.
    let more = running.peak_kib() - before;
    assert!(
        more < 40 * 1024,
        "{more} KiB more than the {before} KiB before"
    );
    running.stop().await;
}

#[tokio::test]
async fn person_removed_from_the_file_loses_the_session() {
    let place = Place::new();
    let anna = line_of("anna", "admin");
    let bek = line_of("bek", "view");
    let file = place.write("people", format!("{anna}{bek}"));
    let flag = format!("--page-password-file={}", file.display());
    let (_crm, running) = daemon(&place, &[&flag]).await;
    let enter = async |name: &str| {
        let (mut browser, _) = Browser::outside(&place).await;
        let fields = [("name", name), ("password", PASSWORD)];
        let shown = browser.post("/login", &fields).await;
        assert_eq!(shown.status, StatusCode::SEE_OTHER, "{name}");
        browser.cookie = shown.cookie;
        browser
    };
    let of_anna = enter("anna").await;
    let of_bek = enter("bek").await;
    let ends = async |browser: &Browser| {
        let is_out = async || {
            let shown = browser.get("/calls").await;
            (shown.status != StatusCode::OK).then_some(())
        };
        until("the end of the session", is_out).await;
    };
    let shows_fault = async |part: &str| {
        let is_shown = async || {
            let status = place.status().await?;
            let file = &status["secretFiles"][0];
            assert_eq!(file["flag"], "--page-password-file");
            file["reason"].as_str()?.contains(part).then_some(())
        };
        until(part, is_shown).await;
    };

    place.write("people", format!("{anna}a broken line\n"));
    ends(&of_bek).await;
    assert_eq!(of_anna.get("/calls").await.status, StatusCode::OK);
    shows_fault("line 2").await;

    place.write("people", "");
    ends(&of_anna).await;
    shows_fault("names no one").await;
    running.stop().await;
}

/// The password of every user.
pub const PASSWORD: &str = "correct horse battery";

/// Returns the line of the password file that `page password` prints.
pub fn line_of(name: &str, role: &str) -> String {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args(["page", "password", name, role])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(PASSWORD.as_bytes()).expect("it reads");
    drop(stdin);
    let said = child.wait_with_output().expect("it ends");
    String::from_utf8(said.stdout).expect("UTF-8")
}

#[tokio::test]
async fn page_link_needs_a_daemon_with_a_page() {
    let place = Place::new();
    let crm = crm(|_| {}).await;
    place.write("calls.ami", "");
    let said = place.ask("page").await;
    assert_eq!(said.code, 69, "{said:?}");
    assert!(said.err.contains("no daemon runs"), "{said:?}");
    let running = place
        .run(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let said = place.ask("page").await;
    assert_eq!(said.code, 69, "{said:?}");
    assert!(said.err.contains("--page"), "{said:?}");
    running.stop().await;
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.insert(0, "run".to_owned());
    flags.push("--page=0.0.0.0:0".to_owned());
    let said = place.say(&flags).await;
    assert_eq!(said.code, 64, "{said:?}");
    assert!(said.err.contains("--page-cert"), "{said:?}");
}
