//! A FreeSWITCH: what it is, its gateways against the trunks, and what its file has mod_amqp
//! publish. What is found is known by `bridges/freeswitch`.

use super::finding::{CheckFinding, advice, fault, well};
use super::release::short;
use crate::config::{Config, SourceConfig};
use crate::daemon::open::source_of;
use callbridge_formats::Format;
use callbridge_freeswitch::module_conf;
use callbridge_freeswitch::survey::{SwitchFinding, Weight};
use callbridge_model::Code;
use callbridge_source::StreamReading;
use callbridge_source::url::Transport;

/// Everything that is found of the switch behind this source, if one is.
pub(crate) async fn look(config: &Config, flag: &SourceConfig) -> Vec<CheckFinding> {
    let of = |it: SwitchFinding| finding(flag, it);
    let of_broker = |it: &SourceConfig| {
        let same = it.pbx == flag.pbx && it.url.format() == Format::Freeswitch;
        same && matches!(it.url.transport, Transport::Amqp(_))
    };
    match source_of(0, flag, None, &StreamReading::default())
        .survey_switch()
        .await
    {
        Ok(Some(facts)) => {
            let trunks = config.rules.trunks.iter();
            let trunks = trunks.filter(|it| it.pbx.is_none() || it.pbx == flag.pbx);
            let endpoints = trunks.map(|it| {
                let endpoints = it.endpoints().map(str::to_owned);
                (it.name.clone(), endpoints.collect())
            });
            let broker = config.sources.iter().any(of_broker);
            let found = facts.judge(&endpoints.collect::<Vec<_>>(), broker);
            found.into_iter().map(of).collect()
        }
        Ok(None) if of_broker(flag) => {
            let local = flag.url.endpoint().is_some_and(|it| it.is_loopback());
            let text = local.then(|| of_module(module_conf::AMQP)).flatten();
            let found = text.map(|text| module_conf::judge_amqp(&text));
            found.into_iter().flatten().map(of).collect()
        }
        Ok(None) if flag.url.format() == Format::FreeswitchCdr => {
            let text = of_module(module_conf::JSON_CDR);
            let found = text.map(|text| module_conf::judge_json_cdr(&text));
            found.into_iter().flatten().map(of).collect()
        }
        // Why it cannot be asked was said of the source.
        Ok(None) | Err(_) => Vec::new(),
    }
}

/// The file of a module of the switch on this machine, where there is one and it may be read.
fn of_module(file: &str) -> Option<String> {
    let mut folders = module_conf::FOLDERS.iter();
    folders.find_map(|folder| std::fs::read_to_string(format!("{folder}/{file}")).ok())
}

fn finding(flag: &SourceConfig, found: SwitchFinding) -> CheckFinding {
    let name = format!("{} of {}", found.about, short(flag));
    match found.weight {
        Weight::Well => well(name, found.what),
        Weight::Advice => advice(name, found.what, found.todo),
        Weight::Fault => fault(Code::Configuration, name, found.what, found.todo),
    }
}
