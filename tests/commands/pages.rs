//! Tests every command line in the documentation. Commands that explain a recording are run. For
//! all other commands, the flags are checked as the program checks them.

use callbridge::{Command, read};
use callbridge_model::Environment;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The pages, and the least number of callbridge's command lines in each page.
const PAGES: [(&str, usize); 32] = [
    ("README.md", 6),
    ("ARCHITECTURE.md", 0),
    ("CHANGELOG.md", 0),
    ("CONTRIBUTING.md", 0),
    ("SECURITY.md", 0),
    ("docs/audit.md", 2),
    ("docs/call-message.md", 2),
    ("docs/dead-letters.md", 9),
    ("docs/exactness.md", 0),
    ("docs/freeswitch.md", 0),
    ("docs/gaps.md", 1),
    ("docs/high-availability.md", 0),
    ("docs/hub.md", 4),
    ("docs/design/hub.md", 0),
    ("docs/leads.md", 4),
    ("docs/lookup.md", 0),
    ("docs/operations.md", 5),
    ("docs/page.md", 2),
    ("docs/sandbox.md", 4),
    ("docs/tokens.md", 2),
    ("docs/webhooks.md", 1),
    ("deploy/README.md", 0),
    ("deploy/backup.md", 0),
    ("deploy/asterisk/README.md", 10),
    ("deploy/hub/README.md", 0),
    ("deploy/hub/patroni/README.md", 0),
    ("deploy/freepbx/README.md", 7),
    ("deploy/freeswitch/README.md", 3),
    ("deploy/fusionpbx/README.md", 2),
    ("deploy/mikopbx/README.md", 4),
    ("deploy/rabbitmq/README.md", 0),
    ("deploy/wazo/README.md", 4),
];

/// The folder where the commands of the pages keep flags, secrets, and lists.
const FOLDER: &str = "/etc/callbridge/";

/// A fenced block of a page.
struct Block {
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for line in page.lines() {
        let line = line.strip_prefix("   ").unwrap_or(line);
        match line.strip_prefix("```") {
            Some(language) if !open => {
                let (language, text) = (language.trim().to_owned(), String::new());
                blocks.push(Block { language, text });
                open = true;
            }
            Some(_) => open = false,
            None if open => {
                let block = blocks.last_mut().expect("an open block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!open, "a block is not closed");
    blocks
}

/// Returns the callbridge command lines of a page. Each line is a list of words.
fn commands(page: &str) -> Vec<Vec<String>> {
    let shell = blocks(page)
        .into_iter()
        .filter(|block| block.language == "sh");
    let texts = shell.map(|block| block.text.replace("\\\n", " "));
    let lines: Vec<String> = texts.flat_map(|text| callbridge_lines(&text)).collect();
    lines.iter().map(|line| split_words(line)).collect()
}

/// Returns the lines of a shell block that run callbridge.
fn callbridge_lines(text: &str) -> Vec<String> {
    let lines = text.lines();
    let lines = lines.map(|line| line.strip_prefix("sudo -u callbridge ").unwrap_or(line));
    let own = lines.filter(|line| line.starts_with("callbridge "));
    own.map(str::to_owned).collect()
}

/// Splits a line as a shell does: single quotes group words, and a `#` after a space begins a
/// comment.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            '#' if !quoted && word.is_empty() => break,
            ' ' if !quoted => {
                words.extend(Some(std::mem::take(&mut word)).filter(|w| !w.is_empty()))
            }
            c => word.push(c),
        }
    }
    assert!(!quoted, "a quote is open: {line}");
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Returns the path of a file in the source tree.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = file.open(path).expect("a file");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
}

/// Creates a folder with everything that the commands of a page name: flags files, secrets, and
/// lists.
fn create_page_folder(page: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("token", "svc_pat_page\n"),
        ("ami.secret", "secret\n"),
        ("amqp.secret", "secret\n"),
        ("esl.secret", "secret\n"),
        ("leads.csv", "phone,leadId\n998901110001,4001\n"),
        ("employees.csv", "extension,employeeId\n101,501\n"),
    ] {
        write_private(&folder.path().join(name), text);
    }
    // The pages of `docs` refer to the flags files of the README.
    let readme = fs::read_to_string(root("README.md")).expect("a page");
    for (name, text) in flags_files(&readme).into_iter().chain(flags_files(page)) {
        let test_text = use_test_folder(&text, folder.path());
        write_private(&folder.path().join(name), &test_text);
    }
    folder
}

/// Returns the blocks that begin with `# /etc/callbridge/NAME.flags`, by the name of the file.
fn flags_files(page: &str) -> BTreeMap<String, String> {
    let flags_blocks = blocks(page).into_iter().filter_map(|block| {
        let first = block.text.lines().next()?.strip_prefix("# ")?;
        let (name, _) = first.strip_prefix(FOLDER)?.split_once(".flags")?;
        Some((format!("{name}.flags"), block.text))
    });
    flags_blocks.collect()
}

/// Replaces the folders of an installed system, and of the source tree, by folders that a test can
/// use.
fn use_test_folder(text: &str, folder: &Path) -> String {
    let test_folder = format!("{}/", folder.display());
    let state = folder.join("state").display().to_string();
    text.replace(FOLDER, &test_folder)
        .replace("/var/lib/callbridge", &state)
        .replace(
            "/tmp/call.svg",
            &folder.join("call.svg").display().to_string(),
        )
        .replace(
            "tests/recordings/",
            &format!("{}/", root("tests/recordings").display()),
        )
        .replace(
            "tests/pages/",
            &format!("{}/", root("tests/pages").display()),
        )
}

/// Parses a command line as the program would, and runs the command if it explains a recording.
fn run(line: &[String], folder: &Path) {
    let shown = line.join(" ");
    let arguments = line
        .iter()
        .map(|word| OsString::from(use_test_folder(word, folder)));
    let environment = Environment::from_pairs([("HOME", folder.to_str().expect("UTF-8"))]);
    let parsed = read(arguments, &environment);
    let command = parsed.unwrap_or_else(|failure| panic!("{shown}\n{failure}"));
    let Command::Explain(explain) = command else {
        return;
    };
    if explain.file.is_none() {
        return;
    }
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let result = callbridge::run_explain(&explain, &environment, &mut out, &mut notes);
    result.unwrap_or_else(|failure| panic!("{shown}\n{failure}"));
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.contains("\n  direction "), "{shown}\n{text}");
    assert!(
        !text.contains("INTERNAL"),
        "the trunk flag has the wrong name: {shown}\n{text}"
    );
    let notes = String::from_utf8(notes).expect("UTF-8");
    assert!(notes.contains(" 0 unreadable\n"), "{shown}\n{notes}");
    if let Some(picture) = &explain.picture {
        let svg = fs::read_to_string(picture).expect("a picture");
        assert!(svg.starts_with("<svg "), "{shown}");
    }
}

#[test]
fn documented_command_lines_parse_and_explain_runs() {
    for (page, least) in PAGES {
        let text = fs::read_to_string(root(page)).expect("a page");
        let folder = create_page_folder(&text);
        let lines = commands(&text);
        for line in &lines {
            run(line, folder.path());
        }
        assert!(lines.len() >= least, "{page}: only {} lines", lines.len());
    }
}

#[test]
fn wrong_flag_in_a_page_fails_to_parse() {
    let page = "```sh\ncallbridge check --pbx-idd x  # comment\n```\n";
    let line = &commands(page)[0];
    assert_eq!(line[..], ["callbridge", "check", "--pbx-idd", "x"]);
    let arguments = line.iter().map(OsString::from);
    assert!(read(arguments, &Environment::default()).is_err());
}

#[test]
fn links_between_pages_point_to_existing_files() {
    let mut count = 0;
    for (page, _) in PAGES {
        let text = fs::read_to_string(root(page)).expect("a page");
        let folder = root(page).parent().expect("a folder").to_owned();
        // Asterisk's `[general](+)` is not a link.
        let prose: String = text.split("```").step_by(2).collect();
        for part in prose.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            count += 1;
            assert!(
                folder.join(file).exists(),
                "{page}: the link {target} leads nowhere"
            );
        }
    }
    assert!(count > 100, "only {count} links are found");
}

#[test]
fn project_files_named_in_pages_exist() {
    const OURS: [&str; 7] = [
        "src/", "crates/", "bridges/", "tests/", "benches/", "deploy/", "docs/",
    ];
    let mut count = 0;
    for (page, _) in PAGES {
        let text = fs::read_to_string(root(page)).expect("a page");
        for word in text.split('`').skip(1).step_by(2) {
            let ours = OURS.iter().any(|folder| word.starts_with(folder));
            let plain = word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            if ours && plain {
                count += 1;
                assert!(root(word).exists(), "{page}: there is no {word}");
            }
        }
    }
    assert!(count > 50, "only {count} files are named");
}
