//! The names of very many nodes.

/// Names by number, in one text: a `String` each would take three times as much.
#[derive(Clone, Debug, Default)]
pub struct Names {
    text: String,
    /// Where each name ends.
    ends: Vec<usize>,
}

impl Names {
    /// Adds a name, whose number is the count of those before it.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name of this number, which must be there.
    pub fn get(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[number]]
    }

    /// All names, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len() as u32).map(|number| self.get(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_numbers() {
        let mut names = Names::default();
        assert!(names.is_empty());
        ["a", "", "bcd"]
            .into_iter()
            .for_each(|name| names.push(name));
        assert_eq!((names.get(0), names.get(1), names.get(2)), ("a", "", "bcd"));
        assert_eq!(names.iter().collect::<Vec<_>>(), ["a", "", "bcd"]);
        assert_eq!(names.len(), 3);
    }
}
