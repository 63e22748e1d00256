//! `amqp.conf.xml` of a switch on this machine, where it can be read: whether what mod_amqp
//! publishes suffices. The connections in it, and with them its passwords, are stepped over.

use crate::rule::{EVENTS, EventRule};
use crate::survey::{SwitchFinding, Weight};

/// Where FreeSWITCH keeps it.
pub const PLACES: [&str; 3] = [
    "/etc/freeswitch/autoload_configs/amqp.conf.xml",
    "/usr/local/freeswitch/conf/autoload_configs/amqp.conf.xml",
    "/opt/freeswitch/conf/autoload_configs/amqp.conf.xml",
];
/// Begins an event's name in the filter.
const PREFIX: &str = "SWITCH_EVENT_";

/// The line that suffices.
pub fn event_filter() -> String {
    let named: Vec<String> = needed().map(|it| format!("{PREFIX}{it}")).collect();
    let events = named.join(",");
    format!("<param name=\"event_filter\" value=\"{events}\"/>")
}

/// What calls depend on. Of modules' events mod_amqp publishes all or none.
fn needed() -> impl Iterator<Item = &'static str> {
    let events = EVENTS.iter().filter(|(_, rule)| *rule != EventRule::Dump);
    events.map(|(name, _)| *name).chain(["CUSTOM"])
}

/// What is wrong with this text of the file; nothing if no producer stands in it.
pub fn judge(text: &str) -> Vec<SwitchFinding> {
    let text = without_comments(text);
    let producers = text.split("<producers>").nth(1);
    let producers = producers.map(|it| it.split("</producers>").next().unwrap_or(it));
    let Some(producers) = producers else {
        return Vec::new();
    };
    let filters: Vec<&str> = values(producers, "event_filter").collect();
    let published = |name: &str| {
        let mut all = filters.iter().flat_map(|it| it.split(','));
        all.any(|it| {
            let it = it.trim();
            let it = it.strip_prefix(PREFIX).unwrap_or(it);
            it == name || it == "ALL"
        })
    };
    let missing: Vec<&str> = needed().filter(|name| !published(name)).collect();
    let mut found = Vec::new();
    if !missing.is_empty() {
        found.push(SwitchFinding::new(
            Weight::Fault,
            "event_filter of mod_amqp",
            format!("it leaves out what calls depend on: {}", missing.join(", ")),
            format!(
                "write {} into amqp.conf.xml, then `reload mod_amqp`",
                event_filter()
            ),
        ));
    }
    if !values(producers, "delivery-mode").any(|it| it.trim() == "2") {
        found.push(SwitchFinding::new(
            Weight::Advice,
            "delivery-mode of mod_amqp",
            "its messages are not persistent: a restart of the broker loses those that wait, \
             though the queue is durable",
            "write <param name=\"delivery-mode\" value=\"2\"/> into amqp.conf.xml, then `reload \
             mod_amqp`",
        ));
    }
    found
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("<!--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut all, part| {
        all.push_str(part.split_once("-->").map_or("", |(_, rest)| rest));
        all
    })
}

/// The values of the parameters of this name.
fn values<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = &'t str> {
    let params = text.split("<param ").skip(1);
    params.filter_map(move |param| {
        let param = param.split('>').next().unwrap_or_default();
        (attribute(param, "name=")? == name).then(|| attribute(param, "value="))?
    })
}

fn attribute<'t>(tag: &'t str, key: &str) -> Option<&'t str> {
    let (_, rest) = tag.split_once(key)?;
    let quote = rest.chars().next().filter(|it| matches!(it, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(params: &str) -> String {
        format!(
            "<configuration name=\"amqp.conf\"><producers><profile name=\"default\"><connections>\
             <connection><param name=\"password\" value=\"hunter2\"/></connection></connections>\
             <params>{params}</params></profile></producers></configuration>"
        )
    }

    #[test]
    fn the_filter_as_shipped_lacks_the_bridge_and_messages_are_not_kept() {
        let shipped = "<!-- <param name=\"event_filter\" value=\"SWITCH_EVENT_ALL\"/> -->
            <param name=\"event_filter\" value=\"SWITCH_EVENT_CHANNEL_CREATE,\
            SWITCH_EVENT_CHANNEL_DESTROY,SWITCH_EVENT_HEARTBEAT,SWITCH_EVENT_DTMF\"/>";
        let found = judge(&conf(shipped));
        assert_eq!(found.len(), 2);
        assert!(found[0].what.contains("CHANNEL_BRIDGE") && found[0].weight == Weight::Fault);
        assert!(!found[0].what.contains("CHANNEL_CREATE"));
        assert!(found[0].todo.contains("SWITCH_EVENT_CHANNEL_BRIDGE,"));
        assert!(found[1].todo.contains("delivery-mode") && found[1].weight == Weight::Advice);
        assert!(!format!("{found:?}").contains("hunter2"));
    }

    #[test]
    fn the_line_that_is_advised_suffices_and_so_does_all() {
        let kept = "<param name=\"delivery-mode\" value=\"2\"/>";
        for filter in [
            event_filter(),
            "<param name='event_filter' value='SWITCH_EVENT_ALL'/>".to_owned(),
        ] {
            assert_eq!(judge(&conf(&format!("{filter}{kept}"))), []);
        }
        assert_eq!(judge("<configuration name=\"amqp.conf\"/>"), []);
    }
}
