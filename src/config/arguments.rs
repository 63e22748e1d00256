//! Reads arguments and collects all errors in them, because clap stops at the first error and exits
//! with 2. Also finds environment variables named `CALLBRIDGE_…` that no command reads, because a
//! misspelled variable would be ignored silently.

use super::faults::Faults;
use super::options::{Options, Verb};
use crate::{Failure, Result};
use callbridge_model::{Code, Environment, SecretKind};
use clap::builder::FalseyValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _};
use std::{collections::BTreeSet, ffi::OsStr, ffi::OsString};
use std::{path::Path, path::PathBuf};

/// Maximum bytes of an `@FILE`.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum errors that are reported for one command line.
const FAULTS_MAX: usize = 50;

/// Returns the whole command, with the version and an environment variable for each flag.
pub(crate) fn command() -> Command {
    let version = format!("{} ({})", crate::VERSION, crate::COMMIT);
    let mut command = Options::command().version(version).max_term_width(100);
    for name in VERBS {
        command = command.mut_subcommand(name, |verb| verb.mut_args(with_variable));
    }
    for name in GROUPS {
        command = command.mut_subcommand(name, |group| {
            group.mut_subcommands(|verb| {
                verb.mut_args(|arg| {
                    if has_variable(name, &arg) {
                        with_variable(arg)
                    } else {
                        arg
                    }
                })
            })
        });
    }
    command.args_override_self(true)
}

/// Commands whose flags all have an environment variable.
const VERBS: [&str; 11] = [
    "run",
    "explain",
    "check",
    "audit",
    "status",
    "calls",
    "missed",
    "demo",
    "connect",
    "disconnect",
    "init",
];

/// Groups of commands in which some flags have an environment variable.
const GROUPS: [&str; 5] = ["branch", "dead", "lead", "sending", "state"];

/// Returns `true` if this flag of a command in the group has an environment variable.
fn has_variable(group: &str, arg: &Arg) -> bool {
    group == "lead" || arg.get_id() == "state"
}

/// Gives a flag its environment variable: `--crm-url` → `CALLBRIDGE_CRM_URL`. The variable of a
/// repeated flag has one value per line. An empty variable counts as not set.
fn with_variable(arg: Arg) -> Arg {
    let name = match arg.get_long() {
        None | Some("help" | "version") => return arg,
        Some(long) => variable(long),
    };
    let arg = match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(FalseyValueParser::new()),
        ArgAction::Append => arg.value_delimiter('\n'),
        _ => arg,
    };
    match std::env::var_os(&name) {
        Some(value) if !value.is_empty() => arg.env(name).hide_env(true),
        Some(_) | None => arg,
    }
}

/// Returns the environment variable of a flag: `crm-url` → `CALLBRIDGE_CRM_URL`.
pub(super) fn variable(long: &str) -> String {
    format!("CALLBRIDGE_{}", long.replace('-', "_").to_ascii_uppercase())
}

/// Reads the arguments. The first argument is the program's name. Also returns the errors in the
/// flags.
///
/// # Errors
/// If the command is missing or unknown, or if an `@FILE` cannot be read.
pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<(Verb, Faults)> {
    let mut arguments = expand_files(arguments)?;
    let command = command();
    let mut faults = Faults::default();
    for _ in 0..FAULTS_MAX {
        let matches = command.clone().try_get_matches_from(&arguments);
        let error = match matches.and_then(|matches| Options::from_arg_matches(&matches)) {
            Ok(Options { command: verb }) => return Ok((verb.ok_or_else(no_command)?, faults)),
            Err(error) => error,
        };
        let message = error.render().to_string();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion if faults.is_empty() => {
                return Ok((Verb::Show(message), faults));
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                return Err(Failure::new(Code::Usage, message));
            }
            _ => {}
        }
        let Some((what, fault)) = remove_rejected(&mut arguments, &error) else {
            let before = faults
                .into_result(())
                .err()
                .map(|faults| format!("{faults}\n  "));
            let last = message.trim_start_matches("error: ").trim_end();
            return Err(Failure::new(Code::Usage, before.unwrap_or_default() + last));
        };
        faults.add(&what, fault);
    }
    Err(faults.into())
}

fn no_command() -> Failure {
    let help = command().render_help().to_string();
    let message = format!("no command is given\n\n{}", help.trim());
    Failure::new(Code::Usage, message)
}

/// Removes the argument that clap rejected, so clap can continue with the next one. Returns the
/// argument and its error. `None` if no argument can be removed.
fn remove_rejected(arguments: &mut Vec<OsString>, error: &clap::Error) -> Option<(String, String)> {
    let what = context(error, ContextKind::InvalidArg)?;
    let flag = what.split([' ', '=']).next().unwrap_or_default().to_owned();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let at = position(arguments, &flag)?;
            let typed = arguments.remove(at).to_string_lossy().into_owned();
            if !flag.starts_with('-') {
                return Some((typed, "not expected here".to_owned()));
            }
            // `--lead var:X` on one line of an @FILE is one argument.
            if let Some((name, value)) = typed.split_once(char::is_whitespace) {
                let message = format!("is one argument; write {name}={}", value.trim());
                return Some((typed, message));
            }
            let takes_value = typed == flag && flag.starts_with("--");
            if takes_value && arguments.get(at).is_some_and(|next| !begins_flag(next)) {
                arguments.remove(at);
            }
            let message = match context(error, ContextKind::SuggestedArg) {
                Some(near) => format!("no such flag; did you mean {near}?"),
                None => "no such flag".to_owned(),
            };
            Some((flag, message))
        }
        ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues | ErrorKind::NoEquals => {
            let without_value = (1..arguments.len()).find(|at| {
                let next = arguments.get(at + 1);
                let is_bare = next.is_none_or(|next| begins_flag(next));
                arguments[*at] == OsStr::new(&flag) && is_bare
            });
            let found = without_value.or_else(|| position(arguments, &flag));
            arguments.remove(found?);
            Some((flag, "its value is missing".to_owned()))
        }
        _ => None,
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    }
}

/// Returns the index of the flag, with or without a value after `=` or white space.
fn position(arguments: &[OsString], flag: &str) -> Option<usize> {
    (1..arguments.len()).find(|at| {
        let argument = arguments[*at].to_string_lossy();
        let rest = argument.strip_prefix(flag);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ' ', '\t']))
    })
}

fn begins_flag(argument: &OsStr) -> bool {
    argument.to_string_lossy().starts_with('-')
}

/// Returns the path of the first `@FILE` in these arguments.
pub(super) fn flags_file(arguments: &[OsString]) -> Option<PathBuf> {
    let mut texts = arguments
        .iter()
        .skip(1)
        .filter_map(|argument| argument.to_str());
    let file = texts.find_map(|text| text.strip_prefix('@'));
    file.map(PathBuf::from)
}

/// Returns the arguments, with each `@FILE` replaced by its lines.
fn expand_files(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>> {
    let mut all = Vec::new();
    for (at, argument) in arguments.into_iter().enumerate() {
        let file = argument.to_str().and_then(|text| text.strip_prefix('@'));
        match file {
            Some(file) if at > 0 => all.extend(lines(Path::new(file))?),
            Some(_) | None => all.push(argument),
        }
    }
    Ok(all)
}

fn lines(path: &Path) -> Result<Vec<OsString>> {
    let name = format!("@{}", path.display());
    let metadata =
        std::fs::metadata(path).map_err(|error| Failure::unreadable_file(&name, &error))?;
    if metadata.len() > FILE_BYTES_MAX {
        let message = format!("{name}: larger than 1 MB");
        return Err(Failure::new(Code::Input, message));
    }
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::unreadable_file(&name, &error))?;
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let arguments = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(arguments.map(OsString::from).collect())
}

/// The prefix of each variable of this program.
const BEGINNING: &str = "CALLBRIDGE_";

/// Suffixes of the variables that Kubernetes sets in every container for a service named
/// `callbridge`.
const OF_SERVICES: [&str; 4] = ["_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"];

/// Variables of `build.rs`. Cargo passes them to the programs and tests that it runs.
const OF_BUILD: [&str; 2] = ["CALLBRIDGE_BUILT", "CALLBRIDGE_COMMIT"];

/// Returns the variables named `CALLBRIDGE_…` in this environment that no command reads.
pub(crate) fn unknown_variables(environment: &Environment) -> Vec<String> {
    let known = known_variables();
    let mut unknown = Vec::new();
    for name in environment.names() {
        let of_service =
            name.ends_with("_PORT") || OF_SERVICES.iter().any(|suffix| name.contains(suffix));
        let is_ignored = of_service || OF_BUILD.contains(&name);
        if name.starts_with(BEGINNING) && !is_ignored && !known.contains(name) {
            unknown.push(name.to_owned());
        }
    }
    unknown
}

/// Returns every variable that some command reads.
pub(crate) fn known_variables() -> BTreeSet<String> {
    let secrets = SecretKind::ALL.iter().map(|kind| kind.variable());
    let mut known: BTreeSet<String> = secrets.collect();
    let command = Options::command();
    for verb in command.get_subcommands() {
        let name = verb.get_name();
        if VERBS.contains(&name) {
            known.extend(verb.get_arguments().filter_map(Arg::get_long).map(variable));
        } else if GROUPS.contains(&name) {
            for arg in verb.get_subcommands().flat_map(Command::get_arguments) {
                if has_variable(name, arg) {
                    known.extend(arg.get_long().map(variable));
                }
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses a command line that is split at its spaces.
    fn parse_line(line: &str) -> Result<(Verb, Faults)> {
        read(line.split(' ').map(OsString::from))
    }

    /// Returns the errors of a command line, or the text that the command line prints.
    fn errors(line: &str) -> String {
        match parse_line(line) {
            Ok((Verb::Show(text), _)) => text,
            Ok((_, faults)) => faults.to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn command_declarations_pass_the_clap_debug_check() {
        command().debug_assert();
    }

    #[test]
    fn help_lists_commands_and_first_steps() {
        let help = command().term_width(84).render_help().to_string();
        insta::assert_snapshot!(help, @"
        Logs every finished customer call of a PBX in a CRM's call journal, exactly once

        Usage: callbridge [COMMAND]

        Commands:
          run          Run the daemon: watch the PBX and log its calls in the CRM
          demo         Play recorded calls into a test CRM on this machine, and show what
                       happens
          explain      Show what would be journaled from a recording, and why; sends nothing
          check        Test each source, permission, folder and file, and show how to fix
                       problems
          audit        Compare a file of the PBX with the logged calls, and list each
                       missing call
          status       Show problems and their fixes, then books, sources, token and budget
          calls        List calls, one per line, newest last: of a day, a number or a trunk;
                       or follow them
          dead         Show calls that the CRM did not accept, correct them, and send them
                       again
          lead         Find numbers without a lead, assign leads, and show what a number
                       maps to
          missed       List customers who called, reached no one, and still wait for a
                       callback, longest wait first
          branch       Add, list, and remove the branches whose calls this hub takes
          sending      Send again after two hubs used different databases
          page         Print a link that opens the administrator's page, or a line for its
                       password file
          connect      Ask a company for its consent, and store the tokens
          disconnect   Revoke the tokens of a connection and remove it
          sandbox      Serve a test CRM that enforces every rule of the CRM's document
          init         Set up a service: detect what is possible, ask for the rest, and
                       write its flags
          state        Export a state into a tar file, import it, or move it to another
                       place
          completions  Print completions for a shell
          man          Print the manual page
          licenses     Print the libraries in this program, with their licenses
          help         Print this message or the help of the given subcommand(s)

        Options:
          -h, --help     Print help
          -V, --version  Print version

        Try it without a PBX or a CRM:  callbridge demo
        See what would be journaled:    callbridge explain --help
        Set up a service:               callbridge init
        Find problems:                  callbridge check @/etc/callbridge/flags
        Run the daemon:                 callbridge run @/etc/callbridge/flags

        @FILE reads one argument per line (# begins a comment; no quoting). Every flag
        of run, explain and check has an environment variable: --crm-url is
        CALLBRIDGE_CRM_URL. A flag that can be repeated takes one value per line.
        ");
    }

    proptest! {
        #[test]
        fn any_arguments_are_read_or_refused_without_panic(
            words in prop::collection::vec(
                "(run|explain|dead|retry|--?[a-z-]{0,9}(=.{0,5})?|.{0,8})",
                0..9,
            ),
        ) {
            let all = std::iter::once("callbridge".to_owned()).chain(words);
            let environment = callbridge_model::Environment::default();
            let _ = super::super::command::read(all.map(OsString::from), &environment);
        }
    }

    #[test]
    fn every_flag_has_help() {
        let mut commands = vec![command()];
        while let Some(command) = commands.pop() {
            for arg in command.get_arguments() {
                assert!(
                    arg.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    arg.get_id()
                );
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn unknown_flags_and_missing_values_are_reported_together() {
        insta::assert_snapshot!(
            errors("callbridge run --crm-ulr https://x --rate --qux=1 --state /s extra --settle"),
            @"
        5 errors in the flags. Nothing was started:
          --crm-ulr: no such flag; did you mean --crm-url?
          --qux: no such flag
          --rate: its value is missing
          extra: not expected here
          --settle: its value is missing
        "
        );
    }

    #[test]
    fn single_flag_uses_its_last_value_and_list_flag_adds_values() {
        let Ok((Verb::Run(flags), faults)) =
            parse_line("callbridge run --rate 1/1s --rate 2/2s --trunk a --trunk b")
        else {
            panic!("run")
        };
        assert!(faults.is_empty(), "{faults}");
        assert_eq!(flags.crm.rate.as_deref(), Some("2/2s"));
        assert_eq!(flags.trunks.trunk, ["a", "b"]);
    }

    #[test]
    fn flags_file_has_one_argument_per_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("flags");
        let text = "# comment\n\n  --rate=5/5s  \n--trunk\na=PJSIP/a,lead=userfield:#(.)\r\n\
                    --lead var:X\n";
        std::fs::write(&file, text).expect("written");
        let argument = format!("@{}", file.display());
        let parsed = read(["callbridge", "run", &argument].map(OsString::from));
        let Ok((Verb::Run(flags), faults)) = parsed else {
            panic!("{parsed:?}")
        };
        assert_eq!(flags.crm.rate.as_deref(), Some("5/5s"));
        assert_eq!(flags.trunks.trunk, ["a=PJSIP/a,lead=userfield:#(.)"]);
        insta::assert_snapshot!(faults, @"
        1 error in the flags. Nothing was started:
          --lead var:X: is one argument; write --lead=var:X
        ");
    }

    #[test]
    fn missing_flags_file_exits_66_and_missing_command_64() {
        let missing = parse_line("callbridge run @/nowhere").expect_err("no file");
        assert_eq!(missing.code(), Code::NoInput);
        let message = missing.to_string();
        assert!(
            message.starts_with("@/nowhere: cannot be read"),
            "{message}"
        );
        for line in ["callbridge rnu", "callbridge dead", "callbridge lead"] {
            let refused = parse_line(line).expect_err("no command");
            assert_eq!(refused.code(), Code::Usage, "{line}");
        }
        assert!(
            matches!(parse_line("callbridge --version"), Ok((Verb::Show(text), _))
            if text.starts_with("callbridge 0."))
        );
    }

    #[test]
    fn variable_that_no_command_reads_is_unknown() {
        let environment = Environment::from_pairs([
            ("CALLBRIDGE_RAET", "30/60s"),
            ("CALLBRIDGE_XYZZY", "x"),
            ("CALLBRIDGE_REASON", "x"),
            ("CALLBRIDGE_HELP", "x"),
            ("CALLBRIDGE_CRM_URL", "https://crm.example"),
            ("CALLBRIDGE_STATE", "/state"),
            ("CALLBRIDGE_TOKEN", "x"),
            ("CALLBRIDGE_AMI_SECRET", "x"),
            ("CALLBRIDGE_COMMIT", "e9af77bd"),
            ("CALLBRIDGE_SERVICE_HOST", "10.0.0.1"),
            ("CALLBRIDGE_PORT_9469_TCP_ADDR", "10.0.0.1"),
            ("CALLBRIDGE_PORT", "tcp://10.0.0.1:9469"),
            ("HOME", "/"),
        ]);
        let wanted = [
            "CALLBRIDGE_HELP",
            "CALLBRIDGE_RAET",
            "CALLBRIDGE_REASON",
            "CALLBRIDGE_XYZZY",
        ];
        assert_eq!(unknown_variables(&environment), wanted);
    }
}
