//! Compact storage of the names of many nodes.

/// Names by number, stored in one text. A `String` for each would take three times the memory.
#[derive(Clone, Debug, Default)]
pub struct Names {
    text: String,
    /// The end of each name in the text.
    ends: Vec<usize>,
}

impl Names {
    /// Adds a name. Its number is the number of names before it.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the name with this number. Panics if there is none.
    pub fn get(&self, number: u32) -> &str {
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[number]]
    }

    /// Returns all names in the order of their numbers.
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
