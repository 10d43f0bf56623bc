//! The functions of formulas: arithmetic, statistics over seeds, and the papers' equations.

use std::ops::RangeInclusive;

use manyflow_core::estimate::tcp_equation::TcpEquation;

use super::Samples;
use super::evaluate::broadcast;
use crate::error::Fault;
use crate::quantity::Dimension;
use crate::theory::worst_ratio;

/// A function that formulas can call.
pub struct Function {
    /// The name of the function.
    pub name: &'static str,
    /// The arguments and the result, for errors and for the manual.
    pub usage: &'static str,
    pub(super) arguments: RangeInclusive<usize>,
    body: fn(&[Samples]) -> Result<Samples, Fault>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.name == other.name
    }
}

const fn function(
    name: &'static str,
    usage: &'static str,
    arguments: RangeInclusive<usize>,
    body: fn(&[Samples]) -> Result<Samples, Fault>,
) -> Function {
    Function {
        name,
        usage,
        arguments,
        body,
    }
}

/// All functions that formulas can call.
pub static FUNCTIONS: &[Function] = &[
    function("mean", "mean(x), over the seeds", 1..=1, |a| {
        statistic(a, mean)
    }),
    function("median", "median(x), over the seeds", 1..=1, |a| {
        statistic(a, |x| quantile(x, 0.5))
    }),
    function(
        "spread",
        "spread(x), the standard deviation over the seeds",
        1..=1,
        |a| statistic(a, spread),
    ),
    function(
        "quantile",
        "quantile(x, q), over the seeds, q from 0 to 1",
        2..=2,
        quantile_of,
    ),
    function(
        "min",
        "min(x) over the seeds, or min(a, b, ...)",
        1..=9,
        |a| extreme(a, f64::min),
    ),
    function(
        "max",
        "max(x) over the seeds, or max(a, b, ...)",
        1..=9,
        |a| extreme(a, f64::max),
    ),
    function(
        "jain",
        "jain(a, b, ...), Jain's fairness index: 1 if all are equal, 1/n if one of n has everything",
        2..=32,
        jain,
    ),
    function("abs", "abs(x), the magnitude", 1..=1, |a| {
        Ok(mapped(&a[0], a[0].dimension, f64::abs))
    }),
    function("sqrt", "sqrt(x) of a bare number", 1..=1, |a| {
        numbers("sqrt", a)?;
        Ok(mapped(&a[0], Dimension::NUMBER, f64::sqrt))
    }),
    function("log2", "log2(x) of a bare number", 1..=1, |a| {
        numbers("log2", a)?;
        Ok(mapped(&a[0], Dimension::NUMBER, libm::log2))
    }),
    function(
        "ceil",
        "ceil(x), rounded up to a whole number (of seconds, bits, packets)",
        1..=1,
        |a| Ok(mapped(&a[0], a[0].dimension, f64::ceil)),
    ),
    function(
        "tcp_rate",
        "tcp_rate(rtt, p), in packets/s: the TCP equation, RFC 3738 section 3.2.2.3, Eqs. (1) and (6) of the WEBRC paper",
        2..=2,
        |a| rate_by_equation(a, |rtt_s, p| TcpEquation::RENO.rate_packets_per_s(rtt_s, p)),
    ),
    function(
        "tcp_full_rate",
        "tcp_full_rate(rtt, p), in packets/s: the same with b = 2 packets for each acknowledgement and RTO = 4 RTT, Eq. (1) of the many-to-many TFRC paper",
        2..=2,
        |a| {
            rate_by_equation(a, |rtt_s, p| {
                TcpEquation::RENO.full_rate_packets_per_s(rtt_s, p)
            })
        },
    ),
    function(
        "cubic_rate",
        "cubic_rate(rtt, p), in packets/s: tcp_rate(rtt, p) with the larger of Reno's and CUBIC's average windows, RFC 9438 section 5",
        2..=2,
        |a| {
            rate_by_equation(a, |rtt_s, p| {
                TcpEquation::CUBIC.rate_packets_per_s(rtt_s, p)
            })
        },
    ),
    function(
        "loss_event_probability",
        "loss_event_probability(p), from the packet loss probability: Eq. (8) of the WEBRC paper",
        1..=1,
        |a| {
            numbers("loss_event_probability", a)?;
            Ok(mapped(&a[0], Dimension::NUMBER, |p| {
                p / (1.0 + (1.5 * p).sqrt())
            }))
        },
    ),
    function(
        "webrc_mean_factor",
        "webrc_mean_factor(P), the mean over the peak of WEBRC's rate: (1-P)/ln(1/P), Eq. (7) of the WEBRC paper",
        1..=1,
        |a| {
            numbers("webrc_mean_factor", a)?;
            Ok(mapped(&a[0], Dimension::NUMBER, |p| {
                (1.0 - p) / -libm::log(p)
            }))
        },
    ),
    function(
        "admission_ratio",
        "admission_ratio(gamma, hops), the upper bound of what any algorithm could admit to a path of links over what the prices of Cost-Benefit's paper (section IV-A) admit: the worst ratio of 10,000 random and hostile sequences of circuits; gamma is at least 8 for each hop",
        2..=2,
        admission_ratio,
    ),
];

/// The number of sequences that [`admission_ratio`] tries.
const ADMISSION_INPUTS: u32 = 10_000;

impl Function {
    pub(super) fn call(&self, arguments: &[Samples]) -> Result<Samples, Fault> {
        (self.body)(arguments)
    }
}

fn numbers(name: &str, arguments: &[Samples]) -> Result<(), Fault> {
    let bare = arguments.iter().all(|a| a.dimension == Dimension::NUMBER);
    let refuse = || Fault::value(format!("{name} takes a number without a unit"));
    bare.then_some(()).ok_or_else(refuse)
}

fn mapped(samples: &Samples, dimension: Dimension, operation: impl Fn(f64) -> f64) -> Samples {
    let values = samples
        .values
        .iter()
        .map(|&value| operation(value))
        .collect();
    Samples { values, dimension }
}

fn statistic(arguments: &[Samples], of: impl Fn(&[f64]) -> f64) -> Result<Samples, Fault> {
    let all = &arguments[0].values;
    let values = vec![match all.iter().any(|value| value.is_nan()) {
        true => f64::NAN,
        false => of(all),
    }];
    let dimension = arguments[0].dimension;
    Ok(Samples { values, dimension })
}

fn quantile_of(arguments: &[Samples]) -> Result<Samples, Fault> {
    numbers("the second argument of quantile", &arguments[1..])?;
    let q = mean(&arguments[1].values);
    match (0.0..=1.0).contains(&q) {
        true => statistic(&arguments[..1], |x| quantile(x, q)),
        false => Err(Fault::value(
            "the second argument of quantile has to be from 0 to 1",
        )),
    }
}

fn extreme(arguments: &[Samples], of: fn(f64, f64) -> f64) -> Result<Samples, Fault> {
    // The methods of the standard library ignore NaN.
    let choose = |a: f64, b: f64| match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false => of(a, b),
    };
    if let [only] = arguments {
        let chosen = only.values.iter().copied().reduce(choose);
        return statistic(arguments, |_| chosen.unwrap_or(f64::NAN));
    }
    let mut result = arguments[0].clone();
    for next in &arguments[1..] {
        if next.dimension != result.dimension {
            return Err(Fault::value(
                "min and max compare quantities of the same unit",
            ));
        }
        result.values = broadcast(&result, next, choose);
    }
    Ok(result)
}

/// Computes (sum x)^2 / (n sum x^2), sample by sample.
fn jain(arguments: &[Samples]) -> Result<Samples, Fault> {
    let first = &arguments[0];
    if arguments.iter().any(|a| a.dimension != first.dimension) {
        return Err(Fault::value("jain compares quantities of the same unit"));
    }
    let mut sums = mapped(first, Dimension::NUMBER, |x| x);
    let mut squares = mapped(first, Dimension::NUMBER, |x| x * x);
    for next in &arguments[1..] {
        sums.values = broadcast(&sums, next, |sum, x| sum + x);
        squares.values = broadcast(&squares, next, |sum, x| sum + x * x);
    }
    let count = arguments.len() as f64;
    let values = broadcast(&sums, &squares, |sum, squares| {
        sum * sum / (count * squares)
    });
    Ok(Samples {
        values,
        dimension: Dimension::NUMBER,
    })
}

fn rate_by_equation(
    arguments: &[Samples],
    equation: fn(f64, f64) -> f64,
) -> Result<Samples, Fault> {
    if arguments[0].dimension != Dimension::TIME {
        return Err(Fault::value(
            "the TCP equation takes a time and a probability",
        ));
    }
    numbers("the TCP equation's second argument", &arguments[1..])?;
    let values = broadcast(&arguments[0], &arguments[1], equation);
    let dimension = Dimension::PACKET_RATE;
    Ok(Samples { values, dimension })
}

fn admission_ratio(arguments: &[Samples]) -> Result<Samples, Fault> {
    numbers("admission_ratio", arguments)?;
    let is_possible = |gamma: f64, hops: f64| (1.0..=64.0).contains(&hops) && gamma >= 8.0 * hops;
    let possible = broadcast(&arguments[0], &arguments[1], |gamma, hops| {
        f64::from(is_possible(gamma, hops))
    });
    if possible.contains(&0.0) {
        return Err(Fault::value(
            "admission_ratio takes 1 to 64 hops, and a gamma of at least 8 for each",
        ));
    }
    let values = broadcast(&arguments[0], &arguments[1], |gamma, hops| {
        worst_ratio(gamma, hops as usize, ADMISSION_INPUTS, 1)
    });
    let dimension = Dimension::NUMBER;
    Ok(Samples { values, dimension })
}

/// Returns the mean, or NaN if there are no values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sample standard deviation, or 0 if there are fewer than two values.
pub fn spread(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let center = mean(values);
    let squares: f64 = values
        .iter()
        .map(|value| (value - center) * (value - center))
        .sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// The 0.975 quantiles of Student's t distribution with 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same quantile of the normal distribution. That of Student's t with more than 30 degrees of
/// freedom exceeds it by less than 5 %.
const NORMAL: f64 = 1.960;

/// Returns half the width of the 95 % confidence interval of the mean, if the values are
/// independent and come from a normal distribution (Student's t); `None` if there are fewer than
/// two.
pub fn confidence(values: &[f64]) -> Option<f64> {
    let degrees = values.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
    let quantile = STUDENT.get(degrees - 1).copied().unwrap_or(NORMAL);
    Some(quantile * spread(values) / (values.len() as f64).sqrt())
}

/// Returns the quantile `q` (0 to 1), interpolated linearly, or NaN if there are no values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = q * sorted.len().saturating_sub(1) as f64;
    let below = place.floor() as usize;
    match (sorted.get(below), sorted.get(below + 1)) {
        (Some(a), Some(b)) => a + (b - a) * (place - below as f64),
        (Some(a), None) => *a,
        _ => f64::NAN,
    }
}
