//! Names in scenario files.

use crate::error::Fault;
use crate::expression::FUNCTIONS;

/// Checks that a name can be used in formulas.
///
/// # Errors
/// Returns an error if it cannot.
pub fn formula_name(name: &str) -> Result<(), Fault> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if ["and", "or"].contains(&name) || FUNCTIONS.iter().any(|f| f.name == name) {
        return Err(Fault::value(format!(
            "`{name}` has a meaning in formulas already: choose another name"
        )));
    }
    if !starts || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(Fault::value(format!(
            "`{name}` cannot be a name in formulas: use letters, digits and `_`, a letter first"
        )));
    }
    Ok(())
}

/// Replaces `{i}`, `{i+1}` and `{i+1 mod 800}` in a name for the session of this number.
pub fn numbered(name: &str, number: u32) -> String {
    let mut rest = name;
    let mut result = String::new();
    while let Some((before, after)) = rest.split_once("{i") {
        let Some((offset, behind)) = after.split_once('}') else {
            break;
        };
        let (offset, modulus) = match offset.split_once(" mod ") {
            Some((offset, modulus)) => (offset, modulus.trim().parse().ok()),
            None => (offset, None),
        };
        let offset: u32 = offset.trim_start_matches('+').parse().unwrap_or(0);
        let sum = number.saturating_add(offset);
        let wrapped = modulus.and_then(|modulus| sum.checked_rem(modulus));
        result.push_str(before);
        result.push_str(&wrapped.unwrap_or(sum).to_string());
        rest = behind;
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_the_number_of_the_session() {
        assert_eq!(numbered("R-{i+2}", 5), "R-7");
        assert_eq!(numbered("{i}-{i}", 5), "5-5");
        assert_eq!(numbered("plain {i", 5), "plain {i");
        let wrapping = [797, 798, 799].map(|number| numbered("R-{i+2 mod 800}", number));
        assert_eq!(wrapping, ["R-799", "R-0", "R-1"]);
        assert_eq!(numbered("{i mod 3}", 5), "2");
    }
}
