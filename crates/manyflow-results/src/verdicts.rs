//! The verdicts of several scenarios together: for a terminal, as CSV, as a LaTeX table, and as one
//! HTML page.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use csv::Writer;
use quick_xml::escape::escape;

use super::evaluate::{Checked, Verdict};
use super::html::{EXPECTATIONS, STYLE, write_expectation};
use super::{Provenance, Results};
use manyflow_model::Quantity;

/// The verdicts of one scenario.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// The name of the file, without folder and extension.
    pub id: String,
    /// The title of the scenario.
    pub title: String,
    /// The origin of the scenario, such as a section of an RFC.
    pub source: String,
    /// The expectations with their verdicts.
    pub expectations: Vec<Checked>,
    /// The number of runs that failed.
    pub failed_runs: usize,
}

impl Conclusion {
    /// Returns whether all runs succeeded, and all expectations that could be judged are met.
    pub fn passed(&self) -> bool {
        let met = |checked: &Checked| matches!(checked.verdict, Verdict::Met | Verdict::NotJudged);
        self.failed_runs == 0 && self.expectations.iter().all(met)
    }

    /// Returns the numbers of expectations that are met, and of those that were judged.
    fn counts(&self) -> (usize, usize) {
        let with = |verdict| move |checked: &&Checked| checked.verdict == verdict;
        let not_judged = self.expectations.iter().filter(with(Verdict::NotJudged));
        let met = self.expectations.iter().filter(with(Verdict::Met));
        (met.count(), self.expectations.len() - not_judged.count())
    }

    /// Returns one line: the id, the numbers of expectations that are met, and the source.
    fn line(&self) -> String {
        let (met, judged) = self.counts();
        let verdict = if self.passed() { "met   " } else { "MISSED" };
        format!(
            "{verdict} {met} of {judged}  {:<12} {}",
            self.id, self.source
        )
    }
}

impl Results<'_> {
    /// Returns the verdicts, without the runs.
    pub fn conclusion(&self) -> Conclusion {
        Conclusion {
            id: self.outline.id.clone(),
            title: self.outline.title.clone(),
            source: self.outline.origin.clone().unwrap_or_default(),
            expectations: self.expectations.clone(),
            failed_runs: self.failures.len(),
        }
    }
}

/// The verdicts of several scenarios.
#[derive(Clone, Debug)]
pub struct Verdicts {
    title: String,
    provenance: Provenance,
    conclusions: Vec<Conclusion>,
    left_out: Vec<(String, String)>,
}

impl Verdicts {
    /// Creates a collection without verdicts. `left_out` are criteria that no scenario covers, each
    /// with the reason.
    pub fn new<'a>(
        title: &str,
        left_out: impl IntoIterator<Item = (&'a str, &'a str)>,
        provenance: Provenance,
    ) -> Verdicts {
        let owned = |(criterion, reason): (&str, &str)| (criterion.to_owned(), reason.to_owned());
        Verdicts {
            title: title.to_owned(),
            provenance,
            conclusions: Vec::new(),
            left_out: left_out.into_iter().map(owned).collect(),
        }
    }

    /// Adds the verdicts of a scenario.
    pub fn add(&mut self, conclusion: Conclusion) {
        self.conclusions.push(conclusion);
    }

    /// Returns the verdicts of each scenario, in the order in which they were added.
    pub fn conclusions(&self) -> &[Conclusion] {
        &self.conclusions
    }

    /// Returns a table for terminals, with a line for each scenario.
    pub fn table(&self) -> String {
        let lines: Vec<String> = self.conclusions.iter().map(Conclusion::line).collect();
        let counts = self.conclusions.iter().map(Conclusion::counts);
        let (met, judged) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        format!(
            "{}: {met} of {judged} expectations are met\n  {}",
            self.title,
            lines.join("\n  ")
        )
    }

    /// Writes `index.html`, `verdicts.csv` and `verdicts.tex` into a folder, in which each scenario
    /// has its own. Creates the folder if it does not exist.
    ///
    /// # Errors
    /// Returns the error if a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("verdicts.csv"), self.csv()?)?;
        std::fs::write(folder.join("verdicts.tex"), self.latex())?;
        std::fs::write(folder.join("index.html"), self.html())
    }

    /// Returns a line for each expectation, with numbers in the unit of the line.
    ///
    /// # Errors
    /// Returns no error, because the table is written to memory.
    pub fn csv(&self) -> io::Result<Vec<u8>> {
        let mut table = Writer::from_writer(Vec::new());
        table.write_record([
            "criterion",
            "scenario",
            "expectation",
            "value",
            "at least",
            "at most",
            "unit",
            "verdict",
            "note",
            "source of the bound",
        ])?;
        let number =
            |of: Option<Quantity>| of.map_or(String::new(), |quantity| quantity.value.to_string());
        for one in &self.conclusions {
            for checked in &one.expectations {
                let unit = checked.value.map(|value| value.dimension.unit());
                table.write_record([
                    &one.source,
                    &one.id,
                    &checked.what,
                    &number(checked.value),
                    &number(checked.at_least),
                    &number(checked.at_most),
                    &unit.unwrap_or_default(),
                    checked.verdict.word(),
                    &checked.note,
                    &checked.source,
                ])?;
            }
        }
        table.into_inner().map_err(|error| error.into_error())
    }

    /// Returns a table for LaTeX, which needs the package `booktabs`.
    pub fn latex(&self) -> String {
        let mut text = format!("% {}; needs \\usepackage{{booktabs}}\n", self.title);
        text.push_str("\\begin{tabular}{p{0.55\\linewidth}lll}\n\\toprule\n");
        text.push_str("Criterion & Value & Bound & Verdict \\\\\n");
        let mut section = "";
        for one in &self.conclusions {
            if section != one.source {
                section = &one.source;
                let name = latex_of(section);
                text.push_str(&format!(
                    "\\midrule\n\\multicolumn{{4}}{{l}}{{\\emph{{{name}}}}} \\\\\n"
                ));
            }
            for checked in &one.expectations {
                text.push_str(&format!(
                    "{} & {} & {} & {} \\\\\n",
                    latex_of(&checked.what),
                    latex_of(&checked.shown()),
                    latex_of(&checked.bounds()),
                    checked.verdict.word()
                ));
            }
        }
        text + "\\bottomrule\n\\end{tabular}\n"
    }

    /// Returns one page with all verdicts, and links to the pages of the scenarios.
    pub fn html(&self) -> String {
        let mut page = String::new();
        self.write_page(&mut page)
            .expect("writing into a text does not fail");
        page
    }

    fn write_page(&self, page: &mut String) -> std::fmt::Result {
        let title = escape(&self.title);
        write!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n<h1>{title}</h1>\n<pre>{}</pre>\n",
            escape(self.table())
        )?;
        for one in &self.conclusions {
            let (id, name) = (escape(&one.id), escape(&one.title));
            writeln!(
                page,
                "<h2>{}</h2>\n<p><a href=\"{id}/index.html\">{id}</a>: {name}</p>",
                escape(&one.source)
            )?;
            if one.failed_runs > 0 {
                writeln!(page, "<p>{} runs failed.</p>", one.failed_runs)?;
            }
            writeln!(page, "<table>\n{EXPECTATIONS}")?;
            for checked in &one.expectations {
                write_expectation(page, checked)?;
            }
            writeln!(page, "</table>")?;
        }
        self.write_left_out(page)?;
        self.provenance.write_html(page)?;
        writeln!(page, "</p>")
    }

    fn write_left_out(&self, page: &mut String) -> std::fmt::Result {
        if self.left_out.is_empty() {
            return Ok(());
        }
        writeln!(page, "<h2>Not covered</h2>\n<table>")?;
        for (criterion, reason) in &self.left_out {
            writeln!(page, "<tr><td>{}<td>{}", escape(criterion), escape(reason))?;
        }
        writeln!(page, "</table>")
    }
}

/// Returns a text in which LaTeX sees no commands.
fn latex_of(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '%' | '&' | '#' | '$' | '_' | '{' | '}' => escaped.extend(['\\', letter]),
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(verdict: Verdict, value: f64) -> Checked {
        Checked {
            what: "50 % of <all> & more".to_owned(),
            value: Some(Quantity::number(value)),
            at_least: Some(Quantity::number(0.5)),
            at_most: None,
            verdict,
            cell: None,
            note: "at buffer = 1".to_owned(),
            paper: None,
            source: "this project's".to_owned(),
            percent: true,
        }
    }

    fn verdicts() -> Verdicts {
        let left_out = [("RFC, another section", "no network")];
        let mut verdicts = Verdicts::new("One evaluation", left_out, Provenance::default());
        for (id, all) in [
            (
                "good",
                vec![
                    checked(Verdict::Met, 0.75),
                    checked(Verdict::NotJudged, 0.0),
                ],
            ),
            ("bad", vec![checked(Verdict::Missed, 0.25)]),
        ] {
            verdicts.add(Conclusion {
                id: id.to_owned(),
                title: format!("The title of {id}"),
                source: "RFC, a section".to_owned(),
                expectations: all,
                failed_runs: 0,
            });
        }
        verdicts
    }

    #[test]
    fn the_table_has_a_line_for_each_scenario() {
        let table = verdicts().table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "One evaluation: 1 of 2 expectations are met");
        assert_eq!(lines[1], "  met    1 of 1  good         RFC, a section");
        assert_eq!(lines[2], "  MISSED 0 of 1  bad          RFC, a section");
        let passed = verdicts();
        let passed = passed.conclusions().iter().map(Conclusion::passed);
        assert_eq!(passed.collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn files_have_every_verdict_and_escape_their_formats() {
        let csv = String::from_utf8(verdicts().csv().unwrap()).unwrap();
        assert_eq!(csv.lines().count(), 4);
        let line = "\"RFC, a section\",bad,50 % of <all> & more,0.25,0.5,,,missed,at buffer = 1,this project's";
        assert_eq!(csv.lines().last(), Some(line));
        let latex = verdicts().latex();
        assert!(latex.contains(r"50 \% of <all> \& more & 25 \% & at least 50 \% & missed \\"));
        assert_eq!(latex.matches(r"\emph{RFC, a section}").count(), 1);
        let html = verdicts().html();
        assert!(html.contains("50 % of &lt;all&gt; &amp; more"), "{html}");
        assert!(html.contains("<a href=\"bad/index.html\">"), "{html}");
        assert!(
            html.contains("<td>RFC, another section<td>no network"),
            "{html}"
        );
    }
}
