//! The views: each asks the daemon, and fills its template.
//!
//! | module | views |
//! |---|---|
//! | [`today`] | Today |
//! | [`calls`] | Calls, a call |
//! | [`letters`] | Dead letters, a letter; [`act`]: what is done with them, jobs |
//! | [`numbers`] | numbers without a lead |
//! | [`missed`] | Missed; [`employees`]: what employees did |
//! | [`pbx`] | PBX; [`check`]: Check |
//! | [`fleet`] | Fleet, where the process has a stream |

mod act;
mod calls;
mod check;
mod employees;
mod fleet;
mod letters;
mod missed;
mod numbers;
mod pbx;
mod today;

use crate::answer::{Handled, Problem};
use crate::page::Visit;
use crate::route::Route;
use hyper::StatusCode;

/// Shows what is asked for, or does it.
pub(crate) async fn show(mut visit: Visit<'_>, route: &Route) -> Handled {
    match route {
        Route::Live => Ok(visit.page.live.stream()),
        Route::Today => today::show(visit).await,
        Route::Calls => calls::list(visit).await,
        Route::CallsCsv => calls::csv(&visit).await,
        Route::Picture(uuid) => calls::picture(visit, uuid).await,
        Route::Call(uuid) => calls::one(visit, uuid).await,
        Route::Letters => letters::list(visit, letters::RetryForm::default()).await,
        Route::Letter(id) => letters::one(visit, *id, letters::RetryForm::default()).await,
        Route::LettersAct => act::act(visit).await,
        Route::LettersExport => letters::export(&visit).await,
        Route::Job(id) => act::job(visit, *id).await,
        Route::Numbers => numbers::list(visit, numbers::Typed::default()).await,
        Route::NumbersCsv => numbers::csv(&visit).await,
        Route::LeadGive => numbers::give(visit).await,
        Route::LeadTake => numbers::take(&visit).await,
        Route::Missed => missed::list(visit).await,
        Route::MissedCsv => missed::csv(&visit).await,
        Route::Employees => employees::table(visit).await,
        Route::EmployeesCsv => employees::csv(&visit).await,
        Route::Pbx => pbx::show(visit).await,
        Route::Fleet => fleet::show(visit).await,
        Route::Check if visit.asked.is_post() => Ok(check::begin(&visit)),
        Route::Check => check::show(visit).await,
        // Answered before anybody has to be logged in.
        Route::Login | Route::Logout | Route::Open(_) | Route::Language(_) => {
            visit.look_around().await;
            let words = visit.shell.t("problem.no_page");
            Err(Problem::new(
                StatusCode::NOT_FOUND,
                "problem.unknown",
                words,
            ))
        }
    }
}
