//! The scenarios with which users begin.

use manyflow_figures::TEMPLATES;
use manyflow_results::{Provenance, Results, Verdict};
use manyflow_scenario::Scenario;

#[test]
fn every_template_is_valid_and_meets_its_expectations() {
    assert!(TEMPLATES.len() >= 5);
    for template in TEMPLATES {
        let [whole, fast] = [false, true].map(|is_fast| {
            let scenario = Scenario::parse(template.name, template.text, is_fast);
            scenario.unwrap_or_else(|error| panic!("{error}"))
        });
        assert!(
            whole.jobs().unwrap().len() > fast.jobs().unwrap().len(),
            "{}",
            template.name
        );
        let jobs = fast.jobs().unwrap();
        let outcomes = fast.run(&jobs, 2, &mut |_| {});
        let outline = fast.outline().unwrap();
        let results = Results::new(outline, &jobs, &outcomes, Provenance::default());
        assert!(!results.expectations().is_empty());
        for checked in results.expectations() {
            assert_eq!(
                checked.verdict,
                Verdict::Met,
                "{}: {}",
                template.name,
                checked.line()
            );
        }
    }
}
