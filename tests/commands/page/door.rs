//! Tests access to the page of a running daemon.

use super::browser::{Browser, PageAnswer};
use crate::commands::sidecar::{Place, RunningCommand, poll_until, start_crm};
use callbridge_sandbox::Server;
use callbridge_testbed::port::free_addr;
use reqwest::{Method, StatusCode};
use std::process::{Command, Stdio};

/// Starts a CRM and a daemon with a page, with the flags `more`.
async fn daemon(place: &Place, more: &[&str]) -> (Server, RunningCommand) {
    let crm = start_crm(|_| {}).await;
    place.write("calls.ami", "");
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    // A fixed address, so a second daemon can listen there after the first one is killed.
    flags.push(format!("--page={}", free_addr()));
    flags.extend(more.iter().map(ToString::to_string));
    let running = place.start_daemon(&flags).await;
    (crm, running)
}

#[tokio::test]
async fn login_link_opens_one_session_and_viewing_does_not_use_it_up() {
    let place = Place::new();
    let (_crm, running) = daemon(&place, &[]).await;
    let (mut browser, path) = Browser::without_login(&place).await;
    for _ in 0..3 {
        let page = browser.page(&path).await;
        assert!(page.contains("<form"), "{page}");
    }
    let without_session = browser.get("/calls").await;
    assert_eq!(without_session.status, StatusCode::SEE_OTHER);
    let answer = browser.post(&path, &[]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    browser.cookie = answer.cookie;
    assert!(browser.cookie.is_some());
    let second_answer = browser.post(&path, &[]).await;
    assert_ne!(
        second_answer.status,
        StatusCode::SEE_OTHER,
        "a button that is replayed"
    );
    assert_eq!(second_answer.cookie, None);
    let today = browser.page("/").await;
    assert!(today.contains("No problem found"), "{today}");
    running.stop().await;
}

async fn assert_forbidden(browser: &Browser, what: &str, request: reqwest::RequestBuilder) {
    let answer = browser.send(request).await;
    assert_eq!(
        answer.status,
        StatusCode::FORBIDDEN,
        "{what}: {}",
        answer.text
    );
}

/// Promise: A forged request changes nothing on the page.
#[tokio::test]
async fn form_is_accepted_only_with_token_same_origin_and_session() {
    let place = Place::new();
    let (_crm, running) = daemon(&place, &[]).await;
    let browser = Browser::with_login(&place).await;
    let token = browser.token("/check").await;
    let true_form = [("token", token.as_str())];
    let without_origin = browser.form("/check", &true_form);
    assert_forbidden(&browser, "without any origin", without_origin).await;
    for (what, header, value) in [
        ("another origin", "Origin", "https://evil.example"),
        ("no origin", "Origin", "null"),
        ("cross-site", "Sec-Fetch-Site", "cross-site"),
    ] {
        let form = browser.form("/check", &true_form).header(header, value);
        assert_forbidden(&browser, what, form).await;
    }
    let origin = browser.origin.clone();
    let other_host = browser
        .form("/check", &true_form)
        .header("Origin", &origin)
        .header("Host", "evil.example");
    assert_forbidden(&browser, "another host", other_host).await;
    let forged = browser.form("/check", &[("token", "forged")]);
    assert_forbidden(&browser, "a forged token", forged.header("Origin", &origin)).await;
    let bare = browser.form("/check", &[]);
    assert_forbidden(&browser, "no token", bare.header("Origin", &origin)).await;
    let other_name = browser
        .request(Method::GET, "/")
        .header("Host", "evil.example");
    assert_forbidden(&browser, "a page under another name", other_name).await;

    for (header, value) in [
        ("Sec-Fetch-Site", "same-origin"),
        ("Origin", origin.as_str()),
    ] {
        let form = browser.form("/check", &true_form).header(header, value);
        let answer = browser.send(form).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{answer:?}");
        assert_eq!(answer.location.as_deref(), Some("/check"));
    }

    let out = browser.post("/logout", &true_form).await;
    assert_eq!(out.status, StatusCode::SEE_OTHER);
    let late_answer = browser.get("/calls").await;
    assert_eq!(
        late_answer.status,
        StatusCode::SEE_OTHER,
        "a cookie after logout"
    );
    let late_answer = browser.post("/check", &true_form).await;
    assert_eq!(
        late_answer.status,
        StatusCode::UNAUTHORIZED,
        "a form after logout"
    );
    running.stop().await;
}

async fn log_in(browser: &Browser, name: &str, password: &str) -> PageAnswer {
    let fields = [("name", name), ("password", password)];
    browser.post("/login", &fields).await
}

#[tokio::test]
async fn login_works_after_wrong_passwords_and_session_survives_kill() {
    let place = Place::new();
    let lines = [password_line("anna", "admin"), password_line("bek", "view")];
    let file = place.write("people", lines.concat());
    let file = format!("--page-password-file={}", file.display());
    let (crm, running) = daemon(&place, &[&file]).await;
    let (mut browser, _) = Browser::without_login(&place).await;
    let answer = log_in(&browser, "bek", PASSWORD).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    browser.cookie = answer.cookie;
    let calls = browser.page("/calls").await;
    assert!(calls.contains("bek"), "the name of the logged-in user");
    browser.page("/letters").await;

    // Five wrong passwords do not block a later login of the same user.
    let (anonymous, _) = Browser::without_login(&place).await;
    for n in 0..5 {
        let answer = log_in(&anonymous, "anna", "a wrong password").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{n}: {}", answer.text);
    }
    let answer = log_in(&anonymous, "anna", PASSWORD).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);

    let port = browser
        .origin
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    running.end(rustix::process::Signal::KILL).await;
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.extend([format!("--page=127.0.0.1:{port}"), file]);
    let running = place.start_daemon(&flags).await;
    let calls = browser.page("/calls").await;
    assert!(calls.contains("bek"), "the same session after a kill -9");
    running.stop().await;
}

async fn login_status(browser: &Browser, name: &str, password: &str) -> StatusCode {
    log_in(browser, name, password).await.status
}

#[tokio::test]
async fn wrong_password_flood_needs_under_40_mib_and_admin_logs_in() {
    let place = Place::new();
    let file = place.write("people", password_line("anna", "admin"));
    let file = format!("--page-password-file={}", file.display());
    let (_crm, running) = daemon(&place, &[&file]).await;
    let (anonymous, _) = Browser::without_login(&place).await;
    let kib_before = running.peak_kib();
    let names: Vec<String> = (0..64).map(|n| format!("nobody{n}")).collect();
    let wrong = names
        .iter()
        .map(|name| login_status(&anonymous, name, "a wrong password"));
    // A login that the flood blocks is tried again, as a person would.
    let right = async {
        loop {
            let status = login_status(&anonymous, "anna", PASSWORD).await;
            if status != StatusCode::TOO_MANY_REQUESTS {
                return status;
            }
        }
    };
    let wrong_logins = futures_util::future::join_all(wrong);
    let (wrong, right) = tokio::join!(wrong_logins, right);
    let expected = [StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];
    assert!(
        wrong.iter().all(|status| expected.contains(status)),
        "{wrong:?}"
    );
    assert_eq!(right, StatusCode::SEE_OTHER, "the administrator logs in");
    // One password hash takes 19 MiB.
    let more = running.peak_kib() - kib_before;
    assert!(
        more < 40 * 1024,
        "{more} KiB more than the {kib_before} KiB before"
    );
    running.stop().await;
}

async fn logged_in_browser(place: &Place, name: &str) -> Browser {
    let (mut browser, _) = Browser::without_login(place).await;
    let answer = log_in(&browser, name, PASSWORD).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{name}");
    browser.cookie = answer.cookie;
    browser
}

async fn wait_for_logout(browser: &Browser) {
    poll_until("the end of the session", async || {
        let answer = browser.get("/calls").await;
        (answer.status != StatusCode::OK).then_some(())
    })
    .await;
}

/// Waits until the status shows a problem of the password file with `part` in its reason.
async fn wait_for_file_problem(place: &Place, part: &str) {
    poll_until(part, async || {
        let status = place.status().await?;
        let file = &status["secretFiles"][0];
        assert_eq!(file["flag"], "--page-password-file");
        file["reason"].as_str()?.contains(part).then_some(())
    })
    .await;
}

#[tokio::test]
async fn user_missing_in_broken_or_empty_file_is_logged_out() {
    let place = Place::new();
    let anna = password_line("anna", "admin");
    let bek = password_line("bek", "view");
    let file = place.write("people", format!("{anna}{bek}"));
    let flag = format!("--page-password-file={}", file.display());
    let (_crm, running) = daemon(&place, &[&flag]).await;
    let anna_browser = logged_in_browser(&place, "anna").await;
    let bek_browser = logged_in_browser(&place, "bek").await;

    place.write("people", format!("{anna}a broken line\n"));
    wait_for_logout(&bek_browser).await;
    assert_eq!(anna_browser.get("/calls").await.status, StatusCode::OK);
    wait_for_file_problem(&place, "line 2").await;

    place.write("people", "");
    wait_for_logout(&anna_browser).await;
    wait_for_file_problem(&place, "names no one").await;
    running.stop().await;
}

/// The password of every user.
pub const PASSWORD: &str = "correct horse battery";

/// Returns the line of the password file that `page password` prints.
pub fn password_line(name: &str, role: &str) -> String {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args(["page", "password", name, role])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(PASSWORD.as_bytes())
        .expect("the program reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test]
async fn page_link_needs_a_daemon_with_a_page() {
    let place = Place::new();
    let crm = start_crm(|_| {}).await;
    place.write("calls.ami", "");
    let output = place.run_on_state("page").await;
    assert_eq!(output.code, 69, "{output:?}");
    assert!(output.err.contains("no daemon runs"), "{output:?}");
    let running = place
        .start_daemon(&place.flags_of_file(&crm.url(), "calls.ami"))
        .await;
    let output = place.run_on_state("page").await;
    assert_eq!(output.code, 69, "{output:?}");
    assert!(output.err.contains("--page"), "{output:?}");
    running.stop().await;
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.insert(0, "run".to_owned());
    flags.push("--page=0.0.0.0:0".to_owned());
    let output = place.run_command(&flags).await;
    assert_eq!(output.code, 64, "{output:?}");
    assert!(output.err.contains("--page-cert"), "{output:?}");
}
