//! A bounded number of open files.

use std::collections::VecDeque;
use std::fs::File;
use std::io;

/// The maximum number of open files: far below a process's usual limit of 1024.
const OPEN_MAX: usize = 64;

/// Open files by number. The one that was not used for the longest time is closed first.
#[derive(Debug, Default)]
pub(super) struct Handles {
    /// The file used last is at the front.
    open: VecDeque<(u128, File)>,
}

impl Handles {
    /// Returns file `number`, which `open` opens if it is not.
    pub(super) fn get(
        &mut self,
        number: u128,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<&File> {
        let place = self.open.iter().position(|(other, _)| *other == number);
        let entry = match place.and_then(|place| self.open.remove(place)) {
            Some(entry) => entry,
            None => (number, open()?),
        };
        self.open.truncate(OPEN_MAX - 1);
        self.open.push_front(entry);
        Ok(&self.open[0].1)
    }

    /// Closes file `number`.
    pub(super) fn close(&mut self, number: u128) {
        self.open.retain(|(other, _)| *other != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_used_last_remain_open() {
        let mut handles = Handles::default();
        let mut opened = 0;
        let mut open = |handles: &mut Handles, number| {
            handles
                .get(number, || {
                    opened += 1;
                    tempfile::tempfile()
                })
                .unwrap();
            opened
        };
        for number in 0..OPEN_MAX as u128 {
            open(&mut handles, number);
        }
        assert_eq!(open(&mut handles, 0), OPEN_MAX);
        assert_eq!(open(&mut handles, 1_000), OPEN_MAX + 1);
        assert_eq!(open(&mut handles, 0), OPEN_MAX + 1, "0 was used before 1");
        assert_eq!(open(&mut handles, 1), OPEN_MAX + 2);
        handles.close(1);
        assert_eq!(open(&mut handles, 1), OPEN_MAX + 3);
    }
}
