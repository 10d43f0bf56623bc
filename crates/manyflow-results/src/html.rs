//! Writes `index.html`: one page that contains all results and needs no other file.

use std::fmt::Write;

use quick_xml::escape::escape;

use manyflow_model::Samples;

use super::evaluate::{Checked, Verdict};
use super::{Provenance, Results};

pub(super) const STYLE: &str = "\
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { line-height: 1.2 } h2 { margin-top: 2.5rem }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 0.6rem; border-bottom: 1px solid #ddd }
td.number { white-space: nowrap }
.verdict { font-weight: 600; border-radius: 0.3rem; padding: 0.1rem 0.5rem; white-space: nowrap }
.met { background: #d7f0dd; color: #0b5a24 } .missed { background: #fbdcd6; color: #8a1f0c }
.none { background: #f3e6c4; color: #6b4c00 }
figure { margin: 1.5rem 0 } svg { max-width: 100%; height: auto; border: 1px solid #eee }
.quiet { color: #666; font-size: 0.9rem } pre { overflow-x: auto; background: #f6f6f6; padding: 1rem; font-size: 0.85rem }
";

/// The head of a table of expectations.
pub(super) const EXPECTATIONS: &str =
    "<tr><th>What<th>Paper<th>Ours<th>Bound<th>Verdict<th>Where the bound comes from";

impl Results<'_> {
    /// Returns the text of `index.html`.
    pub fn html(&self) -> String {
        let mut page = String::new();
        self.write_page(&mut page)
            .expect("writing into a text does not fail");
        page
    }

    fn write_page(&self, page: &mut String) -> std::fmt::Result {
        let title = escape(&self.outline.title);
        writeln!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">"
        )?;
        writeln!(
            page,
            "<meta name=\"viewport\" content=\"width=device-width\">"
        )?;
        writeln!(
            page,
            "<title>{title}</title>\n<style>\n{STYLE}</style>\n<h1>{title}</h1>"
        )?;
        if let Some(source) = &self.outline.origin {
            writeln!(page, "<p>{}</p>", escape(source))?;
        }
        for paragraph in self
            .outline
            .about
            .iter()
            .flat_map(|about| about.split("\n\n"))
        {
            writeln!(page, "<p>{}</p>", escape(paragraph.trim()))?;
        }
        self.write_expectations(page)?;
        self.write_failures(page)?;
        for figure in self.figures() {
            write!(page, "<figure>\n{}", figure.svg)?;
            if let Some(note) = &figure.note {
                write!(
                    page,
                    "<figcaption class=\"quiet\">{}</figcaption>",
                    escape(note)
                )?;
            }
            writeln!(page, "</figure>")?;
        }
        self.write_cells(page)?;
        self.write_origin(page)
    }

    fn write_expectations(&self, page: &mut String) -> std::fmt::Result {
        if self.expectations.is_empty() {
            return Ok(());
        }
        writeln!(page, "<h2>Expected and found</h2>\n<table>")?;
        writeln!(page, "{EXPECTATIONS}")?;
        for checked in &self.expectations {
            write_expectation(page, checked)?;
        }
        writeln!(page, "</table>")
    }

    fn write_failures(&self, page: &mut String) -> std::fmt::Result {
        if self.failures.is_empty() {
            return Ok(());
        }
        writeln!(page, "<h2>Runs that failed</h2>\n<ul>")?;
        for failure in &self.failures {
            let (message, replay) = (escape(&failure.message), escape(&failure.replay));
            writeln!(page, "<li>{message}<br><code>{replay}</code>")?;
        }
        writeln!(page, "</ul>")
    }

    /// Writes the mean of each measure in each cell.
    fn write_cells(&self, page: &mut String) -> std::fmt::Result {
        let Some(first) = self.cells.first() else {
            return Ok(());
        };
        let measures = &first.cell.measure;
        if measures.is_empty() {
            return Ok(());
        }
        writeln!(
            page,
            "<h2>Measured</h2>\n<p class=\"quiet\">Mean over the seeds, and standard deviation.</p>"
        )?;
        writeln!(page, "<div style=\"overflow-x: auto\"><table>\n<tr>")?;
        let axes = self.outline.axes.iter().map(|axis| axis.key.as_str());
        for name in axes.chain(measures.iter().map(|measure| measure.name.as_str())) {
            write!(page, "<th>{}", escape(name))?;
        }
        for cell in &self.cells {
            write!(page, "\n<tr>")?;
            for label in &cell.cell.labels {
                write!(page, "<td>{}", escape(label))?;
            }
            for measure in measures {
                let text = cell.shown(&measure.name, Samples::shown);
                write!(page, "<td class=\"number\">{}", escape(&text))?;
            }
        }
        writeln!(page, "\n</table></div>")
    }

    fn write_origin(&self, page: &mut String) -> std::fmt::Result {
        self.provenance.write_html(page)?;
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let form = if self.outline.source.fast {
            "shortened (--fast)"
        } else {
            "in full"
        };
        writeln!(page, "· {form} · seeds {}", seeds.join(", "))?;
        for setting in &self.outline.source.settings {
            writeln!(page, "· --set {}", escape(setting))?;
        }
        writeln!(page, "· SHA-256 of the scenario {}</p>", self.outline.hash)?;
        let (id, text) = (escape(&self.outline.id), escape(&self.outline.source.text));
        writeln!(
            page,
            "<details><summary>{id}.toml</summary>\n<pre>{text}</pre></details>"
        )
    }
}

impl Provenance {
    /// Writes the beginning of the paragraph about the program.
    pub(super) fn write_html(&self, page: &mut String) -> std::fmt::Result {
        writeln!(
            page,
            "<h2>How it was made</h2>\n<p class=\"quiet\">manyflow {}",
            env!("CARGO_PKG_VERSION")
        )?;
        for (name, value) in [("commit", &self.commit), ("compiler", &self.toolchain)] {
            if let Some(value) = value {
                writeln!(page, "· {name} {}", escape(value))?;
            }
        }
        Ok(())
    }
}

pub(super) fn write_expectation(page: &mut String, checked: &Checked) -> std::fmt::Result {
    let class = match checked.verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::NoValue | Verdict::NotJudged => "none",
    };
    let note = match checked.note.as_str() {
        "" => String::new(),
        note => format!("<br><span class=\"quiet\">{}</span>", escape(note)),
    };
    writeln!(
        page,
        "<tr><td>{}<td>{}<td class=\"number\">{}{note}<td>{}<td><span class=\"verdict {class}\">{}</span><td>{}",
        escape(&checked.what),
        escape(checked.paper.as_deref().unwrap_or("")),
        escape(checked.shown()),
        escape(checked.bounds()),
        checked.verdict.word(),
        escape(&checked.source),
    )
}
