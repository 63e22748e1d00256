//! The views, each of which queries the daemon and fills in its template.
//!
//! | module | views |
//! |---|---|
//! | [`today`] | Today |
//! | [`calls`] | Calls, and a single call |
//! | [`letters`] | Dead letters, and a single one; [`act`]: actions on them, and jobs |
//! | [`numbers`] | numbers without a lead |
//! | [`missed`] | Missed; [`employees`]: employee statistics |
//! | [`operations`] | PBX and Check |
//! | [`branches`] | a hub's branches |

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

/// Routes a logged-in user's request to its view or action. Login and logout have been handled
/// before that.
pub(crate) async fn show(visit: AuthenticatedRequest<'_>, path: &[&str]) -> Handled {
    match path {
        ["live"] => Ok(visit.page.live.stream()),
        [""] => today::show(visit).await,
        ["calls"] => calls::list(visit).await,
        ["calls.csv"] => calls::csv(&visit).await,
        ["calls", uuid] => calls::show(visit, uuid).await,
        ["calls", uuid, "picture.svg"] => calls::picture(visit, uuid).await,
        ["letters"] => letters::list(visit, None).await,
        ["letters", "act"] => act::act(visit).await,
        ["letters", "export"] => letters::export(&visit).await,
        ["letters", id] => letters::show(visit, RowId(number(id)), None).await,
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
        _ => Err(Problem::not_found(&visit.shell, "problem.no_page")),
    }
}

/// Parses a segment of a path that has already been checked.
fn number<T: FromStr + Default>(part: &str) -> T {
    part.parse().unwrap_or_default()
}
