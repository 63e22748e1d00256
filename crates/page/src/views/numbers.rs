//! The view of numbers without a lead, where leads are assigned and unassigned.

use super::act;
use crate::answer::{self, Handled, see};
use crate::csv::{self, Columns};
use crate::shell::PageShell;
use crate::{backend::Profiles, page::AuthenticatedRequest, request::FormFields};
use askama::Template;
use callbridge_mapping::people::rows::{PairRow, pairs};
use callbridge_model::LeadId;
use callbridge_spool::{LeadByHand, RowId, WaitingPhone};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of phone numbers on the page, with two fields each in one form. The CSV file has
/// all of them.
const SHOWN_MAX: usize = 150;

/// A lead as typed for a number, along with any error.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypedLead {
    phone: String,
    lead: String,
    /// The line in the pasted CSV text that contains the lead.
    line: Option<u64>,
    wrong: Option<String>,
    /// Whether the CRM doesn't seem to have the lead, in which case it's only assigned if the form
    /// is sent again.
    asks: bool,
}

/// The name of the field with a number and a lead that the user was asked about.
const SURE: &str = "sure";

/// The names of a row's two fields, which are the number and the lead.
const ROW: [&str; 2] = ["row", "row-lead"];

#[derive(Template)]
#[template(path = "numbers.html")]
struct NumbersSheet<'a> {
    c: &'a PageShell,
    numbers: Vec<WaitingPhone>,
    all: u64,
    given: Vec<LeadByHand>,
    profiles: Profiles,
    typed: Vec<TypedLead>,
}

/// Serves `GET /numbers`, and the same page after a form was rejected.
pub(crate) async fn list(mut visit: AuthenticatedRequest<'_>, typed: Vec<TypedLead>) -> Handled {
    let _ = visit.refresh_badges().await;
    let backend = &visit.page.backend;
    let mut numbers = backend.numbers().await?;
    let given = backend.given_leads().await?;
    let leads = given.iter().map(|assigned| assigned.lead_id).collect();
    let profiles = backend.profiles(leads).await?;
    let all = numbers.len() as u64;
    numbers.truncate(SHOWN_MAX);
    let is_wrong = typed.iter().any(|lead| lead.wrong.is_some());
    let sheet = NumbersSheet {
        c: &visit.shell,
        numbers,
        all,
        given,
        profiles,
        typed,
    };
    answer::form(&sheet, is_wrong)
}

impl NumbersSheet<'_> {
    /// Returns the fields typed for this number, which are empty if nothing was typed.
    fn typed_lead(&self, phone: &str) -> TypedLead {
        let typed = self.typed.iter().find(|lead| lead.phone == phone);
        typed.cloned().unwrap_or_default()
    }

    /// Returns the errors for numbers that aren't in the list, either because the number was typed
    /// or because it's no longer in the list.
    fn unlisted_errors(&self) -> Vec<(&TypedLead, &String)> {
        let mut errors = Vec::new();
        for lead in &self.typed {
            if let Some(wrong) = &lead.wrong
                && !self.is_listed(&lead.phone)
            {
                errors.push((lead, wrong));
            }
        }
        errors
    }

    fn is_listed(&self, phone: &str) -> bool {
        let mut numbers = self.numbers.iter();
        numbers.any(|number| number.phone.as_str() == phone)
    }

    /// Returns the value that answers the first unlisted error, if that's a question.
    fn first_question(&self) -> Option<String> {
        let (lead, _) = *self.unlisted_errors().first()?;
        lead.asks.then(|| lead.question())
    }

    /// Returns the number and lead from the first unlisted error, so that they can be corrected in
    /// the form.
    fn first_unlisted(&self) -> (&str, &str) {
        match self.unlisted_errors()[..] {
            [(lead, _), ..] => (&lead.phone, &lead.lead),
            [] => ("", ""),
        }
    }
}

/// Returns all typed leads, whether they're from the list's rows, from the form for a single
/// number, or from CSV. Also returns how many CSV rows lack one of the two values.
fn typed_leads(shell: &PageShell, form: &FormFields) -> (Vec<TypedLead>, u64) {
    let [phones, leads] = ROW.map(|row| form.iter().filter(move |(name, _)| *name == row));
    let mut all = Vec::new();
    for ((_, phone), (_, lead)) in phones.zip(leads) {
        if !lead.trim().is_empty() {
            all.push(TypedLead::new(phone, lead));
        }
    }
    if form.get("phone").is_some() || form.get("lead").is_some() {
        all.push(TypedLead::new(
            &form.typed_value("phone"),
            &form.typed_value("lead"),
        ));
    }
    let mut lacking = 0;
    match form.get("csv").map(leads_of) {
        Some(Some((rows, bad))) => {
            for row in rows {
                // The page's own file has an apostrophe before each number, for spreadsheets.
                let [phone, lead] = row
                    .cells
                    .each_ref()
                    .map(|cell| cell.trim_start_matches('\''));
                let mut typed = TypedLead::new(phone, lead);
                typed.line = Some(row.line);
                all.push(typed);
            }
            lacking = bad;
        }
        Some(None) => all.push(TypedLead {
            wrong: Some(shell.t("wrong.csv").to_owned()),
            ..TypedLead::default()
        }),
        None => {}
    }
    refuse_two_leads(shell, &mut all);
    (all, lacking)
}

/// Rejects all leads for a number if two different ones were typed.
fn refuse_two_leads(shell: &PageShell, all: &mut [TypedLead]) {
    let mut leads = BTreeMap::<String, BTreeSet<String>>::new();
    for one in all.iter() {
        let lead = one.lead.trim().to_owned();
        leads.entry(digits(&one.phone)).or_default().insert(lead);
    }
    for one in all {
        let digits = digits(&one.phone);
        // Texts without digits aren't numbers, so they aren't compared.
        if !digits.is_empty() && leads[&digits].len() > 1 {
            one.refuse(shell, shell.t("wrong.two_leads").to_owned());
        }
    }
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

impl TypedLead {
    fn new(phone: &str, lead: &str) -> Self {
        Self {
            phone: phone.trim().to_owned(),
            lead: lead.to_owned(),
            line: None,
            wrong: None,
            asks: false,
        }
    }

    /// Returns the value of the field that confirms this lead for this number.
    fn question(&self) -> String {
        format!("{} {}", self.phone, self.lead.trim())
    }

    /// Stores the error, along with its line in the pasted CSV text, if any.
    fn refuse(&mut self, shell: &PageShell, wrong: String) {
        self.wrong = Some(match self.line {
            Some(line) => shell.text_with_two("numbers.line", line, &wrong),
            None => wrong,
        });
    }
}

/// Reads numbers and leads from CSV in the form of this page's file or of a lead list. Also returns
/// how many rows lack a cell. Without a header, the number and the lead are the first two columns.
/// Returns `None` if there's a header that doesn't contain these columns.
fn leads_of(csv: &str) -> Option<(Vec<PairRow>, u64)> {
    let csv = csv.trim_start_matches('\u{feff}');
    let first = csv.lines().next().unwrap_or_default();
    let has_header = first.to_ascii_lowercase().contains("phone");
    let mut text = csv.to_owned();
    if !has_header {
        let mut separators = [';', '\t'].into_iter();
        let separator = separators.find(|separator| first.contains(*separator));
        text = format!("phone{}lead\n{csv}", separator.unwrap_or(','));
    }
    for lead in ["lead", "leadId"] {
        let Ok((mut rows, about)) = pairs(text.as_bytes(), ["phone", lead]) else {
            continue;
        };
        if !has_header {
            for row in &mut rows {
                row.line -= 1;
            }
        }
        return Some((rows, about.bad as u64));
    }
    None
}

/// Serves `POST /numbers/give`, which assigns the typed leads to their numbers, and shows the
/// errors for leads that couldn't be assigned.
pub(crate) async fn give(visit: AuthenticatedRequest<'_>) -> Handled {
    let (mut all, lacking) = typed_leads(&visit.shell, &visit.asked.form);
    let left_out = (lacking > 0).then(|| visit.shell.n("numbers.left_out", lacking));
    if all.is_empty() {
        all.push(TypedLead {
            wrong: left_out.clone(),
            ..TypedLead::default()
        });
    }
    let mut given = 0;
    let mut left = 0;
    let mut last = None;
    let mut dead = Vec::new();
    for one in all.iter_mut().filter(|typed| typed.wrong.is_none()) {
        match give_one(&visit, one).await {
            Ok((lead, calls, letters)) => {
                given += 1;
                left += calls;
                last = Some(lead);
                dead.push((lead, letters));
            }
            Err(wrong) => one.refuse(&visit.shell, wrong),
        }
    }
    let mut message = match last {
        Some(lead) if given == 1 => {
            let message = visit.shell.n("numbers.given", left);
            message.replace("{a}", &lead.to_string())
        }
        _ => {
            let message = visit.shell.n("numbers.given_many", given);
            message.replace("{a}", &visit.shell.count(left))
        }
    };
    if let Some(left_out) = left_out {
        message = format!("{message} {left_out}");
    }
    for (lead, letters) in dead.iter().filter(|(_, letters)| !letters.is_empty()) {
        let ids: Vec<String> = letters.iter().map(ToString::to_string).collect();
        let command = format!("callbridge dead retry {} --lead {lead}", ids.join(" "));
        let resend = visit.shell.t("numbers.resend").replace("{a}", &command);
        message = format!("{message} {resend}");
    }
    all.retain(|one| one.wrong.is_some());
    if all.is_empty() {
        visit.set_notice(message);
        return Ok(see("/numbers"));
    }
    let mut visit = visit;
    if given > 0 {
        visit.shell.notice = Some(message);
    }
    list(visit, all).await
}

/// Assigns one lead. Returns the lead, how many calls are being sent now, and the number's dead
/// letters, or else an error message. If the daemon refuses, that's merely a message too, because
/// otherwise the rows after it would be lost.
async fn give_one(
    visit: &AuthenticatedRequest<'_>,
    one: &mut TypedLead,
) -> Result<(LeadId, u64, Vec<RowId>), String> {
    if one.phone.is_empty() {
        return Err(visit.shell.t("wrong.no_phone").to_owned());
    }
    let typed = Some(one.lead.trim()).filter(|lead| !lead.is_empty());
    let Some(lead) = act::lead(&visit.shell, typed)? else {
        return Err(visit.shell.t("wrong.no_lead").to_owned());
    };
    let backend = &visit.page.backend;
    let mut sure = visit.asked.form.iter().filter(|(name, _)| *name == SURE);
    if !sure.any(|(_, answer)| answer == one.question()) {
        match backend.is_unknown_lead(lead).await {
            Ok(false) => {}
            Ok(true) => {
                one.asks = true;
                let question = visit.shell.t("wrong.unknown_lead");
                return Err(question.replace("{a}", &lead.to_string()));
            }
            Err(refusal) => return Err(refusal.message),
        }
    }
    match backend.give_lead(&one.phone, lead, &visit.who).await {
        Ok((calls, letters)) => Ok((lead, calls, letters)),
        Err(refusal) => Err(refusal.message),
    }
}

/// Serves `POST /numbers/take`, which removes a number's assigned lead.
pub(crate) async fn take(visit: &AuthenticatedRequest<'_>) -> Handled {
    let phone = visit.asked.form.get("phone").unwrap_or_default();
    visit.page.backend.take_lead(phone).await?;
    visit.set_notice(visit.shell.t("numbers.taken").to_owned());
    Ok(see("/numbers"))
}

/// The CSV file's columns. The last one is empty, so that leads can be filled in.
const COLUMNS: &Columns<WaitingPhone> = &[
    ("phone", |number, _| number.phone.as_str().to_owned()),
    ("calls", |number, _| number.calls.to_string()),
    ("firstAt", |number, c| c.zone.second(number.first.get())),
    ("lastAt", |number, c| c.zone.second(number.last.get())),
    ("lead", |_, _| String::new()),
];

/// Serves `GET /numbers.csv`, which contains the numbers as a file, for those who enter leads into
/// the CRM.
pub(crate) async fn csv(visit: &AuthenticatedRequest<'_>) -> Handled {
    let numbers = visit.page.backend.numbers().await?;
    let name = "callbridge-numbers.csv";
    Ok(csv::download(COLUMNS, numbers, &visit.shell, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rows as text, along with how many rows lack a cell.
    fn read_leads(csv: &str) -> Option<(String, u64)> {
        let (rows, lacking) = leads_of(csv)?;
        let rows: Vec<String> = rows
            .into_iter()
            .map(|row| format!("{} {}", row.line, row.cells.join(" ")))
            .collect();
        Some((rows.join(", "), lacking))
    }

    #[test]
    fn lead_file_is_read_from_page_export_or_spreadsheet() {
        let filled = "\u{feff}phone,calls,firstAt,lastAt,lead\r\n+998935550101,7,a,b,4001\r\n\
                      +998935550102,1,a,b,\r\n";
        let saved = "\"Phone\";\"leadId\"\n\"998935550101\";\"4001\"\n";
        let plain = "901110001\t4002\n\n'x";
        for (csv, rows, lacking) in [
            (filled, "2 +998935550101 4001", 1),
            (saved, "2 998935550101 4001", 0),
            (plain, "1 901110001 4002", 1),
        ] {
            assert_eq!(read_leads(csv), Some((rows.to_owned(), lacking)), "{csv}");
        }
        assert_eq!(read_leads("phone\n901110001"), None);
    }
}
