//! The tables in `docs/exactness.md`, which are generated from the matrix.

use super::measure::{Cell, Outcome, VALUES};
use super::{SOURCES, STORIES, Source, Story, cell};
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/exactness.md";
const BEGIN: &str = "<!-- The tables come from the matrix. To write them again:
CALLBRIDGE_WRITE_MATRIX=1 cargo test -p callbridge-call --test model matrix -->
";
const END: &str = "<!-- The end of the tables. -->\n";

type Column = (Source, Vec<(Story, Option<Cell>)>);

/// Returns the tables of values and stories.
pub fn tables() -> String {
    let column = |source| {
        let cells = STORIES.map(|story| (story, cell(&story, source)));
        (source, cells.to_vec())
    };
    let columns: Vec<Column> = SOURCES.into_iter().map(column).collect();
    let mut text = format!("## By value\n\n{}", head("value", &columns));
    for (place, value) in VALUES.into_iter().enumerate() {
        let cells = columns.iter().map(|(_, cells)| value_cell(place, cells));
        text += &row(value, cells);
    }
    text += &row(
        "lead by `var:`",
        columns.iter().map(|(_, cells)| lead_cell(cells)),
    );
    text += &format!("\n## By story\n\n{}", head("story", &columns));
    for (place, story) in STORIES.iter().enumerate() {
        let cells = columns.iter().map(|(_, cells)| match &cells[place].1 {
            Some(cell) => cell.class.clone(),
            None => "–".to_owned(),
        });
        text += &row(story.name, cells);
    }
    text
}

fn head(first: &str, columns: &[Column]) -> String {
    let names = columns.iter().map(|(source, _)| source.name().to_owned());
    row(first, names) + &"|---".repeat(columns.len() + 1) + "|\n"
}

fn row(first: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {first} | {} |\n", cells.join(" | "))
}

/// Returns how well a source tells a value, and in which stories it doesn't.
fn value_cell(place: usize, cells: &[(Story, Option<Cell>)]) -> String {
    let (mut unknown, mut off, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    let mut estimate = false;
    for (story, cell) in cells {
        let Some(cell) = cell else {
            continue;
        };
        estimate |= cell.estimate;
        let worst = cell.outcomes.iter().map(|call| &call[place]).max();
        match worst {
            None | Some(Outcome::Right) => {}
            Some(Outcome::Unknown) => unknown.push(story.name),
            Some(Outcome::Off(_)) => off.push(story.name),
            Some(Outcome::Wrong(_)) => wrong.push(story.name),
        }
    }
    let mut text = if estimate { "estimate" } else { "exact" }.to_owned();
    for (what, stories) in [
        ("unknown", unknown),
        ("off by seconds", off),
        ("wrong", wrong),
    ] {
        if !stories.is_empty() {
            text += &format!("; {what}: {}", stories.join(", "));
        }
    }
    text
}

fn lead_cell(cells: &[(Story, Option<Cell>)]) -> String {
    let mut known = cells.iter().filter_map(|(_, cell)| cell.as_ref());
    let word = if known.all(|cell| cell.lead) {
        "yes"
    } else {
        "no"
    };
    word.to_owned()
}

/// Fails if the page's tables are different, or writes the page instead if the environment asks for
/// it.
pub fn check(tables: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join(PAGE)).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the tables");
    let (_, after) = rest.split_once(END).expect("the end of the tables");
    let wanted = format!("{before}{BEGIN}\n{tables}\n{END}{after}");
    if std::env::var_os("CALLBRIDGE_WRITE_MATRIX").is_some() {
        fs::write(root.join(PAGE), &wanted).expect("written");
        return;
    }
    assert!(
        page == wanted,
        "{PAGE} isn't up to date: it says how to write it again\n{tables}"
    );
}
