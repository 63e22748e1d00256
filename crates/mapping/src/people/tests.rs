use super::files::{Error, ListChange, News, Watched};
use super::*;
use crate::trunk::{Trunk, Trunks};
use callbridge_call::EventTime;
use callbridge_testkit::sample::call;
use std::fs;
use std::time::Duration;

fn trunk(flag: &str) -> Trunk {
    let defaults = Trunk {
        country: Country::parse("UZ"),
        ..Trunk::default()
    };
    crate::trunk::parse(flag, &defaults).expect("a good flag")
}

fn trunks(flag: &str) -> Trunks {
    Trunks::new(vec![trunk(flag)]).expect("one trunk")
}

/// Creates a change with `rows` valid rows, in which `number` is new or has a different lead.
fn leads(rows: usize, number: &str) -> ListChange {
    ListChange {
        about: rows::ListReport {
            rows,
            ..rows::ListReport::default()
        },
        phones: vec![phone(number)],
    }
}

fn load(trunks: &Trunks) -> Watched {
    Watched::load(trunks.iter(), later_time()).expect("good").0
}

/// Returns the effects of a changed file, which is read on the second check that finds it
/// unchanged.
fn reload(watched: &mut Watched) -> Vec<News> {
    let first = watched.reload(later_time());
    assert!(first.is_empty(), "it may still be written: {first:?}");
    watched.reload(later_time())
}

fn phone(text: &str) -> Phone {
    Phone::from_e164(text).expect("a phone")
}

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("positive")
}

/// Returns a time long after any of the tests' files were written.
fn later_time() -> EventTime {
    callbridge_model::clock::now()
        .wall
        .plus(Duration::from_secs(3600))
}

/// A list that each test rewrites.
struct File {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Self {
            path: folder.path().join("list.csv"),
            _folder: folder,
        };
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        fs::write(&self.path, text).expect("written");
    }
}

fn only_change(mut news: Vec<News>) -> Result<ListChange, Error> {
    assert_eq!(news.len(), 1, "{news:?}");
    news.remove(0).result
}

fn one_lead(id: i64, reason: &str) -> LeadAnswer {
    LeadAnswer::One(lead(id), reason.to_owned())
}

#[test]
fn lead_rules_are_applied_in_order_until_one_answers() {
    let mut call = call();
    let trunk = trunk(r"city=PJSIP/city,lead=var:CRM;userfield:lead=(\d+);var:LEAD_ID");
    let people = People::default();
    assert_eq!(
        people.lead_of(&call, None, &trunk),
        one_lead(4001, "variable LEAD_ID")
    );
    call.userfields = vec!["note".to_owned(), "a;lead=17;b".to_owned()];
    assert_eq!(
        people.lead_of(&call, None, &trunk),
        one_lead(17, r"user field by `lead=(\d+)`")
    );
    call.userfields.push("lead=18".to_owned());
    let LeadAnswer::Two(a, b, _) = people.lead_of(&call, None, &trunk) else {
        panic!("two")
    };
    assert_eq!(
        (a, b),
        (lead(17), lead(18)),
        "two leads are not passed over for a third"
    );
}

/// Returns the lead of the sample call if its customer has this number.
fn lead_of_number(watched: &Watched, trunk: &Trunk, number: Option<&str>) -> LeadAnswer {
    let number = number.map(phone);
    watched.people().lead_of(&call(), number.as_ref(), trunk)
}

#[test]
fn listed_number_has_its_lead_and_hidden_number_has_none() {
    let file = File::new("phone,leadId\n901110001,1\n901110002,2\n901110002,3\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let watched = load(&trunks);
    let trunk = trunks.iter().next().expect("one");
    let listed_answer = lead_of_number(&watched, trunk, Some("+998901110001"));
    assert!(matches!(listed_answer, LeadAnswer::One(id, _) if id == lead(1)));
    let ambiguous_answer = lead_of_number(&watched, trunk, Some("+998901110002"));
    assert!(matches!(ambiguous_answer, LeadAnswer::Two(..)));
    let unlisted_answer = lead_of_number(&watched, trunk, Some("+998901110003"));
    assert!(matches!(unlisted_answer, LeadAnswer::None(_)));
    let hidden_answer = lead_of_number(&watched, trunk, None);
    assert!(matches!(hidden_answer, LeadAnswer::None(why) if why.starts_with("no number")));
    let alone = watched
        .people()
        .lead_of_phone(&phone("+998901110001"), trunk);
    assert!(matches!(alone, LeadAnswer::One(id, _) if id == lead(1)));
}

#[test]
fn changed_list_is_read_again_and_reports_changed_phones() {
    let file = File::new("phone,leadId\n901110001,1\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let mut watched = load(&trunks);
    assert!(watched.reload(later_time()).is_empty(), "nothing changed");
    file.write("phone,leadId\n901110001,1\n901110002,2\n");
    let change = only_change(reload(&mut watched)).expect("good");
    assert_eq!(change, leads(2, "+998901110002"));
    assert!(watched.reload(later_time()).is_empty());
}

#[test]
fn changed_list_uses_good_rows_and_reports_bad_rows_once() {
    let file = File::new("phone,leadId\n901110001,1\n901110002,2\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let mut watched = load(&trunks);
    file.write("phone,leadId\n901110001,9\n901110002,x\n901110003,3\n");
    let change = only_change(reload(&mut watched)).expect("good rows");
    assert_eq!((change.about.rows, change.about.bad), (2, 1));
    let changed = ["+998901110001", "+998901110002", "+998901110003"].map(phone);
    assert_eq!(change.phones, changed);
    let message = change.about.named[0].to_string();
    assert_eq!(message, "line 3: `x` is not a lead id: use digits only");
    assert!(
        watched.reload(later_time()).is_empty(),
        "a change is reported once"
    );
    let trunk = trunks.iter().next().expect("one");
    let first_answer = lead_of_number(&watched, trunk, Some("+998901110001"));
    assert!(matches!(first_answer, LeadAnswer::One(id, _) if id == lead(9)));
    let second_answer = lead_of_number(&watched, trunk, Some("+998901110002"));
    assert!(matches!(second_answer, LeadAnswer::None(_)));
}

/// Asserts that the number from the first list still has lead 1.
fn assert_old_list(watched: &Watched, trunk: &Trunk) {
    let answer = lead_of_number(watched, trunk, Some("+998901110001"));
    assert!(matches!(answer, LeadAnswer::One(id, _) if id == lead(1)));
}

#[test]
fn unusable_list_file_does_not_replace_the_old_list() {
    let file = File::new("phone,leadId\n901110001,1\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let mut watched = load(&trunks);
    let trunk = trunks.iter().next().expect("one");
    file.write("phone,leadId\n901110001,x\n101,2\n");
    let error = only_change(reload(&mut watched)).expect_err("no good row");
    assert_eq!(
        error.to_string(),
        format!(
            "{}: no row of it can be used; line 2: `x` is not a lead id: use digits only",
            file.path.display()
        )
    );
    assert!(
        watched.reload(later_time()).is_empty(),
        "a change is reported once"
    );
    assert_old_list(&watched, trunk);
    file.write("");
    let error = only_change(reload(&mut watched)).expect_err("no header");
    assert!(matches!(error, Error::Header(..)), "{error}");
    assert_old_list(&watched, trunk);
    fs::remove_file(&file.path).expect("removed");
    let missing = only_change(watched.reload(later_time()));
    assert!(matches!(missing, Err(Error::Missing(_))));
    assert!(
        watched.reload(later_time()).is_empty(),
        "a change is reported once"
    );
    assert_old_list(&watched, trunk);
    file.write("phone,leadId\n901110001,9\n");
    let change = only_change(reload(&mut watched)).expect("good");
    assert_eq!(change, leads(1, "+998901110001"));
    file.write("phone,leadId\n");
    let change = only_change(reload(&mut watched)).expect("an empty list is a list");
    assert!(change.about.is_empty() && change.phones == [phone("+998901110001")]);
}

#[test]
fn list_being_written_is_read_once_stable_or_after_limit() {
    let file = File::new("phone,leadId\n901110001,4001\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let mut watched = load(&trunks);
    // The file ends within its last row, so its lead would be read as 40 instead of 4001.
    file.write("phone,leadId\n901110001,40");
    assert!(watched.reload(later_time()).is_empty());
    file.write("phone,leadId\n901110001,4001\n901110002,2\n");
    let change = only_change(reload(&mut watched)).expect("good");
    assert_eq!(change, leads(2, "+998901110002"));
    let rows_when_read = (2..100).find(|looks| {
        let rows: String = (0..*looks)
            .map(|row| format!("90111{row:04},7\n"))
            .collect();
        file.write(&format!("phone,leadId\n{rows}"));
        !watched.reload(later_time()).is_empty()
    });
    assert!(
        rows_when_read.is_some(),
        "a file that is written for ever is read, too"
    );
}

/// Loads the lists as if each file were read at the very moment it was written.
fn load_at_once(trunks: &Trunks) -> Watched {
    let loaded = Watched::load(trunks.iter(), EventTime::from_seconds(0));
    loaded.expect("good").0
}

#[test]
fn list_written_within_the_same_clock_tick_is_read_again() {
    let file = File::new("phone,leadId\n901110001,1\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let mut watched = load_at_once(&trunks);
    assert!(
        watched.reload(later_time()).is_empty(),
        "read again, and the same: no news"
    );
    let same_time = fs::metadata(&file.path)
        .and_then(|about| about.modified())
        .expect("a time");
    let mut young = load_at_once(&trunks);
    file.write("phone,leadId\n901110001,2\n");
    let opened = fs::File::options()
        .write(true)
        .open(&file.path)
        .expect("opened");
    opened.set_modified(same_time).expect("set");
    let looks = [young.reload(later_time()), young.reload(later_time())];
    let change = only_change(looks.into_iter().flatten().collect()).expect("good");
    assert_eq!(change, leads(1, "+998901110001"));
}

#[test]
fn unusable_lists_are_all_reported_at_start() {
    let file = File::new("number;lead\n");
    let flag = format!(
        "a=PJSIP/a,lead=csv:{};csv:/nowhere/l.csv,employees=/nowhere/e.csv",
        file.path.display()
    );
    let faults = Watched::load(trunks(&flag).iter(), later_time()).expect_err("three faults");
    assert_eq!(faults.len(), 3, "{faults:?}");
}

fn employee_of_101(watched: &Watched, trunk: &Trunk) -> Option<EmployeeId> {
    watched.people().employee_of(&Extension::new("101"), trunk)
}

#[test]
fn employees_are_read_again_when_their_file_changes() {
    let file = File::new("extension,employeeId\n101,501\n");
    let trunks = trunks(&format!(
        "city=PJSIP/city,employees={}",
        file.path.display()
    ));
    let mut watched = load(&trunks);
    let trunk = trunks.iter().next().expect("one");
    assert_eq!(employee_of_101(&watched, trunk), EmployeeId::new(501));
    file.write("extension,employeeId\n101,777\n102,502\n");
    let change = only_change(reload(&mut watched)).expect("good");
    assert_eq!((change.about.rows, change.about.bad), (2, 0));
    assert_eq!(employee_of_101(&watched, trunk), EmployeeId::new(777));
}

/// A directory in which a user has assigned lead 9 to this number, or `Err` if reading fails.
#[derive(Debug)]
struct OneAssignedLead(Result<Phone, String>);

impl Directory for OneAssignedLead {
    fn lead_of(&self, _: &Phone) -> Result<LeadAnswer, String> {
        Ok(LeadAnswer::One(lead(8), "the directory".to_owned()))
    }

    fn assigned_lead(&self, asked: &Phone) -> Result<Option<(LeadId, String)>, String> {
        let given = self.0.clone()? == *asked;
        Ok(given.then(|| (lead(9), "given by ana".to_owned())))
    }
}

fn trunk_with_rules(rules: &str) -> Trunk {
    trunk(&format!("city=PJSIP/city,lead={rules}"))
}

/// Returns the lead of a call over a trunk with these lead rules.
fn lead_by_rules(
    people: &People,
    call: &FinishedCall,
    rules: &str,
    number: Option<&Phone>,
) -> LeadAnswer {
    people.lead_of(call, number, &trunk_with_rules(rules))
}

#[test]
fn assigned_lead_comes_after_dialplan_and_before_lists() {
    let mut call = call();
    let number = phone("+998901110001");
    let given = OneAssignedLead(Ok(number.clone()));
    let people = People::default().with_directory(Arc::new(given));
    let by_hand = LeadAnswer::One(lead(9), "given by ana".to_owned());
    let from_dialplan = LeadAnswer::One(lead(4001), "variable LEAD_ID".to_owned());
    assert_eq!(
        lead_by_rules(&people, &call, "var:LEAD_ID", Some(&number)),
        from_dialplan
    );
    let learned = LeadAnswer::One(lead(8), "the directory".to_owned());
    assert_eq!(
        lead_by_rules(&people, &call, "directory;var:LEAD_ID", Some(&number)),
        learned
    );
    call.variables.clear();
    for rules in [
        "var:LEAD_ID",
        "var:LEAD_ID;directory",
        "directory;var:LEAD_ID",
    ] {
        assert_eq!(
            lead_by_rules(&people, &call, rules, Some(&number)),
            by_hand,
            "{rules}"
        );
        let trunk = trunk_with_rules(rules);
        assert_eq!(people.lead_of_phone(&number, &trunk), by_hand, "{rules}");
    }
    let other = phone("+998901110002");
    assert_eq!(
        lead_by_rules(&people, &call, "directory", Some(&other)),
        learned
    );
    let nothing = LeadAnswer::None("variable LEAD_ID holds no lead".to_owned());
    for unassigned in [Some(&other), None] {
        assert_eq!(
            lead_by_rules(&people, &call, "var:LEAD_ID", unassigned),
            nothing,
            "as without any"
        );
    }
}

#[test]
fn unreadable_assigned_leads_are_reported_and_lists_answer() {
    let call = call();
    let broken = OneAssignedLead(Err("the disk".to_owned()));
    let people = People::default().with_directory(Arc::new(broken));
    let number = phone("+998901110001");
    let learned = LeadAnswer::One(lead(8), "the directory".to_owned());
    assert_eq!(
        people.lead_of_phone(&number, &trunk_with_rules("directory")),
        learned
    );
    let answer = people.lead_of(&call, Some(&number), &trunk_with_rules("var:CRM"));
    let LeadAnswer::None(why) = answer else {
        panic!("{answer:?}")
    };
    assert!(
        why.contains("`lead give` cannot be read: the disk"),
        "{why}"
    );
}

/// A directory that only answers several questions at once. `Err` if reading fails.
#[derive(Debug)]
struct AskedTogether(Result<(), String>);

impl Directory for AskedTogether {
    fn lead_of(&self, phone: &Phone) -> Result<LeadAnswer, String> {
        panic!("{phone:?} was looked up alone")
    }

    fn assigned_lead(&self, phone: &Phone) -> Result<Option<(LeadId, String)>, String> {
        panic!("{phone:?} was looked up alone")
    }

    fn look_up(&self, phones: &[Phone]) -> Result<Vec<PhoneLeads>, String> {
        self.0.clone()?;
        let leads = phones.iter().zip(11..).map(|(_, id)| PhoneLeads {
            lead: LeadAnswer::One(lead(id), "the directory".to_owned()),
            assigned: (id == 12).then(|| (lead(9), "given by ana".to_owned())),
        });
        Ok(leads.collect())
    }
}

#[test]
fn numbers_looked_up_together_are_not_looked_up_alone() {
    let phones =
        ["+998901110001", "+998901110002"].map(|text| Phone::from_e164(text).expect("valid"));
    let trunk = trunk_with_rules("directory");
    let people = People::default().with_directory(Arc::new(AskedTogether(Ok(()))));
    let known = people.with_leads_of(phones.clone().into());
    let found = phones
        .each_ref()
        .map(|phone| known.lead_of_phone(phone, &trunk));
    let expected = [(11, "the directory"), (9, "given by ana")];
    let expected = expected.map(|(id, why)| LeadAnswer::One(lead(id), why.to_owned()));
    assert_eq!(found, expected);
    let unreadable = People::default().with_directory(Arc::new(AskedTogether(Err("away".into()))));
    let known = unreadable.with_leads_of(phones.clone().into());
    let LeadAnswer::None(why) = known.lead_of_phone(&phones[0], &trunk) else {
        panic!("a lead that is not known");
    };
    assert!(why.contains("the directory cannot be read: away"), "{why}");
}

#[test]
fn number_that_was_not_looked_up_with_others_is_looked_up_alone() {
    let [known, other] =
        ["+998901110001", "+998901110002"].map(|text| Phone::from_e164(text).expect("valid"));
    let directory = OneAssignedLead(Ok(other.clone()));
    let people = People::default().with_directory(Arc::new(directory));
    let people = people.with_leads_of([known.clone()].into());
    let trunk = trunk_with_rules("directory");
    let found = [known, other].map(|phone| people.lead_of_phone(&phone, &trunk));
    let expected = [(8, "the directory"), (9, "given by ana")];
    assert_eq!(
        found,
        expected.map(|(id, why)| LeadAnswer::One(lead(id), why.to_owned()))
    );
}
