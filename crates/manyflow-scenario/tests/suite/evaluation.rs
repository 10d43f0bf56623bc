//! The scenarios of RFC 9743's criteria.

use manyflow_core::Time;
use manyflow_results::{Conclusion, Provenance, Results};
use manyflow_scenario::evaluation::{Subject, scenarios};
use manyflow_scenario::{Controls, Scenario};
use manyflow_tcp::{Control, Moment};

/// Sends at 10 Mbit/s, whatever happens.
#[derive(Debug)]
struct FixedRate;

impl Control for FixedRate {
    fn on_ack(&mut self, _moment: &Moment) {}

    fn on_loss(&mut self, _moment: &Moment) {}

    fn on_timeout(&mut self, moment: &Moment) {
        assert!(moment.now > Time::from_secs_f64(20.0), "no losses before");
    }

    fn window_segments(&self) -> f64 {
        10_000.0
    }

    fn rate_bits_per_s(&self) -> Option<f64> {
        Some(10e6)
    }
}

fn conclude(scenario: &Scenario) -> Conclusion {
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 2, &mut |_| {});
    let outline = scenario.outline().unwrap();
    Results::new(outline, &jobs, &outcomes, Provenance::default()).conclusion()
}

fn find(subject: &Subject, id: &str) -> Scenario {
    let all = scenarios(subject, true).unwrap();
    all.into_iter()
        .find(|scenario| scenario.id() == id)
        .unwrap()
}

#[test]
fn every_protocol_has_all_scenarios_in_both_forms() {
    let error = Subject::named("cubc").unwrap_err().to_string();
    assert_eq!(error, "there is no protocol `cubc`; did you mean `cubic`?");
    let error = Subject::named("?").unwrap_err().to_string();
    let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert!(names.len() >= 11, "{error}");
    let named = names.iter().map(|name| Subject::named(name).unwrap());
    for subject in named.chain([Subject::of_control("own")]) {
        for fast in [false, true] {
            let all = scenarios(&subject, fast).unwrap_or_else(|error| panic!("{error}"));
            let with_ecn = usize::from(subject.can_be_marked());
            assert_eq!(all.len(), 18 + with_ecn, "{}", subject.name());
            for scenario in all {
                assert!(!scenario.text().contains("tested]]"), "{}", scenario.id());
                assert!(scenario.is_fast() == fast && !scenario.jobs().unwrap().is_empty());
            }
        }
    }
}

#[test]
fn every_bound_has_a_source_and_every_scenario_a_criterion() {
    for scenario in scenarios(&Subject::named("cubic").unwrap(), false).unwrap() {
        let outline = scenario.outline().unwrap();
        let criterion = outline.origin.unwrap();
        assert!(criterion.starts_with("RFC 9743, "), "{criterion}");
        let all = &outline.cells[0].expect;
        assert!(!all.is_empty(), "{}", outline.id);
        for expect in all {
            let source = &expect.source;
            assert!(
                source.starts_with("this project's: ") || source.contains("RFC"),
                "{source}"
            );
        }
    }
}

#[test]
fn a_fixed_rate_fails_where_cubic_backs_off() {
    let cubic = conclude(&find(&Subject::named("cubic").unwrap(), "collapse"));
    assert!(cubic.passed(), "{:?}", cubic.expectations);
    let mut controls = Controls::default();
    controls.add("fixed-rate", || Box::new(FixedRate));
    let fixed = find(&Subject::of_control("fixed-rate"), "collapse").with_controls(controls);
    let fixed = conclude(&fixed);
    assert_eq!(fixed.failed_runs, 0);
    let verdicts: Vec<&str> = fixed
        .expectations
        .iter()
        .map(|one| one.verdict.word())
        .collect();
    // It keeps half of the path busy before the losses, and afterwards.
    assert_eq!(verdicts[0], "missed", "{:?}", fixed.expectations);
    assert_eq!(verdicts[2], "met", "{:?}", fixed.expectations);
    let sent = fixed.expectations[0].value.unwrap().value;
    println!(
        "with half of the packets lost, a fixed rate sends {sent:.1} packets in a round-trip time"
    );
    assert!(sent > 10.0, "{sent}");
}

#[test]
fn packets_have_1500_bytes_whatever_the_protocol() {
    for name in ["cubic", "webrc", "tfmcc", "tfrc", "cost-benefit"] {
        let scenario = find(&Subject::named(name).unwrap(), "tail-drop");
        let text = scenario.text().replace(
            "[[expect]]",
            "[[measure]]\nname = \"packets\"\nwhat = \"delivered-packets\"\nof = \"r1-r2\"\n\n\
             [[measure]]\nname = \"carried\"\nwhat = \"link-rate\"\nof = \"r1-r2\"\n\n[[expect]]",
        );
        let text = text.replace("run.duration = \"40 s\"", "run.duration = \"24 s\"");
        let scenario = Scenario::parse("tail-drop.toml", &text, true).unwrap();
        let job = scenario.jobs().unwrap()[0];
        let measures = scenario.run_one(job).unwrap().measures;
        let names = &scenario.outline().unwrap().cells[0].measure;
        let of = |name: &str| {
            let place = names.iter().position(|measure| measure.name == name);
            measures[place.unwrap()]
        };
        let bytes = of("carried") * 4.0 / 8.0 / of("packets");
        println!("{name}: {bytes:.0} bytes on average");
        // Daemons send some short packets of their own.
        assert!(bytes > 1450.0 && bytes < 1500.5, "{name}: {bytes} bytes");
    }
}
