//! `onrush top`: a live view of a server's status.
//!
//! A thread fetches the status at each interval; what is shown is what lies between two of them
//! ([`rates`]), on a terminal as a picture ([`view`]), elsewhere as a line each. A server that goes
//! away is waited for.

mod facts;
mod fetch;
mod rates;
mod view;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::{Args, ValueHint};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use self::fetch::{Fetched, Source};
use self::rates::Rates;
use self::view::View;
use crate::units::{Time, within};
use crate::values::DAY;

/// Show what a server does, live
///
/// Fetches the status of an `onrush serve` (its --metrics address) at each interval and shows what
/// happened in it: sessions, packets, rate, lateness, processor time, batches, cache. Keys: q
/// quits, p pauses. A server that goes away is waited for; one that is not there at the start is an
/// error.
///
/// Where the output is no terminal, a line is printed for each interval.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Top {
    /// The server's metrics address
    #[arg(default_value = "http://127.0.0.1:9554", value_hint = ValueHint::Url,
        value_parser = fetch::status_url)]
    url: Source,

    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(1)),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    interval: Time,

    /// Look twice, print all as text, and end
    #[arg(long)]
    once: bool,

    /// Print a JSON object for each interval
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  onrush top                             the server on this machine
  onrush top 192.0.2.7:9554              another that listens there
  onrush top --once --json | jq .late_p999_ms
  onrush top --interval 10s >> top.txt   a line each ten seconds

Exit codes:
  0  ended by you, or --once done
  2  no server answered at the start";

/// Shows, until it is told to stop.
pub(crate) fn run(arguments: &Top, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let first = arguments.url.fetch()?;
    let statuses = arguments.url.follow(arguments.interval.0);
    let mut view = View::new(arguments.url.to_string(), first);
    if !arguments.once && !arguments.json && io::stdout().is_terminal() {
        let mut terminal = ratatui::try_init()?;
        let shown = show(&mut terminal, &mut view, &statuses);
        ratatui::restore();
        shown?;
    } else {
        print(arguments, &mut view, &statuses, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// On a terminal: draws when there is something new, or the terminal has another size.
fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    statuses: &Receiver<Fetched>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        let redraw = Instant::now() + REDRAW_EVERY;
        loop {
            let mut is_new = false;
            while let Ok(fetched) = statuses.try_recv() {
                is_new |= view.take(fetched).is_some();
            }
            if event::poll(KEY_WAIT)? {
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('c') if key.modifiers == KeyModifiers::CONTROL => {
                            return Ok(());
                        }
                        KeyCode::Char('p' | ' ') => view.pause(),
                        _ => {}
                    },
                    _ => {}
                }
                is_new = true;
            }
            if is_new || Instant::now() >= redraw {
                break;
            }
        }
    }
}

/// Not on a terminal: a line, an object, or all at once.
fn print(
    arguments: &Top,
    view: &mut View,
    statuses: &Receiver<Fetched>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut lines = 0;
    loop {
        // Twice the interval is long enough for an answer or an error: the thread says one of them.
        let fetched = match statuses.recv_timeout(arguments.interval.0 * 2 + fetch::PATIENCE) {
            Ok(fetched) => fetched,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if let (true, Err(error)) = (arguments.once, &fetched) {
            anyhow::bail!("{error}");
        }
        let rates = view.take(fetched).flatten();
        match (rates, view.trouble()) {
            (Some(rates), _) if arguments.json => {
                writeln!(out, "{}", serde_json::to_string(&rates)?)?;
            }
            (Some(_), _) if arguments.once => out.write_all(view.text().as_bytes())?,
            (Some(rates), _) => {
                if lines % LINES_PER_HEAD == 0 {
                    writeln!(out, "{}", Rates::HEAD)?;
                }
                lines += 1;
                writeln!(out, "{}", rates.line())?;
            }
            (None, Some(trouble)) => writeln!(io::stderr(), "onrush: {trouble}")?,
            // The server was started anew: there is nothing to compare with yet.
            (None, None) => continue,
        }
        out.flush()?;
        if arguments.once {
            return Ok(());
        }
    }
}

/// The heading is repeated, as vmstat(8) does.
const LINES_PER_HEAD: u32 = 20;
const KEY_WAIT: Duration = Duration::from_millis(50);
const REDRAW_EVERY: Duration = Duration::from_secs(1);
