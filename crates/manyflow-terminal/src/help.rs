//! Help that fits the terminal: the commands of a program in groups, and examples that remain
//! commands when they are longer than a line.
//!
//! clap wraps the texts of options. It would wrap examples too, within the command, so they are
//! laid out here: a long command continues behind a backslash, and prose is filled again.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::{Arg, Command};

/// The commands of a program in groups: the heading of each group, and the names of its commands.
pub type Groups = &'static [(&'static str, &'static [&'static str])];

/// Lines of help are at most this long, because longer ones are hard to read.
const WIDTH_MAX: usize = 100;
/// Narrower terminals wrap lines themselves.
const WIDTH_MIN: usize = 50;
/// The indent of an example, and of a row such as an exit code.
const INDENT: &str = "  ";
/// The indent of an example's further lines.
const CONTINUED: &str = "      ";
/// The end of a line that continues.
const BACKSLASH: &str = " \\";

/// Returns the width of lines of help: that of COLUMNS or of the terminal, at most 100 columns.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = columns.or_else(terminal).unwrap_or(WIDTH_MAX);
    width.clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Lays out the help of a program and of all its commands for lines of `width` columns. With
/// `groups`, the program's own help lists its commands in these groups, and is the same for `-h`
/// and `--help`.
pub fn lay_out(program: Command, groups: Groups, width: usize) -> Command {
    let program = lay_out_texts(program, width);
    if groups.is_empty() {
        return program;
    }
    let help = program_help(program.clone(), groups, width);
    program.override_help(help)
}

/// Returns the help of a program: its purpose, its commands in groups, its options, and the rest.
fn program_help(mut program: Command, groups: Groups, width: usize) -> StyledStr {
    let mut text = StyledStr::new();
    let about = program.get_about().map(ToString::to_string);
    let about = wrap(&about.unwrap_or_default(), width).join("\n");
    let _ = writeln!(text, "{about}\n\n{}\n", program.render_usage().ansi());
    list_groups(&mut text, &program, groups, width);
    program.build();
    list_options(&mut text, &program, width);
    if let Some(rest) = program.get_after_help() {
        let _ = write!(text, "\n{rest}");
    }
    text
}

fn lay_out_texts(command: Command, width: usize) -> Command {
    let lay = |text: Option<&StyledStr>| text.map(|text| fill(&text.to_string(), width));
    let short = lay(command.get_after_help());
    let long = lay(command.get_after_long_help());
    let mut command = command.term_width(width);
    if let Some(text) = short {
        command = command.after_help(text);
    }
    if let Some(text) = long {
        command = command.after_long_help(text);
    }
    command.mut_subcommands(|below| lay_out_texts(below, width))
}

/// Writes the groups, with a line or more for each command.
fn list_groups(text: &mut StyledStr, program: &Command, groups: Groups, width: usize) {
    let names = groups.iter().flat_map(|(_, names)| *names);
    let longest = names.map(|name| name.len()).max().unwrap_or(0);
    for (title, names) in groups {
        write_heading(text, program, title);
        for name in *names {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            write_row(text, program, (name, longest), about, width);
        }
    }
}

/// Writes the options, with a line or more for each.
fn list_options(text: &mut StyledStr, program: &Command, width: usize) {
    write_heading(text, program, "Options");
    let options: Vec<_> = program.get_arguments().collect();
    let names: Vec<_> = options.iter().map(|option| option_name(option)).collect();
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    // clap's own text promises more with `--help`.
    let own = StyledStr::from("Print help");
    for (option, name) in options.iter().zip(&names) {
        let is_help = option.get_id() == "help";
        let meaning = if is_help {
            Some(&own)
        } else {
            option.get_help()
        };
        write_row(text, program, (name, longest), meaning, width);
    }
}

/// Returns the short and the long form of an option, and the name of its value.
fn option_name(option: &Arg) -> String {
    let short = option.get_short().map(|letter| format!("-{letter}, "));
    let long = option.get_long().unwrap_or_default();
    let value = option.get_value_names().unwrap_or_default().first();
    let value = value.filter(|_| option.get_action().takes_values());
    let value = value.map(|name| format!(" <{name}>"));
    let short = short.unwrap_or("    ".to_owned());
    format!("{short}--{long}{}", value.unwrap_or_default())
}

fn write_heading(text: &mut StyledStr, program: &Command, title: &str) {
    let style = program.get_styles().get_header();
    let _ = writeln!(text, "{style}{title}:{style:#}");
}

/// Writes a name and what it stands for. `longest` is the length of the longest name of the list.
fn write_row(
    text: &mut StyledStr,
    program: &Command,
    (name, longest): (&str, usize),
    meaning: Option<&StyledStr>,
    width: usize,
) {
    let style = program.get_styles().get_literal();
    let column = INDENT.len() + longest + INDENT.len();
    let meaning = meaning.map(ToString::to_string).unwrap_or_default();
    let meaning = wrap(&meaning, width.saturating_sub(column));
    let gap = column - INDENT.len() - name.len();
    let further = format!("\n{:column$}", "");
    let _ = write!(text, "{INDENT}{style}{name}{style:#}{:gap$}", "");
    let _ = writeln!(text, "{}", meaning.join(&further));
}

/// A part of a text that follows the options.
#[derive(Debug, PartialEq)]
enum Part {
    /// An empty line.
    Blank,
    /// A heading, or a paragraph.
    Prose(String),
    /// A term and its explanation, such as an exit code.
    Row(String),
    /// A command, or a comment that explains it.
    Example(String),
}

/// Lays out a text that follows the options.
fn fill(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for part in parts(text) {
        match part {
            Part::Blank => lines.push(String::new()),
            Part::Prose(text) => lines.extend(wrap(&text, width)),
            Part::Row(row) => lines.extend(lay_out_row(&row, width)),
            Part::Example(example) => lines.extend(lay_out_example(&example, width)),
        }
    }
    lines.join("\n")
}

/// Divides a text into its parts. A paragraph, a row and a command may take several lines.
fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut in_examples = false;
    for line in text.lines() {
        let part = match line.strip_prefix(INDENT) {
            _ if line.is_empty() => Part::Blank,
            Some(rest) if in_examples => Part::Example(rest.to_owned()),
            Some(rest) => Part::Row(rest.to_owned()),
            None => {
                in_examples = line.starts_with("Example");
                Part::Prose(line.to_owned())
            }
        };
        match (parts.last_mut(), part) {
            (Some(Part::Prose(above)), Part::Prose(more)) if !above.ends_with(':') => {
                *above += " ";
                *above += &more;
            }
            (Some(Part::Row(above)), Part::Row(more)) if more.starts_with(' ') => {
                *above += " ";
                *above += more.trim_start();
            }
            (Some(Part::Example(above)), Part::Example(more)) if above.ends_with(BACKSLASH) => {
                above.truncate(above.len() - BACKSLASH.len() + 1);
                *above += more.trim_start();
            }
            (_, part) => parts.push(part),
        }
    }
    parts
}

/// Divides prose into lines of at most `width` columns, if no word is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines
}

/// Lays out a term and its explanation, which two spaces or more separate.
fn lay_out_row(row: &str, width: usize) -> Vec<String> {
    let gap = row.find(INDENT).map_or("", |start| &row[start..]);
    let column = INDENT.len() + row.len() - gap.trim_start().len();
    let explained = wrap(gap, width.saturating_sub(column));
    let term = format!("{INDENT}{}", &row[..column - INDENT.len()]);
    let further = " ".repeat(column);
    let starts = std::iter::once(term).chain(std::iter::repeat(further));
    starts
        .zip(explained)
        .map(|(start, line)| start + &line)
        .collect()
}

fn lay_out_example(example: &str, width: usize) -> Vec<String> {
    if INDENT.len() + example.len() <= width {
        return vec![format!("{INDENT}{example}")];
    }
    if let Some(comment) = example.strip_prefix("# ") {
        return lay_out_comment(comment, width);
    }
    if is_of_file(example) {
        return lay_out_line_of_file(example, width);
    }
    let mut lines = Vec::new();
    let (mut line, mut indent) = (INDENT.to_owned(), INDENT.len());
    for words in inseparable(example, width - CONTINUED.len() - BACKSLASH.len()) {
        if line.len() > indent && line.len() + 1 + words.len() + BACKSLASH.len() > width {
            lines.push(line + BACKSLASH);
            (line, indent) = (CONTINUED.to_owned(), CONTINUED.len());
        }
        if line.len() > indent {
            line.push(' ');
        }
        line += &words;
    }
    lines.push(line);
    lines
}

fn lay_out_comment(comment: &str, width: usize) -> Vec<String> {
    let start = format!("{INDENT}# ");
    let lines = wrap(comment, width - start.len()).into_iter();
    lines.map(|line| format!("{start}{line}")).collect()
}

/// Whether an example is a line of a configuration file, in which a backslash continues nothing.
fn is_of_file(example: &str) -> bool {
    example.starts_with(['[', '{']) || example.contains(" = ")
}

/// Moves the comment of a line above it.
fn lay_out_line_of_file(line: &str, width: usize) -> Vec<String> {
    let (content, comment) = line.split_once(" # ").unwrap_or((line, ""));
    let mut lines = Vec::new();
    if !comment.is_empty() {
        lines = lay_out_comment(comment, width);
    }
    lines.push(format!("{INDENT}{}", content.trim_end()));
    lines
}

/// Returns the parts of a command that stand in one line each: the words from one option or pipe to
/// the next. A part that is longer than `width` is divided into its words.
fn inseparable(command: &str, width: usize) -> Vec<String> {
    let mut all: Vec<Vec<&str>> = Vec::new();
    for word in words(command) {
        match all.last_mut() {
            Some(part) if !word.starts_with('-') && !["|", "&&", "<", ">"].contains(&word) => {
                part.push(word);
            }
            _ => all.push(vec![word]),
        }
    }
    let mut parts = Vec::new();
    for part in all {
        let joined = part.join(" ");
        match joined.len() <= width {
            true => parts.push(joined),
            false => parts.extend(part.into_iter().map(str::to_owned)),
        }
    }
    parts
}

/// Divides a command at the spaces that are in no quotes.
fn words(command: &str) -> Vec<&str> {
    let mut quote = None;
    let mut words = Vec::new();
    let mut start = 0;
    for (place, letter) in command.char_indices() {
        match (quote, letter) {
            (None, ' ') => {
                words.push(&command[start..place]);
                start = place + 1;
            }
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    words.push(&command[start..]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Examples:
  # A comment
  manyflow send image.iso --listen 0.0.0.0:2268 --name 'a b' | tee log
  manyflow send \\
      image.iso

Prose in
two lines.

Codes:
  0    done
  130  interrupted by
       a signal";

    #[test]
    fn a_wide_terminal_shows_the_text_with_joined_lines() {
        let expected = "\
Examples:
  # A comment
  manyflow send image.iso --listen 0.0.0.0:2268 --name 'a b' | tee log
  manyflow send image.iso

Prose in two lines.

Codes:
  0    done
  130  interrupted by a signal";
        assert_eq!(fill(TEXT, 100), expected);
    }

    #[test]
    fn a_long_example_continues_behind_a_backslash() {
        let expected = "\
Examples:
  # A comment
  manyflow send image.iso \\
      --listen 0.0.0.0:2268 --name 'a b' \\
      | tee log
  manyflow send image.iso

Prose in two lines.

Codes:
  0    done
  130  interrupted by a signal";
        assert_eq!(fill(TEXT, 44), expected);
        let narrow = fill(TEXT, 22);
        assert!(
            narrow.contains("  130  interrupted by\n       a signal"),
            "{narrow}"
        );
    }

    #[test]
    fn a_comment_of_a_long_line_of_a_file_moves_above_it() {
        let file = "Example:\n  key = \"value\"   # what the key is for";
        let expected = "Example:\n  # what the key is\n  # for\n  key = \"value\"";
        assert_eq!(fill(file, 22), expected);
        assert_eq!(fill(file, 80), file);
    }

    #[test]
    fn words_in_quotes_stay_together() {
        let shell = "emulate -- sh -c 'ping -c 1 $HOST' \"a b\"";
        let expected = ["emulate", "--", "sh", "-c", "'ping -c 1 $HOST'", "\"a b\""];
        assert_eq!(words(shell), expected);
    }

    #[test]
    fn commands_are_listed_in_their_groups() {
        let send = Command::new("send").about("Send files to all receivers");
        let top = Command::new("top").about("Watch daemons");
        let program = Command::new("manyflow").subcommands([send, top]);
        let groups: Groups = &[("Files", &["send"]), ("Tools", &["top"])];
        let mut program = lay_out(program, groups, 24);
        let help = program.render_help().to_string();
        let listed =
            "Files:\n  send  Send files to\n        all receivers\nTools:\n  top   Watch daemons\n";
        assert!(help.contains(listed), "{help}");
        assert!(
            help.contains("Options:\n  -h, --help  Print help"),
            "{help}"
        );
        let below = program.find_subcommand_mut("send").unwrap();
        let help = below.render_long_help().to_string();
        assert!(help.contains("-h, --help"), "{help}");
    }
}
