//! `[sweep]`: the axes, and which of them vary together.

use crate::error::{Fault, Problem};
use crate::file::tree::{Node, Value};
use crate::outline::OutlineAxis;

/// The key of `[sweep]` that lists the axes that vary together.
const TOGETHER: &str = "together";

/// A parameter or key whose value varies.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The name of the parameter, or the dotted key.
    pub key: String,
    /// The keys from the outermost table to the value.
    pub path: Vec<String>,
    /// The values, of which there is at least one.
    pub values: Vec<Node>,
}

impl Axis {
    /// Returns the values as written in the file.
    pub fn labels(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(label)
    }

    /// Creates an axis from its key in `[sweep]`, split at dots, and its list of values.
    fn new(path: Vec<String>, values: &Node, parameters: Option<&Node>) -> Result<Axis, Fault> {
        let key = path.join(".");
        let refuse = |message: &str| {
            Err(Fault::at(&[&key], Problem::Value(message.to_owned())).spanned(&values.span))
        };
        let Value::List(list) = &values.value else {
            return refuse("a sweep takes a list of values, such as [\"1 %\", \"2 %\"]");
        };
        if list.is_empty() {
            return refuse("this list has no value");
        }
        let path = match path.as_slice() {
            [name] => {
                let path = parameter_path(name, parameters);
                path.map_err(|fault| fault.spanned(&values.span))?
            }
            _ => path,
        };
        Ok(Axis {
            key,
            path,
            values: list.clone(),
        })
    }
}

/// Returns the path of a parameter's value in the tree.
fn parameter_path(name: &str, parameters: Option<&Node>) -> Result<Vec<String>, Fault> {
    let Some(known) = parameters.and_then(|table| table.get(name)) else {
        let names = parameters.map(Node::keys).unwrap_or_default();
        return Err(Fault::at(
            &[name],
            Problem::unknown("parameter", name, names),
        ));
    };
    let mut path = vec!["parameters", name];
    if matches!(known.value, Value::Table(_)) {
        path.push("text");
    }
    Ok(path.into_iter().map(str::to_owned).collect())
}

/// The axes of a sweep. The axes of a group vary together, and each combination of the groups'
/// values is a cell.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The axes, in the order of the file.
    pub axes: Vec<Axis>,
    /// Groups of axes by index, ordered by their first axes. All axes of a group have the
    /// same number of values.
    groups: Vec<Vec<usize>>,
}

impl Sweep {
    /// Reads the table. An axis without a dot in its key is one of `parameters`.
    pub fn new(mut table: Node, parameters: Option<&Node>) -> Result<Sweep, Fault> {
        let together = table.take(TOGETHER);
        let axes = table.leaves().into_iter();
        let axes = axes.map(|(path, values)| Axis::new(path, values, parameters));
        let axes: Vec<Axis> = axes.collect::<Result<_, _>>()?;
        let mut sweep = Sweep {
            groups: (0..axes.len()).map(|axis| vec![axis]).collect(),
            axes,
        };
        if let Some(together) = together {
            let joined = sweep.join(&together.node);
            joined.map_err(|fault| fault.within(TOGETHER).spanned(&together.node.span))?;
        }
        Ok(sweep)
    }

    /// Joins the axes of each list of keys into a group.
    fn join(&mut self, lists: &Node) -> Result<(), Fault> {
        const EXPECTED: &str = "a list of lists of axes is expected, such as [[\"rtt\", \"rate\"]]";
        for list in lists.items(EXPECTED)? {
            let mut joined: Vec<usize> = Vec::new();
            for key in list.items(EXPECTED)? {
                let Value::Text(key) = &key.value else {
                    return Err(Fault::value(EXPECTED));
                };
                let axis = self.axis(key)?;
                let (first, own) = (*joined.first().unwrap_or(&axis), &self.axes[axis]);
                let (wanted, given) = (self.axes[first].values.len(), own.values.len());
                if given != wanted {
                    return Err(Fault::value(format!(
                        "`{key}` has {given} values and `{}` {wanted}: axes that vary together need the same number of values",
                        self.axes[first].key
                    )));
                }
                let known = self.groups.iter().position(|group| *group == [axis]);
                let Some(known) = known else {
                    return Err(Fault::value(format!("`{key}` appears twice")));
                };
                self.groups.remove(known);
                joined.push(axis);
            }
            joined.sort_unstable();
            self.groups.push(joined);
        }
        self.groups.retain(|group| !group.is_empty());
        self.groups.sort_unstable();
        Ok(())
    }

    /// Returns the index of an axis.
    fn axis(&self, key: &str) -> Result<usize, Fault> {
        let keys = || self.axes.iter().map(|axis| axis.key.as_str());
        let found = keys().position(|known| known == key);
        found.ok_or_else(|| Fault::at(&[], Problem::unknown("axis of the sweep", key, keys())))
    }

    /// Returns the number of values of a group.
    fn size(&self, group: &[usize]) -> usize {
        self.axes[group[0]].values.len()
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> u64 {
        let sizes = self.groups.iter().map(|group| self.size(group) as u64);
        sizes.fold(1, u64::saturating_mul)
    }

    /// Returns each axis with its value in a cell. The last group varies fastest.
    pub fn values(&self, cell: usize) -> Vec<(&Axis, &Node)> {
        let mut places = vec![0; self.axes.len()];
        let mut rest = cell;
        for group in self.groups.iter().rev() {
            let size = self.size(group);
            group.iter().for_each(|&axis| places[axis] = rest % size);
            rest /= size;
        }
        let axes = self.axes.iter().zip(places);
        axes.map(|(axis, place)| (axis, &axis.values[place]))
            .collect()
    }

    /// Returns the axes with the numbers of their groups.
    pub fn outline(&self) -> Vec<OutlineAxis> {
        let group = |axis| self.groups.iter().position(|group| group.contains(&axis));
        let axes = self
            .axes
            .iter()
            .enumerate()
            .map(|(number, axis)| OutlineAxis {
                key: axis.key.clone(),
                group: group(number).expect("each axis is in a group"),
            });
        axes.collect()
    }
}

/// Formats a value as it is written in the file.
pub fn label(value: &Node) -> String {
    match &value.value {
        Value::Text(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(label).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(_) => "{...}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn sweep(text: &str) -> Result<Sweep, String> {
        let table = tree::parse(text).unwrap();
        let parameters = tree::parse("a = 1\nb = 1\nc = 1\nword = { text = \"x\" }").unwrap();
        Sweep::new(table, Some(&parameters)).map_err(|fault| fault.to_string())
    }

    fn vary_together(sweep: &Sweep, first: &str, second: &str) -> bool {
        let axes = sweep.outline();
        let group = |key: &str| axes.iter().find(|axis| axis.key == key).unwrap().group;
        group(first) == group(second)
    }

    fn cells(sweep: &Sweep) -> Vec<String> {
        let cell = |index| {
            let values = sweep.values(index).into_iter();
            values.map(|(_, value)| label(value)).collect()
        };
        (0..sweep.cells() as usize).map(cell).collect()
    }

    #[test]
    fn cells_are_all_combinations_and_the_last_axis_varies_fastest() {
        let sweep = sweep("a = [1, 2]\nb = [3, 4]").unwrap();
        assert_eq!(cells(&sweep), ["13", "14", "23", "24"]);
        assert!(!vary_together(&sweep, "a", "b") && vary_together(&sweep, "a", "a"));
    }

    #[test]
    fn axes_that_vary_together_form_one_group() {
        let sweep =
            sweep("a = [1, 2]\nb = [3, 4]\nc = [5, 6]\ntogether = [[\"c\", \"a\"]]").unwrap();
        assert_eq!(cells(&sweep), ["135", "145", "236", "246"]);
        assert!(vary_together(&sweep, "a", "c") && !vary_together(&sweep, "a", "b"));
    }

    #[test]
    fn a_text_parameter_is_swept_by_its_name() {
        let sweep = sweep("word = [\"x\", \"y\"]").unwrap();
        assert_eq!(sweep.axes[0].path, ["parameters", "word", "text"]);
    }

    #[test]
    fn axes_that_cannot_vary_together_are_refused() {
        for (together, why) in [
            ("[[\"a\", \"b\"]]", "`b` has 1 values and `a` 2"),
            ("[[\"a\", \"a\"]]", "`a` appears twice"),
            ("[[\"a\", \"c\"], [\"c\"]]", "`c` appears twice"),
            ("[[\"a\", \"d\"]]", "there is no axis of the sweep `d`"),
            ("[\"a\", \"b\"]", "a list of lists of axes is expected"),
            ("1", "a list of lists of axes is expected"),
        ] {
            let text = format!("a = [1, 2]\nb = [1]\nc = [1, 2]\ntogether = {together}");
            let error = sweep(&text).unwrap_err();
            assert!(
                error.starts_with("`together`: ") && error.contains(why),
                "{error}"
            );
        }
    }
}
