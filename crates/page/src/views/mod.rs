//! The views. Each view asks the daemon, and fills its template.
//!
//! | module | views |
//! |---|---|
//! | [`today`] | Today |
//! | [`calls`] | Calls, and one call |
//! | [`letters`] | Dead letters, and one dead letter; [`act`]: actions on them, and jobs |
//! | [`numbers`] | numbers without a lead |
//! | [`missed`] | Missed; [`employees`]: figures of employees |
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

/// Routes the request of a logged-in user to its view or action. Login and logout are handled
/// before.
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

/// Parses a part of a path that was checked before.
fn number<T: FromStr + Default>(part: &str) -> T {
    part.parse().unwrap_or_default()
}
