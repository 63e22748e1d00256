//! Tests the command line: exit codes, environment variables, `@FILE`, help, and that all errors
//! are reported at once.

use callbridge::Failure;
use callbridge_model::Environment;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Output};

/// Runs the program with these arguments, and with no environment variables except `variables`.
fn callbridge(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .env_clear()
        .envs(variables.iter().copied())
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// Parses a command line in this process, as the program does.
fn read(arguments: &[&str], variables: &[(&str, &str)]) -> Result<callbridge::Command, Failure> {
    let mut words = vec![OsString::from("callbridge")];
    words.extend(arguments.iter().map(OsString::from));
    let environment = Environment::from_pairs(variables.iter().copied());
    callbridge::read(words, &environment)
}

/// Returns the message of a command line that is refused with this exit code before anything is
/// opened.
fn refusal_message(arguments: &[&str], variables: &[(&str, &str)], code: u8) -> String {
    match read(arguments, variables) {
        Ok(command) => panic!("not refused: {command:?}"),
        Err(failure) => {
            assert_eq!(failure.code().number(), code, "{failure}");
            failure.to_string()
        }
    }
}

/// Returns the text of a command that only prints, such as `--help`.
fn text(arguments: &[&str]) -> String {
    match read(arguments, &[]) {
        Ok(callbridge::Command::Print(text)) => String::from_utf8(text).expect("UTF-8"),
        other => panic!("the command prints no text: {other:?}"),
    }
}

/// Runs a command that must fail with this exit code, and returns its message on stderr.
fn failure_message(arguments: &[&str], variables: &[(&str, &str)], code: i32) -> String {
    let output = callbridge(arguments, variables);
    let words = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{words}");
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    words
}

const HOME: (&str, &str) = ("HOME", "/home/callbridge");

/// Flags of `run` that are correct, except that the state folder cannot be created. `run` exits
/// with 73.
const GOOD: [&str; 9] = [
    "run",
    "--source=file:///nowhere/ami.raw?format=ami&from=start",
    "--trunk=city=PJSIP/city,country=UZ,lead=var:LEAD_ID",
    "--crm-url=http://127.0.0.1:1",
    "--token-file=/nowhere/token",
    "--state=/proc/none",
    "--until-idle",
    "--log=error",
    "--pbx-id=test",
];

/// Returns the first 60 characters of a line.
fn head(line: &str) -> String {
    let head: String = line.chars().take(60).collect();
    head.trim_end().to_owned()
}

/// Promise: All errors of the flags are reported at once.
#[test]
fn flag_errors_are_all_reported_in_one_message() {
    let words = refusal_message(
        &[
            "run",
            "--source=amqp://guest:guest@h/v?queue=q&format=asterisk-cel",
            "--trunk=city=PJSIP/city,country=QQ",
            "--trunk=gsm=Dongle",
            "--crm-url=http://crm.example",
            "--rate=61/60s",
            "--field=mood=good",
            "--settle=soon",
            "--not-before=yesterday",
            "--pbx-timezone=Mars/Olympus",
            "--listen=9464",
            "--log=loud",
            "--max-open-calls=0",
            "--crm-proxy=http://u:p@proxy",
            "--frobnicate",
        ],
        &[],
        64,
    );
    let heads: Vec<String> = words.lines().map(head).collect();
    insta::assert_snapshot!(heads.join("\n"), @"
    16 errors in the flags. Nothing was started:
      --frobnicate: no such flag
      --source: amqp://guest:***@h/v?queue=q&format=asterisk-cel
      --pbx-timezone: `Mars/Olympus` is not a time zone: give it
      --not-before: `yesterday` is not a date: give it as 2026-1
      --trunk city=PJSIP/city: country: `QQ` is not a country co
      --trunk gsm=Dongle: `Dongle` is not an endpoint: give the
      --crm-url http://crm.example: http is allowed to a loopbac
      --rate 61/60s: up to 61 requests in 60 s, but the CRM allo
      --field mood=good: only the names of talk, phone and exten
      --crm-proxy: remove user and password: every user of this
      --token-file: no token: give --token-file FILE, the system
      --settle: `soon` is not a time span: give it as 500ms, 10s
      --max-open-calls: `0` is invalid: give a whole number from
      --state: is missing, and $HOME is not set: give a folder o
      --listen: `9464` is not IP:PORT
      --log: `loud` is not a log level: give error, warn, info,
    ");
}

#[test]
fn password_in_a_url_is_refused_and_never_shown() {
    for flag in [
        "--source=amqp://guest:hunter2@h/v?queue=q&format=asterisk-cel",
        "--source=ami://u:hunter2@h",
        "--dead-letter-queue=amqp://guest:hunter2@h/v?queue=q",
        "--crm-url=https://u:hunter2@crm.example",
        "--auth-url=https://u:hunter2@crm.example",
        "--crm-proxy=http://u:hunter2@proxy",
    ] {
        let words = refusal_message(&[&GOOD[..], &[flag]].concat(), &[HOME], 64);
        assert!(!words.contains("hunter2"), "{words}");
        assert!(words.contains("1 error in the flags"), "{flag}: {words}");
    }
}

#[test]
fn equally_specific_endpoint_patterns_are_refused() {
    let trunks = ["--trunk=gsm=PJSIP/c*ty", "--trunk=b=PJSIP/ci*y"];
    let words = refusal_message(&[&GOOD[..], &trunks].concat(), &[HOME], 64);
    assert!(
        words.contains("PJSIP/c*ty") && words.contains("equally long"),
        "{words}"
    );
}

#[test]
fn rate_over_60_per_minute_is_allowed_only_for_loopback() {
    for rate in ["61/60s", "59/59s", "120/120s", "2/1s", "60/6s"] {
        let rate = format!("--rate={rate}");
        let far = ["--crm-url=https://crm.example", &rate];
        let words = refusal_message(&[&GOOD[..], &far].concat(), &[HOME], 64);
        assert!(words.contains("requests in 60 s"), "{words}");
        let near = ["explain", "--call=1", "--crm-url=http://localhost:1", &rate];
        assert!(read(&near, &[HOME]).is_ok(), "{rate}");
    }
    for rate in ["60/60s", "30/30s", "1/1s", "10/1m"] {
        let rate = format!("--rate={rate}");
        let words = refusal_message(
            &["run", "--crm-url=https://crm.example", &rate, "--settle=x"],
            &[HOME],
            64,
        );
        assert!(!words.contains("requests in 60 s"), "{rate}: {words}");
    }
}

#[test]
fn flags_are_read_from_environment_one_value_per_line() {
    let words = failure_message(
        &["run"],
        &[
            HOME,
            (
                "CALLBRIDGE_SOURCE",
                "file:///a?format=ami\nfile:///b?format=nonsense\n",
            ),
            ("CALLBRIDGE_TRUNK", "a=PJSIP/a\nb=PJSIP/b,country=QQ"),
            ("CALLBRIDGE_CRM_URL", "https://crm.example"),
            ("CALLBRIDGE_PBX_ID", "test"),
            ("CALLBRIDGE_TOKEN", "svc_pat_x"),
            ("CALLBRIDGE_RATE", ""),
            ("CALLBRIDGE_REBIND", "yes"),
        ],
        64,
    );
    assert!(words.contains("2 errors"), "{words}");
    assert!(
        words.contains("--trunk b=PJSIP/b: country: `QQ`"),
        "{words}"
    );
    assert!(words.contains("file:///b?format=nonsense"), "{words}");
    assert!(!words.contains("svc_pat_x"));
}

/// Promise: An unknown `CALLBRIDGE_*` variable is an error that lists the known ones.
#[test]
fn unknown_variable_error_lists_known_ones_and_hides_its_value() {
    let variables = [
        HOME,
        ("CALLBRIDGE_AMI_SECRTE", "hunter2"),
        ("CALLBRIDGE_XYZZY", "1"),
    ];
    let words = refusal_message(&GOOD, &variables, 64);
    let line = "CALLBRIDGE_AMI_SECRTE, CALLBRIDGE_XYZZY: no such variable. The known ones are \
                CALLBRIDGE_AMI_SECRET, ";
    assert!(words.contains(line), "{words}");
    for known in ["CALLBRIDGE_DRY_RUN", "CALLBRIDGE_TOKEN", "CALLBRIDGE_STATE"] {
        assert!(words.contains(&format!(", {known}, ")), "{words}");
    }
    assert!(!words.contains("hunter2"), "{words}");
    // Kubernetes sets such variables in every container.
    let others = [HOME, ("CALLBRIDGE_SERVICE_HOST", "10.0.0.1")];
    failure_message(&GOOD, &others, 73);
}

#[test]
fn flag_on_the_command_line_wins_over_its_variable() {
    let words = failure_message(&["run", "--rate=x"], &[HOME, ("CALLBRIDGE_RATE", "y")], 64);
    assert!(
        words.contains("--rate x:") && !words.contains("--rate y"),
        "{words}"
    );
}

#[test]
fn argument_file_is_read_as_one_argument_per_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("flags");
    fs::write(&file, "# the PBX\n--rate=x\n\n--settle\nsoon\n--log loud\n").expect("written");
    let words = refusal_message(&["run", &format!("@{}", file.display())], &[HOME], 64);
    assert!(
        words.contains("--rate x:") && words.contains("--settle: `soon`"),
        "{words}"
    );
    assert!(
        words.contains("is one argument; write --log=loud"),
        "{words}"
    );
    let words = refusal_message(&["run", "@/nowhere/flags"], &[], 66);
    assert!(words.contains("@/nowhere/flags: cannot be read"), "{words}");
}

#[test]
fn dead_commands_without_a_selection_are_refused() {
    for verb in ["retry", "discard", "show"] {
        let words = refusal_message(&["dead", verb, "--state=/nowhere"], &[], 64);
        assert!(
            words
                .contains("no dead letters are selected: give ID…, --reason R, --waiting or --all"),
            "{words}"
        );
    }
    let words = refusal_message(
        &[
            "dead",
            "retry",
            "7",
            "--all",
            "--lead=x",
            "--employee=y",
            "--reason=bad",
        ],
        &[HOME],
        64,
    );
    assert!(
        words.contains("4 errors") && words.contains("give one of no_lead,"),
        "{words}"
    );
}

#[test]
fn help_and_version_use_stdout_and_missing_command_exits_64() {
    let output = callbridge(&["--version"], &[]);
    assert!(output.status.success() && output.stderr.is_empty());
    let version = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(version, text(&["--version"]));
    let form = version
        .trim()
        .strip_prefix("callbridge ")
        .and_then(|rest| rest.split_once(" ("));
    assert!(form.is_some_and(|(number, commit)| number.contains('.') && commit.ends_with(')')));
    for command in [
        "run", "demo", "explain", "check", "status", "calls", "dead", "lead", "sandbox",
    ] {
        assert!(
            text(&["--help"]).contains(&format!("\n  {command} ")),
            "{command}"
        );
        assert!(
            text(&[command, "--help"]).contains("Usage: callbridge "),
            "{command}"
        );
    }
    assert!(text(&["completions", "bash"]).contains("_callbridge"));
    let page = text(&["man"]);
    assert!(page.contains(".TH callbridge 1") && page.contains("CALLBRIDGE DEAD RETRY"));
    for words in [
        "EXIT STATUS",
        "ENVIRONMENT",
        "FILES",
        "EXAMPLES",
        "CALLBRIDGE_AMI_SECRET",
        "/etc/callbridge/NAME.flags",
        "callbridge lead missing \\-\\-csv",
    ] {
        assert!(page.contains(words), "{words} is missing in {page}");
    }
    let check_section = page.split("CALLBRIDGE CHECK").nth(1).expect("its flags");
    let check_section = check_section.split("\n.SH").next().expect("a section");
    assert!(
        check_section.contains("flags of \\fBcallbridge run")
            && check_section.contains("\\-\\-json")
    );
    assert!(refusal_message(&[], &[], 64).contains("no command is given"));
    assert!(refusal_message(&["rnu"], &[], 64).contains("'rnu'"));
    assert!(refusal_message(&["completions", "cmd"], &[], 64).contains("bash, elvish, fish"));
}

#[test]
fn groff_formats_the_manual_page_without_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("callbridge.1");
    fs::write(&path, text(&["man"])).expect("written");
    let groff = Command::new("groff")
        .args(["-Kutf8", "-man", "-ww", "-Wbreak", "-Tutf8"])
        .arg(&path)
        .output();
    let output = groff.expect("groff is missing: `tests/setup` installs it");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaints.is_empty(),
        "{complaints}"
    );
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("Set up a service by answering"), "{shown}");
}

#[test]
fn closed_output_pipe_is_not_a_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .env_clear()
        .arg("man")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
}

/// Returns the message about two sources, with these parameters at the end of their URLs. No trunk
/// is given.
fn message_for(first: &str, second: &str) -> String {
    let sources = [
        format!("--source=ami://bridge@10.0.0.5:5038?secret-file=/s{first}"),
        format!("--source=ami://bridge@10.0.0.6:5038?secret-file=/s{second}"),
    ];
    refusal_message(&["run", &sources[0], &sources[1]], &[], 64)
}

#[test]
fn two_managers_are_refused_unless_pbx_id_is_given() {
    let question = "has no pbx=, and neither has";
    assert!(message_for("", "").contains(question));
    for (first, second) in [("&pbx=a", "&pbx=b"), ("&pbx=a", "&pbx=a"), ("", "&pbx=b")] {
        assert!(
            !message_for(first, second).contains(question),
            "{first} {second}"
        );
    }
}

#[test]
fn missing_pbx_id_is_refused_with_a_fix() {
    assert_eq!(GOOD.last(), Some(&"--pbx-id=test"));
    let unnamed = &GOOD[..GOOD.len() - 1];
    let words = refusal_message(unnamed, &[HOME], 64);
    assert!(words.contains("1 error"), "{words}");
    let url = "file:///nowhere/ami.raw?format=ami&from=start";
    let expected = format!(
        "--pbx-id is missing, and --source {url} has no pbx=. Name this PBX once, for example \
         with --pbx-id office. The name is part of each call's id, so it must never change."
    );
    assert!(words.contains(&expected), "{words}");
    let mut check = unnamed.to_vec();
    check[0] = "check";
    check.retain(|flag| *flag != "--until-idle");
    let words = refusal_message(&check, &[HOME], 64);
    assert!(words.contains(&expected), "{words}");
    let variable = ("CALLBRIDGE_PBX_ID", "office");
    assert!(!failure_message(unnamed, &[HOME, variable], 73).contains("--pbx-id"));
}

#[test]
fn pbx_id_is_not_needed_if_each_source_names_its_pbx() {
    let mut arguments = GOOD[..GOOD.len() - 1].to_vec();
    arguments[1] = "--source=file:///nowhere/ami.raw?format=ami&from=start&pbx=office";
    assert!(!failure_message(&arguments, &[HOME], 73).contains("--pbx-id"));
    arguments[1] = "--source=amqp://guest@127.0.0.1/v?queue=q&format=call";
    let secret = ("CALLBRIDGE_AMQP_SECRET", "hidden");
    assert!(!failure_message(&arguments, &[HOME, secret], 73).contains("--pbx-id"));
    // A recording is evaluated without a PBX id.
    let arguments = [
        "explain",
        "--format=ami",
        "--trunk=city=PJSIP/city",
        "/nowhere",
    ];
    assert_eq!(callbridge(&arguments, &[]).status.code(), Some(66));
}

#[test]
fn run_help_has_groups_examples_and_flags() {
    let output = callbridge(&["run", "--help"], &[("COLUMNS", "100")]);
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let headings: Vec<&str> = help
        .lines()
        .filter(|line| line.ends_with(':') && !line.starts_with(' '))
        .collect();
    assert_eq!(
        headings,
        [
            "Options:",
            "PBX:",
            "Trunks and people:",
            "CRM:",
            "Hub:",
            "Webhooks:",
            "Lookup:",
            "Calls:",
            "Page:",
            "Operation:",
            "Logs:",
            "Examples:"
        ]
    );
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{help}"
    );
    for flag in [
        "--source",
        "--trunk",
        "--country",
        "--strip",
        "--lead",
        "--employees",
        "--unanswered",
        "--crm-url",
        "--auth-url",
        "--token-file",
        "--rate",
        "--field",
        "--crm-ca-file",
        "--crm-proxy",
        "--pbx-id",
        "--pbx-timezone",
        "--columns",
        "--settle",
        "--cdr-wait",
        "--max-call",
        "--max-open-calls",
        "--not-before",
        "--state",
        "--listen",
        "--dead-letter-queue",
        "--log",
        "--log-format",
        "--log-phones",
        "--require-employee",
        "--rebind",
        "--until-idle",
        "--dry-run",
    ] {
        assert!(help.contains(&format!("      {flag}")), "{flag}");
    }
}

#[test]
fn licenses_match_the_linked_libraries() {
    let licenses = text(&["licenses"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/package/licenses");
    let listed = Command::new(script).output().expect("the script runs");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    assert!(listed.lines().count() > 100, "{listed}");
    assert_eq!(
        licenses, listed,
        "run tests/package/licenses >deploy/licenses.txt"
    );
}

#[test]
fn import_of_a_fifo_exits_65_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("state.tar");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a FIFO");
    let state = format!("--state={}", folder.path().join("state").display());
    let path = fifo.display().to_string();
    let words = failure_message(&["state", "import", &path, &state], &[HOME], 65);
    assert!(words.contains("not a regular file"), "{words}");
}

#[test]
fn audit_of_a_fifo_exits_65_and_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("Master.csv");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a FIFO");
    for flag in ["--cel", "--cdr"] {
        let file = format!("{flag}={}", fifo.display());
        let arguments = [
            "audit",
            &file,
            "--state=/nowhere",
            "--pbx-id=test",
            "--no-journal",
        ];
        let words = failure_message(&arguments, &[HOME], 65);
        assert!(words.contains("Master.csv"), "{flag}: {words}");
    }
}
