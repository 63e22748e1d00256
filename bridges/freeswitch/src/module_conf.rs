//! Checks the `amqp.conf.xml` and `json_cdr.conf.xml` files of a switch on this machine, to find
//! out whether mod_amqp publishes all the events that callbridge needs and whether mod_json_cdr
//! writes all legs. Connections and their passwords aren't read.

use crate::rule::{EVENTS, EventRule};
use crate::survey::{Severity, SwitchFinding};

/// Name of mod_amqp's configuration file.
pub const AMQP: &str = "amqp.conf.xml";
/// Name of mod_json_cdr's configuration file.
pub const JSON_CDR: &str = "json_cdr.conf.xml";

/// Directories where FreeSWITCH installations keep their modules' files.
pub const FOLDERS: [&str; 3] = [
    "/etc/freeswitch/autoload_configs",
    "/usr/local/freeswitch/conf/autoload_configs",
    "/opt/freeswitch/conf/autoload_configs",
];
/// Words that FreeSWITCH accepts as yes, in addition to any nonzero number.
const YES: [&str; 7] = ["yes", "on", "true", "t", "enabled", "active", "allow"];
/// Prefix of an event name in `event_filter`.
const PREFIX: &str = "SWITCH_EVENT_";

/// Returns the line for `amqp.conf.xml` that makes mod_amqp publish all the events that callbridge
/// needs.
pub fn event_filter() -> String {
    let named: Vec<String> = needed_events()
        .map(|name| format!("{PREFIX}{name}"))
        .collect();
    let events = named.join(",");
    format!("<param name=\"event_filter\" value=\"{events}\"/>")
}

/// Returns the names of the events that callbridge needs. `CUSTOM` is needed for conferences,
/// because mod_amqp publishes either all of the modules' events or none of them.
fn needed_events() -> impl Iterator<Item = &'static str> {
    let events = EVENTS.iter().filter(|(_, rule)| *rule != EventRule::Dump);
    events.map(|(name, _)| *name).chain(["CUSTOM"])
}

/// Returns `true` if FreeSWITCH accepts the value as yes.
pub(crate) fn is_yes(value: &str) -> bool {
    let value = value.trim().to_ascii_lowercase();
    YES.contains(&&*value) || value.parse::<i64>().is_ok_and(|number| number != 0)
}

/// Returns the problems found in the text of `json_cdr.conf.xml`.
pub fn judge_json_cdr(text: &str) -> Vec<SwitchFinding> {
    let text = match without_comments(text, JSON_CDR) {
        Ok(text) => text,
        Err(unclosed) => return vec![unclosed],
    };
    match values(&text, "log-b-leg").last() {
        // `log-b-leg` is on by default.
        Some(value) if !is_yes(value) => {
            let about = "log-b-leg of mod_json_cdr";
            let message = "the legs that the switch dials are not written: it is not known who \
                           answered, and outbound calls are reported only if they were dialed as \
                           sofia/gateway/NAME/NUMBER";
            let fix = reload("<param name=\"log-b-leg\" value=\"true\"/>", "json_cdr");
            vec![SwitchFinding::new(Severity::Fault, about, message, fix)]
        }
        Some(_) | None => Vec::new(),
    }
}

/// Returns the problems found in the text of `amqp.conf.xml`, or none if the file has no producer.
pub fn judge_amqp(text: &str) -> Vec<SwitchFinding> {
    let text = match without_comments(text, AMQP) {
        Ok(text) => text,
        Err(unclosed) => return vec![unclosed],
    };
    let Some(producers) = text.split("<producers>").nth(1) else {
        return Vec::new();
    };
    let producers = producers.split("</producers>").next().unwrap_or_default();
    let filters: Vec<&str> = values(producers, "event_filter").collect();
    let missing: Vec<&str> = needed_events()
        .filter(|name| !filters.iter().any(|filter| lets_pass(filter, name)))
        .collect();
    let mut found = Vec::new();
    if !missing.is_empty() {
        let message = format!(
            "it leaves out events that calls need: {}",
            missing.join(", ")
        );
        let about = "event_filter of mod_amqp";
        let fix = reload(&event_filter(), "amqp");
        found.push(SwitchFinding::new(Severity::Fault, about, message, fix));
    }
    if !values(producers, "delivery-mode").any(|mode| mode.trim() == "2") {
        let about = "delivery-mode of mod_amqp";
        let message = "its messages are not persistent: a restart of the broker loses the messages \
                       in the queue, even if the queue is durable";
        let fix = reload("<param name=\"delivery-mode\" value=\"2\"/>", "amqp");
        found.push(SwitchFinding::new(Severity::Advice, about, message, fix));
    }
    found
}

/// Returns `true` if an `event_filter` with the value `filter` lets through the event `name`.
fn lets_pass(filter: &str, name: &str) -> bool {
    filter.split(',').any(|word| {
        let word = word.trim();
        let event = word.strip_prefix(PREFIX).unwrap_or(word);
        event == name || event == "ALL"
    })
}

/// Returns the instructions for the fix, which is to add `line` to the module's file and reload the
/// module.
fn reload(line: &str, module: &str) -> String {
    format!("write {line} into {module}.conf.xml, then `reload mod_{module}`")
}

/// Strips XML comments from `text`, or returns a finding about `file` if a comment isn't closed.
fn without_comments(text: &str, file: &str) -> Result<String, SwitchFinding> {
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("<!--") {
        all.push_str(before);
        let Some((_, after)) = comment.split_once("-->") else {
            let line = text[..text.len() - comment.len()].lines().count();
            let message = format!(
                "the comment that begins in line {line} does not end: the switch ignores \
                 everything after it"
            );
            let fix = format!("write --> where it ends, then reload the module of {file}");
            return Err(SwitchFinding::new(Severity::Fault, file, message, fix));
        };
        rest = after;
    }
    all.push_str(rest);
    Ok(all)
}

/// Returns the values of all parameters called `name`.
fn values<'t>(text: &'t str, name: &'t str) -> impl Iterator<Item = &'t str> {
    text.split("<param ").skip(1).filter_map(move |param| {
        let param = param.split('>').next().unwrap_or_default();
        (attribute(param, "name=")? == name).then(|| attribute(param, "value="))?
    })
}

fn attribute<'t>(tag: &'t str, key: &str) -> Option<&'t str> {
    let (_, rest) = tag.split_once(key)?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
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
    fn shipped_filter_is_reported_for_bridge_and_delivery_mode() {
        let shipped = "<!-- <param name=\"event_filter\" value=\"SWITCH_EVENT_ALL\"/> -->
            <param name=\"event_filter\" value=\"SWITCH_EVENT_CHANNEL_CREATE,\
            SWITCH_EVENT_CHANNEL_DESTROY,SWITCH_EVENT_HEARTBEAT,SWITCH_EVENT_DTMF\"/>";
        let found = judge_amqp(&conf(shipped));
        assert_eq!(found.len(), 2);
        assert!(found[0].message.contains("CHANNEL_BRIDGE") && found[0].weight == Severity::Fault);
        assert!(!found[0].message.contains("CHANNEL_CREATE"));
        assert!(found[0].fix.contains("SWITCH_EVENT_CHANNEL_BRIDGE,"));
        assert!(found[1].fix.contains("delivery-mode") && found[1].weight == Severity::Advice);
        assert!(!format!("{found:?}").contains("hunter2"));
    }

    #[test]
    fn advised_filter_and_all_events_pass_the_check() {
        let kept = "<param name=\"delivery-mode\" value=\"2\"/>";
        for filter in [
            event_filter(),
            "<param name='event_filter' value='SWITCH_EVENT_ALL'/>".to_owned(),
        ] {
            assert_eq!(judge_amqp(&conf(&format!("{filter}{kept}"))), []);
        }
        assert_eq!(judge_amqp("<configuration name=\"amqp.conf\"/>"), []);
    }

    #[test]
    fn unclosed_comment_is_reported_with_its_line() {
        let text = format!("<x>\n<!-- one -->\n<!-- two\n{}", conf(&event_filter()));
        for found in [judge_amqp(&text), judge_json_cdr(&text)] {
            assert_eq!(found.len(), 1);
            assert!(found[0].message.contains("line 3") && found[0].weight == Severity::Fault);
        }
    }

    fn judge_log_b_leg(value: &str) -> Vec<SwitchFinding> {
        let param = format!("<param name=\"log-b-leg\" value=\"{value}\"/>");
        judge_json_cdr(&format!("<settings>{param}</settings>"))
    }

    #[test]
    fn disabled_log_b_leg_is_reported() {
        for off in ["false", "0", "no", ""] {
            assert!(judge_log_b_leg(off)[0].fix.contains("log-b-leg"), "{off}");
        }
        for on in ["true", "1", "YES", "enabled"] {
            assert_eq!(judge_log_b_leg(on), [], "{on}");
        }
        assert_eq!(
            judge_json_cdr("<!-- <param name=\"log-b-leg\" value=\"false\"/> -->"),
            []
        );
    }
}
