//! Tests `check` with sources and trunks.

use super::findings::{check, with};
use crate::commands::sidecar::{Place, crm};
use callbridge_sandbox::Server;
use callbridge_testbed::authority::{Authority, Flaw};
use callbridge_testbed::pbx::FakePbx;
use callbridge_testbed::port::free_addr;
use std::path::Path;

pub async fn stage() -> (Place, Server, Vec<String>) {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    place.write("calls.ami", "");
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    (place, crm, flags)
}

#[tokio::test]
async fn both_lines_to_a_pbx_are_tried() {
    let (place, _crm, mut flags) = stage().await;
    let (ami, amiws) = (FakePbx::ami().await, FakePbx::websocket().await);
    flags.push(format!("--source=ami://bridge@{}", ami.addr()));
    flags.push(format!("--source=ws://{}/", amiws.addr()));
    let checked = check(&place, &flags).await;
    checked.is_clean();
    checked.well("source ami://");
    checked.well("source ws://");
    assert_eq!(amiws.asked(), [] as [String; 0], "nothing is said to amiws");
}

#[tokio::test]
async fn wrong_secret_is_77() {
    let (place, _crm, flags) = stage().await;
    let pbx = FakePbx::ami().await;
    let secret = place.write("secret", "wrong");
    let source = format!(
        "ami://bridge@{}?secret-file={}",
        pbx.addr(),
        secret.display()
    );
    let flags = with(flags, "--source", &source);
    let checked = check(&place, &flags).await;
    checked.fails(77, "source ami://bridge@", "refused", "manager.conf");
    std::fs::remove_file(secret).expect("removed");
    check(&place, &flags)
        .await
        .fails(77, "source ami://bridge@", "secret-file=", "");
}

#[tokio::test]
async fn refused_connection_and_an_unknown_host_are_69() {
    let (place, _crm, flags) = stage().await;
    let addr = free_addr();
    for (source, what, fix) in [
        (
            format!("ami://bridge@{addr}"),
            "connection refused",
            "check that the server runs",
        ),
        (
            format!("ws://{addr}/"),
            "connection refused",
            "check that the server runs",
        ),
        (
            "ami://bridge@pbx.invalid".into(),
            "unknown host",
            "check the name",
        ),
        (
            "ws://pbx.invalid:8000/".into(),
            "unknown host",
            "check the name",
        ),
    ] {
        let flags = with(flags.clone(), "--source", &source);
        check(&place, &flags).await.fails(69, "source", what, fix);
    }
}

#[tokio::test]
async fn port_where_something_else_answers_is_69() {
    let (place, crm, flags) = stage().await;
    let (http, ami) = (crm.addr(), FakePbx::ami().await);
    for (source, fix) in [
        (format!("ami://bridge@{http}"), ""),
        (format!("ws://{}/", ami.addr()), ""),
        (format!("ws://{http}/"), ""),
    ] {
        let flags = with(flags.clone(), "--source", &source);
        let checked = check(&place, &flags).await;
        checked.fails(69, &format!("source {source}"), "", fix);
    }
}

#[tokio::test]
async fn source_with_untrusted_certificate_fails_with_reason() {
    let (place, _crm, flags) = stage().await;
    let authority = Authority::new();
    let ca_file = authority.ca_file().display().to_string();
    for (flaw, words) in Flaw::REFUSED {
        let port = super::service::tls_listener(&authority, flaw).await;
        let code = if flaw == Flaw::SelfSigned { 78 } else { 69 };
        for line in ["amis://bridge@localhost", "wss://localhost"] {
            let source = format!("{line}:{port}/?ca-file={ca_file}");
            let flags = with(flags.clone(), "--source", &source);
            check(&place, &flags).await.fails(code, "source", words, "");
        }
    }
}

#[tokio::test]
async fn missing_file_is_66() {
    let (place, _crm, flags) = stage().await;
    std::fs::remove_file(place.path("calls.ami")).expect("removed");
    let checked = check(&place, &flags).await;
    checked.fails(66, "source file://", "calls.ami", "");
}

#[tokio::test]
async fn lead_rule_that_can_never_give_a_lead_is_78() {
    let (place, _crm, flags) = stage().await;
    let cel = place.write("cel.csv", "").display().to_string();
    let source = format!("file://{cel}?format=cel-csv&from=start");
    let flags = with(flags, "--source", &source);
    let checked = check(&place, &flags).await;
    let what = "no source reports channel variables";
    checked.fails(78, "trunk city", what, "lead=csv:FILE");
    let flags = with(flags, "--trunk", "city=PJSIP/city,country=UZ");
    let checked = check(&place, &flags).await;
    checked.fails(78, "trunk city", "there is no lead rule", "lead=var:NAME");
}

#[tokio::test]
async fn exit_code_is_that_of_the_worst_of_several_problems() {
    let (place, _crm, mut flags) = stage().await;
    flags.push("--source=ami://bridge@pbx.invalid".to_owned());
    place.write("token", "svc_pat_unknown");
    let checked = check(&place, &flags).await;
    assert_eq!(checked.code, 77, "{checked:#?}");
    assert_eq!(
        checked.faults(),
        ["source ami://bridge@pbx.invalid", "token"]
    );
}

#[tokio::test]
async fn file_in_another_format_exits_65_and_names_the_format() {
    let (place, _crm, flags) = stage().await;
    // A list provides leads for a source of any format.
    let leads = place.write("leads.csv", "phone,leadId\n+998901110001,4001\n");
    let trunk = format!("city=PJSIP/city,country=UZ,lead=csv:{}", leads.display());
    let flags = with(flags, "--trunk", &trunk);
    let recorded = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(name);
        std::fs::read(path).expect("readable")
    };
    let cdr = place.write("cdr.csv", recorded("recordings/inbound_answered/cdr.csv"));
    let ami = place.write("ami.raw", recorded("recordings/inbound_answered/ami.raw"));
    for (path, said, looks) in [
        (&cdr, "ami", "CDR rows of cdr_csv; use format=cdr-csv"),
        (&cdr, "cel-csv", "CDR rows of cdr_csv; use format=cdr-csv"),
        (
            &ami,
            "ami-json",
            "AMI 11.0.0 of Asterisk 22; use format=ami",
        ),
        (&ami, "cdr-csv", "AMI 11.0.0 of Asterisk 22; use format=ami"),
    ] {
        for from in ["start", "end"] {
            let url = format!("file://{}?format={said}&from={from}", path.display());
            let flags = with(flags.clone(), "--source", &url);
            check(&place, &flags)
                .await
                .fails(65, "source", looks, "give the format");
        }
    }
    let url = format!("file://{}?format=ami&from=start", ami.display());
    let flags = with(flags, "--source", &url);
    let checked = check(&place, &flags).await;
    checked.is_clean();
    checked.well("source file://");
}

#[tokio::test]
async fn cel_file_without_bridge_events_is_named_with_fix() {
    let (place, _crm, flags) = stage().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/asterisk-old");
    let file = folder.join("11-shipped-cel-conf/inbound_answered/cel.csv");
    let source = format!("file://{}?format=cel-csv&from=start", file.display());
    let checked = check(&place, &with(flags, "--source", &source)).await;
    let name = format!("source file://{}", file.display());
    let told = checked.well(&name).to_string();
    assert!(told.contains("without bridge events"), "{told}");
    assert!(told.contains("BRIDGE_START,BRIDGE_END"), "{told}");
}

#[tokio::test]
async fn source_that_is_not_a_regular_file_is_named_and_not_opened() {
    let (place, _crm, flags) = stage().await;
    let fifo = place.path("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a FIFO");
    let folder = place.path("");
    for path in [&fifo, &folder] {
        let url = format!("file://{}?format=ami&from=start", path.display());
        let flags = with(flags.clone(), "--source", url.trim_end_matches('/'));
        let checked = check(&place, &flags).await;
        checked.fails(69, "source file://", "not a regular file", "give the path");
    }
}

#[tokio::test]
async fn quotes_around_a_secret_are_reported_without_it() {
    let (place, _crm, flags) = stage().await;
    let pbx = FakePbx::ami().await;
    let secret = place.write("quoted", "\u{feff}\"hunter2\"\r\n");
    let source = format!(
        "ami://bridge@{}?secret-file={}",
        pbx.addr(),
        secret.display()
    );
    let checked = check(&place, &with(flags, "--source", &source)).await;
    let said = format!("{checked:?}");
    assert!(said.contains("the secret is in quotes"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn trunk_that_is_an_employees_phone_is_78() {
    let (place, _crm, flags) = stage().await;
    let trunk = "city=PJSIP/101,country=UZ,lead=var:LEAD_ID,employees=101:501";
    let checked = check(&place, &with(flags.clone(), "--trunk", trunk)).await;
    checked.fails(
        78,
        "trunk city",
        "PJSIP/101 is an employee's phone",
        "give --trunk the line",
    );
    let trunk = "city=PJSIP/city,country=UZ,lead=var:LEAD_ID,employees=101:501";
    check(&place, &with(flags, "--trunk", trunk))
        .await
        .is_clean();
}

#[tokio::test]
async fn run_warns_about_a_trunk_that_check_fails() {
    let (place, _crm, flags) = stage().await;
    let flags = with(
        flags,
        "--trunk",
        "city=PJSIP/city,country=UZ,lead=directory",
    );
    let checked = check(&place, &flags).await;
    checked.fails(
        78,
        "trunk city",
        "nothing fills the directory",
        "--lead-directory",
    );
    let run = ["run".to_owned(), "--until-idle".to_owned()];
    let all: Vec<String> = run.into_iter().chain(flags).collect();
    let said = place.say(&all).await;
    assert_eq!(said.code, 0, "{said:?}");
    let warning = said
        .err
        .lines()
        .find(|line| line.contains("trunk cannot log calls"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in {}", said.err));
    for part in [
        "WARN",
        "trunk=",
        "city",
        "nothing fills the directory",
        "--webhook-listen",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[tokio::test]
async fn missing_notify_program_is_78() {
    let (place, _crm, mut flags) = stage().await;
    flags.push("--notify-command=/opt/no/such/notify /etc/token".to_owned());
    let checked = check(&place, &flags).await;
    checked.fails(
        78,
        "--notify-command",
        "/opt/no/such/notify does not exist",
        "correct the path",
    );
    let flags = with(flags, "--notify-command", "cat > /dev/null");
    check(&place, &flags).await.well("--notify-command");
}

#[tokio::test]
async fn freeswitch_sources_are_not_sent_to_a_manager() {
    let (place, _crm, flags) = stage().await;
    let folder = place.path("cdrs");
    std::fs::create_dir(&folder).expect("a folder");
    let source = format!(
        "file://{}/?format=freeswitch-cdr&from=start",
        folder.display()
    );
    let flags = with(flags, "--source", &source);
    let flags = with(
        flags,
        "--trunk",
        "city=gateway/city,country=UZ,lead=var:lead_id",
    );
    let checked = check(&place, &flags).await;
    let endpoints = checked.well("endpoints")["message"].to_string();
    assert!(
        endpoints.contains("esl://") && !endpoints.contains("ami://"),
        "{endpoints}"
    );
}
