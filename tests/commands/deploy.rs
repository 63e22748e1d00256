//! Tests the systemd units, the broker's definitions, the alert rules, and the PBX files in
//! `deploy/`. Tests that need systemd-analyze or promtool print a line if the program is missing.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The metrics that the program exports under `/metrics`.
const METRICS: [&str; 23] = [
    "callbridge_calls",
    "callbridge_requests_total",
    "callbridge_budget_slots",
    "callbridge_backlog_drain_seconds",
    "callbridge_source_up",
    "callbridge_source_events_total",
    "callbridge_source_last_event_timestamp_seconds",
    "callbridge_gaps_total",
    "callbridge_last_gap_timestamp_seconds",
    "callbridge_dead_letters",
    "callbridge_waiting_calls",
    "callbridge_token_expiry_timestamp_seconds",
    "callbridge_paused",
    "callbridge_request_duration_seconds",
    "callbridge_commit_duration_seconds",
    "callbridge_build_info",
    "callbridge_unmatched_channels_total",
    "callbridge_degraded",
    "callbridge_log_lines_lost_total",
    "callbridge_missed_customers",
    "callbridge_trunk_calls_total",
    "callbridge_audit_unexplained",
    "callbridge_audit_different",
];

/// Returns the path of a file in `deploy/`.
fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(deploy(file)).expect("a file of deploy/")
}

/// Runs a program of the system for the test called `test`. If the program is not installed, prints
/// a line and returns `None`.
fn run(program: &str, arguments: &[&str], test: &str) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(_) => {
            // Written to stderr directly, because the test harness hides the output of passing
            // tests.
            let line = format!("\nnot run: {test} ({program} is not installed)\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            None
        }
    }
}

/// Writes a copy of the unit that starts the built program. Returns the folder of the copy, which
/// is deleted when the value is dropped, and the path of the copy.
fn built_unit() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("callbridge@.service");
    let installed = "ExecStart=/usr/local/bin/callbridge ";
    let built = format!("ExecStart={} ", env!("CARGO_BIN_EXE_callbridge"));
    let unit = text("systemd/callbridge@.service");
    assert!(
        unit.contains(installed),
        "the unit starts /usr/local/bin/callbridge"
    );
    fs::write(&path, unit.replace(installed, &built)).expect("a written unit");
    (folder, path.to_str().expect("a path in UTF-8").to_owned())
}

#[test]
fn systemd_unit_passes_systemd_analyze_verify() {
    let (_folder, path) = built_unit();
    let test = "systemd_unit_passes_systemd_analyze_verify";
    let Some(output) = run("systemd-analyze", &["verify", &path], test) else {
        return;
    };
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "systemd-analyze verify: {messages}"
    );
    let complaints: Vec<&str> = messages
        .lines()
        .filter(|line| line.contains("callbridge"))
        .collect();
    assert!(
        complaints.is_empty(),
        "systemd-analyze verify: {complaints:#?}"
    );
}

#[test]
fn instances_belong_to_one_target_that_systemd_accepts() {
    let (folder, path) = built_unit();
    let unit = text("systemd/callbridge@.service");
    for line in [
        "PartOf=callbridge.target",
        "WantedBy=multi-user.target callbridge.target",
    ] {
        assert!(unit.lines().any(|found| found == line), "no line {line}");
    }
    let target = folder.path().join("callbridge.target");
    fs::write(&target, text("systemd/callbridge.target")).expect("a written target");
    let target = target.to_str().expect("a path in UTF-8");
    let test = "instances_belong_to_one_target_that_systemd_accepts";
    let Some(output) = run("systemd-analyze", &["verify", target, &path], test) else {
        return;
    };
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !messages.contains("callbridge.target"),
        "{messages}"
    );
}

#[test]
fn systemd_unit_exposure_is_at_most_two() {
    let (_folder, path) = built_unit();
    let arguments = ["security", "--offline=true", "--threshold=20", &path];
    let test = "systemd_unit_exposure_is_at_most_two";
    let Some(output) = run("systemd-analyze", &arguments, test) else {
        return;
    };
    let messages = String::from_utf8_lossy(&output.stdout);
    let exposure: f64 = messages
        .split("Overall exposure level for ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().nth(1))
        .and_then(|level| level.parse().ok())
        .unwrap_or_else(|| panic!("no exposure level in: {messages}"));
    assert!(
        output.status.success() && exposure <= 2.0,
        "exposure {exposure}: {messages}"
    );
}

/// Returns the lines of a unit file, without comments and empty lines.
fn unit_lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .collect()
}

#[test]
fn packaged_unit_differs_only_in_its_program_path() {
    let ours = text("systemd/callbridge@.service")
        .replace("/usr/local/bin/callbridge", "/usr/bin/callbridge");
    let packaged = text("debian/callbridge@.service");
    assert_eq!(unit_lines(&packaged), unit_lines(&ours));
}

#[test]
fn packaged_instance_sees_only_its_own_state() {
    let test = "packaged_instance_sees_only_its_own_state";
    for name in ["callbridge@.service", "callbridge-audit@.service"] {
        let unit = text(&format!("debian/{name}"));
        for line in [
            "PrivateMounts=yes",
            "TemporaryFileSystem=/var/lib/callbridge:ro",
            "BindPaths=/var/lib/callbridge/%i",
        ] {
            let has_line = unit.lines().any(|found| found == line);
            assert!(has_line, "{name}: no line {line}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name.replace('@', "@pbx1"));
        let unit = unit.replace("/usr/bin/callbridge", env!("CARGO_BIN_EXE_callbridge"));
        fs::write(&path, unit).expect("a written unit");
        let path = path.to_str().expect("a path in UTF-8");
        let Some(output) = run("systemd-analyze", &["verify", path], test) else {
            return;
        };
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !messages.contains(name),
            "{messages}"
        );
    }
}

#[test]
fn dashboard_queries_use_only_exported_metrics() {
    let dashboard: Value = serde_json::from_str(&text("grafana/callbridge.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries: Vec<&str> = targets
        .map(|target| target["expr"].as_str().expect("a query"))
        .collect();
    assert!(queries.len() >= panels.len() && panels.len() > 10);
    for query in queries {
        let names = metric_names(query);
        assert!(!names.is_empty(), "{query} uses no metric of callbridge");
        for name in names {
            let base = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(METRICS.contains(&base), "{name} in {query}");
        }
    }
}

#[test]
fn systemd_unit_sets_notify_watchdog_and_credentials() {
    let unit = text("systemd/callbridge@.service");
    for line in [
        "Type=notify",
        "ExecStart=/usr/local/bin/callbridge run @/etc/callbridge/%i.flags",
        "LoadCredential=token:callbridge.%i.token",
        "LoadCredential=ami-secret:callbridge.%i.ami-secret",
        "LoadCredential=esl-secret:callbridge.%i.esl-secret",
        "LoadCredential=amqp-secret:callbridge.%i.amqp-secret",
        "LoadCredential=dead-letter-secret:callbridge.%i.dead-letter-secret",
        "LoadCredential=webhook-secret:callbridge.%i.webhook-secret",
        "LimitCORE=0",
        "MemoryMax=1G",
        "TasksMax=128",
        "StateDirectory=callbridge/%i",
        "User=callbridge",
    ] {
        assert!(unit.lines().any(|found| found == line), "no line {line}");
    }
    assert!(unit.lines().any(|line| line.starts_with("WatchdogSec=")));
}

#[test]
fn audit_unit_has_main_sandbox_no_network_and_a_timeout() {
    let (main, audit) = (
        text("debian/callbridge@.service"),
        text("debian/callbridge-audit@.service"),
    );
    // These settings differ on purpose: the audit reads the PBX's file through a group, and
    // connects only to a Unix socket.
    let exceptions = [
        "PrivateUsers=",
        "RestrictAddressFamilies=",
        "ProtectSystem=strict",
    ];
    let main_lines = main
        .lines()
        .skip_while(|line| *line != "NoNewPrivileges=yes");
    let main_lines = main_lines.take_while(|line| !line.is_empty() && *line != "[Install]");
    let sandbox = main_lines.filter(|line| {
        !line.starts_with('#') && !exceptions.iter().any(|prefix| line.starts_with(prefix))
    });
    let missing: Vec<&str> = sandbox
        .filter(|setting| !audit.lines().any(|line| line == *setting))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for line in [
        "RestrictAddressFamilies=AF_UNIX",
        "ProtectSystem=strict",
        "TimeoutStartSec=30min",
    ] {
        assert!(audit.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn prerm_script_changes_state_folders_only_as_owner() {
    let script = text("debian/prerm");
    let lines = script
        .lines()
        .filter(|line| line.contains("$state/") || line.contains("--state"));
    let as_root = lines.filter(|line| !line.contains("as_owner") && !line.contains("[ -e "));
    let as_root: Vec<&str> = as_root
        .filter(|line| !line.contains("for state in"))
        .collect();
    assert!(as_root.is_empty(), "{as_root:?}");
}

/// Returns the value of `key` in each entry of one list of the definitions.
fn names(definitions: &Value, list: &str, key: &str) -> BTreeSet<String> {
    definitions[list]
        .as_array()
        .unwrap_or_else(|| panic!("no list {list}"))
        .iter()
        .map(|entry| entry[key].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn rabbitmq_queues_are_durable_and_keep_unreadable_messages() {
    let definitions: Value =
        serde_json::from_str(&text("rabbitmq/definitions.json")).expect("valid JSON");
    let queues = names(&definitions, "queues", "name");
    for queue in [
        "asterisk_cel",
        "asterisk_cdr",
        "freeswitch",
        "asterisk_unreadable",
        "callbridge_dead_letters",
    ] {
        assert!(queues.contains(queue), "no queue {queue}");
    }
    let queue_list = definitions["queues"].as_array().expect("queues");
    assert!(queue_list.iter().all(|queue| queue["durable"] == true));
    let policies = definitions["policies"].as_array().expect("policies");
    let exchange = policies
        .iter()
        .find(|policy| policy["pattern"] == "^(asterisk_(cel|cdr)|freeswitch)$")
        .and_then(|policy| policy["definition"]["dead-letter-exchange"].as_str())
        .expect("a dead-letter exchange for the PBX's queues");
    assert!(names(&definitions, "exchanges", "name").contains(exchange));
    let bindings = definitions["bindings"].as_array().expect("bindings");
    assert!(
        bindings
            .iter()
            .any(|bound| bound["source"] == exchange
                && bound["destination"] == "asterisk_unreadable")
    );
}

#[test]
fn rabbitmq_users_have_no_password_or_extra_configure_right() {
    let definitions: Value =
        serde_json::from_str(&text("rabbitmq/definitions.json")).expect("valid JSON");
    let users = definitions["users"].as_array().expect("users");
    assert!(!users.is_empty() && users.iter().all(|user| user["password_hash"] == ""));
    let permissions = definitions["permissions"].as_array().expect("permissions");
    for given in permissions {
        // mod_amqp declares its exchange at each start, even if the exchange exists.
        let expected = if given["user"] == "freeswitch" {
            "^TAP\\.Events$"
        } else {
            "^$"
        };
        assert_eq!(given["configure"], expected, "{given}");
    }
    assert_eq!(
        names(&definitions, "permissions", "user"),
        names(&definitions, "users", "name")
    );
}

/// Returns every name in `text` that starts with `callbridge_`.
fn metric_names(text: &str) -> BTreeSet<&str> {
    text.match_indices("callbridge_")
        .map(|(at, _)| {
            let rest = &text[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        })
        .collect()
}

#[test]
fn alert_rules_use_only_exported_metrics_and_cover_key_ones() {
    let rules = text("prometheus/callbridge.rules.yml");
    let expressions = rules.split("expr:").skip(1);
    let expressions = expressions.map(|rest| rest.split("labels:").next().unwrap_or_default());
    let expressions: String = expressions.collect();
    let used = metric_names(&expressions);
    let unknown: Vec<_> = used.iter().filter(|name| !METRICS.contains(name)).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}");
    for needed in [
        "callbridge_dead_letters",
        "callbridge_waiting_calls",
        "callbridge_paused",
        "callbridge_source_up",
        "callbridge_backlog_drain_seconds",
        "callbridge_token_expiry_timestamp_seconds",
        "callbridge_unmatched_channels_total",
    ] {
        assert!(used.contains(needed), "no rule on {needed}");
    }
}

#[test]
fn prometheus_accepts_the_alert_rules() {
    for file in [
        "prometheus/callbridge.rules.yml",
        "hub/callbridge-hub.rules.yml",
    ] {
        let path = deploy(file);
        let arguments = ["check", "rules", path.to_str().expect("a path in UTF-8")];
        let Some(output) = run("promtool", &arguments, "prometheus_accepts_the_alert_rules") else {
            return;
        };
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool check rules: {messages}");
    }
}

/// Promise: Each alert rule fires when it should, and only then.
#[test]
fn alert_rules_fire_when_due_and_only_then() {
    for rules in ["prometheus/callbridge", "hub/callbridge-hub"] {
        test_alerts(rules);
    }
}

/// Asserts that each alert of a rules file has a case in which the alert fires and a case in which
/// it does not, and runs the cases with promtool.
fn test_alerts(name: &str) {
    let test = "alert_rules_fire_when_due_and_only_then";
    let cases_file = format!("{name}.rules.test.yml");
    let (rules, cases) = (text(&format!("{name}.rules.yml")), text(&cases_file));
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let name = format!("alertname: {alert}");
        // The name of another alert can start with this name.
        let cases_of_alert = cases
            .split(&name)
            .skip(1)
            .filter(|after| after.starts_with([',', '\n']));
        let (quiet, firing): (Vec<&str>, Vec<&str>) =
            cases_of_alert.partition(|after| after.starts_with(", exp_alerts: []}"));
        assert!(
            !quiet.is_empty() && !firing.is_empty(),
            "no two cases of {alert}"
        );
    }
    let path = deploy(&cases_file);
    let arguments = ["test", "rules", path.to_str().expect("a path in UTF-8")];
    let Some(output) = run("promtool", &arguments, test) else {
        return;
    };
    let messages = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "promtool test rules: {messages}");
}

fn setting<'a>(manager: &'a str, key: &str) -> Option<&'a str> {
    manager
        .lines()
        .filter_map(|line| line.split(';').next()?.split_once('='))
        .find(|(found, _)| found.trim() == key)
        .map(|(_, value)| value.trim())
}

#[test]
fn manager_conf_reads_timed_call_events_with_minimal_rights() {
    let manager = text("asterisk/manager.conf");
    assert_eq!(setting(&manager, "timestampevents"), Some("yes"));
    assert_eq!(
        setting(&manager, "read"),
        Some("call,cdr,system,agent,user")
    );
    // With `system`, `config`, or `command`, the account could read the secrets of the PBX.
    assert_eq!(setting(&manager, "write"), Some("reporting,user"));
    // All accounts share this setting. A second line would remove the variables of other accounts.
    assert_eq!(setting(&manager, "channelvars"), None);
    assert!(manager.contains(";channelvars = LEAD_ID\n"));
    assert!(manager.contains("install -m 640 -o root -g asterisk "));
    assert_eq!(setting(&manager, "secret"), Some("CHANGE-ME"));
    // The account's filter passes the events that callbridge decodes, and the event that `check`
    // uses. There is one line per event, because some releases read `(A|B)` as text and would pass
    // nothing.
    let filters = manager
        .lines()
        .filter_map(|line| line.strip_prefix("eventfilter = ^Event: "));
    let names: BTreeSet<&str> = filters
        .map(|pattern| pattern.strip_suffix("[[:space:]]").expect("a whole name"))
        .collect();
    let rows = ["CoreShowChannel", "CoreShowChannelsComplete"];
    let wanted = callbridge_asterisk::DECODED.split(' ');
    let wanted = wanted.filter(|name| !rows.contains(name));
    assert_eq!(names, wanted.chain(["UserEvent"]).collect());
}

#[test]
fn cel_settings_have_all_events_and_microsecond_times() {
    let cel = text("asterisk/cel.conf");
    let lines = cel.lines().filter_map(|line| line.split(';').next());
    let settings: Vec<(&str, &str)> = lines
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    // Any name that Asterisk 12 or later does not know turns off all of CEL.
    assert!(settings.contains(&("events", "ALL")), "{settings:?}");
    assert!(settings.contains(&("enable", "yes")), "{settings:?}");
    // Without `dateformat`, times have microseconds. Whole seconds are not enough.
    assert!(settings.iter().all(|(key, _)| *key != "dateformat"));
}

#[test]
fn example_flags_file_has_no_errors() {
    let flags = format!("@{}", deploy("systemd/example.flags").display());
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/pickup/ami.raw");
    let output = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args(["explain", "--format", "ami", &flags])
        .arg(recording)
        .env_clear()
        .env("CALLBRIDGE_AMI_SECRET", "bridgesecret")
        .output()
        .expect("the program runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{messages}");
}

#[test]
fn freeswitch_files_have_required_events_and_subscription() {
    let conf = text("freeswitch/amqp.conf.xml");
    assert_eq!(callbridge_freeswitch::module_conf::judge_amqp(&conf), []);
    assert!(conf.contains(&callbridge_freeswitch::module_conf::event_filter()));
    let json_cdr = text("freeswitch/json_cdr.conf.xml");
    let found = callbridge_freeswitch::module_conf::judge_json_cdr(&json_cdr);
    assert_eq!(found, []);
    let page = text("freeswitch/README.md");
    let subscription = callbridge_freeswitch::subscription();
    assert!(
        page.contains(&format!("\n{subscription}\n")),
        "{subscription}"
    );
    // Comments must be valid for an XML parser.
    for file in ["amqp", "event_socket", "acl"] {
        let conf = text(&format!("freeswitch/{file}.conf.xml"));
        let balanced = conf.matches("<!--").count() == conf.matches("-->").count();
        assert!(balanced && conf.contains("</configuration>"), "{file}");
        assert!(!conf.contains("ClueCon"), "{file}");
    }
}
