use super::files::{Change, Error, News, Watched};
use super::*;
use crate::journal::tests::call;
use crate::trunk::{Defaults, Trunks};
use callbridge_call::EventTime;
use std::fs;
use std::time::Duration;

fn trunk(flag: &str) -> Trunk {
    let defaults = Defaults {
        country: Country::parse("UZ"),
        ..Defaults::default()
    };
    crate::trunk::parse(flag, &defaults).expect("a good flag")
}

fn trunks(flag: &str) -> Trunks {
    Trunks::new(vec![trunk(flag)]).expect("one trunk")
}

/// So many rows, and one number that is new or another's.
fn leads(rows: usize, number: &str) -> Change {
    Change::Leads {
        rows,
        phones: vec![phone(number)],
    }
}

fn phone(text: &str) -> Phone {
    Phone::from_e164(text).expect("a phone")
}

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("positive")
}

/// Long after any file of a test was written.
fn later() -> EventTime {
    crate::clock::now().wall.plus(Duration::from_secs(3600))
}

/// A list, rewritten by each test.
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

fn only(mut news: Vec<News>) -> Result<Change, Error> {
    assert_eq!(news.len(), 1, "{news:?}");
    news.remove(0).result
}

#[test]
fn rules_are_asked_in_their_order_and_the_first_that_knows_answers() {
    let mut call = call();
    let trunk = trunk(r"city=PJSIP/city,lead=var:CRM;userfield:lead=(\d+);var:LEAD_ID");
    let people = People::default();
    let one = |id, why: &str| LeadAnswer::One(lead(id), why.to_owned());
    assert_eq!(
        people.lead_of(&call, None, &trunk),
        one(4001, "variable LEAD_ID")
    );
    call.userfields = vec!["note".to_owned(), "a;lead=17;b".to_owned()];
    assert_eq!(
        people.lead_of(&call, None, &trunk),
        one(17, r"user field by `lead=(\d+)`")
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

#[test]
fn a_number_in_the_list_has_its_lead_and_a_hidden_one_has_none() {
    let file = File::new("phone,leadId\n901110001,1\n901110002,2\n901110002,3\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let watched = Watched::load(&trunks, later()).expect("good");
    let trunk = trunks.iter().next().expect("one");
    let ask = |number: Option<&str>| {
        watched
            .people()
            .lead_of(&call(), number.map(phone).as_ref(), trunk)
    };
    assert!(matches!(ask(Some("+998901110001")), LeadAnswer::One(id, _) if id == lead(1)));
    assert!(matches!(ask(Some("+998901110002")), LeadAnswer::Two(..)));
    assert!(matches!(ask(Some("+998901110003")), LeadAnswer::None(_)));
    assert!(matches!(ask(None), LeadAnswer::None(why) if why.starts_with("no number")));
    let alone = watched
        .people()
        .lead_of_phone(&phone("+998901110001"), trunk);
    assert!(matches!(alone, LeadAnswer::One(id, _) if id == lead(1)));
}

#[test]
fn a_changed_list_is_read_and_tells_which_phones_changed() {
    let file = File::new("phone,leadId\n901110001,1\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let mut watched = Watched::load(&trunks, later()).expect("good");
    assert!(watched.reload(later()).is_empty(), "nothing changed");
    file.write("phone,leadId\n901110001,1\n901110002,2\n");
    let change = only(watched.reload(later())).expect("good");
    assert_eq!(change, leads(2, "+998901110002"));
    assert!(watched.reload(later()).is_empty());
}

#[test]
fn a_bad_row_is_told_once_and_the_old_list_stays() {
    let file = File::new("phone,leadId\n901110001,1\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    let mut watched = Watched::load(&trunks, later()).expect("good");
    file.write("phone,leadId\n901110001,9\n90111");
    let error = only(watched.reload(later())).expect_err("torn");
    assert_eq!(
        error.to_string(),
        format!("{}: line 3: the leadId is missing", file.path.display())
    );
    assert!(watched.reload(later()).is_empty(), "told once");
    let trunk = trunks.iter().next().expect("one");
    let answer = watched
        .people()
        .lead_of(&call(), Some(&phone("+998901110001")), trunk);
    assert!(matches!(answer, LeadAnswer::One(id, _) if id == lead(1)));
    fs::remove_file(&file.path).expect("removed");
    assert!(matches!(
        only(watched.reload(later())),
        Err(Error::Missing(_))
    ));
    assert!(watched.reload(later()).is_empty(), "told once");
    file.write("phone,leadId\n901110001,9\n");
    let change = only(watched.reload(later())).expect("good");
    assert_eq!(change, leads(1, "+998901110001"));
}

#[test]
fn a_list_written_to_within_the_same_tick_is_read_once_more() {
    let file = File::new("phone,leadId\n901110001,1\n");
    let trunks = trunks(&format!("city=PJSIP/city,lead=csv:{}", file.path.display()));
    // As if read at the very moment of the writing.
    let mut watched = Watched::load(&trunks, EventTime::from_seconds(0)).expect("good");
    assert!(
        watched.reload(later()).is_empty(),
        "read again, and the same: no news"
    );
    let same_time = fs::metadata(&file.path)
        .and_then(|about| about.modified())
        .expect("a time");
    let mut young = Watched::load(&trunks, EventTime::from_seconds(0)).expect("good");
    file.write("phone,leadId\n901110001,2\n");
    let opened = fs::File::options()
        .write(true)
        .open(&file.path)
        .expect("opened");
    opened.set_modified(same_time).expect("set");
    let change = only(young.reload(later())).expect("good");
    assert_eq!(change, leads(1, "+998901110001"));
}

#[test]
fn every_list_that_cannot_be_used_is_told_at_the_start() {
    let file = File::new("phone;leadId\n");
    let flag = format!(
        "a=PJSIP/a,lead=csv:{};csv:/nowhere/l.csv,employees=/nowhere/e.csv",
        file.path.display()
    );
    let faults = Watched::load(&trunks(&flag), later()).expect_err("three faults");
    assert_eq!(faults.len(), 3, "{faults:?}");
}

#[test]
fn employees_come_from_their_file_and_change_with_it() {
    let file = File::new("extension,employeeId\n101,501\n");
    let trunks = trunks(&format!(
        "city=PJSIP/city,employees={}",
        file.path.display()
    ));
    let mut watched = Watched::load(&trunks, later()).expect("good");
    let trunk = trunks.iter().next().expect("one");
    let of = |watched: &Watched| watched.people().employee_of(&Extension::new("101"), trunk);
    assert_eq!(of(&watched), EmployeeId::new(501));
    file.write("extension,employeeId\n101,777\n102,502\n");
    assert_eq!(
        only(watched.reload(later())).expect("good"),
        Change::Employees { rows: 2 }
    );
    assert_eq!(of(&watched), EmployeeId::new(777));
}
