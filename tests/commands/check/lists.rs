//! Tests `check` with lists of leads and employees.

use super::findings::{Checked, check, check_in_both_forms, with};
use super::inward::stage;
use crate::commands::sidecar::Place;

/// Returns flags whose trunk finds leads in this list.
fn listed(flags: Vec<String>, place: &Place) -> Vec<String> {
    let leads = place.path("leads.csv").display().to_string();
    let trunk = format!("city=PJSIP/city,country=UZ,lead=csv:{leads}");
    with(flags, "--trunk", &trunk)
}

async fn of_leads(text: &str) -> Checked {
    let (place, _crm, flags) = stage().await;
    place.write("leads.csv", text);
    check(&place, &listed(flags, &place)).await
}

#[tokio::test]
async fn missing_list_is_66_and_one_without_its_columns_65() {
    let (place, _crm, flags) = stage().await;
    let flags = listed(flags, &place);
    let checked = check_in_both_forms(&place, &flags).await;
    checked.fails(66, "list", "leads.csv", "put the file there");
    place.write("leads.csv", "number,lead\n+998901110001,4001\n");
    let checked = check_in_both_forms(&place, &flags).await;
    checked.fails(
        65,
        "list",
        "must name the columns `phone,leadId`",
        "correct the file",
    );
    place.write("leads.csv", "phone,leadId\n+998901110001,4001\n");
    let checked = check_in_both_forms(&place, &flags).await;
    checked.is_clean();
    assert_eq!(checked.well("list")["message"], "leads: 1");
}

#[tokio::test]
async fn bad_list_rows_are_65_and_named_by_line_and_reason() {
    let text = "phone,leadId\n+998901110001,4001\n+998901110002,none\n101,4003\n\
        \"+998901110004, +998901110005\",4004\n+998901110001,4009\n";
    let checked = of_leads(text).await;
    assert_eq!(checked.code, 65, "{checked:#?}");
    assert_eq!(checked.well("list")["message"], "leads: 2");
    let faults = checked.faults();
    let lines: Vec<&str> = faults
        .iter()
        .map(|name| name.rsplit_once(' ').expect("a line").1)
        .collect();
    assert_eq!(lines, ["3", "4", "5", "6"]);
    let said = format!("{checked:?}");
    for words in [
        "`none` is not a lead id",
        "`101` is not a valid telephone number (UZ",
        "holds several numbers: give each its own row",
        "has two leads, 4001 (line 2) and 4009",
    ] {
        assert!(said.contains(words), "{words} is missing in {said}");
    }
}

#[tokio::test]
async fn trunk_without_employees_is_noted_and_passes() {
    let (place, _crm, flags) = stage().await;
    let checked = check(&place, &flags).await;
    checked.is_clean();
    let employees = checked.well("employees");
    let what = "--employees is missing: no call over city will have an employee";
    assert_eq!(employees["message"], what);
    let fix = employees["fix"].as_str().expect("words");
    assert!(fix.contains("--employees 101:501;102:502"), "{fix}");
    let listed = with(flags, "--employees", "101:501");
    let said = format!("{:?}", check(&place, &listed).await);
    assert!(!said.contains("is missing"), "{said}");
}

#[tokio::test]
async fn list_with_semicolons_repeats_or_no_rows_passes_with_note() {
    let checked = of_leads("phone;leadId\n+998901110001;4001\n998901110001;4001\n").await;
    checked.is_clean();
    let what = "leads: 1 (separated by `;`, 1 given twice)";
    assert_eq!(checked.well("list")["message"], what);
    let checked = of_leads("phone,leadId\n").await;
    checked.is_clean();
    let list = checked.well("list");
    assert_eq!(list["message"], "leads: 0");
    let fix = list["fix"].as_str().expect("words");
    assert!(fix.contains("no row"), "{fix}");
}

#[tokio::test]
async fn bad_rows_of_employees_are_named_like_those_of_leads() {
    let (place, _crm, mut flags) = stage().await;
    let text = "extension;employeeId\n101;501\n102;x\nPJSIP/103;503\n";
    let employees = place.write("staff.csv", text);
    flags.push(format!("--employees={}", employees.display()));
    let checked = check(&place, &flags).await;
    assert_eq!(checked.code, 65, "{checked:#?}");
    assert_eq!(checked.faults().len(), 2, "{checked:#?}");
    let what = "employees: 1 (separated by `;`)";
    assert_eq!(checked.well("list")["message"], what);
    place.write("staff.csv", "extension,employeeId\n101,x\n");
    let checked = check(&place, &flags).await;
    let names = checked.faults();
    assert!(
        names.len() == 2 && names[1].ends_with("line 2"),
        "{names:?}"
    );
}

#[tokio::test]
async fn employee_at_mistyped_extension_is_65_with_suggestion() {
    let (place, _crm, mut flags) = stage().await;
    flags.push("--employees=1O1:501;10B:502".to_owned());
    let checked = check(&place, &flags).await;
    checked.fails(
        65,
        "employee at 1O1",
        "letters among its digits",
        "did you mean 101?",
    );
}
