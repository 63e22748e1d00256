//! Completions and the manual page, made from the declarations of the flags.

use super::arguments::command;
use super::manual_sections::{self, Section};
use clap_complete::Shell;
use std::collections::BTreeSet;
use std::io;

/// The completions of a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "callbridge", &mut text);
    text
}

/// Commands that share so many flags with `run` name them, and do not tell them again.
const SHARED_MIN: usize = 10;

/// The manual page, in roff: the program, each command with its flags, then exit codes, variables,
/// files and examples.
///
/// # Errors
/// Never: it is written into memory.
pub(crate) fn page() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut whole = command();
    whole.build();
    let verbs: Vec<&clap::Command> = verbs(&whole).collect();
    let page = clap_mangen::Man::new(whole.clone())
        .manual("callbridge")
        .section("1");
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if let Some(words) = whole.get_after_help() {
        let words = roff(&words.to_string());
        text.extend(format!(".PP\n.nf\n{words}\n.fi\n").bytes());
    }
    text.extend(".SH COMMANDS\n".bytes());
    for verb in &verbs {
        let about = verb.get_about().map(ToString::to_string);
        let (name, about) = (roff(verb.get_name()), roff(&about.unwrap_or_default()));
        text.extend(format!(".TP\n\\fBcallbridge {name}\\fR\n{about}.\n").bytes());
    }
    let run = verbs.iter().find(|verb| verb.get_name() == "run");
    let of_run: BTreeSet<&str> = run.into_iter().flat_map(|run| longs(run)).collect();
    for verb in verbs {
        verb_sections(verb, "", &of_run, &mut text)?;
    }
    for section in manual_sections::all() {
        text.extend(told(&section).bytes());
    }
    Ok(text)
}

fn verbs(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    let all = command.get_subcommands();
    all.filter(|verb| verb.get_name() != "help")
}

fn longs(verb: &clap::Command) -> impl Iterator<Item = &str> {
    let shown = verb.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(clap::Arg::get_long)
}

/// Dashes that can be copied, and no line that is taken for a request.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text
        .lines()
        .map(|line| match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

fn told((heading, words, terms): &Section) -> String {
    let mut text = format!(".SH \"{heading}\"\n");
    if !words.is_empty() {
        text.push_str(&format!("{}\n", roff(words)));
    }
    for line in terms.lines() {
        text.push_str(&match line.strip_prefix("  ") {
            Some(words) => format!("{}\n", roff(words)),
            None => format!(".TP\n\\fB{}\\fR\n", roff(line)),
        });
    }
    text
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
    let shared = longs(verb).filter(|long| of_run.contains(long)).count();
    let again = name != "run" && shared >= SHARED_MIN;
    let mut verb = verb.clone();
    if again {
        verb = verb.mut_args(|arg| {
            let of_run = arg.get_long().is_some_and(|long| of_run.contains(long));
            let hide = arg.is_hide_set() || of_run;
            arg.hide(hide)
        });
        text.extend("It takes the flags of \\fBcallbridge run\\fR, too.\n.PP\n".bytes());
    }
    if verb.get_arguments().any(|arg| !arg.is_hide_set()) {
        // Its own heading stands above: none for its flags, and smaller ones for groups.
        let mut section = Vec::new();
        clap_mangen::Man::new(verb).render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace(".SH OPTIONS\n", "");
        text.extend(section.replace("\n.SH ", "\n.SS ").bytes());
    }
    Ok(())
}
