//! Formulas such as `rate * rtt / 2` or `mean(webrc) / (mean(webrc) + mean(tcp))`.
//!
//! Numbers carry units, and units are checked: a time multiplied by a rate is a size, and a
//! time plus a rate is an error. A name stands for a parameter of the scenario or for a
//! measure. A measure has one sample for each seed. Arithmetic works sample by sample, and a
//! statistic such as `mean` makes one number of all samples.

mod evaluate;
mod functions;
mod parse;

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{Fault, NAME_MAX, shortened};
use crate::quantity::{Dimension, Quantity};

pub use functions::{FUNCTIONS, Function};
pub use functions::{confidence, mean, quantile, spread};

/// A parsed formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Literal(Quantity),
    Name(String),
    Negated(Box<Node>),
    Binary(Operator, Box<[Node; 2]>),
    Call(&'static Function, Vec<Node>),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// The value of a formula: a single sample, or one sample for each seed. All samples have the
/// same unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The samples. There is at least one.
    pub values: Vec<f64>,
    /// The unit of all samples.
    pub dimension: Dimension,
}

/// The values of the names in a formula.
pub type Environment = BTreeMap<String, Samples>;

impl From<Quantity> for Samples {
    fn from(quantity: Quantity) -> Samples {
        Samples {
            values: vec![quantity.value],
            dimension: quantity.dimension,
        }
    }
}

impl Samples {
    /// Formats the mean, with the standard deviation if there are several samples: `3.2
    /// Mbit/s ± 0.1 Mbit/s`.
    pub fn shown(&self) -> String {
        self.shown_within((self.values.len() > 1).then(|| spread(&self.values)))
    }

    /// Formats the mean, with half the width of its 95 % [confidence] interval if there are several
    /// samples.
    pub fn shown_with_confidence(&self) -> String {
        self.shown_within(confidence(&self.values))
    }

    fn shown_within(&self, margin: Option<f64>) -> String {
        let quantity = |value| Quantity {
            value,
            dimension: self.dimension,
        };
        let center = mean(&self.values);
        match margin {
            _ if center.is_nan() => "none".to_owned(),
            None => quantity(center).to_string(),
            Some(margin) => format!("{} ± {}", quantity(center), quantity(margin)),
        }
    }
}

impl Expression {
    /// Parses a formula.
    ///
    /// # Errors
    /// Returns an error if the text is not a formula, with the reason.
    pub fn parse(text: &str) -> Result<Expression, Fault> {
        let root = parse::parse(text).map_err(|why| {
            let text = shortened(text, NAME_MAX);
            Fault::value(format!("`{text}` cannot be read: {why}"))
        })?;
        Ok(Expression {
            text: text.to_owned(),
            root,
        })
    }

    /// Returns the formula as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns all names in the formula.
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.root.collect_names(&mut names);
        names
    }

    /// Returns the samples of the formula's value.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or has no value, if units do not fit, or if
    /// the result is not finite.
    pub fn samples(&self, environment: &Environment) -> Result<Samples, Fault> {
        let has_none = |name: &&str| {
            let samples = environment.get(*name);
            samples.is_some_and(|samples| !samples.values.iter().all(|value| value.is_finite()))
        };
        if let Some(name) = self.names().into_iter().find(has_none) {
            let message = format!("`{name}` has no value: nothing was observed");
            return Err(Fault::value(message));
        }
        let result = self.root.evaluate(environment)?;
        match result.values.iter().all(|value| value.is_finite()) {
            true => Ok(result),
            false => Err(Fault::value("the result is not a finite number")),
        }
    }

    /// Returns the samples of the formula's value. Samples without a finite value are NaN.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or if units do not fit.
    pub fn known_samples(&self, environment: &Environment) -> Result<Samples, Fault> {
        let mut samples = self.root.evaluate(environment)?;
        for value in samples
            .values
            .iter_mut()
            .filter(|value| value.is_infinite())
        {
            *value = f64::NAN;
        }
        Ok(samples)
    }

    /// Returns the unit of the formula's value. It does not depend on the values of the names.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or if units do not fit.
    pub fn dimension(&self, environment: &Environment) -> Result<Dimension, Fault> {
        Ok(self.root.evaluate(environment)?.dimension)
    }

    /// Returns the mean of the formula's value.
    ///
    /// # Errors
    /// Returns the same errors as [`samples`](Expression::samples).
    pub fn evaluate(&self, environment: &Environment) -> Result<Quantity, Fault> {
        let samples = self.samples(environment)?;
        Ok(Quantity {
            value: mean(&samples.values),
            dimension: samples.dimension,
        })
    }
}

impl Node {
    fn collect_names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Node::Literal(_) => {}
            Node::Name(name) => names.push(name),
            Node::Negated(inner) => inner.collect_names(names),
            Node::Binary(_, sides) => sides.iter().for_each(|side| side.collect_names(names)),
            Node::Call(_, arguments) => arguments.iter().for_each(|a| a.collect_names(names)),
        }
    }
}

impl<'de> Deserialize<'de> for Expression {
    /// Reads a formula from a text or from a number.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Expression, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Expression;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a formula such as `mean(rate) / capacity`")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Expression, E> {
                Expression::parse(text).map_err(|fault| E::custom(fault.problem))
            }

            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Expression, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Expression, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, environment: &Environment) -> Result<String, String> {
        let parsed = Expression::parse(text).map_err(|fault| fault.to_string())?;
        let quantity = parsed.evaluate(environment);
        quantity
            .map(|quantity| quantity.to_string())
            .map_err(|fault| fault.to_string())
    }

    fn environment() -> Environment {
        let time = |text: &str| {
            Expression::parse(text)
                .unwrap()
                .samples(&Environment::new())
        };
        let mut environment = Environment::new();
        environment.insert("rtt".into(), time("100 ms").unwrap());
        let values = vec![1e6, 2e6, 6e6];
        let dimension = Dimension::RATE;
        environment.insert("rate".into(), Samples { values, dimension });
        environment
    }

    #[test]
    fn a_mean_is_shown_with_its_deviation_or_its_confidence() {
        let of = |values: &[f64]| Samples {
            values: values.to_vec(),
            dimension: Dimension::NUMBER,
        };
        // Two values differ from their mean by d: the deviation is d √2, the interval 12.706 d.
        let two = of(&[9.0, 11.0]);
        assert_eq!(two.shown(), "10 ± 1.414");
        assert_eq!(two.shown_with_confidence(), "10 ± 12.71");
        assert_eq!(of(&[10.0]).shown_with_confidence(), "10");
        assert_eq!(of(&[f64::NAN, 1.0]).shown_with_confidence(), "none");
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(of(&many).shown_with_confidence(), "49.5 ± 5.686");
    }

    #[test]
    fn formulas_compute_with_units() {
        let environment = environment();
        for (text, expected) in [
            ("rtt / 2 - 1 ms", "0.049 s"),
            ("3.2 Mbit/s * rtt / (8 * 1000 bit)", "40"),
            ("1 Mbit/s * rtt", "1e5 bit"),
            ("1 + 2 * 3 - -1", "8"),
            ("mean(rate)", "3 Mbit/s"),
            ("median(rate) / max(rate)", "0.3333"),
            ("max(1 s, rtt)", "1 s"),
            ("jain(1 s, 1 s, rtt - rtt)", "0.6667"),
            ("jain(mean(rate), 0 bit/s)", "0.5"),
            ("mean(rate > 1.5 Mbit/s)", "0.6667"),
            ("rtt < 200 ms and not_less", "unknown"),
            ("5 %", "0.05"),
        ] {
            match value(text, &environment) {
                Ok(printed) => assert_eq!(
                    printed.replace(".000e", "e"),
                    expected.replace("1e5", "100000"),
                    "{text}"
                ),
                Err(error) => assert!(
                    expected == "unknown" && error.contains("not_less"),
                    "{error}"
                ),
            }
        }
    }

    #[test]
    fn results_of_missing_values_are_missing() {
        let mut environment = environment();
        let values = vec![1e6, f64::NAN];
        let dimension = Dimension::RATE;
        environment.insert("gap".into(), Samples { values, dimension });
        let known = |text: &str| {
            let samples = Expression::parse(text).unwrap().known_samples(&environment);
            let values = samples.unwrap().values.into_iter();
            values.map(|value| value.is_nan()).collect::<Vec<_>>()
        };
        for elementwise in [
            "gap / 2",
            "gap > 2 Mbit/s",
            "max(gap, 1 bit/s)",
            "gap == 1 bit/s or 1 == 1",
            "abs(gap)",
        ] {
            assert_eq!(known(elementwise), [false, true], "{elementwise}");
        }
        for statistic in [
            "mean(gap)",
            "median(gap)",
            "min(gap)",
            "quantile(gap, 0)",
            "spread(gap)",
        ] {
            assert_eq!(known(statistic), [true], "{statistic}");
        }
        let error = value("1 bit/s + gap", &environment).unwrap_err();
        assert!(error.contains("`gap` has no value"), "{error}");
    }

    #[test]
    fn invalid_formulas_are_refused_with_a_reason() {
        for (text, reason) in [
            ("1 s + 1 Mbit/s", "cannot add bit/s to s"),
            ("3 furlong", "there is no unit `furlong`"),
            ("rt / 2", "did you mean `rtt`?"),
            ("(1 + 2", "`)` is missing"),
            ("1 2", "`2` is not expected"),
            ("men(rate)", "did you mean `mean`?"),
            ("sqrt(1 s)", "sqrt"),
            ("", "ends too early"),
            ("median()", "median"),
            ("1 / 0", "not a finite number"),
        ] {
            let error = value(text, &environment()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for start in ["1 2", "x y", "3 a", "1.1.", "(x", "x"] {
            let long = start.to_owned() + &"3".repeat(5000);
            let error = value(&long, &environment()).unwrap_err();
            assert!(error.len() < 300 && error.contains("..."), "{error}");
        }
        for long in ["1+".repeat(100_000) + "1", "-".repeat(100_000) + "1"] {
            let error = value(&long, &environment()).unwrap_err();
            assert!(error.ends_with("at most 10000 characters"), "{error}");
        }
        let deep = "(".repeat(10_000);
        assert!(value(&deep, &environment()).unwrap_err().contains("nested"));
    }

    #[test]
    fn the_webrc_papers_example_is_reproduced() {
        // Section 5.1.1 of the WEBRC paper: 1 % loss and 0.2 s give 428 kbit/s.
        let text = "webrc_mean_factor(0.75) * tcp_rate(0.2 s, loss_event_probability(1 %)) * 1024 B / 1 packet";
        let rate = Expression::parse(text)
            .unwrap()
            .evaluate(&Environment::new());
        let rate = rate.unwrap();
        assert_eq!(rate.dimension, Dimension::RATE);
        assert!((rate.value / 428e3 - 1.0).abs() < 0.005, "{rate}");
    }
}
