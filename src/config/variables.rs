//! Variables whose names begin as ours and are none of ours: a flag that was misspelt there would
//! be left out without a word.

use super::arguments;
use callbridge_intake::machine;
use callbridge_model::{Environment, SecretKind};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use std::collections::BTreeSet;

/// How all of them begin.
const BEGINNING: &str = "CALLBRIDGE_";

/// What Kubernetes tells every container of a service that is called as we are.
const OF_SERVICES: [&str; 4] = ["_SERVICE_HOST", "_SERVICE_PORT", "_TCP", "_UDP"];

/// A name with more letters of its own is another one, and not misspelt.
const LETTERS_APART_MAX: usize = 2;

/// The variables of this environment that nothing here reads, each with the one that may have been
/// meant.
pub(crate) fn unread(environment: &Environment) -> Vec<(String, Option<String>)> {
    let ours = environment.names().filter_map(|name| {
        let end = name.strip_prefix(BEGINNING)?;
        let of_service = name.ends_with("_PORT") || OF_SERVICES.iter().any(|it| name.contains(it));
        (!of_service).then_some((name, end))
    });
    let mut ours = ours.peekable();
    if ours.peek().is_none() {
        return Vec::new();
    }
    let known = known();
    let unread = ours.filter(|(name, _)| !known.contains(*name));
    unread
        .map(|(name, end)| (name.to_owned(), near(end, &known)))
        .collect()
}

/// Every variable that some command reads.
fn known() -> BTreeSet<String> {
    let secrets = SecretKind::ALL.iter().map(|it| it.variable().to_owned());
    let mut known: BTreeSet<String> = secrets.collect();
    known.insert(machine::VARIABLE.to_owned());
    known.insert("CALLBRIDGE_PLANT_FAULTS".to_owned());
    let mut commands = vec![arguments::command()];
    while let Some(command) = commands.pop() {
        let longs = command.get_arguments().filter_map(Arg::get_long);
        known.extend(longs.map(arguments::variable));
        commands.extend(command.get_subcommands().cloned());
    }
    known
}

/// What clap would say of a flag that is spelt so.
fn near(end: &str, known: &BTreeSet<String>) -> Option<String> {
    let flag = |name: &str| name.trim_start_matches(BEGINNING).to_ascii_lowercase();
    let args = known
        .iter()
        .map(|name| Arg::new(name.clone()).long(flag(name)));
    let command = Command::new("variables")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(args);
    let typed = format!("--{}", end.to_ascii_lowercase());
    let error = command.try_get_matches_from([typed]).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(near) => {
            let near = near.trim_start_matches('-').to_ascii_uppercase();
            // clap guesses freely, for what is a fault anyway; here the guess makes it one.
            let close = letters_apart(&near, end) <= LETTERS_APART_MAX;
            close.then(|| format!("{BEGINNING}{near}"))
        }
        _ => None,
    }
}

/// Letters that only one of them has, wherever they stand.
pub(crate) fn letters_apart(one: &str, other: &str) -> usize {
    let mut rest: Vec<char> = other.chars().collect();
    let mut alone = 0;
    for letter in one.chars() {
        match rest.iter().position(|it| *it == letter) {
            Some(at) => drop(rest.swap_remove(at)),
            None => alone += 1,
        }
    }
    alone + rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_found_with_the_one_that_is_meant() {
        let environment = Environment::of([
            ("CALLBRIDGE_RAET", "30/60s"),
            ("CALLBRIDGE_DRYRUN", "yes"),
            ("CALLBRIDGE_AMI_SECRTE", "x"),
            ("CALLBRIDGE_TEST_CLOCK", "x"),
            ("CALLBRIDGE_XYZZY", "x"),
            ("CALLBRIDGE_CRM_URL", "https://crm.example"),
            ("CALLBRIDGE_TOKEN", "x"),
            ("CALLBRIDGE_MACHINE_ID_FILE", "x"),
            ("CALLBRIDGE_SERVICE_HOST", "10.0.0.1"),
            ("CALLBRIDGE_PORT_9469_TCP_ADDR", "10.0.0.1"),
            ("CALLBRIDGE_PORT", "tcp://10.0.0.1:9469"),
            ("HOME", "/"),
        ]);
        let found: Vec<(String, Option<String>)> = unread(&environment).into_iter().collect();
        let wants = [
            ("CALLBRIDGE_AMI_SECRTE", Some("CALLBRIDGE_AMI_SECRET")),
            ("CALLBRIDGE_DRYRUN", Some("CALLBRIDGE_DRY_RUN")),
            ("CALLBRIDGE_RAET", Some("CALLBRIDGE_RATE")),
            ("CALLBRIDGE_TEST_CLOCK", None),
            ("CALLBRIDGE_XYZZY", None),
        ];
        let wants = wants.map(|(name, near)| (name.to_owned(), near.map(str::to_owned)));
        assert_eq!(found, wants);
    }
}
