//! Shell completions and the manual page, made from the declarations of the flags. The page also
//! has exit codes, files, variables, and examples.

use super::arguments::command;
use callbridge_model::{Code, SecretKind};
use callbridge_spool as spool;
use clap::Arg;
use clap_complete::Shell;
use clap_mangen::Man;
use std::{collections::BTreeSet, io};

/// Returns the completions for a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "callbridge", &mut text);
    text
}

/// A command that shares at least this many flags with `run` refers to `run` instead of listing
/// these flags.
const SHARED_MIN: usize = 10;

/// Returns the manual page in roff: the program, each command with its flags, then exit codes,
/// variables, files, and examples.
///
/// # Errors
/// Never, because it is written into memory.
pub(crate) fn page() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut whole = command();
    whole.build();
    let verbs: Vec<&clap::Command> = verbs(&whole).collect();
    let page = Man::new(whole.clone()).manual("callbridge").section("1");
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if let Some(message) = whole.get_after_help() {
        let message = roff(&message.to_string());
        text.extend(format!(".PP\n.nf\n{message}\n.fi\n").bytes());
    }
    text.extend(b".SH COMMANDS\n");
    for verb in &verbs {
        let name = roff(verb.get_name());
        let description = verb.get_about().map(ToString::to_string);
        let about = roff(&description.unwrap_or_default());
        text.extend(format!(".TP\n\\fBcallbridge {name}\\fR\n{about}.\n").bytes());
    }
    let run = verbs.iter().find(|verb| verb.get_name() == "run");
    let of_run: BTreeSet<&str> = run.into_iter().flat_map(|run| long_flags(run)).collect();
    for verb in verbs {
        verb_sections(verb, "", &of_run, &mut text)?;
    }
    let files = FILES
        .replace("{db}", spool::folder::FILE)
        .replace("{lock}", spool::folder::LOCK);
    for (heading, message, terms) in [
        ("EXIT STATUS", EXIT_STATUS, exit_codes()),
        ("ENVIRONMENT", ENVIRONMENT, variables()),
        ("FILES", "", files),
        ("EXAMPLES", "", EXAMPLES.to_owned()),
    ] {
        text.extend(section(heading, message, &terms).bytes());
    }
    Ok(text)
}

fn verbs(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    let all = command.get_subcommands();
    all.filter(|verb| verb.get_name() != "help")
}

fn long_flags(verb: &clap::Command) -> impl Iterator<Item = &str> {
    let shown = verb.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(Arg::get_long)
}

/// Escapes text for roff: dashes stay copyable, and no line is taken for a request.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.chars().next() {
        Some('.' | '\'') => format!("\\&{line}"),
        Some(_) | None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a section: a heading, the text below it, and the terms. Indented lines describe the term
/// above them.
fn section(heading: &str, message: &str, terms: &str) -> String {
    let message = message
        .lines()
        .map(|message| format!("{}\n", roff(message)));
    let terms = terms.lines().map(|line| match line.strip_prefix("  ") {
        Some(message) => format!("{}\n", roff(message)),
        None => format!(".TP\n\\fB{}\\fR\n", roff(line)),
    });
    let below: String = message.chain(terms).collect();
    format!(".SH \"{heading}\"\n{below}")
}

fn verb_sections(
    verb: &clap::Command,
    before: &str,
    of_run: &BTreeSet<&str>,
    text: &mut Vec<u8>,
) -> io::Result<()> {
    let name = format!("{before}{}", verb.get_name());
    let below: Vec<&clap::Command> = verbs(verb).collect();
    if !below.is_empty() {
        return below
            .iter()
            .try_for_each(|verb| verb_sections(verb, &format!("{name} "), of_run, text));
    }
    text.extend(format!(".SH \"CALLBRIDGE {}\"\n", name.to_ascii_uppercase()).bytes());
    if let Some(about) = verb.get_about() {
        text.extend(format!("{}.\n.PP\n", roff(&about.to_string())).bytes());
    }
    let shared = long_flags(verb)
        .filter(|long| of_run.contains(long))
        .count();
    let again = name != "run" && shared >= SHARED_MIN;
    let mut verb = verb.clone();
    if again {
        verb = verb.mut_args(|arg| {
            let of_run = arg.get_long().is_some_and(|long| of_run.contains(long));
            let hide = arg.is_hide_set() || of_run;
            arg.hide(hide)
        });
        text.extend("It also takes the flags of \\fBcallbridge run\\fR.\n.PP\n".bytes());
    }
    if verb.get_arguments().any(|arg| !arg.is_hide_set()) {
        // The command already has a heading, so its flags have no heading, and groups of flags have
        // smaller headings.
        let mut section = Vec::new();
        Man::new(verb).render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace(".SH OPTIONS\n", "");
        text.extend(section.replace("\n.SH ", "\n.SS ").bytes());
    }
    Ok(())
}

const EXIT_STATUS: &str = "check exits with the code of the worst problem that it finds.";

const fn meaning(code: Code) -> &'static str {
    match code {
        Code::Failed => {
            "A failure without its own code; the books of demo do not balance; status --exit-code: \
             a problem needs attention."
        }
        Code::Down => {
            "status --exit-code: nothing reaches the CRM, no source is up, or no daemon runs."
        }
        Code::Usage => "Wrong flags or variables. All errors are reported together.",
        Code::Input => "A file does not have the expected format, or a list has bad rows.",
        Code::NoInput => "A file does not exist.",
        Code::Unreachable => "A PBX, broker, CRM or daemon cannot be reached.",
        Code::CannotWrite => "The state, a socket, or an output file cannot be written.",
        Code::Locked => "Another process uses the state.",
        Code::NoPermission => "A token, secret, or grant is missing or refused.",
        Code::Configuration => {
            "The state or the configuration cannot be used: it belongs to another CRM or PBX or to \
             a newer version, or it is damaged."
        }
        Code::Left => "init was interrupted (Ctrl-C): nothing was written.",
    }
}

fn exit_codes() -> String {
    let codes = Code::ALL
        .iter()
        .map(|code| format!("{}\n  {}\n", code.number(), meaning(*code)));
    let mut text = "0\n  Success; for run, also: stopped by SIGTERM or SIGINT.\n".to_owned();
    text.extend(codes);
    text
}

const fn secret_of(kind: SecretKind) -> &'static str {
    match kind {
        SecretKind::Token => "The token of the CRM",
        SecretKind::Ami => "The secret of the PBX's manager account",
        SecretKind::Esl => "The password of FreeSWITCH's event socket",
        SecretKind::Amqp => "The password at the broker",
        SecretKind::DeadLetter => "The password at the broker of the dead letters",
        SecretKind::Webhook => "The secret that signs the CRM's events",
        SecretKind::Client => "The client secret of the application (connect)",
        SecretKind::PagePassword => "The users of the page, with the hashes of their passwords",
        SecretKind::Lookup => "The password of dialplans that look up callers (--lookup)",
        SecretKind::Forward => "The token of a collector's branch at its hub (--forward)",
    }
}

const ENVIRONMENT: &str = "A variable that begins with CALLBRIDGE_ and that no command reads is an \
                           error. The message lists the known variables. The proxy variables of \
                           the system are not used: give a proxy with --crm-proxy.";

fn variables() -> String {
    let secrets = SecretKind::ALL.iter().map(|kind| {
        let variable = kind.variable();
        let secret = secret_of(*kind);
        let credential = kind.credential();
        format!(
            "{variable}\n  {secret}. Files and the systemd credential {credential} are better: a \
             process's variables can be read by root and by its user.\n"
        )
    });
    FLAG_VARIABLE.to_owned() + &secrets.collect::<String>() + OTHER_VARIABLES
}

const FLAG_VARIABLE: &str = "\
CALLBRIDGE_FLAG
  The value of a flag of run, explain and check that is not given: CALLBRIDGE_CRM_URL for \
--crm-url. A flag that can be repeated takes one value per line.
";

const OTHER_VARIABLES: &str = "\
STATE_DIRECTORY
  The state folder if --state is not given; set by systemd.
CREDENTIALS_DIRECTORY
  Where systemd puts credentials.
NOTIFY_SOCKET, WATCHDOG_USEC
  Where and how often systemd is notified of readiness.
TZ
  The time zone of displayed times if --pbx-timezone is not given.
NO_COLOR
  No colors if it is set to any value.";

const FILES: &str = "\
/etc/callbridge/NAME.flags
  Flags of an instance, one argument per line.
/etc/credstore/callbridge.NAME.token
  The token for callbridge@NAME.service; ami-secret, esl-secret, amqp-secret and \
dead-letter-secret in the same way.
/var/lib/callbridge/NAME
  The state of that service. Without a service, it is ~/.local/state/callbridge.
STATE/{db}, STATE/{db}-wal, STATE/{db}-shm
  Every call, its state, the books, and the tokens of `callbridge connect` (SQLite). Copy them \
together, or with sqlite3's .backup, and protect the copy like a password.
STATE/{lock}
  Locked by the process that uses the state.
STATE/control.sock
  Where status, dead, lead and calls reach the daemon.";

const EXAMPLES: &str = "\
callbridge demo
  Play recorded calls on this machine, without a PBX or a CRM.
callbridge explain --format ami --trunk 'city=PJSIP/city,country=UZ,lead=var:LEAD_ID' ami.raw
  Show what would be journaled from a recording; sends nothing.
callbridge init --name pbx1
  Set up a service by answering a few questions, or with flags.
callbridge check @/etc/callbridge/pbx1.flags
  Show problems and how to fix them.
callbridge run @/etc/callbridge/pbx1.flags
  Run the daemon.
callbridge status --exit-code --state /var/lib/callbridge/pbx1
  Exit with 0, 1 or 2 for a monitoring system.
callbridge calls --today
  List the calls of today with their states.
callbridge dead retry 12 13 --lead 4001
  Resend two of a customer's dead letters with a different lead.
callbridge lead missing --csv
  List numbers that called and have no lead.
callbridge missed --since 24h
  List customers who wait for a callback.";
