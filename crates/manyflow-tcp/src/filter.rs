//! The maximum over a window, by Kathleen Nichols' algorithm: the best sample, and the best of
//! those after it, and after that one.

/// The maximum of the samples of the last `length` units of time, which can be rounds or cycles.
#[derive(Debug)]
pub(super) struct WindowedMaximum {
    length: u32,
    /// Times and values, in the order of times: values fall.
    best: [(u32, f64); 3],
}

impl WindowedMaximum {
    /// Creates a filter whose maximum is 0 before the first sample.
    pub(super) fn new(length: u32) -> WindowedMaximum {
        WindowedMaximum {
            length,
            best: [(0, 0.0); 3],
        }
    }

    /// Returns the maximum.
    pub(super) fn maximum(&self) -> f64 {
        self.best[0].1
    }

    /// Changes the length of the window.
    pub(super) fn set_length(&mut self, length: u32) {
        self.length = length;
    }

    /// Adds a sample. Time never goes back.
    pub(super) fn add(&mut self, time: u32, value: f64) {
        let sample = (time, value);
        if value >= self.best[0].1 || time - self.best[2].0 > self.length {
            self.best = [sample; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best[1] = sample;
            self.best[2] = sample;
        } else if value >= self.best[2].1 {
            self.best[2] = sample;
        }
        self.expire(sample);
        debug_assert!(self.best[0].1 >= self.best[1].1 && self.best[1].1 >= self.best[2].1);
    }

    /// Removes the best sample if it is older than the window, and renews the others in time.
    fn expire(&mut self, sample: (u32, f64)) {
        let age = sample.0 - self.best[0].0;
        if age > self.length {
            self.best = [self.best[1], self.best[2], sample];
            if sample.0 - self.best[0].0 > self.length {
                self.best = [self.best[1], self.best[2], sample];
            }
        } else if self.best[1].0 == self.best[0].0 && age > self.length / 4 {
            self.best[1] = sample;
            self.best[2] = sample;
        } else if self.best[2].0 == self.best[1].0 && age > self.length / 2 {
            self.best[2] = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_maximum_is_that_of_samples_in_the_window(
            samples in prop::collection::vec((0..4u32, 0..1000u32), 1..200), length in 1..20u32,
        ) {
            let mut filter = WindowedMaximum::new(length);
            let (mut time, mut all) = (0, Vec::new());
            for (step, value) in samples {
                time += step;
                filter.add(time, value.into());
                all.push((time, f64::from(value)));
                let maximum = filter.maximum();
                let is_recent = |at: u32| time - at <= length;
                // It is a sample of the window, and none below the present one.
                prop_assert!(all.iter().any(|(at, one)| is_recent(*at) && *one == maximum));
                prop_assert!(maximum >= f64::from(value));
            }
        }
    }

    #[test]
    fn a_maximum_is_forgotten_after_the_window() {
        let mut filter = WindowedMaximum::new(10);
        filter.add(0, 50.0);
        (1..=10).for_each(|time| filter.add(time, 20.0));
        assert_eq!(filter.maximum(), 50.0);
        filter.add(11, 20.0);
        assert_eq!(filter.maximum(), 20.0);
    }
}
