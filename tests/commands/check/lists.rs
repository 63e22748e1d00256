//! Tests `check` with lists of leads and employees.

use super::findings::{CheckReport, check, check_in_both_forms, replace_flag};
use super::inward::stage;
use crate::commands::sidecar::Place;

/// Returns flags whose trunk finds leads in the file `leads.csv` of this place.
fn use_lead_list(flags: Vec<String>, place: &Place) -> Vec<String> {
    let leads = place.path("leads.csv").display().to_string();
    let trunk = format!("city=PJSIP/city,country=UZ,lead=csv:{leads}");
    replace_flag(flags, "--trunk", &trunk)
}

/// Runs `check` with a list of leads that has this text.
async fn check_lead_list(text: &str) -> CheckReport {
    let (place, _crm, flags) = stage().await;
    place.write("leads.csv", text);
    check(&place, &use_lead_list(flags, &place)).await
}

#[tokio::test]
async fn missing_list_exits_66_and_list_without_columns_exits_65() {
    let (place, _crm, flags) = stage().await;
    let flags = use_lead_list(flags, &place);
    let report = check_in_both_forms(&place, &flags).await;
    report.assert_single_failure(66, "list", "leads.csv", "put the file there");
    place.write("leads.csv", "number,lead\n+998901110001,4001\n");
    let report = check_in_both_forms(&place, &flags).await;
    report.assert_single_failure(
        65,
        "list",
        "must name the columns `phone,leadId`",
        "correct the file",
    );
    place.write("leads.csv", "phone,leadId\n+998901110001,4001\n");
    let report = check_in_both_forms(&place, &flags).await;
    report.assert_clean();
    assert_eq!(report.ok_finding("list")["message"], "leads: 1");
}

#[tokio::test]
async fn bad_list_rows_exit_65_and_are_listed_with_line_and_reason() {
    let text = "phone,leadId\n+998901110001,4001\n+998901110002,none\n101,4003\n\
        \"+998901110004, +998901110005\",4004\n+998901110001,4009\n";
    let report = check_lead_list(text).await;
    assert_eq!(report.code, 65, "{report:#?}");
    assert_eq!(report.ok_finding("list")["message"], "leads: 2");
    let failed_names = report.failed_names();
    let lines: Vec<&str> = failed_names
        .iter()
        .map(|name| name.rsplit_once(' ').expect("a line").1)
        .collect();
    assert_eq!(lines, ["3", "4", "5", "6"]);
    let report_text = format!("{report:?}");
    for words in [
        "`none` is not a lead id",
        "`101` is not a valid telephone number (UZ",
        "holds several numbers: give each its own row",
        "has two leads, 4001 (line 2) and 4009",
    ] {
        assert!(
            report_text.contains(words),
            "{words} is missing in {report_text}"
        );
    }
}

#[tokio::test]
async fn trunk_without_employees_is_noted_and_passes() {
    let (place, _crm, flags) = stage().await;
    let report = check(&place, &flags).await;
    report.assert_clean();
    let employees = report.ok_finding("employees");
    let message = "--employees is missing: no call over city will have an employee";
    assert_eq!(employees["message"], message);
    let fix = employees["fix"].as_str().expect("words");
    assert!(fix.contains("--employees 101:501;102:502"), "{fix}");
    let flags = replace_flag(flags, "--employees", "101:501");
    let report_text = format!("{:?}", check(&place, &flags).await);
    assert!(!report_text.contains("is missing"), "{report_text}");
}

#[tokio::test]
async fn list_with_semicolons_repeats_or_no_rows_passes_with_note() {
    let report = check_lead_list("phone;leadId\n+998901110001;4001\n998901110001;4001\n").await;
    report.assert_clean();
    let message = "leads: 1 (separated by `;`, 1 given twice)";
    assert_eq!(report.ok_finding("list")["message"], message);
    let report = check_lead_list("phone,leadId\n").await;
    report.assert_clean();
    let list = report.ok_finding("list");
    assert_eq!(list["message"], "leads: 0");
    let fix = list["fix"].as_str().expect("words");
    assert!(fix.contains("no row"), "{fix}");
}

#[tokio::test]
async fn bad_employee_rows_exit_65_and_are_listed() {
    let (place, _crm, mut flags) = stage().await;
    let text = "extension;employeeId\n101;501\n102;x\nPJSIP/103;503\n";
    let employees = place.write("staff.csv", text);
    flags.push(format!("--employees={}", employees.display()));
    let report = check(&place, &flags).await;
    assert_eq!(report.code, 65, "{report:#?}");
    assert_eq!(report.failed_names().len(), 2, "{report:#?}");
    let message = "employees: 1 (separated by `;`)";
    assert_eq!(report.ok_finding("list")["message"], message);
    place.write("staff.csv", "extension,employeeId\n101,x\n");
    let report = check(&place, &flags).await;
    let names = report.failed_names();
    assert!(
        names.len() == 2 && names[1].ends_with("line 2"),
        "{names:?}"
    );
}

#[tokio::test]
async fn employee_at_mistyped_extension_exits_65_with_suggestion() {
    let (place, _crm, mut flags) = stage().await;
    flags.push("--employees=1O1:501;10B:502".to_owned());
    let report = check(&place, &flags).await;
    report.assert_single_failure(
        65,
        "employee at 1O1",
        "letters among its digits",
        "did you mean 101?",
    );
}
