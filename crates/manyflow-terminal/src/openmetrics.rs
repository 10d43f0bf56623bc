//! Reads OpenMetrics text, as roles serve it at `/metrics`.

use std::collections::BTreeMap;

use serde::Serialize;

/// The maximum number of samples that are read from a page.
const SAMPLES_MAX: usize = 4096;

/// A family of metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Family {
    name: String,
    help: String,
    is_counter: bool,
    samples: Vec<Sample>,
}

/// A sample with its labels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Returns the families of a page, in its order. Lines that are not understood are left out.
pub fn parse(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            describe(&mut families, comment);
        } else if let Some((name, sample)) = sample(line)
            && count < SAMPLES_MAX
        {
            count += 1;
            let name = name.strip_suffix("_total").unwrap_or(name);
            family(&mut families, name).samples.push(sample);
        }
    }
    families.retain(|family| !family.samples.is_empty());
    families
}

/// Reads `HELP name text` or `TYPE name type`.
fn describe(families: &mut Vec<Family>, comment: &str) {
    let mut words = comment.splitn(3, ' ');
    let (Some(key), Some(name), Some(text)) = (words.next(), words.next(), words.next()) else {
        return;
    };
    match key {
        "HELP" => family(families, name).help = text.to_owned(),
        "TYPE" => family(families, name).is_counter = text == "counter",
        _ => {}
    }
}

/// Returns the family of this name. Lines of a family follow each other.
fn family<'f>(families: &'f mut Vec<Family>, name: &str) -> &'f mut Family {
    if families.last().is_none_or(|last| last.name != name) {
        families.push(Family {
            name: name.to_owned(),
            ..Family::default()
        });
    }
    families.last_mut().expect("a family was pushed")
}

/// Reads `name{label="value"} number`.
fn sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = read_labels(inside, &mut labels)?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, Sample { labels, value }))
}

/// Reads labels up to the brace. Returns the text behind it.
fn read_labels<'t>(mut text: &'t str, labels: &mut BTreeMap<String, String>) -> Option<&'t str> {
    loop {
        text = text.trim_start_matches(',');
        if let Some(rest) = text.strip_prefix('}') {
            return Some(rest);
        }
        let (name, quoted) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        let end = loop {
            match letters.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(name.to_owned(), value);
        text = &quoted[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_their_samples_and_labels() {
        let families = parse(
            "# HELP a_packets Packets, of all kinds.\n# TYPE a_packets counter\na_packets_total 7\n\
             # TYPE a_lost counter\na_lost_total{reason=\"a \\\"b\\\"\",session=\"x,y}\"} 1.5e3 1700\n\
             a_lost_total{} 2\n# TYPE empty gauge\n# TYPE rate gauge\nrate NaN\nbroken{a=\"\n# EOF\n",
        );
        let [packets, lost, rate] = &families[..] else {
            panic!("{families:?}");
        };
        assert!(packets.is_counter && packets.help == "Packets, of all kinds.");
        assert_eq!(packets.name, "a_packets");
        assert_eq!(packets.samples[0].value, 7.0);
        assert_eq!(lost.samples[0].labels["reason"], "a \"b\"");
        assert_eq!(lost.samples[0].labels["session"], "x,y}");
        assert_eq!(
            (lost.samples[0].value, lost.samples[1].value),
            (1500.0, 2.0)
        );
        assert!(!rate.is_counter && rate.samples[0].value.is_nan());
    }
}
