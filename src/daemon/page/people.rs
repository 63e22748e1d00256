//! What employees did, and what trunks took.

use super::backend::{DaemonBackend, broken};
use callbridge_model::clock;
use callbridge_page::backend::{BackendRefusal, EmployeeFigures, PbxView, Span, TrunkView};
use callbridge_spool::employee_work::{EmployeeWork, employee_work};
use callbridge_spool::tables;

/// Seconds of the days before today that a week has.
const DAYS_BEFORE: i64 = 6;

pub(super) async fn employee_figures(
    backend: &DaemonBackend,
    span: Span,
) -> Result<Vec<EmployeeFigures>, BackendRefusal> {
    let now = clock::now().wall;
    let before = match span {
        Span::Today => 0,
        Span::Week => DAYS_BEFORE,
    };
    let from = super::figures::day_begun(backend, now, before);
    let until = now.floor_seconds().get() + 1;
    let work = employee_work(&backend.spool, from, until).await;
    let work = work.map_err(broken)?;
    Ok(work
        .work
        .into_iter()
        .map(|(of, did)| figures(of, &did))
        .collect())
}

pub(super) async fn pbx_view(backend: &DaemonBackend) -> Result<PbxView, BackendRefusal> {
    let status = backend.observer.status().await.map_err(broken)?;
    let today = super::figures::day_begun(backend, clock::now().wall, 0);
    let read = backend
        .spool
        .read(move |store| tables::trunk_calls::trunk_calls(store, today));
    let took = read.await.map_err(broken)?;
    let trunks = backend.handler.rules.trunks.iter().map(|trunk| {
        let own = took.iter().filter(|it| {
            it.trunk == trunk.name && trunk.pbx.as_ref().is_none_or(|pbx| *pbx == it.pbx)
        });
        let (mut calls, mut last_at) = (0, None);
        for it in own {
            calls += it.calls;
            last_at = last_at.max(Some(it.last_at.get()));
        }
        TrunkView {
            name: trunk.name.clone(),
            today: calls,
            last_at,
        }
    });
    let unlisted = status.employees.iter().flat_map(|it| &it.unlisted);
    Ok(PbxView {
        trunks: trunks.collect(),
        channels: status
            .unmatched
            .iter()
            .map(|it| it.prefix.clone())
            .collect(),
        extensions: unlisted
            .map(|it| (it.extension.clone(), it.calls))
            .collect(),
    })
}

fn figures(extension: Option<String>, did: &EmployeeWork) -> EmployeeFigures {
    let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
    EmployeeFigures {
        extension,
        employee_id: did.employee_id,
        answered: did.answered,
        missed: did.missed,
        outbound: did.outbound,
        talk_sec: did.talk_sec,
        wait_sec: mean(did.wait_sec, did.answered),
        call_back_sec: mean(did.call_back_sec, did.called_back),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_what_there_was() {
        let did = EmployeeWork {
            answered: 2,
            wait_sec: 9,
            ..EmployeeWork::default()
        };
        let figures = figures(Some("101".to_owned()), &did);
        assert_eq!(figures.wait_sec, Some(4.5));
        assert_eq!(figures.call_back_sec, None);
    }
}
