//! Completions and the manual page, made from the declarations of the flags.

use super::arguments::command;
use clap_complete::Shell;
use std::io;

/// The completions of a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "callbridge", &mut text);
    text
}

/// The manual page, in roff: the program, then each command with its flags.
pub fn page() -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut whole = command();
    whole.build();
    let page = clap_mangen::Man::new(whole.clone())
        .manual("callbridge")
        .section("1");
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_subcommands_section(&mut text)?;
    page.render_extra_section(&mut text)?;
    for verb in whole
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
    {
        verb_sections(verb, "", &mut text)?;
    }
    Ok(text)
}

fn verb_sections(verb: &clap::Command, before: &str, text: &mut Vec<u8>) -> io::Result<()> {
    let name = format!("{before}{}", verb.get_name());
    let below: Vec<&clap::Command> = verb
        .get_subcommands()
        .filter(|verb| verb.get_name() != "help")
        .collect();
    if !below.is_empty() {
        return below
            .iter()
            .try_for_each(|verb| verb_sections(verb, &format!("{name} "), text));
    }
    text.extend(format!(".SH \"CALLBRIDGE {}\"\n", name.to_ascii_uppercase()).bytes());
    if let Some(about) = verb.get_about() {
        text.extend(format!("{}.\n.PP\n", about.to_string().replace('-', "\\-")).bytes());
    }
    let page = clap_mangen::Man::new(verb.clone());
    if verb.get_arguments().any(|arg| !arg.is_hide_set()) {
        // One section a command: its own heading above, none for its flags.
        let mut section = Vec::new();
        page.render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace(".SH OPTIONS\n", "");
        text.extend(section.bytes());
    }
    Ok(())
}
