//! A recursive-descent parser for formulas, with one level for each precedence.

use super::functions::FUNCTIONS;
use super::{Node, Operator, Quantity};
use crate::error::{NAME_MAX, Problem, shortened};

/// The maximum nesting depth of a formula. More would exhaust the stack.
const DEPTH_MAX: usize = 64;

/// The operators, from the lowest to the highest precedence.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("or", Operator::Or)],
    &[("and", Operator::And)],
    &[
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("==", Operator::Equal),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide)],
];

/// The maximum length of a formula in bytes. Each operator makes the tree one level deeper.
const LENGTH_MAX: usize = 10_000;

pub(super) fn parse(text: &str) -> Result<Node, String> {
    if text.len() > LENGTH_MAX {
        return Err(format!("a formula has at most {LENGTH_MAX} characters"));
    }
    let mut parser = Parser {
        rest: text.trim(),
        depth: 0,
    };
    let root = parser.level(0)?;
    match parser.rest {
        "" => Ok(root),
        rest => Err(format!("`{}` is not expected there", first_word(rest))),
    }
}

struct Parser<'a> {
    /// The text that remains to be read, without leading space.
    rest: &'a str,
    depth: usize,
}

impl<'a> Parser<'a> {
    /// Reads operands joined by operators of this level. Below the last level there is a
    /// single operand.
    fn level(&mut self, level: usize) -> Result<Node, String> {
        let Some(operators) = LEVELS.get(level) else {
            return self.operand();
        };
        let mut left = self.level(level + 1)?;
        while let Some((sign, operator)) = operators.iter().find(|(sign, _)| self.starts(sign)) {
            self.skip(sign.len());
            let right = self.level(level + 1)?;
            left = Node::Binary(*operator, Box::new([left, right]));
        }
        Ok(left)
    }

    /// Returns whether the operator `sign` comes next. An operator that is a word ends at
    /// the word's end.
    fn starts(&self, sign: &str) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(_) if sign.starts_with(|c: char| c.is_ascii_alphabetic()) => self.word() == sign,
            Some(_) => true,
            None => false,
        }
    }

    fn operand(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply".to_owned());
        }
        let node = match self.rest.chars().next() {
            None => Err("it ends too early".to_owned()),
            Some('-') => {
                self.skip(1);
                self.operand().map(|node| Node::Negated(Box::new(node)))
            }
            Some('(') => {
                self.skip(1);
                let inner = self.level(0)?;
                self.close()?;
                Ok(inner)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.literal(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name_or_call(),
            Some(_) => Err(format!("`{}` is not expected there", first_word(self.rest))),
        };
        self.depth -= 1;
        node
    }

    /// Reads a number and, if a word follows, its unit.
    fn literal(&mut self) -> Result<Node, String> {
        let digits = number_length(self.rest);
        let number = &self.rest[..digits];
        let value: f64 = number
            .replace('_', "")
            .parse()
            .map_err(|_| format!("`{}` is not a number", shortened(number, NAME_MAX)))?;
        self.skip(digits);
        let unit = self.unit();
        if unit.is_empty() {
            return Ok(Node::Literal(Quantity::number(value)));
        }
        let quantity = Quantity::of_unit(value, unit).ok_or_else(|| no_unit(unit))?;
        self.skip(unit.len());
        Ok(Node::Literal(quantity))
    }

    /// Returns the unit that comes next, with its `/s`. Empty before an operator or the end.
    fn unit(&self) -> &'a str {
        if self.rest.starts_with('%') {
            return "%";
        }
        let word = self.word();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return "";
        }
        if LEVELS
            .iter()
            .flat_map(|level| level.iter())
            .any(|(sign, _)| *sign == word)
        {
            return "";
        }
        match self.rest[word.len()..].strip_prefix("/s") {
            Some(after) if !word.is_empty() && !after.starts_with(is_word) => {
                &self.rest[..word.len() + 2]
            }
            _ => word,
        }
    }

    fn name_or_call(&mut self) -> Result<Node, String> {
        let name = self.word();
        self.skip(name.len());
        if !self.rest.starts_with('(') {
            return Ok(Node::Name(name.to_owned()));
        }
        self.skip(1);
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        let function = function.ok_or_else(|| {
            let known = FUNCTIONS.iter().map(|function| function.name);
            Problem::unknown("function", name, known).to_string()
        })?;
        let mut arguments = Vec::new();
        while !self.rest.starts_with(')') {
            arguments.push(self.level(0)?);
            match self.rest.starts_with(',') {
                true => self.skip(1),
                false => break,
            }
        }
        self.close()?;
        if !function.arguments.contains(&arguments.len()) {
            return Err(format!("expected {}", function.usage));
        }
        Ok(Node::Call(function, arguments))
    }

    fn close(&mut self) -> Result<(), String> {
        match self.rest.starts_with(')') {
            true => self.skip(1),
            false => return Err("a `)` is missing".to_owned()),
        }
        Ok(())
    }

    fn word(&self) -> &'a str {
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }
}

/// Returns whether names and units may have this character. The micro sign and the Greek letter are
/// for microseconds.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '\u{b5}' | '\u{3bc}')
}

/// Returns the length of the digits, point and exponent at the beginning of `text`.
fn number_length(text: &str) -> usize {
    let digits = |from: usize| {
        text[from..]
            .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
            .map_or(text.len(), |end| from + end)
    };
    let end = digits(0);
    let exponent = text[end..].strip_prefix('e').map(|after| {
        let sign = usize::from(after.starts_with('-'));
        (
            end + 1 + sign,
            after[sign..].starts_with(|c: char| c.is_ascii_digit()),
        )
    });
    match exponent {
        Some((from, true)) => digits(from),
        _ => end,
    }
}

fn no_unit(unit: &str) -> String {
    format!("there is no unit `{}`", shortened(unit, NAME_MAX))
}

fn first_word(text: &str) -> String {
    shortened(text.split_whitespace().next().unwrap_or(text), NAME_MAX)
}
