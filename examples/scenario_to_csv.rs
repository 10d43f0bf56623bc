//! Runs a scenario from a program and prints one of its series as CSV.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use manyflow_scenario::Scenario;

const SCENARIO: &str = r#"
title = "WEBRC beside TCP"
[run]
duration = "60 s"
bin = "5 s"
[nodes]
names = ["S", "router", "R"]
[[links]]
between = ["S", "router"]
delay = "10 ms"
[[links]]
between = ["router", "R"]
rate = "2 Mbit/s"
delay = "20 ms"
queue = "40 packets"
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "S"
receivers = ["R"]
webrc.session-rate = "20 Mbit/s"
[[sessions]]
name = "tcp"
protocol = "tcp"
sender = "S"
receivers = ["R"]
start = "20 s"
[[plots]]
name = "rates"
title = "Rates"
series = [{ what = "received-rate", of = "webrc" }, { what = "received-rate", of = "tcp" }]
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let scenario = Scenario::parse("inline", SCENARIO, false)?;
    println!("of,time_s,rate_bits_per_s");
    for outcome in scenario.run(&scenario.jobs()?, 1, &mut |_| {}) {
        for series in outcome?.series.iter().flatten().flatten() {
            for (time_s, rate) in &series.points {
                println!("{},{time_s},{rate:.0}", series.of);
            }
        }
    }
    Ok(())
}
