//! Tables for other programs.

use std::io;

use csv::Writer;

use super::{CellResult, Results};
use manyflow_model::Series;
use manyflow_model::tables::PlotTable;

impl Results<'_> {
    /// Returns `measures.csv`: for each run the values of the sweep, the seed, and each measure in
    /// its unit.
    ///
    /// # Errors
    /// Returns no error, because the table is written to memory.
    pub fn measures_csv(&self) -> io::Result<String> {
        let mut table = Writer::from_writer(Vec::new());
        let Some(first) = self.cells.first() else {
            return Ok(String::new());
        };
        let measures = &first.cell.measure;
        let mut header: Vec<String> = self
            .outline
            .axes
            .iter()
            .map(|axis| axis.key.clone())
            .collect();
        header.push("seed".to_owned());
        header.extend(measures.iter().map(|measure| {
            match first.environment[&measure.name].dimension.unit() {
                unit if unit.is_empty() => measure.name.clone(),
                unit => format!("{} ({unit})", measure.name),
            }
        }));
        table.write_record(&header)?;
        for cell in &self.cells {
            for (place, seed) in cell.seeds.iter().enumerate() {
                let mut record = cell.cell.labels.clone();
                record.push(seed.to_string());
                record.extend(measures.iter().map(|measure| {
                    let values = &cell.environment[&measure.name].values;
                    number(values[place.min(values.len() - 1)])
                }));
                table.write_record(&record)?;
            }
        }
        text(table)
    }

    /// Returns the name and the table of each plot over time, with a line for each point.
    ///
    /// # Errors
    /// Returns no error, because the table is written to memory.
    pub fn series_csv(&self) -> io::Result<Vec<(String, String)>> {
        let Some(first) = self.cells.first() else {
            return Ok(Vec::new());
        };
        let plots = first.cell.plots.iter().enumerate();
        let over_time = plots.filter(|(_, plot)| !plot.series.is_empty());
        over_time
            .map(|(index, plot)| Ok((plot.name.clone(), self.plot_csv(index, plot)?)))
            .collect()
    }

    fn plot_csv(&self, index: usize, plot: &PlotTable) -> io::Result<String> {
        let mut table = Writer::from_writer(Vec::new());
        let axes = self.outline.axes.iter().map(|axis| axis.key.as_str());
        let columns = ["seed", "what", "of", "channel", "unit", "time (s)", "value"];
        table.write_record(axes.chain(columns))?;
        for CellResult { cell, .. } in &self.cells {
            for run in self.shown_runs(cell.index, index, plot) {
                for series in run.series[index].iter().flatten() {
                    write_series(&mut table, &cell.labels, run.seed, series)?;
                }
            }
        }
        text(table)
    }
}

fn write_series(
    table: &mut Writer<Vec<u8>>,
    labels: &[String],
    seed: u64,
    series: &Series,
) -> io::Result<()> {
    let channel = series
        .channel
        .map_or(String::new(), |channel| channel.to_string());
    let unit = series.what.dimension().unit();
    let mut record = labels.to_vec();
    record.extend([
        seed.to_string(),
        series.what.label().to_owned(),
        series.of.clone(),
        channel,
        unit,
    ]);
    for (time, value) in &series.points {
        let point = [number(*time), number(*value)];
        table.write_record(record.iter().chain(&point))?;
    }
    Ok(())
}

/// Formats a number. A missing value becomes an empty field.
fn number(value: f64) -> String {
    match value.is_finite() {
        true => value.to_string(),
        false => String::new(),
    }
}

fn text(table: Writer<Vec<u8>>) -> io::Result<String> {
    let bytes = table.into_inner().map_err(|error| error.into_error())?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
