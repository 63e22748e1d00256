//! The table as Prometheus metrics.

use callbridge_model::status::FleetTable;
use callbridge_model::status::fleet::Speech;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPbx {
    pbx: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfToken {
    token: String,
    company: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    role: &'static str,
    speech: &'static str,
}

/// `callbridge_collector_up{pbx}`, which a sender shows among its own metrics.
pub fn collectors(all: &mut Registry, table: &FleetTable) {
    let up = Family::<OfPbx, Gauge>::default();
    for (pbx, speaks) in table.collectors() {
        let pbx = pbx.to_owned();
        up.get_or_create(&OfPbx { pbx }).set(i64::from(speaks));
    }
    // Logins that make up names make no series with them.
    if !table.floods.is_empty() {
        let pbx = "too_many".to_owned();
        up.get_or_create(&OfPbx { pbx }).set(0);
    }
    let help = "1 while a collector of the PBX reports, 0 once it was stopped or silent for 3 min";
    all.register("collector_up", help, up);
}

/// What `fleet --listen` shows.
pub fn render(table: &FleetTable) -> String {
    let mut all = Registry::with_prefix("callbridge");
    collectors(&mut all, table);
    let members = Family::<OfMember, Gauge>::default();
    for member in &table.members {
        let (role, speech) = (member.word.role.word(), member.speech.word());
        members.get_or_create(&OfMember { role, speech }).inc();
    }
    let help = "Collectors and senders by whether they report: speaking, stopped, silent";
    all.register("fleet_members", help, members);
    let backlog = Family::<OfToken, Gauge>::default();
    let drain = Family::<OfToken, Gauge>::default();
    for it in &table.tokens {
        let label = OfToken {
            token: it.token.print.clone(),
            company: it.token.company.clone().unwrap_or_default(),
        };
        backlog.get_or_create(&label).set(signed(it.backlog.calls));
        drain
            .get_or_create(&label)
            .set(signed(it.backlog.drain_sec));
    }
    let help = "Calls that wait for a token";
    all.register("fleet_backlog_calls", help, backlog);
    let help = "Time until they are sent, at the token's pace";
    all.register("fleet_backlog_drain_seconds", help, drain);
    let silent = table
        .members
        .iter()
        .filter(|it| it.speech == Speech::Silent);
    let (gauge, silent) = (Gauge::<i64>::default(), silent.count());
    gauge.set(i64::try_from(silent).unwrap_or(i64::MAX));
    let help = "Collectors and senders that sent no report for 3 minutes";
    all.register("fleet_silent", help, gauge);
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = encode(&mut text, &all);
    text
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
