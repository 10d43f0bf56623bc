//! The column of the series of each run.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, UInt16Type};
use arrow_array::{
    Array as _, ArrayRef, Float64Array, ListArray, StringArray, StructArray, UInt16Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef, Fields};
use manyflow_model::tables::PlotTable;
use manyflow_model::{Observable, Outcome, Series};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

/// The type of the column.
pub(super) fn data_type() -> DataType {
    DataType::List(item())
}

fn item() -> FieldRef {
    Arc::new(Field::new("item", DataType::Struct(fields()), false))
}

fn number() -> FieldRef {
    Arc::new(Field::new("item", DataType::Float64, false))
}

/// The properties of a series; `line` is the index of its entry in the plot's `series`.
fn fields() -> Fields {
    let numbers = || DataType::List(number());
    Fields::from(vec![
        Field::new("plot", DataType::Utf8, false),
        Field::new("line", DataType::UInt16, false),
        Field::new("observable", DataType::Utf8, false),
        Field::new("subject", DataType::Utf8, false),
        Field::new("channel", DataType::UInt16, true),
        Field::new("bin_s", DataType::Float64, true),
        Field::new("time_s", numbers(), false),
        Field::new("value", numbers(), false),
        Field::new("ends_s", numbers(), false),
        Field::new("weights", numbers(), false),
    ])
}

/// Returns the series of each outcome; a failed run has none.
pub(super) fn encode(plots: &[PlotTable], outcomes: &[Outcome]) -> ArrayRef {
    let mut all: Vec<(&str, u16, &Series)> = Vec::new();
    let lengths = outcomes.iter().map(|outcome| {
        let before = all.len();
        let of_plots = outcome.iter().flat_map(|run| plots.iter().zip(&run.series));
        for (plot, lines) in of_plots {
            for (line, own) in (0..).zip(lines) {
                all.extend(own.iter().map(|series| (plot.name.as_str(), line, series)));
            }
        }
        all.len() - before
    });
    let offsets = OffsetBuffer::from_lengths(lengths.collect::<Vec<_>>());
    let series = || all.iter().map(|(_, _, series)| *series);
    let texts = |values: &mut dyn Iterator<Item = String>| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(values))
    };
    let columns: Vec<ArrayRef> = vec![
        texts(&mut all.iter().map(|(plot, _, _)| (*plot).to_owned())),
        Arc::new(UInt16Array::from_iter_values(
            all.iter().map(|(_, line, _)| *line),
        )),
        texts(&mut series().map(|series| series.what.name())),
        texts(&mut series().map(|series| series.of.clone())),
        Arc::new(
            series()
                .map(|series| series.channel)
                .collect::<UInt16Array>(),
        ),
        Arc::new(
            series()
                .map(|series| series.bin_s)
                .collect::<Float64Array>(),
        ),
        lists(series().map(|series| series.points.iter().map(|(time, _)| *time))),
        lists(series().map(|series| series.points.iter().map(|(_, value)| *value))),
        lists(series().map(|series| series.ends_s.iter().copied())),
        lists(series().map(|series| series.weights.iter().copied())),
    ];
    let series = StructArray::new(fields(), columns, None);
    Arc::new(ListArray::new(item(), offsets, Arc::new(series), None))
}

fn lists(values: impl Iterator<Item = impl Iterator<Item = f64>>) -> ArrayRef {
    let mut all = Vec::new();
    let lengths = values.map(|own| {
        let before = all.len();
        all.extend(own);
        all.len() - before
    });
    let offsets = OffsetBuffer::from_lengths(lengths.collect::<Vec<_>>());
    let values = Arc::new(Float64Array::from(all));
    Arc::new(ListArray::new(number(), offsets, values, None))
}

/// Returns the series of one row, by plots and their lines. The plots that show this place of a
/// cell have all their lines.
pub(super) fn decode(
    plots: &[PlotTable],
    place: u32,
    column: &ArrayRef,
    row: usize,
) -> Result<Vec<Vec<Vec<Series>>>, String> {
    let lines = |plot: &PlotTable| match place < plot.seeds.get() {
        true => vec![Vec::new(); plot.series.len()],
        false => Vec::new(),
    };
    let mut all: Vec<Vec<Vec<Series>>> = plots.iter().map(lines).collect();
    let typed = column.as_list_opt::<i32>();
    let typed = typed.filter(|list| list.value_type() == DataType::Struct(fields()));
    let list = typed
        .ok_or("the column of series has another type")?
        .value(row);
    let list = list.as_struct();
    for index in 0..list.len() {
        let (plot, line, series) = one(list, index)?;
        let plot = plots.iter().position(|known| known.name == plot);
        let own = plot.and_then(|plot| all[plot].get_mut(line));
        own.ok_or("the series is of another scenario")?.push(series);
    }
    Ok(all)
}

/// Returns a series with the name of its plot and the index of its line. The columns have the
/// types of `fields`.
fn one(list: &StructArray, index: usize) -> Result<(&str, usize, Series), String> {
    let text = |column: usize| list.column(column).as_string::<i32>().value(index);
    let numbers = |column: usize| -> Vec<f64> {
        let numbers = list.column(column).as_list::<i32>().value(index);
        numbers.as_primitive::<Float64Type>().values().to_vec()
    };
    let observable: StrDeserializer<'_, Error> = text(2).into_deserializer();
    let channels = list.column(4).as_primitive::<UInt16Type>();
    let bins = list.column(5).as_primitive::<Float64Type>();
    let series = Series {
        what: Observable::deserialize(observable).map_err(|error| error.to_string())?,
        of: text(3).to_owned(),
        channel: channels.is_valid(index).then(|| channels.value(index)),
        bin_s: bins.is_valid(index).then(|| bins.value(index)),
        points: numbers(6).into_iter().zip(numbers(7)).collect(),
        ends_s: numbers(8),
        weights: numbers(9),
    };
    let lines = list.column(1).as_primitive::<UInt16Type>();
    Ok((text(0), usize::from(lines.value(index)), series))
}
