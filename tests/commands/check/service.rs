//! Tests what `check` reports about the CRM: its address, the token, the grants, the company, and
//! the slots that `check` uses.

use super::findings::{check, check_in_both_forms, replace_flag};
use crate::commands::sidecar::{Place, TOKEN, grant_leads, start_crm};
use callbridge_sandbox::token::{Grant, TokenKind};
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{Action, Endpoint, Rule, Server};
use callbridge_testbed::authority::{Authority, Flaw};
use callbridge_testbed::calls::Call;
use callbridge_testbed::port::free_addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Returns a place with a call to read, its CRM, and the flags.
async fn stage() -> (Place, Server, Vec<String>) {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", Call::new(1, 4001).ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    (place, crm, flags)
}

/// Returns how many `token/info` requests were answered with this status.
fn count_token_requests(crm: &Server, status: u16) -> u64 {
    crm.admin(|core, _| core.counts().get(&(Endpoint::TokenInfo, status)).copied())
        .unwrap_or(0)
}

#[tokio::test]
async fn clean_setup_exits_0_and_shows_company_and_grant() {
    let (place, crm, flags) = stage().await;
    let report = check_in_both_forms(&place, &flags).await;
    report.assert_clean();
    for name in [
        "clock",
        "state",
        "trunk city",
        "source file://",
        "crm",
        "token",
    ] {
        report.ok_finding(name);
    }
    assert!(
        report.ok_finding("company")["message"]
            .as_str()
            .expect("text")
            .contains("Sandbox company")
    );
    assert_eq!(
        report.ok_finding("grant")["message"],
        "PERMISSION_OPEN_API_CALL:SAVE"
    );
    assert_eq!(
        (count_token_requests(&crm, 200), crm.journal().len()),
        (2, 0),
        "one request per check"
    );
}

#[tokio::test]
async fn token_without_save_grant_exits_77() {
    let (place, crm, flags) = stage().await;
    crm.admin(|core, now| core.set_grants(now, Vec::new()));
    let report = check(&place, &flags).await;
    report.assert_single_failure(
        77,
        "grant",
        "PERMISSION_OPEN_API_CALL:SAVE is missing",
        "grant",
    );
    report.ok_finding("token");
}

#[tokio::test]
async fn lead_directory_without_its_grant_exits_77() {
    let (place, crm, mut flags) = stage().await;
    flags.push("--lead-directory".to_owned());
    let report = check(&place, &flags).await;
    let grant = "PERMISSION_OPEN_API_LEAD:READ";
    report.assert_single_failure(77, "grant for leads", &format!("{grant} is missing"), grant);
    grant_leads(&crm);
    check(&place, &flags).await.ok_finding("grant for leads");
}

#[tokio::test]
async fn proxy_refusal_is_reported_as_proxy_or_firewall() {
    let (place, _crm, flags) = stage().await;
    for status in [
        "403 Forbidden",
        "407 Proxy Authentication Required",
        "429 Too Many Requests",
    ] {
        let proxy = web_server(status).await;
        let flags = replace_flag(
            flags.clone(),
            "--crm-url",
            &format!("http://127.0.0.1:{proxy}"),
        );
        let report = check(&place, &flags).await;
        let message = format!("answered {}", &status[..3]);
        report.assert_single_failure(69, "crm", &message, "--crm-proxy");
        let report_text = format!("{report:?}");
        assert!(
            report_text.contains("a proxy or firewall") && !report_text.contains("support"),
            "{report_text}"
        );
    }
}

/// Starts a server that answers every request with this status and a page, as a proxy does.
async fn web_server(status: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\
                 Connection: close\r\n\r\n<html></html>"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn refused_token_exits_77() {
    let (place, crm, flags) = stage().await;
    crm.admin(|core, _| core.revoke(TOKEN));
    check(&place, &flags)
        .await
        .assert_single_failure(77, "token", "401", "issue a new token");
    crm.admin(|core, now| core.issue_pat(now, "svc_pat_new", None));
    crm.admin(|core, _| {
        let rule = Rule::always(Endpoint::TokenInfo, Action::Status(406));
        core.set_faults(vec![rule]);
    });
    place.write("token", "svc_pat_new");
    check(&place, &flags)
        .await
        .assert_single_failure(77, "token", "406", "issue a new token");
}

#[tokio::test]
async fn missing_token_exits_77() {
    let (place, _crm, flags) = stage().await;
    std::fs::remove_file(place.path("token")).expect("removed");
    check(&place, &flags)
        .await
        .assert_single_failure(77, "token", "token", "into its file");
    place.write("token", "\n");
    check(&place, &flags)
        .await
        .assert_single_failure(77, "token", "empty", "into its file");
}

#[tokio::test]
async fn other_company_token_for_bound_state_exits_77() {
    let (place, crm, flags) = stage().await;
    place.run_until_idle(&flags).await;
    crm.admin(|core, now| core.issue(now, "svc_pat_other", TokenKind::Pat, 2, None));
    place.write("token", "svc_pat_other");
    let report = check(&place, &flags).await;
    report.assert_single_failure(
        77,
        "company",
        "Company 2",
        "give the token of the bound company",
    );
    let daemon = place.start_daemon(&flags).await;
    place.run_on_state("status").await.expect_success();
    let reason = crate::commands::sidecar::poll_until("a pause", async || {
        let status = place.status().await?;
        status["pause"]["reason"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(reason, "wrong_company");
    let report = check(&place, &flags).await;
    report.assert_single_failure(
        77,
        "crm",
        "the daemon is paused: wrong company",
        "token, it is read again automatically",
    );
    daemon.stop().await;
}

#[tokio::test]
async fn check_with_running_daemon_sends_no_crm_request() {
    let (place, crm, flags) = stage().await;
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/journaled", 1).await;
    let requests_before = count_token_requests(&crm, 200);
    let report = check(&place, &flags).await;
    report.assert_clean();
    let state = report.ok_finding("state")["message"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(state.contains("its daemon is running"), "{state}");
    assert_eq!(
        count_token_requests(&crm, 200),
        requests_before,
        "check sends no request"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn check_requests_use_slots_that_run_counts() {
    let narrow = Rate {
        requests: 2,
        window: Duration::from_secs(600),
    };
    let crm = start_crm(|config| config.settings.rate = narrow).await;
    let place = Place::new();
    place.write("calls.ami", Call::new(1, 4001).ami());
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let flags = replace_flag(flags, "--rate", "2/600s");
    super::place::create_state(&place).await;
    // The check as text and the check as JSON use both slots.
    check_in_both_forms(&place, &flags).await.assert_clean();
    let third = check(&place, &flags).await;
    third.assert_single_failure(
        69,
        "crm",
        "the limit of --rate is used up for now",
        "try again in",
    );
    assert_eq!(count_token_requests(&crm, 200), 2);
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/ready", 1).await;
    assert_eq!(place.number("/budget/used").await, Some(2));
    daemon.stop().await;
    assert_eq!(crm.violations(), []);
}

/// Promise: `check` followed by `run` stays within the limit.
#[tokio::test]
async fn check_then_run_never_exceeds_the_budget() {
    // Ten times the real rate of the CRM.
    let rate = Rate {
        requests: 60,
        window: Duration::from_secs(6),
    };
    let crm = start_crm(|config| config.settings.rate = rate).await;
    // `run` cannot know which requests of `check` were just refused, so nothing is refused here.
    let mut grants = Vec::new();
    for right in ["CALL:SAVE", "CALL:READ", "LEAD:READ", "LEAD:SAVE"] {
        let grant = Grant::parse(&format!("PERMISSION_OPEN_API_{right}"));
        grants.push(grant.expect("a grant"));
    }
    crm.admin(|core, now| core.set_grants(now, grants));
    let place = Place::new();
    let calls: String = (1..=150).map(|n| Call::new(n, 4001).ami()).collect();
    place.write("calls.ami", calls);
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let flags = replace_flag(flags, "--rate", "60/6s");
    let flags = replace_flag(flags, "--lead-field", "last_call=11");
    let mut words = vec!["check".to_owned()];
    words.extend(flags.clone());
    let output = place.run_command(&words).await;
    let requests = crm.admin(|core, _| core.counts().values().sum::<u64>());
    assert!((1..=3).contains(&requests), "{requests}: {output:?}");
    assert!(!place.path("state").exists(), "nothing is stored");
    // All 150 calls are ready at once.
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/journaled", 150).await;
    daemon.stop().await;
    let fullest = crm.admin(|core, _| core.fullest());
    assert!(fullest.in_a_window <= 60, "{fullest:?}");
    assert_eq!(crm.violations(), []);
}

#[tokio::test]
async fn new_state_starts_with_three_slots_used() {
    let (place, crm, flags) = stage().await;
    // No call is sent in this test, because a new window begins only after ten minutes.
    let flags = replace_flag(flags, "--rate", "3/600s");
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/ready", 1).await;
    assert_eq!(place.number("/budget/used").await, Some(3));
    daemon.stop().await;
    let requests = crm.admin(|core, _| core.counts().values().sum::<u64>());
    assert_eq!(requests, 0);
    // `check` stores its slots in this state, and knows the slots that are in use.
    check(&place, &flags).await.assert_single_failure(
        69,
        "crm",
        "the limit of --rate is used up for now",
        "try again in",
    );
}

#[tokio::test]
async fn unreachable_crm_exits_69() {
    let (place, _crm, flags) = stage().await;
    let addr = free_addr();
    let flags = replace_flag(flags, "--crm-url", &format!("http://{addr}"));
    check(&place, &flags)
        .await
        .assert_single_failure(69, "crm", "refused", "check the address");
    let flags = replace_flag(flags, "--crm-url", "https://crm.invalid");
    let flags = replace_flag(flags, "--rate", "60/60s");
    check(&place, &flags).await.assert_single_failure(
        69,
        "crm",
        "crm.invalid",
        "check the address",
    );
}

#[tokio::test]
async fn crm_error_exits_69_with_its_message() {
    let (place, crm, flags) = stage().await;
    for (action, words) in [
        (Action::Status(503), "503"),
        (Action::Status(429), "429"),
        (Action::Gateway(502), "502"),
        (Action::Broken, "does not work"),
        (Action::AcceptFalse, "accept: false"),
        (Action::Status(403), "403"),
    ] {
        let rule = Rule::always(Endpoint::TokenInfo, action);
        crm.admin(|core, _| core.set_faults(vec![rule]));
        let report = check(&place, &flags).await;
        let name = if words == "429" { "token" } else { "crm" };
        report.assert_single_failure(69, name, words, "");
        let report_text = format!("{report:?}");
        assert!(
            !report_text.contains("ServerError {"),
            "in words, not as code: {report_text}"
        );
    }
}

#[tokio::test]
async fn crm_url_that_is_not_the_open_api_exits_78() {
    let (place, _crm, flags) = stage().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0_u8; 4096];
            let _ = stream.read(&mut request).await;
            let page = "HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\n\
                        content-length: 2\r\nconnection: close\r\n\r\nno";
            let _ = stream.write_all(page.as_bytes()).await;
        }
    });
    let flags = replace_flag(flags, "--crm-url", &format!("http://{addr}"));
    let report = check(&place, &flags).await;
    report.assert_single_failure(78, "crm", "is not the Open API", "--crm-url");
}

fn fix_of(flaw: Flaw) -> &'static str {
    match flaw {
        Flaw::WrongName => "use that name in --crm-url",
        Flaw::Expired => "renew it",
        Flaw::SelfSigned | Flaw::None => "--crm-ca-file",
    }
}

#[tokio::test]
async fn untrusted_crm_certificate_exits_69() {
    let (place, _crm, flags) = stage().await;
    let authority = Authority::new();
    for (flaw, words) in Flaw::REFUSED {
        let port = tls_listener(&authority, flaw).await;
        let url = format!("https://localhost:{port}");
        let flags = replace_flag(flags.clone(), "--crm-url", &url);
        let ca_file = authority.ca_file().display().to_string();
        let flags = replace_flag(flags, "--crm-ca-file", &ca_file);
        let report = check(&place, &flags).await;
        report.assert_single_failure(69, "crm", words, fix_of(flaw));
    }
}

#[tokio::test]
async fn failing_proxy_or_ca_file_is_named_in_the_error() {
    let (place, _crm, flags) = stage().await;
    let proxy = format!("http://{}", free_addr());
    let authority = Authority::new();
    let ca_file = authority.ca_file().display().to_string();
    let proxy_flags = replace_flag(flags.clone(), "--crm-proxy", &proxy);
    let refused = check(&place, &proxy_flags).await;
    refused.assert_refused("--crm-proxy: would receive the token unencrypted");
    let proxy_flags = replace_flag(proxy_flags, "--crm-url", "https://crm.example.uz");
    let proxy_flags = replace_flag(proxy_flags, "--crm-ca-file", &ca_file);
    let proxy_flags = replace_flag(proxy_flags, "--rate", "60/60s");
    let report = check(&place, &proxy_flags).await;
    report.assert_single_failure(69, "crm", &format!("by way of {proxy}"), "proxy");
    let flags = replace_flag(flags, "--crm-url", "https://localhost:1");
    let flags = replace_flag(flags, "--crm-ca-file", "/nowhere/ca.pem");
    let report = check(&place, &flags).await;
    report.assert_single_failure(78, "crm", "/nowhere/ca.pem", "give --crm-ca-file");
}

/// Starts a listener that completes a TLS handshake with this certificate and sends nothing more.
pub async fn tls_listener(authority: &Authority, flaw: Flaw) -> u16 {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let identity = authority.identity(flaw);
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.expect("a certificate")], key)
        .expect("a server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client is expected to refuse the certificate.
            let _ = acceptor.accept(stream).await;
        }
    });
    port
}
