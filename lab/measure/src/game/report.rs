//! What the samples say: table 1 with a server that runs, and the most players that it held.

use onrush_group::Way;

use super::{GameRecord, LATE_MAX, Run, WAYS};
use crate::group::PAPER;
use crate::table::{Column, Mean, Report, Table, Verdict, gather, table};

/// What a record says.
#[must_use]
pub fn report(record: &GameRecord) -> Report {
    let mut report = Report::new("How many players a game server holds");
    report.add([rows_told(record), most_told(record)]);
    let void = record.runs.iter().filter(|run| !run.void.is_empty());
    report.void_runs(void.count(), record.runs.len());
    report.add(verdicts(record));
    report
}

/// Table 1: N' = N x tick / (send' + tick - send), as the paper computes it.
fn rows_told(record: &GameRecord) -> Table {
    let rows = counting(record).filter(|run| !run.is_search);
    let cases = gather(rows.clone().map(|run| ((run.rate_hz, run.players), ())));
    let mean = |case: (u32, u16), way: Way, of: fn(&Run) -> f64| {
        let runs = rows
            .clone()
            .filter(|run| (run.rate_hz, run.players) == case && run.way == way.as_str());
        let values: Vec<_> = runs.map(of).collect();
        Some(Mean::of(&values)?.mean)
    };
    let rows = cases.into_iter().filter_map(|(case, _)| {
        let by = |way| mean(case, way, |run| run.send_ns);
        let other_ns = mean(case, Way::Kernel, |run| run.other_ns)?;
        let state_bytes = mean(case, Way::Kernel, |run| run.state_bytes)?;
        Some((
            case,
            by(Way::Loop)?,
            by(Way::Kernel)?,
            other_ns,
            state_bytes,
        ))
    });
    table! {
        "Table 1, of a server that runs: N' = N x tick / (send' + tick - send)",
        for ((rate_hz, players), send_ns, sends_ns, other_ns, state_bytes) in rows,
        let tick_ns = 1e9 / f64::from(rate_hz),
        // Where the loop takes longer than a tick there is no such server.
        let rest_ns = (send_ns < tick_ns).then_some(tick_ns - send_ns),
        let factor = rest_ns.map(|rest_ns| tick_ns / (sends_ns + rest_ns));
        Column::key("ticks a second") => rate_hz.to_string(),
        Column::key("N") => players.to_string(),
        Column::count("bytes told each", 0) => state_bytes,
        Column::ms("world", 3) => other_ns,
        Column::ms("send, loop", 3) => send_ns,
        Column::ms("send', kernel", 3) => sends_ns,
        Column::count("factor", 3) => factor,
        Column::count("N'", 0) => factor.map(|factor| f64::from(players) * factor),
        Column::count("paper's factor", 2)
            => PAPER.iter().find(|paper| paper.0 == players).map(|paper| paper.1),
    }
}

/// N' as it was found by trying.
fn most_told(record: &GameRecord) -> Table {
    let rates = record.settings.rates_hz.iter();
    let rows = rates.flat_map(|&rate_hz| WAYS.map(|way| (rate_hz, way)));
    let mut told = table! {
        "The most players with whom at most 1 % of the ticks are late: medians, with the smallest \
         and the largest",
        for (rate_hz, way) in rows,
        let most = most(record, rate_hz, way),
        let by_loop = mean_most(record, rate_hz, Way::Loop),
        let times = Mean::of(&most).map(|most| most.mean).zip(by_loop).map(|(a, b)| a / b);
        Column::key("ticks a second") => rate_hz.to_string(),
        Column::key("way") => way.as_str(),
        Column::count("players", 0).with_range().more() => most,
        Column::count("times the loop's", 2) => times,
    };
    let most = record.settings.players_max;
    told.notes.push(format!(
        "More than {most} were not tried. Late: a tick that ends after the next is due ({} of 100 \
         may).",
        LATE_MAX * 100.0
    ));
    told
}

/// A group holds no fewer players than a loop.
fn verdicts(record: &GameRecord) -> Vec<Verdict> {
    let verdict = |&rate_hz: &u32| {
        let by = |way| mean_most(record, rate_hz, way);
        let times = by(Way::Kernel).zip(by(Way::Loop)).map(|(a, b)| a / b);
        let what = format!("{rate_hz} ticks a second, players: kernel / loop");
        Verdict::at_least(what, times, 1.0, 2)
    };
    record.settings.rates_hz.iter().map(verdict).collect()
}

/// By repeat, the most players that were held, where the search was not void at any step.
fn most(record: &GameRecord, rate_hz: u32, way: Way) -> Vec<f64> {
    let of_search = |run: &&Run| run.is_search && run.rate_hz == rate_hz && run.way == way.as_str();
    let steps = record.runs.iter().filter(of_search);
    let searches = gather(steps.map(|run| (run.repeat, run)));
    let most = |(_, steps): &(u32, Vec<&Run>)| {
        // Who is not held may lose packets, too.
        let held = steps.iter().filter(|run| run.is_held());
        let is_void = held.clone().any(|run| !run.void.is_empty());
        let most = held.map(|run| run.players).max().unwrap_or(0);
        (!is_void).then_some(f64::from(most))
    };
    searches.iter().filter_map(most).collect()
}

fn mean_most(record: &GameRecord, rate_hz: u32, way: Way) -> Option<f64> {
    let mean = Mean::of(&most(record, rate_hz, way))?.mean;
    (mean > 0.0).then_some(mean)
}

fn counting(record: &GameRecord) -> impl Iterator<Item = &Run> + Clone {
    record.runs.iter().filter(|run| run.void.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::table::Outcome;

    fn search(way: Way, repeat: u32, players: u16, late: u32) -> Run {
        Run {
            rate_hz: 30,
            way: way.as_str().to_owned(),
            players,
            is_search: true,
            repeat,
            ticks: 100,
            late,
            other_ns: 1.0,
            send_ns: 1.0,
            state_bytes: 1.0,
            moved: 0.0,
            arrived: 1,
            void: String::new(),
        }
    }

    #[test]
    fn the_most_players_of_each_search_are_compared() {
        let settings = Settings {
            rates_hz: vec![30],
            ..Settings::quick()
        };
        let mut record = Record::new(super::super::NAME, Environment::here("1", "c"), settings);
        let outcome = |record: &GameRecord| verdicts(record)[0].outcome;
        record.runs = vec![
            search(Way::Loop, 0, 500, 0),
            search(Way::Loop, 0, 1000, 1),
            search(Way::Loop, 0, 2000, 2),
            search(Way::Kernel, 0, 1000, 0),
        ];
        assert_eq!(most(&record, 30, Way::Loop), [1000.0]);
        assert_eq!(outcome(&record), Outcome::Kept);
        record.runs[3].players = 999;
        assert_eq!(outcome(&record), Outcome::Missed);
        record.runs[3].void = "lost".to_owned();
        assert_eq!(outcome(&record), Outcome::Void);
    }
}
