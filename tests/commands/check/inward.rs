//! Tests `check` with sources and trunks.

use super::findings::{check, replace_flag};
use crate::commands::sidecar::{Place, start_crm};
use callbridge_sandbox::Server;
use callbridge_testbed::authority::{Authority, Flaw};
use callbridge_testbed::pbx::FakePbx;
use callbridge_testbed::port::free_addr;
use std::path::Path;

/// Returns a place with an empty recording as the source, its CRM, and the flags.
pub async fn stage() -> (Place, Server, Vec<String>) {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", "");
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    (place, crm, flags)
}

#[tokio::test]
async fn ami_and_websocket_sources_are_both_checked() {
    let (place, _crm, mut flags) = stage().await;
    let (ami, amiws) = (FakePbx::ami().await, FakePbx::websocket().await);
    flags.push(format!("--source=ami://bridge@{}", ami.addr()));
    flags.push(format!("--source=ws://{}/", amiws.addr()));
    let report = check(&place, &flags).await;
    report.assert_clean();
    report.ok_finding("source ami://");
    report.ok_finding("source ws://");
    assert_eq!(
        amiws.requests(),
        [] as [String; 0],
        "nothing is sent to amiws"
    );
}

#[tokio::test]
async fn wrong_or_missing_secret_exits_77() {
    let (place, _crm, flags) = stage().await;
    let pbx = FakePbx::ami().await;
    let secret = place.write("secret", "wrong");
    let source = format!(
        "ami://bridge@{}?secret-file={}",
        pbx.addr(),
        secret.display()
    );
    let flags = replace_flag(flags, "--source", &source);
    let report = check(&place, &flags).await;
    report.assert_single_failure(77, "source ami://bridge@", "refused", "manager.conf");
    std::fs::remove_file(secret).expect("removed");
    check(&place, &flags).await.assert_single_failure(
        77,
        "source ami://bridge@",
        "secret-file=",
        "",
    );
}

#[tokio::test]
async fn refused_connection_and_unknown_host_exit_69() {
    let (place, _crm, flags) = stage().await;
    let addr = free_addr();
    for (source, message, fix) in [
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
        let flags = replace_flag(flags.clone(), "--source", &source);
        check(&place, &flags)
            .await
            .assert_single_failure(69, "source", message, fix);
    }
}

#[tokio::test]
async fn port_with_another_protocol_exits_69() {
    let (place, crm, flags) = stage().await;
    let (http, ami) = (crm.addr(), FakePbx::ami().await);
    for (source, fix) in [
        (format!("ami://bridge@{http}"), ""),
        (format!("ws://{}/", ami.addr()), ""),
        (format!("ws://{http}/"), ""),
    ] {
        let flags = replace_flag(flags.clone(), "--source", &source);
        let report = check(&place, &flags).await;
        report.assert_single_failure(69, &format!("source {source}"), "", fix);
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
            let flags = replace_flag(flags.clone(), "--source", &source);
            check(&place, &flags)
                .await
                .assert_single_failure(code, "source", words, "");
        }
    }
}

#[tokio::test]
async fn missing_source_file_exits_66() {
    let (place, _crm, flags) = stage().await;
    std::fs::remove_file(place.path("calls.ami")).expect("removed");
    let report = check(&place, &flags).await;
    report.assert_single_failure(66, "source file://", "calls.ami", "");
}

#[tokio::test]
async fn unusable_or_missing_lead_rule_exits_78() {
    let (place, _crm, flags) = stage().await;
    let cel = place.write("cel.csv", "").display().to_string();
    let source = format!("file://{cel}?format=cel-csv&from=start");
    let flags = replace_flag(flags, "--source", &source);
    let report = check(&place, &flags).await;
    let message = "no source reports channel variables";
    report.assert_single_failure(78, "trunk city", message, "lead=csv:FILE");
    let flags = replace_flag(flags, "--trunk", "city=PJSIP/city,country=UZ");
    let report = check(&place, &flags).await;
    report.assert_single_failure(78, "trunk city", "no lead rule is given", "lead=var:NAME");
}

#[tokio::test]
async fn exit_code_of_several_problems_is_that_of_the_worst() {
    let (place, _crm, mut flags) = stage().await;
    flags.push("--source=ami://bridge@pbx.invalid".to_owned());
    place.write("token", "svc_pat_unknown");
    let report = check(&place, &flags).await;
    assert_eq!(report.code, 77, "{report:#?}");
    assert_eq!(
        report.failed_names(),
        ["source ami://bridge@pbx.invalid", "token"]
    );
}

/// Reads a file in the folder `tests`.
fn read_recording(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name);
    std::fs::read(path).expect("readable")
}

#[tokio::test]
async fn file_in_another_format_exits_65_and_names_the_format() {
    let (place, _crm, flags) = stage().await;
    // A list provides leads for a source of any format.
    let leads = place.write("leads.csv", "phone,leadId\n+998901110001,4001\n");
    let trunk = format!("city=PJSIP/city,country=UZ,lead=csv:{}", leads.display());
    let flags = replace_flag(flags, "--trunk", &trunk);
    let cdr = place.write(
        "cdr.csv",
        read_recording("recordings/inbound_answered/cdr.csv"),
    );
    let ami = place.write(
        "ami.raw",
        read_recording("recordings/inbound_answered/ami.raw"),
    );
    for (path, format, message) in [
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
            let url = format!("file://{}?format={format}&from={from}", path.display());
            let flags = replace_flag(flags.clone(), "--source", &url);
            check(&place, &flags).await.assert_single_failure(
                65,
                "source",
                message,
                "give the format",
            );
        }
    }
    let url = format!("file://{}?format=ami&from=start", ami.display());
    let flags = replace_flag(flags, "--source", &url);
    let report = check(&place, &flags).await;
    report.assert_clean();
    report.ok_finding("source file://");
}

#[tokio::test]
async fn cel_file_without_bridge_events_is_reported_with_fix() {
    let (place, _crm, flags) = stage().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/asterisk-old");
    let file = folder.join("11-shipped-cel-conf/inbound_answered/cel.csv");
    let source = format!("file://{}?format=cel-csv&from=start", file.display());
    let report = check(&place, &replace_flag(flags, "--source", &source)).await;
    let name = format!("source file://{}", file.display());
    let finding = report.ok_finding(&name).to_string();
    assert!(finding.contains("without bridge events"), "{finding}");
    assert!(finding.contains("BRIDGE_START,BRIDGE_END"), "{finding}");
}

#[tokio::test]
async fn fifo_or_folder_as_source_exits_69_without_blocking() {
    let (place, _crm, flags) = stage().await;
    let fifo = place.path("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a FIFO");
    let folder = place.path("");
    for path in [&fifo, &folder] {
        let url = format!("file://{}?format=ami&from=start", path.display());
        let flags = replace_flag(flags.clone(), "--source", url.trim_end_matches('/'));
        let report = check(&place, &flags).await;
        report.assert_single_failure(69, "source file://", "not a regular file", "give the path");
    }
}

#[tokio::test]
async fn quotes_around_secret_are_reported_without_the_secret() {
    let (place, _crm, flags) = stage().await;
    let pbx = FakePbx::ami().await;
    let secret = place.write("quoted", "\u{feff}\"hunter2\"\r\n");
    let source = format!(
        "ami://bridge@{}?secret-file={}",
        pbx.addr(),
        secret.display()
    );
    let report = check(&place, &replace_flag(flags, "--source", &source)).await;
    let report_text = format!("{report:?}");
    assert!(
        report_text.contains("the secret is in quotes"),
        "{report_text}"
    );
    assert!(!report_text.contains("hunter2"), "{report_text}");
}

#[tokio::test]
async fn trunk_that_is_an_employees_phone_exits_78() {
    let (place, _crm, flags) = stage().await;
    let trunk = "city=PJSIP/101,country=UZ,lead=var:LEAD_ID,employees=101:501";
    let report = check(&place, &replace_flag(flags.clone(), "--trunk", trunk)).await;
    report.assert_single_failure(
        78,
        "trunk city",
        "PJSIP/101 is an employee's phone",
        "name the line to the carrier",
    );
    let trunk = "city=PJSIP/city,country=UZ,lead=var:LEAD_ID,employees=101:501";
    check(&place, &replace_flag(flags, "--trunk", trunk))
        .await
        .assert_clean();
}

#[tokio::test]
async fn run_warns_about_a_trunk_that_check_fails() {
    let (place, _crm, flags) = stage().await;
    let flags = replace_flag(
        flags,
        "--trunk",
        "city=PJSIP/city,country=UZ,lead=directory",
    );
    let report = check(&place, &flags).await;
    report.assert_single_failure(
        78,
        "trunk city",
        "no flag fills the directory",
        "--lead-directory",
    );
    let run = ["run".to_owned(), "--until-idle".to_owned()];
    let arguments: Vec<String> = run.into_iter().chain(flags).collect();
    let output = place.run_command(&arguments).await;
    assert_eq!(output.code, 0, "{output:?}");
    let warning = output
        .err
        .lines()
        .find(|line| line.contains("trunk cannot log calls"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in {}", output.err));
    for part in [
        "WARN",
        "trunk=",
        "city",
        "no flag fills the directory",
        "--webhook-listen",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[tokio::test]
async fn missing_notify_program_exits_78() {
    let (place, _crm, mut flags) = stage().await;
    flags.push("--notify-command=/opt/no/such/notify /etc/token".to_owned());
    let report = check(&place, &flags).await;
    report.assert_single_failure(
        78,
        "--notify-command",
        "/opt/no/such/notify does not exist",
        "correct the path",
    );
    let flags = replace_flag(flags, "--notify-command", "cat > /dev/null");
    check(&place, &flags).await.ok_finding("--notify-command");
}

#[tokio::test]
async fn freeswitch_endpoint_note_suggests_esl_and_not_ami() {
    let (place, _crm, flags) = stage().await;
    let folder = place.path("cdrs");
    std::fs::create_dir(&folder).expect("a folder");
    let source = format!(
        "file://{}/?format=freeswitch-cdr&from=start",
        folder.display()
    );
    let flags = replace_flag(flags, "--source", &source);
    let flags = replace_flag(
        flags,
        "--trunk",
        "city=gateway/city,country=UZ,lead=var:lead_id",
    );
    let report = check(&place, &flags).await;
    let endpoints = report.ok_finding("endpoints")["message"].to_string();
    assert!(
        endpoints.contains("esl://") && !endpoints.contains("ami://"),
        "{endpoints}"
    );
}
