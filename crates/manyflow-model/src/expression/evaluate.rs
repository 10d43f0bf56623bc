//! Evaluates formulas. NaN stands for a missing value, and every result computed from it is NaN
//! too.

use super::{Environment, Node, Operator, Samples};
use crate::error::{Fault, Problem};
use crate::quantity::Dimension;

impl Node {
    pub(super) fn evaluate(&self, environment: &Environment) -> Result<Samples, Fault> {
        Ok(match self {
            Node::Literal(quantity) => (*quantity).into(),
            Node::Name(name) => return lookup(name, environment),
            Node::Negated(inner) => {
                let inner = inner.evaluate(environment)?;
                let values = inner.values.iter().map(|value| -value).collect();
                Samples { values, ..inner }
            }
            Node::Binary(operator, sides) => {
                let left = sides[0].evaluate(environment)?;
                operator.apply(left, sides[1].evaluate(environment)?)?
            }
            Node::Call(function, arguments) => {
                let arguments = arguments.iter().map(|node| node.evaluate(environment));
                function.call(&arguments.collect::<Result<Vec<_>, _>>()?)?
            }
        })
    }
}

fn lookup(name: &str, environment: &Environment) -> Result<Samples, Fault> {
    environment.get(name).cloned().ok_or_else(|| {
        let known = environment.keys().map(String::as_str);
        Fault::at(&[], Problem::unknown("name", name, known))
    })
}

impl Operator {
    fn apply(self, left: Samples, right: Samples) -> Result<Samples, Fault> {
        let dimension = self.dimension(left.dimension, right.dimension)?;
        let values = broadcast(&left, &right, |a, b| self.number(a, b));
        Ok(Samples { values, dimension })
    }

    fn dimension(self, left: Dimension, right: Dimension) -> Result<Dimension, Fault> {
        let same = left == right;
        let refuse = |verb: &str, joint: &str| {
            let named = |dimension: Dimension| match dimension.unit() {
                unit if unit.is_empty() => "a bare number".to_owned(),
                unit => unit,
            };
            Fault::value(format!(
                "cannot {verb} {} {joint} {}",
                named(right),
                named(left)
            ))
        };
        match self {
            Operator::Multiply => Ok(left.combined(right, 1)),
            Operator::Divide => Ok(left.combined(right, -1)),
            Operator::Add if !same => Err(refuse("add", "to")),
            Operator::Subtract if !same => Err(refuse("subtract", "from")),
            Operator::Add | Operator::Subtract => Ok(left),
            Operator::And | Operator::Or => Ok(Dimension::NUMBER),
            _ if !same => Err(refuse("compare", "with")),
            _ => Ok(Dimension::NUMBER),
        }
    }

    fn number(self, a: f64, b: f64) -> f64 {
        let flag = |holds: bool| f64::from(u8::from(holds));
        if a.is_nan() || b.is_nan() {
            return f64::NAN;
        }
        match self {
            Operator::Add => a + b,
            Operator::Subtract => a - b,
            Operator::Multiply => a * b,
            Operator::Divide => a / b,
            Operator::Or => flag(a != 0.0 || b != 0.0),
            Operator::And => flag(a != 0.0 && b != 0.0),
            Operator::Less => flag(a < b),
            Operator::LessOrEqual => flag(a <= b),
            Operator::Greater => flag(a > b),
            Operator::GreaterOrEqual => flag(a >= b),
            Operator::Equal => flag(a == b),
        }
    }
}

/// Applies `operation` sample by sample. A single sample is combined with each of the others.
pub(super) fn broadcast(
    left: &Samples,
    right: &Samples,
    operation: impl Fn(f64, f64) -> f64,
) -> Vec<f64> {
    let count = left.values.len().max(right.values.len());
    let of = |samples: &Samples, i: usize| samples.values[i.min(samples.values.len() - 1)];
    (0..count)
        .map(|i| operation(of(left, i), of(right, i)))
        .collect()
}
