//! Numbers without a lead: with their calls, and a lead given or taken there.

use super::act;
use crate::answer::{self, Handled, see};
use crate::backend::NumberView;
use crate::csv::CsvText;
use crate::page::{Visit, refused};
use crate::shell::PageShell;
use askama::Template;
use callbridge_spool::LeadByHand;
use hyper::StatusCode;

/// Numbers on a page; the file has all of them.
const SHOWN_MAX: usize = 200;

/// What was typed for a number, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Typed {
    phone: String,
    lead: String,
    wrong: Option<String>,
}

#[derive(Template)]
#[template(path = "numbers.html")]
struct NumbersSheet<'a> {
    c: &'a PageShell,
    numbers: Vec<NumberView>,
    all: u64,
    given: Vec<LeadByHand>,
    typed: Typed,
}

/// `GET /numbers`, and what follows a form that was refused.
pub(crate) async fn list(mut visit: Visit<'_>, typed: Typed) -> Handled {
    visit.look_around().await;
    let backend = &visit.page.backend;
    let mut numbers = backend.numbers().await.map_err(refused)?;
    let given = backend.given_leads().await.map_err(refused)?;
    let all = numbers.len() as u64;
    numbers.truncate(SHOWN_MAX);
    let status = match typed.wrong {
        Some(_) => StatusCode::UNPROCESSABLE_ENTITY,
        None => StatusCode::OK,
    };
    let sheet = NumbersSheet {
        c: &visit.shell,
        numbers,
        all,
        given,
        typed,
    };
    answer::html_as(status, &sheet)
}

impl NumbersSheet<'_> {
    fn has_more(&self) -> bool {
        (self.numbers.len() as u64) < self.all
    }

    /// What was typed for this number.
    fn lead_of(&self, phone: &str) -> &str {
        match self.typed.phone == phone {
            true => &self.typed.lead,
            false => "",
        }
    }

    fn wrong_of(&self, phone: &str) -> Option<&String> {
        let wrong = self.typed.wrong.as_ref();
        wrong.filter(|_| self.typed.phone == phone)
    }

    /// What was typed for a number that is not listed.
    fn elsewhere(&self) -> (&str, &str) {
        match self.wrong_elsewhere() {
            Some(_) => (&self.typed.phone, &self.typed.lead),
            None => ("", ""),
        }
    }

    /// What is wrong with a number that is not listed: one that was typed, or one that has left.
    fn wrong_elsewhere(&self) -> Option<&String> {
        let listed = self.numbers.iter().any(|it| it.phone == self.typed.phone);
        self.typed.wrong.as_ref().filter(|_| !listed)
    }
}

/// `POST /numbers/give`
pub(crate) async fn give(visit: Visit<'_>) -> Handled {
    let form = &visit.asked.form;
    let (phone, lead) = (form.get("phone"), form.get("lead"));
    let typed = |wrong: String| Typed {
        phone: form.typed("phone"),
        lead: form.typed("lead"),
        wrong: Some(wrong),
    };
    let given = match (phone, act::lead(&visit.shell, lead)) {
        (None, _) => Err(visit.shell.t("wrong.no_phone").to_owned()),
        (_, Ok(None)) => Err(visit.shell.t("wrong.no_lead").to_owned()),
        (_, Err(wrong)) => Err(wrong),
        (Some(phone), Ok(Some(lead))) => Ok((phone, lead)),
    };
    let (phone, lead) = match given {
        Ok(given) => given,
        Err(wrong) => {
            let typed = typed(wrong);
            return list(visit, typed).await;
        }
    };
    let backend = &visit.page.backend;
    match backend.give_lead(phone, lead, &visit.who).await {
        Ok(left) => {
            let words = visit.shell.n("numbers.given", left);
            visit.say(words.replace("{a}", &lead.to_string()), true);
            Ok(see("/numbers"))
        }
        Err(refusal) if refusal.is_usage() => {
            let typed = typed(refusal.words);
            list(visit, typed).await
        }
        Err(refusal) => Err(refused(refusal)),
    }
}

/// `POST /numbers/take`
pub(crate) async fn take(visit: &Visit<'_>) -> Handled {
    let phone = visit.asked.form.get("phone").unwrap_or_default();
    let backend = &visit.page.backend;
    backend
        .take_lead(phone, &visit.who)
        .await
        .map_err(refused)?;
    visit.say(visit.shell.t("numbers.taken").to_owned(), true);
    Ok(see("/numbers"))
}

/// `GET /numbers.csv`: for whoever enters leads into the CRM.
pub(crate) async fn csv(visit: &Visit<'_>) -> Handled {
    let numbers = visit.page.backend.numbers().await.map_err(refused)?;
    let mut csv = CsvText::new(&["phone", "calls", "firstAt", "lastAt", "lead"]);
    let zone = &visit.shell.zone;
    for number in numbers {
        csv.row([
            number.phone,
            number.calls.to_string(),
            zone.second(number.first_at),
            zone.second(number.last_at),
            String::new(),
        ]);
    }
    let name = "callbridge-numbers.csv";
    Ok(csv.download(name))
}
