use super::*;
use callbridge_mapping::Trunk;
use callbridge_mapping::people::Directory;
use callbridge_mapping::trunk::parse;
use callbridge_model::{Country, Phone};
use proptest::prelude::*;
use std::sync::Arc;

/// A directory in which `…0001` has lead 4001, `…0002` has two leads, and `…0009` can't be read.
/// `…0003` was manually assigned to lead 77.
#[derive(Debug)]
struct Leads;

impl Directory for Leads {
    fn lead_of(&self, phone: &Phone) -> Result<LeadAnswer, String> {
        let reason = String::new();
        match phone.as_str() {
            "+998901110001" => Ok(LeadAnswer::One(lead(4001), reason)),
            "+998901110002" => Ok(LeadAnswer::Two(lead(1), lead(2), reason)),
            "+998901110009" => Err("the disk".to_owned()),
            _ => Ok(LeadAnswer::None(reason)),
        }
    }

    fn assigned_lead(&self, phone: &Phone) -> Result<Option<(LeadId, String)>, String> {
        let given = phone.as_str() == "+998901110003";
        Ok(given.then(|| (lead(77), "given".to_owned())))
    }
}

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("positive")
}

fn trunks(flags: &[&str]) -> Trunks {
    let defaults = Trunk {
        country: Country::parse("UZ"),
        ..Trunk::default()
    };
    let parsed = flags
        .iter()
        .map(|flag| parse(flag, &defaults).expect("a trunk"));
    Trunks::new(parsed.collect()).expect("trunks")
}

const CITY: &str = "city=PJSIP/city,strip=9,lead=directory,employees=201:501;101:501;102:502";
const GSM: &str = "gsm=PJSIP/gsm,lead=directory,employees=301:503;3 2:504";

fn profile(name: &str, responsible: i64) -> LeadProfile {
    LeadProfile {
        name: Some(name.to_owned()),
        responsible: EmployeeId::new(responsible),
        responsible_name: Some("Olim \"the\" Karimov".to_owned()),
        stage: Some("New, hot".to_owned()),
    }
}

fn ask(query: &str, known: LeadProfile) -> Answer {
    let (question, _) = Question::read(query);
    let people = People::default().with_directory(Arc::new(Leads));
    Answer::find(&question, &trunks(&[CITY, GSM]), &people, |lead| {
        (lead, known)
    })
}

#[test]
fn known_lead_has_first_extension_of_responsible_employee() {
    let anna = profile("Anna Petrova", 501);
    let answer = ask("phone=%2B998901110001&trunk=city", anna.clone());
    assert_eq!(
        answer.text(Format::Hash),
        "known=yes&lead=4001&name=Anna%20Petrova&extension=201&employee=501&\
         employeeName=Olim%20the%20Karimov&stage=New%20hot&reason="
    );
    assert_eq!(
        answer.text(Format::Json),
        "{\"known\":\"yes\",\"lead\":4001,\"name\":\"Anna Petrova\",\"extension\":\"201\",\
         \"employee\":501,\"employeeName\":\"Olim the Karimov\",\"stage\":\"New hot\",\
         \"reason\":null}\n"
    );
    for same in [
        "phone=901110001&trunk=city",
        "phone=9901110001&trunk=city",
        "phone=+998 90 111-00-01&trunk=city",
        "trunk=city&phone=998901110001&phone=1&color=red",
    ] {
        assert_eq!(ask(same, anna.clone()), answer, "{same}");
    }
}

/// Returns the extension in the result for a lead with this responsible employee.
fn extension_of(trunk: &str, responsible: i64) -> Option<String> {
    let query = format!("phone=%2B998901110001&trunk={trunk}");
    ask(&query, profile("Anna", responsible)).extension
}

#[test]
fn undialable_or_other_trunk_extension_is_omitted() {
    assert_eq!(extension_of("city", 502).as_deref(), Some("102"));
    assert_eq!(extension_of("gsm", 502), None);
    assert_eq!(extension_of("gsm", 503).as_deref(), Some("301"));
    assert_eq!(extension_of("gsm", 504), None, "`3 2` is nobody's to dial");
}

/// Checks that the result has no name and no extension, and returns whether the lead is known, the
/// lead, and the reason.
fn ask_unknown(query: &str) -> (&'static str, Option<LeadId>, Option<&'static str>) {
    let answer = ask(query, profile("Anna", 501));
    assert_eq!((answer.name, answer.extension), (None, None), "{query}");
    (
        answer.known.into(),
        answer.lead,
        answer.reason.map(<&str>::from),
    )
}

#[test]
fn unanswerable_query_gets_an_answer_without_a_lead() {
    assert_eq!(
        ask_unknown("phone=901110002&trunk=city"),
        ("several", None, None)
    );
    for (query, reason) in [
        ("phone=901110008&trunk=city", "no_lead"),
        ("phone=901110009&trunk=city", "no_lead"),
        ("phone=anonymous&trunk=city", "no_number"),
        ("phone=101&trunk=city", "no_number"),
        ("phone=&trunk=city", "no_number"),
        ("trunk=city", "no_number"),
        ("phone=901110001", "no_trunk"),
        ("phone=901110001&trunk=City", "no_trunk"),
        ("phone=901110001&trunk=city%00", "no_trunk"),
        ("", "no_trunk"),
        ("%%%&&&===\u{1}", "no_trunk"),
    ] {
        assert_eq!(ask_unknown(query), ("no", None, Some(reason)), "{query}");
    }
}

#[test]
fn assigned_lead_without_profile_is_answered_without_name() {
    let answer = ask("phone=901110003&trunk=city", LeadProfile::default());
    let wanted = Answer {
        lead: Some(lead(77)),
        ..Answer::empty(Known::Yes)
    };
    assert_eq!(answer, wanted);
    let blank = ask("phone=901110003&trunk=city", profile("😀", 501));
    assert_eq!(blank.name, None, "nothing is left of it");
}

/// Returns the extension in the result if the PBX has these trunks.
fn extension_with_trunks(query: &str, trunks: &Trunks) -> Option<String> {
    let (question, _) = Question::read(query);
    let people = People::default().with_directory(Arc::new(Leads));
    let answer = Answer::find(&question, trunks, &people, |lead| {
        (lead, profile("Anna", 501))
    });
    answer.extension
}

#[test]
fn single_trunk_is_optional_and_pbx_selects_equal_names() {
    let one = trunks(&["city=PJSIP/city,lead=directory,employees=101:501"]);
    assert_eq!(
        extension_with_trunks("phone=901110001", &one).as_deref(),
        Some("101")
    );
    let two = trunks(&[
        "city=PJSIP/city,pbx=a,lead=directory,employees=101:501",
        "city=PJSIP/city,pbx=b,lead=directory,employees=201:501",
    ]);
    assert_eq!(
        extension_with_trunks("phone=901110001&trunk=city", &two).as_deref(),
        Some("101"),
        "the first of that name"
    );
    assert_eq!(
        extension_with_trunks("phone=901110001&trunk=city&pbx=b", &two).as_deref(),
        Some("201")
    );
    assert_eq!(
        extension_with_trunks("phone=901110001&trunk=city&pbx=c", &two),
        None
    );
}

/// Returns `true` for characters that may appear in a result in the form `KEY=VALUE&…`.
fn is_answer_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"=&%-._~".contains(&byte)
}

proptest! {
    /// The result doesn't contain anything that a dialplan could interpret, no matter what the CRM
    /// sends.
    ///
    /// Promise: A lead's name never becomes a dialplan instruction.
    #[test]
    fn answer_contains_no_dialplan_syntax(
        texts in prop::array::uniform3(any::<String>()),
        hostile in r#"[,"|\[\](){}$\r\n;&\\<>'`a-c ]{0,40}"#,
        phone in any::<String>(),
    ) {
        let [name, employee, stage] = texts;
        let known = LeadProfile {
            name: Some(format!("{hostile}{name}{hostile}")),
            responsible: EmployeeId::new(501),
            responsible_name: Some(employee + &hostile),
            stage: Some(hostile.clone() + &stage),
        };
        let banned: Vec<char> = ",\"|[]${}()\r\n;&<\\".chars().collect();
        let answer = ask("phone=901110001&trunk=city", known);
        for text in [&answer.name, &answer.employee_name, &answer.stage].into_iter().flatten() {
            prop_assert!(!text.contains(&*banned), "{text:?}");
            prop_assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        let hash = answer.text(Format::Hash);
        prop_assert!(hash.bytes().all(is_answer_byte), "{hash}");
        prop_assert_eq!(hash.matches('&').count(), 7);
        let json = answer.text(Format::Json);
        prop_assert!(!json.contains(['\\', '$', '|', '[', ']', '(', ')']), "{json}");
        prop_assert_eq!(json.lines().count(), 1);
        let (question, _) = Question::read(&format!("phone={phone}&trunk={hostile}"));
        let none = Answer::find(&question, &trunks(&[CITY, GSM]), &People::default(), |lead| {
            (lead, LeadProfile::default())
        });
        prop_assert_eq!(<&str>::from(none.known), "no");
    }
}
