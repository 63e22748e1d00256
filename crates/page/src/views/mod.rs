//! The views: each asks the daemon, and fills its template.
//!
//! | module | views |
//! |---|---|
//! | [`today`] | Today |
//! | [`calls`] | Calls, a call |
//! | [`letters`] | Dead letters, a letter; [`act`]: what is done with them, jobs |
//! | [`numbers`] | numbers without a lead |
//! | [`missed`] | Missed; [`employees`]: what employees did |
//! | [`operations`] | PBX and Check |
//! | [`branches`] | the branches of a hub |

mod act;
mod branches;
mod calls;
mod employees;
mod letters;
mod missed;
mod numbers;
mod operations;
mod today;

use crate::answer::{Handled, Problem, see};
use crate::page::AuthenticatedRequest;
use callbridge_spool::RowId;
use std::{str::FromStr, sync::Arc};

/// Shows what is asked for, or does it; who comes in and goes out is done before.
pub(crate) async fn show(visit: AuthenticatedRequest<'_>, path: &[&str]) -> Handled {
    match path {
        ["live"] => Ok(visit.page.live.stream()),
        [""] => today::show(visit).await,
        ["calls"] => calls::list(visit).await,
        ["calls.csv"] => calls::csv(&visit).await,
        ["calls", uuid] => calls::one(visit, uuid).await,
        ["calls", uuid, "picture.svg"] => calls::picture(visit, uuid).await,
        ["letters"] => letters::list(visit, None).await,
        ["letters", "act"] => act::act(visit).await,
        ["letters", "export"] => letters::export(&visit).await,
        ["letters", id] => letters::one(visit, RowId(number(id)), None).await,
        ["jobs", id] => act::job(visit, number(id)).await,
        ["numbers"] => numbers::list(visit, Vec::new()).await,
        ["numbers.csv"] => numbers::csv(&visit).await,
        ["numbers", "give"] => numbers::give(visit).await,
        ["numbers", "take"] => numbers::take(&visit).await,
        ["missed"] => missed::list(visit).await,
        ["missed.csv"] => missed::csv(&visit).await,
        ["employees"] => employees::table(visit).await,
        ["employees.csv"] => employees::csv(&visit).await,
        ["branches"] => branches::list(visit).await,
        ["pbx"] => operations::pbx(visit).await,
        ["check"] if visit.asked.is_post() => {
            visit.page.checks.begin(Arc::clone(&visit.page.backend));
            Ok(see("/check"))
        }
        ["check"] => operations::check(visit).await,
        _ => Err(Problem::missing(&visit.shell, "problem.no_page")),
    }
}

/// Of a path whose parts are looked at already.
fn number<T: FromStr + Default>(part: &str) -> T {
    part.parse().unwrap_or_default()
}
